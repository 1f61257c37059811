//! Records from one process to another: a ring of 64-byte records in memory that both map.
//!
//! Each side trusts only its own index, which it keeps in private memory; what it reads from the other side is checked
//! for plausibility, and a record is copied before anybody looks at it. A wrong index is [`Kind::Corrupt`].
//!
//! ```text
//! word   0: head, records taken so far        written by the consumer
//! word  16: tail, records put in so far       written by the producer
//! word  32: records, 8 words each
//! ```

use core::ptr::NonNull;

use crate::{
    Kind,
    sync::{
        AtomicU64,
        Ordering::{Acquire, Relaxed, Release},
    },
};

/// One record.
pub(super) type Record = [u64; 8];

/// Records in a ring.
pub(super) const RECORDS: u64 = 64;
/// Size of a ring in bytes.
pub(super) const BYTES: usize = 256 + RECORDS as usize * 64;

const HEAD: usize = 0;
const TAIL: usize = 16;
const FIRST: usize = 32;

/// The words of a ring in mapped memory.
#[derive(Debug)]
struct Words(NonNull<u64>);

// SAFETY: the words are only accessed atomically, by any thread or process.
unsafe impl Send for Words {}

impl Words {
    #[inline]
    fn at(&self, index: usize) -> &AtomicU64 {
        debug_assert!(index < BYTES / 8);
        // SAFETY: `attach` was given BYTES bytes that stay mapped, aligned to 8; all access to them is atomic.
        unsafe { AtomicU64::from_ptr(self.0.as_ptr().add(index)) }
    }

    fn record(&self, position: u64) -> usize {
        FIRST + (position % RECORDS) as usize * 8
    }
}

/// The writing side.
#[derive(Debug)]
pub(super) struct Producer {
    words: Words,
    tail: u64,
    /// May be stale; never ahead of the truth.
    head: u64,
}

impl Producer {
    /// # Safety
    /// - `words` points to [`BYTES`] bytes, aligned to 8, that stay mapped while the producer lives;
    /// - all other access to them is atomic.
    pub unsafe fn attach(words: NonNull<u64>) -> Self {
        Self { words: Words(words), tail: 0, head: 0 }
    }

    /// Append a record; false if the ring is full.
    #[inline]
    pub fn push(&mut self, record: &Record) -> Result<bool, Kind> {
        if self.is_full()? {
            return Ok(false);
        }
        let first = self.words.record(self.tail);
        for (index, word) in record.iter().enumerate() {
            // SYNC shm.queue.publish -> shm.queue.observe: relaxed, published by the tail.
            self.words.at(first + index).store(*word, Relaxed);
        }
        self.tail = self.tail.wrapping_add(1);
        // SYNC shm.queue.publish -> shm.queue.observe: the record, and all that was written before, precede the tail.
        self.words.at(TAIL).store(self.tail, Release);
        Ok(true)
    }

    /// No record can be appended now.
    #[inline]
    pub fn is_full(&mut self) -> Result<bool, Kind> {
        if self.tail.wrapping_sub(self.head) < RECORDS {
            return Ok(false);
        }
        // SYNC shm.queue.take -> shm.queue.reuse: the slot was read before it is written again.
        self.head = self.words.at(HEAD).load(Acquire);
        match self.tail.wrapping_sub(self.head) {
            used if used > RECORDS => Err(Kind::Corrupt),
            used => Ok(used == RECORDS),
        }
    }
}

/// The reading side.
#[derive(Debug)]
pub(super) struct Consumer {
    words: Words,
    head: u64,
    /// May be stale; never ahead of the truth.
    tail: u64,
}

impl Consumer {
    /// # Safety
    /// As for [`Producer::attach`].
    pub unsafe fn attach(words: NonNull<u64>) -> Self {
        Self { words: Words(words), head: 0, tail: 0 }
    }

    /// Take the oldest record, if there is one.
    #[inline]
    pub fn pop(&mut self) -> Result<Option<Record>, Kind> {
        if self.head == self.tail {
            // SYNC shm.queue.observe -> shm.queue.publish: records below the tail are visible.
            self.tail = self.words.at(TAIL).load(Acquire);
        }
        match self.tail.wrapping_sub(self.head) {
            0 => return Ok(None),
            used if used > RECORDS => return Err(Kind::Corrupt),
            _ => {}
        }
        let first = self.words.record(self.head);
        // SYNC shm.queue.observe -> shm.queue.publish: relaxed, ordered by the load of the tail.
        let record = core::array::from_fn(|index| self.words.at(first + index).load(Relaxed));
        self.head = self.head.wrapping_add(1);
        // SYNC shm.queue.take -> shm.queue.reuse: the record was copied before the slot is given back.
        self.words.at(HEAD).store(self.head, Release);
        Ok(Some(record))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::VecDeque;

    fn ring(memory: &mut [u64; BYTES / 8]) -> (Producer, Consumer, NonNull<u64>) {
        let words = NonNull::from(memory).cast();
        // SAFETY: the array outlives both in every test, and is accessed only through atomics meanwhile.
        unsafe { (Producer::attach(words), Consumer::attach(words), words) }
    }

    #[test]
    fn full_ring_refuses_and_goes_on_after_one_is_taken() {
        let mut memory = [0; BYTES / 8];
        let (mut producer, mut consumer, _) = ring(&mut memory);
        for lap in 0..3 {
            for number in 0..RECORDS {
                assert_eq!(producer.push(&[lap * RECORDS + number; 8]), Ok(true));
            }
            assert_eq!(producer.push(&[0; 8]), Ok(false));
            for number in 0..RECORDS {
                assert_eq!(consumer.pop(), Ok(Some([lap * RECORDS + number; 8])));
            }
            assert_eq!(consumer.pop(), Ok(None));
        }
    }

    proptest! {
        #[test]
        fn behaves_like_a_bounded_queue(steps in prop::collection::vec(any::<bool>(), 0..600)) {
            let mut memory = [0; BYTES / 8];
            let (mut producer, mut consumer, _) = ring(&mut memory);
            let mut model = VecDeque::new();
            for (number, push) in steps.into_iter().enumerate() {
                if push {
                    let fits = model.len() < RECORDS as usize;
                    prop_assert_eq!(producer.push(&[number as u64; 8]), Ok(fits));
                    if fits { model.push_back([number as u64; 8]) }
                } else {
                    prop_assert_eq!(consumer.pop(), Ok(model.pop_front()));
                }
            }
        }

        #[test]
        fn no_index_from_the_other_side_is_trusted(taken in 0_u64..200, index: u64) {
            let mut memory = [0; BYTES / 8];
            let (mut producer, mut consumer, words) = ring(&mut memory);
            for _ in 0..taken {
                prop_assert_eq!(producer.push(&[1; 8]), Ok(true));
                prop_assert_eq!(consumer.pop(), Ok(Some([1; 8])));
            }
            // SAFETY: within the array; atomic like all other access.
            unsafe { AtomicU64::from_ptr(words.as_ptr().add(TAIL)) }.store(index, Relaxed);
            let popped = consumer.pop();
            match index.wrapping_sub(taken) {
                0 => prop_assert_eq!(popped, Ok(None)),
                1..=RECORDS => prop_assert!(matches!(popped, Ok(Some(_)))),
                _ => prop_assert_eq!(popped, Err(Kind::Corrupt)),
            }
        }
    }
}
