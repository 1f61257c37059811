//! What becomes of a transfer.

use crate::Error;

/// A transfer that was started. A plain value: it names the transfer and owns nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Transfer {
    pub(super) index: u32,
    pub(super) generation: u32,
}

/// What starting a transfer came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "a transfer that is not followed is only known by its completion"]
pub enum Posted {
    /// It is under way and ends exactly once.
    Started(Transfer),
    /// Nothing was started: the peer has given no credit, or too much is under way. Poll, then try again.
    Busy,
}

impl Posted {
    /// The transfer, if one was started.
    pub fn started(self) -> Option<Transfer> {
        match self {
            Posted::Started(transfer) => Some(transfer),
            Posted::Busy => None,
        }
    }
}

/// The one end state of a transfer. From here on nothing touches the initiator's memory on its behalf.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// The target's memory has it (write, scatter, atomic), ours has it (read), or it was handed to the peer (send, barrier).
    Done,
    /// It failed.
    Failed {
        /// Why.
        error: Error,
        /// What is known about the target's memory.
        remote: Remote,
    },
    /// Its deadline passed.
    TimedOut {
        /// What is known about the target's memory.
        remote: Remote,
    },
    /// [`cancel`](super::Endpoint::cancel) ended it.
    Cancelled {
        /// What is known about the target's memory.
        remote: Remote,
    },
}

/// What is known about the target's memory after a transfer that did not end well.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Remote {
    /// Nothing of the transfer will land any more: it had not left, or the target refused it.
    Fenced,
    /// Parts of it may have landed, and may still land until the target revokes the region.
    Unknown,
}

impl End {
    /// Whether it ended well.
    pub fn is_done(self) -> bool {
        self == End::Done
    }

    /// `Ok` if it ended well, else the error that says how not.
    pub fn ok(self) -> Result<(), Error> {
        match self {
            End::Done => Ok(()),
            End::Failed { error, .. } => Err(error),
            End::TimedOut { .. } => Err(crate::Kind::TimedOut.into()),
            End::Cancelled { .. } => Err(crate::Kind::Cancelled.into()),
        }
    }
}

/// A transfer that ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Completion {
    /// Which.
    pub transfer: Transfer,
    /// What its starter passed along.
    pub context: u64,
    /// How it ended.
    pub end: End,
    /// What the word held before an atomic; 0 otherwise.
    pub before: u64,
    /// Which client of a driver asked for it.
    pub(super) owner: u32,
}
