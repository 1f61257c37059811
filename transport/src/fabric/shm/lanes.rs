//! The two directions of a link: what the peer writes and we read (inbox), and the peer's inbox (outbox).
//!
//! ```text
//! byte      0: ring of records (see ring::record)
//! byte  16640: receives that the peer has posted so far     (one writer: the peer)
//! byte  16768: messages of ours that the peer has taken     (one writer: the peer)
//! byte  16896: fences that the peer made without our answer  (one writer: the peer)
//! byte  20480: message slots, 4 KiB each
//! byte  86016: bounce pieces for staged reads, 32 KiB each, reserved only where a link cannot pull
//! ```
//! Slots lie at the receiver, credits at the sender; every word has one writer. Nothing read here is trusted.
//!
//! The ring has room for all that a correct peer leaves us to put in: each record consumes a receive of the peer, or
//! asks for a piece, or says that a key is void, or answers one of these. So a full ring is [`Kind::Corrupt`].

use core::ptr::NonNull;
use std::sync::Arc;

use memmap2::MmapRaw;

use super::{copy, given::VOIDS, memory::Segment, notice::Notice};
use crate::{
    Kind,
    fabric::{Doorbell, MESSAGE},
    ring::record::{self, Consumer, Producer},
    sync::{
        AtomicU64, Mapped,
        Ordering::{Acquire, Release, SeqCst},
        fence,
    },
};

/// Records in a ring.
pub(super) const RECORDS: usize = 256;
/// Message slots of one direction.
pub(super) const MESSAGES: u64 = 16;
/// Bounce pieces of one direction.
pub(super) const PIECES: u64 = 4;
/// Size of a bounce piece, in bytes.
pub(super) const PIECE: usize = 32 << 10;
/// Most receives posted and not reported.
pub(super) const RECEIVES: usize = 128;
/// Where the bounce pieces start.
pub(super) const BOUNCE: usize = SLOTS + MESSAGES as usize * MESSAGE;
/// Size of an inbox.
pub(super) const INBOX: usize = BOUNCE + PIECES as usize * PIECE;

const CREDITS: usize = record::words(RECORDS) * 8;
const TAKEN: usize = CREDITS + 128;
const FENCES: usize = TAKEN + 128;
const SLOTS: usize = 20480;
const _: () = assert!(RECEIVES + 2 * PIECES as usize + 2 * VOIDS <= RECORDS);
const _: () = assert!(CREDITS == 16640 && CREDITS.is_multiple_of(128) && FENCES + 128 <= SLOTS && BOUNCE == 86016);

/// What the peer writes.
#[derive(Debug)]
pub(super) struct Inbox {
    map: Arc<MmapRaw>,
    ring: Consumer<Mapped>,
    /// Messages taken so far.
    taken: u64,
}

impl Inbox {
    pub fn new(segment: Segment) -> Result<Self, Kind> {
        let map = segment.map;
        let ring = Consumer::attach(words(&map), RECORDS)?;
        Ok(Self { map, ring, taken: 0 })
    }

    /// The oldest record.
    #[inline]
    pub fn next(&mut self) -> Result<Option<Notice>, Kind> {
        match self.ring.pop()? {
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

    /// How often the peer has replaced memory that we may have been using (rule FE-3).
    pub fn fences(&self) -> u64 {
        // Stores through a void key, then this load; the peer stores the count, then copies the memory. With a fence between,
        // on both sides, either we see the count or the copy has our stores.
        // SYNC shm.fence.see <-> shm.fence.mark
        fence(SeqCst);
        word(&self.map, FENCES).load(Acquire)
    }
}

/// What we write.
#[derive(Debug)]
pub(super) struct Outbox {
    map: MmapRaw,
    ring: Producer<Mapped>,
    bell: Doorbell,
    /// Receives of the peer that we have used.
    used: u64,
    /// Messages sent so far.
    sent: u64,
    /// Fences made so far.
    fences: u64,
}

impl Outbox {
    pub fn new(map: MmapRaw, bell: Doorbell) -> Result<Self, Kind> {
        let ring = Producer::attach(words(&map), RECORDS)?;
        Ok(Self { map, ring, bell, used: 0, sent: 0, fences: 0 })
    }

    /// The peer's doorbell.
    pub fn bell(&self) -> &Doorbell {
        &self.bell
    }

    /// Whether a record can be sent that consumes a receive.
    #[inline]
    pub fn has_credit(&self, inbox: &Inbox) -> Result<bool, Kind> {
        // wrapping, because a peer may write anything
        match inbox.credits().wrapping_sub(self.used) {
            0 => Ok(false),
            left if left > RECEIVES as u64 => Err(Kind::Corrupt),
            _ => Ok(true),
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
    pub fn notify(&mut self, bytes: u64, immediate: u32) -> Result<(), Kind> {
        self.used += 1;
        self.push(Notice::Immediate { bytes, immediate })
    }

    /// Send a message. There is credit and a slot.
    ///
    /// # Safety
    /// `from` is valid for reads of `bytes` bytes, at most [`MESSAGE`].
    pub unsafe fn send(&mut self, from: *const u8, bytes: usize) -> Result<(), Kind> {
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

    /// Append a record, for which there is room.
    #[inline]
    pub fn push(&mut self, notice: Notice) -> Result<(), Kind> {
        self.ring.push(&notice.emit()).map_err(|_| Kind::Corrupt)?;
        // SYNC shm.announce -> shm.notice: the record is visible to whoever sees the count change.
        self.bell.announcements().fetch_add(1, Release);
        Ok(())
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

    /// We are about to replace memory that the peer may be using (rule FE-3).
    pub fn mark_fence(&mut self) {
        self.fences += 1;
        word(&self.map, FENCES).store(self.fences, Release);
        // SYNC shm.fence.mark <-> shm.fence.see: see there.
        fence(SeqCst);
    }
}

#[cfg(test)]
impl Outbox {
    /// Write a word where no correct peer would, and announce it.
    pub fn scribble(&self, word_at: usize, value: u64) {
        assert!(word_at < BOUNCE / 8);
        // SAFETY: within the reserved part of the map, aligned to 8; the other side reads it as hostile.
        unsafe { AtomicU64::from_ptr(self.map.as_mut_ptr().cast::<u64>().add(word_at)) }.store(value, Release);
        self.bell.announcements().fetch_add(1, Release);
    }
}

/// The ring's words. Whoever keeps them keeps the map as well.
fn words(map: &MmapRaw) -> Mapped {
    assert!(map.len() >= INBOX, "an inbox is mapped whole");
    let start = NonNull::new(map.as_mut_ptr()).expect("a mapping has an address").cast();
    // SAFETY: the first bytes of an inbox, aligned to a page; its lane keeps the map, and nobody refers into it.
    unsafe { Mapped::new(start, record::words(RECORDS)) }
}

fn piece_at(piece: u64) -> usize {
    BOUNCE + (piece % PIECES) as usize * PIECE
}

#[inline]
fn word(map: &MmapRaw, at: usize) -> &AtomicU64 {
    // SAFETY: `at` is CREDITS, TAKEN or FENCES: aligned to 8 and within the map; all access to these words is atomic.
    unsafe { AtomicU64::from_ptr(map.as_mut_ptr().add(at).cast()) }
}
