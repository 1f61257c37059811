//! Links, connections and registrations, made when they are first needed.
//!
//! Of a pair of ranks the lower one dials. Once a link is up both sides exchange small *letters* over it: "here is my inbox
//! for lane l", "here is my part of registration r", "I have yours", "forget it again", "here is my board". A letter may come
//! before we want what it offers; it is kept.

#[cfg(test)]
mod exposed;
mod letter;
mod registry;

use core::time::Duration;
use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Weak};

use vervain_transport::fabric::{Access, Doorbell, Event, Fabric, Key, LinkId, Op, Outcome, RegionId, RemoteId, Span};
use vervain_transport::{Error, Kind, Rank, Result, Time};

use letter::{LETTER, Letter};

use super::board::{Boards, board_bytes};
use super::connection::{Connection, STRAIGHT, inbox_bytes, prepare_inbox};
use crate::buffer::{self, Memory};

/// Lanes of a communicator: collectives, and messages between two ranks.
pub const LANES: usize = 2;

/// Receives kept posted per link, and letters that may wait to be sent.
const RECEIVES: usize = 4;
/// What the executor knows of another rank before it talks to it.
#[derive(Clone, Debug)]
pub struct Member {
    /// Which start of it.
    pub incarnation: u64,
    /// Where its fabric listens.
    pub address: Vec<u8>,
}

/// Bytes of shared memory that a job of `ranks` ranks on one host needs for its first lane.
pub fn room(ranks: usize) -> usize {
    let links = ranks.saturating_sub(1).saturating_mul(inbox_bytes(true) + LINK);
    ranks.saturating_mul(links.saturating_add(board_bytes(ranks)))
}

/// What a fabric may keep for a link, about.
const LINK: usize = 256 << 10;

#[derive(Debug, Default)]
struct Peer {
    link: Option<LinkId>,
    up: bool,
    /// Why its link does nothing any more. No failure by itself: it may have left when we needed nothing more from it.
    down: Option<Error>,
    doorbell: Option<Doorbell>,
    foreign: Option<RemoteId>,
    inboxes: [Option<Memory>; LANES],
    offers: [Option<Key>; LANES],
    /// Letters that wait, and whether one is on its way.
    letters: VecDeque<Letter>,
    sending: bool,
}

/// Where a peer's part of a registration is.
#[derive(Clone, Copy, Debug)]
pub struct PeerPart {
    /// Mapped here, if the fabric maps.
    pub view: Option<Memory>,
    /// To read from.
    pub remote: RemoteId,
}

/// Memory that all ranks registered together.
#[derive(Debug)]
pub struct Registration {
    /// Our part; empty once its buffer was dropped.
    pub memory: Memory,
    /// What the fabric calls it, until then.
    region: Option<RegionId>,
    /// Held by the buffer.
    life: Weak<()>,
    /// Peers that have imported our part. Before all have, it may not be given back.
    imported: usize,
    /// Peers whose part we have imported, also if they have given it back since.
    complete: usize,
    /// Bytes that all must have, and who has not.
    bytes: u64,
    odd: Option<(Rank, u64)>,
    /// The others', by rank; `None` for us and for those that have not told yet.
    pub parts: Vec<Option<PeerPart>>,
}

/// All that connects one rank to the others.
#[derive(Debug)]
pub struct Links {
    rank: Rank,
    fabric: Box<dyn Fabric>,
    members: Vec<Member>,
    peers: Vec<Peer>,
    /// By lane, then rank.
    connections: Vec<Option<Box<Connection>>>,
    registrations: Vec<Registration>,
    /// Boards, once somebody needs them, and keys of peers' boards that came before.
    boards: Option<Boards>,
    early_boards: Vec<Option<Key>>,
    /// Parts of registrations that we have not made yet.
    early: HashMap<(u32, u32), (Key, u64)>,
    mail: Memory,
    mail_region: RegionId,
    _mail: Box<[u64]>,
    events: Vec<Event>,
    /// Reads that the executor posted and that are not done yet, by lane.
    reads: [u32; LANES],
    /// How long a new link may take to come up.
    patience: Duration,
    start: u64,
    /// The fabric moves data only while it is polled.
    active: bool,
}

const LETTER_RECEIVED: u64 = 1 << 32;
const LETTER_SENT: u64 = 2 << 32;
const READ: u64 = 3 << 32;

