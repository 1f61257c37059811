//! Simple: plain slots, described by records and published by a counter. The layout is [`crate::wire::simple`].

use super::window::{self, Slot};
use crate::{Kind, wire::simple::Record};

/// What the sending half is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transmit {
    /// Nothing; the last message is published.
    Idle,
    /// A message waits for credit.
    Starved,
    /// Payload and record are being stored.
    Filling,
    /// The counter must be stored.
    Publishing,
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
    /// Payload and record are in their places.
    Filled,
    /// The counter is stored.
    Published,
    /// Somebody aborts.
    Abort,
}

/// What the receiving half is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Receive {
    /// The counter has not reached the next message.
    Waiting,
    /// The next message is complete.
    Ready,
    /// Its payload is being read.
    Draining,
    /// Nothing, for ever.
    Aborted,
}

/// What can happen to the receiving half.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Receiving {
    /// The counter reached the next message.
    Tail,
    /// Its record is the expected one.
    Record,
    /// The payload is read, and the counter has not reached the next one.
    Drained,
    /// The payload is read, and the next one is complete already.
    DrainedMore,
    /// Counter or record are wrong, or somebody aborts.
    Abort,
}

impl Transmit {
    /// Every state, for the snapshot.
    pub const ALL: [Self; 5] = [Self::Idle, Self::Starved, Self::Filling, Self::Publishing, Self::Aborted];

    /// The one table; `None` is a call that its owner must not make.
    #[inline(always)]
    pub const fn on(self, event: Sending) -> Option<Self> {
        Some(match (self, event) {
            (_, Sending::Abort) => Self::Aborted,                            // AB-1
            (Self::Aborted, _) => return None,                               // AB-2
            (Self::Idle | Self::Starved, Sending::Granted) => Self::Filling, // CR-1
            (Self::Idle | Self::Starved, Sending::Refused) => Self::Starved, // CR-1
            (Self::Filling, Sending::Filled) => Self::Publishing,            // SI-1
            (Self::Publishing, Sending::Published) => Self::Idle,            // SI-2
            _ => return None,
        })
    }
}

impl Sending {
    /// Every event, for the snapshot.
    pub const ALL: [Self; 5] = [Self::Granted, Self::Refused, Self::Filled, Self::Published, Self::Abort];
}

impl Receive {
    /// Every state, for the snapshot.
    pub const ALL: [Self; 4] = [Self::Waiting, Self::Ready, Self::Draining, Self::Aborted];

    /// The one table; `None` is a call that its owner must not make.
    #[inline(always)]
    pub const fn on(self, event: Receiving) -> Option<Self> {
        Some(match (self, event) {
            (_, Receiving::Abort) => Self::Aborted,                  // AB-1
            (Self::Aborted, _) => return None,                       // AB-2
            (Self::Waiting, Receiving::Tail) => Self::Ready,         // SI-2
            (Self::Ready, Receiving::Record) => Self::Draining,      // SI-4
            (Self::Draining, Receiving::Drained) => Self::Waiting,   // CR-5
            (Self::Draining, Receiving::DrainedMore) => Self::Ready, // CR-5
            _ => return None,
        })
    }
}

impl Receiving {
    /// Every event, for the snapshot.
    pub const ALL: [Self; 5] = [Self::Tail, Self::Record, Self::Drained, Self::DrainedMore, Self::Abort];
}

/// The sending half.
#[derive(Clone, Debug)]
pub struct Sender {
    state: Transmit,
    window: window::Sender,
}

/// The receiving half.
#[derive(Clone, Debug)]
pub struct Receiver {
    state: Receive,
    window: window::Receiver,
    /// The sender's count as we last saw it, checked. May be stale, which only hides messages.
    tail: u64,
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

    /// Payload and record are in their places: the count to store now (SI-2), then call [`Sender::on_published`].
    ///
    /// # Errors
    /// As [`Sender::begin`]; so does the next one.
    #[inline]
    pub fn on_filled(&mut self) -> Result<u64, Kind> {
        self.step(Sending::Filled)?;
        Ok(self.window.step().wrapping_add(1))
    }

    /// The count is stored: the message is complete.
    #[inline]
    pub fn on_published(&mut self) -> Result<(), Kind> {
        self.step(Sending::Published)?;
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

impl Receiver {
    /// Before message `start`.
    pub fn new(slots: u32, start: u64) -> Self {
        Self { state: Receive::Waiting, window: window::Receiver::new(slots, start), tail: start }
    }

    /// Where the next message is, once it is complete.
    #[inline]
    pub fn slot(&self) -> Option<Slot> {
        matches!(self.state, Receive::Ready | Receive::Draining).then(|| self.window.slot())
    }

    /// The sender's count was read.
    ///
    /// # Errors
    /// `Corrupt` if it runs further ahead than there are slots, or moves back (SI-3), which aborts this half; `Aborted`.
    #[inline]
    pub fn on_tail(&mut self, tail: u64) -> Result<(), Kind> {
        if matches!(self.state, Receive::Aborted) {
            return Err(Kind::Aborted);
        }
        let head = self.window.slot().step;
        let ahead = tail.wrapping_sub(head);
        if ahead > self.window.slots() as u64 || ahead < self.tail.wrapping_sub(head) {
            self.abort();
            return Err(Kind::Corrupt);
        }
        self.tail = tail;
        if ahead > 0 && matches!(self.state, Receive::Waiting) {
            self.step(Receiving::Tail)?;
        }
        Ok(())
    }

    /// The record of the message in [`Receiver::slot`] was read.
    ///
    /// # Errors
    /// `Mismatch` if it is not the expected one (SI-4), which aborts this half; `Aborted`, `InvalidUsage` as everywhere.
    #[inline]
    pub fn on_record(&mut self, record: Record, expected: Record) -> Result<(), Kind> {
        if record != expected {
            self.step(Receiving::Abort)?;
            return Err(Kind::Mismatch);
        }
        self.step(Receiving::Record)
    }

    /// The payload is read: the count to publish now, if it is time (CR-2).
    #[inline]
    pub fn on_drained(&mut self) -> Result<Option<u64>, Kind> {
        let is_last = self.tail.wrapping_sub(self.window.slot().step) <= 1;
        self.step(if is_last { Receiving::Drained } else { Receiving::DrainedMore })?;
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
