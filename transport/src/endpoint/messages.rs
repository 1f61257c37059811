//! Messages, and the receives that they and immediates consume.
//!
//! Receives are ours: a few are posted for each peer, more once it is busy, each with a slot of memory. A message stays in its slot until
//! it was looked at; meanwhile its receive is not posted again, which is the back-pressure that the sender feels.
//!
//! ```text
//! slot   0 kind u8 | 1 zero u8, u16 | 4 tag u32 | 8 payload
//! ```

use alloc::{boxed::Box, collections::VecDeque, vec, vec::Vec};
use core::ptr::NonNull;

use super::post::{Terms, Uses};
use super::table::NONE;
use super::{Endpoint, PeerId, Posted};
use crate::{
    Kind, Result,
    fabric::{self, LinkId, Op, Outcome, RegionId, Span},
};

/// Largest message, in bytes.
pub const MESSAGE: usize = fabric::MESSAGE - HEADER;

const HEADER: usize = 8;
const SLOT: usize = fabric::MESSAGE;
/// Slots that are allocated and registered together.
const CHUNK: u32 = 32;
/// Marks tokens of receives; tokens of transfers have this bit clear.
const RECEIVE: u64 = 1 << 63;

/// What a message is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Purpose {
    /// Its receiver's user.
    User = 1,
    /// A barrier.
    Barrier = 2,
    /// The first of a peer: it has receives of ours, and so are we sure of room.
    Hello = 3,
}

/// A message that arrived.
#[derive(Clone, Copy, Debug)]
pub struct Message<'a> {
    /// Who sent it.
    pub peer: PeerId,
    /// As the sender chose.
    pub tag: u32,
    /// What it says; valid until the endpoint is used again.
    pub bytes: &'a [u8],
}

/// A message in its slot.
#[derive(Clone, Copy, Debug)]
struct Held {
    peer: PeerId,
    slot: u32,
    tag: u32,
    bytes: u32,
}

/// Memory for messages.
#[derive(Debug)]
pub(super) struct Messages {
    chunks: Vec<Box<[u64]>>,
    /// By chunk and backend.
    ids: Vec<Vec<u32>>,
    free: Vec<u32>,
    inbox: VecDeque<Held>,
    /// Handed out by the last call.
    lent: Option<Held>,
    backends: usize,
    /// Being sent.
    sending: u32,
}

#[inline]
pub(super) fn is_receive(token: u64) -> bool {
    token & RECEIVE != 0
}

impl Messages {
    pub fn new(backends: usize) -> Self {
        Self {
            chunks: Vec::new(),
            ids: Vec::new(),
            free: Vec::new(),
            inbox: VecDeque::new(),
            lent: None,
            backends,
            sending: 0,
        }
    }

    fn take(&mut self) -> u32 {
        if self.free.is_empty() {
            let first = self.chunks.len() as u32 * CHUNK;
            self.chunks.push(vec![0; CHUNK as usize * SLOT / 8].into_boxed_slice());
            self.ids.push(vec![NONE; self.backends]);
            // as many as there are, so that giving slots back never allocates
            let slots = self.chunks.len() * CHUNK as usize;
            self.free.reserve(slots);
            self.inbox.reserve(slots);
            self.free.extend((first..first + CHUNK).rev());
        }
        self.free.pop().unwrap_or(NONE)
    }

    pub fn give_back(&mut self, slot: u32) {
        self.free.push(slot);
    }

    /// A message was sent, or will not be.
    pub fn end_send(&mut self, slot: u32) {
        self.sending -= 1;
        self.give_back(slot);
    }

    fn bytes(&self, slot: u32) -> NonNull<u8> {
        let chunk = &self.chunks[(slot / CHUNK) as usize];
        let start = NonNull::from(&**chunk).cast::<u8>();
        // SAFETY: each chunk holds CHUNK slots.
        unsafe { start.add((slot % CHUNK) as usize * SLOT) }
    }

