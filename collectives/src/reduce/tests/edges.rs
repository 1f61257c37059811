//! Single rules, and the end of memory.

use super::*;
use crate::ReduceOp;

/// Infinity, the largest number, and the smallest of a float type.
fn limits(datatype: DataType) -> (Bits, Bits, Bits) {
    match datatype {
        DataType::F16 => (0x7c00, 0x7bff, 1),
        DataType::Bf16 => (0x7f80, 0x7f7f, 1),
        DataType::F32 => (0x7f80_0000, 0x7f7f_ffff, 1),
        _ => (0x7ff0 << 48, (0x7ff0 << 48) - 1, 1),
    }
}

/// Half of infinity's lowest bit set: quiet, positive, no payload.
fn quiet(datatype: DataType) -> Bits {
    let (infinity, ..) = limits(datatype);
    infinity | (infinity & infinity.wrapping_neg()) >> 1
}

fn floats() -> impl Iterator<Item = DataType> {
    DataType::ALL.iter().copied().filter(|datatype| datatype.is_float())
}

fn reduced(level: Level, datatype: DataType, op: ReduceOp, ranks: u32, inputs: &[(Bits, bool)]) -> Bits {
    let kernel = Kernel::select_at(level, datatype, Some(op), ranks);
    let bytes: Vec<_> = inputs.iter().map(|(bits, raw)| (many(datatype, *bits), *raw)).collect();
    let slices: Vec<_> = bytes.iter().map(|(bytes, raw)| (bytes.as_slice(), *raw)).collect();
    let results = to_bits(datatype, &run(&kernel, datatype, &slices, true));
    assert!(results.iter().all(|bits| *bits == results[0]), "one result for every path");
    results[0]
}

#[test]
fn average_of_the_largest_number_does_not_overflow() {
    for level in levels() {
        for datatype in floats() {
            let (_, largest, _) = limits(datatype);
            for ranks in [2, 3, 7, 8] {
                let inputs = vec![(largest, true); ranks as usize];
                let average = reduced(level, datatype, ReduceOp::Avg, ranks, &inputs);
                assert!(average <= largest && average >= largest - 2, "{level:?} {datatype} {ranks}: {average:#x}");
            }
        }
    }
}

#[test]
fn average_multiplies_raw_sources_only() {
    for level in levels() {
        let [eight, two] = [8f32, 2f32].map(|value| Bits::from(value.to_bits()));
        let average = |inputs: &[_]| reduced(level, DataType::F32, ReduceOp::Avg, 4, inputs);
        assert_eq!(average(&[(eight, true)]), two);
        assert_eq!(average(&[(eight, false)]), eight);
        assert_eq!(average(&[(eight, true), (two, false)]), Bits::from(4f32.to_bits()));
    }
}

#[test]
fn integer_average_truncates_toward_zero() {
    for level in levels() {
        for (sum, ranks, expected) in
            [(-7, 2, -3), (7, 2, 3), (i64::MIN, 3, i64::MIN / 3), (i64::MAX, 1000, i64::MAX / 1000)]
        {
            assert_eq!(reduced(level, DataType::I64, ReduceOp::Avg, ranks, &[(sum as u64, true)]) as i64, expected);
        }
        for sum in [i32::MIN, i32::MIN + 1, -7, -1, 0, 1, 6, 7, i32::MAX - 1, i32::MAX] {
            for ranks in [1, 2, 3, 7, 255, 256, 1021, u32::MAX] {
                let average = reduced(level, DataType::I32, ReduceOp::Avg, ranks, &[(sum as u32 as u64, true)]);
                assert_eq!(
                    average as u32 as i32 as i64,
                    i64::from(sum) / i64::from(ranks),
                    "{level:?} {sum} / {ranks}"
                );
            }
        }
        for ranks in 1..300 {
            let all: Vec<u8> = (0..=u8::MAX).collect();
            let kernel = Kernel::select_at(level, DataType::U8, Some(ReduceOp::Avg), ranks);
            let averages = run(&kernel, DataType::U8, &[(&all, true)], true);
            assert!(averages.iter().zip(&all).all(|(average, sum)| u32::from(*average) == u32::from(*sum) / ranks));
        }
    }
}

#[test]
fn a_nan_wins_minimum_and_maximum_and_becomes_canonical() {
    for level in levels() {
        for datatype in floats() {
            let (infinity, largest, _) = limits(datatype);
            let sign = 1 << (8 * datatype.bytes() - 1);
            for nan in [infinity + 1, quiet(datatype) + 5, sign | (infinity + 1)] {
                for other in [0, largest, infinity, sign | infinity, nan] {
                    for op in [ReduceOp::Min, ReduceOp::Max] {
                        for pair in [[(nan, true), (other, true)], [(other, true), (nan, true)]] {
                            assert_eq!(
                                reduced(level, datatype, op, 2, &pair),
                                quiet(datatype),
                                "{level:?} {datatype} {op}"
                            );
                        }
                    }
                }
            }
        }
    }
}

#[test]
fn minus_zero_is_below_zero() {
    for level in levels() {
        for datatype in floats() {
            let minus = 1 << (8 * datatype.bytes() - 1);
            for pair in [[(minus, true), (0, true)], [(0, true), (minus, true)]] {
                assert_eq!(reduced(level, datatype, ReduceOp::Min, 2, &pair), minus);
                assert_eq!(reduced(level, datatype, ReduceOp::Max, 2, &pair), 0);
            }
        }
    }
}

