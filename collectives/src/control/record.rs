//! What this rank called lately: written by the thread that calls, read by the control side when a peer asks.
//!
//! A ring of slots, each guarded by a sequence word that is odd while the slot is written. Words are atomics, so a torn read is noticed,
//! never undefined. Writing costs a few plain stores.

use vervain_transport::sync::{AtomicU64, Ordering, fence};

use crate::call::{Descriptor, WORDS};

/// Calls that are remembered.
const SLOTS: usize = 64;
/// Attempts to read a slot that is being written; after that the call it held is gone anyway.
const ATTEMPTS: usize = 3;

/// The ring. One thread at a time writes.
#[derive(Debug)]
pub(crate) struct Record {
    slots: Box<[Slot]>,
    written: AtomicU64,
    entered: AtomicU64,
}

#[derive(Debug, Default)]
struct Slot {
    sequence: AtomicU64,
    words: [AtomicU64; WORDS],
}

impl Record {
    pub(crate) fn new() -> Self {
        Self {
            slots: (0..SLOTS).map(|_| Slot::default()).collect(),
            written: AtomicU64::new(0),
            entered: AtomicU64::new(0),
        }
    }

    /// Remember a call.
    pub(crate) fn write(&self, call: &Descriptor) {
        // SYNC none: only the writer uses the position
        let position = self.written.load(Ordering::Relaxed);
        self.written.store(position + 1, Ordering::Relaxed);
        self.slots[position as usize % SLOTS].write(call.to_words());
        if !call.is_message() {
            // SYNC control.entered -> control.entered: a hint for reports; nothing is read because of it
            self.entered.store(call.operation + 1, Ordering::Relaxed);
        }
    }

    /// How many operations of all ranks this rank has entered; messages between two have their own numbers.
    pub(crate) fn entered(&self) -> u64 {
        // SYNC control.entered -> control.entered
        self.entered.load(Ordering::Relaxed)
    }

    /// A remembered call that `wanted` accepts.
    pub(crate) fn find(&self, wanted: impl Fn(&Descriptor) -> bool) -> Option<Descriptor> {
        self.slots.iter().filter_map(Slot::read).find(|call| wanted(call))
    }
}

impl Slot {
    fn write(&self, words: [u64; WORDS]) {
        // SYNC control.record.write -> control.record.check: the odd sequence is visible before any new word
        let sequence = self.sequence.load(Ordering::Relaxed);
        self.sequence.store(sequence + 1, Ordering::Relaxed);
        fence(Ordering::Release);
        for (place, word) in self.words.iter().zip(words) {
            place.store(word, Ordering::Relaxed);
        }
        // SYNC control.record.publish -> control.record.read: all words are visible before the even sequence
        self.sequence.store(sequence + 2, Ordering::Release);
    }

    fn read(&self) -> Option<Descriptor> {
        (0..ATTEMPTS).find_map(|_| self.try_read()).and_then(Descriptor::from_words)
    }

    fn try_read(&self) -> Option<[u64; WORDS]> {
        // SYNC control.record.publish -> control.record.read
        let before = self.sequence.load(Ordering::Acquire);
        if before == 0 || before % 2 == 1 {
            return None;
        }
        let words = core::array::from_fn(|at| self.words[at].load(Ordering::Relaxed));
        // SYNC control.record.write -> control.record.check: whoever read a new word sees that the sequence changed
        fence(Ordering::Acquire);
        (self.sequence.load(Ordering::Relaxed) == before).then_some(words)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Collective, DataType};

    fn call(operation: u64) -> Descriptor {
        Descriptor {
            operation,
            collective: Collective::Barrier,
            count: operation * 3,
            datatype: DataType::U8,
            op: None,
            root: None,
            registered: false,
            tuning: !operation,
        }
    }

    #[test]
    fn remembers_the_last_64_calls() {
        let record = Record::new();
        assert_eq!(record.find(|_| true), None);
        (0..100).for_each(|operation| record.write(&call(operation)));
        assert_eq!(record.entered(), 100);
        for (operation, known) in [(35, false), (36, true), (99, true), (100, false)] {
            assert_eq!(record.find(|call| call.operation == operation), known.then(|| call(operation)), "{operation}");
        }
    }

    #[test]
    fn reader_never_sees_a_torn_call() {
        let record = Record::new();
        std::thread::scope(|scope| {
            scope.spawn(|| (0..200_000).for_each(|operation| record.write(&call(operation))));
            for _ in 0..2_000 {
                record.slots.iter().filter_map(Slot::read).for_each(|seen| assert_eq!(seen, call(seen.operation)));
            }
        });
    }
}
