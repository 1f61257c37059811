//! The device FIFO: many producers, such as the threads of a device, tell one consumer on the host what to do.
//!
//! ```text
//! push:   p = head, if p - tail < N: CAS(head, p + 1), else refuse      slots[p mod N] = trigger with the parity of p's lap
//! claim:  p = head, head += 1 (one fetch_add)   when p - tail < N:      slots[p mod N] = trigger with the parity of p's lap
//! pop:    both words of slots[h mod N] carry the parity of h's lap:     trigger = slots[h mod N], h += 1
//!         tail = h, once its triggers are handled
//! ```
//! 1. Each word of a trigger says for itself that it is new, so that no store wider than 8 bytes is trusted, and slots are
//!    never cleared: the consumer writes nothing but the tail (FF-1, FF-2).
//! 2. Threads of a device cannot retry cheaply, so they claim by one addition and wait for room with their position in hand
//!    ([`Producer::claim`]). Threads of a host can: [`Producer::push`] claims only what has room, and refuses otherwise. Both
//!    may be used at once (FF-3, FF-4).
//! 3. The tail is far from the producers, so the consumer publishes it seldom, and producers share a copy in their own memory,
//!    on the line that they claim with, and reread the tail only when they find no room (FF-6, FF-8).
//! 4. A claim cannot be taken back. One that is never filled stops the consumer there (FF-5); a consumer that will not go on
//!    says so by closing, so that nobody waits for ever (FF-9). That is the known cost of claiming by addition.
//!
//! ```
//! use vervain_transport::{ring::fifo::{self, Consumer, Producer, Progress, Refusal, Trigger}, sync::Inline};
//!
//! static WORDS: Inline<{ fifo::words(2) }> = Inline::new();
//! static CLAIMS: Inline<{ fifo::PRODUCER_WORDS }> = Inline::new();
//! let (producer, mut consumer) = (Producer::attach(&WORDS, &CLAIMS, 2)?, Consumer::attach(&WORDS, 2)?);
//!
//! let triggers = [1, 2, 3].map(|size| Trigger::new(size, 0).unwrap());
//! let mut claim = producer.claim(&triggers);
//! assert_eq!(claim.fill(), Progress::Full);
//! assert_eq!(consumer.pop(), Some(triggers[0]));
//! consumer.publish();
//! assert_eq!(claim.fill(), Progress::Complete);
//! assert_eq!(producer.push(triggers[0]), Err(Refusal::Full(triggers[0])));
//! # Ok::<(), vervain_transport::Kind>(())
//! ```
//!
//! Layout and parity are in [`crate::wire::fifo`], rules in docs/protocols.md. Nothing here is unsafe: what lies in the
//! memory is compared or handed on, and never becomes an index (FF-10).

use core::fmt;

use super::Backoff;
pub use crate::wire::fifo::{PRODUCER_WORDS, Position, Trigger, words};
use crate::{
    Kind,
    sync::{
        AtomicWords,
        Ordering::{Acquire, Relaxed, Release},
        Words, label,
    },
    wire::fifo::{CLOSED, Capacity, HEAD, SEEN, TAIL},
};

/// The trigger was not accepted, and no position claimed; here it is again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// No room now.
    Full(Trigger),
    /// The consumer has closed the FIFO.
    Closed(Trigger),
}

/// How far a claim is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// All of its triggers are written.
    Complete,
    /// No room for the next one now.
    Full,
    /// The consumer has closed the FIFO: the rest will not be taken.
    Closed,
}

/// What [`Producer::push_all`] took.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Accepted {
    /// Position of the first.
    pub first: Position,
    /// How many, from the front of the batch.
    pub count: usize,
}

/// The pushing side. Clone it, or share it by reference: every thread may push.
///
/// `W` is the consumer's memory, `P` the producers'.
#[derive(Clone, Copy, Debug)]
pub struct Producer<W, P> {
    words: W,
    claims: P,
    capacity: Capacity,
}

