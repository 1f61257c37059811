//! Bodies of the rings' property tests and fuzz targets: any sequence of operations against the simplest queue there is.

use core::ptr::NonNull;
use std::{boxed::Box, collections::VecDeque, vec};

use super::{Full, mpsc, record, spsc};
use crate::{
    Kind,
    sync::{Mapped, Ordering::Relaxed, Words},
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
