//! Sockets: every link is one or more TCP connections, and payload goes from registered memory to registered memory.
//!
//! The layers, from the bottom: [`crate::wire::frame`] is the layout; `decoder` and `link` are machines over any stream, without
//! sockets and clocks; `stream` is the socket; `greeting` and `establish` turn strangers into links; this file is the
//! [`Fabric`].
//!
//! Known costs: with few links a poll is one `recvmsg` per link, with many it is one `epoll_wait` and then one per link that
//! has something. A read is answered by the peer's poll, over the link's first socket only.

mod address;
mod decoder;
mod establish;
mod greeting;
pub mod interface;
mod link;
mod poller;
mod region;
mod stream;

#[cfg(any(test, fuzzing))]
#[doc(hidden)]
pub mod fuzzing;

use core::{ptr::NonNull, time::Duration};
use std::{any::Any, collections::VecDeque, net::IpAddr, sync::Arc};

use self::{
    address::Address,
    establish::Establish,
    link::{Context, Link, Moved, OUTSTANDING},
    poller::{BATCH, Interest, Poller, Token},
    region::{Regions, Remote, Table},
    stream::Socket,
};
use super::{
    Access, Backend, Capabilities, Doorbell, Event, Fabric, Identity, Key, LinkId, Op, RegionId, RemoteId, View,
};
use crate::{Error, Kind, Rank, Result, Time};

/// Largest number of sockets per link.
pub const MOST_SOCKETS: u32 = 16;
/// Up to this many links, each is tried at every poll; beyond, epoll says which.
const DIRECT: usize = 3;
/// While links are tried directly, epoll is asked after this many polls or this much time, for newcomers.
const LOOK_POLLS: u32 = 64;
const LOOK_TIME: Duration = Duration::from_micros(200);

/// How to build a [`Tcp`].
#[derive(Clone, Debug)]
pub struct Options {
    /// Listen and connect from here. Overrides `interface`.
    pub address: Option<IpAddr>,
    /// Which interface, in the syntax of [`interface`]; `None` chooses.
    pub interface: Option<String>,
    /// Sockets per link, 1 to [`MOST_SOCKETS`]; of two peers the smaller number counts.
    pub sockets: u32,
    /// How long a socket may take to prove who it is.
    pub handshake: Duration,
    /// How many sockets may be busy proving who they are.
    pub pending: usize,
    /// Size of the kernel's buffers per socket and direction, in bytes; `None` leaves it to the kernel.
    pub buffer: Option<usize>,
    /// How long sent data may stay unacknowledged before the link counts as broken.
    pub silence: Duration,
    /// Where the counters of links that we dial begin: for tests of their edges.
    #[doc(hidden)]
    pub origin: u64,
    /// Say of every revocation that it is done, and do nothing for it: for tests that show what it is for.
    #[doc(hidden)]
    pub unfenced: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            address: None,
            interface: None,
            sockets: 1,
            handshake: Duration::from_secs(10),
            pending: 256,
            buffer: None,
            silence: Duration::from_secs(300),
            origin: 0,
            unfenced: false,
        }
    }
}

#[derive(Debug)]
enum Slot {
    Dialing,
    Up(Box<Link<Socket>>),
    /// The peer, if it was known.
    Down(Option<Rank>),
}

/// The tcp backend.
#[derive(Debug)]
pub struct Tcp {
    establish: Establish,
    poller: Poller,
    regions: Regions,
    remotes: Table<Remote>,
    next_remote: u32,
    links: Vec<Slot>,
    /// Links that are up.
    up: Vec<u32>,
    /// Of these, the ones that may have something to do, when there are too many to try all.
    awake: Vec<u32>,
    /// What has happened and has not been reported.
    events: VecDeque<Event>,
    /// Revocations among them.
    ending: usize,
    /// See [`Options`].
    unfenced: bool,
    /// The process that made it.
    process: u32,
    looked: Time,
    polls: u32,
}