/// Positions claimed by addition, and the triggers that go there.
///
/// One that is dropped before [`Claim::fill`] said `Complete` leaves the consumer waiting for ever (FF-5).
#[must_use = "a claim that is not filled stops the consumer"]
#[derive(Debug)]
pub struct Claim<'a, W, P> {
    producer: &'a Producer<W, P>,
    triggers: &'a [Trigger],
    next: Position,
}

/// The popping end; there is one.
#[derive(Debug)]
pub struct Consumer<W> {
    words: W,
    capacity: Capacity,
    /// The position to take next.
    next: Position,
    /// The tail as the producers can see it.
    published: Position,
    /// How far `published` may fall behind.
    batch: u64,
}

/// Make memory that was used before an empty FIFO whose next position is `start`. Zeroed memory already is one, at 0.
///
/// Nobody uses it meanwhile, and ends from before are used no more.
///
/// # Errors
/// `InvalidArgument` if the capacity is no power of two, or one of the memories is too small.
pub fn reset(words: &impl Words, claims: &impl Words, capacity: usize, start: Position) -> Result<(), Kind> {
    let capacity = fitting(words, capacity)?;
    fits_producers(claims)?;
    // Relaxed throughout: nobody else uses the memory, and whoever is told of it is told after this.
    for position in (0..capacity.get()).map(|count| start.plus(count)) {
        let empty = Trigger::default().emit(capacity.parity(position).opposite());
        let at = capacity.word(position);
        words.store(at, empty[0], Relaxed);
        words.store(at + 1, empty[1], Relaxed);
    }
    words.store(TAIL, start.0, Relaxed);
    words.store(CLOSED, 0, Relaxed);
    claims.store(HEAD, start.0, Relaxed);
    claims.store(SEEN, start.0, Relaxed);
    Ok(())
}

impl<W: Words, P: AtomicWords> Producer<W, P> {
    /// A producer on these words, which were zero when the FIFO began, or [`reset`].
    ///
    /// # Errors
    /// `InvalidArgument` if the capacity is no power of two, or one of the memories is too small.
    pub fn attach(words: W, claims: P, capacity: usize) -> Result<Self, Kind> {
        let capacity = fitting(&words, capacity)?;
        fits_producers(&claims)?;
        Ok(Self { words, claims, capacity })
    }

    /// Append a trigger, and say where, for [`Producer::is_handled`]. Waits for nobody.
    ///
    /// # Errors
    /// A full FIFO and a closed one give it back (FF-4). One that was closed may still accept as long as it has room (FF-9).
    #[inline]
    pub fn push(&self, trigger: Trigger) -> Result<Position, Refusal> {
        match self.reserve(1) {
            (_, 0) if self.is_closed() => Err(Refusal::Closed(trigger)),
            (_, 0) => Err(Refusal::Full(trigger)),
            (position, _) => {
                self.write(position, trigger);
                Ok(position)
            }
        }
    }

    /// Append as many as there is room for, from the front, next to each other, with one claim (FF-4).
    #[inline]
    pub fn push_all(&self, triggers: &[Trigger]) -> Accepted {
        let (first, count) = self.reserve(triggers.len() as u64);
        let mut position = first;
        for trigger in &triggers[..count as usize] {
            self.write(position, *trigger);
            position = position.plus(1);
        }
        Accepted { first, count: count as usize }
    }

    /// Claim positions for all of these by one addition, as a device does, whether there is room yet or not (FF-3).
    #[inline]
    pub fn claim<'a>(&'a self, triggers: &'a [Trigger]) -> Claim<'a, W, P> {
        // Relaxed: the claim orders nothing; that a slot is free is learnt from the tail, that it is filled from its words.
        let next = Position(self.claims.fetch_add(HEAD, triggers.len() as u64, Relaxed));
        Claim { producer: self, triggers, next }
    }

    /// Whether the consumer is done with the trigger at this position, and with all before it (FF-6, FF-7).
    #[inline]
    pub fn is_handled(&self, position: Position) -> bool {
        position.is_covered_by(self.seen()) || position.is_covered_by(self.refresh())
    }

