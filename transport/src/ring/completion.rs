//! A completion queue: operations end anywhere, and one side polls how they ended.
//!
//! ```text
//! reserve:   r = reserved, if r - returned == N: refuse      CAS(reserved, r + 1)                                      -> ticket
//! complete:  p = claimed, claimed += 1 (one fetch_add)       slots[p mod N].value = value, slots[p mod N].turn = p is there
//! poll:      slots[h mod N].turn: h is there                 value = slots[h mod N].value, h += 1       returned = h, once a batch
//! ```
//! 1. Room is taken before an operation begins, as a [`Ticket`], and not when it ends: by then nobody could refuse. So at most N
//!    operations are outstanding or not yet polled, and the queue cannot overflow (CQ-1).
//! 2. Therefore completing neither fails, nor waits, nor repeats: one addition and two stores, wait-free (CQ-2).
//! 3. A ticket ends exactly once: completed, or dropped before its operation began, which gives its place back (CQ-3).
//! 4. Slots have no word that says "free": the count of returned places says it for all. Who claims a slot may hold a ticket that is
//!    older than the return of that slot; then somebody who claimed before it holds a newer one, and the additions of all claims
//!    are ordered among each other (CQ-4).
//! 5. A thread that stops between its claim and its publication holds back what was completed later (CQ-5), as in [`super::mpsc`].

use core::{fmt, marker::PhantomData, mem::MaybeUninit, ops::Deref};

use super::{Backoff, Padded};
#[cfg(feature = "alloc")]
use crate::sync::Arc;
use crate::sync::{
    AtomicBool, AtomicUsize,
    Ordering::{AcqRel, Acquire, Relaxed, Release},
    UnsafeCell, label,
};

/// The memory of a queue for at most `N` operations at a time; `N` is a power of two.
pub struct Queue<T, const N: usize> {
    /// Tickets given out, less those dropped unused. Written by all reservers.
    reserved: Padded<AtomicUsize>,
    /// Positions claimed by operations that end. Written by all tickets.
    claimed: Padded<AtomicUsize>,
    /// Places that may be reserved again: values polled, published once a batch. Written by the poller.
    returned: Padded<AtomicUsize>,
    /// Values polled. The poller's own, kept here for the next poller and for drop.
    polled: Padded<AtomicUsize>,
    slots: Padded<[Slot<T>; N]>,
    /// Whether [`Queue::take_ends`] gave out the ends.
    is_taken: AtomicBool,
}

struct Slot<T> {
    /// Begin of the lap whose value lies or lay here, plus one; 0 before the first.
    turn: AtomicUsize,
    value: UnsafeCell<MaybeUninit<T>>,
}

// SAFETY: values move from a ticket's thread to the poller's, and each slot belongs to one of them at a time (CQ-4).
unsafe impl<T: Send, const N: usize> Sync for Queue<T, N> {}

/// Gives out tickets; clone it for every thread that begins operations. `H` is how it holds the queue: a borrow or an [`Arc`].
pub struct Reserver<T, const N: usize, H: Deref<Target = Queue<T, N>>> {
    queue: H,
    /// The poller's count as we last saw it. May be stale, which only makes the queue look fuller.
    returned: usize,
    values: PhantomData<fn(T)>,
}

/// The right to complete one operation, from any thread. Dropped unused it gives its place back (CQ-3).
#[must_use = "a ticket that is dropped completes nothing"]
pub struct Ticket<T, const N: usize, H: Deref<Target = Queue<T, N>>> {
    /// Nothing once it is completed.
    queue: Option<H>,
    values: PhantomData<fn(T)>,
}

/// The polling end; there is one. `H` is how it holds the queue: a borrow or an [`Arc`].
pub struct Poller<T, const N: usize, H: Deref<Target = Queue<T, N>>> {
    queue: H,
    head: usize,
    values: PhantomData<fn(T)>,
}

/// Completions of one poll. When it is dropped the places of those that were taken may be reserved again.
#[must_use = "completions are taken by iterating"]
pub struct Batch<'a, T, const N: usize, H: Deref<Target = Queue<T, N>>> {
    poller: &'a mut Poller<T, N, H>,
    left: usize,
}