impl Links {
    /// No link yet. Every counter of every connection begins at `start`: 0 but in tests of wrap-around.
    pub fn new(
        rank: Rank,
        mut fabric: Box<dyn Fabric>,
        members: Vec<Member>,
        patience: Duration,
        start: u64,
    ) -> Result<Self> {
        let ranks = members.len();
        let (owned, mail) = buffer::owned(ranks * (RECEIVES + 1) * LETTER);
        let mail_region = buffer::register(&mut *fabric, mail)?;
        let active = !fabric.capabilities().passive;
        Ok(Self {
            rank,
            fabric,
            members,
            peers: (0..ranks).map(|_| Peer::default()).collect(),
            connections: (0..ranks * LANES).map(|_| None).collect(),
            registrations: Vec::new(),
            boards: None,
            early_boards: vec![None; ranks],
            early: HashMap::new(),
            mail,
            mail_region,
            _mail: owned,
            events: Vec::with_capacity(64),
            reads: [0; LANES],
            patience,
            start,
            active,
        })
    }

    /// How many ranks there are.
    pub fn ranks(&self) -> usize {
        self.peers.len()
    }

    /// The fabric below.
    pub fn fabric(&mut self) -> &mut dyn Fabric {
        &mut *self.fabric
    }

    /// The connection to `peer` on `lane`, which [`Links::connect`] made.
    #[inline]
    pub fn connection(&mut self, lane: usize, peer: Rank) -> Result<&mut Connection> {
        let index = lane * self.peers.len() + peer.index();
        self.connections[index].as_deref_mut().ok_or(Error::new(Kind::Bug))
    }

    /// Make the connection to `peer` on `lane` if there is none. True once it is there; otherwise call again after a poll.
    pub fn connect(&mut self, lane: usize, peer: Rank) -> Result<bool> {
        if self.connections[lane * self.peers.len() + peer.index()].is_some() {
            return Ok(true);
        }
        let Some(link) = self.link(peer)? else { return Ok(false) };
        let inbox = match self.peers[peer.index()].inboxes[lane] {
            Some(inbox) => inbox,
            None => self.offer_inbox(lane, peer, link)?,
        };
        let entry = &mut self.peers[peer.index()];
        let connection = match entry.offers[lane].take() {
            Some(key) if entry.down.is_none() => match self.complete(peer, link, inbox, &key) {
                Err(error) if error.kind() == Kind::LinkFailed => {
                    self.note_down(peer, error);
                    self.complete_without(peer, inbox)?
                }
                connection => connection?,
            },
            _ if entry.down.is_some() => self.complete_without(peer, inbox)?,
            _ => return Ok(false),
        };
        let index = lane * self.peers.len() + peer.index();
        self.connections[index] = Some(Box::new(connection));
        Ok(true)
    }

    /// The peer had our inbox, did its part and left before we took its own. What it sent is in ours; what we have to say to it
    /// goes to memory that nobody reads.
    fn complete_without(&mut self, peer: Rank, inbox: Memory) -> Result<Connection> {
        let unread = self.fabric.allocate(inbox_bytes(!self.active))?;
        let outbox = buffer::of_region(&*self.fabric, unread)?;
        Ok(Connection::new(peer, inbox, outbox, None, self.start).with_layout_of(!self.active))
    }

    /// The link to `peer`, once it is up; dials if that is our part.
    fn link(&mut self, peer: Rank) -> Result<Option<LinkId>> {
        let entry = &mut self.peers[peer.index()];
        if entry.link.is_none() && self.rank < peer {
            let address = &self.members[peer.index()].address;
            entry.link = Some(self.fabric.dial(peer, address, Time::now().after(self.patience))?);
        }
        Ok(entry.link.filter(|_| entry.up))
    }

    fn offer_inbox(&mut self, lane: usize, peer: Rank, link: LinkId) -> Result<Memory> {
        let region = self.fabric.allocate(inbox_bytes(!self.active))?;
        let inbox = buffer::of_region(&*self.fabric, region)?;
        prepare_inbox(inbox, !self.active, self.start);
        let key = self.fabric.advertise(link, region, Access::ReadWrite).map_err(of(peer))?;
        let entry = &mut self.peers[peer.index()];
        entry.inboxes[lane] = Some(inbox);
        entry.letters.push_back(Letter::Inbox { lane: lane as u32, key });
        self.send_letters(peer)?;
        Ok(inbox)
    }

    fn complete(&mut self, peer: Rank, link: LinkId, inbox: Memory, key: &Key) -> Result<Connection> {
        let remote = self.fabric.import(link, key).map_err(of(peer))?;
        let doorbell = self.peers[peer.index()].doorbell.clone();
        if let Some(outbox) = buffer::of_view(&*self.fabric, remote) {
            if outbox.bytes() < inbox_bytes(true) {
                return Err(Error::new(Kind::Corrupt).with_rank(peer));
            }
            return Ok(Connection::new(peer, inbox, outbox, doorbell, self.start));
        }
        let mirror = self.fabric.allocate(inbox_bytes(!self.active))?;
        let outbox = buffer::of_region(&*self.fabric, mirror)?;
        Ok(Connection::new(peer, inbox, outbox, doorbell, self.start).through(link, mirror, remote))
    }

