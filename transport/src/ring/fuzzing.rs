//! Bodies of the rings' property tests and fuzz targets: any sequence of operations against the simplest queue there is.

use core::ptr::NonNull;
use std::{boxed::Box, collections::VecDeque, vec, vec::Vec};

use super::{
    Full, completion, counter,
    fifo::{self, Accepted, Claim, Consumer, Position, Producer, Progress, Refusal, Trigger},
    mpsc, record, spsc,
};
use crate::{
    Kind,
    sync::{Inline, Mapped, Ordering::Relaxed, Words},
};

/// What is done next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// Push this value, by one of two senders where there are two.
    Push(u8),
    /// Take the oldest value.
    Pop,
}

impl From<u8> for Operation {
    fn from(byte: u8) -> Self {
        if byte.is_multiple_of(2) { Self::Push(byte) } else { Self::Pop }
    }
}

const CAPACITY: usize = 4;

/// A queue of at most [`CAPACITY`] values, and what it must answer.
#[derive(Default)]
struct Model(VecDeque<u8>);

impl Model {
    fn push(&mut self, value: u8) -> Result<(), u8> {
        if self.0.len() == CAPACITY {
            return Err(value);
        }
        self.0.push_back(value);
        Ok(())
    }
}

/// SP-1, SP-3, SP-4. Boxes, so that a value lost or dropped twice is noticed by the allocator.
pub fn spsc_operations(input: &[u8]) {
    let (mut model, (mut sender, mut receiver)) = (Model::default(), spsc::channel::<Box<u8>, CAPACITY>());
    for operation in input.iter().copied().map(Operation::from) {
        match operation {
            Operation::Push(value) => {
                assert_eq!(sender.push(Box::new(value)).map_err(|Full(value)| *value), model.push(value));
            }
            Operation::Pop => assert_eq!(receiver.pop().map(|value| *value), model.0.pop_front()),
        }
    }
}

/// MP-1, MP-3, MP-5, with two senders that take turns.
pub fn mpsc_operations(input: &[u8]) {
    let (mut model, (sender, mut receiver)) = (Model::default(), mpsc::channel::<Box<u8>, CAPACITY>());
    let senders = [sender.clone(), sender];
    for operation in input.iter().copied().map(Operation::from) {
        match operation {
            Operation::Push(value) => {
                let sender = &senders[(value / 2 % 2) as usize];
                assert_eq!(sender.push(Box::new(value)).map_err(|Full(value)| *value), model.push(value));
            }
            Operation::Pop => assert_eq!(receiver.pop().map(|value| *value), model.0.pop_front()),
        }
    }
}

/// SP-5, SP-6: pushes and pops between stores of any value into any word, as a hostile peer makes them.
///
/// As long as nothing was forged the ring is a queue; afterwards every answer is allowed but a panic or an access outside.
pub fn record_ring(input: &[u8]) {
    let mut memory = vec![0_u64; record::words(CAPACITY)];
    // SAFETY: the vector outlives the words, and is not touched otherwise.
    let words = unsafe { Mapped::new(NonNull::from(&mut memory[..]).cast(), memory.len()) };
    let mut ends = (attach(words, record::Producer::attach), attach(words, record::Consumer::attach));
    let (mut model, mut is_forged, mut input) = (Model::default(), false, input);
    while let [operation, rest @ ..] = input {
        input = rest;
        match operation % 8 {
            0..3 => {
                let pushed = ends.0.push(&[*operation as u64; 8]);
                let expected = model.push(*operation);
                assert!(is_forged || pushed.is_ok() == expected.is_ok(), "SP-1");
            }
            3..6 => {
                let popped = ends.1.pop().map(|record| record.map(|record| record[7] as u8));
                let expected = model.0.pop_front();
                assert!(is_forged || popped == Ok(expected), "SP-3");
            }
            6 => {
                let Some((value, rest)) = input.split_first_chunk() else { return };
                is_forged = true;
                words.store(*operation as usize / 8 * 16 % words.len(), u64::from_le_bytes(*value), Relaxed);
                input = rest;
            }
            _ => reattach(words, &mut ends),
        }
    }
}

fn attach<E>(words: Mapped, end: fn(Mapped, usize) -> Result<E, Kind>) -> E {
    end(words, CAPACITY).expect("fresh memory is a valid ring")
}

/// Both sides start again from what the memory says; one that says nonsense is refused.
fn reattach(words: Mapped, ends: &mut (record::Producer<Mapped>, record::Consumer<Mapped>)) {
    match (record::Producer::attach(words, CAPACITY), record::Consumer::attach(words, CAPACITY)) {
        (Ok(producer), Ok(consumer)) => *ends = (producer, consumer),
        (producer, consumer) => assert!(producer.is_err() && consumer.is_err(), "SP-5"),
    }
}

