//! How ranks find each other: a meeting at rank 0 that ends for all ranks alike, in bounded time.
//!
//! ```text
//! rank r                                rank 0
//!   dial, handshake              ->       accept; strangers are dropped at a deadline
//!   Offer {ranks, where I listen, blob} ->  gather: equal parameters, no rank twice
//!         <- Table {every rank's offer} | Failed {error, lines}
//!   connect the control mesh
//!   Ready | Failed {error}       ->       gather
//!         <- Go | Failed {error, lines}
//! ```
//! A rank that cannot go on says so in place of its offer or of `Ready`; then every rank ends with an error that names it. Rank 0
//! stays a moment after a failure, to tell those that come late. [`Join`] never blocks: it is stepped with the time.

use std::sync::Arc;

use vervain_transport::Error;

use crate::control::Report;

pub(crate) mod channel;
mod doorman;
mod edges;
mod guest;
mod host;
mod id;
mod join;
mod message;
mod root;
#[cfg(test)]
pub(crate) mod tests;

pub use host::Host;
pub(crate) use id::Listener;
pub use id::UniqueId;
pub use join::{Join, Joined};
pub use message::{Member, OFFER};

#[cfg(any(test, fuzzing))]
pub mod fuzzing {
    //! Bodies of the fuzz targets.

    pub use super::message::fuzzing::messages;
}

/// Why a communicator could not be made.
#[derive(Clone, Debug)]
pub struct InitError {
    /// What went wrong.
    pub error: Error,
    /// The long story.
    pub report: Arc<Report>,
}

impl InitError {
    /// An error with its story.
    pub fn new(error: Error, lines: Vec<String>) -> Self {
        Self { error, report: Arc::new(Report { lines }) }
    }
}

impl From<Error> for InitError {
    fn from(error: Error) -> Self {
        Self { error, report: Arc::default() }
    }
}

impl core::fmt::Display for InitError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "{}", self.error)?;
        self.report.lines.iter().try_for_each(|line| write!(f, "\n  {line}"))
    }
}

impl core::error::Error for InitError {}