    /// Whether the consumer has closed the FIFO (FF-9). It reads nothing that belongs to a trigger afterwards.
    #[inline]
    pub fn is_closed(&self) -> bool {
        // SYNC fifo.closed <- fifo.close: the consumer's last reads are over.
        self.words.load(CLOSED, label("fifo.closed", Acquire)) != 0
    }

    /// Claim up to `most` positions that have room now (FF-4).
    #[inline]
    fn reserve(&self, most: u64) -> (Position, u64) {
        let mut backoff = Backoff::default();
        let mut tail = self.seen();
        let mut head = self.head();
        loop {
            let mut room = self.room(head, tail);
            if room < most {
                tail = self.refresh();
                head = self.head();
                room = self.room(head, tail);
            }
            let count = room.min(most);
            if count == 0 {
                return (head, 0);
            }
            // Relaxed: as in `claim`.
            match self.claims.compare_exchange(HEAD, head.0, head.plus(count).0, Relaxed) {
                Ok(_) => return (head, count),
                Err(current) => head = Position(current),
            }
            backoff.spin();
        }
    }

    /// The head, not behind any tail that we have seen.
    #[inline(always)]
    fn head(&self) -> Position {
        // Relaxed: a claim precedes the tail that covers it, so whoever has seen the tail sees the claim too.
        Position(self.claims.load(HEAD, Relaxed))
    }

    /// How many positions have room from this one on.
    #[inline(always)]
    fn room(&self, position: Position, tail: Position) -> u64 {
        self.capacity.get().saturating_sub(position.since(tail))
    }

    /// A tail that a producer has seen. May be stale, which only makes the FIFO look fuller (FF-8).
    #[inline(always)]
    fn seen(&self) -> Position {
        // SYNC fifo.recall <- fifo.remember: what that producer knew to be free, we know too.
        Position(self.claims.load(SEEN, label("fifo.recall", Acquire)))
    }

    /// The tail itself.
    fn refresh(&self) -> Position {
        // SYNC fifo.reuse <- fifo.free: the consumer is done with the triggers whose slots we overwrite (FF-7).
        let tail = self.words.load(TAIL, label("fifo.reuse", Acquire));
        // SYNC fifo.remember -> fifo.recall: so that others need not read the tail; that they may get it out of turn is FF-8.
        self.claims.store(SEEN, tail, label("fifo.remember", Release));
        Position(tail)
    }

    #[inline(always)]
    fn write(&self, position: Position, trigger: Trigger) {
        let at = self.capacity.word(position);
        let [first, second] = trigger.emit(self.capacity.parity(position));
        // Relaxed: each word says for itself that it is new (FF-1).
        self.words.store(at, first, Relaxed);
        // SYNC fifo.publish -> fifo.observe: what we stored before the trigger is visible to who takes it (FF-7).
        self.words.store(at + 1, second, label("fifo.publish", Release));
    }
}

impl<'a, W: Words, P: AtomicWords> Claim<'a, W, P> {
    /// The position of the next trigger to be written.
    pub fn next(&self) -> Position {
        self.next
    }

    /// The triggers that are not written yet.
    pub fn rest(&self) -> &'a [Trigger] {
        self.triggers
    }

    /// Write those that have room by now (FF-4). How to wait for the others is the caller's choice.
    #[inline]
    pub fn fill(&mut self) -> Progress {
        let mut tail = self.producer.seen();
        while let Some((trigger, rest)) = self.triggers.split_first() {
            if self.producer.room(self.next, tail) == 0 {
                tail = self.producer.refresh();
                if self.producer.room(self.next, tail) == 0 {
                    return if self.producer.is_closed() { Progress::Closed } else { Progress::Full };
                }
            }
            self.producer.write(self.next, *trigger);
            (self.next, self.triggers) = (self.next.plus(1), rest);
        }
        Progress::Complete
    }
}

