//! Memory that peers touch too, and the only unsafe code of this crate besides the kernels.
//!
//! A [`Memory`] is a range that whoever made it promised to keep valid; everything on top of it is checked against its
//! bounds and therefore safe. References are never formed: the other side may store at any time.

use core::marker::PhantomData;
use core::ops::{Deref, DerefMut};
use core::ptr::NonNull;
use core::slice;
use std::any::Any;
use std::sync::Arc;

use vervain_transport::fabric::{Fabric, RegionId, RemoteId};
use vervain_transport::sync::{AtomicU64, Mapped, Ordering};
use vervain_transport::wire::{ll, ll128, simple};

use vervain_transport::{Kind, Result};

use crate::Element;
use crate::reduce::{Kernel, Source, Write};

/// A range of bytes that stays valid as long as anybody holds a copy of this.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Memory {
    start: NonNull<u8>,
    bytes: usize,
}

// SAFETY: a `Memory` is an address and a length; using it from another thread is covered by the promise given to `new`.
unsafe impl Send for Memory {}

impl Memory {
    /// No bytes.
    pub const EMPTY: Memory = Memory { start: NonNull::dangling(), bytes: 0 };

    /// The range `[start, start + bytes)`.
    ///
    /// # Safety
    /// - The range is valid for reads and, if anything writes through the result, for writes, as long as the result or a
    ///   copy or slice of it is used.
    /// - Nobody holds a reference that conflicts with those accesses.
    pub const unsafe fn new(start: NonNull<u8>, bytes: usize) -> Self {
        Self { start, bytes }
    }

    /// Length.
    pub const fn bytes(self) -> usize {
        self.bytes
    }

    /// Address of the first byte.
    pub fn address(self) -> u64 {
        self.start.as_ptr() as u64
    }

    /// Where this range begins in `whole`, if it lies in it.
    pub fn offset_in(self, whole: Memory) -> Option<u64> {
        let offset = self.address().checked_sub(whole.address())?;
        (offset.checked_add(self.bytes as u64)? <= whole.bytes as u64).then_some(offset)
    }

    /// The `bytes` bytes from `offset` on.
    ///
    /// # Panics
    /// If they do not lie inside: offsets are computed by us and checked where they come from a peer.
    #[inline]
    pub fn slice(self, offset: usize, bytes: usize) -> Memory {
        assert!(
            offset <= self.bytes && bytes <= self.bytes - offset,
            "slice [{offset}; {bytes}] outside of {} bytes",
            self.bytes
        );
        // SAFETY: `offset` is at most the length, so the result stays within or one past the range.
        Memory { start: unsafe { self.start.add(offset) }, bytes }
    }

    /// Read a counter that the other side writes. `label` is the pair of sync points in docs/ordering.md.
    #[inline]
    pub fn load(self, offset: usize) -> u64 {
        // SYNC board.observe <- board.publish: what the writer stored before its counter is visible after this load.
        self.word(offset).load(Ordering::Acquire)
    }

    /// Write a counter that the other side reads; everything stored before is visible to whoever sees it.
    #[inline]
    pub fn store(self, offset: usize, value: u64) {
        // SYNC board.publish -> board.observe: see `load`.
        self.word(offset).store(value, Ordering::Release);
    }

    #[inline]
    fn word(&self, offset: usize) -> &AtomicU64 {
        let word = self.slice(offset, 8);
        assert!(word.address().is_multiple_of(8), "a counter must be aligned");
        // SAFETY: the word is in bounds and aligned (checked above), valid by the promise of `new`, and both sides use
        // only atomic accesses on it.
        unsafe { word.start.cast::<AtomicU64>().as_ref() }
    }

    /// We shall store here soon: ask for these cache lines now, while there is nothing better to do. A hint.
    #[inline]
    pub fn own_soon(self) {
        #[cfg(target_arch = "x86_64")]
        for offset in (0..self.bytes).step_by(64) {
            // SAFETY: the address is in bounds, and the instruction changes nothing that a program can observe.
            unsafe {
                let line = self.start.as_ptr().add(offset);
                core::arch::asm!("prefetchw [{}]", in(reg) line, options(nostack, preserves_flags, readonly));
            }
        }
    }

    /// Copy as many bytes of `source` as there are here; it may overlap.
    pub fn copy_whole(self, source: Memory) {
        let source = source.slice(0, self.bytes);
        // SAFETY: both ranges are this long and valid by the promise of `new`.
        unsafe { self.start.as_ptr().copy_from(source.start.as_ptr(), self.bytes) }
    }

