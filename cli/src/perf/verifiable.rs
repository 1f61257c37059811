//! Data whose reduction is known exactly, in whatever order it is done.
//!
//! Element `i` of rank `r` depends on (r, class of i), where the class is one of 256, a hash of `i`. So an input is a table of 256
//! elements, looked up; and so is what is expected of a reduction, whose table is made by reducing 256 times over all ranks, with integers.
//! Neither knows the library's kernels, and a large message costs a hash of eight elements and eight look-ups.
//!
//! | data                  | elements                                                                              | difference |
//! |-----------------------|---------------------------------------------------------------------------------------|------------|
//! | copies                | any bits                                                                              | none       |
//! | integers              | any bits, odd ones for products: both wrap alike in every order                       | none       |
//! | float sum             | integers times a power of two that all ranks share; all magnitudes fit the mantissa    | none       |
//! | float product         | one rank has a mantissa, few have an exponent of 1 or -1, all have a sign             | none       |
//! | float min, max        | any normal numbers                                                                    | none       |
//! | float average         | two ranks are not zero; the average's mantissa is just above 1, where an ulp is large | 2 ulp      |
//!
//! Why 2 ulp is enough for an average: multiplying by 1/ranks errs twice by half an ulp and the sum once, all relative to numbers below
//! 1.25 of the average's power of two: at most 1.5 * 1.25 ulp, and half of one in what is expected.

use std::array;

use half::{bf16, f16};
use vervain_collectives::{DataType, ReduceOp};

/// Write `rank`'s input from element `first` on.
pub fn fill(to: &mut [u8], datatype: DataType, op: Option<ReduceOp>, rank: u32, ranks: u32, first: u64) {
    let data = Data { datatype, ranks };
    write(to, datatype, first, |class| data.input(op, rank, class));
}

/// Write what the reduction of all ranks' inputs is, from element `first` on.
pub fn expected(to: &mut [u8], datatype: DataType, op: ReduceOp, ranks: u32, first: u64) {
    let data = Data { datatype, ranks };
    write(to, datatype, first, |class| data.reduced(op, class));
}

/// How many elements differ by more than they may.
pub fn check(actual: &[u8], expected: &[u8], datatype: DataType, op: Option<ReduceOp>) -> u64 {
    if actual == expected {
        return 0;
    }
    let averages = datatype.is_float() && op == Some(ReduceOp::Avg);
    match datatype.bytes() {
        2 if averages => far_16(actual, expected),
        4 if averages => far_32(actual, expected),
        8 if averages => far_64(actual, expected),
        1 => different::<1>(actual, expected),
        2 => different::<2>(actual, expected),
        4 => different::<4>(actual, expected),
        _ => different::<8>(actual, expected),
    }
}

/// What the elements of a call are made of.
#[derive(Clone, Copy)]
struct Data {
    datatype: DataType,
    ranks: u32,
}

/// Bits of an element.
type Bits = u64;

/// By how many steps of its type a float average may differ.
const AVERAGE_ULPS: u8 = 2;
/// Classes of elements.
const CLASSES: usize = 256;
/// Ranks that change the exponent of a product: no partial product leaves the range of the narrowest type.
const SHIFTING_RANKS: u64 = 8;

impl Data {
    /// A rank's element.
    fn input(self, op: Option<ReduceOp>, rank: u32, class: u8) -> Bits {
        let bits = self.any_bits(rank, class);
        match op {
            None => bits,
            Some(ReduceOp::Prod) if !self.datatype.is_float() => bits | 1,
            Some(_) if !self.datatype.is_float() => bits,
            Some(ReduceOp::Sum) => encode(self.datatype, self.addend(rank, class), self.exponent(class)),
            Some(ReduceOp::Prod) => {
                let (negative, mantissa, exponent) = self.factor(rank, class);
                encode(self.datatype, signed(negative, mantissa), exponent - self.fraction() as i32)
            }
            Some(ReduceOp::Avg) => encode(self.datatype, self.share(rank, class), self.exponent(class)),
            Some(_) => normal(self.datatype, bits),
        }
    }

