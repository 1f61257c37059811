//! A bounded queue from one thread to one other.
//!
//! ```text
//! push: if tail - head == N: refuse       slots[tail mod N] = value    tail += 1
//! pop:  if head == tail:     nothing      value = slots[head mod N]    head += 1
//! ```
//! 1. Indexes count up for ever and wrap; they are compared by difference, so all N slots are used.
//! 2. Each side keeps its own index in private and a copy of the peer's, reread only when the ring looks full or empty
//!    (SP-2): in a stream, a line changes hands once for many values.
//! 3. What different sides write lies 128 bytes apart.

use core::{fmt, marker::PhantomData, mem::MaybeUninit, ops::Deref};

use super::{Full, Padded};
#[cfg(feature = "alloc")]
use crate::sync::Arc;
use crate::sync::{
    AtomicBool, AtomicUsize,
    Ordering::{Acquire, Relaxed, Release},
    UnsafeCell, label,
};

/// The memory of a queue of at most `N` values; `N` is a power of two.
pub struct Ring<T, const N: usize> {
    /// Values pushed. Written by the sender.
    tail: Padded<AtomicUsize>,
    /// Values popped. Written by the receiver.
    head: Padded<AtomicUsize>,
    slots: Padded<[UnsafeCell<MaybeUninit<T>>; N]>,
    /// Whether [`Ring::take_ends`] gave out the ends.
    is_taken: AtomicBool,
}

// SAFETY: values move from the sender's thread to the receiver's, and each slot belongs to one of them at a time.
unsafe impl<T: Send, const N: usize> Sync for Ring<T, N> {}

/// The pushing end. `H` is how it holds the ring: a borrow or an [`Arc`].
pub struct Sender<T, const N: usize, H: Deref<Target = Ring<T, N>>> {
    ring: H,
    tail: usize,
    /// The receiver's index as we last saw it. May be stale, which only makes the ring look fuller.
    head: usize,
    values: PhantomData<fn(T)>,
}

/// The popping end. `H` is how it holds the ring: a borrow or an [`Arc`].
pub struct Receiver<T, const N: usize, H: Deref<Target = Ring<T, N>>> {
    ring: H,
    head: usize,
    /// The sender's index as we last saw it. May be stale, which only makes the ring look emptier.
    tail: usize,
    values: PhantomData<fn(T)>,
}

/// Both ends of a ring that lives elsewhere.
pub type Ends<'a, T, const N: usize> = (Sender<T, N, &'a Ring<T, N>>, Receiver<T, N, &'a Ring<T, N>>);
/// The pushing end of [`channel`].
#[cfg(feature = "alloc")]
pub type SharedSender<T, const N: usize> = Sender<T, N, Arc<Ring<T, N>>>;
/// The popping end of [`channel`].
#[cfg(feature = "alloc")]
pub type SharedReceiver<T, const N: usize> = Receiver<T, N, Arc<Ring<T, N>>>;

/// A queue on the heap, freed when both ends are gone.
///
/// ```
/// use vervain_transport::ring::{Full, spsc};
///
/// let (mut sender, mut receiver) = spsc::channel::<u32, 2>();
/// assert_eq!([sender.push(1), sender.push(2), sender.push(3)], [Ok(()), Ok(()), Err(Full(3))]);
/// assert_eq!(receiver.pop(), Some(1));
/// ```
#[cfg(feature = "alloc")]
pub fn channel<T, const N: usize>() -> (SharedSender<T, N>, SharedReceiver<T, N>) {
    let ring = Arc::new(Ring::new());
    (Sender::new(ring.clone()), Receiver::new(ring))
}

impl<T, const N: usize> Ring<T, N> {
    const MASK: usize = {
        assert!(N.is_power_of_two(), "a ring's capacity is a power of two");
        N - 1
    };

    /// An empty queue.
    #[cfg(not(vervain_loom))]
    pub const fn new() -> Self {
        Self {
            tail: Padded(AtomicUsize::new(0)),
            head: Padded(AtomicUsize::new(0)),
            slots: Padded([const { UnsafeCell::new(MaybeUninit::uninit()) }; N]),
            is_taken: AtomicBool::new(false),
        }
    }

    /// An empty queue. Loom's atomics cannot be made at compile time.
    #[cfg(vervain_loom)]
    pub fn new() -> Self {
        Self {
            tail: Padded(AtomicUsize::new(0)),
            head: Padded(AtomicUsize::new(0)),
            slots: Padded(core::array::from_fn(|_| UnsafeCell::new(MaybeUninit::uninit()))),
            is_taken: AtomicBool::new(false),
        }
    }

