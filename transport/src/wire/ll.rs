//! LL: every 8-byte word carries four bytes of data and a four-byte flag, so that a word alone says whether it is new.
//!
//! ```text
//! line 0     { header low  | flag << 32 } { header high | flag << 32 }      LL-1, LL-3
//! line 1 ..  { data 0..4   | flag << 32 } { data 4..8   | flag << 32 }
//! ```
//! Costs twice the bytes and saves every fence and every second trip: best for small messages on any memory that
//! stores 8 bytes whole.

use super::LINE;
use crate::sync::{
    Ordering::{Acquire, Relaxed, Release},
    Words, label,
};

/// Bytes of one line in memory.
pub const LL_LINE: usize = 16;
/// Payload bytes of one line.
pub const PAYLOAD: usize = 8;
/// In the last steps of each such period the sender cleans its slots (LL-6). Short enough that every long run does it.
pub const CLEAN_PERIOD: u64 = 1 << 20;
/// Most slots that a connection may have.
pub const SLOTS: u32 = 1 << 16;

const _: () = assert!(LINE.is_multiple_of(LL_LINE) && LL_LINE == 2 * size_of::<u64>() && PAYLOAD * 2 == LL_LINE);
const _: () = assert!(CLEAN_PERIOD.is_power_of_two() && (SLOTS as u64) < CLEAN_PERIOD);
const _: () = assert!(2 * CLEAN_PERIOD < u32::MAX as u64);

/// Lines of a message with this payload, the header's included.
#[inline(always)]
pub const fn lines(bytes: usize) -> usize {
    1 + bytes.div_ceil(PAYLOAD)
}

/// Bytes of a slot for payloads up to this size, a multiple of [`LINE`]. Saturates.
#[inline(always)]
pub const fn slot_bytes(payload: u64) -> u64 {
    (1 + payload.div_ceil(PAYLOAD as u64)).saturating_mul(LL_LINE as u64).saturating_add(LINE as u64 - 1)
        & !(LINE as u64 - 1)
}

/// The flag of a step: never 0, which is what fresh memory holds (LL-2).
#[inline(always)]
pub const fn flag(step: u64) -> u32 {
    (step % u32::MAX as u64) as u32 + 1
}

/// Whether [`clean`] must follow the message of this step (LL-6).
///
/// Flags repeat after 2^32 - 1 steps. A line that short messages left untouched for so long would look new; therefore in
/// the last `slots` steps of every [`CLEAN_PERIOD`], which are all slots once, the rest of the slot gets the present flag.
#[inline(always)]
pub const fn clean_due(step: u64, slots: u32) -> bool {
    step % CLEAN_PERIOD >= CLEAN_PERIOD - slots as u64
}

/// Store a message into a slot.
///
/// # Safety
/// - `source` is valid for reads of `bytes` bytes.
/// - The slot is the sender's by credit (CR-1).
///
/// # Panics
/// If the slot has fewer than [`lines`]`(bytes)` lines.
#[inline]
pub unsafe fn pack(slot: &impl Words, header: u64, source: *const u8, bytes: usize, flag: u32) {
    assert!(slot.len() >= 2 * lines(bytes), "an LL slot is too small for its message");
    // SYNC ll.publish -> ll.observe: what we stored anywhere before this message is visible to who has seen its header (LL-7).
    store_line(slot, 0, header, flag, label("ll.publish", Release));
    let whole = bytes / PAYLOAD;
    for line in 0..whole {
        // SAFETY: line < bytes / 8, so these 8 bytes of `source` are readable by the contract.
        let data = unsafe { source.add(line * PAYLOAD).cast::<u64>().read_unaligned() };
        // Relaxed: data and flag are one word and need no order among words (LL-1).
        store_line(slot, 1 + line, data.to_le(), flag, Relaxed);
    }
    if whole * PAYLOAD < bytes {
        // SAFETY: the last bytes % 8 bytes of `source`, readable by the contract (LL-5).
        let data = unsafe { load_tail(source.add(whole * PAYLOAD), bytes % PAYLOAD) };
        // Relaxed: as above.
        store_line(slot, 1 + whole, data, flag, Relaxed);
    }
}

