//! Processes of one host through mapped memory.
//!
//! A fabric listens on an abstract socket with a random name (see [`Fabric::address`]). A link starts with the handshake
//! of [`auth`](crate::auth) over that socket; then both ends pass each other two unnamed files: an inbox, which the other end writes,
//! and the page of their doorbell. The socket stays: files of advertised regions arrive through it, and its end says
//! that the peer is gone. Nothing has a name in a file system, so nothing is left when a process is killed.
//!
//! - *Write, atomics* are stores into the peer's region, mapped here; they are done when [`Fabric::post`] returns and
//!   reported by the next poll. Memory that its owner only registered cannot be written: that is `Unsupported`.
//! - *Read* copies from the mapping, or pulls through the kernel (`process_vm_readv`), or, where the kernel forbids
//!   that, asks the owner for it piece by piece.
//! - *Send, immediates* are records in the inbox of the peer. Its credits say how many receives it has posted.
//! - *Poll* looks at one word that peers count up after each record, and at the sockets every so often.
//!
//! Peers are proven to know the job's secret, but nothing they write into shared memory is trusted: indices and lengths
//! are bounded, records copied before they are looked at, and what is wrong fails the link with `Corrupt`.
//!
//! A sleeper waits on a futex in its doorbell's page: peers wake it in one system call. A futex cannot be waited for
//! together with sockets, so the sleep is cut into slices (2 ms, doubling to 50 ms), and the sockets are looked at between
//! them: the end of a peer, or a new one, is noticed up to one slice late. While a handshake is under way it is the other
//! way round: the sockets are waited for, in slices of 1 ms. Waiting for an eventfd and the sockets together was rejected:
//! it costs a descriptor for each peer and a slower wake-up for data, which is what matters.

mod address;
mod books;
mod cancel;
mod completions;
mod connect;
mod copy;
mod fence;
mod given;
mod handshake;
mod host;
mod keys;
mod lanes;
mod link;
mod memory;
mod notice;
mod pull;
mod region;
mod shown;
mod socket;
mod staged;
mod table;
#[cfg(test)]
mod tests;
mod work;

use core::{any::Any, ptr::NonNull, time::Duration};
use std::{os::fd::AsFd, path::PathBuf, sync::Arc};

use crate::{
    Error, Kind, Rank, Result, Time,
    fabric::{
        Access, Backend, Capabilities, Doorbell, Event, Fabric, Identity, Key, LinkId, Op, RegionId, RemoteId, View,
        doorbell::Woken,
    },
    sync::Ordering::Acquire,
};

pub use address::same_host;
pub use memory::{HugePages, Shortage};

use address::Address;
use books::Novelty;
use completions::{Class, Completions};
use connect::Door;
use fence::Fences;
use handshake::Call;
use host::Host;
use keys::{Claim, Way};
use link::Link;
use region::{Holder, Reach, Region, Remote};
use table::Table;
use work::{Rest, Work};

/// What can be chosen about a shared-memory fabric. Peers may choose differently, except for `directory`: either all
/// ranks name one, or none does.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// Make memory from unnamed files in this directory instead of memfds; see `VERVAIN_SHM_DIR`.
    ///
    /// Such files cannot be sealed: a peer that knows the secret could truncate one and so end us with SIGBUS.
    pub directory: Option<PathBuf>,
    /// Do not read peers' memory through the kernel, even where it allows that: [`Fabric::foreign`] is `None`, and registered
    /// memory is read with its owner's help.
    pub forbid_pull: bool,
    /// Whether large memory asks for huge pages.
    pub huge_pages: HugePages,
    /// Say of every revocation at once that it is done, and do nothing for it: for tests that show what it is for.
    #[doc(hidden)]
    pub unfenced: bool,
}

impl Options {
    /// The defaults, with the directory of `VERVAIN_SHM_DIR` if that is set and not empty.
    pub fn from_env() -> Self {
        let directory = std::env::var_os("VERVAIN_SHM_DIR").filter(|name| !name.is_empty()).map(PathBuf::from);
        Self { directory, ..Self::default() }
    }
}

/// A fabric over shared memory. See the module.
#[derive(Debug)]
pub struct Shm {
    host: Host,
    address: Address,
    door: Door,
    regions: Table<Region>,
    remotes: Table<Remote>,
    links: Table<Link>,
    done: Completions,
    fences: Fences,
    /// The count of announcements when the links were last looked at.
    seen: u64,
    /// Some link has more to do as soon as its peer makes room.
    rest: Rest,
    /// Polls since the sockets were last looked at.
    polls: u32,
    /// When that was.
    looked: Time,
}

