//! The two directions of a link: what the peer writes and we read (inbox), and the peer's inbox (outbox).
//!
//! ```text
//! byte      0: queue of records (see queue)
//! byte   4352: receives that the peer has posted so far     (one writer: the peer)
//! byte   4480: messages of ours that the peer has taken     (one writer: the peer)
//! byte   8192: message slots, 4 KiB each
//! byte  73728: bounce pieces for staged reads, 32 KiB each, reserved only where a link cannot pull
//! ```
//! Slots lie at the receiver, credits at the sender; every word has one writer. Nothing read here is trusted.

use core::ptr::NonNull;
use std::sync::Arc;

use memmap2::MmapRaw;

use super::{
    copy,
    memory::Segment,
    notice::Notice,
    queue::{self, Consumer, Producer},
};
use crate::{
    Kind,
    fabric::{Doorbell, MESSAGE},
    sync::{
        AtomicU64,
        Ordering::{Acquire, Release},
    },
};

/// Message slots of one direction.
pub(super) const MESSAGES: u64 = 16;
/// Bounce pieces of one direction.
pub(super) const PIECES: u64 = 4;
/// Size of a bounce piece, in bytes.
pub(super) const PIECE: usize = 32 << 10;
/// Most receives posted and not reported.
pub(super) const RECEIVES: usize = 256;
/// Where the bounce pieces start.
pub(super) const BOUNCE: usize = SLOTS + MESSAGES as usize * MESSAGE;
/// Size of an inbox.
pub(super) const INBOX: usize = BOUNCE + PIECES as usize * PIECE;

const CREDITS: usize = queue::BYTES.next_multiple_of(128);
const TAKEN: usize = CREDITS + 128;
const SLOTS: usize = 8192;
const _: () = assert!(CREDITS == 4352 && TAKEN + 128 <= SLOTS && BOUNCE == 73728 && BOUNCE.is_multiple_of(4096));

/// What the peer writes.
#[derive(Debug)]
pub(super) struct Inbox {
    map: Arc<MmapRaw>,
    queue: Consumer,
    /// Messages taken so far.
    taken: u64,
}

impl Inbox {
    pub fn new(segment: Segment) -> Self {
        let map = segment.map;
        // SAFETY: `map` is at least INBOX bytes (`offer`), aligned to a page, lives as long as `self`; the ring's words are
        // accessed atomically by everybody.
        let queue = unsafe { Consumer::attach(start(&map)) };
        Self { map, queue, taken: 0 }
    }

    /// The oldest record.
    #[inline]
    pub fn next(&mut self) -> Result<Option<Notice>, Kind> {
        match self.queue.pop()? {
            None => Ok(None),
            Some(record) => Notice::parse(&record).map(Some),
        }
    }

    /// Copy the oldest message out, as far as there is room. Returns how many messages have been taken.
    ///
    /// # Safety
    /// `to` is valid for writes of `room` bytes.
    pub unsafe fn take(&mut self, to: *mut u8, room: usize) -> u64 {
        let slot = SLOTS + (self.taken % MESSAGES) as usize * MESSAGE;
        // SAFETY: the slot and MESSAGE bytes after it lie within the map; `to` by the caller's contract.
        unsafe { copy::observe(self.map.as_ptr().add(slot), to, room.min(MESSAGE)) };
        self.taken += 1;
        self.taken
    }

    /// Copy a filled bounce piece out.
    ///
    /// # Safety
    /// `to` is valid for writes of `bytes` bytes.
    pub unsafe fn unload(&self, piece: u64, to: *mut u8, bytes: usize) {
        debug_assert!(bytes <= PIECE);
        // SAFETY: piece and `bytes` lie within the map; `to` by the caller's contract.
        unsafe { copy::observe(self.map.as_ptr().add(piece_at(piece)), to, bytes.min(PIECE)) };
    }

    /// Receives that the peer says it has posted.
    #[inline]
    fn credits(&self) -> u64 {
        // SYNC shm.credit.grant -> shm.credit.use: the receive is queued at the peer.
        word(&self.map, CREDITS).load(Acquire)
    }

    /// Messages that the peer says it has taken.
    #[inline]
    fn messages_taken(&self) -> u64 {
        // SYNC shm.message.take -> shm.message.reuse: the slot was copied before it is written again.
        word(&self.map, TAKEN).load(Acquire)
    }
}

