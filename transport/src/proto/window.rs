//! Credits: how far a sender may run ahead of its receiver. All three protocols stand on this.
//!
//! Steps count messages, in 64 bits, from a start that both sides agree on; slot = step mod slots. They are compared by
//! difference alone (CR-4), so that no edge of any integer width means anything.

use crate::Kind;

/// Where the next message lies, and which it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slot {
    /// Index of the slot.
    pub index: u32,
    /// Number of the message.
    pub step: u64,
}

/// The sending half of a window.
#[derive(Clone, Debug)]
pub struct Sender {
    next: Slot,
    /// Messages that may still be sent before credit is needed. 0 after an abort.
    credit: u32,
    /// The receiver's count as we last saw it. May be stale, which only hides credit.
    head: u64,
    slots: u32,
    is_aborted: bool,
}

/// The receiving half of a window.
#[derive(Clone, Debug)]
pub struct Receiver {
    next: Slot,
    /// The count that the sender was last told.
    published: u64,
    slots: u32,
    batch: u32,
}

impl Slot {
    fn at(step: u64, slots: u32) -> Self {
        Self { index: (step % slots as u64) as u32, step }
    }

    #[inline(always)]
    fn advance(&mut self, slots: u32) {
        self.step = self.step.wrapping_add(1);
        self.index += 1;
        if self.index == slots {
            self.index = 0;
        }
    }
}

impl Sender {
    /// A window of `slots` free slots, before message `start`.
    ///
    /// # Panics
    /// If `slots` is 0.
    pub fn new(slots: u32, start: u64) -> Self {
        assert!(slots > 0, "a window has at least one slot");
        Self { next: Slot::at(start, slots), credit: slots, head: start, slots, is_aborted: false }
    }

    /// Where the next message goes; `None` without credit (CR-1) or after an abort (AB-2).
    #[inline(always)]
    pub fn slot(&self) -> Option<Slot> {
        if self.credit == 0 { None } else { Some(self.next) }
    }

    /// The message went into the slot.
    #[inline(always)]
    pub fn on_sent(&mut self) {
        debug_assert!(self.credit > 0, "only a message that had a slot is sent");
        self.credit = self.credit.saturating_sub(1);
        self.next.advance(self.slots);
    }

    /// The receiver's count was read.
    ///
    /// # Errors
    /// `Corrupt` if it counts messages that were not sent, or moves back (CR-3); `Aborted` after an abort.
    #[inline]
    pub fn on_credit(&mut self, head: u64) -> Result<(), Kind> {
        if self.is_aborted {
            return Err(Kind::Aborted);
        }
        let in_flight = self.next.step.wrapping_sub(head);
        if in_flight > self.next.step.wrapping_sub(self.head) {
            return Err(Kind::Corrupt);
        }
        self.head = head;
        self.credit = self.slots - in_flight as u32;
        Ok(())
    }

    /// Messages that the receiver may not have consumed yet.
    pub fn in_flight(&self) -> u64 {
        self.next.step.wrapping_sub(self.head)
    }

    /// The number of the next message.
    #[inline(always)]
    pub fn step(&self) -> u64 {
        self.next.step
    }

    /// No slot will be given any more.
    pub fn abort(&mut self) {
        self.is_aborted = true;
        self.credit = 0;
    }
}

impl Receiver {
    /// A window of `slots` slots, before message `start`.
    ///
    /// # Panics
    /// If `slots` is 0.
    pub fn new(slots: u32, start: u64) -> Self {
        assert!(slots > 0, "a window has at least one slot");
        Self { next: Slot::at(start, slots), published: start, slots, batch: (slots / 2).max(1) }
    }

    /// Where the next message arrives.
    #[inline(always)]
    pub fn slot(&self) -> Slot {
        self.next
    }

    /// How many slots there are.
    #[inline(always)]
    pub fn slots(&self) -> u32 {
        self.slots
    }

    /// The message was read, all of it. Returns the count to publish now, every `slots / 2` messages (CR-2).
    #[inline(always)]
    pub fn on_consumed(&mut self) -> Option<u64> {
        self.next.advance(self.slots);
        if self.next.step.wrapping_sub(self.published) >= self.batch as u64 { self.flush() } else { None }
    }

    /// The count to publish before going idle, if the sender does not know it yet (CR-2).
    #[inline]
    pub fn flush(&mut self) -> Option<u64> {
        if self.published == self.next.step {
            return None;
        }
        self.published = self.next.step;
        Some(self.published)
    }
}
