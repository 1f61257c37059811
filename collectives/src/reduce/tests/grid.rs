//! Every type, operation, k, m, count, alignment: B07.

use super::reference::{self, Bits};
use super::*;
use crate::ReduceOp;

/// What a run of the grid varies.
struct Case {
    count: usize,
    destinations: usize,
    /// The source that is also the first destination.
    in_place: Option<usize>,
    write: Write,
    complete: bool,
}

/// Sources of one (type, operation, k), with the expected results without and with completion.
struct Data {
    datatype: DataType,
    op: ReduceOp,
    sources: Vec<(Vec<u8>, bool)>,
    expected: [Vec<u8>; 2],
}

const RANKS: u32 = 7;
const SOURCES: [usize; 5] = [1, 2, 3, 5, 8];
const SMALL: usize = 257;

impl Data {
    fn new(datatype: DataType, op: ReduceOp, k: usize, count: usize) -> Data {
        let mut next = random(k as u64);
        let sources: Vec<(Vec<Bits>, bool)> =
            (0..k).map(|index| ((0..count).map(|_| element(datatype, &mut next)).collect(), index % 3 != 1)).collect();
        let expected = [false, true].map(|complete| {
            let reduced = (0..count).map(|index| {
                let inputs: Vec<_> = sources.iter().map(|(bits, raw)| (bits[index], *raw)).collect();
                reference::reduce(datatype, op, RANKS, &inputs, complete)
            });
            to_bytes(datatype, reduced)
        });
        let sources = sources.into_iter().map(|(bits, raw)| (to_bytes(datatype, bits), raw)).collect();
        Data { datatype, op, sources, expected }
    }

    /// Runs one case with misalignments from `next`, and compares.
    fn check(&self, kernel: &Kernel, case: &Case, rooms: &mut [Room], next: &mut impl FnMut() -> u64) {
        let bytes = case.count * self.datatype.bytes();
        let (inputs, outputs) = rooms.split_at_mut(self.sources.len());
        for ((source, _), room) in self.sources.iter().zip(inputs.iter_mut()) {
            room.place(bytes, next() as usize % 16).copy_from_slice(&source[..bytes]);
        }
        let mut written: Vec<&mut Room> = outputs[..case.destinations].iter_mut().collect();
        written.iter_mut().for_each(|room| {
            room.place(bytes, next() as usize % 16);
        });
        let sources: Vec<Source> = inputs
            .iter_mut()
            .zip(&self.sources)
            .map(|(room, (_, raw))| Source { start: room.contents_mut().as_ptr(), raw: *raw })
            .collect();
        let mut destinations: Vec<*mut u8> = written.iter_mut().map(|room| room.contents_mut().as_mut_ptr()).collect();
        if let Some(index) = case.in_place {
            destinations[0] = inputs[index].contents_mut().as_mut_ptr();
            written[0] = &mut inputs[index];
        }
        // SAFETY: every room holds `count` elements; they are distinct except for the one in place.
        unsafe { kernel.run(&sources, &destinations, case.count, case.complete, case.write) }
        for room in written {
            assert!(room.is_intact_around(), "{}", self.describe(kernel, case));
            self.compare(room.contents(), kernel, case);
        }
    }

    fn compare(&self, actual: &[u8], kernel: &Kernel, case: &Case) {
        let expected = &self.expected[usize::from(case.complete)][..actual.len()];
        if actual == expected {
            return;
        }
        let pairs = to_bits(self.datatype, expected).into_iter().zip(to_bits(self.datatype, actual));
        for (index, (expected, actual)) in pairs.enumerate() {
            let agrees = reference::agrees(self.datatype, self.op, expected, actual);
            assert!(agrees, "element {index}: {expected:#x}, got {actual:#x}: {}", self.describe(kernel, case));
        }
    }

    fn describe(&self, kernel: &Kernel, case: &Case) -> String {
        let Case { count, destinations, in_place, write, complete } = case;
        format!(
            "{} {} k={} m={destinations} count={count} in place {in_place:?} {write:?} complete {complete} {kernel:?}",
            self.datatype,
            self.op,
            self.sources.len()
        )
    }
}

/// Any bits, small integers, or values around the special ones.
fn element(datatype: DataType, next: &mut impl FnMut() -> u64) -> Bits {
    let bits = next() >> (64 - 8 * datatype.bytes());
    let sign = 1 << (8 * datatype.bytes() - 1);
    match next() % 4 {
        // Halved exponents, so that products and sums stay finite.
        0 => (bits & !(sign >> 2) & !(sign >> 1)) | ((sign >> 2) - (sign >> 6).max(1)),
        1 => (bits % 8) | (bits & sign),
        _ => bits,
    }
}

fn every_small_case(datatype: DataType) {
    let mut next = random(11);
    let mut rooms: Vec<Room> = (0..8 + 3).map(|_| Room::new(SMALL * datatype.bytes())).collect();
    for &op in ReduceOp::ALL {
        for k in SOURCES {
            let data = Data::new(datatype, op, k, SMALL);
            for kernel in levels().map(|level| Kernel::select_at(level, datatype, Some(op), RANKS)) {
                for count in 0..=SMALL {
                    for destinations in 1..=3 {
                        for in_place in [None, Some(0), Some(k - 1)] {
                            let write = if next().is_multiple_of(2) { Write::Cached } else { Write::Streaming };
                            let case =
                                Case { count, destinations, in_place, write, complete: next().is_multiple_of(2) };
                            data.check(&kernel, &case, &mut rooms, &mut next);
                        }
                    }
                }
            }
        }
    }
}

macro_rules! every_small_case {
    ($($name:ident $datatype:ident)*) => {$(
        #[test]
        fn $name() {
            every_small_case(DataType::$datatype);
        }
    )*};
}
every_small_case! {
    every_small_case_of_u8 U8
    every_small_case_of_i32 I32
    every_small_case_of_i64 I64
    every_small_case_of_f16 F16
    every_small_case_of_bf16 Bf16
    every_small_case_of_f32 F32
    every_small_case_of_f64 F64
}

#[test]
fn large_counts_have_exact_tails() {
    const LARGE: usize = 1 << 20;
    let mut next = random(12);
    for (index, &datatype) in DataType::ALL.iter().enumerate() {
        let op = ReduceOp::ALL[index % ReduceOp::ALL.len()];
        let k = [1, 2, 3][index % 3];
        let data = Data::new(datatype, op, k, LARGE + 9);
        let mut rooms: Vec<Room> = (0..k + 2).map(|_| Room::new((LARGE + 9) * datatype.bytes())).collect();
        for count in LARGE - 1..=LARGE + 9 {
            let kernel = Kernel::select(datatype, Some(op), RANKS);
            let write = if count % 2 == 0 { Write::Cached } else { Write::Streaming };
            let case = Case { count, destinations: 1 + count % 2, in_place: None, write, complete: true };
            data.check(&kernel, &case, &mut rooms, &mut next);
        }
    }
}
