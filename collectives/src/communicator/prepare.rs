//! From a call to an operation: check it, choose how, cut it, and remember the result for the next call of the same shape.

use std::sync::Arc;

use vervain_transport::fabric::RegionId;
use vervain_transport::{Kind, Rank, Result};

use super::{Call, Protocol};
use crate::buffer::{self, Memory};
use crate::call::Descriptor;
use crate::executor::{Binding, EnterRecord, FOREIGN, Geometry, Operation, Task, payload};
use crate::plan::{Buffer, Place, Program, Step};
use crate::reduce::{Kernel, Write};
use crate::{Collective, DataType, ReduceOp};

/// Messages larger than this are written past the caches: nobody reads them before they are evicted.
const STREAM_LEAST: usize = 8 << 20;

/// Messages of this size and above are sent straight from the caller's buffers where the fabric posts them: the copy that is saved costs
/// more than the acknowledgement that is waited for.
const STRAIGHT_LEAST: usize = 256 << 10;

/// What makes two calls alike: they share everything but addresses and number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// What is done.
    pub collective: Collective,
    /// Element type.
    pub datatype: DataType,
    /// How elements are combined.
    pub op: Option<ReduceOp>,
    /// The root.
    pub root: Option<Rank>,
    /// Elements per block.
    pub count: usize,
    /// In registered buffers.
    pub registered: bool,
    /// Hash of a custom plan, or 0.
    pub plan: u64,
}

impl Shape {
    /// The shape of a valid call.
    ///
    /// # Errors
    /// `InvalidArgument` if root or operation are missing or out of range, `SizeOverflow` if a buffer would not fit the address space.
    pub fn of(call: &Call, ranks: u32) -> Result<Self> {
        let rooted = matches!(call.collective, Collective::Broadcast | Collective::Reduce);
        let reducing =
            matches!(call.collective, Collective::AllReduce | Collective::Reduce | Collective::ReduceScatter);
        if rooted && call.root.is_none_or(|root| root.get() >= ranks) || reducing && call.op.is_none() {
            return Err(Kind::InvalidArgument.into());
        }
        let bytes = call.count.checked_mul(call.datatype.bytes()).and_then(|block| block.checked_mul(ranks as usize));
        if bytes.is_none_or(|bytes| isize::try_from(bytes).is_err()) {
            return Err(Kind::SizeOverflow.into());
        }
        Ok(Self {
            collective: call.collective,
            datatype: call.datatype,
            op: call.op.filter(|_| reducing),
            root: call.root.filter(|_| rooted),
            count: call.count,
            registered: call.registered,
            plan: 0,
        })
    }

    /// Bytes of one block.
    pub fn block(&self) -> usize {
        self.count * self.datatype.bytes()
    }
}

/// The two buffers of a call, and whose they are.
#[derive(Clone, Copy, Debug)]
pub struct Buffers {
    /// What the caller gives.
    pub input: Memory,
    /// What the caller gets.
    pub output: Memory,
}

impl Buffers {
    /// The buffers of a call of this shape.
    ///
    /// # Errors
    /// `InvalidArgument` if a buffer that this rank needs is null.
    ///
    /// # Safety
    /// As for [`super::Communicator::call`].
    pub fn of(call: &Call, shape: &Shape, rank: Rank, ranks: u32) -> Result<Self> {
        let bytes = |buffer| shape.collective.blocks(buffer, ranks) as usize * shape.block();
        let is_root = shape.root == Some(rank);
        let has_input = shape.collective != Collective::Broadcast || is_root;
        let has_output = shape.collective != Collective::Reduce || is_root;
        let input = Memory::of_call(call.input, if has_input { bytes(Buffer::Input) } else { 0 });
        let output = Memory::of_call(call.output, if has_output { bytes(Buffer::Output) } else { 0 });
        match (input, output) {
            (Some(input), Some(output)) => Ok(Self { input, output }),
            _ => Err(Kind::InvalidArgument.into()),
        }
    }
}

impl Buffers {
    /// Whether one call's buffers have bytes in common.
    fn overlap(&self) -> bool {
        let (input, output) = (self.input.address(), self.output.address());
        input < output + self.output.bytes() as u64 && output < input + self.input.bytes() as u64
    }
}

/// How the data of a program moves.
#[derive(Clone, Copy, Debug)]
pub struct How {
    /// How messages travel.
    pub protocol: Protocol,
    /// Over a fabric that maps peers' memory.
    pub mapped: bool,
    /// Every message goes to everybody, by the boards.
    pub to_all: bool,
    /// Peers' plain memory is read.
    pub pulls: bool,
    /// What a rank overwrites in place has come back from the rank that it was sent to: it has been sent for certain.
    pub returns: bool,
}