impl<W: Words> Consumer<W> {
    /// The only consumer on these words, which were zero when the FIFO began, or [`reset`]. It goes on where the tail stands.
    ///
    /// # Errors
    /// `InvalidArgument` if the capacity is no power of two or needs more words than there are; `InvalidUsage` if the FIFO
    /// is closed.
    pub fn attach(words: W, capacity: usize) -> Result<Self, Kind> {
        let capacity = fitting(&words, capacity)?;
        // Relaxed: only consumers write these, and whoever replaces one was told by it.
        let (tail, closed) = (Position(words.load(TAIL, Relaxed)), words.load(CLOSED, Relaxed));
        if closed != 0 {
            return Err(Kind::InvalidUsage);
        }
        Ok(Self { words, capacity, next: tail, published: tail, batch: (capacity.get() / 4).max(1) })
    }

    /// Take the oldest trigger, once both of its words are there (FF-5).
    ///
    /// Asking says that the triggers taken before are handled; producers learn that after a quarter of the capacity, or as soon
    /// as nothing is found (FF-6).
    #[inline]
    pub fn pop(&mut self) -> Option<Trigger> {
        self.publish_if_due();
        let Some(trigger) = self.peek() else {
            self.publish();
            return None;
        };
        self.next = self.next.plus(1);
        Some(trigger)
    }

    /// Take as many as are there, at most what fits, and return how many. As [`Consumer::pop`] otherwise: the next call says
    /// that they are handled.
    #[inline]
    pub fn pop_batch(&mut self, triggers: &mut [Trigger]) -> usize {
        self.publish_if_due();
        let mut count = 0;
        for place in triggers {
            let Some(trigger) = self.peek() else { break };
            *place = trigger;
            self.next = self.next.plus(1);
            count += 1;
        }
        if count == 0 {
            self.publish();
        }
        count
    }

    /// Say that all triggers taken so far are handled, without taking another (FF-6).
    #[inline]
    pub fn publish(&mut self) {
        if self.published != self.next {
            // SYNC fifo.free -> fifo.reuse: what we read because of these triggers is read (FF-7).
            self.words.store(TAIL, self.next.0, label("fifo.free", Release));
            self.published = self.next;
        }
    }

    /// Whether a trigger may be waiting.
    #[inline]
    pub fn is_ready(&self) -> bool {
        // Relaxed: a hint; `pop` loads again with acquire.
        let second = self.words.load(self.capacity.word(self.next) + 1, Relaxed);
        self.capacity.parity(self.next).is_of(second)
    }

    /// The position to be taken next.
    pub fn position(&self) -> Position {
        self.next
    }

    /// Take nothing any more, and say so: who waits for room need not wait for ever (FF-9).
    ///
    /// Triggers taken before count as handled. Those still in the FIFO are lost; [`reset`] makes it usable again.
    pub fn close(mut self) {
        self.publish();
        // SYNC fifo.close -> fifo.closed: our last reads are over.
        self.words.store(CLOSED, 1, label("fifo.close", Release));
    }

    #[inline(always)]
    fn peek(&self) -> Option<Trigger> {
        let (at, parity) = (self.capacity.word(self.next), self.capacity.parity(self.next));
        // SYNC fifo.observe <- fifo.publish: what the producer stored before the trigger is visible from here on (FF-7).
        let second = self.words.load(at + 1, label("fifo.observe", Acquire));
        if !parity.is_of(second) {
            return None;
        }
        // Relaxed: it says for itself that it is new, whichever of the two arrived first (FF-1).
        Trigger::parse([self.words.load(at, Relaxed), second], parity)
    }

    #[inline(always)]
    fn publish_if_due(&mut self) {
        if self.next.since(self.published) >= self.batch {
            self.publish();
        }
    }
}

fn fitting(words: &impl Words, capacity: usize) -> Result<Capacity, Kind> {
    let valid = Capacity::new(capacity)?;
    if words.len() < self::words(capacity) { Err(Kind::InvalidArgument) } else { Ok(valid) }
}

fn fits_producers(claims: &impl Words) -> Result<(), Kind> {
    if claims.len() < PRODUCER_WORDS { Err(Kind::InvalidArgument) } else { Ok(()) }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Full(_) => "the FIFO is full; try again when the consumer has taken something",
            Self::Closed(_) => "the consumer has closed the FIFO; stop, or reset it and attach again",
        })
    }
}

impl core::error::Error for Refusal {}