impl Shm {
    /// A fabric without links. It holds three descriptors and a page.
    ///
    /// # Errors
    /// `NoSpace` if memory or descriptors ran out, `Os` if the system refuses.
    pub fn new(identity: Identity, options: Options) -> Result<Self> {
        let address = Address::here(identity.rank, identity.incarnation)?;
        let host = Host::new(identity, options)?;
        Ok(Self {
            door: Door::open(&address)?,
            host,
            address,
            regions: Table::new(),
            remotes: Table::new(),
            links: Table::new(),
            done: Completions::default(),
            fences: Fences::default(),
            seen: 0,
            rest: Rest::Nothing,
            polls: 0,
            looked: Time::default(),
        })
    }

    /// Where memory ran out and how much was missing, when a call last failed with `NoSpace` for that reason.
    pub fn shortage(&self) -> Option<&Shortage> {
        self.host.shortage.as_ref()
    }

    /// Find out early whether `bytes` more could be allocated. Nothing is reserved: others may still take the room.
    ///
    /// # Errors
    /// `NoSpace`; then [`Shm::shortage`] has the numbers.
    pub fn check_room(&mut self, bytes: usize) -> Result<()> {
        self.host.check_room(bytes)
    }

    fn work(&mut self, link: u32) -> Result<Work<'_>> {
        let Self { links, regions, remotes, done, .. } = self;
        let link = links.find_mut(link).ok_or(Error::new(Kind::LinkFailed))?;
        Ok(Work { link, regions, remotes, done })
    }

    fn link(&mut self, link: LinkId) -> Result<&mut Link> {
        let absent = || match link.0 {
            number if self.door.is_calling(number) => Kind::InvalidUsage,
            number if self.links.was_reserved(number) => Kind::LinkFailed,
            _ => Kind::InvalidArgument,
        };
        if !self.links.contains(link.0) {
            return Err(absent().into());
        }
        self.links.find_mut(link.0).ok_or(Error::new(Kind::Bug))
    }

    /// Move what peers have sent.
    fn progress(&mut self) {
        let mut failed = Vec::new();
        self.rest = Rest::Nothing;
        let Self { links, regions, remotes, done, .. } = self;
        for link in links.values_mut() {
            let number = link.id.0;
            match (Work { link, regions, remotes, done }).progress() {
                Ok(Rest::Nothing) => {}
                Ok(Rest::Something) => self.rest = Rest::Something,
                Err(kind) => failed.push((number, kind)),
            }
        }
        for (link, kind) in failed {
            self.fail(link, kind.into());
        }
    }

    /// End a link, and everything outstanding on it before.
    fn fail(&mut self, number: u32, error: Error) {
        let Some(mut link) = self.links.remove(number) else { return };
        let error = error.with_rank(link.peer);
        let Self { regions, remotes, done, .. } = self;
        Work { link: &mut link, regions, remotes, done }.fail(error);
        self.done.note(Event::Down { link: link.id, error });
        self.depart(link);
    }

    fn report(&mut self, events: &mut Vec<Event>) {
        while events.len() < events.capacity()
            && let Some((event, class)) = self.done.next()
        {
            if let Event::Done { link, .. } = event
                && let Some(link) = self.links.find_mut(link.0)
            {
                match class {
                    Class::Receive => link.open_receives -= 1,
                    Class::Work => link.open_work -= 1,
                    Class::Notice => {}
                }
            }
            events.push(event);
        }
    }

    fn announced(&self) -> u64 {
        // SYNC shm.notice -> shm.announce: records counted here are visible.
        self.host.bell.announcements().load(Acquire)
    }

    /// Something is there for the next poll.
    fn has_news(&self) -> bool {
        !self.done.is_empty() || self.announced() != self.seen
    }

    /// Time to look at the sockets, which costs a system call.
    fn is_due(&mut self, now: Time) -> bool {
        self.polls += 1;
        self.polls >= POLLS || self.door.is_busy() || now.since(self.looked) > INTERVAL
    }

    fn doze(&mut self, limit: Duration) -> Woken {
        if self.door.is_busy() {
            self.door.wait(limit.min(BUSY_SLICE));
            return Woken::Rung;
        }
        let woken = self.host.bell.wait(limit);
        if woken == Woken::TimedOut && self.door.has_news() { Woken::Rung } else { woken }
    }

    fn import_claim(&mut self, link: LinkId, claim: &Claim) -> Result<Reach> {
        let link = self.link(link)?;
        if claim.way == Way::Readable {
            claim.start.checked_add(claim.bytes).ok_or(Kind::Corrupt)?;
            return Ok(Reach::Readable { key: claim.number, start: claim.start, bytes: claim.bytes });
        }
        link.books.import(&link.socket, claim).map(Reach::Mapped)
    }
}