    /// Make the boards if there are none. True once all are there; otherwise call again after a poll.
    pub fn connect_boards(&mut self) -> Result<bool> {
        if let Some(boards) = &self.boards {
            return Ok(boards.is_complete());
        }
        if !self.link_all()? {
            return Ok(false);
        }
        let region = self.fabric.allocate(board_bytes(self.ranks()))?;
        let own = buffer::of_region(&*self.fabric, region)?;
        self.boards = Some(Boards::new(self.rank, self.ranks(), own, self.start));
        for peer in self.others() {
            let Some(link) = self.link(peer)? else { return Err(Kind::Bug.into()) };
            let key = self.fabric.advertise(link, region, Access::ReadWrite).map_err(of(peer))?;
            self.peers[peer.index()].letters.push_back(Letter::Board { key });
            self.send_letters(peer)?;
            if let Some(key) = self.early_boards[peer.index()].take() {
                self.add_board(link, peer, &key)?;
            }
        }
        Ok(false)
    }

    /// The first peer whose board has not come.
    pub fn without_board(&self) -> Option<Rank> {
        self.others().find(|&peer| self.boards.as_ref().is_none_or(|boards| !boards.has(peer)))
    }

    /// The boards, which [`Links::connect_boards`] made.
    #[inline]
    pub fn boards(&mut self) -> Result<&mut Boards> {
        self.boards.as_mut().ok_or(Error::new(Kind::Bug))
    }

    fn add_board(&mut self, link: LinkId, peer: Rank, key: &Key) -> Result<()> {
        let remote = self.fabric.import(link, key).map_err(of(peer))?;
        let board = buffer::of_view(&*self.fabric, remote).ok_or(Error::new(Kind::Corrupt).with_rank(peer))?;
        self.boards()?.add(peer, board)
    }

    /// Wake everybody who sleeps.
    #[inline]
    pub fn ring_all(&self) {
        for peer in &self.peers {
            if let Some(doorbell) = &peer.doorbell {
                doorbell.ring();
            }
        }
    }

    /// Link to everybody. True once all links are up.
    pub fn link_all(&mut self) -> Result<bool> {
        let mut all = true;
        for peer in self.others() {
            all &= self.link(peer)?.is_some();
        }
        Ok(all)
    }

    /// The peer's address space, if it can be read.
    pub fn foreign(&self, peer: Rank) -> Option<RemoteId> {
        self.peers[peer.index()].foreign
    }

    /// Post one read for `lane`; [`Links::reading`] until it is done. False if it was not accepted.
    pub fn read(
        &mut self,
        lane: usize,
        peer: Rank,
        local: Span,
        target: vervain_transport::fabric::Target,
    ) -> Result<bool> {
        let Some(link) = self.link(peer)? else { return Err(Kind::Bug.into()) };
        let read = Op::Read { token: READ | lane as u64, local, target };
        let accepted = self.fabric.post(link, &[read]).map_err(of(peer))?;
        self.reads[lane] += accepted as u32;
        Ok(accepted == 1)
    }

    /// Whether reads of `lane` are not done yet.
    pub fn reading(&self, lane: usize) -> bool {
        self.reads[lane] > 0
    }

    /// Whether data moves only when we poll: an active fabric, or reads on their way.
    #[inline]
    pub fn wants_poll(&self) -> bool {
        self.active || self.reads != [0; LANES]
    }

    /// Hand over what is due and take in what happened. True if anything did.
    pub fn poll(&mut self, now: Time) -> Result<bool> {
        self.flush();
        let mut events = core::mem::take(&mut self.events);
        events.clear();
        self.fabric.poll(now, &mut events);
        let result = events.iter().try_for_each(|event| self.on_event(event));
        let any = !events.is_empty();
        self.events = events;
        result.map(|()| any)
    }

    /// Whether nothing of ours needs further polls to leave this process.
    pub fn is_drained(&mut self) -> Result<bool> {
        if !self.active {
            return Ok(true);
        }
        let straight = self.connections.iter().flatten().any(|connection| connection.is_straight());
        Ok(self.flush() && !straight && self.fabric.is_drained())
    }

