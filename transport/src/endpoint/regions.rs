//! The tables of regions: ours, with their rights, and those that peers opened to us.

use alloc::{sync::Arc, vec, vec::Vec};
use core::ops::Deref;
use core::ptr::NonNull;

use super::memory::{Exposed, Local, Quarantined, Refused, Region, RegionKey, Shared};
use super::pages::PageList;
use super::table::NONE;
use super::{Access, Endpoint, PeerId};
use crate::{
    Error, Kind, Result, Time,
    fabric::{Key, RegionId, RemoteId},
    wire::advert::{self, ADVERT},
};

/// What a peer needs to use memory of ours: bytes to be sent over any channel that others cannot change. For one peer alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Advert([u8; ADVERT]);

impl Deref for Advert {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.0
    }
}

/// Memory of a peer that it opened to us. A plain value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RemoteRegion {
    index: u32,
    generation: u32,
    /// Whose it is, to say why a region that is no more cannot be used.
    pub(super) peer: PeerId,
    bytes: u64,
}

impl RemoteRegion {
    /// Its size, in bytes.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// These pages, counted from its start.
    pub fn pages(self, list: PageList<'_>) -> RemotePages<'_> {
        RemotePages { region: self, list }
    }

    /// The place this many bytes after its start.
    pub fn at(self, offset: u64) -> RemoteSpan {
        RemoteSpan { region: self, offset }
    }
}

/// Pages of a peer's region.
#[derive(Clone, Copy, Debug)]
pub struct RemotePages<'a> {
    pub(super) region: RemoteRegion,
    pub(super) list: PageList<'a>,
}

/// A place in a peer's memory. How far a transfer reaches from there is said by its local side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RemoteSpan {
    pub(super) region: RemoteRegion,
    pub(super) offset: u64,
}

/// A region of ours.
#[derive(Debug)]
struct Registered {
    shared: Option<Arc<Shared>>,
    generation: u32,
    /// By backend; `NONE` where it is not registered yet.
    ids: Vec<u32>,
    /// Transfers that use it.
    uses: u32,
    /// Its owner has dropped it.
    dropped: bool,
    /// Backends that gave keys for it.
    keys: u32,
    revoking: Revoking,
}

/// Where the revocation of a region stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Revoking {
    No,
    /// These backends have not answered.
    Waiting {
        backends: u32,
        error: Option<Error>,
    },
    Over(Option<Error>),
}

/// A peer's region.
#[derive(Clone, Copy, Debug)]
struct Opened {
    generation: u32,
    peer: PeerId,
    remote: RemoteId,
    access: Access,
    is_open: bool,
}

/// All of them.
#[derive(Debug)]
pub(super) struct Regions {
    /// Differs between endpoints.
    endpoint: u64,
    ours: Vec<Registered>,
    free: Vec<u32>,
    theirs: Vec<Opened>,
    free_theirs: Vec<u32>,
    /// Revocations that fabrics have not answered: backend, its number for the region, and ours.
    asked: Vec<(usize, RegionId, u32)>,
    backends: usize,
}

impl Regions {
    pub fn new(endpoint: u64, backends: usize) -> Self {
        Self {
            endpoint,
            ours: Vec::new(),
            free: Vec::new(),
            theirs: Vec::new(),
            free_theirs: Vec::new(),
            asked: Vec::new(),
            backends,
        }
    }

    #[inline]
    fn find(&self, local: Local) -> Result<&Registered> {
        let known = self.ours.get(local.region.index as usize);
        let known =
            known.filter(|known| known.generation == local.region.generation && local.endpoint == self.endpoint);
        known.ok_or(Error::new(Kind::InvalidArgument))
    }

    #[inline]
    pub fn remote(&self, span: RemoteSpan) -> Result<(PeerId, RemoteId, Access)> {
        let known = self.theirs.get(span.region.index as usize);
        let known = known.filter(|known| known.is_open && known.generation == span.region.generation);
        known.map(|known| (known.peer, known.remote, known.access)).ok_or(Error::new(Kind::InvalidArgument))
    }

    /// A transfer uses the region.
    #[inline]
    pub fn add_use(&mut self, index: u32) {
        self.ours[index as usize].uses += 1;
    }

    /// Close a peer's region.
    fn close(&mut self, index: u32) {
        let opened = &mut self.theirs[index as usize];
        opened.is_open = false;
        opened.generation = opened.generation.wrapping_add(1);
        self.free_theirs.push(index);
    }

