//! Storage of protocols and rings: 64-bit words, mapped or owned.

use core::ptr::NonNull;
use core::sync::atomic::{AtomicU64, Ordering};

/// A run of 64-bit words that two threads or processes share.
///
/// A word is used in one of two ways throughout: as a *counter or flag* by [`Words::load`] and [`Words::store`], or as
/// *data* by the copies, which need that a flag or counter elsewhere keeps writer and reader apart.
pub trait Words {
    /// How many words there are.
    fn len(&self) -> usize;

    /// Whether there is no word at all.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Load a word whole.
    ///
    /// # Panics
    /// If there is no such word.
    fn load(&self, index: usize, ordering: Ordering) -> u64;

    /// Store a word whole.
    ///
    /// # Panics
    /// If there is no such word.
    fn store(&self, index: usize, value: u64, ordering: Ordering);

    /// Store data words from `index` on, in any order: a flag or counter elsewhere says when they are complete.
    ///
    /// Nobody that obeys the protocol accesses those words now, which the model checks. A peer that disobeys makes the values
    /// undefined, and nothing else. Words stored this way are loaded by [`Words::load_all`], and not copied.
    ///
    /// # Panics
    /// If there are not so many words.
    #[inline(always)]
    fn store_all(&self, index: usize, words: &[u64]) {
        for (word, value) in words.iter().enumerate() {
            // Relaxed: see above.
            self.store(index + word, *value, Ordering::Relaxed);
        }
    }

    /// Load data words from `index` on, as [`Words::store_all`] stores them.
    ///
    /// # Panics
    /// If there are not so many words.
    #[inline(always)]
    fn load_all(&self, index: usize, words: &mut [u64]) {
        for (word, place) in words.iter_mut().enumerate() {
            // Relaxed: see above.
            *place = self.load(index + word, Ordering::Relaxed);
        }
    }

    /// Copy bytes into data words from `index` on. The rest of the last word is undefined afterwards.
    ///
    /// # Safety
    /// - `source` is valid for reads of `bytes` bytes and does not overlap the words.
    /// - `index + bytes.div_ceil(8) <= len()`.
    /// - Nobody that obeys the protocol accesses those words now.
    unsafe fn copy_in(&self, index: usize, source: *const u8, bytes: usize);

    /// Copy bytes out of data words from `index` on.
    ///
    /// # Safety
    /// - `destination` is valid for writes of `bytes` bytes and does not overlap the words.
    /// - `index + bytes.div_ceil(8) <= len()`.
    /// - Nobody that obeys the protocol writes those words now. (What a peer that disobeys can reach are the copied values.)
    unsafe fn copy_out(&self, index: usize, destination: *mut u8, bytes: usize);
}

/// Words that several writers count up together.
///
/// No two kinds of device do that on one word: processors keep to their own claims, and so does an accelerator.
pub trait AtomicWords: Words {
    /// Add to a word, wrapping, and return what it was.
    ///
    /// # Panics
    /// If there is no such word.
    fn fetch_add(&self, index: usize, value: u64, ordering: Ordering) -> u64;

    /// Replace a word that is `current`; otherwise the error says what it is. Failure orders nothing.
    ///
    /// # Errors
    /// The word is another.
    ///
    /// # Panics
    /// If there is no such word.
    fn compare_exchange(&self, index: usize, current: u64, new: u64, ordering: Ordering) -> Result<u64, u64>;
}

/// Words on memory that somebody else owns, such as a shared mapping. A plain value: copies name the same memory.
#[derive(Clone, Copy, Debug)]
pub struct Mapped {
    start: NonNull<u64>,
    words: usize,
}

// SAFETY: every access goes through atomics, or through copies whose caller vouches for exclusion (`Words`).
unsafe impl Send for Mapped {}
// SAFETY: as above.
unsafe impl Sync for Mapped {}

impl Mapped {
    /// Words from `start` on.
    ///
    /// # Safety
    /// - `start` is 8-aligned, and `words` words from there stay valid for reads and writes as long as any copy of this is used.
    /// - Nobody holds a reference into them; other threads and processes access them as [`Words`] says.
    ///
    /// # Panics
    /// If `start` is not 8-aligned.
    #[inline]
    pub unsafe fn new(start: NonNull<u64>, words: usize) -> Self {
        assert!(start.addr().get().is_multiple_of(8), "words in shared memory are 8-aligned");
        Self { start, words }
    }

