//! The walk over the elements, the same for every type, operation and instruction set.
//!
//! ```text
//! for each tile of a few registers:
//!     registers = source 0, scaled if raw
//!     for each further source: registers = combine(registers, source, scaled if raw)
//!     divide, if this run completes an integer average
//!     for each destination: store the registers
//! ```
//! So every source is read once and every destination written once, whatever k and m, and a destination may be a source: a tile is
//! read before it is written. The accumulator is registers rather than a block in the first-level cache: that saves a store and a load
//! per register. The usual shapes of the usual operations (two sources, one or two destinations) are compiled with their k and m as
//! constants.

use core::array;

use super::vector::{Combine, Vector};
use super::{Job, LINE};
use crate::reduce::Write;

/// Registers of a tile.
const TILE: usize = 4;

/// Reduces a job with registers of type `V`.
///
/// # Safety
/// The contract of [`crate::reduce::Kernel::run`], and a machine with the instruction set of `V`.
#[inline(always)]
pub(super) unsafe fn reduce<V: Vector, C: Combine>(job: &Job<'_>) {
    // SAFETY: the same contract; the constants are the lengths of the slices.
    unsafe {
        if job.write == Write::Streaming {
            return walk::<V, C, 0, 0, true>(job);
        }
        if C::USUAL {
            match (job.sources.len(), job.destinations.len()) {
                (2, 1) => return walk::<V, C, 2, 1, false>(job),
                (2, 2) => return walk::<V, C, 2, 2, false>(job),
                _ => {}
            }
        }
        walk::<V, C, 0, 0, false>(job)
    }
}

/// Goes over all elements. `K` and `M` are the numbers of sources and destinations, or 0 for any.
///
/// # Safety
/// As for [`reduce`]; `K` and `M` fit the job.
#[inline(always)]
unsafe fn walk<V: Vector, C: Combine, const K: usize, const M: usize, const STREAM: bool>(job: &Job<'_>) {
    // SAFETY: every call stays within `job.bytes`, in whole elements: `head` is at most that, each loop leaves at least its step.
    unsafe {
        let mut at = 0;
        if STREAM {
            let head = to_line(job, V::ELEMENT);
            while at < head {
                tile::<V::One, C, K, M, 1, false>(job, at);
                at += V::ELEMENT;
            }
        }
        while job.bytes - at >= V::BYTES * TILE {
            tile::<V, C, K, M, TILE, STREAM>(job, at);
            at += V::BYTES * TILE;
        }
        while job.bytes - at >= V::BYTES {
            tile::<V, C, K, M, 1, false>(job, at);
            at += V::BYTES;
        }
        if V::PARTIAL && at < job.bytes {
            part::<V, C, K, M>(job, at);
            return;
        }
        while at < job.bytes {
            tile::<V::One, C, K, M, 1, false>(job, at);
            at += V::ELEMENT;
        }
    }
}

/// Bytes to the first line of the first destination, at most all; 0 if no element starts there.
fn to_line(job: &Job<'_>, element: usize) -> usize {
    let ahead = job.destinations.first().map_or(0, |to| to.addr().wrapping_neg() % LINE);
    if ahead % element == 0 { ahead.min(job.bytes) } else { 0 }
}

/// One tile of `U` registers at byte `at`.
///
/// # Safety
/// As for [`walk`]; the tile lies within the job.
#[inline(always)]
unsafe fn tile<V: Vector, C: Combine, const K: usize, const M: usize, const U: usize, const STREAM: bool>(
    job: &Job<'_>,
    at: usize,
) {
    // SAFETY: register `u` covers bytes at + u * BYTES .. at + (u + 1) * BYTES of every source and destination, within the job;
    // `stream` is used only where that is a multiple of `BYTES`.
    unsafe {
        let mut registers: [V; U] =
            array::from_fn(|u| source::<V, C>(job, 0, |from| V::load(from.add(at + u * V::BYTES))));
        for index in 1..count::<K>(job.sources.len()) {
            for (u, register) in registers.iter_mut().enumerate() {
                let next = source::<V, C>(job, index, |from| V::load(from.add(at + u * V::BYTES)));
                *register = C::combine(*register, next);
            }
        }
        if C::AVERAGES && job.divide {
            registers = registers.map(|register| register.divide(&job.average));
        }
        for index in 0..count::<M>(job.destinations.len()) {
            let to = job.destinations.get_unchecked(index).add(at);
            let streams = STREAM && to.addr() % LINE == 0;
            for (u, register) in registers.iter().enumerate() {
                match streams {
                    true => register.stream(to.add(u * V::BYTES)),
                    false => register.store(to.add(u * V::BYTES)),
                }
            }
        }
    }
}

/// The last elements, fewer than a register.
///
/// # Safety
/// As for [`walk`]; fewer than `V::BYTES` bytes are left, and `V` is partial.
#[inline(always)]
unsafe fn part<V: Vector, C: Combine, const K: usize, const M: usize>(job: &Job<'_>, at: usize) {
    let bytes = job.bytes - at;
    // SAFETY: `bytes` bytes from `at` are the rest of every source and destination.
    unsafe {
        let mut register = source::<V, C>(job, 0, |from| V::load_part(from.add(at), bytes));
        for index in 1..count::<K>(job.sources.len()) {
            let next = source::<V, C>(job, index, |from| V::load_part(from.add(at), bytes));
            register = C::combine(register, next);
        }
        if C::AVERAGES && job.divide {
            register = register.divide(&job.average);
        }
        for index in 0..count::<M>(job.destinations.len()) {
            register.store_part(job.destinations.get_unchecked(index).add(at), bytes);
        }
    }
}

/// A register of source `index`, scaled if need be.
///
/// # Safety
/// `index` is that of a source, and what `load` needs.
#[inline(always)]
unsafe fn source<V: Vector, C: Combine>(job: &Job<'_>, index: usize, load: impl Fn(*const u8) -> V) -> V {
    // SAFETY: the caller's promise.
    unsafe {
        let source = job.sources.get_unchecked(index);
        let register = load(source.start);
        if C::AVERAGES && job.scale && source.raw { register.scale(&job.average) } else { register }
    }
}

/// The constant, unless it stands for any number.
#[inline(always)]
const fn count<const CONSTANT: usize>(length: usize) -> usize {
    if CONSTANT == 0 { length } else { CONSTANT }
}
