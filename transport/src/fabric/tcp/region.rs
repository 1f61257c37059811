//! Local memory, and what peers may do with it.

use core::{
    hash::{BuildHasherDefault, Hasher},
    ptr::NonNull,
};
use std::{collections::HashMap, sync::Arc};

use memmap2::MmapMut;

use crate::{
    Kind, Result,
    fabric::{Access, Key, RegionId, Span, View},
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
    /// Links that it was advertised to; some may be gone.
    holders: Vec<u32>,
    /// It ends with its last user: see [`Regions::copy`].
    is_scratch: bool,
    /// A revocation has not been reported.
    is_ending: bool,
}

impl Region {
    fn new(start: NonNull<u8>, bytes: usize, owned: Option<MmapMut>) -> Self {
        let owned = owned.map(Arc::new);
        Self { start, bytes, users: 0, owned, holders: Vec::new(), is_scratch: false, is_ending: false }
    }
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
        self.insert(Region::new(start, owned.len(), Some(owned)))
    }

    /// What `span` holds now, in a region of its own with one user. It is gone when that has ended.
    pub(super) fn copy(&mut self, span: Span) -> Result<Span> {
        let from = self.memory(span)?;
        let region = self.allocate(from.iov_len)?;
        let copy = self.table.get_mut(&region.0).ok_or(Kind::Bug)?;
        (copy.users, copy.is_scratch) = (1, true);
        // SAFETY: `memory` has found `from` in a valid region, and the copy is new and at least as long.
        unsafe { core::ptr::copy_nonoverlapping(from.iov_base.cast(), copy.start.as_ptr(), from.iov_len) };
        Ok(Span { region, offset: 0, bytes: span.bytes })
    }

    /// Foreign memory.
    ///
    /// # Safety
    /// As for [`Fabric::register`](crate::fabric::Fabric::register).
    pub(super) unsafe fn register(&mut self, start: NonNull<u8>, bytes: usize) -> Result<RegionId> {
        if (start.as_ptr() as usize).checked_add(bytes).is_none() {
            return Err(Kind::SizeOverflow.into());
        }
        self.insert(Region::new(start, bytes, None))
    }

    fn insert(&mut self, region: Region) -> Result<RegionId> {
        let id = self.next;
        self.next = id.checked_add(1).ok_or(Kind::NoSpace)?;
        self.table.insert(id, region);
        Ok(RegionId(id))
    }

    /// Whether a region may be forgotten: no operation of ours uses it, and no revocation of it is unreported.
    pub(super) fn check_free(&self, id: RegionId) -> Result<()> {
        match self.table.get(&id.0) {
            None => Err(Kind::InvalidArgument.into()),
            Some(region) if region.users > 0 || region.is_ending => Err(Kind::InvalidUsage.into()),
            Some(_) => Ok(()),
        }
    }

    /// Forget a region that is free.
    pub(super) fn release(&mut self, id: RegionId) -> Result<()> {
        self.check_free(id)?;
        self.table.remove(&id.0);
        Ok(())
    }

    /// A revocation begins.
    pub(super) fn begin_end(&mut self, id: RegionId) -> Result<()> {
        match self.table.get_mut(&id.0) {
            None => Err(Kind::InvalidArgument.into()),
            Some(region) if region.is_ending => Err(Kind::InvalidUsage.into()),
            Some(region) => {
                region.is_ending = true;
                Ok(())
            }
        }
    }

    /// A revocation has been reported.
    pub(super) fn finish_end(&mut self, id: RegionId) {
        if let Some(region) = self.table.get_mut(&id.0) {
            region.is_ending = false;
        }
    }

    /// The region is about to be advertised to a link: its length.
    pub(super) fn show(&mut self, id: RegionId, link: u32) -> Result<u64> {
        let region = self.table.get_mut(&id.0).ok_or(Kind::InvalidArgument)?;
        if region.is_ending {
            return Err(Kind::InvalidUsage.into());
        }
        if !region.holders.contains(&link) {
            region.holders.push(link);
        }
        Ok(region.bytes as u64)
    }

    /// The links that the region was advertised to. None of them has a key any more.
    pub(super) fn take_holders(&mut self, id: RegionId) -> Vec<u32> {
        self.table.get_mut(&id.0).map(|region| core::mem::take(&mut region.holders)).unwrap_or_default()
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
        let Some(region) = self.table.get_mut(&id.0) else { return };
        region.users -= 1;
        if region.is_scratch && region.users == 0 {
            self.table.remove(&id.0);
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
///
/// A key names a slot and its nonce. A slot counts its nonces up from one that differs between links, so a void key is
/// never valid again (FE-6); a slot that has used up all of them is not used any more.
#[derive(Debug, Default)]
pub(super) struct Grants {
    slots: Vec<Slot>,
    free: Vec<u32>,
    /// The first grant of each region; they are chained.
    first: Table<u32>,
    origin: u32,
}

#[derive(Clone, Copy, Debug)]
struct Slot {
    nonce: u32,
    grant: Option<Grant>,
}

/// What a valid key allows.
#[derive(Clone, Copy, Debug)]
pub(super) struct Grant {
    pub(super) region: RegionId,
    pub(super) access: Access,
    next: Option<u32>,
}

/// A peer's advertisement, imported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Remote {
    pub(super) link: u32,
    pub(super) claim: Claim,
}

/// What a key says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Claim {
    pub(super) grant: u32,
    pub(super) nonce: u32,
    pub(super) access: Access,
    pub(super) bytes: u64,
}