#[test]
fn denormals_are_kept() {
    for level in levels() {
        for datatype in floats() {
            let (.., smallest) = limits(datatype);
            let pair = [(smallest, true), (2 * smallest, true)];
            assert_eq!(reduced(level, datatype, ReduceOp::Sum, 2, &pair), 3 * smallest);
            assert_eq!(reduced(level, datatype, ReduceOp::Min, 2, &pair), smallest);
            assert_eq!(reduced(level, datatype, ReduceOp::Max, 2, &pair), 2 * smallest);
            assert_eq!(reduced(level, datatype, ReduceOp::Avg, 2, &[(4 * smallest, true)]), 2 * smallest);
        }
    }
}

#[test]
fn a_single_source_is_copied_with_its_nan_payload() {
    for level in levels() {
        for datatype in floats() {
            let (infinity, ..) = limits(datatype);
            for op in ReduceOp::ALL {
                assert_eq!(reduced(level, datatype, *op, 1, &[(infinity + 1, true)]), infinity + 1);
                assert_eq!(reduced(level, datatype, *op, 3, &[(infinity + 1, false)]), infinity + 1);
            }
        }
    }
}

#[test]
fn a_sum_that_is_not_a_number_stays_none() {
    for level in levels() {
        for datatype in floats() {
            let (infinity, ..) = limits(datatype);
            let all_ones = infinity | ((infinity & infinity.wrapping_neg()) - 1);
            let sum = reduced(level, datatype, ReduceOp::Sum, 2, &[(all_ones, true), (0, true)]);
            assert!(sum & !(1 << (8 * datatype.bytes() - 1)) > infinity, "{level:?} {datatype}: {sum:#x}");
        }
    }
}

#[test]
fn without_an_operation_bytes_are_copied() {
    let mut next = random(3);
    for level in levels() {
        for &datatype in DataType::ALL {
            let kernel = Kernel::select_at(level, datatype, None, 4);
            let bytes = to_bytes(datatype, (0..5000).map(|_| next()));
            assert_eq!(run(&kernel, datatype, &[(&bytes, true)], true), bytes);
        }
    }
}

#[test]
fn several_destinations_get_a_copy_larger_than_a_block() {
    let bytes: Vec<u8> = (0..100_001u32).map(|index| ((index * 7) >> 3) as u8).collect();
    for level in levels() {
        for write in [Write::Cached, Write::Streaming] {
            let mut outputs = [const { Vec::new() }; 3].map(|_: Vec<u8>| vec![0; bytes.len()]);
            let destinations = outputs.each_mut().map(|output| output.as_mut_ptr());
            let kernel = Kernel::select_at(level, DataType::U8, None, 4);
            let source = Source { start: bytes.as_ptr(), raw: true };
            // SAFETY: all have the length of `bytes`.
            unsafe { kernel.run(&[source], &destinations, bytes.len(), true, write) }
            assert!(outputs.iter().all(|output| *output == bytes));
        }
    }
}

/// A mapping of one page before one that cannot be touched.
struct Edge {
    start: *mut u8,
}

const PAGE: usize = 4096;

impl Edge {
    fn new() -> Edge {
        let access = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a new mapping; its second page is ours to protect.
        unsafe {
            let start =
                libc::mmap(core::ptr::null_mut(), 2 * PAGE, access, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, -1, 0);
            assert_ne!(start, libc::MAP_FAILED);
            assert_eq!(libc::mprotect(start.byte_add(PAGE), PAGE, libc::PROT_NONE), 0);
            Edge { start: start.cast() }
        }
    }

    /// The address `bytes` before the page that cannot be touched.
    fn last(&self, bytes: usize) -> *mut u8 {
        // SAFETY: within the mapping.
        unsafe { self.start.add(PAGE - bytes) }
    }
}

impl Drop for Edge {
    fn drop(&mut self) {
        // SAFETY: our mapping, which nobody uses any more.
        unsafe { libc::munmap(self.start.cast(), 2 * PAGE) };
    }
}

/// B10: neither sources nor destinations are touched past their end.
#[test]
fn operands_may_end_at_the_end_of_memory() {
    let edges: Vec<Edge> = (0..5).map(|_| Edge::new()).collect();
    for level in levels() {
        for &datatype in DataType::ALL {
            for op in ReduceOp::ALL.iter().map(|op| Some(*op)).chain([None]) {
                let kernel = Kernel::select_at(level, datatype, op, 3);
                for count in (0..=130).chain([400, 511, 512]) {
                    let operand = |index: usize| edges[index].last(count * datatype.bytes());
                    let sources = [0, 1, 2].map(|index| Source { start: operand(index), raw: true });
                    let sources = if op.is_some() { &sources[..1 + count % 3] } else { &sources[..1] };
                    for write in [Write::Cached, Write::Streaming] {
                        // SAFETY: `count` elements end where each mapping's first page ends.
                        unsafe { kernel.run(sources, &[operand(3), operand(4)], count, true, write) }
                    }
                }
            }
        }
    }
}
