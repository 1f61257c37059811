//! Vectors of 512 bits, AVX-512 F, BW, DQ and VL. Tails are masked loads and stores, which touch no byte that is masked off.

use core::arch::x86_64::*;

use half::{bf16, f16};

use super::portable::Pack;
use super::vector::{Avg, Combine, Max, Min, Prod, Sum, Vector, divide_each, operations, wide};
use super::{Average, Job, Run, for_op, walk};
use crate::{DataType, ReduceOp};

/// The instance for a type and an operation.
pub(super) fn function(datatype: DataType, op: ReduceOp) -> Run {
    match datatype {
        DataType::U8 => for_op!(op, run, U8),
        DataType::I32 => for_op!(op, run, I32),
        DataType::I64 => for_op!(op, run, I64),
        DataType::F16 => for_op!(op, run, F16),
        DataType::Bf16 => for_op!(op, run, Bf16),
        DataType::F32 => for_op!(op, run, F32),
        DataType::F64 => for_op!(op, run, F64),
    }
}

/// Copies the first source around the cache.
pub(super) const STREAM: Run = run::<U8, Sum>;

/// # Safety
/// The contract of [`crate::reduce::Kernel::run`], and a machine with this instruction set.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
unsafe fn run<V: Vector, C: Combine>(job: &Job<'_>) {
    // SAFETY: the same contract.
    unsafe { walk::reduce::<V, C>(job) }
}

/// The first `bytes` of 64.
fn mask(bytes: usize) -> u64 {
    (1 << bytes) - 1
}

/// Loads and stores of whole registers.
macro_rules! memory {
    ($one:ty) => {
        const ELEMENT: usize = size_of::<$one>();
        const BYTES: usize = 64;
        const PARTIAL: bool = true;
        type One = Pack<$one, 1>;

        #[inline(always)]
        unsafe fn load(from: *const u8) -> Self {
            // SAFETY: 64 bytes by the contract of `Vector`.
            unsafe { Self::from_bits(_mm512_loadu_si512(from.cast())) }
        }

        #[inline(always)]
        unsafe fn store(self, to: *mut u8) {
            // SAFETY: 64 bytes by the contract of `Vector`.
            unsafe { _mm512_storeu_si512(to.cast(), self.bits()) }
        }

        #[inline(always)]
        unsafe fn stream(self, to: *mut u8) {
            // SAFETY: 64 bytes, aligned, by the contract of `Vector`.
            unsafe { _mm512_stream_si512(to.cast(), self.bits()) }
        }

        #[inline(always)]
        unsafe fn load_part(from: *const u8, bytes: usize) -> Self {
            // SAFETY: only the first `bytes` bytes are touched.
            unsafe { Self::from_bits(_mm512_maskz_loadu_epi8(mask(bytes), from.cast())) }
        }

        #[inline(always)]
        unsafe fn store_part(self, to: *mut u8, bytes: usize) {
            // SAFETY: only the first `bytes` bytes are touched.
            unsafe { _mm512_mask_storeu_epi8(to.cast(), mask(bytes), self.bits()) }
        }
    };
}

macro_rules! integers {
    ($name:ident $element:ident $($operations:tt)*) => {
        #[derive(Clone, Copy)]
        struct $name(__m512i);

        impl $name {
            #[inline(always)]
            fn from_bits(bits: __m512i) -> Self {
                $name(bits)
            }

            #[inline(always)]
            fn bits(self) -> __m512i {
                self.0
            }
        }

        impl Vector for $name {
            memory!($element);
            operations!($($operations)*);

            #[inline(always)]
            unsafe fn scale(self, _: &Average) -> Self {
                self
            }

            divide_each!($element);
        }
    };
}

