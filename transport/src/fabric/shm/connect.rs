//! Links come up and go down: the listening socket, handshakes under way, and the sockets of links.

use core::time::Duration;
use std::{
    collections::VecDeque,
    io,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
};

use super::{
    Shm,
    address::Address,
    handshake::{Call, Guest, Joined},
    lanes::RECEIVES,
    link::{Link, WORK},
    pull::Source,
    region::{Reach, Remote},
    socket::{self, BATCH, Watch},
    work::Work,
};
use crate::{
    Error, Kind, Result, Time,
    fabric::{Access, Event, Identity, LinkId},
};

/// How long a stranger may take to prove itself.
const PATIENCE: Duration = Duration::from_secs(5);
/// Most strangers at once; the oldest is dropped for the next.
const STRANGERS: usize = 64;
/// Most strangers let in by one poll.
const WELCOMES: usize = 16;

/// Sockets and handshakes under way.
#[derive(Debug)]
pub(super) struct Door {
    watch: Watch,
    listener: OwnedFd,
    calls: Vec<Call>,
    guests: VecDeque<(u32, Guest)>,
    next_guest: u32,
}

/// Whose socket has something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Origin {
    Listener,
    Link(u32),
    Guest(u32),
    /// The process at the other end of this link.
    Process(u32),
}

impl Door {
    pub fn open(address: &Address) -> Result<Self> {
        let listener = socket::listen(&address.name)?;
        let watch = Watch::new()?;
        watch.add(listener.as_fd(), Origin::Listener.number())?;
        Ok(Self { watch, listener, calls: Vec::new(), guests: VecDeque::new(), next_guest: 0 })
    }

    /// Can be read when a socket has something.
    pub fn descriptor(&self) -> BorrowedFd<'_> {
        self.watch.descriptor()
    }

    /// A handshake is under way.
    pub fn is_busy(&self) -> bool {
        !self.calls.is_empty() || !self.guests.is_empty()
    }

    /// This link is being dialled.
    pub fn is_calling(&self, link: u32) -> bool {
        self.calls.iter().any(|call| call.link == link)
    }

    /// Dial from the next poll on.
    pub fn call(&mut self, call: Call) {
        self.calls.push(call);
    }

    /// Stop dialling.
    pub fn hang_up(&mut self, link: u32) -> Option<Call> {
        let at = self.calls.iter().position(|call| call.link == link)?;
        Some(self.calls.swap_remove(at))
    }

    /// Wait for sockets.
    pub fn wait(&self, limit: Duration) {
        self.watch.wait(&mut [0; BATCH], limit);
    }

    /// Some socket has something.
    pub fn has_news(&self) -> bool {
        self.watch.wait(&mut [0; BATCH], Duration::ZERO) > 0
    }

    /// Let strangers in, as far as there is room for them.
    fn welcome(&mut self, identity: &Identity, now: Time) {
        for _ in 0..WELCOMES {
            let socket = match socket::accept(self.listener.as_fd()) {
                Ok(socket) => socket,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                Err(error) => return tracing::warn!(%error, "an incoming link cannot be accepted"),
            };
            let number = self.next_guest;
            if self.watch.add(socket.as_fd(), Origin::Guest(number).number()).is_err() {
                continue;
            }
            self.next_guest = number.wrapping_add(1);
            if self.guests.len() == STRANGERS {
                self.guests.pop_front();
            }
            self.guests.push_back((number, Guest::new(identity, socket, now.after(PATIENCE))));
        }
    }
}

impl Origin {
    fn number(self) -> u64 {
        match self {
            Origin::Listener => 0,
            Origin::Link(number) => 1 << 32 | u64::from(number),
            Origin::Guest(number) => 2 << 32 | u64::from(number),
            Origin::Process(number) => 3 << 32 | u64::from(number),
        }
    }

    fn of(number: u64) -> Self {
        match number >> 32 {
            0 => Origin::Listener,
            1 => Origin::Link(number as u32),
            2 => Origin::Guest(number as u32),
            _ => Origin::Process(number as u32),
        }
    }
}

impl Shm {
    /// Take what the sockets have, and end what has waited too long.
    pub(super) fn look(&mut self, now: Time) {
        self.connect_calls();
        let mut numbers = [0; BATCH];
        let count = self.door.watch.wait(&mut numbers, Duration::ZERO);
        for number in &numbers[..count] {
            match Origin::of(*number) {
                Origin::Listener => self.door.welcome(&self.host.identity, now),
                Origin::Link(number) if self.door.is_calling(number) => self.on_call(number),
                Origin::Link(number) => self.on_link(number),
                Origin::Guest(number) => self.on_guest(number),
                Origin::Process(number) => self.on_process(number),
            }
        }
        self.expire(now);
    }