/// CQ-1, CQ-2, CQ-3, with two reservers that take turns; the first byte says where the counters begin. Boxes, as above.
pub fn completion_operations(input: &[u8]) {
    let Some((start, input)) = input.split_first() else { return };
    let mut queue = completion::Queue::<Box<u8>, CAPACITY>::starting_at(0_usize.wrapping_sub(*start as usize));
    let (reserver, mut poller) = queue.split();
    let mut reservers = [reserver.clone(), reserver];
    let (mut tickets, mut model) = (VecDeque::new(), Model::default());
    for byte in input {
        let value = byte / 8;
        match byte % 8 {
            0..3 => {
                let ticket = reservers[value as usize % 2].reserve();
                assert_eq!(ticket.is_some(), tickets.len() + model.0.len() < CAPACITY, "CQ-1");
                tickets.extend(ticket);
            }
            3..5 => {
                if let Some(ticket) = tickets.swap_remove_back(value as usize % CAPACITY) {
                    ticket.complete(Box::new(value));
                    assert_eq!(model.push(value), Ok(()), "CQ-2");
                }
            }
            5 => drop(tickets.pop_front()),
            6 => assert_eq!(poller.pop().map(|value| *value), model.0.pop_front(), "CQ-5"),
            _ => {
                let most = value as usize % (CAPACITY + 1);
                let polled: Vec<u8> = poller.poll(most).map(|value| *value).collect();
                let expected: Vec<u8> = model.0.drain(..most.min(model.0.len())).collect();
                assert_eq!(polled, expected, "CQ-5");
            }
        }
        assert_eq!(poller.is_ready(), !model.0.is_empty());
    }
}

/// CN-2, CN-4: whatever the line says next, a reader takes it for progress of less than 2^63 or for corrupt.
pub fn counter_values(input: &[u8]) {
    let line = Inline::<{ counter::WORDS }>::new();
    let mut reader = counter::Reader::attach(&line).expect("there is a line");
    for value in input.as_chunks().0.iter().copied().map(u64::from_le_bytes) {
        let seen = reader.seen();
        line.store(0, value, Relaxed);
        let expected = if (value.wrapping_sub(seen) as i64) < 0 { Err(Kind::Corrupt) } else { Ok(value) };
        assert_eq!(reader.observe(), expected, "CN-4");
        assert_eq!(reader.seen(), expected.unwrap_or(seen));
        assert_eq!(reader.has_reached(seen), Ok(true), "CN-2");
    }
}

/// FF-1 to FF-8, FF-10: pushes, claims and pops between stores of any value into any word, as a hostile peer makes them.
///
/// The first byte says where positions begin. As long as nothing was forged the FIFO is a queue; afterwards every answer is
/// allowed but a panic or an access outside.
pub fn fifo_operations(input: &[u8]) {
    let Some((start, mut input)) = input.split_first() else { return };
    let triggers: Vec<Trigger> = (0..=u8::MAX).map(trigger).collect();
    let (words, claims) = (Triggers::new(), Claims::new());
    let start = Position(0_u64.wrapping_sub(*start as u64));
    fifo::reset(&words, &claims, CAPACITY, start).expect("the memory fits");
    let producer = Producer::attach(&words, &claims, CAPACITY).expect("the memory fits");
    let consumer = Consumer::attach(&words, CAPACITY).expect("the memory fits");
    let mut fifo = Fifo {
        producer: &producer,
        consumer,
        triggers: &triggers,
        claims: VecDeque::new(),
        model: FifoModel::new(start),
    };
    while let [operation, rest @ ..] = input {
        input = rest;
        if *operation >= FORGE {
            let Some((value, rest)) = input.split_first_chunk() else { return };
            let (value, at) = (u64::from_le_bytes(*value), (operation - FORGE) as usize);
            if at < words.len() {
                words.store(at, value, Relaxed)
            } else {
                claims.store(at % 2, value, Relaxed)
            }
            fifo.model.is_forged = true;
            input = rest;
        } else {
            fifo.step(*operation);
        }
    }
}

/// Operations from here on forge a word.
const FORGE: u8 = 220;

type Triggers = Inline<{ fifo::words(CAPACITY) }>;
type Claims = Inline<{ fifo::PRODUCER_WORDS }>;

struct Fifo<'a> {
    producer: &'a Producer<&'a Triggers, &'a Claims>,
    consumer: Consumer<&'a Triggers>,
    triggers: &'a [Trigger],
    claims: VecDeque<Claim<'a, &'a Triggers, &'a Claims>>,
    model: FifoModel,
}

