//! How ranks find each other.

use std::sync::Arc;

use vervain_transport::Error;

use crate::control::Report;

/// Names a job: where rank 0 listens, and the secret.
#[derive(Clone, Debug)]
pub struct UniqueId {}

/// Why a communicator could not be made.
#[derive(Clone, Debug)]
pub struct InitError {
    /// What went wrong.
    pub error: Error,
    /// The long story.
    pub report: Arc<Report>,
}

impl From<Error> for InitError {
    fn from(error: Error) -> Self {
        Self { error, report: Arc::default() }
    }
}

impl core::fmt::Display for InitError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "{}", self.error)
    }
}

impl core::error::Error for InitError {}
