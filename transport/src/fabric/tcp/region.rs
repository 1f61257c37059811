//! Local memory, and what peers may do with it.

use core::{
    hash::{BuildHasherDefault, Hasher},
    ptr::NonNull,
};
use std::{collections::HashMap, sync::Arc};

use memmap2::MmapMut;

use crate::{
    Kind, Result,
    fabric::{Key, RegionId, Span, View},
    sync::{AtomicU32, AtomicU64, Ordering},
};

/// Identifiers count up: they are their own hash.
#[derive(Debug, Default)]
pub(super) struct Plain(u64);

impl Hasher for Plain {
    fn finish(&self) -> u64 {
        // Tables take their control bits from the top and their place from the bottom.
        self.0.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(32)
    }
    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.0 = self.0 << 8 | u64::from(*byte));
    }
    fn write_u32(&mut self, value: u32) {
        self.0 = value.into();
    }
}

/// A table by identifier.
pub(super) type Table<T> = HashMap<u32, T, BuildHasherDefault<Plain>>;

#[derive(Debug)]
struct Region {
    start: NonNull<u8>,
    bytes: usize,
    /// Operations of ours that use it.
    users: u32,
    /// The mapping, if it is ours.
    owned: Option<Arc<MmapMut>>,
}

/// All regions of a fabric.
#[derive(Debug, Default)]
pub(super) struct Regions {
    table: Table<Region>,
    next: u32,
}

// SAFETY: the pointers are to memory that `register`'s caller keeps valid for this fabric, on whichever thread that runs.
unsafe impl Send for Regions {}

impl Regions {
    /// Zeroed pages.
    pub(super) fn allocate(&mut self, bytes: usize) -> Result<RegionId> {
        const PAGE: usize = 4096;
        let bytes = bytes.max(1).checked_next_multiple_of(PAGE).filter(|bytes| *bytes <= isize::MAX as usize);
        let mut owned = MmapMut::map_anon(bytes.ok_or(Kind::SizeOverflow)?)?;
        let start = NonNull::new(owned.as_mut_ptr()).ok_or(Kind::Bug)?;
        self.insert(Region { start, bytes: owned.len(), users: 0, owned: Some(Arc::new(owned)) })
    }

    /// Foreign memory.
    ///
    /// # Safety
    /// As for [`Fabric::register`](crate::fabric::Fabric::register).
    pub(super) unsafe fn register(&mut self, start: NonNull<u8>, bytes: usize) -> Result<RegionId> {
        if (start.as_ptr() as usize).checked_add(bytes).is_none() {
            return Err(Kind::SizeOverflow.into());
        }
        self.insert(Region { start, bytes, users: 0, owned: None })
    }

    fn insert(&mut self, region: Region) -> Result<RegionId> {
        let id = self.next;
        self.next = id.checked_add(1).ok_or(Kind::NoSpace)?;
        self.table.insert(id, region);
        Ok(RegionId(id))
    }

    /// Forget a region that no operation of ours uses.
    pub(super) fn release(&mut self, id: RegionId) -> Result<()> {
        match self.table.get(&id.0) {
            None => Err(Kind::InvalidArgument.into()),
            Some(region) if region.users > 0 => Err(Kind::InvalidUsage.into()),
            Some(_) => {
                self.table.remove(&id.0);
                Ok(())
            }
        }
    }

    pub(super) fn view(&self, id: RegionId) -> Option<View> {
        self.table.get(&id.0).map(|region| View { start: region.start, bytes: region.bytes })
    }

    /// The mapping of an allocated region.
    pub(super) fn keep(&self, id: RegionId) -> Option<Arc<MmapMut>> {
        self.table.get(&id.0)?.owned.clone()
    }

    /// Whether `span` lies in a region.
    pub(super) fn check(&self, span: Span) -> Result<()> {
        let region = self.table.get(&span.region.0).ok_or(Kind::InvalidArgument)?;
        within(span.offset, span.bytes, region.bytes as u64)
    }

    /// An operation of ours begins to use the region.
    pub(super) fn hold(&mut self, id: RegionId) {
        if let Some(region) = self.table.get_mut(&id.0) {
            region.users += 1;
        }
    }

    /// An operation of ours has ended.
    pub(super) fn drop_hold(&mut self, id: RegionId) {
        if let Some(region) = self.table.get_mut(&id.0) {
            region.users -= 1;
        }
    }

    /// The memory of `span`, as the system calls take it.
    pub(super) fn memory(&self, span: Span) -> Result<libc::iovec> {
        self.check(span)?;
        let region = &self.table[&span.region.0];
        // SAFETY: `check` has found `offset` + `bytes` within the region, which is one valid range.
        let start = unsafe { region.start.as_ptr().add(span.offset as usize) };
        Ok(libc::iovec { iov_base: start.cast(), iov_len: span.bytes as usize })
    }