    fn add(&mut self, place: (NonNull<u8>, usize), owner: Owner, dropped: &Arc<super::Dropped>) -> Result<Region> {
        let index = match self.free.pop() {
            Some(index) => index,
            None => {
                let index = u32::try_from(self.ours.len()).map_err(|_| Kind::NoSpace)?;
                let ids = vec![NONE; self.backends];
                let none = Revoking::No;
                self.ours.push(Registered {
                    shared: None,
                    generation: 0,
                    ids,
                    uses: 0,
                    dropped: false,
                    keys: 0,
                    revoking: none,
                });
                index
            }
        };
        let known = &mut self.ours[index as usize];
        let key = RegionKey { index, generation: known.generation };
        let shared = Arc::new(Shared::new(self.endpoint, key, place, owner, dropped.clone()));
        known.shared = Some(shared.clone());
        Ok(Region { shared })
    }

    fn set_id(&mut self, index: u32, backend: usize, id: RegionId) {
        self.ours[index as usize].ids[backend] = id.0;
    }
}

type Owner = Option<Arc<dyn core::any::Any + Send + Sync>>;

impl Endpoint {
    /// Zeroed, page-aligned memory of at least `bytes` bytes, in the way that peers reach best.
    ///
    /// # Errors
    /// `NoSpace` if there is not so much.
    pub fn allocate(&mut self, bytes: usize) -> Result<Region> {
        let home = self.backends.iter().position(|fabric| fabric.capabilities().mapped).unwrap_or(0);
        let fabric = &mut self.backends[home];
        let id = fabric.allocate(bytes)?;
        let (view, owner) = fabric.memory(id).zip(fabric.keep(id)).ok_or(Kind::Bug)?;
        let region = self.regions.add((view.start, view.bytes), Some(owner), &self.dropped)?;
        self.regions.set_id(region.shared.key.index, home, id);
        Ok(region)
    }

    /// Memory of yours, as it is. Peers on the same host can only read it, unless they use a fabric that does not map memory: what peers are to
    /// write is better allocated here.
    ///
    /// # Safety
    /// - `[start, start + bytes)` stays valid for reads until [`Endpoint::release`] has taken the region back or the endpoint is dropped, also
    ///   if the region is dropped before.
    /// - It is valid for writes too, unless nothing writes there: no [`Region::copy_in`], no [`Endpoint::bytes_mut`], no
    ///   [`Endpoint::read`] into it, and no right to write for a peer. So memory that is only a source may be mapped read-only.
    /// - Nobody holds a reference to it that conflicts with the transfers that use it.
    ///
    /// # Errors
    /// `SizeOverflow` for a range that wraps around, and what the fabric says.
    pub unsafe fn register_raw(&mut self, start: NonNull<u8>, bytes: usize) -> Result<Region> {
        if bytes > isize::MAX as usize || start.addr().get().checked_add(bytes).is_none() {
            return Err(Kind::SizeOverflow.into());
        }
        self.regions.add((start, bytes), None, &self.dropped)
    }

    /// Forget a region at once.
    ///
    /// # Errors
    /// Gives the region back: `InvalidUsage` while a transfer uses it, `InvalidArgument` for a region of another endpoint.
    pub fn release(&mut self, region: Region) -> Result<(), Refused<Region>> {
        let error = match self.regions.find(region.all()) {
            Err(error) => Some(error),
            Ok(known) => (known.uses > 0).then_some(Kind::InvalidUsage.into()),
        };
        if let Some(error) = error {
            return Err(Refused { value: region, error });
        }
        drop(region);
        self.collect();
        Ok(())
    }

    /// Borrow a region's bytes.
    ///
    /// # Errors
    /// `InvalidUsage` while a transfer uses the region, `InvalidArgument` for a region of another endpoint.
    pub fn bytes<'a>(&'a self, region: &'a Region) -> Result<&'a [u8]> {
        self.check_idle(region)?;
        // SAFETY: no transfer uses the region, none can start while the endpoint is borrowed, no peer has access, and the
        // region, which alone can write, is borrowed.
        Ok(unsafe { core::slice::from_raw_parts(region.as_ptr(), region.bytes()) })
    }

    /// Borrow a region's bytes to change them.
    ///
    /// # Errors
    /// As for [`Endpoint::bytes`].
    pub fn bytes_mut<'a>(&'a mut self, region: &'a mut Region) -> Result<&'a mut [u8]> {
        self.check_idle(region)?;
        // SAFETY: as in `bytes`; the region is borrowed for writing.
        Ok(unsafe { core::slice::from_raw_parts_mut(region.as_ptr(), region.bytes()) })
    }

    fn check_idle(&self, region: &Region) -> Result<()> {
        if self.regions.find(region.all())?.uses > 0 { Err(Kind::InvalidUsage.into()) } else { Ok(()) }
    }