/// What we write.
#[derive(Debug)]
pub(super) struct Outbox {
    map: MmapRaw,
    queue: Producer,
    bell: Doorbell,
    /// Receives of the peer that we have used.
    used: u64,
    /// Messages sent so far.
    sent: u64,
}

impl Outbox {
    pub fn new(map: MmapRaw, bell: Doorbell) -> Self {
        // SAFETY: `map` is at least INBOX bytes (`adopt`), aligned to a page, lives as long as `self`; the ring's words are
        // accessed atomically by us.
        let queue = unsafe { Producer::attach(start(&map)) };
        Self { map, queue, bell, used: 0, sent: 0 }
    }

    /// The peer's doorbell.
    pub fn bell(&self) -> &Doorbell {
        &self.bell
    }

    /// Whether a record can be sent that consumes a receive.
    #[inline]
    pub fn has_credit(&mut self, inbox: &Inbox) -> Result<bool, Kind> {
        // wrapping, because a peer may write anything
        match inbox.credits().wrapping_sub(self.used) {
            0 => Ok(false),
            left if left > RECEIVES as u64 => Err(Kind::Corrupt),
            _ => Ok(!self.queue.is_full()?),
        }
    }

    /// Whether a message slot is free.
    #[inline]
    pub fn has_slot(&self, inbox: &Inbox) -> Result<bool, Kind> {
        match self.sent.wrapping_sub(inbox.messages_taken()) {
            waiting if waiting > MESSAGES => Err(Kind::Corrupt),
            waiting => Ok(waiting < MESSAGES),
        }
    }

    /// Announce a write. There is credit.
    #[inline]
    pub fn notify(&mut self, bytes: u64, immediate: u32) -> Result<bool, Kind> {
        self.used += 1;
        self.push(Notice::Immediate { bytes, immediate })
    }

    /// Send a message. There is credit and a slot.
    ///
    /// # Safety
    /// `from` is valid for reads of `bytes` bytes, at most [`MESSAGE`].
    pub unsafe fn send(&mut self, from: *const u8, bytes: usize) -> Result<bool, Kind> {
        let slot = SLOTS + (self.sent % MESSAGES) as usize * MESSAGE;
        // SAFETY: the slot and MESSAGE bytes after it lie within the map; `from` by the caller's contract.
        unsafe { copy::publish(from, self.map.as_mut_ptr().add(slot), bytes) };
        self.sent += 1;
        self.used += 1;
        self.push(Notice::Message { bytes: bytes as u64 })
    }

    /// Fill a bounce piece of the peer.
    ///
    /// # Safety
    /// `from` is valid for reads of `bytes` bytes, at most [`PIECE`].
    pub unsafe fn load(&self, piece: u64, from: *const u8, bytes: usize) {
        // SAFETY: piece and `bytes` lie within the map; `from` by the caller's contract.
        unsafe { copy::publish(from, self.map.as_mut_ptr().add(piece_at(piece)), bytes) };
    }

    /// Append a record; false if the queue is full.
    #[inline]
    pub fn push(&mut self, notice: Notice) -> Result<bool, Kind> {
        let pushed = self.queue.push(&notice.emit())?;
        if pushed {
            // SYNC shm.announce -> shm.notice: the record is visible to whoever sees the count change.
            self.bell.announcements().fetch_add(1, Release);
        }
        Ok(pushed)
    }

    /// We have posted `total` receives so far.
    #[inline]
    pub fn grant(&self, total: u64) {
        // SYNC shm.credit.grant -> shm.credit.use: the receive is queued before the peer may use it.
        word(&self.map, CREDITS).store(total, Release);
    }

    /// We have taken `total` messages so far.
    #[inline]
    pub fn mark_taken(&self, total: u64) {
        // SYNC shm.message.take -> shm.message.reuse: the slot was copied before it is given back.
        word(&self.map, TAKEN).store(total, Release);
    }
}

fn start(map: &MmapRaw) -> NonNull<u64> {
    NonNull::new(map.as_mut_ptr()).expect("a mapping has an address").cast()
}

fn piece_at(piece: u64) -> usize {
    BOUNCE + (piece % PIECES) as usize * PIECE
}

#[inline]
fn word(map: &MmapRaw, at: usize) -> &AtomicU64 {
    // SAFETY: `at` is CREDITS or TAKEN: aligned to 8 and within the map; all access to these words is atomic.
    unsafe { AtomicU64::from_ptr(map.as_mut_ptr().add(at).cast()) }
}
