//! Links come up and go down.

use alloc::{format, string::String, string::ToString, vec::Vec};

use super::messages::Purpose;
use super::peers::{Peer, State};
use super::post::Terms;
use super::table::NONE;
use super::{Endpoint, Explanation, PeerEvent, PeerId, Posted};
use crate::{
    Error, Kind, Rank, Result, Time,
    fabric::{Backend, LinkId},
    wire::advert::{Address, Who},
};

/// Receives of a peer that has sent nothing yet.
const AT_FIRST: u32 = 4;

impl Endpoint {
    /// What a peer needs to connect to us: bytes to be sent over any channel that others cannot change.
    ///
    /// # Errors
    /// `InvalidArgument` if a fabric of yours has an address that is too long.
    pub fn address(&self) -> Result<Vec<u8>> {
        let named: Vec<(String, Vec<u8>)> =
            self.backends.iter().map(|fabric| (fabric.backend().to_string(), fabric.address())).collect();
        let backends = named.iter().map(|(name, address)| (name.as_bytes(), &address[..]));
        Ok(Address::emit(self.who, backends)?)
    }

    /// Start to connect to the endpoint with this address, over the first of our fabrics that both have and that works. [`PeerEvent::Up`] or
    /// [`PeerEvent::Down`] follows by `deadline`. One side of a pair connects.
    ///
    /// # Errors
    /// `Corrupt` or `VersionMismatch` for bytes that are no address of our version, `TimedOut` for a deadline that has passed,
    /// `Unsupported` if we have no fabric in common ([`Endpoint::explain`] says why not for a peer that went down).
    pub fn dial(&mut self, address: &[u8], deadline: Time) -> Result<PeerId> {
        let parsed = Address::parse(address)?;
        if deadline <= self.now {
            return Err(Kind::TimedOut.into());
        }
        let mut refused = Vec::new();
        let (backend, link) = self.dial_from(0, &parsed, deadline, &mut refused)?;
        let peer =
            Peer { refused, address: address.to_vec(), ..new(parsed.who, backend, link, State::Dialing, deadline) };
        self.peers.dialing += 1;
        Ok(self.peers.add(peer))
    }

    /// Dial over the first usable fabric from this one on.
    fn dial_from(
        &mut self,
        first: usize,
        address: &Address<'_>,
        deadline: Time,
        refused: &mut Vec<(Backend, String)>,
    ) -> Result<(u8, LinkId)> {
        for (index, fabric) in self.backends.iter_mut().enumerate().skip(first) {
            let name = fabric.backend().to_string();
            let there = address.backends().find(|(theirs, _)| *theirs == name.as_bytes());
            let result = match there {
                None => Err(String::from("the peer has none")),
                Some((_, there)) => fabric
                    .dial(Rank::new(address.who.endpoint), there, deadline)
                    .map_err(|error| error.kind().to_string()),
            };
            match result {
                Ok(link) => return Ok((index as u8, link)),
                Err(why) => refused.push((fabric.backend(), why)),
            }
        }
        Err(Kind::Unsupported.into())
    }

    pub(super) fn on_up(&mut self, backend: usize, link: LinkId, rank: Rank, incarnation: u64) {
        let who = Who { endpoint: rank.get(), incarnation };
        let id = match self.peers.of_link(backend, link) {
            Some(id) => id,
            None => self.peers.add(new(who, backend as u8, link, State::Up, Time::NEVER)),
        };
        let expected = self.peers.get(id).who;
        if expected != who {
            // the address belongs to an earlier start of this peer
            self.backends[backend].close(link);
            self.peers.get_mut(id).refused.push((self.backends[backend].backend(), stale(expected, who)));
            return;
        }
        let peer = self.peers.get_mut(id);
        let was_dialled = peer.state == State::Dialing;
        peer.state = State::Up;
        // nothing is left to be tried
        peer.address = Vec::new();
        peer.wanted = AT_FIRST.min(self.limits.receives);
        self.peers.dialing -= u32::from(was_dialled);
        self.feed(id);
        self.peers.ungreeted.push(id);
    }

    /// Say hello to peers that have given credit by now: from then on they are up, and whoever sends to them finds room.
    pub(super) fn greet(&mut self) {
        let mut ungreeted = core::mem::take(&mut self.peers.ungreeted);
        ungreeted.retain(|&id| {
            match self.send_for(Purpose::Hello, id, 0, &[], Terms::by(Time::NEVER).detached(), NONE) {
                Ok(Posted::Busy) => return true,
                Ok(Posted::Started(_)) => {
                    self.heard += 1;
                    self.peers.get_mut(id).is_greeted = true;
                    self.peers.news.push_back(PeerEvent::Up(id));
                }
                // its end says so
                Err(_) => {}
            }
            false
        });
        self.peers.ungreeted.append(&mut ungreeted);
    }