    /// `words` of these words, from the `first` on; `None` if there are not so many.
    #[inline]
    pub fn part(&self, first: usize, words: usize) -> Option<Self> {
        if first > self.words || words > self.words - first {
            return None;
        }
        // SAFETY: `first` <= self.words, so the pointer stays within the memory or one past its end.
        let start = unsafe { self.start.add(first) };
        Some(Self { start, words })
    }

    /// Where the first word lies.
    #[inline(always)]
    pub fn start(&self) -> NonNull<u64> {
        self.start
    }

    #[inline(always)]
    fn word(&self, index: usize) -> &AtomicU64 {
        assert!(index < self.words, "word {index} of {}", self.words);
        // SAFETY: `index` < self.words; aligned and valid while `self` is used, by the contract of `new`.
        unsafe { AtomicU64::from_ptr(self.start.add(index).as_ptr()) }
    }

    #[inline(always)]
    fn words(&self) -> usize {
        self.words
    }

    #[inline(always)]
    fn bytes_from(&self, index: usize) -> *mut u8 {
        self.start.as_ptr().wrapping_add(index).cast()
    }
}

/// [`Words`] and [`AtomicWords`] of a type that has `words()`, their number; `word(index)`, an atomic; and `bytes_from(index)`, a pointer
/// to the data from a word on.
macro_rules! words_in_place {
    ($type:ty $(, const $parameter:ident: usize)?) => {
        impl$(<const $parameter: usize>)? Words for $type {
            #[inline(always)]
            fn len(&self) -> usize {
                self.words()
            }

            #[inline(always)]
            fn load(&self, index: usize, ordering: Ordering) -> u64 {
                self.word(index).load(ordering)
            }

            #[inline(always)]
            fn store(&self, index: usize, value: u64, ordering: Ordering) {
                self.word(index).store(value, ordering);
            }

            #[inline(always)]
            unsafe fn copy_in(&self, index: usize, source: *const u8, bytes: usize) {
                debug_assert!(index + bytes.div_ceil(8) <= self.words());
                // SAFETY: the caller vouches for `source`, for the bounds and for exclusion.
                unsafe { self.bytes_from(index).copy_from_nonoverlapping(source, bytes) }
            }

            #[inline(always)]
            unsafe fn copy_out(&self, index: usize, destination: *mut u8, bytes: usize) {
                debug_assert!(index + bytes.div_ceil(8) <= self.words());
                // SAFETY: the caller vouches for `destination`, for the bounds and for exclusion.
                unsafe { self.bytes_from(index).copy_to_nonoverlapping(destination, bytes) }
            }
        }

        impl$(<const $parameter: usize>)? AtomicWords for $type {
            #[inline(always)]
            fn fetch_add(&self, index: usize, value: u64, ordering: Ordering) -> u64 {
                self.word(index).fetch_add(value, ordering)
            }

            #[inline(always)]
            fn compare_exchange(&self, index: usize, current: u64, new: u64, ordering: Ordering) -> Result<u64, u64> {
                self.word(index).compare_exchange(current, new, ordering, Ordering::Relaxed)
            }
        }
    };
}

words_in_place!(Mapped);

#[cfg(not(vervain_loom))]
pub(super) use words_in_place;

impl<W: AtomicWords + ?Sized> AtomicWords for &W {
    #[inline(always)]
    fn fetch_add(&self, index: usize, value: u64, ordering: Ordering) -> u64 {
        (**self).fetch_add(index, value, ordering)
    }

    #[inline(always)]
    fn compare_exchange(&self, index: usize, current: u64, new: u64, ordering: Ordering) -> Result<u64, u64> {
        (**self).compare_exchange(index, current, new, ordering)
    }
}

impl<W: Words + ?Sized> Words for &W {
    #[inline(always)]
    fn len(&self) -> usize {
        (**self).len()
    }

    #[inline(always)]
    fn load(&self, index: usize, ordering: Ordering) -> u64 {
        (**self).load(index, ordering)
    }

    #[inline(always)]
    fn store(&self, index: usize, value: u64, ordering: Ordering) {
        (**self).store(index, value, ordering);
    }