impl Tcp {
    /// A fabric that listens on the chosen address, on a port that the kernel chooses.
    ///
    /// # Errors
    /// `InvalidArgument` if the options are impossible or no interface fits (a warning says which exist), `Os` if the address
    /// cannot be used.
    pub fn new(identity: Identity, options: Options) -> Result<Self> {
        if !(1..=MOST_SOCKETS).contains(&options.sockets) || options.pending == 0 {
            return Err(Kind::InvalidArgument.into());
        }
        let unfenced = options.unfenced;
        let poller = Poller::new()?;
        let establish = Establish::new(identity, options, &poller)?;
        Ok(Self {
            establish,
            poller,
            regions: Regions::default(),
            remotes: Table::default(),
            next_remote: 0,
            links: Vec::new(),
            up: Vec::new(),
            awake: Vec::new(),
            events: VecDeque::new(),
            ending: 0,
            unfenced,
            process: std::process::id(),
            looked: Time::default(),
            polls: LOOK_POLLS,
        })
    }

    /// The address that the fabric listens on.
    pub fn local(&self) -> std::net::SocketAddr {
        self.establish.local()
    }

    fn link(&self, id: LinkId) -> Result<&Link<Socket>> {
        match self.links.get(id.0 as usize) {
            Some(Slot::Up(link)) => Ok(link),
            Some(Slot::Dialing) => Err(Kind::InvalidUsage.into()),
            Some(Slot::Down(peer)) => {
                Err(peer.map_or(Kind::LinkFailed.into(), |peer| Error::new(Kind::LinkFailed).with_rank(peer)))
            }
            None => Err(Kind::InvalidArgument.into()),
        }
    }

    /// The link, and what it shares with the others.
    fn parts(&mut self, id: LinkId) -> Result<(&mut Link<Socket>, Context<'_>, &Table<Remote>)> {
        self.link(id)?;
        let Some(Slot::Up(link)) = self.links.get_mut(id.0 as usize) else { return Err(Kind::Bug.into()) };
        Ok((link, Context { regions: &mut self.regions, events: &mut self.events }, &self.remotes))
    }

    fn next_link(&mut self) -> LinkId {
        LinkId(self.links.len() as u32)
    }

    /// Ask epoll.
    fn look(&mut self, now: Time) {
        self.looked = now;
        self.polls = 0;
        let mut tokens = [Token::Doorbell; BATCH];
        let count = self.poller.look(&mut tokens);
        for token in &tokens[..count] {
            match *token {
                Token::Doorbell => {}
                Token::Listener => self.establish.accept(now, &self.poller),
                Token::Greeting(slot) => self.establish.step(slot, now),
                Token::Link(link, lane) => self.wake(link, lane),
            }
        }
        if count == BATCH {
            self.polls = LOOK_POLLS;
        }
    }

    fn wake(&mut self, link: u32, lane: u8) {
        if let Some(Slot::Up(machine)) = self.links.get_mut(link as usize) {
            machine.wake(lane.into());
            self.rouse(link);
        }
    }

    fn rouse(&mut self, link: u32) {
        if self.up.len() > DIRECT && !self.awake.contains(&link) {
            self.awake.push(link);
        }
    }

    fn is_time_to_look(&mut self, now: Time) -> bool {
        self.polls += 1;
        self.up.len() > DIRECT
            || self.polls > LOOK_POLLS
            || self.establish.is_busy()
            || now.since(self.looked) >= LOOK_TIME
    }

    /// What became of handshakes.
    fn admit(&mut self, now: Time) {
        while let Some(arrival) = self.establish.poll(now, &self.poller) {
            match arrival {
                establish::Arrival::Link { dialled, peer, sockets } => self.bring_up(dialled, peer, sockets),
                establish::Arrival::Failed { link, error } => self.put_down(link, error),
            }
        }
    }

    fn bring_up(&mut self, dialled: Option<LinkId>, peer: link::Peer, sockets: Vec<Socket>) {
        let id = dialled.unwrap_or_else(|| self.next_link());
        if dialled.is_none() {
            self.links.push(Slot::Dialing);
        }
        let register = |(lane, socket): (usize, &Socket)| {
            self.poller.change(socket.fd(), Token::Link(id.0, lane as u8), Interest::Changes)
        };
        if let Err(error) = sockets.iter().enumerate().try_for_each(register) {
            return self.put_down(id, error);
        }
        self.links[id.0 as usize] = Slot::Up(Box::new(Link::new(id, peer, sockets)));
        self.up.push(id.0);
        self.awake.clone_from(&self.up);
        self.events.reserve(self.up.len() * OUTSTANDING);
        self.events.push_back(Event::Up { link: id, peer: peer.rank, incarnation: peer.incarnation });
    }

