//! The handle that a program holds: one rank's membership in a job.
//!
//! ```text
//! init_rank, init_all, from_env   join.rs      meet the other ranks, make a fabric
//! all_reduce, ... , call          inner.rs     choose how (select.rs), cut it (prepare.rs), remember its shape
//! send, recv, group               group.rs     messages between two ranks
//! ```
//! A call runs in the calling thread and returns when its buffers may be used again. The first failure ends the communicator: this
//! call and all later ones return it, on every rank.

mod config;
mod group;
#[cfg(test)]
mod hostile;
mod inner;
mod join;
mod prepare;
mod select;
mod slices;

use core::cell::RefCell;
use core::task::Poll;
use std::sync::{Arc, Weak};

use vervain_transport::fabric::Backend;
use vervain_transport::{Error, Kind, Rank, Result, Time};

pub use config::{Config, Progress, Protocol};
pub use group::Group;
pub use join::Joining;
pub use slices::{Elements, ElementsMut};

use crate::bootstrap::{InitError, UniqueId};
use crate::buffer::{Buffer, Memory};
use crate::control::{Handle, Report, Thread};
use crate::executor::{Engine, Operation};
use crate::launch::Environment;
use crate::plan::{Algorithm, Program};
use crate::{Collective, DataType, Element, ReduceOp};
use prepare::Prepared;

/// One call with everything decided at run time: what the command line and the C interfaces use.
#[derive(Clone, Copy, Debug)]
pub struct Call {
    /// What to do: any collective, or `Send` or `Recv`.
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

/// One rank's membership in a job.
///
/// `Send`, not `Sync`: one thread uses it at a time; to end it from another one, see [`Communicator::aborter`].
///
/// # What the compiler refuses
/// Use by two threads at once:
/// ```compile_fail,E0277
/// # use vervain_collectives::Communicator;
/// fn shared<T: Sync>() {}
/// shared::<Communicator>();
/// ```
/// Reading what is being written, of registered memory too; what is in place has calls of its own:
/// ```compile_fail,E0502
/// # use vervain_collectives::{Buffer, Communicator, ReduceOp, Result};
/// fn overlapping(comm: &Communicator, data: &mut Buffer<f32>) -> Result<()> {
///     comm.all_reduce(&*data, data, ReduceOp::Sum)
/// }
/// ```
/// ```compile_fail,E0502
/// # use vervain_collectives::{Communicator, Rank, Result};
/// fn exchange(comm: &Communicator, data: &mut [f32], peer: Rank) -> Result<()> {
///     comm.group(|group| {
///         group.send(&data[..1], peer);
///         group.recv(data, peer);
///     })
/// }
/// ```
/// Elements that are no numbers of a known type, and two types in one call:
/// ```compile_fail,E0277
/// # use vervain_collectives::{Communicator, ReduceOp, Result};
/// fn sum_of_flags(comm: &Communicator, flags: &mut [bool]) -> Result<()> {
///     comm.all_reduce_in_place(flags, ReduceOp::Sum)
/// }
/// ```
/// ```compile_fail,E0277
/// # use vervain_collectives::{Communicator, ReduceOp, Result};
/// fn widened(comm: &Communicator, halves: &[f32], doubles: &mut [f64]) -> Result<()> {
///     comm.all_reduce(halves, doubles, ReduceOp::Sum)
/// }
/// ```
/// A communicator that was finalized:
/// ```compile_fail,E0382
/// # use vervain_collectives::{Communicator, Result};
/// fn once_more(comm: Communicator) -> Result<()> {
///     comm.finalize()?;
///     comm.barrier()
/// }
/// ```
#[derive(Debug)]
pub struct Communicator {
    rank: Rank,
    ranks: u32,
    backend: Option<Backend>,
    control: Handle,
    inner: RefCell<Inner>,
    /// Says goodbye when dropped, after the links are closed.
    _thread: Option<Thread>,
}

/// What a call changes.
#[derive(Debug)]
struct Inner {
    engine: Engine,
    config: Config,
    /// Number of the next collective operation.
    operation: u64,
    /// Operations by shape, and the one used last.
    prepared: Vec<Prepared>,
    last: usize,
    /// Programs by plan and root, for new shapes.
    programs: Vec<Known>,
    /// What a single rank registered with itself.
    alone: Vec<(Memory, Weak<()>)>,
    /// Whether every rank can read every other's memory, once that is known.
    pull: Option<bool>,
    /// Messages to and from each rank so far.
    messages: Vec<(u64, u64)>,
    /// What was begun and is stepped by the caller.
    begun: Option<Begun>,
}

/// A verified program, what it was built for, and its hash.
type Known = (Collective, Algorithm, Option<Rank>, Arc<Program>, u64);

/// An operation that the caller steps.
#[derive(Debug)]
enum Begun {
    Prepared(usize),
    Messages(Operation),
}

/// Shapes that are remembered.
const SHAPES: usize = 64;

/// Ends a communicator from any thread.
#[derive(Clone, Debug)]
pub struct Aborter(Handle);

impl Aborter {
    /// Every call on the communicator, here and on all other ranks, ends with `Aborted` in bounded time.
    pub fn abort(&self) {
        self.0.abort();
    }
}

impl Communicator {
    /// Join a job as `rank` of `ranks`. Blocks until all have come.
    ///
    /// # Errors
    /// `TimedOut` with the missing ranks in the report, `DuplicateRank`, `Unauthenticated`, or the failure of any rank, by name.
    pub fn init_rank(id: &UniqueId, rank: Rank, ranks: u32, config: &Config) -> Result<Self, Box<InitError>> {
        Joining::start(id, rank, ranks, config)?.wait()
    }