/// Both ends of a queue that lives elsewhere.
pub type Ends<'a, T, const N: usize> = (Reserver<T, N, &'a Queue<T, N>>, Poller<T, N, &'a Queue<T, N>>);
/// The reserving end of [`channel`].
#[cfg(feature = "alloc")]
pub type SharedReserver<T, const N: usize> = Reserver<T, N, Arc<Queue<T, N>>>;
/// A ticket of [`channel`].
#[cfg(feature = "alloc")]
pub type SharedTicket<T, const N: usize> = Ticket<T, N, Arc<Queue<T, N>>>;
/// The polling end of [`channel`].
#[cfg(feature = "alloc")]
pub type SharedPoller<T, const N: usize> = Poller<T, N, Arc<Queue<T, N>>>;

/// A queue on the heap, freed when both ends and all tickets are gone.
///
/// Every ticket counts its [`Arc`] up and down; where that matters, hold a [`Queue`] by reference and [`Queue::split`] it.
///
/// ```
/// use vervain_transport::ring::completion;
///
/// let (mut reserver, mut poller) = completion::channel::<&str, 2>();
/// let (write, read) = (reserver.reserve().unwrap(), reserver.reserve().unwrap());
/// assert!(reserver.reserve().is_none(), "two operations are outstanding");
/// read.complete("read done");
/// write.complete("write failed");
/// assert_eq!(poller.poll(16).collect::<Vec<_>>(), ["read done", "write failed"]);
/// assert!(reserver.reserve().is_some());
/// ```
#[cfg(feature = "alloc")]
pub fn channel<T, const N: usize>() -> (SharedReserver<T, N>, SharedPoller<T, N>) {
    let queue = Arc::new(Queue::new());
    (Reserver::new(queue.clone()), Poller::new(queue))
}

impl<T> Slot<T> {
    #[cfg(not(vervain_loom))]
    const fn new(turn: usize) -> Self {
        Self { turn: AtomicUsize::new(turn), value: UnsafeCell::new(MaybeUninit::uninit()) }
    }

    #[cfg(vervain_loom)]
    fn new(turn: usize) -> Self {
        Self { turn: AtomicUsize::new(turn), value: UnsafeCell::new(MaybeUninit::uninit()) }
    }
}

impl<T, const N: usize> Queue<T, N> {
    const MASK: usize = {
        assert!(N.is_power_of_two(), "a queue's capacity is a power of two");
        N - 1
    };

    /// An empty queue.
    #[cfg(not(vervain_loom))]
    pub const fn new() -> Self {
        Self {
            reserved: Padded(AtomicUsize::new(0)),
            claimed: Padded(AtomicUsize::new(0)),
            returned: Padded(AtomicUsize::new(0)),
            polled: Padded(AtomicUsize::new(0)),
            slots: Padded([const { Slot::new(0) }; N]),
            is_taken: AtomicBool::new(false),
        }
    }

    /// An empty queue. Loom's atomics cannot be made at compile time.
    #[cfg(vervain_loom)]
    pub fn new() -> Self {
        Self::starting_at(0)
    }

    /// An empty queue whose counters begin here, for tests of what happens when they wrap.
    pub fn starting_at(start: usize) -> Self {
        let slot = |index: usize| {
            let position = start.wrapping_add(index.wrapping_sub(start) & Self::MASK);
            Slot::new(Self::turn(position.wrapping_sub(N)))
        };
        let counter = || Padded(AtomicUsize::new(start));
        Self {
            reserved: counter(),
            claimed: counter(),
            returned: counter(),
            polled: counter(),
            slots: Padded(core::array::from_fn(slot)),
            is_taken: AtomicBool::new(false),
        }
    }