    /// A link that never came up.
    fn put_down(&mut self, link: LinkId, error: Error) {
        self.links[link.0 as usize] = Slot::Down(error.rank());
        self.events.push_back(Event::Down { link, error });
    }

    fn poll_links(&mut self) {
        let direct = self.up.len() <= DIRECT;
        let count = if direct { self.up.len() } else { self.awake.len() };
        // Backwards, because links that fail or fall asleep leave the list.
        for place in (0..count).rev() {
            let id = if direct { self.up[place] } else { self.awake[place] };
            let Slot::Up(link) = &mut self.links[id as usize] else { continue };
            let mut context = Context { regions: &mut self.regions, events: &mut self.events };
            match link.poll(&mut context) {
                Ok(moved) => {
                    if !direct && moved == Moved::No && !link.is_busy() {
                        self.awake.swap_remove(place);
                    }
                }
                Err(error) => drop(self.fail(LinkId(id), error)),
            }
        }
    }

    /// All keys of a region are void, and nothing that came or goes through them touches it any more.
    fn void_keys(&mut self, region: RegionId) {
        for id in self.regions.take_holders(region) {
            let Some(Slot::Up(link)) = self.links.get_mut(id as usize) else { continue };
            if let Err(error) = link.revoke(region, &mut self.regions) {
                drop(self.fail(LinkId(id), error));
            }
        }
    }

    fn report(&mut self, events: &mut Vec<Event>) {
        let room = (events.capacity() - events.len()).min(self.events.len());
        if self.ending == 0 {
            return events.extend(self.events.drain(..room));
        }
        for event in self.events.drain(..room) {
            if let Event::Revoked { region, .. } = event {
                self.ending -= 1;
                self.regions.finish_end(region);
            }
            events.push(event);
        }
    }

    /// End a link that is up; its sockets.
    fn fail(&mut self, id: LinkId, error: Error) -> Vec<Socket> {
        let slot = core::mem::replace(&mut self.links[id.0 as usize], Slot::Down(None));
        self.up.retain(|link| *link != id.0);
        self.awake.retain(|link| *link != id.0);
        self.remotes.retain(|_, remote| remote.link != id.0);
        let Slot::Up(link) = slot else { return Vec::new() };
        self.links[id.0 as usize] = Slot::Down(Some(link.peer().rank));
        link.fail(error, &mut Context { regions: &mut self.regions, events: &mut self.events })
    }

    /// End a link that is up as its user wishes: what the peer is owed goes first.
    fn leave(&mut self, id: LinkId) -> Vec<Socket> {
        if let Ok((link, mut context, _)) = self.parts(id) {
            // What goes wrong here is over with the link.
            let _ = link.poll(&mut context);
            link.arm(&mut context);
        }
        self.fail(id, Kind::Aborted.into())
    }
}

impl Drop for Tcp {
    /// Say goodbye, unless we are a child that was forked meanwhile: the links are its parent's.
    fn drop(&mut self) {
        if std::process::id() != self.process {
            return;
        }
        for id in self.up.clone() {
            drop(self.leave(LinkId(id)));
        }
    }
}

impl Fabric for Tcp {
    fn backend(&self) -> Backend {
        Backend::Tcp
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities { mapped: false, pull: false, whole_lines: false, passive: false }
    }

    fn address(&self) -> Vec<u8> {
        self.establish.address().emit()
    }

    fn allocate(&mut self, bytes: usize) -> Result<RegionId> {
        self.regions.allocate(bytes)
    }

    unsafe fn register(&mut self, start: NonNull<u8>, bytes: usize) -> Result<RegionId> {
        // SAFETY: the same promise.
        unsafe { self.regions.register(start, bytes) }
    }

    fn release(&mut self, region: RegionId) -> Result<()> {
        self.regions.check_free(region)?;
        self.void_keys(region);
        self.regions.release(region)
    }

    fn memory(&self, region: RegionId) -> Option<View> {
        self.regions.view(region)
    }

    fn keep(&self, region: RegionId) -> Option<Arc<dyn Any + Send + Sync>> {
        self.regions.keep(region).map(|mapping| mapping as Arc<dyn Any + Send + Sync>)
    }