    /// All ranks of a job in this process, to be given to threads.
    ///
    /// # Errors
    /// As for [`Communicator::init_rank`].
    pub fn init_all(ranks: u32, config: &Config) -> Result<Vec<Self>, Box<InitError>> {
        join::all(ranks, config)
    }

    /// Join the job that a launcher's environment describes: `vervain launch`, torchrun, mpirun, srun.
    ///
    /// # Errors
    /// As for [`Communicator::init_rank`]; `InvalidUsage` if the environment describes no job.
    pub fn from_env(config: &Config) -> Result<Self, Box<InitError>> {
        let environment = Environment::from_process()?;
        let environment = environment.ok_or_else(|| InitError::from(Error::new(Kind::InvalidUsage)))?;
        Self::init_rank(&environment.id, environment.rank, environment.ranks, config)
    }

    /// Our rank.
    pub fn rank(&self) -> Rank {
        self.rank
    }

    /// How many ranks there are.
    pub fn ranks(&self) -> u32 {
        self.ranks
    }

    /// The fabric in use; `None` with one rank, which needs none.
    pub fn backend(&self) -> Option<Backend> {
        self.backend
    }

    /// What is known about the last failure.
    pub fn report(&self) -> Option<Arc<Report>> {
        self.control.report()
    }

    /// Ends this communicator from any thread.
    pub fn aborter(&self) -> Aborter {
        Aborter(self.control.clone())
    }

    /// Everybody gets the reduction of everybody's `input`. Both have the same length on all ranks.
    ///
    /// # Errors
    /// `InvalidArgument` if the lengths differ; `Mismatch`, `PeerDied`, `TimedOut` and others as described at [`Kind`].
    pub fn all_reduce<T: Element>(
        &self,
        input: &(impl Elements<T> + ?Sized),
        output: &mut (impl ElementsMut<T> + ?Sized),
        op: ReduceOp,
    ) -> Result<()> {
        let count = same(input.elements().len(), output.elements().len())?;
        self.collective(Collective::AllReduce, Some(op), None, count, input, output)
    }

    /// [`Communicator::all_reduce`] with one buffer.
    ///
    /// # Errors
    /// As for [`Communicator::all_reduce`].
    pub fn all_reduce_in_place<T: Element>(
        &self,
        data: &mut (impl ElementsMut<T> + ?Sized),
        op: ReduceOp,
    ) -> Result<()> {
        let count = data.elements().len();
        self.in_place(Collective::AllReduce, Some(op), None, count, data, |start, _| (start, start))
    }

