//! Notifications: how often each immediate value has arrived, from whomever.

use alloc::{sync::Arc, vec::Vec};

use crate::sync::{
    AtomicU64,
    Ordering::{Acquire, Relaxed, Release},
};

/// How often a value has arrived. Clones read the same word, from any thread.
#[derive(Clone, Debug)]
pub struct Counter(Arc<AtomicU64>);

impl Counter {
    /// Arrivals so far. Everything that their senders wrote before is visible.
    #[inline]
    pub fn get(&self) -> u64 {
        // SYNC endpoint.count.read -> endpoint.count: what was received before the count is visible.
        self.0.load(Acquire)
    }

    fn add(&self) {
        // one writer: the thread that polls
        let count = self.0.load(Relaxed) + 1;
        // SYNC endpoint.count -> endpoint.count.read: the fabric has acquired what came with the immediate.
        self.0.store(count, Release);
    }
}

/// Waits for a number of arrivals of a value.
#[derive(Clone, Debug)]
pub struct Arrivals {
    counter: Counter,
    target: u64,
}

impl Arrivals {
    /// Whether all have arrived.
    #[inline]
    pub fn is_complete(&self) -> bool {
        self.counter.get() >= self.target
    }

    /// How many are missing.
    pub fn missing(&self) -> u64 {
        self.target.saturating_sub(self.counter.get())
    }

    /// The word that is compared, to be read by another thread.
    pub fn counter(&self) -> &Counter {
        &self.counter
    }

    /// The count at which they are complete.
    pub fn target(&self) -> u64 {
        self.target
    }
}

/// All values that ever came or were expected: a table with open addressing, at most half full.
#[derive(Debug)]
pub(super) struct Counters {
    slots: Vec<Option<Slot>>,
    known: usize,
}

#[derive(Clone, Debug)]
struct Slot {
    value: u32,
    counter: Counter,
    /// Arrivals that expectations have asked for.
    expected: u64,
}

/// Values that peers can make us remember.
const MOST: usize = 1 << 20;
/// A power of two.
const AT_FIRST: usize = 1024;

impl Counters {
    pub fn new() -> Self {
        Self { slots: alloc::vec![None; AT_FIRST], known: 0 }
    }

    #[inline]
    fn place(&self, value: u32) -> usize {
        let mask = self.slots.len() - 1;
        let mut at = (value.wrapping_mul(0x9e37_79b9) >> 8) as usize & mask;
        while self.slots[at].as_ref().is_some_and(|slot| slot.value != value) {
            at = (at + 1) & mask;
        }
        at
    }

    #[inline]
    fn slot(&mut self, value: u32) -> &mut Slot {
        let mut at = self.place(value);
        if self.slots[at].is_none() {
            if self.known * 2 >= self.slots.len() {
                self.grow();
                at = self.place(value);
            }
            self.known += 1;
        }
        self.slots[at].get_or_insert_with(|| Slot { value, counter: Counter(Arc::new(AtomicU64::new(0))), expected: 0 })
    }

    fn grow(&mut self) {
        let doubled = alloc::vec![None; self.slots.len() * 2];
        for slot in core::mem::replace(&mut self.slots, doubled).into_iter().flatten() {
            let at = self.place(slot.value);
            self.slots[at] = Some(slot);
        }
    }

    /// Count an arrival; false if a peer has sent so many different values that it cannot be meant.
    #[inline]
    pub fn add(&mut self, value: u32) -> bool {
        if self.known >= MOST && self.slots[self.place(value)].is_none() {
            return false;
        }
        self.slot(value).counter.add();
        true
    }

    pub fn counter(&mut self, value: u32) -> Counter {
        self.slot(value).counter.clone()
    }

    pub fn expect(&mut self, value: u32, count: u64) -> Arrivals {
        let slot = self.slot(value);
        slot.expected = slot.expected.saturating_add(count);
        Arrivals { counter: slot.counter.clone(), target: slot.expected }
    }
}

impl super::Endpoint {
    /// Expect `count` more arrivals of this immediate value, from whichever peers. Expectations of one value are filled in the order
    /// of these calls; arrivals that came before count too.
    pub fn expect(&mut self, value: u32, count: u64) -> Arrivals {
        self.counters.expect(value, count)
    }

    /// How often this immediate value has arrived since the endpoint was made.
    pub fn counter(&mut self, value: u32) -> Counter {
        self.counters.counter(value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_value_is_counted_by_itself_however_many_there_are() {
        let mut counters = Counters::new();
        for round in 1..=3 {
            for value in (0..5000).map(|value: u32| value.wrapping_mul(0x0101_0101)) {
                counters.add(value);
                assert_eq!(counters.counter(value).get(), round);
            }
        }
    }

    #[test]
    fn expectations_are_filled_in_order_and_early_arrivals_count() {
        let mut counters = Counters::new();
        counters.add(u32::MAX);
        let (one, two) = (counters.expect(u32::MAX, 2), counters.expect(u32::MAX, 1));
        let none = counters.expect(7, 0);
        assert!(none.is_complete() && !one.is_complete());
        counters.add(u32::MAX);
        assert!(one.is_complete() && !two.is_complete() && two.missing() == 1);
        counters.add(u32::MAX);
        assert!(two.is_complete() && two.missing() == 0);
    }
}