    fn connect_calls(&mut self) {
        let mut failed = Vec::new();
        for call in self.door.calls.iter_mut().filter(|call| call.is_waiting_to_connect()) {
            let number = Origin::Link(call.link).number();
            let result = match call.connect() {
                Ok(Some(socket)) => self.door.watch.add(socket.as_fd(), number).map_err(Error::from),
                result => result.map(drop),
            };
            if let Err(error) = result {
                failed.push((call.link, error));
            }
        }
        for (link, error) in failed {
            self.give_up(link, error);
        }
    }

    fn on_call(&mut self, number: u32) {
        let Some(call) = self.door.calls.iter_mut().find(|call| call.link == number) else { return };
        match call.step(&mut self.host) {
            Ok(None) => {}
            Ok(Some(joined)) => {
                self.door.hang_up(number);
                self.bring_up(number, joined);
            }
            Err(error) => self.give_up(number, error),
        }
    }

    fn on_guest(&mut self, number: u32) {
        let Some(at) = self.door.guests.iter().position(|(known, _)| *known == number) else { return };
        let joined = match self.door.guests[at].1.step(&mut self.host) {
            Ok(None) => return,
            Ok(Some(joined)) => Some(joined),
            Err(error) => {
                tracing::debug!(%error, "an incoming link was refused");
                None
            }
        };
        self.door.guests.remove(at);
        let Some(joined) = joined else { return };
        let Ok(link) = self.links.reserve() else { return };
        if self.door.watch.renumber(joined.socket.as_fd(), Origin::Link(link).number()).is_ok() {
            self.bring_up(link, joined);
        }
    }

    /// What the socket of a link has: files of regions, or its end.
    fn on_link(&mut self, number: u32) {
        let Some(link) = self.links.find_mut(number) else { return self.on_departed(number) };
        if let Err(error) = link.books.read(&link.socket) {
            self.end(number, error);
        }
    }

    /// The peer's process has ended. What it said and wrote before comes first.
    fn on_process(&mut self, number: u32) {
        let Some(link) = self.links.find_mut(number) else { return self.on_departed(number) };
        let error = link.books.read(&link.socket).err().unwrap_or_else(|| link.books.end());
        self.end(number, error);
    }

    /// The peer is gone; what it wrote before its end still counts.
    fn end(&mut self, number: u32, error: Error) {
        let Self { links, regions, remotes, done, .. } = self;
        let Some(link) = links.find_mut(number) else { return };
        let last = Work { link, regions, remotes, done }.progress();
        self.fail(number, last.err().map_or(error, Error::new));
    }

    /// Both ends are proven and mapped.
    fn bring_up(&mut self, number: u32, joined: Joined) {
        let id = LinkId(number);
        let (peer, incarnation) = (joined.peer.rank, joined.peer.incarnation);
        if let Err(error) = self.enter(id, joined) {
            return self.done.note(Event::Down { link: id, error: error.with_rank(peer) });
        }
        // all that the live links can have outstanding at once
        self.done.reserve(self.links.len() * (RECEIVES + WORK + 2));
        self.done.note(Event::Up { link: id, peer, incarnation });
    }

    fn enter(&mut self, id: LinkId, joined: Joined) -> Result<()> {
        let allowed = !self.host.options.forbid_pull;
        let source = if allowed { Source::probe(&joined.socket, &joined.setup) } else { None };
        if source.is_none() {
            self.host.reserve_bounce(&joined.inbox)?;
        }
        let mut link = Link::new(id, joined, source, &self.host)?;
        if source.is_some() {
            let whole = Remote { link: id, access: Access::Read, reach: Reach::Foreign, number: None };
            link.foreign = Some(self.remotes.add(whole)?);
        }
        if let Some(process) = &link.process {
            self.door.watch.add(process.as_fd(), Origin::Process(id.0).number())?;
        }
        self.links.put(id.0, link);
        // records may have come before
        self.rest = super::Rest::Something;
        Ok(())
    }

    fn give_up(&mut self, link: u32, error: Error) {
        if let Some(call) = self.door.hang_up(link) {
            self.done.note(Event::Down { link: LinkId(link), error: error.with_rank(call.to) });
        }
    }

    fn expire(&mut self, now: Time) {
        self.door.guests.retain(|(_, guest)| guest.deadline > now);
        while let Some(late) = self.door.calls.iter().find(|call| call.deadline <= now).map(|call| call.link) {
            self.give_up(late, Kind::TimedOut.into());
        }
    }
}