    /// Both ends of a queue that lives elsewhere, such as on the stack. Values left from an earlier split are kept.
    pub fn split(&mut self) -> Ends<'_, T, N> {
        let poller = Poller::new(&*self);
        poller.give_back();
        (Reserver::new(self), poller)
    }

    /// Both ends of a queue that is shared already, such as a static: once, and nothing ever after (CQ-7). Clone the reserver.
    ///
    /// ```
    /// use vervain_transport::ring::completion;
    ///
    /// static ENDED: completion::Queue<u32, 8> = completion::Queue::new();
    /// let (mut reserver, mut poller) = ENDED.take_ends().expect("nobody was here before");
    /// let ticket = reserver.reserve().unwrap();
    /// std::thread::spawn(move || ticket.complete(7)).join().unwrap();
    /// assert_eq!(poller.pop(), Some(7));
    /// assert!(ENDED.take_ends().is_none());
    /// ```
    pub fn take_ends(&self) -> Option<Ends<'_, T, N>> {
        // Relaxed: who takes them makes both ends, and whoever gets one of them from there gets it in order.
        let is_ours = !self.is_taken.swap(true, Relaxed);
        is_ours.then(|| (Reserver::new(self), Poller::new(self)))
    }

    /// What a slot says while it holds the value of this position.
    #[inline(always)]
    fn turn(position: usize) -> usize {
        (position & !Self::MASK).wrapping_add(1)
    }

    #[inline(always)]
    fn slot(&self, position: usize) -> &Slot<T> {
        &self.slots.0[position & Self::MASK]
    }

    /// Append the value of a ticket (CQ-2).
    #[inline]
    fn append(&self, value: T) {
        // SYNC completion.claim <-> completion.claim: what the claims before us knew to be returned is free for us too (CQ-4).
        let position = self.claimed.0.fetch_add(1, label("completion.claim", AcqRel));
        let slot = self.slot(position);
        // SAFETY: N tickets at most are out or not polled, so the value of the last lap is moved out, as some claim up to ours
        // knows (CQ-4); and the position is ours alone.
        slot.value.with_mut(|slot| unsafe { slot.write(MaybeUninit::new(value)) });
        // SYNC completion.publish -> completion.observe: the value is visible before its turn.
        slot.turn.store(Self::turn(position), label("completion.publish", Release));
    }

    /// Take the value at `head`, if it is there.
    #[inline(always)]
    fn take(&self, head: usize) -> Option<T> {
        let slot = self.slot(head);
        // SYNC completion.observe <- completion.publish: the value is read after its turn was seen.
        if slot.turn.load(label("completion.observe", Acquire)) != Self::turn(head) {
            return None;
        }
        // SAFETY: the turn says that the slot holds the value of this position; the poller is alone, and has not taken it yet.
        let value = slot.value.with(|value| unsafe { value.read().assume_init() });
        // Relaxed: for whoever comes after the poller, and is told so.
        self.polled.0.store(head.wrapping_add(1), Relaxed);
        Some(value)
    }
}

impl<T, const N: usize, H: Deref<Target = Queue<T, N>>> Reserver<T, N, H> {
    fn new(queue: H) -> Self {
        // SYNC completion.reserve <- completion.return: as in `refresh`.
        let returned = queue.returned.0.load(label("completion.reserve", Acquire));
        Self { queue, returned, values: PhantomData }
    }

    /// A place for one more operation, or nothing if `N` are outstanding or not yet polled (CQ-1).
    #[inline]
    pub fn reserve(&mut self) -> Option<Ticket<T, N, H>>
    where
        H: Clone,
    {
        let mut backoff = Backoff::default();
        let mut reserved = self.reserved();
        while !self.is_full(reserved) || self.refresh(&mut reserved) {
            // Relaxed: the place is known to be free by the count of returned ones; who owns which is decided by claims.
            match self.queue.reserved.0.compare_exchange_weak(reserved, reserved.wrapping_add(1), Relaxed, Relaxed) {
                Ok(_) => return Some(Ticket { queue: Some(self.queue.clone()), values: PhantomData }),
                Err(current) => reserved = current,
            }
            backoff.spin();
        }
        None
    }

    /// Look again; whether there is room.
    fn refresh(&mut self, reserved: &mut usize) -> bool {
        // SYNC completion.reserve <- completion.return: the values are moved out whose slots our tickets may overwrite (CQ-4).
        self.returned = self.queue.returned.0.load(label("completion.reserve", Acquire));
        *reserved = self.reserved();
        !self.is_full(*reserved)
    }

    fn reserved(&self) -> usize {
        // Relaxed: a reservation precedes its return, so this is never behind what we have seen returned.
        self.queue.reserved.0.load(Relaxed)
    }

    #[inline(always)]
    fn is_full(&self, reserved: usize) -> bool {
        reserved.wrapping_sub(self.returned) >= N
    }
}

