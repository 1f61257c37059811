//! Collectives as verified plans, executed over [`vervain_transport`]: the upper half of vervain.
#![warn(missing_docs)]

pub mod bootstrap;
mod buffer;
pub mod call;
pub mod communicator;
pub mod control;
mod executor;
pub mod launch;
pub mod plan;
pub mod reduce;
mod types;

pub use buffer::Buffer;
pub use communicator::{
    Aborter, Call, Communicator, Config, Elements, ElementsMut, Group, Joining, Progress, Protocol,
};
pub use types::{Collective, DataType, Element, ReduceOp};
pub use vervain_transport::{Error, Kind, Rank, Result};
