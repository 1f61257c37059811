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

/// 16-bit floats: 32 bytes of memory, 16 lanes of [`F32`].
macro_rules! halves {
    ($name:ident $element:ty, widen |$half:ident| $widen:expr, narrow |$wide:ident| $narrow:expr) => {
        #[derive(Clone, Copy)]
        struct $name(F32);

        impl $name {
            #[inline(always)]
            unsafe fn from_bits($half: __m256i) -> Self {
                // SAFETY: the caller's machine has the instructions.
                $name(F32(unsafe { $widen }))
            }

            #[inline(always)]
            unsafe fn bits(self) -> __m256i {
                let $wide = self.0.0;
                // SAFETY: the caller's machine has the instructions.
                unsafe { $narrow }
            }
        }

        impl Vector for $name {
            const ELEMENT: usize = 2;
            const BYTES: usize = 32;
            const PARTIAL: bool = true;
            type One = Pack<$element, 1>;

            #[inline(always)]
            unsafe fn load(from: *const u8) -> Self {
                // SAFETY: 32 bytes by the contract of `Vector`.
                unsafe { Self::from_bits(_mm256_loadu_si256(from.cast())) }
            }

            #[inline(always)]
            unsafe fn store(self, to: *mut u8) {
                // SAFETY: 32 bytes by the contract of `Vector`.
                unsafe { _mm256_storeu_si256(to.cast(), self.bits()) }
            }

            #[inline(always)]
            unsafe fn stream(self, to: *mut u8) {
                // SAFETY: 32 bytes, aligned, by the contract of `Vector`.
                unsafe { _mm256_stream_si256(to.cast(), self.bits()) }
            }

            #[inline(always)]
            unsafe fn load_part(from: *const u8, bytes: usize) -> Self {
                // SAFETY: only the first `bytes` bytes are touched.
                unsafe { Self::from_bits(_mm256_maskz_loadu_epi8(mask(bytes) as u32, from.cast())) }
            }

            #[inline(always)]
            unsafe fn store_part(self, to: *mut u8, bytes: usize) {
                // SAFETY: only the first `bytes` bytes are touched.
                unsafe { _mm256_mask_storeu_epi8(to.cast(), mask(bytes) as u32, self.bits()) }
            }

            wide!(add mul min max);

            #[inline(always)]
            unsafe fn scale(self, average: &Average) -> Self {
                // SAFETY: the same contract.
                Self(unsafe { self.0.scale(average) })
            }

            #[inline(always)]
            unsafe fn divide(self, _: &Average) -> Self {
                self
            }
        }
    };
}

halves! { F16 f16,
    widen |half| _mm512_cvtph_ps(half),
    narrow |wide| _mm512_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(wide)
}
// The instruction for bf16 flushes denormals; integers do not. Rounding adds just under half a unit, and the lowest kept bit.
halves! { Bf16 bf16,
    widen |half| _mm512_castsi512_ps(_mm512_slli_epi32::<16>(_mm512_cvtepu16_epi32(half))),
    narrow |wide| {
        let bits = _mm512_castps_si512(wide);
        let lowest = _mm512_and_si512(_mm512_srli_epi32::<16>(bits), _mm512_set1_epi32(1));
        let rounded = _mm512_add_epi32(bits, _mm512_add_epi32(lowest, _mm512_set1_epi32(0x7fff)));
        let nan = _mm512_cmp_ps_mask::<_CMP_UNORD_Q>(wide, wide);
        let finished = _mm512_mask_or_epi32(rounded, nan, bits, _mm512_set1_epi32(0x40_0000));
        _mm512_cvtepi32_epi16(_mm512_srli_epi32::<16>(finished))
    }
}