impl<T, const N: usize, H: Deref<Target = Queue<T, N>>> Ticket<T, N, H> {
    /// End the operation with this value. Neither fails nor waits (CQ-2).
    #[inline]
    pub fn complete(mut self, value: T) {
        if let Some(queue) = self.queue.take() {
            queue.append(value);
        }
    }
}

impl<T, const N: usize, H: Deref<Target = Queue<T, N>>> Drop for Ticket<T, N, H> {
    fn drop(&mut self) {
        if let Some(queue) = &self.queue {
            // Relaxed: no slot was touched.
            queue.reserved.0.fetch_sub(1, Relaxed);
        }
    }
}

impl<T, const N: usize, H: Deref<Target = Queue<T, N>>> Poller<T, N, H> {
    fn new(queue: H) -> Self {
        // Relaxed: only a poller writes it, and the last one is gone.
        let head = queue.polled.0.load(Relaxed);
        Self { queue, head, values: PhantomData }
    }

    /// Up to `most` completions, in the order of their claims (CQ-5). Their places come back when the batch is dropped.
    #[inline]
    pub fn poll(&mut self, most: usize) -> Batch<'_, T, N, H> {
        Batch { poller: self, left: most }
    }

    /// The oldest completion.
    #[inline]
    pub fn pop(&mut self) -> Option<T> {
        self.poll(1).next()
    }

    /// Whether a completion is waiting.
    #[inline]
    pub fn is_ready(&self) -> bool {
        // Relaxed: a hint; `poll` loads again with acquire.
        self.queue.slot(self.head).turn.load(Relaxed) == Queue::<T, N>::turn(self.head)
    }

    #[inline(always)]
    fn give_back(&self) {
        // Relaxed: only we write it.
        if self.queue.returned.0.load(Relaxed) != self.head {
            // SYNC completion.return -> completion.reserve: the values are moved out before their slots are written again (CQ-4).
            self.queue.returned.0.store(self.head, label("completion.return", Release));
        }
    }
}

impl<T, const N: usize, H: Deref<Target = Queue<T, N>>> Iterator for Batch<'_, T, N, H> {
    type Item = T;

    #[inline]
    fn next(&mut self) -> Option<T> {
        self.left = self.left.checked_sub(1)?;
        let value = self.poller.queue.take(self.poller.head)?;
        self.poller.head = self.poller.head.wrapping_add(1);
        Some(value)
    }
}

impl<T, const N: usize, H: Deref<Target = Queue<T, N>>> Drop for Batch<'_, T, N, H> {
    #[inline]
    fn drop(&mut self) {
        self.poller.give_back();
    }
}

impl<T, const N: usize> Drop for Queue<T, N> {
    fn drop(&mut self) {
        // Relaxed: nobody else is left, and what nobody polled is dropped here (CQ-6).
        let mut head = self.polled.0.load(Relaxed);
        while let Some(value) = self.take(head) {
            drop(value);
            head = head.wrapping_add(1);
        }
    }
}

impl<T, const N: usize, H: Deref<Target = Queue<T, N>> + Clone> Clone for Reserver<T, N, H> {
    fn clone(&self) -> Self {
        Self { queue: self.queue.clone(), returned: self.returned, values: PhantomData }
    }
}

impl<T, const N: usize> Default for Queue<T, N> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T, const N: usize> fmt::Debug for Queue<T, N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Queue").field("capacity", &N).finish_non_exhaustive()
    }
}

impl<T, const N: usize, H: Deref<Target = Queue<T, N>>> fmt::Debug for Reserver<T, N, H> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reserver").field("queue", &*self.queue).field("returned", &self.returned).finish()
    }
}

impl<T, const N: usize, H: Deref<Target = Queue<T, N>>> fmt::Debug for Ticket<T, N, H> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ticket").finish_non_exhaustive()
    }
}

impl<T, const N: usize, H: Deref<Target = Queue<T, N>>> fmt::Debug for Poller<T, N, H> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Poller").field("queue", &*self.queue).field("head", &self.head).finish()
    }
}

impl<T, const N: usize, H: Deref<Target = Queue<T, N>>> fmt::Debug for Batch<'_, T, N, H> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Batch").field("left", &self.left).finish_non_exhaustive()
    }
}