    /// Whose memory this is does not change: chunks are never freed before the fabrics are.
    fn chunk(&mut self, slot: u32) -> (NonNull<u8>, usize) {
        let chunk = &mut self.chunks[(slot / CHUNK) as usize];
        let bytes = chunk.len() * 8;
        (NonNull::from(&mut **chunk).cast(), bytes)
    }
}

impl Endpoint {
    /// Send a message of at most [`MESSAGE`] bytes, which may be reused at once, and a tag that means what you like. Messages and immediates of
    /// one peer arrive in the order of their starts, and behind all bytes written before. Done when it was handed to the peer's memory or to
    /// the network, which does not say that the peer has looked at it; a peer that takes none makes this [`Posted::Busy`].
    ///
    /// # Errors
    /// `InvalidArgument` for a longer message, `TimedOut` for a deadline that has passed, or why the peer is down.
    pub fn send(&mut self, peer: PeerId, tag: u32, bytes: &[u8], terms: impl Into<Terms>) -> Result<Posted> {
        self.send_for(Purpose::User, peer, tag, bytes, terms.into(), NONE)
    }

    pub(super) fn send_for(
        &mut self,
        purpose: Purpose,
        peer: PeerId,
        tag: u32,
        bytes: &[u8],
        terms: Terms,
        parent: u32,
    ) -> Result<Posted> {
        if bytes.len() > MESSAGE {
            return Err(Kind::InvalidArgument.into());
        }
        let (backend, _) = self.way(peer)?;
        if self.messages.sending >= self.limits.messages {
            return Ok(Posted::Busy);
        }
        let slot = self.messages.take();
        let header = u64::from(purpose as u8) | u64::from(tag) << 32;
        let to = self.messages.bytes(slot).as_ptr();
        // SAFETY: a slot is HEADER + MESSAGE bytes, 8-aligned, and nobody else uses it: it was free.
        unsafe {
            to.cast::<u64>().write(header.to_le());
            to.add(HEADER).copy_from_nonoverlapping(bytes.as_ptr(), bytes.len());
        }
        self.messages.sending += 1;
        let started = self.slot_span(backend, slot, (HEADER + bytes.len()) as u64).and_then(|local| {
            self.start(peer, Uses { slot, parent, ..Uses::NOTHING }, terms, |token| Op::Send { token, local })
        });
        if !matches!(started, Ok(Posted::Started(_))) {
            self.messages.end_send(slot);
        }
        started
    }

    /// A slot as the fabric knows it.
    #[inline]
    fn slot_span(&mut self, backend: usize, slot: u32, bytes: u64) -> Result<Span> {
        let id = match self.messages.ids[(slot / CHUNK) as usize][backend] {
            NONE => self.register_chunk(backend, slot)?,
            id => id,
        };
        Ok(Span { region: RegionId(id), offset: u64::from(slot % CHUNK) * SLOT as u64, bytes })
    }

    fn register_chunk(&mut self, backend: usize, slot: u32) -> Result<u32> {
        let (start, bytes) = self.messages.chunk(slot);
        // SAFETY: chunks live as long as the endpoint, whose fabrics are dropped before them; slots are used by whoever took them.
        let id = unsafe { self.backends[backend].register(start, bytes) }?;
        self.messages.ids[(slot / CHUNK) as usize][backend] = id.0;
        Ok(id.0)
    }

