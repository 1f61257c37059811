//! The concrete program of one rank: what the executor runs and the verifier checks.
//!
//! # Chunks
//! A call moves *blocks*. `all_reduce`, `broadcast` and `reduce` have one block, the whole message; `all_gather` has one input
//! block and `ranks` output blocks, `reduce_scatter` the reverse, `all_to_all` `ranks` of both. A program cuts every block into
//! `chunks` chunks; chunk `c` of block `b` has index `b * chunks + c`. The executor *loops* the program over slices of the
//! message that fit the slots: in each round every block contributes the same element range, cut into `chunks` nearly equal parts.
//!
//! # Steps
//! The one instruction that moves data is [`Step::Move`]: reduce k sources, write the result to m destinations. What other systems call send, recv,
//! copy, recv_reduce_send, recv_reduce_copy_send, put and get are Moves whose places are connections, local or direct.

use vervain_transport::Rank;

use crate::Collective;

/// A buffer of the call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Buffer {
    /// What the caller gives. Never written, unless it is also the output.
    Input,
    /// What the caller gets.
    Output,
    /// The executor's own memory, of `Program::scratch` chunks. Undefined at the start of a round.
    Scratch,
}

/// Where a Move reads or writes one chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Place {
    /// A chunk of this rank's own buffer.
    Local {
        /// Which buffer.
        buffer: Buffer,
        /// Index over all blocks.
        chunk: u32,
    },
    /// A chunk of another rank's buffer (or our own), touched directly between that rank's `Enter` and its `Leave`. Its scratch is never touched.
    Direct {
        /// Whose buffer.
        rank: Rank,
        /// Input or Output.
        buffer: Buffer,
        /// Index over all blocks.
        chunk: u32,
    },
    /// The next message from (as a source) or to (as a destination) this rank, on this lane's connection.
    Connection {
        /// The other end.
        peer: Rank,
    },
}

/// One instruction.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Step {
    /// Reduce the sources (at least one, in this order) and write the result to every destination (at least one).
    /// No connection and no chunk occurs twice among the sources, nor among the destinations. In place, a destination may be the
    /// memory of a source: each element is read from all sources before it is written. A copy onto itself writes nothing.
    Move {
        /// What is combined. Several sources are reduced with the call's operation; one is copied.
        sources: Vec<Place>,
        /// Where the result goes.
        destinations: Vec<Place>,
        /// The result holds every rank's contribution and is no copy of an already complete one: integer `avg` divides here. Set by expansion.
        complete: bool,
    },
    /// Tell all ranks where our buffers are: from here on they may touch them. Does not wait.
    Enter,
    /// Tell all ranks that we touch their buffers no more, and wait until all have told us so.
    Leave,
    /// Raise our counter at `peer` by one. All our earlier Moves are visible to whoever waits for it.
    Signal {
        /// Who is told.
        peer: Rank,
    },
    /// Wait until `peer` signalled once more.
    Wait {
        /// Who tells us.
        peer: Rank,
    },
}

/// What one rank does in one round.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Program {
    /// For which collective; decides how many blocks the buffers have.
    pub collective: Collective,
    /// Whose program it is.
    pub rank: Rank,
    /// Of how many ranks.
    pub ranks: u32,
    /// The root, for collectives that have one.
    pub root: Option<Rank>,
    /// Chunks per block.
    pub chunks: u32,
    /// Chunks of scratch.
    pub scratch: u32,
    /// Sequential lanes that run concurrently. A connection belongs to one lane: (peer, lane, direction).
    pub lanes: Vec<Vec<Step>>,
}

impl Collective {
    /// How many blocks the buffer of a call has.
    pub fn blocks(self, buffer: Buffer, ranks: u32) -> u32 {
        match (self, buffer) {
            (_, Buffer::Scratch) => 1,
            (Collective::AllGather, Buffer::Output)
            | (Collective::ReduceScatter, Buffer::Input)
            | (Collective::AllToAll, _) => ranks,
            (Collective::Barrier, _) => 0,
            _ => 1,
        }
    }
}

impl Program {
    /// Whether any step touches peers' buffers directly, which needs Enter and Leave.
    pub fn is_direct(&self) -> bool {
        self.lanes.iter().flatten().any(|step| matches!(step, Step::Enter))
    }
}