/// Polls between two looks at the sockets.
const POLLS: u32 = 64;
/// Time between two looks at the sockets, if polls are rare.
const INTERVAL: Duration = Duration::from_micros(200);
/// First and longest slice of a sleep.
const SLICES: (Duration, Duration) = (Duration::from_millis(2), Duration::from_millis(50));
/// Longest sleep while a handshake is under way.
const BUSY_SLICE: Duration = Duration::from_millis(1);

impl Fabric for Shm {
    fn backend(&self) -> Backend {
        Backend::Shm
    }

    fn shortage(&self) -> Option<String> {
        self.host.shortage.as_ref().map(Shortage::to_string)
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities { mapped: true, pull: !self.host.options.forbid_pull, whole_lines: true, passive: true }
    }

    fn address(&self) -> Vec<u8> {
        self.address.emit()
    }

    fn allocate(&mut self, bytes: usize) -> Result<RegionId> {
        let segment = self.host.segment(bytes)?;
        self.regions.add(Region::allocated(segment)).map(RegionId)
    }

    unsafe fn register(&mut self, start: NonNull<u8>, bytes: usize) -> Result<RegionId> {
        if bytes > isize::MAX as usize || start.addr().get().checked_add(bytes).is_none() {
            return Err(Kind::SizeOverflow.into());
        }
        self.regions.add(Region::registered(start, bytes)).map(RegionId)
    }

    fn release(&mut self, region: RegionId) -> Result<()> {
        let known = self.regions.find(region.0).ok_or(Kind::InvalidArgument)?;
        if known.uses > 0 || known.is_ending {
            return Err(Kind::InvalidUsage.into());
        }
        self.void_keys(region);
        self.regions.remove(region.0);
        Ok(())
    }

    fn memory(&self, region: RegionId) -> Option<View> {
        self.regions.find(region.0).map(Region::view)
    }

    fn keep(&self, region: RegionId) -> Option<Arc<dyn Any + Send + Sync>> {
        let segment = self.regions.find(region.0)?.segment.as_ref()?;
        Some(segment.map.clone())
    }

    fn advertise(&mut self, link: LinkId, region: RegionId, access: Access) -> Result<Key> {
        self.link(link)?;
        let Self { links, regions, .. } = self;
        let peer = links.find_mut(link.0).ok_or(Kind::LinkFailed)?;
        let known = regions.find_mut(region.0).ok_or(Kind::InvalidArgument)?;
        if known.is_ending {
            return Err(Kind::InvalidUsage.into());
        }
        if known.segment.is_none() && !access.reads() {
            return Err(Kind::Unsupported.into());
        }
        let segment = known.segment.as_ref();
        let (key, novelty) = peer.books.show(&peer.socket, region, known.view(), segment, access)?;
        if let Novelty::Fresh { number } = novelty {
            known.holders.push(Holder { link, number });
        }
        Ok(key)
    }

    fn revoke(&mut self, region: RegionId, deadline: Time) -> Result<()> {
        self.begin_fence(region, deadline)
    }

    fn import(&mut self, link: LinkId, key: &Key) -> Result<RemoteId> {
        self.link(link)?;
        let known = self.links.find(link.0).ok_or(Kind::LinkFailed)?;
        let claim = known.books.open(key)?;
        let reach = self.import_claim(link, &claim)?;
        let remote = Remote { link, access: claim.access, reach, number: Some(claim.number) };
        let id = self.remotes.add(remote)?;
        self.link(link)?.books.shown.enter(claim.number, id);
        Ok(RemoteId(id))
    }

