//! LL: lines that say themselves whether they are new. The layout is [`crate::wire::ll`].

use super::window::{self, Slot};
use crate::{Kind, wire::ll::clean_due};

pub use super::lines::{Receive, Receiver, Receiving};

/// What the sending half is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transmit {
    /// Nothing; the last message is complete.
    Idle,
    /// A message waits for credit.
    Starved,
    /// Lines are being stored.
    Filling,
    /// The rest of the slot is being cleaned.
    Cleaning,
    /// Nothing, for ever.
    Aborted,
}

/// What can happen to the sending half.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sending {
    /// A message is to be sent and there is a slot.
    Granted,
    /// A message is to be sent and there is none.
    Refused,
    /// All lines are stored.
    Filled,
    /// All lines are stored, in a step of cleaning.
    FilledDirty,
    /// The slot is clean.
    Cleaned,
    /// Somebody aborts.
    Abort,
}

impl Transmit {
    /// Every state, for the snapshot.
    pub const ALL: [Self; 5] = [Self::Idle, Self::Starved, Self::Filling, Self::Cleaning, Self::Aborted];

    /// The one table; `None` is a call that its owner must not make.
    #[inline(always)]
    pub const fn on(self, event: Sending) -> Option<Self> {
        Some(match (self, event) {
            (Self::Aborted, Sending::Abort) => Self::Aborted,                // AB-1
            (Self::Aborted, _) => return None,                               // AB-2
            (_, Sending::Abort) => Self::Aborted,                            // AB-1
            (Self::Idle | Self::Starved, Sending::Granted) => Self::Filling, // CR-1
            (Self::Idle | Self::Starved, Sending::Refused) => Self::Starved, // CR-1
            (Self::Filling, Sending::Filled) => Self::Idle,                  // LL-3
            (Self::Filling, Sending::FilledDirty) => Self::Cleaning,         // LL-6
            (Self::Cleaning, Sending::Cleaned) => Self::Idle,                // LL-6
            _ => return None,
        })
    }
}

impl Sending {
    /// Every event, for the snapshot.
    pub const ALL: [Self; 6] =
        [Self::Granted, Self::Refused, Self::Filled, Self::FilledDirty, Self::Cleaned, Self::Abort];
}

/// What the sender must do after filling a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Rest {
    /// Nothing: the message is complete.
    Leave,
    /// [`crate::wire::ll::clean`] the rest of the slot, then call [`Sender::on_cleaned`].
    Clean,
}

/// The sending half.
#[derive(Clone, Debug)]
pub struct Sender {
    state: Transmit,
    window: window::Sender,
    slots: u32,
}

impl Sender {
    /// Before message `start`, with all `slots` free.
    pub fn new(slots: u32, start: u64) -> Self {
        Self { state: Transmit::Idle, window: window::Sender::new(slots, start), slots }
    }

    /// A message is to be sent: the slot to fill, or `None` while there is no credit.
    ///
    /// # Errors
    /// `Aborted` after an abort, `InvalidUsage` while another message is being filled.
    #[inline]
    pub fn begin(&mut self) -> Result<Option<Slot>, Kind> {
        let slot = self.window.slot();
        self.step(if slot.is_some() { Sending::Granted } else { Sending::Refused })?;
        Ok(slot)
    }

    /// All lines are stored.
    ///
    /// # Errors
    /// As [`Sender::begin`]; so do the next two.
    #[inline]
    pub fn on_filled(&mut self) -> Result<Rest, Kind> {
        if clean_due(self.window.step(), self.slots) {
            self.step(Sending::FilledDirty)?;
            return Ok(Rest::Clean);
        }
        self.step(Sending::Filled)?;
        self.window.on_sent();
        Ok(Rest::Leave)
    }

    /// The rest of the slot has the present flag.
    pub fn on_cleaned(&mut self) -> Result<(), Kind> {
        self.step(Sending::Cleaned)?;
        self.window.on_sent();
        Ok(())
    }

    /// The receiver's count was read; `Corrupt` if no correct receiver counts so (CR-3).
    #[inline]
    pub fn on_credit(&mut self, head: u64) -> Result<(), Kind> {
        self.window.on_credit(head)
    }

    /// Somebody aborts.
    pub fn abort(&mut self) {
        self.state = Transmit::Aborted;
        self.window.abort();
    }

    /// What it is doing.
    pub fn state(&self) -> Transmit {
        self.state
    }

    #[inline(always)]
    fn step(&mut self, event: Sending) -> Result<(), Kind> {
        match self.state.on(event) {
            Some(next) => self.state = next,
            None if matches!(self.state, Transmit::Aborted) => return Err(Kind::Aborted),
            None => return Err(Kind::InvalidUsage),
        }
        Ok(())
    }
}