/// Positions claimed from `next` on, and what was written there.
struct FifoModel {
    next: Position,
    published: Position,
    entries: VecDeque<Option<Trigger>>,
    is_forged: bool,
}

impl FifoModel {
    fn new(start: Position) -> Self {
        Self { next: start, published: start, entries: VecDeque::new(), is_forged: false }
    }

    fn head(&self) -> Position {
        self.next.plus(self.entries.len() as u64)
    }

    fn room(&self) -> usize {
        CAPACITY.saturating_sub(self.head().since(self.published) as usize)
    }

    /// Everything taken before is handled; take the front, if it is written. A quarter of the capacity is one.
    fn pop(&mut self, is_first: bool) -> Option<Trigger> {
        if is_first {
            self.published = self.next;
        }
        let trigger = self.entries.front().copied().flatten()?;
        self.entries.pop_front();
        self.next = self.next.plus(1);
        Some(trigger)
    }

    /// Write a trigger at a claimed position, if there is room; positions that are taken meanwhile were written.
    fn fill(&mut self, position: Position, trigger: Trigger) -> bool {
        let has_room = position.since(self.published) < CAPACITY as u64;
        if has_room {
            self.entries[position.since(self.next) as usize] = Some(trigger);
        }
        has_room
    }
}

impl Fifo<'_> {
    fn step(&mut self, operation: u8) {
        let value = operation / 8;
        match operation % 8 {
            0 | 1 => self.push(value),
            2 => self.push_all(value),
            3 => {
                let triggers = &self.triggers[value as usize..][..value as usize % 6];
                let claim = self.producer.claim(triggers);
                self.check(|model| assert_eq!(claim.next(), model.head(), "FF-3"));
                self.model.entries.extend(triggers.iter().map(|_| None));
                self.claims.push_back(claim);
            }
            4 => self.fill(value),
            5 | 6 => {
                let (popped, expected) = (self.consumer.pop(), self.model.pop(true));
                self.check(|_| assert_eq!(popped, expected, "FF-5"));
            }
            _ => self.pop_batch(value),
        }
        let asked = self.model.next.plus(u64::from(value)).plus(u64::MAX - 15);
        let is_handled = self.producer.is_handled(asked);
        self.check(|model| assert_eq!(is_handled, asked.is_covered_by(model.published), "FF-6"));
    }

    fn check(&self, judge: impl FnOnce(&FifoModel)) {
        if !self.model.is_forged {
            judge(&self.model);
        }
    }

    fn push(&mut self, value: u8) {
        let (trigger, head, room) = (trigger(value), self.model.head(), self.model.room());
        let pushed = self.producer.push(trigger);
        let expected = if room == 0 { Err(Refusal::Full(trigger)) } else { Ok(head) };
        self.check(|_| assert_eq!(pushed, expected, "FF-4"));
        self.model.entries.extend(expected.map(|_| Some(trigger)));
    }

    fn push_all(&mut self, value: u8) {
        let triggers = &self.triggers[value as usize..][..value as usize % 7];
        let accepted = self.producer.push_all(triggers);
        let count = self.model.room().min(triggers.len());
        let expected = Accepted { first: self.model.head(), count };
        self.check(|_| assert_eq!(accepted, expected, "FF-4"));
        self.model.entries.extend(triggers[..count].iter().copied().map(Some));
    }

    fn fill(&mut self, value: u8) {
        let which = value as usize % self.claims.len().max(1);
        let Some(mut claim) = self.claims.swap_remove_back(which) else { return };
        let (mut position, rest) = (claim.next(), claim.rest());
        let progress = claim.fill();
        if !self.model.is_forged {
            let written = rest.iter().take_while(|trigger| {
                let is_written = self.model.fill(position, **trigger);
                position = position.plus(u64::from(is_written));
                is_written
            });
            let expected = if written.count() == rest.len() { Progress::Complete } else { Progress::Full };
            assert_eq!((progress, claim.next()), (expected, position), "FF-4, FF-8");
        }
        if progress != Progress::Complete {
            self.claims.push_back(claim);
        }
    }

    fn pop_batch(&mut self, value: u8) {
        let mut triggers = [Trigger::default(); CAPACITY + 1];
        let most = value as usize % triggers.len() + 1;
        let count = self.consumer.pop_batch(&mut triggers[..most]);
        let expected: Vec<Trigger> = (0..most).map_while(|at| self.model.pop(at == 0)).collect();
        self.check(|_| assert_eq!(triggers[..count], expected, "FF-5"));
    }
}

fn trigger(value: u8) -> Trigger {
    Trigger::new(u64::from(value), u64::from(value) << 55).expect("bit 63 is 0")
}