    /// Both ends of a queue that lives elsewhere, such as on the stack. Values left from an earlier split are kept.
    pub fn split(&mut self) -> Ends<'_, T, N> {
        (Sender::new(self), Receiver::new(self))
    }

    /// Both ends of a queue that is shared already, such as a static: once, and nothing ever after (SP-7).
    ///
    /// ```
    /// use vervain_transport::ring::spsc;
    ///
    /// static READINGS: spsc::Ring<u16, 8> = spsc::Ring::new();
    /// let (mut sender, mut receiver) = READINGS.take_ends().expect("nobody was here before");
    /// std::thread::spawn(move || sender.push(7)).join().unwrap().unwrap();
    /// assert_eq!(receiver.pop(), Some(7));
    /// assert!(READINGS.take_ends().is_none());
    /// ```
    pub fn take_ends(&self) -> Option<Ends<'_, T, N>> {
        // Relaxed: who takes them makes both ends, and whoever gets one of them from there gets it in order.
        let is_ours = !self.is_taken.swap(true, Relaxed);
        is_ours.then(|| (Sender::new(self), Receiver::new(self)))
    }

    #[inline(always)]
    fn slot(&self, index: usize) -> &UnsafeCell<MaybeUninit<T>> {
        &self.slots.0[index & Self::MASK]
    }

    /// Where the two indexes stand, when nobody moves them.
    fn indexes(&self) -> (usize, usize) {
        // Relaxed: both ends are being made or are gone; whoever moved the ring here synchronised with them.
        (self.head.0.load(Relaxed), self.tail.0.load(Relaxed))
    }
}

impl<T, const N: usize, H: Deref<Target = Ring<T, N>>> Sender<T, N, H> {
    fn new(ring: H) -> Self {
        let (head, tail) = ring.indexes();
        Self { ring, tail, head, values: PhantomData }
    }

    /// Append a value.
    ///
    /// # Errors
    /// A full queue gives it back (SP-1).
    #[inline]
    pub fn push(&mut self, value: T) -> Result<(), Full<T>> {
        if self.tail.wrapping_sub(self.head) == N && self.is_full() {
            return Err(Full(value));
        }
        // SAFETY: the slot is free, as tail - head < N, and ours until the index is stored.
        self.ring.slot(self.tail).with_mut(|slot| unsafe { slot.write(MaybeUninit::new(value)) });
        self.tail = self.tail.wrapping_add(1);
        // SYNC spsc.publish -> spsc.observe: the value is visible before the index that covers it (SP-3).
        self.ring.tail.0.store(self.tail, label("spsc.publish", Release));
        Ok(())
    }

    fn is_full(&mut self) -> bool {
        // SYNC spsc.reuse <- spsc.free: the receiver has moved out the value whose slot we overwrite (SP-3).
        self.head = self.ring.head.0.load(label("spsc.reuse", Acquire));
        self.tail.wrapping_sub(self.head) == N
    }
}

impl<T, const N: usize, H: Deref<Target = Ring<T, N>>> Receiver<T, N, H> {
    fn new(ring: H) -> Self {
        let (head, tail) = ring.indexes();
        Self { ring, head, tail, values: PhantomData }
    }

    /// Take the oldest value.
    #[inline]
    pub fn pop(&mut self) -> Option<T> {
        if self.head == self.tail && self.is_empty() {
            return None;
        }
        // SAFETY: the slot holds a value, as head != tail, and is ours until the index is stored.
        let value = self.ring.slot(self.head).with(|slot| unsafe { slot.read().assume_init() });
        self.head = self.head.wrapping_add(1);
        // SYNC spsc.free -> spsc.reuse: the value is moved out before its slot may be overwritten (SP-3).
        self.ring.head.0.store(self.head, label("spsc.free", Release));
        Some(value)
    }

    fn is_empty(&mut self) -> bool {
        // SYNC spsc.observe <- spsc.publish: the value is read after the index that covers it (SP-3).
        self.tail = self.ring.tail.0.load(label("spsc.observe", Acquire));
        self.head == self.tail
    }
}

impl<T, const N: usize> Drop for Ring<T, N> {
    fn drop(&mut self) {
        let (mut head, tail) = self.indexes();
        while head != tail {
            // SAFETY: slots from head to tail hold values, and nobody else is left (SP-4).
            self.slot(head).with_mut(|slot| unsafe { (*slot).assume_init_drop() });
            head = head.wrapping_add(1);
        }
    }
}

impl<T, const N: usize> Default for Ring<T, N> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T, const N: usize> fmt::Debug for Ring<T, N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (head, tail) = self.indexes();
        f.debug_struct("Ring").field("capacity", &N).field("head", &head).field("tail", &tail).finish()
    }
}

impl<T, const N: usize, H: Deref<Target = Ring<T, N>>> fmt::Debug for Sender<T, N, H> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sender").field("ring", &*self.ring).finish()
    }
}

impl<T, const N: usize, H: Deref<Target = Ring<T, N>>> fmt::Debug for Receiver<T, N, H> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Receiver").field("ring", &*self.ring).finish()
    }
}
