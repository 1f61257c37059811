//! Copies between memory that other processes see at the same time.
//!
//! A peer may look at memory while it is written. Its protocol tells it when a range is whole: it observes a later word,
//! immediate or message. So a copy is ordered as a whole against what precedes and follows it, and a copy of one aligned
//! word is one store: that word may be what the peer looks at.

use crate::sync::{
    AtomicU32, AtomicU64,
    Ordering::{Acquire, Release},
    fence,
};

/// Copy to memory that a peer observes, after everything stored before.
///
/// # Safety
/// - `from` is valid for reads and `to` for writes of `bytes` bytes, and they do not overlap;
/// - nobody holds a reference to either range.
#[inline]
pub(super) unsafe fn publish(from: *const u8, to: *mut u8, bytes: usize) {
    match bytes {
        // SYNC shm.write -> observer's acquire of this word: all earlier writes of the link are visible.
        // SAFETY: both ranges by the caller; `to` is aligned to 8.
        8 if to.addr().is_multiple_of(8) => unsafe {
            AtomicU64::from_ptr(to.cast()).store(from.cast::<u64>().read_unaligned(), Release);
        },
        // SYNC shm.write -> observer's acquire of this word: all earlier writes of the link are visible.
        // SAFETY: both ranges by the caller; `to` is aligned to 4.
        4 if to.addr().is_multiple_of(4) => unsafe {
            AtomicU32::from_ptr(to.cast()).store(from.cast::<u32>().read_unaligned(), Release);
        },
        _ => {
            // SYNC shm.write -> observer's acquire: the bytes below are stored after all earlier writes of the link.
            fence(Release);
            // SAFETY: by the caller's contract.
            unsafe { core::ptr::copy_nonoverlapping(from, to, bytes) };
        }
    }
}

/// Copy from memory that a peer publishes, before everything read afterwards.
///
/// # Safety
/// As for [`publish`].
#[inline]
pub(super) unsafe fn observe(from: *const u8, to: *mut u8, bytes: usize) {
    match bytes {
        // SYNC shm.read -> writer's release of this word.
        // SAFETY: both ranges by the caller; `from` is aligned to 8.
        8 if from.addr().is_multiple_of(8) => unsafe {
            to.cast::<u64>().write_unaligned(AtomicU64::from_ptr(from.cast_mut().cast()).load(Acquire));
        },
        // SYNC shm.read -> writer's release of this word.
        // SAFETY: both ranges by the caller; `from` is aligned to 4.
        4 if from.addr().is_multiple_of(4) => unsafe {
            to.cast::<u32>().write_unaligned(AtomicU32::from_ptr(from.cast_mut().cast()).load(Acquire));
        },
        _ => {
            // SAFETY: by the caller's contract.
            unsafe { core::ptr::copy_nonoverlapping(from, to, bytes) };
            // SYNC shm.read -> writer's release: the bytes above are read before everything that follows.
            fence(Acquire);
        }
    }
}