impl Grants {
    /// Nonces begin after `origin`.
    pub(super) fn new(origin: u32) -> Self {
        Self { origin, ..Self::default() }
    }

    /// Let the peer use `region`: grant and nonce, the same as before if it may already.
    pub(super) fn add(&mut self, region: RegionId, access: Access) -> Result<(u32, u32)> {
        let first = self.first.get(&region.0).copied();
        if let Some(known) = self.chain(first).find(|(_, grant)| grant.access == access) {
            return Ok((known.0, self.slots[known.0 as usize].nonce));
        }
        let place = match self.free.pop() {
            Some(place) => place,
            None => {
                self.slots.push(Slot { nonce: self.origin, grant: None });
                u32::try_from(self.slots.len() - 1).map_err(|_| Kind::NoSpace)?
            }
        };
        let slot = &mut self.slots[place as usize];
        slot.nonce = slot.nonce.wrapping_add(1);
        slot.grant = Some(Grant { region, access, next: first });
        let nonce = slot.nonce;
        self.first.insert(region.0, place);
        Ok((place, nonce))
    }

    /// All grants of the region are void; whether there were any.
    pub(super) fn remove(&mut self, region: RegionId) -> bool {
        let mut next = self.first.remove(&region.0);
        let any = next.is_some();
        while let Some(place) = next {
            let slot = &mut self.slots[place as usize];
            next = slot.grant.take().and_then(|grant| grant.next);
            if slot.nonce.wrapping_add(1) != self.origin {
                self.free.push(place);
            }
        }
        any
    }

    fn chain(&self, first: Option<u32>) -> impl Iterator<Item = (u32, Grant)> + '_ {
        let grant = |place: u32| Some((place, self.slots.get(place as usize)?.grant?));
        core::iter::successors(first.and_then(grant), move |(_, last)| grant(last.next?))
    }

    /// What a frame may do that names this grant.
    pub(super) fn find(&self, grant: u32, nonce: u32) -> Result<Grant> {
        match self.slots.get(grant as usize) {
            Some(Slot { nonce: known, grant: Some(grant) }) if *known == nonce => Ok(*grant),
            _ => Err(Kind::AccessDenied.into()),
        }
    }
}

