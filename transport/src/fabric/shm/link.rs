//! One link: its two directions, what is outstanding on it, and what its ends have shown each other.

use std::{collections::VecDeque, os::fd::OwnedFd};

use super::{
    books::Books,
    handshake::Joined,
    lanes::{Inbox, Outbox, RECEIVES},
    pull::Source,
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
    pub inbox: Inbox,
    pub outbox: Outbox,
    pub books: Books,
    /// The peer's memory can be read through the kernel.
    pub source: Option<Source>,
    /// Number of the remote that is its whole address space.
    pub foreign: Option<u32>,
    pub receives: VecDeque<Receive>,
    /// Receives posted so far.
    pub granted: u64,
    pub staged: Staged,
    /// Receives accepted and not reported.
    pub open_receives: usize,
    /// Other operations accepted and not reported.
    pub open_work: usize,
}

impl Link {
    pub fn new(id: LinkId, joined: Joined, source: Option<Source>, demand_seals: bool) -> Result<Self, Kind> {
        let Joined { socket, peer, own_nonce, setup, inbox, outbox, bell } = joined;
        let bell = Doorbell::from_page(bell, setup.ringing);
        Ok(Self {
            id,
            peer: peer.rank,
            socket,
            inbox: Inbox::new(inbox)?,
            outbox: Outbox::new(outbox, bell)?,
            books: Books::new(own_nonce, setup.nonce, demand_seals),
            source,
            foreign: None,
            receives: VecDeque::with_capacity(RECEIVES),
            granted: 0,
            staged: Staged::with_capacity(WORK),
            open_receives: 0,
            open_work: 0,
        })
    }
}