    pub(super) fn on_down(&mut self, backend: usize, link: LinkId, error: Error) {
        let Some(id) = self.peers.of_link(backend, link) else { return };
        self.peers.disconnect(backend as u8, link);
        let kind = self.backends[backend].backend();
        let peer = self.peers.get_mut(id);
        if peer.state == State::Dialing && self.now < peer.deadline && self.dial_another(id, (kind, error)) {
            return;
        }
        self.peers.dialing -= u32::from(self.peers.get(id).state == State::Dialing);
        self.peers.get_mut(id).state = State::Down(error);
        self.drop_peer(id, error);
        self.peers.news.push_back(PeerEvent::Down(id, error));
    }

    /// The fabric did not work: try those behind it.
    fn dial_another(&mut self, id: PeerId, (kind, error): (Backend, Error)) -> bool {
        let peer = self.peers.get_mut(id);
        let (next, deadline, address) =
            (usize::from(peer.backend) + 1, peer.deadline, core::mem::take(&mut peer.address));
        let mut refused = core::mem::take(&mut peer.refused);
        refused.push((kind, error.to_string()));
        let dialled = match Address::parse(&address) {
            Ok(parsed) => self.dial_from(next, &parsed, deadline, &mut refused),
            Err(kind) => Err(kind.into()),
        };
        let peer = self.peers.get_mut(id);
        (peer.refused, peer.address) = (refused, address);
        let Ok((backend, link)) = dialled else { return false };
        (peer.backend, peer.link) = (backend, link);
        self.peers.connect(id, backend, link);
        true
    }

    /// End what is under way with a peer that is gone; what the fabric had accepted has ended before.
    fn drop_peer(&mut self, id: PeerId, error: Error) {
        let waiting = core::mem::replace(&mut self.peers.get_mut(id).backlog, NONE);
        if waiting != NONE {
            self.give_up(waiting, error);
        }
        self.release_slots(id);
        self.close_regions_of(id);
    }

    /// Leave a peer: everything under way with it ends, then it is down.
    ///
    /// # Errors
    /// `InvalidArgument` if there is no such peer.
    pub fn disconnect(&mut self, peer: PeerId) -> Result<()> {
        let known = self.peers.find(peer)?;
        if !matches!(known.state, State::Down(_)) {
            let (backend, link) = (usize::from(known.backend), known.link);
            self.peers.get_mut(peer).deadline = Time::default();
            self.backends[backend].close(link);
        }
        Ok(())
    }

    /// What happened to peers since this was last asked, the oldest first.
    pub fn next_peer_event(&mut self) -> Option<PeerEvent> {
        self.peers.news.pop_front()
    }

    /// Whether the peer can be used.
    ///
    /// # Errors
    /// Why it is down; `InvalidArgument` if there is no such peer.
    pub fn is_up(&self, peer: PeerId) -> Result<bool> {
        match self.peers.find(peer)?.state {
            State::Up => Ok(self.peers.get(peer).is_greeted),
            State::Dialing => Ok(false),
            State::Down(error) => Err(error),
        }
    }

    /// All peers that were ever seen.
    pub fn peers(&self) -> impl Iterator<Item = PeerId> {
        self.peers.iter().map(|(id, _)| id)
    }

    /// Number and start of a peer.
    ///
    /// # Errors
    /// `InvalidArgument` if there is no such peer.
    pub fn who_is(&self, peer: PeerId) -> Result<Who> {
        self.peers.find(peer).map(|peer| peer.who)
    }

    /// Which fabric a peer uses, and why the others were refused.
    ///
    /// # Errors
    /// `InvalidArgument` if there is no such peer.
    pub fn explain(&self, peer: PeerId) -> Result<Explanation> {
        let known = self.peers.find(peer)?;
        let backend = self.backends[usize::from(known.backend)].backend();
        let state = match known.state {
            State::Dialing => String::from("being connected"),
            State::Up => format!("up, {} receives posted", known.receives),
            State::Down(error) => format!("down: {error}"),
        };
        let absent = self.absent.iter().map(|(name, why)| (name.to_string(), why.clone()));
        let refused = known.refused.iter().map(|(backend, why)| (backend.to_string(), why.clone()));
        let mut refused: Vec<_> = absent.chain(refused).collect();
        for fabric in self.backends.iter().skip(usize::from(known.backend) + 1) {
            refused.push((fabric.backend().to_string(), format!("{backend} was preferred")));
        }
        Ok(Explanation { peer, who: known.who, backend, state, refused })
    }
}

fn new(who: Who, backend: u8, link: LinkId, state: State, deadline: Time) -> Peer {
    Peer {
        who,
        backend,
        link,
        state,
        backlog: NONE,
        receives: 0,
        wanted: 0,
        idle: Vec::new(),
        is_greeted: false,
        is_hungry: false,
        barriers: (0, 0),
        refused: Vec::new(),
        address: Vec::new(),
        deadline,
    }
}

fn stale(expected: Who, found: Who) -> String {
    format!(
        "the address is that of endpoint {:08x}, start {:016x}, but endpoint {:08x}, start {:016x} answered: ask it for its new address",
        expected.endpoint, expected.incarnation, found.endpoint, found.incarnation
    )
}
