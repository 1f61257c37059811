//! The target's side of [`Fabric::revoke`](crate::fabric::Fabric::revoke): when no peer can touch a region any more.
//!
//! ```text
//! revoke(region):
//!   void its keys here, and tell every holder by a record                               FE-1
//!   until there is no holder left, or the deadline:
//!     a holder confirms, or is gone: it holds the region no more                        FE-2
//!     after some patience: put fresh pages in the place of the region                   FE-3
//! ```
//! A write is a store in the writer's `post`. Whoever has taken the record from its inbox is in `poll`, hence in no `post`, and
//! refuses what is posted later: nothing of it is under way. Whoever does not answer may stand in the middle of a copy, for
//! ever; it goes on in pages that are not ours any more. That is for memory that peers map; what was registered is only read,
//! by the kernel on behalf of the reader, which nobody can stop from here: a silent reader means `TimedOut`.
//!
//! A link that ends here while its peer may not know is kept as *departed*: its socket tells when the peer's end is closed, and
//! its process when that has ended.
//!
//! Known costs: one copy of a region whose holder is silent, in `poll`. Policies that the caller set on its mapping (NUMA
//! placement, pinning for a device) are those of a fresh mapping afterwards.

use core::time::Duration;
use std::os::fd::{AsFd, OwnedFd};

use super::{
    Shm,
    lanes::Outbox,
    link::Link,
    memory::let_go,
    notice::Notice,
    region::Holder,
    socket::{self, Incoming},
    work::Work,
};
use crate::{
    Error, Kind, Result, Time,
    fabric::{Event, LinkId, RegionId},
};

/// How long a holder may take to confirm before its pages are replaced; half of the time to the deadline if that is less. Longer
/// than peers that poll take to look at their inbox, shorter than a caller notices.
const PATIENCE: Duration = Duration::from_millis(20);
/// Most departed links. Of those that are dropped it is never known that their peers are gone.
const DEPARTED: usize = 64;

/// Revocations that are not reported, and links that ended here only.
#[derive(Debug, Default)]
pub(super) struct Fences {
    open: Vec<Open>,
    departed: Vec<Departed>,
}

/// A revocation that waits.
#[derive(Debug)]
struct Open {
    region: RegionId,
    deadline: Time,
    /// When waiting ends; `None` before the first poll, which brings the time.
    replace_at: Option<Time>,
    /// Why replacing failed.
    hindrance: Option<Error>,
}

/// A link that ended here, whose peer may not know and may still use regions.
#[derive(Debug)]
struct Departed {
    link: LinkId,
    socket: OwnedFd,
    process: Option<OwnedFd>,
    outbox: Outbox,
    regions: Vec<RegionId>,
}

impl Fences {
    #[inline]
    pub fn is_any_open(&self) -> bool {
        !self.open.is_empty()
    }

    /// When something is to be done without news from a peer.
    pub fn next_step(&self) -> Time {
        self.open.iter().map(Open::next_step).min().unwrap_or(Time::NEVER)
    }
}

impl Open {
    fn next_step(&self) -> Time {
        match self.replace_at {
            None => Time::default(),
            Some(_) if self.hindrance.is_some() => self.deadline,
            Some(at) => at.min(self.deadline),
        }
    }
}

impl Shm {
    /// See [`Fabric::revoke`](crate::fabric::Fabric::revoke).
    pub(super) fn begin_fence(&mut self, region: RegionId, deadline: Time) -> Result<()> {
        let known = self.regions.find_mut(region.0).ok_or(Kind::InvalidArgument)?;
        if known.is_ending {
            return Err(Kind::InvalidUsage.into());
        }
        known.is_ending = true;
        if !self.host.options.unfenced {
            self.void_keys(region);
        }
        self.fences.open.push(Open { region, deadline, replace_at: None, hindrance: None });
        Ok(())
    }

    /// All keys of a region are void, and its holders are told (FE-1).
    pub(super) fn void_keys(&mut self, region: RegionId) {
        let Some(known) = self.regions.find(region.0) else { return };
        let mut holders: Vec<LinkId> = known.holders.iter().map(|holder| holder.link).collect();
        holders.dedup();
        for holder in holders {
            let Ok(work) = self.work(holder.0) else { continue };
            work.link.books.given.void(region);
            if let Err(kind) = self.tell_void(holder) {
                self.fail(holder.0, kind.into());
            }
        }
    }

    fn tell_void(&mut self, link: LinkId) -> Result<(), Kind> {
        let mut work = self.work(link.0).map_err(|error| error.kind())?;
        if work.tell_void()? {
            work.link.outbox.bell().ring();
        }
        if work.link.books.given.is_behind() {
            // it may have confirmed since we last looked: who releases without end and never polls must not fall behind
            work.progress()?;
        }
        Ok(())
    }

    /// Look whether revocations have come to an end.
    pub(super) fn settle_fences(&mut self, now: Time) {
        let mut open = core::mem::take(&mut self.fences.open);
        open.retain_mut(|fence| {
            let result = self.settle(fence, now);
            if let Some(result) = result {
                if let Some(region) = self.regions.find_mut(fence.region.0) {
                    region.is_ending = false;
                }
                self.done.note(Event::Revoked { region: fence.region, result });
            }
            result.is_none()
        });
        // what failed links brought about meanwhile comes after
        open.append(&mut self.fences.open);
        self.fences.open = open;
    }

