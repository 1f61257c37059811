//! Lock-free queues: [`spsc`] and [`mpsc`] for values inside one process, [`record`] for records in shared memory.
//!
//! None blocks: a full ring gives the value back, an empty one says so. How to wait is the caller's choice.

pub mod completion;
pub mod counter;
pub mod fifo;
#[cfg(all(any(test, fuzzing), feature = "std", not(vervain_loom)))]
pub(crate) mod fuzzing;
pub mod mpsc;
pub mod record;
pub mod spsc;

use core::fmt;

/// The queue is full; here is the value again.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Full<T>(pub T);

impl<T> fmt::Debug for Full<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Full(..)")
    }
}

impl<T> fmt::Display for Full<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the queue is full; take something out or try again later")
    }
}

impl<T> core::error::Error for Full<T> {}

/// Alone on its two cache lines.
#[repr(align(128))]
struct Padded<T>(T);

const _: () = assert!(align_of::<Padded<u64>>() == crate::wire::LINE && size_of::<Padded<u64>>() == crate::wire::LINE);

/// Waits a little longer after each lost race for a counter, so that the winners' line is left alone.
#[derive(Default)]
struct Backoff {
    lost: u32,
}

impl Backoff {
    #[inline]
    fn spin(&mut self) {
        for _ in 0..1_u32 << self.lost.min(6) {
            crate::sync::spin_loop();
        }
        self.lost += 1;
    }
}