    /// Store `bytes` at the start of `span`, words of 4 and 8 bytes at once.
    pub(super) fn store(&self, span: Span, bytes: &[u8]) -> Result<()> {
        let memory = self.memory(Span { bytes: bytes.len() as u64, ..span })?;
        let start = memory.iov_base.cast::<u8>();
        match bytes {
            [a, b, c, d] if start.addr().is_multiple_of(4) => {
                // SAFETY: four bytes, aligned by the guard, in a region that is valid for reads and writes.
                let word = unsafe { &*start.cast::<AtomicU32>() };
                // SYNC tcp.store -> reader of the region: the writes before this one are visible to who sees the word.
                word.store(u32::from_ne_bytes([*a, *b, *c, *d]), Ordering::Release);
            }
            _ if bytes.len() == 8 && start.addr().is_multiple_of(8) => {
                let value = u64::from_ne_bytes(bytes.try_into().expect("eight bytes by the guard"));
                // SAFETY: eight bytes, aligned by the guard, in a region that is valid for reads and writes.
                let word = unsafe { &*start.cast::<AtomicU64>() };
                // SYNC tcp.store -> reader of the region: the writes before this one are visible to who sees the word.
                word.store(value, Ordering::Release);
            }
            // SAFETY: `memory` is a valid range of that length in a region; `bytes` is a read-ahead buffer outside all regions.
            _ => unsafe { core::ptr::copy_nonoverlapping(bytes.as_ptr(), start, bytes.len()) },
        }
        Ok(())
    }

    /// The word at `offset`, for an atomic.
    pub(super) fn word(&self, region: RegionId, offset: u64) -> Result<&AtomicU64> {
        let memory = self.memory(Span { region, offset, bytes: 8 })?;
        if !memory.iov_base.addr().is_multiple_of(8) {
            return Err(Kind::AccessDenied.into());
        }
        // SAFETY: eight aligned bytes of a region, which is valid for reads and writes while `self` holds it.
        Ok(unsafe { &*memory.iov_base.cast::<AtomicU64>() })
    }
}

/// Whether `offset + bytes` is at most `limit`, without overflow.
pub(super) fn within(offset: u64, bytes: u64, limit: u64) -> Result<()> {
    match offset.checked_add(bytes) {
        Some(end) if end <= limit => Ok(()),
        _ => Err(Kind::AccessDenied.into()),
    }
}

/// What one peer may use: its advertisements on one link.
#[derive(Debug, Default)]
pub(super) struct Grants(Vec<Option<Grant>>);

#[derive(Clone, Copy, Debug)]
struct Grant {
    region: RegionId,
    nonce: u32,
}

/// A peer's advertisement, imported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Remote {
    pub(super) link: u32,
    pub(super) grant: u32,
    pub(super) nonce: u32,
    pub(super) bytes: u64,
}

impl Grants {
    /// Let the peer use `region`.
    pub(super) fn add(&mut self, region: RegionId, nonce: u32) -> u32 {
        let grant = Some(Grant { region, nonce });
        let free = self.0.iter().position(Option::is_none).unwrap_or(self.0.len());
        if free == self.0.len() {
            self.0.push(grant);
        } else {
            self.0[free] = grant;
        }
        free as u32
    }

    /// The region is gone.
    pub(super) fn remove(&mut self, region: RegionId) {
        self.0
            .iter_mut()
            .filter(|grant| grant.is_some_and(|grant| grant.region == region))
            .for_each(|grant| *grant = None);
    }

    /// The region that a frame means.
    pub(super) fn find(&self, grant: u32, nonce: u32) -> Result<RegionId> {
        match self.0.get(grant as usize) {
            Some(Some(grant)) if grant.nonce == nonce => Ok(grant.region),
            _ => Err(Kind::AccessDenied.into()),
        }
    }
}

/// The bytes of a key: {"VTK1", grant, nonce, 0, bytes, check}. The check covers the link, so that a key of another link is noticed.
pub(super) fn emit_key(grant: u32, nonce: u32, bytes: u64, link: u64) -> Key {
    let mut key = [0; 32];
    key[..4].copy_from_slice(b"VTK1");
    key[4..8].copy_from_slice(&grant.to_le_bytes());
    key[8..12].copy_from_slice(&nonce.to_le_bytes());
    key[16..24].copy_from_slice(&bytes.to_le_bytes());
    let check = check_of(&key[..24], link);
    key[24..].copy_from_slice(&check.to_le_bytes());
    Key(key)
}

/// What a key says: grant, nonce, bytes.
pub(super) fn parse_key(key: &Key, link: u64) -> Result<(u32, u32, u64)> {
    let key = &key.0;
    let u32_at = |at: usize| u32::from_le_bytes(key[at..at + 4].try_into().expect("four bytes"));
    let u64_at = |at: usize| u64::from_le_bytes(key[at..at + 8].try_into().expect("eight bytes"));
    if key[..4] != *b"VTK1" || key[12..16] != [0; 4] || u64_at(24) != check_of(&key[..24], link) {
        return Err(Kind::Corrupt.into());
    }
    Ok((u32_at(4), u32_at(8), u64_at(16)))
}

/// FNV-1a. Against mistakes, not against attackers: what a peer may touch is decided by its nonces.
fn check_of(bytes: &[u8], link: u64) -> u64 {
    let fold = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3);
    bytes.iter().fold(link ^ 0xcbf2_9ce4_8422_2325, fold)
}