    /// Hand over what is due. True if all of it was taken.
    fn flush(&mut self) -> bool {
        let mut all = true;
        for connection in self.connections.iter_mut().flatten() {
            let peer = connection.peer().index();
            match connection.flush(&mut *self.fabric) {
                Ok(taken) => all &= taken,
                Err(error) => self.peers[peer].down = self.peers[peer].down.or(Some(error)),
            }
        }
        all
    }

    fn note_down(&mut self, peer: Rank, error: Error) {
        let entry = &mut self.peers[peer.index()];
        entry.down = entry.down.or(Some(error.with_rank(peer)));
    }

    /// Nothing may touch the caller's buffers any more: what is on its way from or to them is given up.
    pub fn close(&mut self) {
        for peer in &self.peers {
            if let Some(link) = peer.link {
                self.fabric.close(link);
            }
        }
    }

    /// Why nothing can come from `peer` any more, if that is so.
    pub fn down(&self, peer: Rank) -> Option<Error> {
        self.peers[peer.index()].down.map(|error| error.with_rank(peer))
    }

    fn on_event(&mut self, event: &Event) -> Result<()> {
        match *event {
            Event::Up { link, peer, incarnation } => self.on_up(link, peer, incarnation),
            Event::Down { link, error } => {
                if let Some(peer) = self.peer_of(link) {
                    self.note_down(peer, error);
                }
                Ok(())
            }
            Event::Done { link, token, result } => self.on_done(link, token, result),
            // nothing is revoked here
            Event::Revoked { .. } => Ok(()),
        }
    }

    fn on_up(&mut self, link: LinkId, peer: Rank, incarnation: u64) -> Result<()> {
        let expected = self.members.get(peer.index()).is_some_and(|member| member.incarnation == incarnation);
        let taken = self.peers.get(peer.index()).is_some_and(|entry| entry.link.is_some_and(|known| known != link));
        if !expected || taken || peer == self.rank {
            self.fabric.close(link);
            return Ok(());
        }
        let foreign = self.fabric.foreign(link);
        let doorbell = self.fabric.peer_doorbell(link);
        let entry = &mut self.peers[peer.index()];
        (entry.link, entry.up, entry.foreign, entry.doorbell) = (Some(link), true, foreign, doorbell);
        for slot in 0..RECEIVES {
            self.post_receive(link, peer, slot)?;
        }
        self.send_letters(peer)
    }

