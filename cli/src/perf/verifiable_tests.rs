//! The data is exact in every order, differs by rank and place, and the check finds every flipped bit.

use super::*;

const RANKS: [u32; 8] = [1, 2, 3, 7, 8, 9, 256, 1024];
/// Enough for every class to occur.
const COUNT: usize = 600;

/// One step of a reduction in the element's own type, rounded.
fn combine(datatype: DataType, op: ReduceOp, left: Bits, right: Bits) -> Bits {
    let float = |left: f64, right: f64| match op {
        ReduceOp::Sum | ReduceOp::Avg => left + right,
        ReduceOp::Prod => left * right,
        ReduceOp::Min => left.min(right),
        _ => left.max(right),
    };
    if datatype.is_float() {
        return from_f64(datatype, float(to_f64(datatype, left), to_f64(datatype, right)));
    }
    let data = Data { datatype, ranks: 1 };
    let (left, right) = (data.integer(left), data.integer(right));
    data.cut(match op {
        ReduceOp::Sum | ReduceOp::Avg => left.wrapping_add(right),
        ReduceOp::Prod => left.wrapping_mul(right),
        ReduceOp::Min => left.min(right),
        _ => left.max(right),
    } as Bits)
}

/// What the average does to a rank's input, and to the sum.
fn scaled(datatype: DataType, ranks: u32, bits: Bits) -> Bits {
    match datatype {
        DataType::F64 => (f64::from_bits(bits) * (1.0 / f64::from(ranks))).to_bits(),
        _ => from_f64(datatype, f64::from(to_f64(datatype, bits) as f32 * (1.0 / ranks as f32))),
    }
}

fn input(datatype: DataType, op: Option<ReduceOp>, rank: u32, ranks: u32) -> Vec<Bits> {
    let mut bytes = vec![0; COUNT * datatype.bytes()];
    fill(&mut bytes, datatype, op, rank, ranks, 5);
    to_bits(datatype, &bytes)
}

fn to_bits(datatype: DataType, bytes: &[u8]) -> Vec<Bits> {
    let element = |chunk: &[u8]| chunk.iter().rev().fold(0, |bits, &byte| bits << 8 | Bits::from(byte));
    bytes.chunks(datatype.bytes()).map(element).collect()
}

fn to_bytes(datatype: DataType, elements: &[Bits]) -> Vec<u8> {
    elements.iter().flat_map(|bits| bits.to_le_bytes().into_iter().take(datatype.bytes())).collect()
}

fn should_be(datatype: DataType, op: ReduceOp, ranks: u32) -> Vec<u8> {
    let mut bytes = vec![0; COUNT * datatype.bytes()];
    expected(&mut bytes, datatype, op, ranks, 5);
    bytes
}

/// The reduction of these ranks' inputs, in this order.
fn reduced(datatype: DataType, op: ReduceOp, ranks: u32, order: impl Iterator<Item = u32>) -> Vec<u8> {
    let averages = op == ReduceOp::Avg && datatype.is_float();
    let inputs = order.map(|rank| {
        let input = input(datatype, Some(op), rank, ranks);
        if averages { input.into_iter().map(|bits| scaled(datatype, ranks, bits)).collect() } else { input }
    });
    let both = |left: Vec<Bits>, right: Vec<Bits>| {
        left.into_iter().zip(right).map(|(left, right)| combine(datatype, op, left, right)).collect()
    };
    let mut result = inputs.reduce(both).unwrap();
    if op == ReduceOp::Avg && !averages {
        let data = Data { datatype, ranks };
        result.iter_mut().for_each(|sum| *sum = data.cut((data.integer(*sum) / i64::from(ranks)) as Bits));
    }
    to_bytes(datatype, &result)
}

fn every_case() -> impl Iterator<Item = (DataType, ReduceOp, u32)> {
    DataType::ALL.iter().flat_map(|&datatype| {
        ReduceOp::ALL.iter().flat_map(move |&op| RANKS.into_iter().map(move |ranks| (datatype, op, ranks)))
    })
}

#[test]
fn every_order_gives_what_is_expected() {
    for (datatype, op, ranks) in every_case() {
        let expected = should_be(datatype, op, ranks);
        let turned = (0..ranks).map(|rank| (rank + ranks / 3) % ranks);
        for actual in [
            reduced(datatype, op, ranks, 0..ranks),
            reduced(datatype, op, ranks, (0..ranks).rev()),
            reduced(datatype, op, ranks, turned),
        ] {
            assert_eq!(check(&actual, &expected, datatype, Some(op)), 0, "{datatype} {op} {ranks}");
        }
    }
}