impl How {
    /// By messages from one rank to another.
    pub fn by_messages(protocol: Protocol, mapped: bool) -> Self {
        Self { protocol, mapped, to_all: false, pulls: false, returns: false }
    }
}

/// An operation that can run again and again.
#[derive(Debug)]
pub struct Prepared {
    /// For calls of this shape.
    pub shape: Shape,
    /// The tasks.
    pub operation: Operation,
    /// What ranks compare, but for the number.
    pub descriptor: Descriptor,
    /// Peers' plain memory is read.
    pulls: bool,
    /// Messages are sent straight from the buffers.
    straight: bool,
    /// See [`How::returns`].
    returns: bool,
    _scratch: Box<[u64]>,
}

impl Prepared {
    /// Cut a call into the rounds of `program`.
    pub fn new(shape: Shape, program: &Arc<Program>, plan: u64, how: How, buffers: Buffers) -> Self {
        let How { protocol, mapped, to_all, pulls, returns } = how;
        let by_message = steps(program).any(|step| {
            matches!(step, Step::Move { sources, destinations, .. }
                if sources.iter().chain(destinations).any(|place| matches!(place, Place::Connection { .. })))
        });
        let limit = by_message.then(|| payload(protocol, mapped));
        let geometry = Geometry::new(program, shape.block(), limit);
        let element = shape.datatype.bytes();
        let descriptor = Descriptor {
            operation: 0,
            collective: shape.collective,
            count: shape.count as u64,
            datatype: shape.datatype,
            op: shape.op,
            root: shape.root,
            registered: shape.registered,
            tuning: plan ^ (protocol as u64 + 1) << 32,
        };
        let scaled = shape.op == Some(ReduceOp::Avg) && shape.datatype.is_float() && program.ranks > 1;
        let straight = by_message && !mapped && protocol == Protocol::Simple && shape.block() >= STRAIGHT_LEAST;
        let (owned, scratch) = buffer::owned(program.scratch as usize * geometry.longest());
        let binding = Binding {
            hash: 0,
            scratch,
            input: buffers.input,
            output: buffers.output,
            input_region: None,
            output_region: None,
            record: EnterRecord::default(),
            element,
            kernel: Kernel::select(shape.datatype, shape.op, program.ranks),
            scaled,
            geometry,
            protocol,
            to_all,
            write: if shape.block() >= STREAM_LEAST { Write::Streaming } else { Write::Cached },
        };
        let mut operation = Operation::new();
        for lane in 0..program.lanes.len() {
            let task = Task::new(0, Arc::clone(program), lane, binding.clone());
            operation.push(task, descriptor, None, 0, &peers(program, lane));
        }
        Self { shape, operation, descriptor, pulls, straight, returns, _scratch: owned }
    }

    /// Whether input and output must be spans of the fabric.
    pub fn wanted_spans(&self, buffers: &Buffers) -> (bool, bool) {
        let straight = self.straight && (self.returns || !buffers.overlap());
        (straight, straight || self.pulls)
    }

    /// Make it ready to run as operation `number`.
    pub fn bind(
        &mut self,
        number: u64,
        buffers: Buffers,
        record: EnterRecord,
        regions: (Option<RegionId>, Option<RegionId>),
    ) {
        let descriptor = Descriptor { operation: number, ..self.descriptor };
        let hash = descriptor.hash();
        self.operation.restart(descriptor, |binding| {
            binding.hash = hash;
            binding.input = buffers.input;
            binding.output = buffers.output;
            (binding.input_region, binding.output_region) = regions;
            binding.record = EnterRecord { hash, ..record };
        });
    }
}

/// A record of buffers that are not registered.
pub fn foreign(buffers: &Buffers) -> EnterRecord {
    EnterRecord {
        hash: 0,
        input_region: FOREIGN,
        output_region: FOREIGN,
        input: buffers.input.address(),
        output: buffers.output.address(),
    }
}

fn steps(program: &Program) -> impl Iterator<Item = &Step> {
    program.lanes.iter().flatten()
}

/// Whom a lane talks to.
fn peers(program: &Program, lane: usize) -> Vec<Rank> {
    let mut peers = Vec::new();
    let mut add = |peer: Rank| {
        if peer != program.rank && !peers.contains(&peer) {
            peers.push(peer);
        }
    };
    for step in &program.lanes[lane] {
        match step {
            Step::Enter | Step::Leave => (0..program.ranks).map(Rank::new).for_each(&mut add),
            Step::Signal { peer } | Step::Wait { peer } => add(*peer),
            Step::Move { sources, destinations, .. } => {
                for place in sources.iter().chain(destinations) {
                    if let Place::Connection { peer } = *place {
                        add(peer);
                    }
                }
            }
        }
    }
    peers
}
