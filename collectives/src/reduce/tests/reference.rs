//! The rules again, one element at a time, with other arithmetic: i128 for integers, f64 with explicit rounding for floats.

use crate::{DataType, ReduceOp};

/// Bits of an element.
pub type Bits = u64;

/// One element of every source, and whether it is raw, reduced.
pub fn reduce(datatype: DataType, op: ReduceOp, ranks: u32, inputs: &[(Bits, bool)], complete: bool) -> Bits {
    let scales = op == ReduceOp::Avg && ranks > 1;
    if datatype.is_float() {
        match inputs {
            [(only, raw)] if !(scales && *raw) => *only,
            _ => float(datatype, op, if scales { Some(ranks) } else { None }, inputs),
        }
    } else {
        let sum = integer(datatype, op, inputs);
        wrap(datatype, if scales && complete { sum / i128::from(ranks) } else { sum })
    }
}

fn integer(datatype: DataType, op: ReduceOp, inputs: &[(Bits, bool)]) -> i128 {
    let values = inputs.iter().map(|(bits, _)| signed(datatype, *bits));
    let combined = values.reduce(|left, right| match op {
        ReduceOp::Sum | ReduceOp::Avg => signed(datatype, wrap(datatype, left + right)),
        ReduceOp::Prod => signed(datatype, wrap(datatype, left * right)),
        ReduceOp::Min => left.min(right),
        ReduceOp::Max => left.max(right),
    });
    combined.unwrap()
}

fn signed(datatype: DataType, bits: Bits) -> i128 {
    match datatype {
        DataType::U8 => i128::from(bits),
        DataType::I32 => i128::from(bits as u32 as i32),
        _ => i128::from(bits as i64),
    }
}

fn wrap(datatype: DataType, value: i128) -> Bits {
    value as u64 & (u64::MAX >> (64 - 8 * datatype.bytes()))
}

fn float(datatype: DataType, op: ReduceOp, ranks: Option<u32>, inputs: &[(Bits, bool)]) -> Bits {
    let step = if datatype == DataType::F64 { DataType::F64 } else { DataType::F32 };
    let values = inputs.iter().map(|&(bits, raw)| match ranks {
        Some(ranks) if raw => {
            let scaled = round(step, decode(datatype, bits) * round(step, 1.0 / f64::from(ranks)));
            // 16-bit contributions are cut, not rounded up: a sum of cut parts stays below the largest number
            let kept = match datatype {
                DataType::F16 => 0xffff_e000,
                DataType::Bf16 => 0xffff_0000,
                _ => u32::MAX,
            };
            if kept == u32::MAX {
                scaled
            } else {
                round(datatype, f32::from_bits((scaled as f32).to_bits() & kept).into())
            }
        }
        _ => decode(datatype, bits),
    });
    let combined = values.reduce(|left, right| match op {
        ReduceOp::Sum | ReduceOp::Avg => round(step, left + right),
        ReduceOp::Prod => round(step, left * right),
        _ if left.is_nan() || right.is_nan() => f64::NAN,
        ReduceOp::Min => *[left, right].iter().min_by(|a, b| a.total_cmp(b)).unwrap(),
        ReduceOp::Max => *[left, right].iter().max_by(|a, b| a.total_cmp(b)).unwrap(),
    });
    encode(datatype, round(datatype, combined.unwrap()))
}

/// Bits of the fraction, and the smallest exponent of a normal number.
fn format(datatype: DataType) -> (i32, i32) {
    match datatype {
        DataType::F16 => (10, -14),
        DataType::Bf16 => (7, -126),
        DataType::F32 => (23, -126),
        _ => (52, -1022),
    }
}

/// The exponent field of infinities and NaNs.
fn special(lowest: i32) -> i32 {
    (1 - lowest) * 2 + 1
}

/// To the nearest number of the type, ties to even. A sum or product of two f32 that was rounded to f64 first rounds the same.
fn round(datatype: DataType, value: f64) -> f64 {
    let (fraction, lowest) = format(datatype);
    if datatype == DataType::F64 || value == 0.0 || !value.is_finite() {
        return value;
    }
    let exponent = ((value.to_bits() >> 52 & 0x7ff) as i32 - 1023).max(lowest);
    let unit = 2f64.powi(exponent - fraction);
    let rounded = (value / unit).round_ties_even() * unit;
    let limit = 2f64.powi(2 - lowest);
    if rounded.abs() >= limit { f64::INFINITY.copysign(value) } else { rounded }
}

fn encode(datatype: DataType, value: f64) -> Bits {
    let (fraction, lowest) = format(datatype);
    if datatype == DataType::F64 {
        return value.to_bits();
    }
    let sign = Bits::from(value.is_sign_negative()) << (8 * datatype.bytes() - 1);
    let infinity = (special(lowest) as Bits) << fraction;
    if value.is_nan() {
        return infinity | 1 << (fraction - 1);
    }
    if value.is_infinite() {
        return sign | infinity;
    }
    let exponent = ((value.to_bits() >> 52 & 0x7ff) as i32 - 1023).max(lowest);
    let units = (value.abs() / 2f64.powi(exponent - fraction)) as Bits;
    // A normal number's units include the hidden bit, which adds one to the exponent field.
    sign | ((((exponent - lowest) as Bits) << fraction) + units)
}

fn decode(datatype: DataType, bits: Bits) -> f64 {
    let (fraction, lowest) = format(datatype);
    if datatype == DataType::F64 {
        return f64::from_bits(bits);
    }
    let width = 8 * datatype.bytes() as i32;
    let field = (bits >> fraction) as i32 & ((1 << (width - 1 - fraction)) - 1);
    let part = (bits & ((1 << fraction) - 1)) as f64;
    let magnitude = match field {
        0 => part * 2f64.powi(lowest - fraction),
        _ if field == special(lowest) => {
            if part == 0.0 {
                f64::INFINITY
            } else {
                f64::NAN
            }
        }
        _ => (part + 2f64.powi(fraction)) * 2f64.powi(field - 1 + lowest - fraction),
    };
    if bits >> (width - 1) == 1 { -magnitude } else { magnitude }
}

/// Whether a result is as expected: bit for bit, but a NaN that arithmetic made may have any sign and payload.
pub fn agrees(datatype: DataType, op: ReduceOp, expected: Bits, actual: Bits) -> bool {
    let free = datatype.is_float() && !matches!(op, ReduceOp::Min | ReduceOp::Max);
    expected == actual || free && decode(datatype, expected).is_nan() && decode(datatype, actual).is_nan()
}

#[test]
fn formats_encode_what_they_decode() {
    for bits in 0..=u16::MAX {
        for datatype in [DataType::F16, DataType::Bf16] {
            let value = decode(datatype, bits.into());
            let expected = if datatype == DataType::F16 {
                half::f16::from_bits(bits).to_f64()
            } else {
                half::bf16::from_bits(bits).to_f64()
            };
            assert!(
                value.is_nan() && expected.is_nan() || value.to_bits() == expected.to_bits(),
                "{datatype} {bits:#x}"
            );
            assert!(value.is_nan() || encode(datatype, value) == Bits::from(bits), "{datatype} {bits:#x}");
        }
        let single = u32::from(bits) << 16 | u32::from(bits);
        let value = decode(DataType::F32, single.into());
        assert!(value.is_nan() || value.to_bits() == f64::from(f32::from_bits(single)).to_bits());
        assert!(value.is_nan() || encode(DataType::F32, value) == Bits::from(single));
    }
}