    /// The region's number on the fabric of a peer, where it is registered by its first use.
    #[inline]
    pub(super) fn region_on(&mut self, backend: usize, local: Local) -> Result<RegionId> {
        let known = self.regions.find(local)?;
        match known.ids[backend] {
            NONE => self.register_on(backend, local.region.index),
            id => Ok(RegionId(id)),
        }
    }

    fn register_on(&mut self, backend: usize, index: u32) -> Result<RegionId> {
        let shared = self.regions.ours[index as usize].shared.as_ref().ok_or(Kind::Bug)?;
        // SAFETY: the memory is owned by `shared`, which outlives the registration (see `free`), or its owner has promised in
        // `register_raw`.
        let id = unsafe { self.backends[backend].register(shared.start, shared.bytes) }?;
        self.regions.set_id(index, backend, id);
        Ok(id)
    }

    /// Open a region to a peer. From here on its bytes can be copied, not borrowed.
    ///
    /// # Errors
    /// Gives the region back: the peer is not up, the region is of another endpoint, or the fabric refused.
    pub fn advertise(
        &mut self,
        region: Region,
        peer: PeerId,
        access: Access,
    ) -> Result<(Exposed, Advert), Refused<Region>> {
        match self.advert(region.all(), peer, access) {
            Ok(advert) => Ok((Exposed { region }, advert)),
            Err(error) => Err(Refused { value: region, error }),
        }
    }

    /// Open an exposed region to one more peer, or to the same one with other rights.
    ///
    /// # Errors
    /// As for [`Endpoint::advertise`].
    pub fn advertise_also(&mut self, exposed: &Exposed, peer: PeerId, access: Access) -> Result<Advert> {
        self.advert(exposed.all(), peer, access)
    }

    fn advert(&mut self, local: Local, peer: PeerId, access: Access) -> Result<Advert> {
        let known = self.peers.up(peer)?;
        let (backend, link) = (usize::from(known.backend), known.link);
        let id = self.region_on(backend, local)?;
        let Key(key) = self.backends[backend].advertise(link, id, access)?;
        self.regions.ours[local.region.index as usize].keys |= 1 << backend;
        let access = u32::from(access.reads()) | u32::from(access.writes()) << 1;
        Ok(Advert(advert::Advert { owner: self.who, access, bytes: local.bytes, key }.emit()))
    }

    /// Use memory that a peer advertised to us.
    ///
    /// # Errors
    /// `Corrupt`, `VersionMismatch` or `AccessDenied` for bytes that are no advertisement of this peer to us; `Stale` if it belongs to another
    /// peer or to an earlier start of this one.
    pub fn open_region(&mut self, peer: PeerId, advert: &[u8]) -> Result<RemoteRegion> {
        let advert = advert::Advert::parse(advert)?;
        let known = self.peers.up(peer)?;
        if advert.owner != known.who {
            return Err(Kind::Stale.into());
        }
        let access = match advert.access {
            1 => Access::Read,
            2 => Access::Write,
            _ => Access::ReadWrite,
        };
        let (backend, link) = (usize::from(known.backend), known.link);
        let remote = self.backends[backend].import(link, &Key(advert.key))?;
        let generation = 0;
        let opened = Opened { generation, peer, remote, access, is_open: true };
        let index = match self.regions.free_theirs.pop() {
            Some(index) => {
                let slot = &mut self.regions.theirs[index as usize];
                *slot = Opened { generation: slot.generation, ..opened };
                index
            }
            None => {
                self.regions.theirs.push(opened);
                (self.regions.theirs.len() - 1) as u32
            }
        };
        let generation = self.regions.theirs[index as usize].generation;
        Ok(RemoteRegion { index, generation, peer, bytes: advert.bytes })
    }

    /// Forget a peer's region.
    ///
    /// # Errors
    /// `InvalidArgument` if it is not open.
    pub fn close_region(&mut self, region: RemoteRegion) -> Result<()> {
        let (peer, remote, _) = self.regions.remote(region.at(0))?;
        self.regions.close(region.index);
        let backend = usize::from(self.peers.get(peer).backend);
        self.backends[backend].forget(remote)
    }

    /// A peer is gone, and what it opened.
    pub(super) fn close_regions_of(&mut self, peer: PeerId) {
        let backend = usize::from(self.peers.get(peer).backend);
        for index in 0..self.regions.theirs.len() {
            let Opened { remote, is_open, peer: owner, .. } = self.regions.theirs[index];
            if is_open && owner == peer {
                self.regions.close(index as u32);
                // a fabric that forgets with the link does not know it any more
                let _ = self.backends[backend].forget(remote);
            }
        }
    }

