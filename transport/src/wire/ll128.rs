//! LL128: a line of 128 bytes is fifteen data words and a flag word, so that 94 % of the bytes are payload.
//!
//! ```text
//! line 0     { header, data 0..112, flag }      L8-1, L8-4
//! line 1 ..  { data 0..120, flag }
//! ```
//! The flag is stored last and read first (L8-3). On memory that a processor shares this is release and acquire; across a
//! device or a network it needs a backend that delivers lines whole (`Capabilities::whole_lines`).

use super::{LINE, LINE_WORDS};
use crate::sync::{
    Ordering::{Acquire, Release},
    Words, label,
};

/// Payload bytes of every line but the first.
pub const PAYLOAD: usize = 120;
/// Payload bytes of line 0, which also carries the header.
pub const FIRST: usize = 112;

const FLAG: usize = LINE_WORDS - 1;
const _: () = assert!(PAYLOAD + size_of::<u64>() == LINE && FIRST + 2 * size_of::<u64>() == LINE);

/// Lines of a message with this payload.
#[inline(always)]
pub const fn lines(bytes: usize) -> usize {
    1 + bytes.saturating_sub(FIRST).div_ceil(PAYLOAD)
}

/// Bytes of a slot for payloads up to this size, a multiple of [`LINE`]. Saturates.
#[inline(always)]
pub const fn slot_bytes(payload: u64) -> u64 {
    (1 + payload.saturating_sub(FIRST as u64).div_ceil(PAYLOAD as u64)).saturating_mul(LINE as u64)
}

/// The flag of a step: 64 bits that never repeat, so that nothing needs cleaning (L8-2).
#[inline(always)]
pub const fn flag(step: u64) -> u64 {
    step.wrapping_add(1)
}

/// Store a message into a slot.
///
/// # Safety
/// - `source` is valid for reads of `bytes` bytes and does not overlap the slot.
/// - The slot is the sender's by credit (CR-1).
///
/// # Panics
/// If the slot has fewer than [`lines`]`(bytes)` lines.
#[inline]
pub unsafe fn pack(slot: &impl Words, header: u64, source: *const u8, bytes: usize, flag: u64) {
    assert!(slot.len() >= LINE_WORDS * lines(bytes), "an LL128 slot is too small for its message");
    // SAFETY: line 0 exists and is ours; its 14 data words behind the header hold min(bytes, 112) bytes, readable at `source`.
    unsafe {
        slot.copy_in(0, header.to_le_bytes().as_ptr(), 8);
        if bytes >= FIRST { slot.copy_in(1, source, FIRST) } else { slot.copy_in(1, source, bytes) }
    }
    publish(slot, 0, flag);
    let (mut at, mut line) = (FIRST, 1);
    while at + PAYLOAD <= bytes {
        // SAFETY: at + 120 <= bytes, readable at `source`; line < lines(bytes), so the line exists and is ours.
        unsafe { slot.copy_in(line * LINE_WORDS, source.add(at), PAYLOAD) };
        publish(slot, line, flag);
        (at, line) = (at + PAYLOAD, line + 1);
    }
    if at < bytes {
        // SAFETY: the last bytes - at < 120 bytes of `source` (L8-5); this is line lines(bytes) - 1.
        unsafe { slot.copy_in(line * LINE_WORDS, source.add(at), bytes - at) };
        publish(slot, line, flag);
    }
}

/// The header, once its line has arrived.
#[inline]
pub fn header(slot: &impl Words, flag: u64) -> Option<u64> {
    if !is_ready(slot, 0, flag) {
        return None;
    }
    let mut header = [0; 8];
    // SAFETY: `is_ready` found that the slot has a line 0 and that its sender is done with it.
    unsafe { slot.copy_out(0, header.as_mut_ptr(), 8) };
    Some(u64::from_le_bytes(header))
}

/// Copy the lines that have arrived, from line `from` on, and return the next line to wait for: [`lines`]`(bytes)` when
/// the message is complete. Begin with 0. Lines are taken in order.
///
/// # Safety
/// - `destination` is valid for writes of `bytes` bytes, and does not overlap the slot; bytes of missing lines stay untouched.
///
/// # Panics
/// If the slot has fewer than [`lines`]`(bytes)` lines.
#[inline]
pub unsafe fn unpack(slot: &impl Words, destination: *mut u8, bytes: usize, flag: u64, from: usize) -> usize {
    assert!(slot.len() >= LINE_WORDS * lines(bytes), "an LL128 slot is too small for its message");
    let mut line = from;
    if line == 0 {
        if !is_ready(slot, 0, flag) {
            return 0;
        }
        // SAFETY: the line is ready; min(bytes, 112) bytes are in its 14 words behind the header, writable at `destination`.
        unsafe {
            if bytes >= FIRST { slot.copy_out(1, destination, FIRST) } else { slot.copy_out(1, destination, bytes) }
        }
        line = 1;
    }
    let mut at = FIRST + (line - 1) * PAYLOAD;
    while at + PAYLOAD <= bytes {
        if !is_ready(slot, line, flag) {
            return line;
        }
        // SAFETY: the line is ready and exists, as line < lines(bytes); at + 120 <= bytes, writable at `destination`.
        unsafe { slot.copy_out(line * LINE_WORDS, destination.add(at), PAYLOAD) };
        (at, line) = (at + PAYLOAD, line + 1);
    }
    if at < bytes && is_ready(slot, line, flag) {
        // SAFETY: the line is ready and is the last; bytes - at < 120 bytes are writable at `destination` (L8-5).
        unsafe { slot.copy_out(line * LINE_WORDS, destination.add(at), bytes - at) };
        line += 1;
    }
    line
}

#[inline(always)]
fn publish(slot: &impl Words, line: usize, flag: u64) {
    // SYNC ll128.publish -> ll128.observe: the line's data, and what we stored before, are visible before its flag (L8-3).
    slot.store(line * LINE_WORDS + FLAG, flag, label("ll128.publish", Release));
}

#[inline(always)]
fn is_ready(slot: &impl Words, line: usize, flag: u64) -> bool {
    // SYNC ll128.observe <- ll128.publish: the data is read after its flag was seen (L8-3).
    slot.load(line * LINE_WORDS + FLAG, label("ll128.observe", Acquire)) == flag
}