    fn forget(&mut self, remote: RemoteId) -> Result<()> {
        match self.remotes.find(remote.0).map(|known| &known.reach) {
            None | Some(Reach::Foreign) => Err(Kind::InvalidArgument.into()),
            Some(_) => {
                let Some(Remote { link, number: Some(number), .. }) = self.remotes.remove(remote.0) else {
                    return Ok(());
                };
                if let Some(link) = self.links.find_mut(link.0) {
                    link.books.shown.leave(number, remote.0);
                }
                Ok(())
            }
        }
    }

    fn view(&self, remote: RemoteId) -> Option<View> {
        let Reach::Mapped(map) = &self.remotes.find(remote.0)?.reach else { return None };
        NonNull::new(map.as_mut_ptr()).map(|start| View { start, bytes: map.len() })
    }

    fn foreign(&self, link: LinkId) -> Option<RemoteId> {
        self.links.find(link.0)?.foreign.map(RemoteId)
    }

    fn dial(&mut self, peer: Rank, address: &[u8], deadline: Time) -> Result<LinkId> {
        let address = Address::parse(address).ok_or(Error::new(Kind::InvalidArgument).with_rank(peer))?;
        if address.rank != peer {
            return Err(Error::new(Kind::InvalidArgument).with_rank(peer));
        }
        if !address.shares_host_with(&self.address) {
            tracing::warn!(rank = peer.get(), "the peer is on another host or in another network namespace");
            return Err(Error::new(Kind::Unsupported).with_rank(peer));
        }
        let number = self.links.reserve()?;
        self.door.call(Call::new(&self.host.identity, number, address, deadline)?);
        Ok(LinkId(number))
    }

    fn close(&mut self, link: LinkId) {
        let error = Error::new(Kind::Aborted);
        if let Some(known) = self.links.find(link.0) {
            known.books.say_goodbye(&known.socket);
            self.fail(link.0, error);
        } else if let Some(call) = self.door.hang_up(link.0) {
            self.done.note(Event::Down { link, error: error.with_rank(call.to) });
        }
    }

    fn post(&mut self, link: LinkId, ops: &[Op]) -> Result<usize> {
        self.link(link)?;
        let (accepted, health) = self.work(link.0)?.post(ops)?;
        if let Err(kind) = health {
            self.fail(link.0, kind.into());
        }
        Ok(accepted)
    }

    fn cancel(&mut self, link: LinkId, token: u64) -> Result<()> {
        match self.link(link) {
            Ok(_) => self.work(link.0)?.cancel(token),
            Err(error) if error.kind() == Kind::InvalidArgument => return Err(error),
            // everything on it has ended, or nothing has begun
            Err(_) => {}
        }
        Ok(())
    }

    fn poll(&mut self, now: Time, events: &mut Vec<Event>) {
        if self.is_due(now) {
            self.polls = 0;
            self.looked = now;
            self.look(now);
        }
        let announced = self.announced();
        if announced != self.seen || self.rest == Rest::Something {
            self.seen = announced;
            self.progress();
        }
        if self.fences.is_any_open() {
            self.settle_fences(now);
        }
        self.report(events);
    }

    fn arm(&mut self) {
        self.host.bell.arm();
    }

    fn sleep(&mut self, deadline: Time) {
        let (mut slice, longest) = SLICES;
        let deadline = deadline.min(self.fences.next_step());
        while !self.has_news() && self.rest == Rest::Nothing && self.host.bell.is_armed() {
            let now = Time::now();
            if now >= deadline || self.doze(deadline.since(now).min(slice)) == Woken::Rung {
                break;
            }
            slice = (slice * 2).min(longest);
        }
        // what woke us may be a socket
        self.polls = POLLS;
        self.disarm();
    }

    fn descriptor(&self) -> Option<std::os::fd::BorrowedFd<'_>> {
        Some(self.door.descriptor())
    }

    fn disarm(&mut self) {
        self.host.bell.disarm();
    }

    fn doorbell(&self) -> Doorbell {
        self.host.bell.clone()
    }

    fn peer_doorbell(&self, link: LinkId) -> Option<Doorbell> {
        self.links.find(link.0).map(|link| link.outbox.bell().clone())
    }
}

impl Drop for Shm {
    /// Say goodbye. A child that was forked meanwhile holds our sockets open, so closing them would tell nobody; and if we are
    /// that child, they are not ours to end.
    fn drop(&mut self) {
        if std::process::id() != self.address.pid {
            return;
        }
        for link in self.links.values() {
            link.books.say_goodbye(&link.socket);
            socket::finish(link.socket.as_fd());
        }
    }
}
