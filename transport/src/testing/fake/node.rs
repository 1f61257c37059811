//! What one fabric holds: regions, remotes, links, and what happened and was not reported.

use std::collections::{BTreeSet, VecDeque};

use super::{key::Grant, memory::Regions, wire::Port};
use crate::{
    Error, Kind, Rank, Result, Time,
    fabric::{Access, Doorbell, Event, Identity, LinkId, Op, Outcome, RegionId, Span},
};

/// One fabric's part of the network.
#[derive(Debug)]
pub(super) struct Node {
    pub identity: Identity,
    pub life: Life,
    pub bell: Doorbell,
    pub regions: Regions,
    pub remotes: Vec<Option<Remote>>,
    pub links: Vec<Slot>,
    pub events: VecDeque<Event>,
    /// Regions whose revocation has not been reported.
    pub revoking: BTreeSet<RegionId>,
    /// Frames on their way here: when they are due, a number that chance drew, and for which end. One entry for each; which
    /// of an end's frames it stands for follows from their order there.
    pub mail: BTreeSet<(Time, u64, Port)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Life {
    Alive,
    /// Its fabric was dropped, or crashed.
    Gone,
}

/// A peer's region, imported.
#[derive(Clone, Copy, Debug)]
pub(super) struct Remote {
    pub link: LinkId,
    pub grant: u32,
    pub nonce: u64,
    pub bytes: u64,
    pub access: Access,
}

#[derive(Debug)]
pub(super) enum Slot {
    Live(Box<Link>),
    /// The peer that it led to.
    Down(Rank),
}

/// One end of a path, dialling or up.
#[derive(Debug)]
pub(super) struct Link {
    pub port: Port,
    pub peer: Rank,
    pub state: State,
    /// Accepted, and not left.
    pub queue: VecDeque<Queued>,
    /// Left, and not answered.
    pub pending: VecDeque<Pending>,
    pub receives: VecDeque<Receive>,
    /// What arrived for receives that were cancelled; it waits for the next ones.
    pub early: VecDeque<Arrival>,
    /// Receives that the peer may still use though they were cancelled.
    pub debt: usize,
    /// Receives posted, and not told to the peer.
    pub untold: usize,
    /// Receives of the peer that nothing of ours has used.
    pub credits: usize,
    pub grants: Vec<Option<Grant>>,
    /// Numbers operations in the order of their posting.
    pub next: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    Dialling { deadline: Time },
    Up,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Queued {
    pub number: u64,
    pub op: Op,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Pending {
    pub number: u64,
    pub token: u64,
    /// Local memory: of a read, where the data goes.
    pub local: Option<Span>,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Receive {
    pub number: u64,
    pub token: u64,
    pub local: Span,
}

/// What uses up a receive.
#[derive(Clone, Debug)]
pub(super) enum Arrival {
    Message(Vec<u8>),
    Immediate { value: u32, bytes: u64 },
}

impl Node {
    pub fn new(identity: Identity, bell: Doorbell) -> Self {
        Self {
            identity,
            life: Life::Alive,
            bell,
            regions: Regions::default(),
            remotes: Vec::new(),
            links: Vec::new(),
            events: VecDeque::new(),
            revoking: BTreeSet::new(),
            mail: BTreeSet::new(),
        }
    }

    /// A link in whatever state; why there is none otherwise.
    pub fn known(&mut self, link: LinkId) -> Result<&mut Link> {
        match self.links.get_mut(link.0 as usize) {
            Some(Slot::Live(link)) => Ok(link),
            Some(Slot::Down(peer)) => Err(Error::new(Kind::LinkFailed).with_rank(*peer)),
            None => Err(Kind::InvalidArgument.into()),
        }
    }

    /// A link that is up.
    pub fn link(&mut self, link: LinkId) -> Result<&mut Link> {
        let known = self.known(link)?;
        if known.state == State::Up { Ok(known) } else { Err(Kind::InvalidUsage.into()) }
    }

    pub fn add_link(&mut self, port: Port, peer: Rank, state: State) -> LinkId {
        let id = LinkId(self.links.len() as u32);
        self.links.push(Slot::Live(Box::new(Link::new(port, peer, state))));
        id
    }

    /// Report the end of an operation, and give its memory back.
    pub fn end(&mut self, link: LinkId, token: u64, local: Option<Span>, result: Result<Outcome>) {
        if let Some(local) = local {
            self.regions.let_go(local.region);
        }
        self.events.push_back(Event::Done { link, token, result });
    }

    /// End a link: everything outstanding in the order of its posting, then the link itself.
    pub fn fail(&mut self, id: LinkId, kind: Kind) {
        let Some(slot) = self.links.get_mut(id.0 as usize) else { return };
        let Slot::Live(link) = slot else { return };
        let (error, peer) = (Error::new(kind).with_rank(link.peer), link.peer);
        let outstanding = link.outstanding();
        *slot = Slot::Down(peer);
        for (_, token, local) in outstanding {
            self.end(id, token, local, Err(error));
        }
        self.events.push_back(Event::Down { link: id, error });
    }

    pub fn links(&self) -> impl Iterator<Item = &Link> {
        self.links.iter().filter_map(|slot| match slot {
            Slot::Live(link) => Some(&**link),
            Slot::Down(_) => None,
        })
    }

    /// The names of links that have not ended.
    pub fn live(&self) -> Vec<LinkId> {
        let live = |slot: &Slot| matches!(slot, Slot::Live(_));
        (0..self.links.len()).filter(|at| live(&self.links[*at])).map(|at| LinkId(at as u32)).collect()
    }
}

impl Link {
    fn new(port: Port, peer: Rank, state: State) -> Self {
        Self {
            port,
            peer,
            state,
            queue: VecDeque::new(),
            pending: VecDeque::new(),
            receives: VecDeque::new(),
            early: VecDeque::new(),
            debt: 0,
            untold: 0,
            credits: 0,
            grants: Vec::new(),
            next: 0,
        }
    }

    pub fn number(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    /// Number, token and memory of every operation that has not ended.
    pub fn outstanding(&self) -> Vec<(u64, u64, Option<Span>)> {
        let queued = self.queue.iter().map(|queued| (queued.number, queued.op.token(), local_of(&queued.op)));
        let pending = self.pending.iter().map(|pending| (pending.number, pending.token, pending.local));
        let receives = self.receives.iter().map(|receive| (receive.number, receive.token, Some(receive.local)));
        let mut all: Vec<_> = queued.chain(pending).chain(receives).collect();
        all.sort_by_key(|(number, ..)| *number);
        all
    }
}

pub(super) fn local_of(op: &Op) -> Option<Span> {
    match *op {
        Op::Write { local, .. } | Op::Read { local, .. } | Op::Send { local, .. } | Op::Receive { local, .. } => {
            Some(local)
        }
        Op::WriteInline { .. } | Op::FetchAdd { .. } | Op::CompareSwap { .. } | Op::Flush { .. } => None,
    }
}

/// Whether it uses a receive of the peer.
pub(super) fn needs_credit(op: &Op) -> bool {
    matches!(op, Op::Send { .. } | Op::Write { immediate: Some(_), .. } | Op::WriteInline { immediate: Some(_), .. })
}
