//! Wire layouts, protocols, lock-free rings and fabrics: the lower half of vervain, usable alone.
#![cfg_attr(not(feature = "std"), no_std)]
#![warn(missing_docs)]

#[cfg(feature = "alloc")]
extern crate alloc;

pub mod error;
pub mod proto;
mod rank;
pub mod ring;
pub mod sync;
pub mod time;
pub mod wire;

#[cfg(all(feature = "std", not(vervain_loom)))]
pub mod auth;
#[cfg(all(feature = "alloc", not(vervain_loom)))]
pub mod endpoint;
#[cfg(all(feature = "alloc", not(vervain_loom)))]
pub mod fabric;
#[cfg(all(any(test, fuzzing), feature = "std", not(vervain_loom)))]
#[doc(hidden)]
pub mod fuzzing;
#[cfg(all(feature = "std", not(vervain_loom)))]
pub mod host;
#[cfg(all(any(test, feature = "testing"), feature = "std", not(vervain_loom)))]
pub mod testing;

pub use error::{Error, Kind, Result};
pub use rank::Rank;
pub use time::Time;