    /// Start to take a region back from all peers; [`Endpoint::revoked`] says when that is over.
    ///
    /// # Errors
    /// `InvalidArgument` for a region of another endpoint, `InvalidUsage` if that has been started already.
    pub fn start_revoke(&mut self, exposed: &Exposed, deadline: Time) -> Result<()> {
        let index = exposed.region.shared.key.index;
        let known = self.regions.find(exposed.all())?;
        if matches!(known.revoking, Revoking::Waiting { .. }) {
            return Err(Kind::InvalidUsage.into());
        }
        self.revoke_index(index, deadline);
        Ok(())
    }

    fn revoke_index(&mut self, index: u32, deadline: Time) {
        let known = &mut self.regions.ours[index as usize];
        let (mut backends, mut error) = (0, None);
        for (backend, fabric) in self.backends.iter_mut().enumerate() {
            if known.keys & 1 << backend == 0 {
                continue;
            }
            let id = RegionId(known.ids[backend]);
            match fabric.revoke(id, deadline) {
                Ok(()) => {
                    backends |= 1 << backend;
                    self.regions.asked.push((backend, id, index));
                }
                Err(why) => error = Some(why),
            }
        }
        known.revoking = if backends == 0 { Revoking::Over(error) } else { Revoking::Waiting { backends, error } };
    }

    pub(super) fn on_revoked(&mut self, backend: usize, region: RegionId, result: Result<()>) {
        let asked = self.regions.asked.iter().position(|&(on, id, _)| (on, id) == (backend, region));
        let Some((_, _, index)) = asked.map(|position| self.regions.asked.swap_remove(position)) else { return };
        let known = &mut self.regions.ours[index as usize];
        let Revoking::Waiting { backends, error } = known.revoking else { return };
        let (backends, error) = (backends & !(1 << backend), error.or(result.err()));
        if result.is_ok() {
            known.keys &= !(1 << backend);
        }
        known.revoking = if backends == 0 { Revoking::Over(error) } else { Revoking::Waiting { backends, error } };
        if backends == 0 && known.dropped && error.is_none() {
            self.free(index);
        }
    }

    /// Whether the revocation that was started is over, well or not.
    pub fn revoked(&self, exposed: &Exposed) -> bool {
        self.regions.find(exposed.all()).is_ok_and(|known| matches!(known.revoking, Revoking::Over(_)))
    }

    /// Take the region back after a revocation.
    ///
    /// # Errors
    /// The region, quarantined, if somebody may still write it: also before the revocation is over.
    pub fn reclaim(&mut self, exposed: Exposed) -> Result<Region, Quarantined> {
        let index = exposed.region.shared.key.index as usize;
        let error = match self.regions.find(exposed.all()).map(|known| known.revoking) {
            Ok(Revoking::Over(None)) => {
                self.regions.ours[index].revoking = Revoking::No;
                return Ok(exposed.region);
            }
            Ok(Revoking::Over(Some(error))) | Err(error) => error,
            Ok(Revoking::No | Revoking::Waiting { .. }) => Kind::InvalidUsage.into(),
        };
        Err(Quarantined { exposed, error })
    }

    /// Free what was dropped and is not in use; the rest follows with its last transfer.
    pub(super) fn collect(&mut self) {
        let mut index = self.dropped.take();
        while index != NONE {
            let known = &mut self.regions.ours[index as usize];
            known.dropped = true;
            let next = known.shared.as_ref().map_or(NONE, |shared| shared.next_dropped());
            self.free_if_unused(index);
            index = next;
        }
    }

    #[inline]
    pub(super) fn end_use(&mut self, index: u32) {
        let known = &mut self.regions.ours[index as usize];
        known.uses -= 1;
        if known.dropped && known.uses == 0 {
            self.free_if_unused(index);
        }
    }

    fn free_if_unused(&mut self, index: u32) {
        let known = &self.regions.ours[index as usize];
        if known.uses > 0 {
            return;
        }
        if known.keys == 0 {
            return self.free(index);
        }
        // peers may still use it: its memory stays until they cannot
        if !matches!(known.revoking, Revoking::Waiting { .. }) {
            self.revoke_index(index, Time::NEVER);
        }
        let known = &self.regions.ours[index as usize];
        if known.revoking == Revoking::Over(None) {
            self.free(index);
        }
    }

    fn free(&mut self, index: u32) {
        let known = &mut self.regions.ours[index as usize];
        for (backend, id) in known.ids.iter_mut().enumerate() {
            let id = core::mem::replace(id, NONE);
            if id != NONE {
                // nothing of ours uses it, so there is nothing to refuse
                let _ = self.backends[backend].release(RegionId(id));
            }
        }
        let fresh = Registered {
            shared: None,
            generation: known.generation.wrapping_add(1),
            ids: core::mem::take(&mut known.ids),
            uses: 0,
            dropped: false,
            keys: 0,
            revoking: Revoking::No,
        };
        *known = fresh;
        self.regions.free.push(index);
    }
}