    /// Everybody gets everybody's `input`, in rank order. `output` is `ranks` times as long as `input`.
    ///
    /// # Errors
    /// As for [`Communicator::all_reduce`].
    pub fn all_gather<T: Element>(
        &self,
        input: &(impl Elements<T> + ?Sized),
        output: &mut (impl ElementsMut<T> + ?Sized),
    ) -> Result<()> {
        let count = self.blocks(output.elements().len(), input.elements().len())?;
        self.collective(Collective::AllGather, None, None, count, input, output)
    }

    /// [`Communicator::all_gather`] with one buffer: our block, at `rank * count`, is the input.
    ///
    /// # Errors
    /// As for [`Communicator::all_reduce`].
    pub fn all_gather_in_place<T: Element>(&self, data: &mut (impl ElementsMut<T> + ?Sized)) -> Result<()> {
        let count = self.block_of(data.elements().len())?;
        self.in_place(Collective::AllGather, None, None, count, data, |start, ours| (start.wrapping_add(ours), start))
    }

    /// Rank r gets the reduction of everybody's block r. `input` is `ranks` times as long as `output`.
    ///
    /// # Errors
    /// As for [`Communicator::all_reduce`].
    pub fn reduce_scatter<T: Element>(
        &self,
        input: &(impl Elements<T> + ?Sized),
        output: &mut (impl ElementsMut<T> + ?Sized),
        op: ReduceOp,
    ) -> Result<()> {
        let count = self.blocks(input.elements().len(), output.elements().len())?;
        self.collective(Collective::ReduceScatter, Some(op), None, count, input, output)
    }

    /// [`Communicator::reduce_scatter`] with one buffer: the result replaces our block; the other blocks are undefined.
    ///
    /// # Errors
    /// As for [`Communicator::all_reduce`].
    pub fn reduce_scatter_in_place<T: Element>(
        &self,
        data: &mut (impl ElementsMut<T> + ?Sized),
        op: ReduceOp,
    ) -> Result<()> {
        let count = self.block_of(data.elements().len())?;
        let place = |start: *mut u8, ours| (start, start.wrapping_add(ours));
        self.in_place(Collective::ReduceScatter, Some(op), None, count, data, place)
    }

    /// Everybody gets the root's `data`.
    ///
    /// # Errors
    /// As for [`Communicator::all_reduce`]; `InvalidArgument` if there is no such root.
    pub fn broadcast<T: Element>(&self, data: &mut (impl ElementsMut<T> + ?Sized), root: Rank) -> Result<()> {
        let count = data.elements().len();
        self.in_place(Collective::Broadcast, None, Some(root), count, data, |start, _| (start, start))
    }

    /// The root gets the reduction of everybody's `input` in `output`, which other ranks may leave empty.
    ///
    /// # Errors
    /// As for [`Communicator::broadcast`].
    pub fn reduce<T: Element>(
        &self,
        input: &(impl Elements<T> + ?Sized),
        output: &mut (impl ElementsMut<T> + ?Sized),
        op: ReduceOp,
        root: Rank,
    ) -> Result<()> {
        let count = input.elements().len();
        if self.rank == root {
            same(count, output.elements().len())?;
        }
        self.collective(Collective::Reduce, Some(op), Some(root), count, input, output)
    }

    /// Block q of rank r's `input` becomes block r of rank q's `output`. Both have `ranks` blocks.
    ///
    /// # Errors
    /// As for [`Communicator::all_reduce`].
    pub fn all_to_all<T: Element>(
        &self,
        input: &(impl Elements<T> + ?Sized),
        output: &mut (impl ElementsMut<T> + ?Sized),
    ) -> Result<()> {
        let count = self.block_of(same(input.elements().len(), output.elements().len())?)?;
        self.collective(Collective::AllToAll, None, None, count, input, output)
    }

    /// Nobody leaves before everybody came.
    ///
    /// # Errors
    /// As for [`Communicator::all_reduce`].
    pub fn barrier(&self) -> Result<()> {
        self.run_call(&Call {
            collective: Collective::Barrier,
            datatype: DataType::U8,
            op: None,
            root: None,
            count: 0,
            input: core::ptr::null(),
            output: core::ptr::null_mut(),
            registered: false,
        })
    }