    /// The reduction of all ranks' elements.
    fn reduced(self, op: ReduceOp, class: u8) -> Bits {
        if !self.datatype.is_float() {
            return self.reduced_integer(op, class);
        }
        let ranks = 0..self.ranks;
        match op {
            ReduceOp::Sum => {
                encode(self.datatype, ranks.map(|rank| self.addend(rank, class)).sum(), self.exponent(class))
            }
            ReduceOp::Prod => self.product(class),
            ReduceOp::Avg => {
                let total: i64 = ranks.map(|rank| self.share(rank, class)).sum();
                from_f64(self.datatype, times_power(total as f64 / f64::from(self.ranks), self.exponent(class)))
            }
            ReduceOp::Min => self.extreme(class, f64::lt),
            _ => self.extreme(class, f64::gt),
        }
    }

    fn reduced_integer(self, op: ReduceOp, class: u8) -> Bits {
        let values = (0..self.ranks).map(|rank| self.integer(self.input(Some(op), rank, class)));
        let combined = match op {
            ReduceOp::Prod => values.fold(1, i64::wrapping_mul),
            ReduceOp::Min => values.min().unwrap_or(0),
            ReduceOp::Max => values.max().unwrap_or(0),
            _ => values.fold(0, i64::wrapping_add),
        };
        let wrapped = self.cut(combined as Bits);
        // the sum wraps in its own type before it is divided
        if op == ReduceOp::Avg { self.cut((self.integer(wrapped) / i64::from(self.ranks)) as Bits) } else { wrapped }
    }

    /// The value of an integer element.
    fn integer(self, bits: Bits) -> i64 {
        match self.datatype {
            DataType::I32 => i64::from(bits as u32 as i32),
            _ => bits as i64,
        }
    }

    /// As many bits as an element has.
    fn cut(self, bits: Bits) -> Bits {
        bits & (Bits::MAX >> (64 - 8 * self.datatype.bytes()))
    }

    fn any_bits(self, rank: u32, class: u8) -> Bits {
        self.cut(mix(u64::from(rank) << 8 | u64::from(class)))
    }

    /// What all ranks know of a class; `salt` makes several numbers of it.
    fn common(self, class: u8, salt: u64) -> u64 {
        mix(u64::from(class) | salt << 48)
    }

    /// Bits of the mantissa after the point.
    fn fraction(self) -> u32 {
        match self.datatype {
            DataType::F16 => 10,
            DataType::Bf16 => 7,
            DataType::F32 => 23,
            _ => 52,
        }
    }

    /// The power of two that all elements of a class share. Nothing overflows, and no average is denormal.
    fn exponent(self, class: u8) -> i32 {
        (self.common(class, 1) % 8) as i32 - 4
    }

    /// Whether a rank is one of `chosen` consecutive ones (all, if there are no more), which begin anywhere.
    fn is_chosen(self, rank: u32, class: u8, chosen: u64) -> bool {
        let ranks = u64::from(self.ranks);
        (u64::from(rank) + self.common(class, 2) % ranks) % ranks < chosen
    }

    /// A rank's integer in a sum. All magnitudes together are at most what the mantissa holds exactly.
    fn addend(self, rank: u32, class: u8) -> i64 {
        let budget = 2u64 << self.fraction();
        if !self.is_chosen(rank, class, budget) {
            return 0;
        }
        let most = (budget / u64::from(self.ranks)).max(1);
        let random = mix(u64::from(rank) << 8 | u64::from(class));
        signed(random >> 63 == 1, (random >> 8) % (most + 1))
    }

    /// A rank's sign, mantissa (an integer with the hidden bit) and exponent in a product.
    fn factor(self, rank: u32, class: u8) -> (bool, u64, i32) {
        let random = mix(u64::from(rank) << 8 | u64::from(class));
        let one = 1u64 << self.fraction();
        if self.common(class, 3) % u64::from(self.ranks) == u64::from(rank) {
            return (random >> 63 == 1, one | random & (one - 1), 0);
        }
        let exponent = if random >> 62 & 1 == 1 { 1 } else { -1 };
        (random >> 63 == 1, one, if self.is_chosen(rank, class, SHIFTING_RANKS) { exponent } else { 0 })
    }