    /// Copy bytes in.
    pub fn copy_from(self, bytes: &[u8]) {
        let target = self.slice(0, bytes.len());
        // SAFETY: in bounds by `slice`, valid by the promise of `new`; `bytes` cannot overlap memory nobody may reference.
        unsafe { target.start.as_ptr().copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) }
    }

    /// Copy bytes out.
    pub fn copy_to(self, bytes: &mut [u8]) {
        let source = self.slice(0, bytes.len());
        // SAFETY: as in `copy_from`.
        unsafe { source.start.as_ptr().copy_to_nonoverlapping(bytes.as_mut_ptr(), bytes.len()) }
    }

    /// The words of this range, which must be aligned: for the wire formats.
    #[inline]
    pub fn words(self) -> Mapped {
        assert!(self.address().is_multiple_of(8), "words must be aligned");
        // SAFETY: aligned (checked), in bounds, and valid by the promise of `new`.
        unsafe { Mapped::new(self.start.cast(), self.bytes / 8) }
    }

    /// Write `source` as one LL message: `self` is the slot.
    #[inline]
    pub fn pack_ll(self, header: u64, source: Memory, flag: u32) {
        // SAFETY: `source` is valid by the promise of `new`; whoever has the slot's memory for sending got it by credit.
        unsafe { ll::pack(&self.words(), header, source.start.as_ptr(), source.bytes, flag) }
    }

    /// Write `source` as one LL128 message.
    #[inline]
    pub fn pack_ll128(self, header: u64, source: Memory, flag: u64) {
        // SAFETY: as in `pack_ll`.
        unsafe { ll128::pack(&self.words(), header, source.start.as_ptr(), source.bytes, flag) }
    }

    /// Copy the lines of an LL message that are there, from line `from` on; returns the next line to wait for.
    #[inline]
    pub fn unpack_ll(self, target: Memory, flag: u32, from: usize) -> usize {
        // SAFETY: `target` is valid by the promise of `new`, and no slot overlaps it.
        unsafe { ll::unpack(&self.words(), target.start.as_ptr(), target.bytes, flag, from) }
    }

    /// Copy the lines of an LL128 message that are there, from line `from` on; returns the next line to wait for.
    #[inline]
    pub fn unpack_ll128(self, target: Memory, flag: u64, from: usize) -> usize {
        // SAFETY: as in `unpack_ll`.
        unsafe { ll128::unpack(&self.words(), target.start.as_ptr(), target.bytes, flag, from) }
    }

    /// Describe a Simple message; `self` is the records of the connection.
    #[inline]
    pub fn write_record(self, index: u32, record: simple::Record) {
        // SAFETY: the slot is the sender's by credit and not published yet: see `Connection::send_filled`.
        unsafe { simple::write_record(&self.words(), index, record) }
    }

    /// The description of a Simple message that was observed as published.
    #[inline]
    pub fn read_record(self, index: u32) -> simple::Record {
        // SAFETY: the receiver has seen the counter pass this message and has not given the slot back: see `Connection::header`.
        unsafe { simple::read_record(&self.words(), index) }
    }

    /// The memory of a call's buffer, which `Communicator::call` promises to be valid; `None` if it is null but needed.
    pub fn of_call(start: *const u8, bytes: usize) -> Option<Self> {
        match NonNull::new(start.cast_mut()) {
            _ if bytes == 0 => Some(Self::EMPTY),
            start => start.map(|start| Self { start, bytes }),
        }
    }
}

/// Zeroed memory of our own, and the same as [`Memory`]: valid as long as the box is.
pub fn owned(bytes: usize) -> (Box<[u64]>, Memory) {
    let mut words = vec![0u64; bytes.div_ceil(8)].into_boxed_slice();
    let start = NonNull::new(words.as_mut_ptr().cast()).expect("a slice is never at address 0");
    (words, Memory { start, bytes })
}

/// Make a range usable in spans of `fabric`.
pub fn register(fabric: &mut dyn Fabric, memory: Memory) -> Result<RegionId> {
    // SAFETY: the range is valid as long as any copy of `memory` is used, by the promise of `Memory::new`; whoever registers
    // it releases it before that ends, or drops the fabric.
    unsafe { fabric.register(memory.start, memory.bytes) }
}

