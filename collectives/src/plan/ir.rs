//! The symbolic form: one short program in which the rank is a variable.

use super::program::Buffer;
use super::{Condition, Expr};
use crate::Collective;

/// An algorithm for any number of ranks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// What people call it.
    pub name: String,
    /// What it does.
    pub collective: Collective,
    /// Chunks per block; the same on every rank.
    pub chunks: Expr,
    /// Chunks of scratch; the same on every rank.
    pub scratch: Expr,
    /// Sequential lanes that run concurrently. `Enter`, `Leave`, `Signal`, `Wait` and direct places are in the first one only.
    pub lanes: Vec<Vec<Statement>>,
}

/// One line of a plan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Statement {
    /// Becomes one step.
    Instruction(Instruction),
    /// The body, with the variable from 0 to below the count.
    For {
        /// The loop variable.
        variable: u32,
        /// How often; none if not positive.
        count: Expr,
        /// What is repeated.
        body: Vec<Statement>,
    },
    /// One of two bodies.
    When {
        /// What decides.
        condition: Condition,
        /// If it holds.
        then: Vec<Statement>,
        /// If not.
        otherwise: Vec<Statement>,
    },
}

/// What becomes a [`Step`](super::Step) on expansion.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Instruction {
    /// Reduce the sources, in this order, and write the result to every destination.
    Move {
        /// What is combined.
        sources: Vec<Operand>,
        /// Where the result goes.
        destinations: Vec<Operand>,
        /// The author says that, where several sources are combined, the result holds every contribution. The verifier checks it.
        complete: bool,
    },
    /// See [`Step::Enter`](super::Step::Enter).
    Enter,
    /// See [`Step::Leave`](super::Step::Leave).
    Leave,
    /// See [`Step::Signal`](super::Step::Signal).
    Signal {
        /// Who is told.
        peer: Expr,
    },
    /// See [`Step::Wait`](super::Step::Wait).
    Wait {
        /// Who tells us.
        peer: Expr,
    },
}

/// What becomes one [`Place`](super::Place), or several, on expansion.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Operand {
    /// A chunk of our own buffer.
    Local {
        /// Which buffer.
        buffer: Buffer,
        /// Index over all blocks.
        chunk: Expr,
    },
    /// A chunk of another rank's buffer, touched directly.
    Direct {
        /// Whose buffer.
        rank: Expr,
        /// Input or Output.
        buffer: Buffer,
        /// Index over all blocks.
        chunk: Expr,
    },
    /// The next message from or to this rank.
    Connection {
        /// The other end.
        peer: Expr,
    },
    /// The operand, with the variable from 0 to below the count.
    Each {
        /// The variable.
        variable: u32,
        /// How often; none if not positive.
        count: Expr,
        /// What is repeated.
        operand: Box<Operand>,
    },
}