    fn product(self, class: u8) -> Bits {
        let one = 1u64 << self.fraction();
        let (mut negative, mut mantissa, mut exponent) = (false, one, 0);
        for rank in 0..self.ranks {
            let factor = self.factor(rank, class);
            negative ^= factor.0;
            // only one rank's is not 1
            mantissa = mantissa.max(factor.1);
            exponent += factor.2;
        }
        encode(self.datatype, signed(negative, mantissa), exponent - self.fraction() as i32)
    }

    /// A rank's integer in an average: two ranks, or the only one, share the total.
    fn share(self, rank: u32, class: u8) -> i64 {
        let ranks = u64::from(self.ranks);
        let one = self.common(class, 4) % ranks;
        let other = (one + 1 + self.common(class, 5) % (ranks - 1).max(1)) % ranks;
        let total = self.total(class);
        let part = if ranks == 1 { total } else { total / 4 + self.common(class, 6) % (total / 2) };
        let rank = u64::from(rank);
        let share = if rank == one {
            part
        } else if rank == other {
            total - part
        } else {
            0
        };
        signed(self.common(class, 7) % 2 == 1, share)
    }

    /// Ranks times a power of two, up to a quarter more, with no more bits than the mantissa has.
    fn total(self, class: u8) -> u64 {
        let room = self.fraction() as i32 - (u32::BITS - (self.ranks - 1).leading_zeros()) as i32;
        let quarters = u128::from(self.ranks) * u128::from((1 << 18) + self.common(class, 8) % (1 << 16));
        let scaled = if room < 18 { quarters.div_ceil(1 << (18 - room)) } else { quarters << (room - 18) };
        scaled as u64
    }

    fn extreme(self, class: u8, wins: fn(&f64, &f64) -> bool) -> Bits {
        let elements = (0..self.ranks).map(|rank| normal(self.datatype, self.any_bits(rank, class)));
        let better =
            |best, next| if wins(&to_f64(self.datatype, next), &to_f64(self.datatype, best)) { next } else { best };
        elements.reduce(better).unwrap_or(0)
    }
}

fn signed(negative: bool, magnitude: u64) -> i64 {
    if negative { -(magnitude as i64) } else { magnitude as i64 }
}