integers! { U8 u8
    add = |left, right| _mm512_add_epi8(left, right);
    mul = |left, right| {
        // There is no multiplication of bytes: even and odd ones as 16-bit words.
        let even = _mm512_mullo_epi16(left, right);
        let odd = _mm512_mullo_epi16(_mm512_srli_epi16::<8>(left), _mm512_srli_epi16::<8>(right));
        _mm512_mask_blend_epi8(0xaaaa_aaaa_aaaa_aaaa, even, _mm512_slli_epi16::<8>(odd))
    };
    min = |left, right| _mm512_min_epu8(left, right);
    max = |left, right| _mm512_max_epu8(left, right);
}
integers! { I32 i32
    add = |left, right| _mm512_add_epi32(left, right);
    mul = |left, right| _mm512_mullo_epi32(left, right);
    min = |left, right| _mm512_min_epi32(left, right);
    max = |left, right| _mm512_max_epi32(left, right);
}
integers! { I64 i64
    add = |left, right| _mm512_add_epi64(left, right);
    mul = |left, right| _mm512_mullo_epi64(left, right);
    min = |left, right| _mm512_min_epi64(left, right);
    max = |left, right| _mm512_max_epi64(left, right);
}

/// `min` and `max` of the instruction set give the second operand for zeros of both signs and for NaNs. So both orders are computed:
/// equal values differ at most in the sign of zero, where `or` keeps a minus and `and` drops it. NaNs are blended in.
macro_rules! floats {
    ($name:ident $register:ident $memory:ident $single:ident
     $add:ident $mul:ident $min:ident $max:ident $or:ident $and:ident $compare:ident $blend:ident $splat:ident) => {
        #[derive(Clone, Copy)]
        struct $name($register);

        impl $name {
            #[inline(always)]
            unsafe fn without_nan(left: $register, right: $register, ordered: $register) -> $register {
                // SAFETY: the caller's machine has the instructions.
                unsafe { $blend($compare::<_CMP_UNORD_Q>(left, right), ordered, $splat($memory::NAN)) }
            }
        }

        impl Vector for $name {
            memory!($memory);
            operations! {
                add = |left, right| $add(left, right);
                mul = |left, right| $mul(left, right);
                min = |left, right| Self::without_nan(left, right, $or($min(left, right), $min(right, left)));
                max = |left, right| Self::without_nan(left, right, $and($max(left, right), $max(right, left)));
            }

            #[inline(always)]
            unsafe fn scale(self, average: &Average) -> Self {
                // SAFETY: the machine has the instructions by the contract of `Vector`.
                Self(unsafe { $mul(self.0, $splat(average.$single)) })
            }

            #[inline(always)]
            unsafe fn divide(self, _: &Average) -> Self {
                self
            }
        }
    };
}
floats!(F32 __m512 f32 single _mm512_add_ps _mm512_mul_ps _mm512_min_ps _mm512_max_ps _mm512_or_ps _mm512_and_ps
    _mm512_cmp_ps_mask _mm512_mask_blend_ps _mm512_set1_ps);
floats!(F64 __m512d f64 double _mm512_add_pd _mm512_mul_pd _mm512_min_pd _mm512_max_pd _mm512_or_pd _mm512_and_pd
    _mm512_cmp_pd_mask _mm512_mask_blend_pd _mm512_set1_pd);

impl F32 {
    #[inline(always)]
    unsafe fn from_bits(bits: __m512i) -> Self {
        // SAFETY: the caller's machine has the instructions; they only rename the register.
        F32(unsafe { _mm512_castsi512_ps(bits) })
    }

    #[inline(always)]
    unsafe fn bits(self) -> __m512i {
        // SAFETY: as above.
        unsafe { _mm512_castps_si512(self.0) }
    }
}

impl F64 {
    #[inline(always)]
    unsafe fn from_bits(bits: __m512i) -> Self {
        // SAFETY: the caller's machine has the instructions; they only rename the register.
        F64(unsafe { _mm512_castsi512_pd(bits) })
    }

