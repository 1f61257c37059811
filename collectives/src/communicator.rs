//! The handle that a program holds: one rank's membership in a job.

use core::cell::Cell;
use core::marker::PhantomData;
use core::time::Duration;
use std::sync::Arc;

use vervain_transport::{Error, Kind, Rank, Result, fabric::Backend};

use crate::bootstrap::UniqueId;
use crate::plan::Algorithm;
use crate::{Collective, DataType, Element, ReduceOp, bootstrap::InitError, control::Report};

/// How lines travel on a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Protocol {
    /// 8 bytes of data in a line of 16: least latency.
    Ll,
    /// 120 bytes of data in a line of 128.
    Ll128,
    /// Plain bytes and a counter: most bandwidth.
    Simple,
}

/// Who drives the control mesh.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Progress {
    /// A thread per communicator, asleep when idle.
    #[default]
    Thread,
    /// The caller, by `step`.
    Manual,
}

/// What a communicator is made with. All ranks must use equal values for `fabric`, `algorithm` and `protocol`.
#[derive(Clone, Debug)]
pub struct Config {
    /// `None`: shm if all ranks are on one host, else tcp.
    pub fabric: Option<Backend>,
    /// `None`: by size.
    pub algorithm: Option<Algorithm>,
    /// `None`: by size.
    pub protocol: Option<Protocol>,
    /// How long `init` may take.
    pub init_timeout: Duration,
    /// How long an operation may take.
    pub timeout: Duration,
    /// Who drives the control mesh.
    pub progress: Progress,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            fabric: None,
            algorithm: None,
            protocol: None,
            init_timeout: Duration::from_secs(60),
            timeout: Duration::from_secs(300),
            progress: Progress::Thread,
        }
    }
}

/// One call with everything decided at run time: what the command line and the C interfaces use.
#[derive(Clone, Copy, Debug)]
pub struct Call {
    /// What to do.
    pub collective: Collective,
    /// Element type.
    pub datatype: DataType,
    /// For the reducing collectives.
    pub op: Option<ReduceOp>,
    /// For broadcast and reduce; the peer of send and recv.
    pub root: Option<Rank>,
    /// Elements per block: of the message for all_reduce, broadcast, reduce, send, recv; of one rank's block for all_gather (input),
    /// reduce_scatter (output) and all_to_all (both).
    pub count: usize,
    /// First input byte; ignored where the rank has none.
    pub input: *const u8,
    /// First output byte; ignored where the rank has none. In place: equal to `input` (all_reduce, broadcast, reduce),
    /// `output + rank * count == input` (all_gather), `input + rank * count == output` (reduce_scatter).
    pub output: *mut u8,
    /// Both buffers lie in memory from [`Communicator::alloc`].
    pub registered: bool,
}

/// One rank's membership in a job. `Send`, not `Sync`: one thread at a time; for abort from elsewhere see [`Communicator::aborter`].
#[derive(Debug)]
pub struct Communicator {
    _not_sync: PhantomData<Cell<()>>,
}

/// Memory that all ranks registered together: the direct path. Dereferences to a slice.
#[derive(Debug)]
pub struct Buffer<T: Element> {
    _elements: PhantomData<T>,
}

impl<T: Element> core::ops::Deref for Buffer<T> {
    type Target = [T];
    fn deref(&self) -> &[T] {
        &[]
    }
}

impl<T: Element> core::ops::DerefMut for Buffer<T> {
    fn deref_mut(&mut self) -> &mut [T] {
        &mut []
    }
}

/// Ends a communicator from any thread.
#[derive(Clone, Debug)]
pub struct Aborter {}

impl Aborter {
    /// Every call on the communicator, here and on all other ranks, ends with `Aborted` in bounded time.
    pub fn abort(&self) {}
}

impl Communicator {
    /// Join a job as `rank` of `ranks`.
    pub fn init_rank(_id: &UniqueId, _rank: Rank, _ranks: u32, _config: &Config) -> Result<Self, Box<InitError>> {
        Err(Box::new(InitError::from(Error::new(Kind::Unsupported))))
    }

    /// All ranks of a job in this process, to be given to threads.
    pub fn init_all(_ranks: u32, _config: &Config) -> Result<Vec<Self>, Box<InitError>> {
        Err(Box::new(InitError::from(Error::new(Kind::Unsupported))))
    }

    /// Join the job that a launcher's environment describes: `vervain launch`, torchrun, mpirun, srun.
    pub fn from_env(_config: &Config) -> Result<Self, Box<InitError>> {
        Err(Box::new(InitError::from(Error::new(Kind::Unsupported))))
    }

    /// Our rank.
    pub fn rank(&self) -> Rank {
        Rank::new(0)
    }

    /// How many ranks there are.
    pub fn ranks(&self) -> u32 {
        1
    }

    /// The fabric in use.
    pub fn backend(&self) -> Option<Backend> {
        None
    }

    /// Memory of `count` zeroed elements that all ranks register together. Collective: every rank calls it, with the same count.
    pub fn alloc<T: Element>(&self, _count: usize) -> Result<Buffer<T>> {
        Err(Kind::Unsupported.into())
    }

    /// Run one call, blocking.
    ///
    /// # Safety
    /// The buffers must be valid for the call's sizes, and nobody else may touch them until it returns.
    pub unsafe fn call(&self, _call: &Call) -> Result<()> {
        Err(Kind::Unsupported.into())
    }

    /// Nobody leaves before everybody came.
    pub fn barrier(&self) -> Result<()> {
        Err(Kind::Unsupported.into())
    }

    /// What is known about the last failure.
    pub fn report(&self) -> Option<Arc<Report>> {
        None
    }

    /// Ends this communicator from any thread.
    pub fn aborter(&self) -> Aborter {
        Aborter {}
    }

    /// Say goodbye: peers that still need us get `PeerLeft`, others nothing. Dropping does the same.
    pub fn finalize(self) -> Result<()> {
        Ok(())
    }
}
