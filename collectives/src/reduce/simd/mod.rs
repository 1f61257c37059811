//! Registers and pointers: the only unsafe code of the kernels.
//!
//! `vector` says what a register can do; `portable`, `avx2` and `avx512` do it; `walk` goes over the elements; `copy` is the case of
//! one source as it is. Everything between the function pointers of [`Functions`] and the instructions is inlined into one function
//! per (type, operation, instruction set), which has the instruction set enabled.

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
mod copy;
mod portable;
mod vector;
mod walk;

use half::{bf16, f16};

use self::portable::Pack;
use self::vector::{Avg, Combine, Max, Min, Prod, Sum, Vector};
use super::{Level, Source, Write};
use crate::{DataType, ReduceOp};

/// Bytes of a cache line, which is what a streaming store should fill.
const LINE: usize = 64;

/// One run of a kernel.
pub(super) struct Job<'a> {
    /// At least one.
    pub sources: &'a [Source],
    pub destinations: &'a [*mut u8],
    /// Of each source and destination; whole elements.
    pub bytes: usize,
    /// Whether the result is divided by the number of ranks.
    pub divide: bool,
    /// Whether raw sources are multiplied by 1/ranks.
    pub scale: bool,
    pub write: Write,
    pub average: Average,
}

/// What turns a sum into an average.
#[derive(Clone, Copy, Debug)]
pub(super) struct Average {
    /// 1/ranks, for f32 and the types that are combined in it.
    single: f32,
    /// 1/ranks.
    double: f64,
    ranks: i64,
    /// 2^16/ranks rounded up; 0 when no quotient of a byte reaches 1.
    byte_inverse: u32,
}

impl Average {
    /// Over that many ranks.
    pub(super) fn new(ranks: u32) -> Average {
        let ranks = ranks.max(1);
        Average {
            single: 1.0 / ranks as f32,
            double: 1.0 / f64::from(ranks),
            ranks: i64::from(ranks),
            byte_inverse: if ranks < 256 { (1u32 << 16).div_ceil(ranks) } else { 0 },
        }
    }

    /// The quotient. The inverse is too large by less than ranks / 2^16 / ranks, so that the product errs by less than 255 / 2^16 < 1 /
    /// ranks, which is what the quotient lacks to the next integer.
    #[inline(always)]
    fn u8(&self, sum: u8) -> u8 {
        ((u32::from(sum) * self.byte_inverse) >> 16) as u8
    }

    /// The quotient, truncated. In f64 it errs by less than 2^-22 / ranks, and lacks at least 1 / ranks to the next integer.
    #[inline(always)]
    fn i32(&self, sum: i32) -> i32 {
        let quotient = f64::from(sum) / self.ranks as f64;
        // SAFETY: |quotient| <= 2^31 / ranks and not NaN; 2^31 itself would need ranks = 1 and a sum of that size.
        unsafe { quotient.to_int_unchecked() }
    }

    /// The quotient, truncated.
    #[inline(always)]
    fn i64(&self, sum: i64) -> i64 {
        sum / self.ranks
    }
}

/// A function that does a job.
///
/// # Safety
/// The contract of [`super::Kernel::run`], and a machine with the function's instruction set.
type Run = unsafe fn(&Job<'_>);

/// The functions of a kernel.
#[derive(Clone, Copy, Debug)]
pub(super) struct Functions {
    reduce: Run,
    /// Copies the first source, around the cache.
    stream: Run,
}

impl Functions {
    /// Does the job.
    ///
    /// # Safety
    /// The contract of [`super::Kernel::run`]; the machine has the instruction set for which the functions were chosen.
    #[inline]
    pub(super) unsafe fn run(&self, job: &Job<'_>) {
        let plain = matches!(job.sources, [only] if !(job.scale && only.raw || job.divide));
        // SAFETY: the same contract.
        unsafe { if plain { copy::copy(job, self.stream) } else { (self.reduce)(job) } }
        if job.write == Write::Streaming {
            fence();
        }
    }
}

/// Chooses the instance of a generic function for an operation.
macro_rules! for_op {
    ($op:expr, $function:ident, $vector:ty) => {
        match $op {
            ReduceOp::Sum => $function::<$vector, Sum> as Run,
            ReduceOp::Prod => $function::<$vector, Prod>,
            ReduceOp::Min => $function::<$vector, Min>,
            ReduceOp::Max => $function::<$vector, Max>,
            ReduceOp::Avg => $function::<$vector, Avg>,
        }
    };
}
#[cfg(target_arch = "x86_64")]
use for_op;

/// Asks for a line; any address will do.
#[inline(always)]
fn prefetch(line: *const u8) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a hint, which never faults.
    unsafe {
        core::arch::x86_64::_mm_prefetch::<{ core::arch::x86_64::_MM_HINT_T0 }>(line.cast())
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = line;
}

/// Orders streaming stores before all later stores.
#[inline]
fn fence() {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: every machine of the architecture has the instruction.
    unsafe {
        core::arch::x86_64::_mm_sfence()
    }
}

/// The functions for a type and an operation with an instruction set.
pub(super) fn functions(level: Level, datatype: DataType, op: ReduceOp) -> Functions {
    match level {
        #[cfg(target_arch = "x86_64")]
        Level::Avx2 => Functions { reduce: avx2::function(datatype, op), stream: avx2::STREAM },
        #[cfg(target_arch = "x86_64")]
        Level::Avx512 => Functions { reduce: avx512::function(datatype, op), stream: avx512::STREAM },
        _ => Functions { reduce: baseline(datatype, op), stream: run_baseline::<Pack<u8, 16>, Sum> },
    }
}

fn baseline(datatype: DataType, op: ReduceOp) -> Run {
    match datatype {
        DataType::U8 => for_op!(op, run_baseline, Pack<u8, 16>),
        DataType::I32 => for_op!(op, run_baseline, Pack<i32, 4>),
        DataType::I64 => for_op!(op, run_baseline, Pack<i64, 2>),
        DataType::F16 => for_op!(op, run_baseline, Pack<f16, 4>),
        DataType::Bf16 => for_op!(op, run_baseline, Pack<bf16, 4>),
        DataType::F32 => for_op!(op, run_baseline, Pack<f32, 4>),
        DataType::F64 => for_op!(op, run_baseline, Pack<f64, 2>),
    }
}

/// # Safety
/// The contract of [`super::Kernel::run`].
unsafe fn run_baseline<V: Vector, C: Combine>(job: &Job<'_>) {
    // SAFETY: the same contract; every machine has this level.
    unsafe { walk::reduce::<V, C>(job) }
}
