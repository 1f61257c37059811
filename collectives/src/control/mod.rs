//! The control mesh: failure, agreement and goodbye, beside the data.
//!
//! Every rank keeps a few authenticated sockets to the ranks 1, 2, 4, 8 … away from it in either direction. What one rank has to say to all
//! is *flooded*: each rank passes on what it sees for the first time. So a notice arrives although ranks die on the way, as long as the
//! survivors are connected, and every survivor that is a neighbour of a dead rank sees the end of its socket itself.
//!
//! - A socket that ends without a goodbye, or a process of the same host that ends, is a death: [`Kind::PeerDied`] on every survivor.
//! - A rank that makes no progress floods its [`Descriptor`](crate::call::Descriptor); whoever recorded another one for the same operation
//!   fails all ranks with [`Kind::Mismatch`] and both values.
//! - The first failure is the one that counts. It costs its readers one atomic load ([`Handle::failure`]).
//!
//! [`Mesh`] is the machine; it is stepped by a thread of its own that sleeps when nothing happens ([`Mesh::spawn`]), or by the caller.
//! [`Handle`] is what everybody else holds.
//!
//! [`Kind::PeerDied`]: vervain_transport::Kind::PeerDied
//! [`Kind::Mismatch`]: vervain_transport::Kind::Mismatch

pub(crate) mod codec;
mod edge;
mod frame;
mod handle;
mod mesh;
pub mod poll;
mod record;
#[cfg(test)]
mod tests;
mod thread;

pub use handle::Handle;
pub use mesh::{Mesh, Status};
pub use thread::Thread;

pub(crate) use frame::FRAME;
pub(crate) use mesh::neighbours;

#[cfg(any(test, fuzzing))]
pub mod fuzzing {
    //! Bodies of the fuzz targets.

    pub use super::frame::fuzzing::control_frame;
}

/// The long story of a failure.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// One sentence a line: who failed, both values of a mismatch, who waited for what.
    pub lines: Vec<String>,
}