/// Give all lines of the slot behind a message of `bytes` bytes the present flag (LL-6).
pub fn clean(slot: &impl Words, bytes: usize, flag: u32) {
    for line in lines(bytes)..slot.len() / 2 {
        // Relaxed: the flag alone matters, and only we write it.
        store_line(slot, line, 0, flag, Relaxed);
    }
}

/// The header, once its line has arrived.
#[inline]
pub fn header(slot: &impl Words, flag: u32) -> Option<u64> {
    // SYNC ll.observe <- ll.publish: what the sender stored before the message is visible from here on (LL-7).
    load_line(slot, 0, flag, label("ll.observe", Acquire))
}

/// Copy the lines that have arrived, from line `from` on, and return the next line to wait for: [`lines`]`(bytes)` when
/// the message is complete. Begin with 0. Lines are taken in order (LL-4).
///
/// # Safety
/// - `destination` is valid for writes of `bytes` bytes; those of missing lines stay untouched.
///
/// # Panics
/// If the slot has fewer than [`lines`]`(bytes)` lines.
#[inline]
pub unsafe fn unpack(slot: &impl Words, destination: *mut u8, bytes: usize, flag: u32, from: usize) -> usize {
    assert!(slot.len() >= 2 * lines(bytes), "an LL slot is too small for its message");
    let whole = 1 + bytes / PAYLOAD;
    let mut line = from;
    if line == 0 {
        if header(slot, flag).is_none() {
            return 0;
        }
        line = 1;
    }
    while line < whole {
        // Relaxed: data and flag are one word (LL-1).
        let Some(data) = load_line(slot, line, flag, Relaxed) else {
            return line;
        };
        // SAFETY: 1 <= line < 1 + bytes / 8, so these 8 bytes of `destination` are writable by the contract.
        unsafe { destination.add((line - 1) * PAYLOAD).cast::<u64>().write_unaligned(u64::from_le(data)) };
        line += 1;
    }
    if line < lines(bytes) {
        // Relaxed: as above.
        let Some(data) = load_line(slot, line, flag, Relaxed) else {
            return line;
        };
        // SAFETY: the last bytes % 8 bytes of `destination`, writable by the contract (LL-5).
        unsafe { store_tail(destination.add((line - 1) * PAYLOAD), bytes % PAYLOAD, data) };
        line += 1;
    }
    line
}

#[inline(always)]
fn store_line(slot: &impl Words, line: usize, data: u64, flag: u32, ordering: crate::sync::Ordering) {
    let flag = (flag as u64) << 32;
    slot.store(2 * line, data & 0xffff_ffff | flag, ordering);
    slot.store(2 * line + 1, data >> 32 | flag, ordering);
}

#[inline(always)]
fn load_line(slot: &impl Words, line: usize, flag: u32, ordering: crate::sync::Ordering) -> Option<u64> {
    let (low, high) = (slot.load(2 * line, ordering), slot.load(2 * line + 1, ordering));
    let is_new = (low >> 32) as u32 == flag && (high >> 32) as u32 == flag;
    is_new.then_some(low & 0xffff_ffff | high << 32)
}

/// # Safety
/// `bytes` < 8 bytes from `source` are readable.
#[inline]
unsafe fn load_tail(source: *const u8, bytes: usize) -> u64 {
    let mut data = [0; 8];
    // SAFETY: both are valid for `bytes` < 8 bytes.
    unsafe { data.as_mut_ptr().copy_from_nonoverlapping(source, bytes) };
    u64::from_le_bytes(data)
}

/// # Safety
/// `bytes` < 8 bytes from `destination` are writable.
#[inline]
unsafe fn store_tail(destination: *mut u8, bytes: usize, data: u64) {
    // SAFETY: both are valid for `bytes` < 8 bytes.
    unsafe { destination.copy_from_nonoverlapping(data.to_le_bytes().as_ptr(), bytes) };
}