    /// The oldest message that nobody has looked at, from whichever peer. What its sender wrote before is visible. Its memory is used again by
    /// the next call, or by the next poll; until then its sender has one receive less.
    pub fn next_message(&mut self) -> Option<Message<'_>> {
        self.take_back_lent();
        let held = self.messages.inbox.pop_front()?;
        self.messages.lent = Some(held);
        let start = self.messages.bytes(held.slot);
        // SAFETY: the message lies in its slot, which is not posted again before it is taken back, which needs `&mut self`.
        let bytes = unsafe { core::slice::from_raw_parts(start.as_ptr().add(HEADER), held.bytes as usize) };
        Some(Message { peer: held.peer, tag: held.tag, bytes })
    }

    pub(super) fn take_back_lent(&mut self) {
        if let Some(held) = self.messages.lent.take() {
            self.put_back(held.peer, held.slot);
        }
    }

    pub(super) fn on_received(&mut self, backend: usize, link: LinkId, token: u64, result: Result<Outcome>) {
        let slot = token as u32;
        let Some(id) = self.peers.of_link(backend, link) else { return self.messages.give_back(slot) };
        match result {
            Ok(Outcome::Received { immediate: Some(value), .. }) => {
                self.put_back(id, slot);
                if !self.counters.add(value) {
                    self.break_off(id);
                }
            }
            Ok(Outcome::Received { bytes, immediate: None }) => self.on_message(id, slot, bytes),
            Ok(_) | Err(_) => {
                self.peers.get_mut(id).receives -= 1;
                self.messages.give_back(slot);
            }
        }
    }

    fn on_message(&mut self, id: PeerId, slot: u32, bytes: u64) {
        // SAFETY: a slot is at least a header, and its receive has ended.
        let header = u64::from_le(unsafe { self.messages.bytes(slot).cast::<u64>().read() });
        let (kind, tag) = (header as u8, (header >> 32) as u32);
        let is_whole = bytes >= HEADER as u64 && bytes <= SLOT as u64 && header & 0xffff_ff00 == 0;
        match (is_whole, kind) {
            (true, kind) if kind == Purpose::User as u8 => {
                let bytes = (bytes - HEADER as u64) as u32;
                self.messages.inbox.push_back(Held { peer: id, slot, tag, bytes });
            }
            (true, kind) if kind == Purpose::Barrier as u8 => {
                self.peers.get_mut(id).barriers.0 += 1;
                self.put_back(id, slot);
            }
            (true, kind) if kind == Purpose::Hello as u8 => self.put_back(id, slot),
            _ => {
                self.put_back(id, slot);
                self.break_off(id);
            }
        }
    }

    /// The peer does what no correct peer does, or we have no memory for what it sends.
    fn break_off(&mut self, id: PeerId) {
        let (backend, link) = (usize::from(self.peers.get(id).backend), self.peers.get(id).link);
        self.backends[backend].close(link);
    }

    /// A slot can be posted again.
    #[inline]
    fn put_back(&mut self, id: PeerId, slot: u32) {
        let peer = self.peers.get_mut(id);
        if peer.state != super::peers::State::Up {
            return self.messages.give_back(slot);
        }
        peer.idle.push(slot);
        // half of them at a time: each time costs the peer a look at the new number
        let is_due = peer.idle.len() as u32 * 2 >= peer.receives;
        if is_due && !peer.is_hungry {
            peer.is_hungry = true;
            self.peers.hungry.push(id.0);
        }
    }

    /// Post receives: those that were used, and more if the peer is busy.
    pub(super) fn feed(&mut self, id: PeerId) {
        let peer = self.peers.get_mut(id);
        peer.is_hungry = false;
        if peer.state != super::peers::State::Up {
            return;
        }
        let (backend, link) = (usize::from(peer.backend), peer.link);
        let missing = peer.wanted.saturating_sub(peer.receives);
        peer.receives += missing;
        peer.wanted = (peer.wanted * 2).min(self.limits.receives);
        peer.idle.reserve(missing as usize);
        for _ in 0..missing {
            let slot = self.messages.take();
            self.peers.get_mut(id).idle.push(slot);
        }
        while let Some(&slot) = self.peers.get(id).idle.last() {
            let op = match self.slot_span(backend, slot, SLOT as u64) {
                Ok(local) => Op::Receive { token: RECEIVE | u64::from(slot), local },
                Err(_) => return self.break_off(id),
            };
            match self.backends[backend].post(link, &[op]) {
                Ok(1) => drop(self.peers.get_mut(id).idle.pop()),
                // tried again with the next that comes back, or the link is down and will say so
                Ok(_) | Err(_) => return,
            }
        }
    }

    /// A peer is gone: what it has not used is free. Its messages that are here can still be looked at.
    pub(super) fn release_slots(&mut self, id: PeerId) {
        let peer = self.peers.get_mut(id);
        peer.receives = 0;
        for slot in core::mem::take(&mut peer.idle) {
            self.messages.give_back(slot);
        }
    }
}
