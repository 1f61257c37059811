//! One link: its two directions, what is outstanding on it, and what its ends have shown each other.

use std::{
    collections::VecDeque,
    os::fd::{AsFd, OwnedFd},
};

use super::{
    books::Books,
    handshake::Joined,
    host::Host,
    lanes::{Inbox, Outbox, RECEIVES},
    notice::Notice,
    pull::Source,
    socket,
    staged::Staged,
};
use crate::{
    Kind, Rank,
    fabric::{Doorbell, LinkId, RegionId},
};

/// Most operations other than receives that are accepted and not reported.
pub(super) const WORK: usize = 256;

/// A posted receive.
#[derive(Debug)]
pub(super) struct Receive {
    pub token: u64,
    /// Where to; valid for `room` bytes as long as `region` is in use.
    pub to: *mut u8,
    pub room: usize,
    pub region: RegionId,
}

// SAFETY: `to` is used only through the fabric that owns the receive.
unsafe impl Send for Receive {}

/// A link that is up.
#[derive(Debug)]
pub(super) struct Link {
    pub id: LinkId,
    pub peer: Rank,
    pub socket: OwnedFd,
    /// Watched for the end of the peer's process: a child that it forked may hold its end of the socket open.
    pub process: Option<OwnedFd>,
    pub inbox: Inbox,
    pub outbox: Outbox,
    pub books: Books,
    /// The peer's memory can be read through the kernel.
    pub source: Option<Source>,
    /// Number of the remote that is its whole address space.
    pub foreign: Option<u32>,
    pub receives: VecDeque<Receive>,
    /// Receives that the peer was granted so far.
    pub granted: u64,
    /// Of these, the ones that were cancelled and have no successor yet.
    pub debt: usize,
    /// What came for them; it waits for the next receives. There are none then.
    pub parked: VecDeque<Notice>,
    pub staged: Staged,
    /// Receives accepted and not reported.
    pub open_receives: usize,
    /// Other operations accepted and not reported.
    pub open_work: usize,
    /// The peer's fences that we know of.
    pub fences: u64,
}

impl Link {
    /// The peer uses nothing of ours any more: its end is closed, or its process has ended.
    pub fn is_peer_gone(&self) -> bool {
        socket::is_gone(&self.socket, self.process.as_ref())
    }

    pub fn new(id: LinkId, joined: Joined, source: Option<Source>, host: &Host) -> Result<Self, Kind> {
        let Joined { socket, peer, own_nonce, setup, inbox, outbox, bell } = joined;
        let bell = Doorbell::from_page(bell, setup.ringing);
        Ok(Self {
            id,
            peer: peer.rank,
            process: socket::peer_watch(socket.as_fd()),
            socket,
            inbox: Inbox::new(inbox)?,
            outbox: Outbox::new(outbox, bell)?,
            books: Books::new(&host.identity.secret, own_nonce, setup.nonce, host.place.demands_seals()),
            source,
            foreign: None,
            receives: VecDeque::with_capacity(RECEIVES),
            granted: 0,
            debt: 0,
            parked: VecDeque::new(),
            staged: Staged::with_capacity(WORK),
            open_receives: 0,
            open_work: 0,
            fences: 0,
        })
    }
}
