//! Peers: who is at the other end, over which fabric, and why not over another.

use alloc::collections::VecDeque;
use alloc::{string::String, vec, vec::Vec};
use core::fmt;

use super::table::NONE;
use crate::{
    Error, Kind, Result,
    fabric::{Backend, LinkId},
    wire::advert::Who,
};

/// A peer of an endpoint. Never reused: a peer that comes back is a new one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PeerId(pub(super) u32);

impl PeerId {
    /// Its number, counted from 0 in the order of appearance: to index a table with.
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// What happened to a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PeerEvent {
    /// It can be used: we connected to it, or it connected to us. It has given credit; a message of its own may have come before.
    Up(PeerId),
    /// It is gone for good; everything under way with it has ended.
    Down(PeerId, Error),
}

/// Where a peer stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    Dialing,
    Up,
    Down(Error),
}

#[derive(Debug)]
pub(super) struct Peer {
    pub who: Who,
    pub backend: u8,
    pub link: LinkId,
    pub state: State,
    /// The transfer whose rest waits for the fabric; later ones must not overtake it.
    pub backlog: u32,
    /// Receives that are posted, and how many there should be.
    pub receives: u32,
    pub wanted: u32,
    /// Slots that are to be posted again.
    pub idle: Vec<u32>,
    /// It took our first message: whoever sends next finds room.
    pub is_greeted: bool,
    /// It is in the list of those whose slots are to be posted.
    pub is_hungry: bool,
    /// Barrier messages that came, and that our barriers have waited for.
    pub barriers: (u64, u64),
    /// Fabrics that could not be used, and why.
    pub refused: Vec<(Backend, String)>,
    /// What is left to try, while it is dialled.
    pub address: Vec<u8>,
    pub deadline: crate::Time,
}

/// All of them.
#[derive(Debug)]
pub(super) struct Peers {
    all: Vec<Peer>,
    /// By backend and link.
    by_link: Vec<Vec<u32>>,
    /// Links that are dialled or up, by backend.
    in_use: Vec<u32>,
    /// Peers whose link is up, and that have given no credit yet.
    pub ungreeted: Vec<PeerId>,
    /// Peers that are being connected.
    pub dialing: u32,
    pub news: VecDeque<PeerEvent>,
    /// Peers with a backlog.
    pub waiting: Vec<u32>,
    /// Peers with slots to be posted again.
    pub hungry: Vec<u32>,
}

impl Peers {
    pub fn new(backends: usize) -> Self {
        Self {
            all: Vec::new(),
            by_link: vec![Vec::new(); backends],
            in_use: vec![0; backends],
            ungreeted: Vec::new(),
            dialing: 0,
            news: VecDeque::new(),
            waiting: Vec::new(),
            hungry: Vec::new(),
        }
    }

    /// Whether the backend has to be polled all the time.
    #[inline]
    pub fn uses(&self, backend: usize) -> bool {
        self.in_use[backend] > 0
    }

    pub fn add(&mut self, peer: Peer) -> PeerId {
        let id = PeerId(self.all.len() as u32);
        self.connect(id, peer.backend, peer.link);
        self.all.push(peer);
        id
    }

    /// Note which link is whose.
    pub fn connect(&mut self, id: PeerId, backend: u8, link: LinkId) {
        let links = &mut self.by_link[usize::from(backend)];
        if links.len() <= link.0 as usize {
            links.resize(link.0 as usize + 1, NONE);
        }
        links[link.0 as usize] = id.0;
        self.in_use[usize::from(backend)] += 1;
    }

    /// The link is no more.
    pub fn disconnect(&mut self, backend: u8, link: LinkId) {
        self.by_link[usize::from(backend)][link.0 as usize] = NONE;
        self.in_use[usize::from(backend)] -= 1;
    }

    #[inline]
    pub fn of_link(&self, backend: usize, link: LinkId) -> Option<PeerId> {
        self.by_link[backend].get(link.0 as usize).copied().filter(|&index| index != NONE).map(PeerId)
    }

    #[inline]
    pub fn get(&self, id: PeerId) -> &Peer {
        &self.all[id.index()]
    }

    #[inline]
    pub fn get_mut(&mut self, id: PeerId) -> &mut Peer {
        &mut self.all[id.index()]
    }

    pub fn find(&self, id: PeerId) -> Result<&Peer> {
        self.all.get(id.index()).ok_or(Error::new(Kind::InvalidArgument))
    }

    /// A peer that can be used.
    #[inline]
    pub fn up(&self, id: PeerId) -> Result<&Peer> {
        let peer = self.find(id)?;
        match peer.state {
            State::Up => Ok(peer),
            State::Dialing => Err(Kind::InvalidUsage.into()),
            State::Down(error) => Err(error),
        }
    }

    pub fn iter(&self) -> impl Iterator<Item = (PeerId, &Peer)> {
        self.all.iter().zip(0..).map(|(peer, index)| (PeerId(index), peer))
    }
}

/// Why a peer is reached the way it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Explanation {
    /// The peer.
    pub peer: PeerId,
    /// Its number and start.
    pub who: Who,
    /// The fabric in use, or last tried.
    pub backend: Backend,
    /// Where that stands.
    pub state: String,
    /// The fabrics that were not used, and why.
    pub refused: Vec<(String, String)>,
}

impl fmt::Display for Explanation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Who { endpoint, incarnation } = self.who;
        write!(
            f,
            "peer {} (endpoint {endpoint:08x}, start {incarnation:016x}): {}, {}",
            self.peer.0, self.backend, self.state
        )?;
        for (backend, why) in &self.refused {
            write!(f, "\n  not {backend}: {why}")?;
        }
        Ok(())
    }
}
