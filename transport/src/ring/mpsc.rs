//! A bounded queue from many threads to one.
//!
//! ```text
//! push: loop { slot = slots[tail mod N]
//!              slot.sequence == tail:    if CAS(tail, tail + 1): slot.value = value, slot.sequence = tail + 1
//!              slot.sequence is behind:  refuse }
//! pop:  slot = slots[head mod N]; slot.sequence == head + 1:  take, slot.sequence = head + N, head += 1
//! ```
//! 1. A slot's sequence says whose turn it is: the producer's of this lap, the consumer's, or the next lap's (MP-1).
//! 2. The one consumer needs no compare-and-swap and writes no shared index: producers learn of free slots from sequences (MP-3).
//! 3. A producer that stops between its claim and its publication holds back later values (MP-4); it stops nobody from
//!    pushing until the ring is full. That is the known cost of this design (Vyukov's bounded queue).

use core::{fmt, marker::PhantomData, mem::MaybeUninit, ops::Deref};

use super::{Backoff, Full, Padded};
#[cfg(feature = "alloc")]
use crate::sync::Arc;
use crate::sync::{
    AtomicUsize,
    Ordering::{Acquire, Relaxed, Release},
    UnsafeCell, label,
};

/// The memory of a queue of at most `N` values; `N` is a power of two, at least 2.
pub struct Ring<T, const N: usize> {
    /// Values claimed. Written by all senders.
    tail: Padded<AtomicUsize>,
    /// Where the receiver stands; its own, kept here for the next receiver and for drop.
    head: Padded<AtomicUsize>,
    slots: Padded<[Slot<T>; N]>,
}

struct Slot<T> {
    sequence: AtomicUsize,
    value: UnsafeCell<MaybeUninit<T>>,
}

// SAFETY: values move from a sender's thread to the receiver's, and each slot belongs to one of them at a time.
unsafe impl<T: Send, const N: usize> Sync for Ring<T, N> {}

/// A pushing end; clone it for every thread. `H` is how it holds the ring: a borrow or an [`Arc`].
pub struct Sender<T, const N: usize, H: Deref<Target = Ring<T, N>>> {
    ring: H,
    values: PhantomData<fn(T)>,
}

/// The popping end. `H` is how it holds the ring: a borrow or an [`Arc`].
pub struct Receiver<T, const N: usize, H: Deref<Target = Ring<T, N>>> {
    ring: H,
    head: usize,
    values: PhantomData<fn(T)>,
}

/// A pushing end of [`channel`].
#[cfg(feature = "alloc")]
pub type SharedSender<T, const N: usize> = Sender<T, N, Arc<Ring<T, N>>>;
/// The popping end of [`channel`].
#[cfg(feature = "alloc")]
pub type SharedReceiver<T, const N: usize> = Receiver<T, N, Arc<Ring<T, N>>>;

/// A queue on the heap, freed when all ends are gone.
///
/// ```
/// use vervain_transport::ring::{Full, mpsc};
///
/// let (sender, mut receiver) = mpsc::channel::<u32, 2>();
/// let other = sender.clone();
/// assert_eq!([sender.push(1), other.push(2), sender.push(3)], [Ok(()), Ok(()), Err(Full(3))]);
/// assert_eq!(receiver.pop(), Some(1));
/// ```
#[cfg(feature = "alloc")]
pub fn channel<T, const N: usize>() -> (SharedSender<T, N>, SharedReceiver<T, N>) {
    let ring = Arc::new(Ring::new());
    (Sender { ring: ring.clone(), values: PhantomData }, Receiver::new(ring))
}

impl<T, const N: usize> Ring<T, N> {
    const MASK: usize = {
        assert!(N.is_power_of_two() && N >= 2, "a ring's capacity is a power of two, at least 2");
        N - 1
    };

    /// An empty queue.
    pub fn new() -> Self {
        let slot = |index| Slot { sequence: AtomicUsize::new(index), value: UnsafeCell::new(MaybeUninit::uninit()) };
        Self {
            tail: Padded(AtomicUsize::new(0)),
            head: Padded(AtomicUsize::new(0)),
            slots: Padded(core::array::from_fn(slot)),
        }
    }

    /// Both ends of a queue that lives elsewhere, such as on the stack. Values left from an earlier split are kept.
    pub fn split(&mut self) -> (Sender<T, N, &Self>, Receiver<T, N, &Self>) {
        (Sender { ring: self, values: PhantomData }, Receiver::new(self))
    }

    #[inline(always)]
    fn slot(&self, index: usize) -> &Slot<T> {
        &self.slots.0[index & Self::MASK]
    }

