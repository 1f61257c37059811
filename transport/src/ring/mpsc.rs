//! A bounded queue from many threads to one.
//!
//! ```text
//! lap(i) = i - i mod N
//! push: loop { slot = slots[tail mod N]
//!              slot.turn == lap(tail):  if CAS(tail, tail + 1): slot.value = value, slot.turn = lap(tail) + 1
//!              slot.turn is behind:     refuse }
//! pop:  slot = slots[head mod N]; slot.turn == lap(head) + 1:  take, slot.turn = lap(head) + N, head += 1
//! ```
//! 1. A slot says whose turn it is: the producer's of this lap, the consumer's, or the next lap's (MP-1). Turns count from the
//!    lap's begin, not from the slot's position as in Vyukov's bounded queue, so that zeroed slots are free and fit a static.
//! 2. The one consumer needs no compare-and-swap and writes no shared index: producers learn of free slots from turns (MP-3).
//! 3. A producer that stops between its claim and its publication holds back later values (MP-4); it stops nobody from
//!    pushing until the ring is full. That is the known cost of this design.

use core::{fmt, marker::PhantomData, mem::MaybeUninit, ops::Deref};

use super::{Backoff, Full, Padded};
#[cfg(feature = "alloc")]
use crate::sync::Arc;
use crate::sync::{
    AtomicBool, AtomicUsize,
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
    /// Whether [`Ring::take_ends`] gave out the ends.
    is_taken: AtomicBool,
}

struct Slot<T> {
    turn: AtomicUsize,
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

/// Both ends of a ring that lives elsewhere.
pub type Ends<'a, T, const N: usize> = (Sender<T, N, &'a Ring<T, N>>, Receiver<T, N, &'a Ring<T, N>>);
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

impl<T> Slot<T> {
    /// Free, in lap 0.
    #[cfg(not(vervain_loom))]
    const fn new() -> Self {
        Self { turn: AtomicUsize::new(0), value: UnsafeCell::new(MaybeUninit::uninit()) }
    }

    /// As above.
    #[cfg(vervain_loom)]
    fn new() -> Self {
        Self { turn: AtomicUsize::new(0), value: UnsafeCell::new(MaybeUninit::uninit()) }
    }
}

impl<T, const N: usize> Ring<T, N> {
    const MASK: usize = {
        assert!(N.is_power_of_two() && N >= 2, "a ring's capacity is a power of two, at least 2");
        N - 1
    };

    /// An empty queue.
    #[cfg(not(vervain_loom))]
    pub const fn new() -> Self {
        Self {
            tail: Padded(AtomicUsize::new(0)),
            head: Padded(AtomicUsize::new(0)),
            slots: Padded([const { Slot::new() }; N]),
            is_taken: AtomicBool::new(false),
        }
    }

    /// An empty queue. Loom's atomics cannot be made at compile time.
    #[cfg(vervain_loom)]
    pub fn new() -> Self {
        Self {
            tail: Padded(AtomicUsize::new(0)),
            head: Padded(AtomicUsize::new(0)),
            slots: Padded(core::array::from_fn(|_| Slot::new())),
            is_taken: AtomicBool::new(false),
        }
    }

    /// Both ends of a queue that lives elsewhere, such as on the stack. Values left from an earlier split are kept.
    pub fn split(&mut self) -> Ends<'_, T, N> {
        (Sender { ring: self, values: PhantomData }, Receiver::new(self))
    }

    /// Both ends of a queue that is shared already, such as a static: once, and nothing ever after (MP-6). Clone the sender.
    ///
    /// ```
    /// use vervain_transport::ring::mpsc;
    ///
    /// static EVENTS: mpsc::Ring<u16, 8> = mpsc::Ring::new();
    /// let (sender, mut receiver) = EVENTS.take_ends().expect("nobody was here before");
    /// let other = sender.clone();
    /// std::thread::spawn(move || other.push(7)).join().unwrap().unwrap();
    /// assert_eq!(receiver.pop(), Some(7));
    /// assert!(EVENTS.take_ends().is_none());
    /// ```
    pub fn take_ends(&self) -> Option<Ends<'_, T, N>> {
        // Relaxed: who takes them makes both ends, and whoever gets one of them from there gets it in order.
        let is_ours = !self.is_taken.swap(true, Relaxed);
        is_ours.then(|| (Sender { ring: self, values: PhantomData }, Receiver::new(self)))
    }

    /// Begin of the lap that an index belongs to.
    #[inline(always)]
    fn lap(index: usize) -> usize {
        index & !Self::MASK
    }

    #[inline(always)]
    fn slot(&self, index: usize) -> &Slot<T> {
        &self.slots.0[index & Self::MASK]
    }

    /// Take the value at `head`, if it is published.
    #[inline(always)]
    fn take(&self, head: usize) -> Option<T> {
        let slot = self.slot(head);
        // SYNC mpsc.observe <- mpsc.publish: the value is read after its turn was seen (MP-1).
        if slot.turn.load(label("mpsc.observe", Acquire)) != Self::lap(head).wrapping_add(1) {
            return None;
        }
        // SAFETY: the turn says that the slot holds a value and is the consumer's, who is alone (MP-3).
        let value = slot.value.with(|value| unsafe { value.read().assume_init() });
        // SYNC mpsc.free -> mpsc.claim: the value is moved out before a producer of the next lap may overwrite it (MP-1).
        slot.turn.store(Self::lap(head).wrapping_add(N), label("mpsc.free", Release));
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
        // Relaxed: where to look first; the slot's turn decides.
        let mut tail = self.ring.tail.0.load(Relaxed);
        let mut backoff = Backoff::default();
        loop {
            let (slot, lap) = (self.ring.slot(tail), Ring::<T, N>::lap(tail));
            // SYNC mpsc.claim <- mpsc.free: the value of the last lap is moved out before we overwrite it (MP-1).
            let turn = slot.turn.load(label("mpsc.claim", Acquire));
            if turn == lap {
                // Relaxed: the claim orders nothing; the value is published by the slot's turn (MP-2).
                match self.ring.tail.0.compare_exchange_weak(tail, tail.wrapping_add(1), Relaxed, Relaxed) {
                    Ok(_) => {
                        // SAFETY: the slot is free and the claim makes it ours until its turn is stored.
                        slot.value.with_mut(|slot| unsafe { slot.write(MaybeUninit::new(value)) });
                        // SYNC mpsc.publish -> mpsc.observe: the value is visible before its turn (MP-1).
                        slot.turn.store(lap.wrapping_add(1), label("mpsc.publish", Release));
                        return Ok(());
                    }
                    Err(current) => tail = current,
                }
                backoff.spin();
                continue;
            }
            // Relaxed: as above.
            let current = self.ring.tail.0.load(Relaxed);
            if current == tail && turn.wrapping_sub(lap) as isize <= 0 {
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