    #[inline(always)]
    fn store_all(&self, index: usize, words: &[u64]) {
        (**self).store_all(index, words);
    }

    #[inline(always)]
    fn load_all(&self, index: usize, words: &mut [u64]) {
        (**self).load_all(index, words);
    }

    #[inline(always)]
    unsafe fn copy_in(&self, index: usize, source: *const u8, bytes: usize) {
        // SAFETY: the same contract.
        unsafe { (**self).copy_in(index, source, bytes) }
    }

    #[inline(always)]
    unsafe fn copy_out(&self, index: usize, destination: *mut u8, bytes: usize) {
        // SAFETY: the same contract.
        unsafe { (**self).copy_out(index, destination, bytes) }
    }
}

#[cfg(feature = "alloc")]
pub use owned::Owned;

#[cfg(feature = "alloc")]
mod owned {
    use alloc::{sync::Arc, vec::Vec};
    use core::sync::atomic::Ordering;

    use super::{AtomicWords, Words};
    use crate::sync::{AtomicU64, UnsafeCell, note_read, note_write};

    /// Words of our own, zero at first. Clones share them.
    #[derive(Clone, Debug)]
    pub struct Owned(Arc<[Word]>);

    /// Counter and data are kept apart, so that loom sees an unsynchronised copy as the data race that it is in mapped memory.
    #[derive(Debug)]
    struct Word {
        counter: AtomicU64,
        data: UnsafeCell<u64>,
    }

    // SAFETY: counters are atomic; copies of data are kept apart by their callers (`Words::copy_in`, `Words::copy_out`).
    unsafe impl Sync for Word {}

    impl Owned {
        /// `words` zeroed words.
        pub fn new(words: usize) -> Self {
            Self(
                (0..words)
                    .map(|_| Word { counter: AtomicU64::new(0), data: UnsafeCell::new(0) })
                    .collect::<Vec<_>>()
                    .into(),
            )
        }
    }

    impl AtomicWords for Owned {
        fn fetch_add(&self, index: usize, value: u64, ordering: Ordering) -> u64 {
            self.0[index].counter.fetch_add(value, ordering)
        }

        fn compare_exchange(&self, index: usize, current: u64, new: u64, ordering: Ordering) -> Result<u64, u64> {
            self.0[index].counter.compare_exchange(current, new, ordering, Ordering::Relaxed)
        }
    }

    impl Words for Owned {
        fn len(&self) -> usize {
            self.0.len()
        }

        fn load(&self, index: usize, ordering: Ordering) -> u64 {
            self.0[index].counter.load(ordering)
        }

        fn store(&self, index: usize, value: u64, ordering: Ordering) {
            self.0[index].counter.store(value, ordering);
        }

        fn store_all(&self, index: usize, words: &[u64]) {
            for (word, value) in self.0[index..][..words.len()].iter().zip(words) {
                note_write(&word.data);
                // Relaxed: a flag or counter elsewhere says when they are complete.
                word.counter.store(*value, Ordering::Relaxed);
            }
        }

        fn load_all(&self, index: usize, words: &mut [u64]) {
            for (word, place) in self.0[index..][..words.len()].iter().zip(words) {
                note_read(&word.data);
                // Relaxed: as above.
                *place = word.counter.load(Ordering::Relaxed);
            }
        }

        unsafe fn copy_in(&self, index: usize, source: *const u8, bytes: usize) {
            for (word, at) in self.0[index..].iter().zip((0..bytes).step_by(8)) {
                // SAFETY: `at` < bytes, so source + at .. + min(8, rest) is readable; the caller vouches for exclusion.
                word.data.with_mut(|data| unsafe {
                    data.cast::<u8>().copy_from_nonoverlapping(source.add(at), 8.min(bytes - at));
                });
            }
        }

        unsafe fn copy_out(&self, index: usize, destination: *mut u8, bytes: usize) {
            for (word, at) in self.0[index..].iter().zip((0..bytes).step_by(8)) {
                // SAFETY: `at` < bytes, so destination + at .. + min(8, rest) is writable; the caller vouches for exclusion.
                word.data.with(|data| unsafe {
                    destination.add(at).copy_from_nonoverlapping(data.cast::<u8>(), 8.min(bytes - at));
                });
            }
        }
    }
}