/// The memory of one of our regions.
pub fn of_region(fabric: &dyn Fabric, region: RegionId) -> Result<Memory> {
    let view = fabric.memory(region).ok_or(Kind::Bug)?;
    // SAFETY: the fabric keeps an allocated region mapped until it is released or the fabric dropped, and the executor
    // drops what uses it before the fabric.
    Ok(unsafe { Memory::new(view.start, view.bytes) })
}

/// The mapping of a peer's region, where there is one.
pub fn of_view(fabric: &dyn Fabric, remote: RemoteId) -> Option<Memory> {
    let view = fabric.view(remote)?;
    // SAFETY: the fabric keeps an imported region mapped until it is dropped, whatever its owner does.
    Some(unsafe { Memory::new(view.start, view.bytes) })
}

/// The operands of one kernel call, kept between calls so that none allocates.
#[derive(Debug, Default)]
pub struct Reduction {
    bytes: usize,
    sources: Vec<Source>,
    destinations: Vec<*mut u8>,
}

// SAFETY: the pointers are used only inside `run`, under the promise given to `Memory::new`.
unsafe impl Send for Reduction {}

impl Reduction {
    /// Room for `operands` sources and as many destinations.
    pub fn with_capacity(operands: usize) -> Self {
        Self { bytes: 0, sources: Vec::with_capacity(operands), destinations: Vec::with_capacity(operands) }
    }

    /// Forget the operands; the next ones are `bytes` long.
    pub fn begin(&mut self, bytes: usize) {
        self.bytes = bytes;
        self.sources.clear();
        self.destinations.clear();
    }

    /// Add a source; `raw` as in [`Source::raw`].
    pub fn source(&mut self, memory: Memory, raw: bool) {
        assert_eq!(memory.bytes, self.bytes, "operands of one length");
        self.sources.push(Source { start: memory.start.as_ptr(), raw });
    }

    /// Add a destination.
    pub fn destination(&mut self, memory: Memory) {
        assert_eq!(memory.bytes, self.bytes, "operands of one length");
        self.destinations.push(memory.start.as_ptr());
    }

    /// Reduce the sources elementwise, in the order in which they were added, into every destination.
    pub fn run(&self, kernel: &Kernel, element: usize, complete: bool, write: Write) {
        assert!(self.bytes.is_multiple_of(element) && !self.sources.is_empty() && !self.destinations.is_empty());
        // SAFETY: every range is `bytes` long (asserted when added) and valid by the promise of `Memory::new`; a plan's
        // destination equals a source exactly or does not overlap it, which the verifier checks and calls are validated for.
        unsafe { kernel.run(&self.sources, &self.destinations, self.bytes / element, complete, write) }
    }
}

/// What keeps a [`Buffer`] valid, and its registration in use.
#[derive(Debug)]
pub struct Keep {
    _life: Arc<()>,
    _mapping: Option<Arc<dyn Any + Send + Sync>>,
}

impl Keep {
    /// The registration ends when `life` is gone, the memory when `mapping` is.
    pub fn new(life: Arc<()>, mapping: Option<Arc<dyn Any + Send + Sync>>) -> Self {
        Self { _life: life, _mapping: mapping }
    }
}

/// Memory that all ranks registered together: the direct path. Dereferences to a slice.
///
/// It stays valid after its communicator is gone; it is then ordinary memory. Drop it on all ranks, at any time.
#[derive(Debug)]
pub struct Buffer<T: Element> {
    memory: Memory,
    count: usize,
    _keep: Keep,
    _elements: PhantomData<T>,
}

impl<T: Element> Buffer<T> {
    pub(crate) fn new(memory: Memory, count: usize, keep: Keep) -> Self {
        assert!(count.checked_mul(size_of::<T>()).is_some_and(|bytes| bytes <= memory.bytes));
        Self { memory, count, _keep: keep, _elements: PhantomData }
    }
}

impl<T: Element> Deref for Buffer<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        // SAFETY: the memory is zeroed when made, page-aligned, at least `count` elements long, any bits are an element, and
        // `_keep` keeps it mapped. Peers touch it only inside a collective call, which holds the buffer borrowed.
        unsafe { slice::from_raw_parts(self.memory.start.cast().as_ptr(), self.count) }
    }
}

impl<T: Element> DerefMut for Buffer<T> {
    fn deref_mut(&mut self) -> &mut [T] {
        // SAFETY: as in `deref`, and `&mut self` excludes other borrows.
        unsafe { slice::from_raw_parts_mut(self.memory.start.cast().as_ptr(), self.count) }
    }
}
