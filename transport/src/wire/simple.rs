//! Simple: a slot of plain bytes, a record that describes it, and a counter of published messages.
//!
//! ```text
//! slot     { data 0..bytes }                    any time before the record        SI-1
//! record   { header, bytes }                    16 bytes for each slot            SI-1, SI-4
//! tail     { messages published so far }        on its own line at the receiver   SI-2
//! ```
//! Moves nothing but payload, in whatever way is fastest, at the price of one more trip: best for large messages.

use super::LINE;
use crate::sync::{
    Ordering::{Acquire, Release},
    Words, label,
};

/// Bytes of one record.
pub const RECORD: usize = 16;
/// Words of one record.
const RECORD_WORDS: usize = RECORD / 8;
const _: () = assert!(LINE.is_multiple_of(RECORD) && size_of::<Record>() == RECORD);

/// What is said about one message.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Record {
    /// The caller's header word.
    pub header: u64,
    /// Payload bytes. The receiver compares it with what it expects and uses its own value (SI-4).
    pub bytes: u64,
}

/// Bytes of a slot for payloads up to this size, a multiple of [`LINE`]. Saturates.
#[inline(always)]
pub const fn slot_bytes(payload: u64) -> u64 {
    payload.saturating_add(LINE as u64 - 1) & !(LINE as u64 - 1)
}

/// Describe the message in slot `index`.
///
/// # Safety
/// - The slot is the sender's by credit (CR-1) and its message is not published yet.
///
/// # Panics
/// If there is no such record.
#[inline]
pub unsafe fn write_record(records: &impl Words, index: u32, record: Record) {
    let at = index as usize * RECORD_WORDS;
    assert!(at + RECORD_WORDS <= records.len(), "there is a record for every slot");
    let bytes = [record.header.to_le(), record.bytes.to_le()];
    // SAFETY: the record exists, and the slot and with it the record is ours.
    unsafe { records.copy_in(at, bytes.as_ptr().cast(), RECORD) };
}

/// The description of the message in slot `index`.
///
/// # Safety
/// - The message was observed as published and its slot is not given back yet.
///
/// # Panics
/// If there is no such record.
#[inline]
pub unsafe fn read_record(records: &impl Words, index: u32) -> Record {
    let at = index as usize * RECORD_WORDS;
    assert!(at + RECORD_WORDS <= records.len(), "there is a record for every slot");
    let mut bytes = [0u64; RECORD_WORDS];
    // SAFETY: the record exists, and the sender is done with it until the slot is given back.
    unsafe { records.copy_out(at, bytes.as_mut_ptr().cast(), RECORD) };
    Record { header: u64::from_le(bytes[0]), bytes: u64::from_le(bytes[1]) }
}

/// Say that all messages before step `tail` are complete (SI-2).
#[inline]
pub fn publish(line: &impl Words, tail: u64) {
    // SYNC simple.publish -> simple.observe: slot and record are visible before the counter.
    line.store(0, tail, label("simple.publish", Release));
}

/// How many messages are complete. Hostile until `proto::simple` has checked it (SI-3).
#[inline]
pub fn observe(line: &impl Words) -> u64 {
    // SYNC simple.observe <- simple.publish: slot and record are read after the counter was seen.
    line.load(0, label("simple.observe", Acquire))
}
