//! Vectors in plain Rust: the level that every machine has, and the single elements at the tails of the others.

use core::ptr;

use half::{bf16, f16};

use super::Average;
use super::vector::Vector;

/// `LANES` elements as an array; the compiler makes registers of it.
#[derive(Clone, Copy)]
pub(super) struct Pack<N: Number, const LANES: usize>([N::Wide; LANES]);

/// A type of element: how it lies in memory, and how it is combined.
pub(super) trait Number: Copy {
    /// The form in which it is combined.
    type Wide: Copy;
    fn widen(self) -> Self::Wide;
    fn narrow(wide: Self::Wide) -> Self;
    fn add(left: Self::Wide, right: Self::Wide) -> Self::Wide;
    fn mul(left: Self::Wide, right: Self::Wide) -> Self::Wide;
    fn min(left: Self::Wide, right: Self::Wide) -> Self::Wide;
    fn max(left: Self::Wide, right: Self::Wide) -> Self::Wide;
    fn scale(wide: Self::Wide, average: &Average) -> Self::Wide;
    fn divide(wide: Self::Wide, average: &Average) -> Self::Wide;
}

impl<N: Number, const LANES: usize> Pack<N, LANES> {
    #[inline(always)]
    fn with(mut self, other: Self, combine: impl Fn(N::Wide, N::Wide) -> N::Wide) -> Self {
        for (left, right) in self.0.iter_mut().zip(other.0) {
            *left = combine(*left, right);
        }
        self
    }

    #[inline(always)]
    fn each(mut self, change: impl Fn(N::Wide) -> N::Wide) -> Self {
        for wide in &mut self.0 {
            *wide = change(*wide);
        }
        self
    }
}

impl<N: Number, const LANES: usize> Vector for Pack<N, LANES> {
    const ELEMENT: usize = size_of::<N>();
    const BYTES: usize = size_of::<N>() * LANES;
    type One = Pack<N, 1>;

    #[inline(always)]
    unsafe fn load(from: *const u8) -> Self {
        // SAFETY: `from` is valid for `BYTES` bytes by the contract of `Vector`; every bit pattern is a `Number`.
        let elements = unsafe { ptr::read_unaligned(from.cast::<[N; LANES]>()) };
        let mut wide = [elements[0].widen(); LANES];
        for (wide, element) in wide.iter_mut().zip(elements) {
            *wide = element.widen();
        }
        Pack(wide)
    }

    #[inline(always)]
    unsafe fn store(self, to: *mut u8) {
        let mut elements = [N::narrow(self.0[0]); LANES];
        for (element, wide) in elements.iter_mut().zip(self.0) {
            *element = N::narrow(wide);
        }
        // SAFETY: `to` is valid for `BYTES` bytes by the contract of `Vector`.
        unsafe { ptr::write_unaligned(to.cast::<[N; LANES]>(), elements) }
    }

    #[inline(always)]
    unsafe fn add(self, other: Self) -> Self {
        self.with(other, N::add)
    }

    #[inline(always)]
    unsafe fn mul(self, other: Self) -> Self {
        self.with(other, N::mul)
    }

    #[inline(always)]
    unsafe fn min(self, other: Self) -> Self {
        self.with(other, N::min)
    }

    #[inline(always)]
    unsafe fn max(self, other: Self) -> Self {
        self.with(other, N::max)
    }

    #[inline(always)]
    unsafe fn scale(self, average: &Average) -> Self {
        self.each(|wide| N::scale(wide, average))
    }

    #[inline(always)]
    unsafe fn divide(self, average: &Average) -> Self {
        self.each(|wide| N::divide(wide, average))
    }
}

macro_rules! integers {
    ($($integer:ident),*) => {$(
        impl Number for $integer {
            type Wide = $integer;

            #[inline(always)]
            fn widen(self) -> $integer {
                self
            }

            #[inline(always)]
            fn narrow(wide: $integer) -> $integer {
                wide
            }

            #[inline(always)]
            fn add(left: $integer, right: $integer) -> $integer {
                left.wrapping_add(right)
            }

            #[inline(always)]
            fn mul(left: $integer, right: $integer) -> $integer {
                left.wrapping_mul(right)
            }

            #[inline(always)]
            fn min(left: $integer, right: $integer) -> $integer {
                Ord::min(left, right)
            }

            #[inline(always)]
            fn max(left: $integer, right: $integer) -> $integer {
                Ord::max(left, right)
            }

            #[inline(always)]
            fn scale(wide: $integer, _: &Average) -> $integer {
                wide
            }

            #[inline(always)]
            fn divide(wide: $integer, average: &Average) -> $integer {
                average.$integer(wide)
            }
        }
    )*};
}
integers!(u8, i32, i64);

macro_rules! floats {
    ($($memory:ident as $wide:ident by $widen:expr, $narrow:expr, $factor:ident, $kept:literal;)*) => {$(
        impl Number for $memory {
            type Wide = $wide;

            #[inline(always)]
            fn widen(self) -> $wide {
                $widen(self)
            }

            #[inline(always)]
            fn narrow(wide: $wide) -> $memory {
                $narrow(wide)
            }

            #[inline(always)]
            fn add(left: $wide, right: $wide) -> $wide {
                left + right
            }

            #[inline(always)]
            fn mul(left: $wide, right: $wide) -> $wide {
                left * right
            }

            #[inline(always)]
            fn min(left: $wide, right: $wide) -> $wide {
                // Equal values differ at most in the sign of zero: `or` keeps a minus.
                let equal = $wide::from_bits(left.to_bits() | right.to_bits());
                let lesser = if left < right { left } else { right };
                let ordered = if left == right { equal } else { lesser };
                if left.is_nan() | right.is_nan() { $wide::NAN } else { ordered }
            }

            #[inline(always)]
            fn max(left: $wide, right: $wide) -> $wide {
                let equal = $wide::from_bits(left.to_bits() & right.to_bits());
                let greater = if left > right { left } else { right };
                let ordered = if left == right { equal } else { greater };
                if left.is_nan() | right.is_nan() { $wide::NAN } else { ordered }
            }

            #[inline(always)]
            fn scale(wide: $wide, average: &Average) -> $wide {
                $widen($narrow($wide::from_bits((wide * average.$factor).to_bits() & $kept)))
            }

            #[inline(always)]
            fn divide(wide: $wide, _: &Average) -> $wide {
                wide
            }
        }
    )*};
}
floats! {
    f32 as f32 by core::convert::identity, core::convert::identity, single, 0xffff_ffff;
    f64 as f64 by core::convert::identity, core::convert::identity, double, 0xffff_ffff_ffff_ffff;
    f16 as f32 by f16::to_f32, f16::from_f32, single, 0xffff_e000;
    bf16 as f32 by bf16::to_f32, bf16::from_f32, single, 0xffff_0000;
}
