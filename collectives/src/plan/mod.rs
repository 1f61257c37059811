//! One description of an algorithm, four users: verifier, executor, simulator, and the reader.
//!
//! A [`Plan`] is symbolic: one short program in which the rank is a variable. It is written in Rust with [`build`], read from a
//! file, or taken from the [`builders`]. [`Plan::expand`] turns it into the concrete [`Program`] of one rank, which is all that
//! the executor sees.

mod algorithm;
mod build;
pub mod builders;
mod defect;
mod expand;
mod expr;
pub mod file;
#[doc(hidden)]
pub mod fuzzing;
mod hash;
mod ir;
mod name;
pub mod program;
mod show;
mod traffic;
mod verify;

pub use algorithm::{Algorithm, Needs};
pub use build::{Builder, Count, Moved, Operands, build};
pub use defect::{Access, Awaited, Defect, Reason, Site, Waiting};
pub use expr::{Comparison, Condition, Expr, Operator};
pub use ir::{Instruction, Operand, Plan, Statement};
pub use program::{Buffer, Place, Program, Step};
pub use show::show;
pub use traffic::Traffic;
pub use verify::{Ranks, Verified, verify_programs};
