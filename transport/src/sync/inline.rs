//! Storage that is a value of its own: words for a static, a stack or a struct, where there is no heap.

use core::cell::UnsafeCell;
use core::sync::atomic::{AtomicU64, Ordering};

use super::{AtomicWords, Words, words::words_in_place};
use crate::wire::LINE;

/// `N` words, zero at first, that begin on a [`LINE`] of their own. Share them by reference.
///
/// ```
/// use vervain_transport::sync::{Inline, Ordering::Relaxed, Words};
///
/// static WORDS: Inline<16> = Inline::new();
/// WORDS.store(3, 7, Relaxed);
/// assert_eq!((WORDS.load(3, Relaxed), WORDS.len()), (7, 16));
/// ```
#[repr(C, align(128))]
#[derive(Debug)]
pub struct Inline<const N: usize>([UnsafeCell<u64>; N]);

const _: () = assert!(align_of::<Inline<1>>() == LINE && size_of::<Inline<17>>() == 2 * LINE);

// SAFETY: every access goes through atomics, or through copies whose caller vouches for exclusion (`Words`).
unsafe impl<const N: usize> Sync for Inline<N> {}

impl<const N: usize> Inline<N> {
    /// Zeroed words.
    pub const fn new() -> Self {
        Self([const { UnsafeCell::new(0) }; N])
    }

    #[inline(always)]
    fn word(&self, index: usize) -> &AtomicU64 {
        // SAFETY: the word is aligned and lives as long as `self`; copies keep apart by their callers' word.
        unsafe { AtomicU64::from_ptr(self.0[index].get()) }
    }

    #[inline(always)]
    fn words(&self) -> usize {
        N
    }

    #[inline(always)]
    fn bytes_from(&self, index: usize) -> *mut u8 {
        UnsafeCell::raw_get(self.0.as_ptr().wrapping_add(index)).cast()
    }
}

words_in_place!(Inline<N>, const N: usize);

impl<const N: usize> Default for Inline<N> {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(all(test, feature = "std"))]
mod tests {
    use super::{Ordering::Relaxed, *};

    #[test]
    fn copies_and_counters_name_the_same_words() {
        let words = Inline::<4>::new();
        let (from, mut to) = ([1_u64, 2, 3], [0_u64; 3]);
        // SAFETY: one thread; three words from the first on.
        unsafe { words.copy_in(1, from.as_ptr().cast(), 24) };
        assert_eq!((words.load(0, Relaxed), words.load(3, Relaxed)), (0, 3));
        assert_eq!(words.fetch_add(2, 5, Relaxed), 2);
        assert_eq!(words.compare_exchange(2, 7, 9, Relaxed), Ok(7));
        assert_eq!(words.compare_exchange(2, 7, 9, Relaxed), Err(9));
        // SAFETY: as above.
        unsafe { words.copy_out(1, to.as_mut_ptr().cast(), 24) };
        assert_eq!(to, [1, 9, 3]);
    }

    #[test]
    #[should_panic(expected = "out of bounds")]
    fn a_word_beyond_the_end_is_refused() {
        Inline::<2>::new().load(2, Relaxed);
    }
}
