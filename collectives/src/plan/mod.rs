//! One description of an algorithm, four users: verifier, executor, simulator, and the reader.
//!
//! A [`Plan`] is symbolic: one short program in which the rank is a variable. [`Plan::expand`] turns it into the concrete
//! [`Program`] of one rank, which is all that the executor sees.

pub mod program;

pub use program::{Buffer, Place, Program, Step};

/// A builder of plans.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Algorithm {
    /// Neighbour to neighbour.
    Ring,
    /// Everybody sends everything to everybody; each reduces alone.
    OneShot,
    /// Everybody reduces one chunk from everybody and gives the result to everybody, over connections.
    TwoShot,
    /// Two-shot on buffers that all ranks registered together: reads and writes them directly.
    Direct,
    /// Two-shot on any memory: results are read from their owner by the consumer.
    Pull,
}
