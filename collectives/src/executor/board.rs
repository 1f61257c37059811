//! Short messages to everybody: written once, where all peers read them.
//!
//! A connection costs its sender one store of the whole message per peer, each into lines that the peer read last. A *board* is
//! memory of the sender that all peers map: the message is stored once and read by each of them. Credits work as on a connection,
//! except that the sender has as many as the slowest reader gives; every reader counts on a line of its own.

#[cfg(test)]
mod exposed;

use vervain_transport::proto::window::{Receiver, Sender, Slot};
use vervain_transport::wire::connection::{Areas, Extent, Layout};
use vervain_transport::wire::{LINE, ll, ll128};
use vervain_transport::{Error, Kind, Rank, Result};

use super::connection::{SLOTS, payload};
use crate::buffer::Memory;
use crate::communicator::Protocol;

/// Protocols that a board carries: those whose lines show by themselves that they are complete.
const PROTOCOLS: usize = 2;

fn areas() -> Areas {
    let bytes = |protocol| payload(protocol, true) as u64;
    let layout =
        Layout { slots: SLOTS, ll_bytes: bytes(Protocol::Ll), ll128_bytes: bytes(Protocol::Ll128), simple_bytes: 0 };
    layout.areas().expect("constant sizes do not overflow")
}

/// Where a reader counts what it has consumed.
fn head_at(reader: Rank, protocol: Protocol) -> usize {
    LINE * (reader.index() * PROTOCOLS + protocol as usize)
}

/// Size of a board in bytes.
pub fn board_bytes(ranks: usize) -> usize {
    ranks.saturating_mul(LINE * PROTOCOLS).saturating_add(areas().total() as usize)
}

/// Our own board and our view of everybody else's.
#[derive(Debug)]
pub struct Boards {
    rank: Rank,
    areas: Areas,
    slots_at: usize,
    own: Memory,
    senders: [Sender; PROTOCOLS],
    /// By rank; ours stays empty.
    peers: Vec<Option<Memory>>,
    receivers: Vec<[Receiver; PROTOCOLS]>,
}

impl Boards {
    /// Our board is `own`; counters begin at `start`.
    pub fn new(rank: Rank, ranks: usize, own: Memory, start: u64) -> Self {
        for reader in (0..ranks as u32).map(Rank::new) {
            own.store(head_at(reader, Protocol::Ll), start);
            own.store(head_at(reader, Protocol::Ll128), start);
        }
        Self {
            rank,
            areas: areas(),
            slots_at: LINE * ranks * PROTOCOLS,
            own,
            senders: core::array::from_fn(|_| Sender::new(SLOTS, start)),
            peers: vec![None; ranks],
            receivers: (0..ranks).map(|_| core::array::from_fn(|_| Receiver::new(SLOTS, start))).collect(),
        }
    }

    /// `peer`'s board is mapped here.
    ///
    /// # Errors
    /// `Corrupt` if it is too small, or the second one.
    pub fn add(&mut self, peer: Rank, board: Memory) -> Result<()> {
        let known = self.peers[peer.index()].replace(board).is_some();
        if known || board.bytes() < self.own.bytes() { Err(Error::new(Kind::Corrupt).with_rank(peer)) } else { Ok(()) }
    }

    /// Whether all boards are here.
    pub fn is_complete(&self) -> bool {
        self.peers.iter().flatten().count() + 1 == self.peers.len()
    }

    /// Whether this peer's board is here.
    pub fn has(&self, peer: Rank) -> bool {
        self.peers[peer.index()].is_some()
    }

    /// The slot for the next message, if all peers have room; otherwise who has not.
    pub fn free_slot(&mut self, protocol: Protocol) -> Result<Result<Slot, Rank>> {
        if let Some(slot) = self.senders[protocol as usize].slot() {
            return Ok(Ok(slot));
        }
        let step = self.senders[protocol as usize].step();
        let behind = |reader: Rank| step.wrapping_sub(self.own.load(head_at(reader, protocol)));
        let readers = (0..self.peers.len() as u32).map(Rank::new).filter(|&reader| reader != self.rank);
        let slowest = readers.max_by_key(|&reader| behind(reader)).ok_or(Error::new(Kind::Bug))?;
        let head = step.wrapping_sub(behind(slowest));
        let sender = &mut self.senders[protocol as usize];
        sender.on_credit(head).map_err(|kind| Error::new(kind).with_rank(slowest))?;
        Ok(sender.slot().ok_or(slowest))
    }

    /// Show `source` to everybody.
    pub fn show(&mut self, protocol: Protocol, slot: Slot, header: u64, source: Memory) {
        let memory = self.slot(self.own, protocol, slot);
        match protocol {
            Protocol::Ll => {
                memory.pack_ll(header, source, ll::flag(slot.step));
                if ll::clean_due(slot.step, SLOTS) {
                    ll::clean(&memory.words(), source.bytes(), ll::flag(slot.step));
                }
            }
            _ => memory.pack_ll128(header, source, ll128::flag(slot.step)),
        }
        let sender = &mut self.senders[protocol as usize];
        sender.on_sent();
        if let Some(next) = sender.slot() {
            let bytes = match protocol {
                Protocol::Ll => ll::lines(source.bytes()) * ll::LL_LINE,
                _ => ll128::lines(source.bytes()) * LINE,
            };
            self.slot(self.own, protocol, next).slice(0, bytes).own_soon();
        }
    }

    /// The header of `peer`'s next message, once it has begun to arrive.
    #[inline]
    pub fn header(&self, protocol: Protocol, peer: Rank) -> Result<Option<u64>> {
        let slot = self.receivers[peer.index()][protocol as usize].slot();
        let words = self.slot(self.board(peer)?, protocol, slot).words();
        Ok(match protocol {
            Protocol::Ll => ll::header(&words, ll::flag(slot.step)),
            _ => ll128::header(&words, ll128::flag(slot.step)),
        })
    }

    /// Copy the lines of `peer`'s next message that are there, from line `from` on; true when all are.
    #[inline]
    pub fn unpack(&self, protocol: Protocol, peer: Rank, target: Memory, from: &mut usize) -> Result<bool> {
        let slot = self.receivers[peer.index()][protocol as usize].slot();
        let memory = self.slot(self.board(peer)?, protocol, slot);
        let lines = match protocol {
            Protocol::Ll => {
                *from = memory.unpack_ll(target, ll::flag(slot.step), *from);
                ll::lines(target.bytes())
            }
            _ => {
                *from = memory.unpack_ll128(target, ll128::flag(slot.step), *from);
                ll128::lines(target.bytes())
            }
        };
        Ok(*from == lines)
    }

    /// `peer`'s next message has been used up.
    #[inline]
    pub fn consume(&mut self, protocol: Protocol, peer: Rank) -> Result<()> {
        let board = self.board(peer)?;
        if let Some(head) = self.receivers[peer.index()][protocol as usize].on_consumed() {
            board.store(head_at(self.rank, protocol), head);
        }
        Ok(())
    }

    #[inline]
    fn board(&self, peer: Rank) -> Result<Memory> {
        self.peers[peer.index()].ok_or(Error::new(Kind::Bug))
    }

    #[inline]
    fn slot(&self, board: Memory, protocol: Protocol, slot: Slot) -> Memory {
        let Extent { offset, bytes } = match protocol {
            Protocol::Ll => self.areas.ll(slot.index),
            _ => self.areas.ll128(slot.index),
        };
        board.slice(self.slots_at + offset as usize, bytes as usize)
    }
}
