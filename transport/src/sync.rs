//! The one file that names atomics, cells, fences, spin hints and threads; under `cfg(vervain_loom)` it gives loom's.

#[cfg(not(vervain_loom))]
pub use core::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering, fence};
#[cfg(vervain_loom)]
pub use loom::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering, fence};

/// Tell the processor that this is a spin loop.
#[cfg(not(vervain_loom))]
#[inline(always)]
pub fn spin_loop() {
    core::hint::spin_loop();
}

/// Tell the scheduler of the model that this is a spin loop.
#[cfg(vervain_loom)]
pub fn spin_loop() {
    loom::thread::yield_now();
}