/// The finaliser of SplitMix64: every bit of the result depends on every bit of the number.
fn mix(number: u64) -> u64 {
    let number = number.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let number = (number ^ number >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let number = (number ^ number >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    number ^ number >> 31
}

/// integer * 2^exponent, which the type holds exactly.
fn encode(datatype: DataType, integer: i64, exponent: i32) -> Bits {
    from_f64(datatype, times_power(integer as f64, exponent))
}

/// Exact, as long as the result is a normal number.
fn times_power(value: f64, exponent: i32) -> f64 {
    value * f64::from_bits(((1023 + exponent) as u64) << 52)
}

fn from_f64(datatype: DataType, value: f64) -> Bits {
    match datatype {
        DataType::F16 => f16::from_f64(value).to_bits().into(),
        DataType::Bf16 => bf16::from_f64(value).to_bits().into(),
        DataType::F32 => (value as f32).to_bits().into(),
        _ => value.to_bits(),
    }
}

fn to_f64(datatype: DataType, bits: Bits) -> f64 {
    match datatype {
        DataType::F16 => f16::from_bits(bits as u16).to_f64(),
        DataType::Bf16 => bf16::from_bits(bits as u16).to_f64(),
        DataType::F32 => f32::from_bits(bits as u32).into(),
        _ => f64::from_bits(bits),
    }
}

/// The same sign and mantissa, with an exponent that is that of a normal number.
fn normal(datatype: DataType, bits: Bits) -> Bits {
    let (lowest, exponents) = match datatype {
        DataType::F16 => (1 << 10, 0x7c00),
        DataType::Bf16 => (1 << 7, 0x7f80),
        DataType::F32 => (1 << 23, 0x7f80_0000),
        _ => (1 << 52, 0x7ff0 << 48),
    };
    match bits & exponents {
        0 => bits | lowest,
        special if special == exponents => bits ^ lowest,
        _ => bits,
    }
}

/// Write the elements of each index's class.
fn write(to: &mut [u8], datatype: DataType, first: u64, element: impl Fn(u8) -> Bits) {
    match datatype.bytes() {
        1 => write_wide::<1>(to, first, element),
        2 => write_wide::<2>(to, first, element),
        4 => write_wide::<4>(to, first, element),
        _ => write_wide::<8>(to, first, element),
    }
}

fn write_wide<const BYTES: usize>(to: &mut [u8], first: u64, element: impl Fn(u8) -> Bits) {
    let element = |class| low_bytes::<BYTES>(element(class));
    let (elements, _) = to.as_chunks_mut::<BYTES>();
    if elements.len() < CLASSES {
        return write_by(elements, first, element);
    }
    let table: [[u8; BYTES]; CLASSES] = array::from_fn(|class| element(class as u8));
    write_by(elements, first, |class| table[usize::from(class)]);
}

/// A hash gives eight classes: whole groups of eight elements, and what is before and after.
fn write_by<const BYTES: usize>(elements: &mut [[u8; BYTES]], first: u64, element: impl Fn(u8) -> [u8; BYTES]) {
    let before = (first.wrapping_neg() % 8).min(elements.len() as u64);
    let (head, rest) = elements.split_at_mut(before as usize);
    let (groups, tail) = rest.as_chunks_mut::<8>();
    let group = first.div_ceil(8);
    let tail_at = (group + groups.len() as u64) * 8;
    head.iter_mut().zip(first..).for_each(|(slot, index)| *slot = element(class(index)));
    for (slots, group) in groups.iter_mut().zip(group..) {
        *slots = mix(group).to_le_bytes().map(&element);
    }
    tail.iter_mut().zip(tail_at..).for_each(|(slot, index)| *slot = element(class(index)));
}

/// The class of an element.
fn class(index: u64) -> u8 {
    mix(index / 8).to_le_bytes()[(index % 8) as usize]
}

fn low_bytes<const BYTES: usize>(bits: Bits) -> [u8; BYTES] {
    let bytes = bits.to_le_bytes();
    array::from_fn(|index| bytes[index])
}

/// Elements that differ at all.
fn different<const BYTES: usize>(actual: &[u8], expected: &[u8]) -> u64 {
    let pairs = actual.as_chunks::<BYTES>().0.iter().zip(expected.as_chunks::<BYTES>().0);
    pairs.map(|(actual, expected)| u64::from(actual != expected)).sum()
}

/// Floats that are further apart than an average may be, counted in the order of all floats of their type. What is expected is finite,
/// so a difference never wraps so far that it looks small. No branches: averages differ here and there, which no predictor foresees.
macro_rules! far {
    ($($name:ident $integer:ident $bytes:literal)*) => {$(
        fn $name(actual: &[u8], expected: &[u8]) -> u64 {
            let position = |bytes: &[u8; $bytes]| {
                let bits = $integer::from_le_bytes(*bytes);
                let negative = bits >> ($integer::BITS - 1);
                ((bits & $integer::MAX) ^ negative).wrapping_sub(negative)
            };
            let allowed = AVERAGE_ULPS.into();
            let pairs = actual.as_chunks::<$bytes>().0.iter().zip(expected.as_chunks::<$bytes>().0);
            let differences = pairs.map(|(actual, expected)| position(actual).wrapping_sub(position(expected)));
            differences.map(|steps| u64::from(steps.unsigned_abs() > allowed)).sum()
        }
    )*};
}
far!(far_16 i16 2 far_32 i32 4 far_64 i64 8);

#[cfg(test)]
#[path = "verifiable_tests.rs"]
mod tests;