#[test]
fn floats_are_finite_and_not_denormal() {
    for (datatype, op, ranks) in every_case().filter(|(datatype, ..)| datatype.is_float()) {
        let smallest = if datatype == DataType::F16 { 2f64.powi(-14) } else { 2f64.powi(-126) };
        for bits in
            (0..ranks).step_by(ranks.div_ceil(9) as usize).flat_map(|rank| input(datatype, Some(op), rank, ranks))
        {
            let value = to_f64(datatype, bits);
            let fits = value.is_finite() && (value == 0.0 || datatype == DataType::F64 || value.abs() >= smallest);
            assert!(fits, "{datatype} {op} {ranks}: {value}");
        }
    }
}

#[test]
fn a_flipped_bit_anywhere_is_found() {
    for (datatype, op, ranks) in every_case() {
        let expected = should_be(datatype, op, ranks);
        let mut actual = expected.clone();
        // an average may differ by two steps, which are its two lowest bits
        let tolerated = if op == ReduceOp::Avg && datatype.is_float() { 2 } else { 0 };
        for position in 0..expected.len() * 8 {
            if position % (datatype.bytes() * 8) < tolerated {
                continue;
            }
            actual[position / 8] ^= 1 << (position % 8);
            let element = position / 8 / datatype.bytes() * datatype.bytes();
            let around = element.saturating_sub(32)..(element + 32).min(expected.len());
            let wrong = check(&actual[around.clone()], &expected[around], datatype, Some(op));
            assert_eq!(wrong, 1, "{datatype} {op} {ranks}: bit {position}");
            actual[position / 8] = expected[position / 8];
        }
        assert_eq!(check(&actual, &expected, datatype, Some(op)), 0);
    }
}

#[test]
fn an_average_may_differ_by_two_steps_and_no_more() {
    for datatype in [DataType::F16, DataType::Bf16, DataType::F32, DataType::F64] {
        let expected = should_be(datatype, ReduceOp::Avg, 3);
        for (steps, wrong) in [(1, 0), (2, 0), (3, COUNT as u64)] {
            let moved: Vec<Bits> = to_bits(datatype, &expected).iter().map(|bits| bits + steps).collect();
            assert_eq!(check(&to_bytes(datatype, &moved), &expected, datatype, Some(ReduceOp::Avg)), wrong);
            assert_eq!(check(&to_bytes(datatype, &moved), &expected, datatype, Some(ReduceOp::Max)), COUNT as u64);
        }
    }
}

#[test]
fn a_rank_that_is_missing_or_counted_twice_is_found() {
    for (datatype, op, ranks) in every_case().filter(|(.., ranks)| (2..10).contains(ranks)) {
        let expected = should_be(datatype, op, ranks);
        for lost in 0..ranks {
            let missing = reduced(datatype, op, ranks, (0..ranks).filter(|rank| *rank != lost));
            assert_ne!(check(&missing, &expected, datatype, Some(op)), 0, "{datatype} {op} {ranks}");
            if matches!(op, ReduceOp::Sum | ReduceOp::Prod | ReduceOp::Avg) {
                let twice = reduced(datatype, op, ranks, (0..ranks).chain([lost]));
                assert_ne!(check(&twice, &expected, datatype, Some(op)), 0, "{datatype} {op} {ranks}");
            }
        }
    }
}

#[test]
fn data_differs_by_rank_and_place() {
    for &datatype in DataType::ALL {
        let [mine, other] = [0, 1].map(|rank| to_bytes(datatype, &input(datatype, None, rank, 2)));
        assert!(check(&mine, &other, datatype, None) > COUNT as u64 * 9 / 10);
        for shift in [1, 2, 8, 64, 256] {
            let bytes = shift * datatype.bytes();
            let same = mine.len() - bytes;
            assert!(check(&mine[bytes..], &mine[..same], datatype, None) > (COUNT - shift) as u64 * 9 / 10);
        }
    }
}

#[test]
fn pieces_are_those_of_the_whole() {
    for (datatype, op, _) in every_case().filter(|(.., ranks)| *ranks == 3) {
        let size = datatype.bytes();
        let mut whole = vec![0; 1000 * size];
        fill(&mut whole, datatype, Some(op), 1, 3, 0);
        for first in [0, 1, 7, 8, 9, 255, 999, 1000] {
            for count in [0, 1, 5, 8, 17, 255, 256, 257, 600] {
                let count = count.min(1000 - first);
                let mut piece = vec![0; count * size];
                fill(&mut piece, datatype, Some(op), 1, 3, first as u64);
                assert_eq!(piece, whole[first * size..][..count * size], "{datatype} {op} {first} {count}");
            }
        }
    }
}
