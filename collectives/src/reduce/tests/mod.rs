//! Kernels against an independent reference, at every instruction set that this machine has.

mod edges;
mod grid;
mod reference;

use core::iter;

use vervain_transport::testing::random::Random;

use self::reference::Bits;
use super::{Kernel, Level, Source, Write};
use crate::DataType;

/// What lies around a destination and must stay.
const CANARY: u8 = 0xa5;
/// Bytes of it on either side, at least.
const MARGIN: usize = 64;

/// The instruction sets of this machine.
fn levels() -> impl Iterator<Item = Level> {
    Level::ALL.into_iter().filter(|level| level.is_available())
}

/// A sequence of well mixed numbers.
fn random(seed: u64) -> impl FnMut() -> u64 {
    let mut random = Random::new(seed);
    move || random.bits()
}

/// Elements as they lie in memory.
fn to_bytes(datatype: DataType, elements: impl IntoIterator<Item = Bits>) -> Vec<u8> {
    elements.into_iter().flat_map(|bits| bits.to_le_bytes().into_iter().take(datatype.bytes())).collect()
}

/// The other way.
fn to_bits(datatype: DataType, bytes: &[u8]) -> Vec<Bits> {
    let element = |chunk: &[u8]| chunk.iter().rev().fold(0, |bits, byte| bits << 8 | Bits::from(*byte));
    bytes.chunks(datatype.bytes()).map(element).collect()
}

/// Memory for one operand, with room around it.
struct Room {
    memory: Vec<u8>,
    offset: usize,
    bytes: usize,
}

impl Room {
    /// Of at most `capacity` bytes.
    fn new(capacity: usize) -> Room {
        Room { memory: vec![CANARY; capacity + 3 * MARGIN], offset: MARGIN, bytes: 0 }
    }

    /// Makes room for `bytes` bytes that start `misalignment` bytes after a line.
    fn place(&mut self, bytes: usize, misalignment: usize) -> &mut [u8] {
        self.offset = MARGIN + self.memory.as_ptr().align_offset(MARGIN) + misalignment;
        self.bytes = bytes;
        self.memory[self.offset - MARGIN..][..bytes + 2 * MARGIN].fill(CANARY);
        self.contents_mut()
    }

    fn contents(&self) -> &[u8] {
        &self.memory[self.offset..][..self.bytes]
    }

    fn contents_mut(&mut self) -> &mut [u8] {
        &mut self.memory[self.offset..][..self.bytes]
    }

    fn is_intact_around(&self) -> bool {
        let before = &self.memory[self.offset - MARGIN..self.offset];
        let after = &self.memory[self.offset + self.bytes..][..MARGIN];
        before.iter().chain(after).all(|byte| *byte == CANARY)
    }
}

/// One run over plain slices, each with its raw flag.
fn run(kernel: &Kernel, datatype: DataType, inputs: &[(&[u8], bool)], complete: bool) -> Vec<u8> {
    let sources: Vec<Source> = inputs.iter().map(|(bytes, raw)| Source { start: bytes.as_ptr(), raw: *raw }).collect();
    let mut output = vec![0; inputs[0].0.len()];
    let elements = output.len() / datatype.bytes();
    // SAFETY: every source and the output have `elements` elements, and the output is new.
    unsafe { kernel.run(&sources, &[output.as_mut_ptr()], elements, complete, Write::Cached) }
    output
}

/// The same element, as often as it takes to pass through every path.
fn many(datatype: DataType, bits: Bits) -> Vec<u8> {
    to_bytes(datatype, iter::repeat_n(bits, 300))
}
