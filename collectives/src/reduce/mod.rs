//! The kernel that every Move runs: reduce k sources elementwise, write the result to m destinations, in one pass.
//!
//! # Rules
//! 1. Sources are combined in the order in which they are given.
//! 2. Integers wrap. Integer `avg` is the wrapping sum; the run that completes it divides by the number of ranks, truncating toward zero.
//! 3. Float `sum` and `prod` are plain IEEE 754: every step rounds to nearest even, denormals are kept.
//! 4. Float `avg` multiplies every *raw* source (a rank's own contribution) by 1/ranks, rounded to the type in which it is combined, and
//!    cuts a 16-bit product to the type of the element, toward zero: a contribution has the same bits whether it is combined here or sent
//!    first, and no sum overflows that the average does not. Then it sums; the result is within 2 ulp of the average of two contributions.
//!    An `f32` or `f64` average within some ulp of the largest finite number may still round up to infinity.
//! 5. `f16` and `bf16` are widened to `f32`, combined there over all sources of the run, and rounded once, to nearest even.
//! 6. Float `min` and `max`: a NaN wins and becomes the canonical quiet NaN; -0 is below +0. Their bits do not depend on the order.
//! 7. A single source that is neither scaled nor divided is copied byte for byte: NaN payloads stay.
//! 8. Nothing outside the elements is read or written, whatever the alignment.
//!
//! # Shape
//! [`Kernel::select`] picks a function for (type, operation, instruction set) once per call; [`Kernel::run`] calls it for each Move.
//! The rooms below: `simd` (pointers and registers), and in it one file per instruction set.

mod simd;
#[cfg(test)]
mod tests;

use crate::{DataType, ReduceOp};

/// One input of a kernel.
#[derive(Clone, Copy, Debug)]
pub struct Source {
    /// Its first element; any alignment.
    pub start: *const u8,
    /// A rank's own contribution, not yet scaled: float `avg` multiplies it by 1/ranks as it is read.
    pub raw: bool,
}

/// Whether the destinations are soon read again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Write {
    /// They are: leave them in the cache.
    Cached,
    /// They are not, and the message is larger than the cache: store around it where that pays. Stores are ordered before whatever
    /// this thread stores after the run.
    Streaming,
}

/// The instruction sets that kernels are built for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[doc(hidden)]
pub enum Level {
    /// What every machine of the architecture has.
    Baseline,
    /// AVX2 with F16C.
    Avx2,
    /// AVX-512 F, BW, DQ and VL.
    Avx512,
}

impl Level {
    /// All levels, lowest first.
    pub const ALL: [Level; 3] = [Level::Baseline, Level::Avx2, Level::Avx512];

    /// Whether this machine has it. The standard library asks the machine once and remembers.
    pub fn is_available(self) -> bool {
        match self {
            Level::Baseline => true,
            #[cfg(target_arch = "x86_64")]
            Level::Avx2 => is_x86_feature_detected!("avx2") && is_x86_feature_detected!("f16c"),
            #[cfg(target_arch = "x86_64")]
            Level::Avx512 => {
                is_x86_feature_detected!("avx512f")
                    && is_x86_feature_detected!("avx512bw")
                    && is_x86_feature_detected!("avx512dq")
                    && is_x86_feature_detected!("avx512vl")
            }
            #[cfg(not(target_arch = "x86_64"))]
            _ => false,
        }
    }

    /// The highest that this machine has.
    pub fn best() -> Level {
        if Level::Avx512.is_available() {
            Level::Avx512
        } else if Level::Avx2.is_available() {
            Level::Avx2
        } else {
            Level::Baseline
        }
    }
}

/// A function for one (type, operation, instruction set), with its parameters. Chosen once per call, run for every Move.
#[derive(Clone, Copy, Debug)]
pub struct Kernel {
    functions: simd::Functions,
    average: simd::Average,
    element: usize,
    /// A raw source is multiplied: float `avg` over several ranks.
    scales: bool,
    /// A complete result is divided: integer `avg` over several ranks.
    divides: bool,
}

impl Kernel {
    /// The kernel for a call over `ranks` ranks; without an operation it copies.
    pub fn select(datatype: DataType, op: Option<ReduceOp>, ranks: u32) -> Kernel {
        Kernel::select_at(Level::best(), datatype, op, ranks)
    }

    /// The same with a given instruction set, for tests and measurements.
    ///
    /// # Panics
    /// When the machine does not have it.
    #[doc(hidden)]
    pub fn select_at(level: Level, datatype: DataType, op: Option<ReduceOp>, ranks: u32) -> Kernel {
        assert!(level.is_available(), "this machine has no {level:?}");
        let averages = op == Some(ReduceOp::Avg) && ranks > 1;
        Kernel {
            functions: simd::functions(level, datatype, op.unwrap_or(ReduceOp::Sum)),
            average: simd::Average::new(ranks),
            element: datatype.bytes(),
            scales: averages && datatype.is_float(),
            divides: averages && !datatype.is_float(),
        }
    }

    /// Reduces the sources and writes the result to every destination. `complete` says that the result holds every rank's contribution.
    /// Without an operation there is one source.
    ///
    /// # Safety
    /// - Every source is valid for reads, and every destination for writes, of `elements` elements; any alignment.
    /// - A destination may be equal to a source; otherwise no destination overlaps a source or another destination.
    /// - Nobody else writes the sources, or touches the destinations, during the run.
    #[inline]
    pub unsafe fn run(
        &self,
        sources: &[Source],
        destinations: &[*mut u8],
        elements: usize,
        complete: bool,
        write: Write,
    ) {
        debug_assert!(!sources.is_empty(), "a run has at least one source");
        let bytes = elements * self.element;
        let job = simd::Job {
            sources,
            destinations,
            bytes,
            divide: complete && self.divides,
            scale: self.scales,
            write: if bytes < STREAM_FROM { Write::Cached } else { write },
            average: self.average,
        };
        // SAFETY: the pointers are the caller's promise; `select_at` checked that the machine has the functions' instruction set.
        unsafe { self.functions.run(&job) }
    }
}

/// Bytes of a buffer from which asking for [`Write::Streaming`] pays when nobody reads the result at once: the call's buffers no longer
/// fit the second-level cache. On a 2-core VM of a Sapphire Rapids (2 MiB L2; 30 Nov 2026, load about 3, one thread; medians of
/// alternating runs, GB/s read and written, cached against streaming):
///
/// | buffer  | copy       | 2 to 1     | 2 to 2     |
/// |---------|------------|------------|------------|
/// | 1 MiB   | 21 to 11   | 20 to 22   | 15 to 18   |
/// | 4 MiB   | 18 to 23   | 19 to 27   | 13 to 24   |
/// | 16 MiB  | 16 to 21   | 4.8 to 19  | 4.8 to 20  |
/// | 64 MiB  | 5.1 to 7.0 | 5.5 to 7.6 | 4.6 to 9.5 |
/// | 128 MiB | 5.7 to 7.1 | 5.8 to 7.8 | 4.8 to 9.4 |
///
/// Cached runs that follow each other at 1 MiB are faster still (copy 60, 2 to 1 28).
pub const STREAMING_PAYS_FROM: usize = 4 << 20;

/// Bytes of a run below which streaming never pays: the destination's ends and the fence cost more than the cache does.
const STREAM_FROM: usize = 4 << 10;
