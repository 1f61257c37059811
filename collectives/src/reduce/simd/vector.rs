//! What a register of elements can do, and the operations in its terms.

use super::Average;

/// A register of elements of one type, in the form in which they are combined.
///
/// # Safety
/// Every method needs a machine with the instruction set of the implementation. Those with a pointer need it valid for the bytes they
/// name; any alignment, unless said otherwise.
pub(super) trait Vector: Copy {
    /// Bytes of an element in memory.
    const ELEMENT: usize;
    /// Bytes of memory that a register covers.
    const BYTES: usize;
    /// Whether `load_part` and `store_part` work; if not, tails go through [`Vector::One`].
    const PARTIAL: bool = false;
    /// One element, with the same results to the bit.
    type One: Vector;

    /// Reads `BYTES` bytes.
    unsafe fn load(from: *const u8) -> Self;
    /// Writes `BYTES` bytes.
    unsafe fn store(self, to: *mut u8);
    /// Writes `BYTES` bytes around the cache; `to` is a multiple of `BYTES`.
    unsafe fn stream(self, to: *mut u8) {
        // SAFETY: the same contract.
        unsafe { self.store(to) }
    }
    /// Reads `bytes` < `BYTES` bytes, whole elements; the other elements are zero.
    unsafe fn load_part(from: *const u8, bytes: usize) -> Self {
        let _ = (from, bytes);
        unreachable!("only partial vectors have tails")
    }
    /// Writes the first `bytes` < `BYTES` bytes, whole elements.
    unsafe fn store_part(self, to: *mut u8, bytes: usize) {
        let _ = (to, bytes);
        unreachable!("only partial vectors have tails")
    }

    unsafe fn add(self, other: Self) -> Self;
    unsafe fn mul(self, other: Self) -> Self;
    unsafe fn min(self, other: Self) -> Self;
    unsafe fn max(self, other: Self) -> Self;
    /// Floats: times 1/ranks. Integers: as they are.
    unsafe fn scale(self, average: &Average) -> Self;
    /// Integers: over ranks, truncating. Floats: as they are.
    unsafe fn divide(self, average: &Average) -> Self;
}

/// How two elements become one.
pub(super) trait Combine {
    /// Whether sources are scaled and results divided.
    const AVERAGES: bool;
    /// Whether the usual numbers of sources and destinations are compiled as constants; less code for the rest.
    const USUAL: bool;
    /// # Safety
    /// As for [`Vector`].
    unsafe fn combine<V: Vector>(left: V, right: V) -> V;
}

macro_rules! combine {
    ($($name:ident $method:ident $averages:literal $usual:literal),*) => {$(
        pub(super) enum $name {}

        impl Combine for $name {
            const AVERAGES: bool = $averages;
            const USUAL: bool = $usual;

            #[inline(always)]
            unsafe fn combine<V: Vector>(left: V, right: V) -> V {
                // SAFETY: the same contract.
                unsafe { left.$method(right) }
            }
        }
    )*};
}
combine!(Sum add false true, Prod mul false false, Min min false false, Max max false false, Avg add true true);

/// Operations as expressions over the two operands.
#[cfg(target_arch = "x86_64")]
macro_rules! operations {
    ($($name:ident = |$left:ident, $right:ident| $expression:expr;)*) => {$(
        #[inline(always)]
        unsafe fn $name(self, other: Self) -> Self {
            let ($left, $right) = (self.0, other.0);
            // SAFETY: the machine has the instructions by the contract of `Vector`.
            Self(unsafe { $expression })
        }
    )*};
}

/// Operations that are those of the two inner registers.
#[cfg(target_arch = "x86_64")]
macro_rules! wide {
    ($($name:ident)*) => {$(
        #[inline(always)]
        unsafe fn $name(self, other: Self) -> Self {
            // SAFETY: the same contract.
            unsafe { Self(self.0.$name(other.0), self.1.$name(other.1)) }
        }
    )*};
}

/// Division of a register of integers, one by one: no instruction set has it, and it is done once per result.
#[cfg(target_arch = "x86_64")]
macro_rules! divide_each {
    ($element:ident) => {
        #[inline(always)]
        unsafe fn divide(self, average: &Average) -> Self {
            let mut elements = [0; Self::BYTES / Self::ELEMENT];
            // SAFETY: the array has the size of the register.
            unsafe { self.store(elements.as_mut_ptr().cast()) };
            elements.iter_mut().for_each(|element: &mut $element| *element = average.$element(*element));
            // SAFETY: as above.
            unsafe { Self::load(elements.as_ptr().cast()) }
        }
    };
}

#[cfg(target_arch = "x86_64")]
pub(super) use {divide_each, operations, wide};
