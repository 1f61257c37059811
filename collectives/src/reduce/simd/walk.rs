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

use super::vector::{Combine, Vector};
use super::{Job, LINE};
use crate::reduce::Write;

/// Registers of a tile.
const TILE: usize = 4;
/// How far ahead of a streaming walk its sources are asked for. The machine's own prefetching stops at every page. On a 2-core VM of a
/// Sapphire Rapids (30 Nov 2026, machine busy, interleaved medians) 2 KiB gains 4 to 12 % from 16 MiB up, 4 KiB less, and cached
/// walks gain nothing.
const AHEAD: usize = 2 << 10;

/// Reduces a job with registers of type `V`.
///
/// # Safety
/// The contract of [`crate::reduce::Kernel::run`], and a machine with the instruction set of `V`.
#[inline(always)]
pub(super) unsafe fn reduce<V: Vector, C: Combine>(job: &Job<'_>) {
    // SAFETY: the same contract; the constants are the lengths of the slices.
    unsafe {
        if C::USUAL && job.write == Write::Cached {
            match (job.sources.len(), job.destinations.len()) {
                (2, 1) => return walk::<V, C, 2, 1>(job, 0),
                (2, 2) => return walk::<V, C, 2, 2>(job, 0),
                _ => {}
            }
        }
        let head = if job.write == Write::Streaming { to_line(job, V::ELEMENT) } else { 0 };
        singly::<V::One, C>(job, 0, head);
        walk::<V, C, 0, 0>(job, head)
    }
}

/// Goes over all elements from byte `at` on. `K` and `M` are the numbers of sources and destinations, or 0 for any; only the latter
/// stream.
///
/// # Safety
/// As for [`reduce`]; `K` and `M` fit the job, and `at` is the start of an element or the end.
#[inline(always)]
unsafe fn walk<V: Vector, C: Combine, const K: usize, const M: usize>(job: &Job<'_>, mut at: usize) {
    // SAFETY: every call stays within `job.bytes`, in whole elements: each loop leaves at least its step.
    unsafe {
        while job.bytes - at >= V::BYTES * TILE {
            if M == 0 && job.write == Write::Streaming {
                prefetch(job, at + AHEAD, V::BYTES * TILE);
            }
            tile::<V, C, K, M, TILE>(job, at);
            at += V::BYTES * TILE;
        }
        while job.bytes - at >= V::BYTES {
            tile::<V, C, K, M, 1>(job, at);
            at += V::BYTES;
        }
        if V::PARTIAL && at < job.bytes {
            part::<V, C, K, M>(job, at);
        }
        if !V::PARTIAL {
            singly::<V::One, C>(job, at, job.bytes);
        }
    }
}

/// Goes over the few elements from byte `at` to byte `end`, one by one. One function for all instruction sets.
///
/// # Safety
/// As for [`reduce`]; both are starts of elements or the end.
#[inline(never)]
unsafe fn singly<One: Vector, C: Combine>(job: &Job<'_>, mut at: usize, end: usize) {
    while at < end {
        // SAFETY: one element is left, at least.
        unsafe { tile::<One, C, 0, 0, 1>(job, at) }
        at += One::BYTES;
    }
}

/// Asks for the lines of a later tile of every source. Lines past the end do no harm.
#[inline(always)]
fn prefetch(job: &Job<'_>, at: usize, bytes: usize) {
    for source in job.sources {
        for offset in (0..bytes).step_by(LINE) {
            super::prefetch(source.start.wrapping_add(at + offset));
        }
    }
}

/// Bytes to the first line of the first destination, at most all; 0 if no element starts there.
fn to_line(job: &Job<'_>, element: usize) -> usize {
    let ahead = job.destinations.first().map_or(0, |to| to.addr().wrapping_neg() % LINE);
    if ahead.is_multiple_of(element) { ahead.min(job.bytes) } else { 0 }
}

/// One tile of `U` registers at byte `at`.
///
/// # Safety
/// As for [`walk`]; the tile lies within the job.
#[inline(always)]
unsafe fn tile<V: Vector, C: Combine, const K: usize, const M: usize, const U: usize>(job: &Job<'_>, at: usize) {
    // SAFETY: register `u` covers bytes at + u * BYTES .. at + (u + 1) * BYTES of every source and destination, within the job;
    // `stream` is used only where that is a multiple of `BYTES`.
    unsafe {
        let load = |index: usize, u: usize| source::<V, C>(job, index, |from| V::load(from.add(at + u * V::BYTES)));
        let mut registers = [load(0, 0); U];
        for (u, register) in registers.iter_mut().enumerate().skip(1) {
            *register = load(0, u);
        }
        for index in 1..count::<K>(job.sources.len()) {
            for (u, register) in registers.iter_mut().enumerate() {
                *register = C::combine(*register, load(index, u));
            }
        }
        if C::AVERAGES && job.divide {
            for register in &mut registers {
                *register = register.divide(&job.average);
            }
        }
        for index in 0..count::<M>(job.destinations.len()) {
            let to = job.destinations.get_unchecked(index).add(at);
            if U > 1 && M == 0 && job.write == Write::Streaming && to.addr().is_multiple_of(LINE) {
                for (u, register) in registers.iter().enumerate() {
                    register.stream(to.add(u * V::BYTES));
                }
            } else {
                for (u, register) in registers.iter().enumerate() {
                    register.store(to.add(u * V::BYTES));
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
