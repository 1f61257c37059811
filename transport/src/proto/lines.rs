//! The receiving half that LL and LL128 share: a header line, then the rest of the lines, then the slot goes back.

use super::window::{self, Slot};
use crate::Kind;

/// What the receiving half is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Receive {
    /// Waiting for the next header.
    Waiting,
    /// Lines are being read.
    Draining,
    /// Nothing, for ever.
    Aborted,
}

/// What can happen to the receiving half.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Receiving {
    /// The header arrived and is the expected one.
    Header,
    /// All lines are read.
    Drained,
    /// The header is of another operation, or somebody aborts.
    Abort,
}

impl Receive {
    /// Every state, for the snapshot.
    pub const ALL: [Self; 3] = [Self::Waiting, Self::Draining, Self::Aborted];

    /// The one table; `None` is a call that its owner must not make.
    #[inline(always)]
    pub const fn on(self, event: Receiving) -> Option<Self> {
        Some(match (self, event) {
            (_, Receiving::Abort) => Self::Aborted,                // AB-1
            (Self::Aborted, _) => return None,                     // AB-2
            (Self::Waiting, Receiving::Header) => Self::Draining,  // LL-4, L8-3
            (Self::Draining, Receiving::Drained) => Self::Waiting, // CR-5
            _ => return None,
        })
    }
}

impl Receiving {
    /// Every event, for the snapshot.
    pub const ALL: [Self; 3] = [Self::Header, Self::Drained, Self::Abort];
}

/// The receiving half.
#[derive(Clone, Debug)]
pub struct Receiver {
    state: Receive,
    window: window::Receiver,
}

impl Receiver {
    /// Before message `start`.
    pub fn new(slots: u32, start: u64) -> Self {
        Self { state: Receive::Waiting, window: window::Receiver::new(slots, start) }
    }

    /// Where the message arrives.
    #[inline]
    pub fn slot(&self) -> Slot {
        self.window.slot()
    }

    /// The header arrived.
    ///
    /// # Errors
    /// `Mismatch` if it is not the expected one, which aborts this half; `Aborted`, `InvalidUsage` as everywhere.
    #[inline]
    pub fn on_header(&mut self, header: u64, expected: u64) -> Result<(), Kind> {
        if header != expected {
            self.step(Receiving::Abort)?;
            return Err(Kind::Mismatch);
        }
        self.step(Receiving::Header)
    }

    /// All lines are read: the count to publish now, if it is time (CR-2).
    #[inline]
    pub fn on_drained(&mut self) -> Result<Option<u64>, Kind> {
        self.step(Receiving::Drained)?;
        Ok(self.window.on_consumed())
    }

    /// The count to publish before going idle (CR-2).
    pub fn flush(&mut self) -> Option<u64> {
        if matches!(self.state, Receive::Aborted) { None } else { self.window.flush() }
    }

    /// Somebody aborts.
    pub fn abort(&mut self) {
        self.state = Receive::Aborted;
    }

    /// What it is doing.
    pub fn state(&self) -> Receive {
        self.state
    }

    #[inline(always)]
    fn step(&mut self, event: Receiving) -> Result<(), Kind> {
        match self.state.on(event) {
            Some(next) => self.state = next,
            None if matches!(self.state, Receive::Aborted) => return Err(Kind::Aborted),
            None => return Err(Kind::InvalidUsage),
        }
        Ok(())
    }
}
