//! Regions of a fake fabric. The one file of the fake that touches memory: spans are checked here, then copied.

use core::{any::Any, ptr::NonNull};
use std::{collections::BTreeMap, sync::Arc};

use memmap2::{MmapOptions, MmapRaw};

use crate::{
    Kind, Result,
    fabric::{RegionId, Span, View},
    sync::{
        AtomicU64,
        Ordering::{AcqRel, Acquire, Release},
    },
};

/// All regions of one fabric.
#[derive(Debug, Default)]
pub(super) struct Regions {
    known: BTreeMap<u32, Region>,
    next: u32,
}

#[derive(Debug)]
struct Region {
    start: NonNull<u8>,
    bytes: usize,
    /// Operations of ours that use it.
    users: u32,
    /// The memory, if it is ours.
    owned: Option<Arc<MmapRaw>>,
}

// SAFETY: the pointers are to memory that is owned here, or that the caller of `register` keeps valid wherever this runs.
unsafe impl Send for Regions {}

impl Regions {
    pub fn allocate(&mut self, bytes: usize) -> Result<RegionId> {
        let bytes = bytes.max(1).checked_next_multiple_of(PAGE).filter(|bytes| *bytes <= isize::MAX as usize);
        let map = MmapRaw::from(MmapOptions::new().len(bytes.ok_or(Kind::SizeOverflow)?).map_anon()?);
        let start = NonNull::new(map.as_mut_ptr()).ok_or(Kind::Bug)?;
        self.add(Region { start, bytes: map.len(), users: 0, owned: Some(Arc::new(map)) })
    }

    /// # Safety
    /// As for [`Fabric::register`](crate::fabric::Fabric::register).
    pub unsafe fn register(&mut self, start: NonNull<u8>, bytes: usize) -> Result<RegionId> {
        if bytes > isize::MAX as usize || start.addr().get().checked_add(bytes).is_none() {
            return Err(Kind::SizeOverflow.into());
        }
        self.add(Region { start, bytes, users: 0, owned: None })
    }

    fn add(&mut self, region: Region) -> Result<RegionId> {
        let number = self.next;
        self.next = number.checked_add(1).ok_or(Kind::NoSpace)?;
        self.known.insert(number, region);
        Ok(RegionId(number))
    }

    pub fn release(&mut self, region: RegionId) -> Result<()> {
        match self.known.get(&region.0) {
            None => Err(Kind::InvalidArgument.into()),
            Some(known) if known.users > 0 => Err(Kind::InvalidUsage.into()),
            Some(_) => {
                self.known.remove(&region.0);
                Ok(())
            }
        }
    }

    pub fn view(&self, region: RegionId) -> Option<View> {
        self.known.get(&region.0).map(|known| View { start: known.start, bytes: known.bytes })
    }

    pub fn keep(&self, region: RegionId) -> Option<Arc<dyn Any + Send + Sync>> {
        let map = self.known.get(&region.0)?.owned.clone()?;
        Some(map)
    }

    /// An operation of ours begins to use the region.
    pub fn hold(&mut self, region: RegionId) {
        if let Some(known) = self.known.get_mut(&region.0) {
            known.users += 1;
        }
    }

    /// It has ended.
    pub fn let_go(&mut self, region: RegionId) {
        if let Some(known) = self.known.get_mut(&region.0) {
            known.users -= 1;
        }
    }

    /// Whether the span lies in a region of ours.
    pub fn check(&self, span: Span) -> Result<()> {
        self.place(span).map(drop)
    }

    pub fn read(&self, span: Span) -> Result<Vec<u8>> {
        let from = self.place(span)?;
        let bytes = span.bytes as usize;
        let mut data = Vec::<u8>::with_capacity(bytes);
        // SAFETY: `place` found `bytes` bytes from here on within a live region; `data` has room for as many.
        unsafe {
            data.as_mut_ptr().copy_from_nonoverlapping(from.as_ptr(), bytes);
            data.set_len(bytes);
        }
        Ok(data)
    }

    /// Store all of `data` from `offset` on. One aligned word is stored as one: it may be what somebody looks at.
    pub fn write(&self, region: RegionId, offset: u64, data: &[u8]) -> Result<()> {
        let to = self.place(Span { region, offset, bytes: data.len() as u64 })?;
        match <[u8; 8]>::try_from(data) {
            Ok(word) if to.addr().get().is_multiple_of(8) => {
                // SYNC fake.store -> observer's acquire of this word: the link's earlier writes are visible.
                // SAFETY: eight aligned bytes of a live region.
                unsafe { AtomicU64::from_ptr(to.as_ptr().cast()).store(u64::from_ne_bytes(word), Release) }
            }
            // SAFETY: `place` found room for all of `data` within a live region; frames lie outside of regions.
            _ => unsafe { to.as_ptr().copy_from_nonoverlapping(data.as_ptr(), data.len()) },
        }
        Ok(())
    }

    pub fn fetch_add(&self, region: RegionId, offset: u64, add: u64) -> Result<u64> {
        // SYNC fake.atomic -> fake.atomic: the word alone is passed on, in one order for all.
        self.word(region, offset).map(|word| word.fetch_add(add, AcqRel))
    }

    pub fn compare_swap(&self, region: RegionId, offset: u64, expected: u64, desired: u64) -> Result<u64> {
        let word = self.word(region, offset)?;
        // SYNC fake.atomic -> fake.atomic: as above.
        Ok(word.compare_exchange(expected, desired, AcqRel, Acquire).unwrap_or_else(|before| before))
    }

    fn word(&self, region: RegionId, offset: u64) -> Result<&AtomicU64> {
        let place = self.place(Span { region, offset, bytes: 8 })?;
        if !place.addr().get().is_multiple_of(8) {
            return Err(Kind::AccessDenied.into());
        }
        // SAFETY: eight aligned bytes of a region that lives as long as `self` is borrowed.
        Ok(unsafe { AtomicU64::from_ptr(place.as_ptr().cast()) })
    }

    fn place(&self, span: Span) -> Result<NonNull<u8>> {
        let region = self.known.get(&span.region.0).ok_or(Kind::InvalidArgument)?;
        within(span.offset, span.bytes, region.bytes as u64)?;
        // SAFETY: `offset` is at most the length of the region, which is one allocation.
        Ok(unsafe { region.start.add(span.offset as usize) })
    }
}

/// Whether `offset + bytes` is at most `limit`, without overflow.
pub(super) fn within(offset: u64, bytes: u64, limit: u64) -> Result<()> {
    match offset.checked_add(bytes) {
        Some(end) if end <= limit => Ok(()),
        _ => Err(Kind::AccessDenied.into()),
    }
}

/// What allocations are rounded up and aligned to.
const PAGE: usize = 4096;