    fn advertise(&mut self, link: LinkId, region: RegionId, access: Access) -> Result<Key> {
        let owner = self.establish.rank();
        let (machine, context, _) = self.parts(link)?;
        let bytes = context.regions.show(region, link.0)?;
        machine.advertise(region, bytes, access, owner)
    }

    fn revoke(&mut self, region: RegionId, _deadline: Time) -> Result<()> {
        self.regions.begin_end(region)?;
        if !self.unfenced {
            self.void_keys(region);
        }
        self.ending += 1;
        self.events.push_back(Event::Revoked { region, result: Ok(()) });
        Ok(())
    }

    fn import(&mut self, link: LinkId, key: &Key) -> Result<RemoteId> {
        let remote = self.link(link)?.import(key)?;
        let id = self.next_remote;
        self.next_remote = id.checked_add(1).ok_or(Kind::NoSpace)?;
        self.remotes.insert(id, remote);
        Ok(RemoteId(id))
    }

    fn forget(&mut self, remote: RemoteId) -> Result<()> {
        self.remotes.remove(&remote.0).map(drop).ok_or_else(|| Kind::InvalidArgument.into())
    }

    fn view(&self, _remote: RemoteId) -> Option<View> {
        None
    }

    fn foreign(&self, _link: LinkId) -> Option<RemoteId> {
        None
    }

    fn dial(&mut self, peer: Rank, address: &[u8], deadline: Time) -> Result<LinkId> {
        let address = Address::parse(address)?;
        let id = self.next_link();
        self.establish.dial(id, peer, &address, deadline, &self.poller)?;
        self.links.push(Slot::Dialing);
        Ok(id)
    }

    fn close(&mut self, link: LinkId) {
        match self.links.get(link.0 as usize) {
            Some(Slot::Up(_)) => {
                let sockets = self.leave(link);
                self.establish.linger(sockets);
            }
            Some(Slot::Dialing) => {
                self.establish.forget(link);
                self.put_down(link, Kind::Aborted.into());
            }
            Some(Slot::Down(_)) | None => {}
        }
    }

    fn post(&mut self, link: LinkId, ops: &[Op]) -> Result<usize> {
        let (machine, mut context, remotes) = self.parts(link)?;
        let accepted = machine.post(ops, remotes, &mut context)?;
        self.rouse(link.0);
        Ok(accepted)
    }

    fn poll(&mut self, now: Time, events: &mut Vec<Event>) {
        if self.is_time_to_look(now) {
            self.look(now);
            self.admit(now);
        }
        self.poll_links();
        self.report(events);
    }

    fn cancel(&mut self, link: LinkId, token: u64) -> Result<()> {
        let result = match self.parts(link) {
            Ok((machine, mut context, _)) => machine.cancel(token, &mut context),
            Err(error) if error.kind() == Kind::InvalidArgument => return Err(error),
            // everything on it has ended, or nothing has begun
            Err(_) => Ok(()),
        };
        if let Err(error) = result {
            drop(self.fail(link, error));
        }
        Ok(())
    }

    fn is_drained(&self) -> bool {
        let drained = |id: &u32| !matches!(&self.links[*id as usize], Slot::Up(link) if !link.is_drained());
        self.up.iter().all(drained)
    }

    fn arm(&mut self) {
        self.poller.doorbell().arm();
        self.polls = LOOK_POLLS;
        for id in &self.up {
            let Slot::Up(link) = &mut self.links[*id as usize] else { continue };
            link.arm(&mut Context { regions: &mut self.regions, events: &mut self.events });
        }
    }

    fn sleep(&mut self, deadline: Time) {
        let busy = |id: &u32| matches!(&self.links[*id as usize], Slot::Up(link) if link.is_busy());
        let rung = !self.poller.doorbell().is_armed();
        if !rung && self.events.is_empty() && !self.up.iter().any(busy) {
            self.poller.sleep(deadline.min(self.establish.next_deadline()));
        }
        self.disarm();
    }

    fn descriptor(&self) -> Option<std::os::fd::BorrowedFd<'_>> {
        Some(self.poller.descriptor())
    }

    fn disarm(&mut self) {
        self.poller.doorbell().disarm();
        self.polls = LOOK_POLLS;
    }

    fn doorbell(&self) -> Doorbell {
        self.poller.doorbell().clone()
    }

    fn peer_doorbell(&self, _link: LinkId) -> Option<Doorbell> {
        None
    }
}