    fn on_done(&mut self, link: LinkId, token: u64, result: Result<Outcome>) -> Result<()> {
        let Some(peer) = self.peer_of(link) else { return Ok(()) };
        let outcome = match result {
            Ok(outcome) => outcome,
            Err(error) if token & !0xffff_ffff == READ => return Err(error.with_rank(peer)),
            Err(error) => {
                self.note_down(peer, error);
                return Ok(());
            }
        };
        match (token & !0xffff_ffff, outcome) {
            (LETTER_RECEIVED, Outcome::Received { bytes, immediate: None }) if bytes == LETTER as u64 => {
                let slot = token as u32 as usize;
                let mut letter = [0; LETTER];
                self.mail.slice(self.mail_at(peer, slot), LETTER).copy_to(&mut letter);
                self.post_receive(link, peer, slot)?;
                let letter = Letter::parse(&letter).ok_or(Error::new(Kind::Corrupt).with_rank(peer))?;
                self.on_letter(link, peer, letter)
            }
            (LETTER_RECEIVED, _) => Err(Error::new(Kind::Corrupt).with_rank(peer)),
            (LETTER_SENT, _) => {
                self.peers[peer.index()].sending = false;
                self.send_letters(peer)
            }
            (STRAIGHT, _) => {
                let lanes = (0..LANES).map(|lane| lane * self.peers.len() + peer.index());
                // All messages of a link land in order; whichever lane still waits for one gets it.
                for index in lanes {
                    if let Some(connection) = self.connections[index].as_deref_mut().filter(|known| known.is_straight())
                    {
                        connection.on_landed();
                        break;
                    }
                }
                Ok(())
            }
            (READ, _) => {
                self.reads[token as u32 as usize] -= 1;
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn on_letter(&mut self, link: LinkId, peer: Rank, letter: Letter) -> Result<()> {
        match letter {
            Letter::Inbox { lane, key } => {
                let offer = &mut self.peers[peer.index()].offers[lane as usize];
                if offer.replace(key).is_some() {
                    return Err(Error::new(Kind::Corrupt).with_rank(peer));
                }
                Ok(())
            }
            Letter::Registration { index, bytes, key } if (index as usize) < self.registrations.len() => {
                self.import_part(link, peer, index, &key, bytes)
            }
            Letter::Board { key } => match self.boards {
                Some(_) => self.add_board(link, peer, &key),
                None if self.early_boards[peer.index()].replace(key).is_none() => Ok(()),
                None => Err(Error::new(Kind::Corrupt).with_rank(peer)),
            },
            Letter::Imported { index } => {
                let registration = self.registrations.get_mut(index as usize);
                registration.ok_or(Error::new(Kind::Corrupt).with_rank(peer))?.imported += 1;
                Ok(())
            }
            Letter::Forget { index } => {
                let registration = self.registrations.get_mut(index as usize);
                let part = registration.and_then(|registration| registration.parts[peer.index()].take());
                let part = part.ok_or(Error::new(Kind::Corrupt).with_rank(peer))?;
                self.fabric.forget(part.remote)
            }
            // A peer can be ahead of us by one registration only: the next one needs our answer.
            Letter::Registration { index, bytes, key } if index as usize == self.registrations.len() => {
                self.early.insert((index, peer.get()), (key, bytes));
                Ok(())
            }
            Letter::Registration { .. } => Err(Error::new(Kind::Corrupt).with_rank(peer)),
        }
    }

    fn import_part(&mut self, link: LinkId, peer: Rank, index: u32, key: &Key, bytes: u64) -> Result<()> {
        let corrupt = Error::new(Kind::Corrupt).with_rank(peer);
        let remote = self.fabric.import(link, key).map_err(of(peer))?;
        let view = buffer::of_view(&*self.fabric, remote);
        let registration = &mut self.registrations[index as usize];
        let known = registration.parts[peer.index()].replace(PeerPart { view, remote }).is_some();
        if known || view.is_some_and(|view| (view.bytes() as u64) < bytes) {
            return Err(corrupt);
        }
        registration.complete += 1;
        if registration.bytes != bytes {
            registration.odd = Some((peer, bytes));
        }
        self.peers[peer.index()].letters.push_back(Letter::Imported { index });
        self.send_letters(peer)
    }

    fn send_letters(&mut self, peer: Rank) -> Result<()> {
        let at = self.mail_at(peer, RECEIVES);
        let entry = &mut self.peers[peer.index()];
        let (Some(link), true, false) = (entry.link, entry.up, entry.sending) else { return Ok(()) };
        let Some(letter) = entry.letters.front() else { return Ok(()) };
        self.mail.slice(at, LETTER).copy_from(&letter.emit());
        let local = Span { region: self.mail_region, offset: at as u64, bytes: LETTER as u64 };
        match self.fabric.post(link, &[Op::Send { token: LETTER_SENT, local }]) {
            Ok(1) => {
                entry.letters.pop_front();
                entry.sending = true;
            }
            Ok(_) => {}
            Err(error) => self.note_down(peer, error),
        }
        Ok(())
    }

    /// Try again to send letters that found no receive posted.
    pub fn retry_letters(&mut self) -> Result<()> {
        for peer in 0..self.peers.len() {
            if !self.peers[peer].letters.is_empty() {
                self.send_letters(Rank::new(peer as u32))?;
            }
        }
        Ok(())
    }

    fn post_receive(&mut self, link: LinkId, peer: Rank, slot: usize) -> Result<()> {
        let at = self.mail_at(peer, slot);
        let local = Span { region: self.mail_region, offset: at as u64, bytes: LETTER as u64 };
        match self.fabric.post(link, &[Op::Receive { token: LETTER_RECEIVED | slot as u64, local }]) {
            Ok(1) => Ok(()),
            Ok(_) => Err(Kind::Bug.into()),
            Err(error) => {
                self.note_down(peer, error);
                Ok(())
            }
        }
    }

    fn mail_at(&self, peer: Rank, slot: usize) -> usize {
        (peer.index() * (RECEIVES + 1) + slot) * LETTER
    }

    fn peer_of(&self, link: LinkId) -> Option<Rank> {
        self.peers.iter().position(|peer| peer.link == Some(link)).map(|index| Rank::new(index as u32))
    }

    fn others(&self) -> impl Iterator<Item = Rank> + use<> {
        let rank = self.rank;
        (0..self.peers.len() as u32).map(Rank::new).filter(move |&peer| peer != rank)
    }

    /// Keeps the memory of a region alive without the fabric.
    pub fn keep(&self, region: RegionId) -> Option<Arc<dyn core::any::Any + Send + Sync>> {
        self.fabric.keep(region)
    }
}

/// Errors of a link do not always say whose it is.
fn of(peer: Rank) -> impl Fn(Error) -> Error {
    move |error| error.with_rank(peer)
}