    #[inline(always)]
    unsafe fn bits(self) -> __m512i {
        // SAFETY: as above.
        unsafe { _mm512_castpd_si512(self.0) }
    }
}

/// 16-bit floats: a register of memory is two of [`F32`].
macro_rules! halves {
    ($name:ident $element:ident, $($bits:tt)*) => {
        #[derive(Clone, Copy)]
        struct $name(F32, F32);

        impl $name {
            $($bits)*
        }

        impl Vector for $name {
            memory!($element);
            wide!(add mul min max);

            #[inline(always)]
            unsafe fn scale(self, average: &Average) -> Self {
                // SAFETY: the same contract.
                unsafe {
                    let kept = _mm512_castsi512_ps(_mm512_set1_epi32(Self::KEPT));
                    let cut = |half: F32| F32(_mm512_and_ps(half.scale(average).0, kept));
                    Self::from_bits(Self(cut(self.0), cut(self.1)).bits())
                }
            }

            #[inline(always)]
            unsafe fn divide(self, _: &Average) -> Self {
                self
            }
        }
    };
}

halves! { F16 f16,
    /// Bits of an `f32` that the type has too.
    const KEPT: i32 = -0x2000;

    /// The lower and the upper half of the register.
    #[inline(always)]
    unsafe fn from_bits(bits: __m512i) -> Self {
        // SAFETY: the caller's machine has the instructions.
        unsafe {
            let lower = _mm512_castsi512_si256(bits);
            let upper = _mm512_extracti64x4_epi64::<1>(bits);
            F16(F32(_mm512_cvtph_ps(lower)), F32(_mm512_cvtph_ps(upper)))
        }
    }

    #[inline(always)]
    unsafe fn bits(self) -> __m512i {
        // SAFETY: the caller's machine has the instructions.
        unsafe {
            let lower = _mm512_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(self.0.0);
            let upper = _mm512_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(self.1.0);
            _mm512_inserti64x4::<1>(_mm512_castsi256_si512(lower), upper)
        }
    }
}

halves! { Bf16 bf16,
    /// Bits of an `f32` that the type has too.
    const KEPT: i32 = -0x1_0000;

    /// The even and the odd elements: each is the upper half of a 32-bit float, so that nothing has to cross lanes.
    #[inline(always)]
    unsafe fn from_bits(bits: __m512i) -> Self {
        // SAFETY: the caller's machine has the instructions.
        unsafe {
            let even = _mm512_slli_epi32::<16>(bits);
            let odd = _mm512_and_si512(bits, _mm512_set1_epi32(-0x1_0000));
            Bf16(F32(_mm512_castsi512_ps(even)), F32(_mm512_castsi512_ps(odd)))
        }
    }

    #[inline(always)]
    unsafe fn bits(self) -> __m512i {
        // SAFETY: the caller's machine has the instructions.
        unsafe {
            let even = _mm512_srli_epi32::<16>(self.0.rounded());
            _mm512_mask_blend_epi16(0xaaaa_aaaa, even, self.1.rounded())
        }
    }
}

impl F32 {
    /// Bits whose upper halves are the nearest bf16. The instruction for that flushes denormals; integers do not: just under half a
    /// unit is added, and the lowest bit that is kept, for ties.
    #[inline(always)]
    unsafe fn rounded(self) -> __m512i {
        // SAFETY: the caller's machine has the instructions.
        unsafe {
            let bits = _mm512_castps_si512(self.0);
            let lowest = _mm512_and_si512(_mm512_srli_epi32::<16>(bits), _mm512_set1_epi32(1));
            let rounded = _mm512_add_epi32(bits, _mm512_add_epi32(lowest, _mm512_set1_epi32(0x7fff)));
            let nan = _mm512_cmp_ps_mask::<_CMP_UNORD_Q>(self.0, self.0);
            _mm512_mask_or_epi32(rounded, nan, bits, _mm512_set1_epi32(0x40_0000))
        }
    }
}