/// The bytes of a key: {"VTK1", grant, nonce, rights, bytes, check}. The check covers the link, so that a key of another link is
/// noticed.
pub(super) fn emit_key(claim: &Claim, link: u64) -> Key {
    let mut key = [0; 32];
    key[..4].copy_from_slice(b"VTK1");
    key[4..8].copy_from_slice(&claim.grant.to_le_bytes());
    key[8..12].copy_from_slice(&claim.nonce.to_le_bytes());
    let place = RIGHTS.iter().position(|access| *access == claim.access).unwrap_or_default() as u32;
    key[12..16].copy_from_slice(&(place + 1).to_le_bytes());
    key[16..24].copy_from_slice(&claim.bytes.to_le_bytes());
    let check = check_of(&key[..24], link);
    key[24..].copy_from_slice(&check.to_le_bytes());
    Key(key)
}

/// What a key says.
pub(super) fn parse_key(key: &Key, link: u64) -> Result<Claim> {
    let key = &key.0;
    let u32_at = |at: usize| u32::from_le_bytes(key[at..at + 4].try_into().expect("four bytes"));
    let u64_at = |at: usize| u64::from_le_bytes(key[at..at + 8].try_into().expect("eight bytes"));
    if key[..4] != *b"VTK1" || u64_at(24) != check_of(&key[..24], link) {
        return Err(Kind::Corrupt.into());
    }
    let access = (u32_at(12) as usize).checked_sub(1).and_then(|place| RIGHTS.get(place)).ok_or(Kind::Corrupt)?;
    Ok(Claim { grant: u32_at(4), nonce: u32_at(8), access: *access, bytes: u64_at(16) })
}

/// Rights by their number in a key, from 1.
const RIGHTS: [Access; 3] = [Access::Read, Access::Write, Access::ReadWrite];

/// FNV-1a. Against mistakes, not against attackers: what a peer may touch is decided by the grants of its link.
fn check_of(bytes: &[u8], link: u64) -> u64 {
    let fold = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3);
    bytes.iter().fold(link ^ 0xcbf2_9ce4_8422_2325, fold)
}

#[cfg(test)]
mod tests {
    use super::*;

    const REGION: RegionId = RegionId(7);

    #[test]
    fn grants_of_a_region_end_together_and_their_keys_never_come_back() {
        let mut grants = Grants::new(u32::MAX - 1);
        let all: Vec<_> = RIGHTS.iter().map(|access| grants.add(REGION, *access).unwrap()).collect();
        let other = grants.add(RegionId(8), Access::Read).unwrap();
        assert_eq!(grants.add(REGION, Access::Write).unwrap(), all[1]);
        for ((grant, nonce), access) in all.iter().zip(RIGHTS) {
            assert_eq!(grants.find(*grant, *nonce).unwrap().access, access);
        }
        assert!(grants.remove(REGION) && !grants.remove(REGION));
        for _ in 0..5 {
            grants.add(REGION, Access::Read).unwrap();
            assert!(all.iter().all(|(grant, nonce)| grants.find(*grant, *nonce).is_err()));
            grants.remove(REGION);
        }
        assert!(grants.find(other.0, other.1).is_ok());
        assert_eq!(grants.slots.len(), 4);
    }

    #[test]
    fn slot_whose_nonces_are_used_up_is_not_used_again() {
        let mut grants = Grants::new(5);
        let first = grants.add(REGION, Access::Read).unwrap();
        assert_eq!(first, (0, 6));
        grants.slots[0].nonce = 4;
        grants.remove(REGION);
        assert_eq!(grants.add(REGION, Access::Read).unwrap(), (1, 6));
    }

    #[test]
    fn copy_ends_with_its_user() {
        let mut regions = Regions::default();
        let region = regions.allocate(100).unwrap();
        let copy = regions.copy(Span { region, offset: 1, bytes: 10 }).unwrap();
        assert!(regions.memory(copy).is_ok());
        regions.drop_hold(copy.region);
        assert!(regions.memory(copy).is_err() && regions.release(region).is_ok());
    }
}