    /// Take the value at `head`, if it is published.
    #[inline(always)]
    fn take(&self, head: usize) -> Option<T> {
        let slot = self.slot(head);
        // SYNC mpsc.observe <- mpsc.publish: the value is read after its sequence was seen (MP-1).
        if slot.sequence.load(label("mpsc.observe", Acquire)) != head.wrapping_add(1) {
            return None;
        }
        // SAFETY: the sequence says that the slot holds a value and is the consumer's, who is alone (MP-3).
        let value = slot.value.with(|value| unsafe { value.read().assume_init() });
        // SYNC mpsc.free -> mpsc.claim: the value is moved out before a producer of the next lap may overwrite it (MP-1).
        slot.sequence.store(head.wrapping_add(N), label("mpsc.free", Release));
        Some(value)
    }
}

impl<T, const N: usize, H: Deref<Target = Ring<T, N>>> Sender<T, N, H> {
    /// Append a value.
    ///
    /// # Errors
    /// A full queue gives it back (MP-5).
    #[inline]
    pub fn push(&self, value: T) -> Result<(), Full<T>> {
        // Relaxed: where to look first; the slot's sequence decides.
        let mut tail = self.ring.tail.0.load(Relaxed);
        let mut backoff = Backoff::default();
        loop {
            let slot = self.ring.slot(tail);
            // SYNC mpsc.claim <- mpsc.free: the value of the last lap is moved out before we overwrite it (MP-1).
            let sequence = slot.sequence.load(label("mpsc.claim", Acquire));
            if sequence == tail {
                // Relaxed: the claim orders nothing; the value is published by the slot's sequence (MP-2).
                match self.ring.tail.0.compare_exchange_weak(tail, tail.wrapping_add(1), Relaxed, Relaxed) {
                    Ok(_) => {
                        // SAFETY: the slot is free and the claim makes it ours until its sequence is stored.
                        slot.value.with_mut(|slot| unsafe { slot.write(MaybeUninit::new(value)) });
                        // SYNC mpsc.publish -> mpsc.observe: the value is visible before its sequence (MP-1).
                        slot.sequence.store(tail.wrapping_add(1), label("mpsc.publish", Release));
                        return Ok(());
                    }
                    Err(current) => tail = current,
                }
                backoff.spin();
                continue;
            }
            // Relaxed: as above.
            let current = self.ring.tail.0.load(Relaxed);
            if current == tail && sequence.wrapping_sub(tail) as isize <= 0 {
                return Err(Full(value));
            }
            tail = current;
        }
    }
}

impl<T, const N: usize, H: Deref<Target = Ring<T, N>>> Receiver<T, N, H> {
    fn new(ring: H) -> Self {
        // Relaxed: only a receiver writes it, and the last one is gone.
        let head = ring.head.0.load(Relaxed);
        Self { ring, head, values: PhantomData }
    }

    /// Take the oldest value, if its sender has finished.
    #[inline]
    pub fn pop(&mut self) -> Option<T> {
        let value = self.ring.take(self.head)?;
        self.head = self.head.wrapping_add(1);
        Some(value)
    }
}

impl<T, const N: usize, H: Deref<Target = Ring<T, N>>> Drop for Receiver<T, N, H> {
    fn drop(&mut self) {
        // Relaxed: read by the next receiver, or by the ring's drop, which are ordered after us by the ring's owner.
        self.ring.head.0.store(self.head, Relaxed);
    }
}

impl<T, const N: usize> Drop for Ring<T, N> {
    fn drop(&mut self) {
        // Relaxed: nobody else is left.
        let mut head = self.head.0.load(Relaxed);
        while let Some(value) = self.take(head) {
            drop(value);
            head = head.wrapping_add(1);
        }
    }
}

impl<T, const N: usize, H: Deref<Target = Ring<T, N>> + Clone> Clone for Sender<T, N, H> {
    fn clone(&self) -> Self {
        Self { ring: self.ring.clone(), values: PhantomData }
    }
}

impl<T, const N: usize> Default for Ring<T, N> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T, const N: usize> fmt::Debug for Ring<T, N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ring").field("capacity", &N).finish_non_exhaustive()
    }
}

impl<T, const N: usize, H: Deref<Target = Ring<T, N>>> fmt::Debug for Sender<T, N, H> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sender").field("ring", &*self.ring).finish()
    }
}

impl<T, const N: usize, H: Deref<Target = Ring<T, N>>> fmt::Debug for Receiver<T, N, H> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Receiver").field("ring", &*self.ring).field("head", &self.head).finish()
    }
}
