//! One source, as it is, to every destination.

use core::ptr;

use super::{Job, Run};
use crate::reduce::Write;

/// Bytes that are read once and then written to one destination after the other: half of a usual first-level cache.
const BLOCK: usize = 16 << 10;

/// Copies the only source; `stream` is the function that does it around the cache.
///
/// # Safety
/// The contract of [`crate::reduce::Kernel::run`], and a machine with the instruction set of `stream`.
#[inline]
pub(super) unsafe fn copy(job: &Job<'_>, stream: Run) {
    // SAFETY: the same contract.
    unsafe {
        match (job.write, job.destinations) {
            (Write::Streaming, _) => stream(job),
            (Write::Cached, &[to]) => block(job.sources[0].start, to, job.bytes),
            (Write::Cached, _) => blocks(job),
        }
    }
}

/// Block by block, so that the source comes from memory once.
///
/// # Safety
/// The contract of [`crate::reduce::Kernel::run`].
unsafe fn blocks(job: &Job<'_>) {
    for at in (0..job.bytes).step_by(BLOCK) {
        let bytes = BLOCK.min(job.bytes - at);
        for to in job.destinations {
            // SAFETY: bytes at .. at + bytes lie within the job.
            unsafe { block(job.sources[0].start.add(at), to.add(at), bytes) }
        }
    }
}

/// # Safety
/// `from` and `to` are valid for `bytes` bytes, and equal or disjoint.
#[inline(always)]
unsafe fn block(from: *const u8, to: *mut u8, bytes: usize) {
    if !ptr::eq(from, to) {
        // SAFETY: valid by the caller's promise, and disjoint because they are not equal.
        unsafe { ptr::copy_nonoverlapping(from, to, bytes) }
    }
}
