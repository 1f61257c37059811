//! Where everything of one connection lies in the receiver's memory.
//!
//! ```text
//! tail line | head line | records | LL slots | LL128 slots | Simple slots
//! ```
//! Everything is 128-aligned. Offsets are computed in checked 64-bit arithmetic: what does not fit is refused, never cut.

use super::{LINE, ll, ll128, simple};
use crate::Kind;

/// What a connection is made of. A payload size of 0 leaves that protocol without slots.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Layout {
    /// Messages in flight, from 1 to [`ll::SLOTS`].
    pub slots: u32,
    /// Largest payload of an LL message, in bytes.
    pub ll_bytes: u64,
    /// Largest payload of an LL128 message, in bytes.
    pub ll128_bytes: u64,
    /// Largest payload of a Simple message, in bytes.
    pub simple_bytes: u64,
}

/// A range of the connection's memory, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    /// First byte, a multiple of [`LINE`].
    pub offset: u64,
    /// Length.
    pub bytes: u64,
}

/// A valid layout: where everything lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Areas {
    slots: u32,
    ll: Slots,
    ll128: Slots,
    simple: Slots,
    total: u64,
}

/// Equally large slots in a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Slots {
    offset: u64,
    /// Of each; 0 if the protocol has none.
    bytes: u64,
}

const TAIL: u64 = 0;
const HEAD: u64 = LINE as u64;
const RECORDS: u64 = 2 * LINE as u64;

impl Layout {
    /// Where everything lies.
    ///
    /// # Errors
    /// `InvalidArgument` if the number of slots is out of range, `SizeOverflow` if the whole does not fit an `i64`.
    pub fn areas(&self) -> Result<Areas, Kind> {
        if self.slots == 0 || self.slots > ll::SLOTS {
            return Err(Kind::InvalidArgument);
        }
        let slots = self.slots as u64;
        let mut end = RECORDS + round_up(slots * simple::RECORD as u64)?;
        let mut place = |payload: u64, slot_bytes: fn(u64) -> u64| -> Result<Slots, Kind> {
            let bytes = if payload == 0 { 0 } else { slot_bytes(payload) };
            let area = Slots { offset: end, bytes };
            end = bytes.checked_mul(slots).and_then(|all| all.checked_add(end)).ok_or(Kind::SizeOverflow)?;
            Ok(area)
        };
        let ll = place(self.ll_bytes, ll::slot_bytes)?;
        let ll128 = place(self.ll128_bytes, ll128::slot_bytes)?;
        let simple = place(self.simple_bytes, simple::slot_bytes)?;
        if i64::try_from(end).is_err() {
            return Err(Kind::SizeOverflow);
        }
        Ok(Areas { slots: self.slots, ll, ll128, simple, total: end })
    }
}

impl Areas {
    /// Bytes of the whole, a multiple of [`LINE`].
    pub fn total(&self) -> u64 {
        self.total
    }

    /// The counter of published Simple messages; its writer is the peer that sends to us.
    pub fn tail(&self) -> Extent {
        Extent { offset: TAIL, bytes: LINE as u64 }
    }

    /// The credits of the connection in the *other* direction, whose sender we are; its writer is the peer that receives from us.
    pub fn head(&self) -> Extent {
        Extent { offset: HEAD, bytes: LINE as u64 }
    }

    /// The records of all Simple slots.
    pub fn records(&self) -> Extent {
        Extent { offset: RECORDS, bytes: self.ll.offset - RECORDS }
    }

    /// The LL slot with this index.
    ///
    /// # Panics
    /// If there is no such slot; so do the next two.
    #[inline]
    pub fn ll(&self, index: u32) -> Extent {
        self.slot(self.ll, index)
    }

    /// The LL128 slot with this index.
    #[inline]
    pub fn ll128(&self, index: u32) -> Extent {
        self.slot(self.ll128, index)
    }

    /// The Simple slot with this index.
    #[inline]
    pub fn simple(&self, index: u32) -> Extent {
        self.slot(self.simple, index)
    }

    #[inline]
    fn slot(&self, area: Slots, index: u32) -> Extent {
        assert!(index < self.slots, "slot {index} of {}", self.slots);
        Extent { offset: area.offset + area.bytes * index as u64, bytes: area.bytes }
    }
}

impl Extent {
    /// This part of words that are mapped at the area's start; `None` if they end before it.
    #[inline]
    pub fn of(&self, words: &crate::sync::Mapped) -> Option<crate::sync::Mapped> {
        let first = usize::try_from(self.offset / 8).ok()?;
        words.part(first, usize::try_from(self.bytes / 8).ok()?)
    }
}

fn round_up(bytes: u64) -> Result<u64, Kind> {
    bytes.checked_next_multiple_of(LINE as u64).ok_or(Kind::SizeOverflow)
}
