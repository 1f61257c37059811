//! A ring of 64-byte records in shared memory, from one process to another that does not trust it.
//!
//! ```text
//! line 0      tail: records pushed, written by the producer alone
//! line 1      head: records popped, written by the consumer alone
//! line 2 ..   records
//! ```
//! Both sides know the capacity beforehand. A side keeps its own index in private and never reads it back; the peer's index
//! is checked by difference before use (SP-5), and only the own index, masked, says where a record lies (SP-6). Records are
//! stored and loaded word by word, so that a peer that disobeys, or a second end on one side, makes nonsense and nothing worse.

use crate::{
    Kind,
    sync::{
        Ordering::{Acquire, Relaxed, Release},
        Words, label,
    },
    wire::{LINE, LINE_WORDS},
};

/// One record.
pub type Record = [u64; RECORD_WORDS];

/// Words of one record.
const RECORD_WORDS: usize = 8;
const TAIL: usize = 0;
const HEAD: usize = LINE_WORDS;
const RECORDS: usize = 2 * LINE_WORDS;
const _: () = assert!(size_of::<Record>() == 64 && LINE.is_multiple_of(64) && HEAD * 8 == LINE);

/// Words that a ring of this many records needs; saturates.
pub const fn words(capacity: usize) -> usize {
    capacity.saturating_mul(RECORD_WORDS).saturating_add(RECORDS)
}

/// Full: the record comes back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// No room now.
    Full(Record),
    /// The consumer's index makes no sense.
    Corrupt(Record),
}

/// The pushing end.
#[derive(Debug)]
pub struct Producer<W> {
    words: W,
    capacity: u64,
    tail: u64,
    /// The consumer's index as we last saw it, checked. May be stale, which only makes the ring look fuller.
    head: u64,
}

/// The popping end.
#[derive(Debug)]
pub struct Consumer<W> {
    words: W,
    capacity: u64,
    head: u64,
    /// The producer's index as we last saw it, checked. May be stale, which only makes the ring look emptier.
    tail: u64,
}

impl<W: Words> Producer<W> {
    /// The only producer on these words, which were zero when the ring began.
    ///
    /// # Errors
    /// `InvalidArgument` if the capacity is no power of two or needs more words than there are; `Corrupt` if the indexes
    /// in the memory make no sense.
    pub fn attach(words: W, capacity: usize) -> Result<Self, Kind> {
        let (head, tail) = indexes(&words, capacity)?;
        Ok(Self { words, capacity: capacity as u64, tail, head })
    }

    /// Append a record.
    ///
    /// # Errors
    /// The record comes back if there is no room, or if the consumer's index is corrupt (SP-1, SP-5).
    #[inline]
    pub fn push(&mut self, record: &Record) -> Result<(), Refusal> {
        if self.tail.wrapping_sub(self.head) == self.capacity {
            self.refresh(record)?;
        }
        let at = slot(self.tail, self.capacity);
        self.words.store_all(at, record);
        self.tail = self.tail.wrapping_add(1);
        // SYNC record.publish -> record.observe: the record is visible before the index that covers it (SP-3).
        self.words.store(TAIL, self.tail, label("record.publish", Release));
        Ok(())
    }

    fn refresh(&mut self, record: &Record) -> Result<(), Refusal> {
        // SYNC record.reuse <- record.free: the consumer has read the record that we overwrite (SP-3).
        let head = self.words.load(HEAD, label("record.reuse", Acquire));
        // The consumer moves forward, and never beyond us.
        if self.tail.wrapping_sub(head) > self.tail.wrapping_sub(self.head) {
            return Err(Refusal::Corrupt(*record));
        }
        self.head = head;
        if self.tail.wrapping_sub(head) == self.capacity { Err(Refusal::Full(*record)) } else { Ok(()) }
    }
}

impl<W: Words> Consumer<W> {
    /// The only consumer on these words, which were zero when the ring began.
    ///
    /// # Errors
    /// As [`Producer::attach`].
    pub fn attach(words: W, capacity: usize) -> Result<Self, Kind> {
        let (head, tail) = indexes(&words, capacity)?;
        // The peer's index of `attach` is only checked, not kept: records are read after an acquiring load.
        let _ = tail;
        Ok(Self { words, capacity: capacity as u64, head, tail: head })
    }

    /// Take the oldest record.
    ///
    /// # Errors
    /// `Corrupt` if the producer's index makes no sense (SP-5). Nothing is taken then, now or later.
    #[inline]
    pub fn pop(&mut self) -> Result<Option<Record>, Kind> {
        if self.head == self.tail && !self.refresh()? {
            return Ok(None);
        }
        let at = slot(self.head, self.capacity);
        let mut record = [0; RECORD_WORDS];
        self.words.load_all(at, &mut record);
        self.head = self.head.wrapping_add(1);
        // SYNC record.free -> record.reuse: our read of the record is over before it may be overwritten (SP-3).
        self.words.store(HEAD, self.head, label("record.free", Release));
        Ok(Some(record))
    }

    /// Whether a record, or a corrupt index, may be waiting.
    #[inline]
    pub fn is_ready(&self) -> bool {
        // Relaxed: a hint; `pop` loads again with acquire.
        self.head != self.tail || self.words.load(TAIL, Relaxed) != self.head
    }

    fn refresh(&mut self) -> Result<bool, Kind> {
        // SYNC record.observe <- record.publish: the record is read after the index that covers it (SP-3).
        let tail = self.words.load(TAIL, label("record.observe", Acquire));
        if tail.wrapping_sub(self.head) > self.capacity {
            return Err(Kind::Corrupt);
        }
        self.tail = tail;
        Ok(tail != self.head)
    }
}

fn indexes(words: &impl Words, capacity: usize) -> Result<(u64, u64), Kind> {
    if !capacity.is_power_of_two() || words.len() < self::words(capacity) {
        return Err(Kind::InvalidArgument);
    }
    // SYNC record.observe <- record.publish, record.reuse <- record.free: as in `pop` and `push`, for a side that attaches late.
    let head = words.load(HEAD, label("record.reuse", Acquire));
    let tail = words.load(TAIL, label("record.observe", Acquire));
    if tail.wrapping_sub(head) > capacity as u64 {
        return Err(Kind::Corrupt);
    }
    Ok((head, tail))
}

#[inline(always)]
fn slot(index: u64, capacity: u64) -> usize {
    RECORDS + (index & (capacity - 1)) as usize * RECORD_WORDS
}