    /// Send `data` to `peer`, which receives as many elements of this type. Returns when `data` may be reused.
    ///
    /// # Errors
    /// As for [`Communicator::all_reduce`]; `InvalidUsage` to ourselves outside of a group.
    pub fn send<T: Element>(&self, data: &(impl Elements<T> + ?Sized), peer: Rank) -> Result<()> {
        self.group(|group| group.send(data, peer))
    }

    /// Receive `data` from `peer`.
    ///
    /// # Errors
    /// As for [`Communicator::send`].
    pub fn recv<T: Element>(&self, data: &mut (impl ElementsMut<T> + ?Sized), peer: Rank) -> Result<()> {
        self.group(|group| group.recv(data, peer))
    }

    /// Messages that go at the same time: `fill` names them, then all run together. Between two ranks they keep their order.
    ///
    /// # Errors
    /// As for [`Communicator::send`].
    pub fn group<'data>(&self, fill: impl FnOnce(&mut Group<'data>)) -> Result<()> {
        let mut group = Group::new();
        fill(&mut group);
        self.usable()?;
        self.inner.borrow_mut().run_messages(group.messages(), self.rank)
    }

    /// Run a plan of the caller's own. It must have been verified for this number of ranks.
    ///
    /// # Errors
    /// As for [`Communicator::all_reduce`]; `Unsupported` if the plan touches peers' buffers and these are not registered.
    pub fn run<T: Element>(
        &self,
        plan: &crate::plan::Verified,
        input: &(impl Elements<T> + ?Sized),
        output: &mut (impl ElementsMut<T> + ?Sized),
        op: ReduceOp,
    ) -> Result<()> {
        self.usable()?;
        let collective = plan.plan().collective;
        let (given, got) = (input.elements().len(), output.elements().len());
        let count = match collective {
            Collective::AllReduce => same(given, got)?,
            Collective::AllGather => self.blocks(got, given)?,
            Collective::ReduceScatter => self.blocks(given, got)?,
            Collective::AllToAll => self.block_of(same(given, got)?)?,
            _ => return Err(Kind::Unsupported.into()),
        };
        let registered = input.is_registered() && output.is_registered();
        let call = Call {
            collective,
            datatype: T::TYPE,
            op: Some(op),
            root: None,
            count,
            input: input.elements().as_ptr().cast(),
            output: output.elements_mut().as_mut_ptr().cast(),
            registered,
        };
        self.run_plan(plan, &call)
    }

    fn run_plan(&self, plan: &crate::plan::Verified, call: &Call) -> Result<()> {
        self.usable()?;
        let program = plan.program(self.rank, self.ranks, call.root).map_err(|_| Error::new(Kind::InvalidArgument))?;
        if program.collective != call.collective {
            return Err(Kind::InvalidArgument.into());
        }
        self.inner.borrow_mut().run_custom(call, &program, plan.plan(), self.rank, self.ranks)
    }

    /// Memory of `count` zeroed elements that all ranks register together. Collective: every rank calls it, with the same count.
    ///
    /// # Errors
    /// `NoSpace`, `SizeOverflow`; `Mismatch` if the counts differ.
    pub fn alloc<T: Element>(&self, count: usize) -> Result<Buffer<T>> {
        self.usable()?;
        let bytes = count.checked_mul(size_of::<T>()).filter(|&bytes| isize::try_from(bytes).is_ok());
        let bytes = bytes.ok_or(Error::new(Kind::SizeOverflow))?;
        let (memory, keep) = self.inner.borrow_mut().register(bytes)?;
        Ok(Buffer::new(memory, count, keep))
    }

    /// Run one call, blocking.
    ///
    /// # Errors
    /// As for [`Communicator::all_reduce`].
    ///
    /// # Safety
    /// - The buffers are valid for the call's sizes, and overlap only as the in-place rules of [`Call`] say.
    /// - Nobody else touches them until it returns.
    pub unsafe fn call(&self, call: &Call) -> Result<()> {
        self.run_call(call)
    }

    /// Run one call by a plan of the caller's own, blocking.
    ///
    /// # Errors
    /// As for [`Communicator::run`]; `InvalidArgument` if the plan is for another collective, or was not verified for this number of ranks.
    ///
    /// # Safety
    /// As for [`Communicator::call`].
    pub unsafe fn call_plan(&self, plan: &crate::plan::Verified, call: &Call) -> Result<()> {
        self.run_plan(plan, call)
    }

    /// Begin a call that [`Communicator::step`] then carries on: one thread can run many communicators.
    ///
    /// # Errors
    /// As for [`Communicator::all_reduce`]; `InvalidUsage` if another call has begun and is not done.
    ///
    /// # Safety
    /// As for [`Communicator::call`], until `step` says that it is done.
    pub unsafe fn begin(&self, call: &Call) -> Result<()> {
        self.usable()?;
        self.inner.borrow_mut().begin(call, self.rank, self.ranks)
    }

    /// Carry on what was begun, without blocking. With [`Progress::Manual`] also the control mesh, even if nothing was begun.
    pub fn step(&self, now: Time) -> Poll<Result<()>> {
        self.inner.borrow_mut().step(now)
    }

    /// Say goodbye: peers that still need us get `PeerLeft`, others nothing. Dropping does the same.
    ///
    /// # Errors
    /// The failure that ended the communicator before.
    pub fn finalize(self) -> Result<()> {
        self.control.failure().map_or(Ok(()), Err)
    }

    fn collective<T: Element>(
        &self,
        collective: Collective,
        op: Option<ReduceOp>,
        root: Option<Rank>,
        count: usize,
        input: &(impl Elements<T> + ?Sized),
        output: &mut (impl ElementsMut<T> + ?Sized),
    ) -> Result<()> {
        let unused = collective == Collective::Reduce && root != Some(self.rank);
        self.run_call(&Call {
            collective,
            datatype: T::TYPE,
            op,
            root,
            count,
            input: input.elements().as_ptr().cast(),
            output: output.elements_mut().as_mut_ptr().cast(),
            registered: input.is_registered() && (unused || output.is_registered()),
        })
    }

    /// `place` gives input and output from the buffer's start and the offset of our block in bytes.
    fn in_place<T: Element>(
        &self,
        collective: Collective,
        op: Option<ReduceOp>,
        root: Option<Rank>,
        count: usize,
        data: &mut (impl ElementsMut<T> + ?Sized),
        place: impl FnOnce(*mut u8, usize) -> (*mut u8, *mut u8),
    ) -> Result<()> {
        let registered = data.is_registered();
        let ours = self.rank.index() * count * size_of::<T>();
        let (input, output) = place(data.elements_mut().as_mut_ptr().cast(), ours);
        self.run_call(&Call { collective, datatype: T::TYPE, op, root, count, input, output, registered })
    }

    fn run_call(&self, call: &Call) -> Result<()> {
        self.usable()?;
        let mut inner = self.inner.borrow_mut();
        if matches!(call.collective, Collective::Send | Collective::Recv) {
            return inner.run_messages(&[group::Message::of(call)?], self.rank);
        }
        let index = inner.prepare(call, self.rank, self.ranks)?;
        let Inner { engine, prepared, .. } = &mut *inner;
        let result = engine.run(&mut prepared[index].operation);
        inner.after(index);
        result
    }

    /// The sticky failure, if there is one.
    #[inline]
    fn usable(&self) -> Result<()> {
        self.control.failure().map_or(Ok(()), Err)
    }

    /// Elements per block of a buffer with a block for every rank.
    fn block_of(&self, length: usize) -> Result<usize> {
        let ranks = self.ranks as usize;
        if length.is_multiple_of(ranks) { Ok(length / ranks) } else { Err(Kind::InvalidArgument.into()) }
    }

    /// The same, given one block too.
    fn blocks(&self, all: usize, one: usize) -> Result<usize> {
        same(self.block_of(all)?, one)
    }
}

fn same(left: usize, right: usize) -> Result<usize> {
    if left == right { Ok(left) } else { Err(Kind::InvalidArgument.into()) }
}