    fn settle(&mut self, fence: &mut Open, now: Time) -> Option<Result<()>> {
        let region = self.regions.find(fence.region.0)?;
        if region.holders.is_empty() || self.host.options.unfenced {
            return Some(Ok(()));
        }
        let patience = PATIENCE.min(fence.deadline.since(now) / 2);
        let replace_at = *fence.replace_at.get_or_insert(now.after(patience));
        if now >= replace_at && fence.hindrance.is_none() {
            match self.replace(fence.region) {
                Ok(()) => return Some(Ok(())),
                Err(error) => fence.hindrance = Some(error),
            }
        }
        let late = fence.hindrance.unwrap_or(Error::new(Kind::TimedOut));
        (now >= fence.deadline).then_some(Err(late))
    }

    /// Put fresh pages in the place of a region that peers may still write (FE-3).
    fn replace(&mut self, region: RegionId) -> Result<()> {
        let known = self.regions.find_mut(region.0).ok_or(Kind::Bug)?;
        if known.segment.is_none() {
            return Err(Kind::TimedOut.into());
        }
        for holder in known.holders.clone() {
            self.mark(holder);
        }
        let Self { regions, host, .. } = self;
        let known = regions.find_mut(region.0).ok_or(Kind::Bug)?;
        host.renew(known.segment.as_mut().ok_or(Kind::Bug)?)?;
        known.holders.clear();
        Ok(())
    }

    /// Let a silent holder find out that its pages are not ours. One that could not even be told loses its link: it would
    /// go on to write there, and say that it is done.
    fn mark(&mut self, holder: Holder) {
        if let Some(departed) = self.fences.departed.iter_mut().find(|departed| departed.link == holder.link) {
            return departed.outbox.mark_fence();
        }
        let Some(link) = self.links.find_mut(holder.link.0) else { return };
        link.outbox.mark_fence();
        if link.books.given.is_untold(holder.number) {
            self.fail(holder.link.0, Kind::TimedOut.into());
        }
    }

    /// A link has ended here, and its peer is told, whoever else has a copy of our socket. Unless the peer's end is closed as
    /// well, or it holds nothing, the socket is kept.
    pub(super) fn depart(&mut self, link: Link) {
        socket::finish(link.socket.as_fd());
        let mut regions: Vec<RegionId> = link.books.given.regions().collect();
        if regions.is_empty() {
            return;
        }
        regions.sort_unstable();
        regions.dedup();
        if link.is_peer_gone() {
            return self.prove(link.id, &regions);
        }
        if self.fences.departed.len() == DEPARTED {
            self.fences.departed.remove(0);
        }
        let Link { id: link, socket, process, outbox, .. } = link;
        self.fences.departed.push(Departed { link, socket, process, outbox, regions });
    }

    /// A departed link has something: its socket's end, packets that nobody wants, or the end of the peer's process.
    pub(super) fn on_departed(&mut self, number: u32) {
        let departed = &mut self.fences.departed;
        let Some(at) = departed.iter().position(|departed| departed.link.0 == number) else { return };
        let Departed { socket, process, .. } = &departed[at];
        while let Incoming::Packet(_) = socket::receive(socket.as_fd()) {}
        if socket::is_gone(socket, process.as_ref()) {
            let Departed { link, regions, .. } = departed.swap_remove(at);
            self.prove(link, &regions);
        }
    }

    /// The peer of `link` uses nothing of ours any more (FE-2).
    fn prove(&mut self, link: LinkId, regions: &[RegionId]) {
        for region in regions {
            if let Some(region) = self.regions.find_mut(region.0) {
                region.holders.retain(|holder| holder.link != link);
            }
        }
    }
}

impl Work<'_> {
    /// Tell the peer of void keys, as many as it may have to confirm; whether there were any.
    pub(super) fn tell_void(&mut self) -> Result<bool, Kind> {
        let mut told = false;
        while let Some(void) = self.link.books.given.next_untold() {
            self.link.outbox.push(Notice::Revoke { number: void.number, slot: void.slot })?;
            told = true;
        }
        Ok(told)
    }

    /// A key of the peer is void: operations through it are over, since this is not `post`, and later ones are refused (FE-2).
    pub(super) fn on_revoke(&mut self, number: u32, slot: u32) -> Result<(), Kind> {
        // the memory was shown before, through the socket, whose end is for others to see
        match self.link.books.read(&self.link.socket).map_err(|error| error.kind()) {
            Ok(()) | Err(Kind::PeerDied | Kind::PeerLeft) => {}
            Err(kind) => return Err(kind),
        }
        let ended = self.link.books.shown.end(number, slot)?;
        for remote in ended.remotes {
            if let Some(remote) = self.remotes.find_mut(remote) {
                remote.end();
            }
        }
        self.heed_fences();
        // who holds a view may go on to store through it, but not into memory of the peer
        if ended.map.is_some_and(|map| let_go(&map).is_err()) {
            return Ok(());
        }
        self.link.outbox.push(Notice::Revoked { number })
    }

    /// The peer uses a void key no more.
    pub(super) fn on_revoked(&mut self, number: u32) -> Result<(), Kind> {
        let region = self.link.books.given.confirm(number).ok_or(Kind::Corrupt)?;
        if let Some(region) = self.regions.find_mut(region.0) {
            let holder = Holder { link: self.link.id, number };
            region.holders.retain(|known| *known != holder);
        }
        Ok(())
    }

    /// If the peer has replaced memory that we were using: whatever we did since our last report may not have landed (FE-3).
    pub(super) fn heed_fences(&mut self) {
        let fences = self.link.inbox.fences();
        if fences != self.link.fences {
            self.link.fences = fences;
            self.done.doubt(self.link.id, Error::new(Kind::OutcomeUnknown).with_rank(self.link.peer));
        }
    }
}
