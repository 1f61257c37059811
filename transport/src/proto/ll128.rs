//! LL128: lines of 128 bytes that end in their flag. The layout is [`crate::wire::ll128`].

use super::window::{self, Slot};
use crate::Kind;

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
    /// Somebody aborts.
    Abort,
}

impl Transmit {
    /// Every state, for the snapshot.
    pub const ALL: [Self; 4] = [Self::Idle, Self::Starved, Self::Filling, Self::Aborted];

    /// The one table; `None` is a call that its owner must not make.
    #[inline(always)]
    pub const fn on(self, event: Sending) -> Option<Self> {
        Some(match (self, event) {
            (Self::Aborted, Sending::Abort) => Self::Aborted,                // AB-1
            (Self::Aborted, _) => return None,                               // AB-2
            (_, Sending::Abort) => Self::Aborted,                            // AB-1
            (Self::Idle | Self::Starved, Sending::Granted) => Self::Filling, // CR-1
            (Self::Idle | Self::Starved, Sending::Refused) => Self::Starved, // CR-1
            (Self::Filling, Sending::Filled) => Self::Idle,                  // L8-3
            _ => return None,
        })
    }
}

impl Sending {
    /// Every event, for the snapshot.
    pub const ALL: [Self; 4] = [Self::Granted, Self::Refused, Self::Filled, Self::Abort];
}

/// The sending half.
#[derive(Clone, Debug)]
pub struct Sender {
    state: Transmit,
    window: window::Sender,
}

impl Sender {
    /// Before message `start`, with all `slots` free.
    pub fn new(slots: u32, start: u64) -> Self {
        Self { state: Transmit::Idle, window: window::Sender::new(slots, start) }
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

    /// All lines are stored: the message is complete.
    ///
    /// # Errors
    /// As [`Sender::begin`].
    #[inline]
    pub fn on_filled(&mut self) -> Result<(), Kind> {
        self.step(Sending::Filled)?;
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
