//! One lane between two ranks: slots at the receiver, credits at the sender.
//!
//! Both sides give each other an *inbox*: a region that the other one stores into. It holds the control words of the lane and
//! the receive slots of all three protocols. Where the fabric maps the peer's inbox we store into it directly; elsewhere we store
//! into a *mirror* of equal layout and post the changed range. The receiving code is the same: it only ever reads its inbox.

#[cfg(test)]
mod exposed;

use std::collections::VecDeque;

use vervain_transport::fabric::{Doorbell, Fabric, INLINE, LinkId, Op, RegionId, RemoteId, Span, Target};
use vervain_transport::proto::window::{Receiver, Sender, Slot};
use vervain_transport::wire::connection::{Areas, Extent, Layout};
use vervain_transport::wire::simple::{self, Record};
use vervain_transport::wire::{LINE, ll, ll128};
use vervain_transport::{Error, Kind, Rank, Result};

use crate::buffer::Memory;
use crate::communicator::Protocol;

/// Where things lie in an inbox. Every word that one side writes has a 128-byte line of its own.
mod at {
    /// Enter records, one per parity.
    pub const ENTER: usize = 0;
    /// Counter of signals.
    pub const SIGNAL: usize = 256;
    /// Counter of leaves.
    pub const LEAVE: usize = 384;
    /// Counters of consumed messages of our sends, one line per protocol.
    pub const HEAD: usize = 512;
    /// Slots.
    pub const SLOTS: usize = 1024;
}

/// Payload of a slot, by protocol, and how many there are.
pub const SLOTS: u32 = 8;
const LL_PAYLOAD: usize = 4 << 10;
const LL128_PAYLOAD: usize = 8 << 10;
const SIMPLE_PAYLOAD: usize = 128 << 10;
/// Where data crosses the kernel fewer and longer messages win: 64 MiB all_reduce over loopback sockets took 60 ms with 64 KiB, 34 ms
/// with 256 KiB (2-core machine, 2026-11-30).
const SIMPLE_PAYLOAD_POSTED: usize = 512 << 10;

/// Most bytes of one message, on a fabric that maps peers' inboxes or on one that does not.
pub const fn payload(protocol: Protocol, mapped: bool) -> usize {
    match protocol {
        Protocol::Ll => LL_PAYLOAD,
        Protocol::Ll128 => LL128_PAYLOAD,
        Protocol::Simple if mapped => SIMPLE_PAYLOAD,
        Protocol::Simple => SIMPLE_PAYLOAD_POSTED,
    }
}

/// Where a rank's buffers are in one operation, as it tells its peers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EnterRecord {
    /// Hash of the operation.
    pub hash: u64,
    /// Registration of the input, or [`FOREIGN`].
    pub input_region: u32,
    /// Registration of the output, or [`FOREIGN`].
    pub output_region: u32,
    /// Offset in the registration, or virtual address.
    pub input: u64,
    /// Offset in the registration, or virtual address.
    pub output: u64,
}

/// Not in a registration: the offset is a virtual address.
pub const FOREIGN: u32 = u32::MAX;

/// The areas that both ends use.
fn areas(mapped: bool) -> Areas {
    let layout = Layout {
        slots: SLOTS,
        ll_bytes: LL_PAYLOAD as u64,
        ll128_bytes: LL128_PAYLOAD as u64,
        simple_bytes: payload(Protocol::Simple, mapped) as u64,
    };
    layout.areas().expect("constant sizes do not overflow")
}

/// Size of an inbox in bytes.
pub fn inbox_bytes(mapped: bool) -> usize {
    at::SLOTS + areas(mapped).total() as usize
}

/// Set the counters of a fresh inbox to the step at which its connection starts.
pub fn prepare_inbox(inbox: Memory, mapped: bool, start: u64) {
    for protocol in 0..3 {
        inbox.store(at::HEAD + 128 * protocol, start);
    }
    inbox.store(at::SLOTS + areas(mapped).tail().offset as usize, start);
}

/// How our stores reach the peer where its inbox is not mapped.
#[derive(Debug)]
struct Posted {
    link: LinkId,
    mirror: RegionId,
    remote: RemoteId,
    /// Not yet accepted by the fabric, in order.
    backlog: VecDeque<Op>,
}

/// Both directions of one lane to one peer.
#[derive(Debug)]
pub struct Connection {
    peer: Rank,
    inbox: Memory,
    outbox: Memory,
    posted: Option<Posted>,
    doorbell: Option<Doorbell>,
    areas: Areas,
    senders: [Sender; 3],
    receivers: [Receiver; 3],
    /// Counters of ours at the peer, and of the peer as far as we used them up.
    entered: (u64, u64),
    signalled: (u64, u64),
    left: (u64, u64),
    /// Messages on their way straight from registered buffers.
    straight: u32,
}

/// A peer whom we have told that we leave can do the same once more before it needs us again.
const LEAVES: u64 = 2;
/// More signals than anybody sends without being waited for.
const SIGNALS: u64 = 1 << 32;

/// Token of writes from registered buffers.
pub const STRAIGHT: u64 = 4 << 32;

impl Connection {
    /// Both inboxes are known. `start` is the first step of every counter, 0 but in tests of wrap-around.
    pub fn new(peer: Rank, inbox: Memory, outbox: Memory, doorbell: Option<Doorbell>, start: u64) -> Self {
        Self {
            peer,
            inbox,
            outbox,
            posted: None,
            doorbell,
            areas: areas(true),
            senders: core::array::from_fn(|_| Sender::new(SLOTS, start)),
            receivers: core::array::from_fn(|_| Receiver::new(SLOTS, start)),
            entered: (0, 0),
            signalled: (0, 0),
            left: (0, 0),
            straight: 0,
        }
    }

    /// The inboxes are those of a fabric that maps them, or not.
    pub fn with_layout_of(mut self, mapped: bool) -> Self {
        self.areas = areas(mapped);
        self
    }

    /// The outbox is a mirror whose changes go to `remote`.
    pub fn through(mut self, link: LinkId, mirror: RegionId, remote: RemoteId) -> Self {
        self.areas = areas(false);
        self.posted = Some(Posted { link, mirror, remote, backlog: VecDeque::with_capacity(8 * SLOTS as usize) });
        self
    }

    /// The other end.
    pub fn peer(&self) -> Rank {
        self.peer
    }

    /// The slot for the next message, if the peer has room.
    #[inline]
    pub fn free_slot(&mut self, protocol: Protocol) -> Result<Option<Slot>> {
        let sender = &mut self.senders[protocol as usize];
        if let Some(slot) = sender.slot() {
            return Ok(Some(slot));
        }
        let head = self.inbox.load(at::HEAD + 128 * protocol as usize);
        sender.on_credit(head).map_err(|kind| Error::new(kind).with_rank(self.peer))?;
        Ok(sender.slot())
    }

    /// Memory of a free Simple slot, to be filled before [`Connection::send_filled`].
    #[inline]
    pub fn slot_memory(&self, slot: Slot, bytes: usize) -> Memory {
        area(self.outbox, self.areas.simple(slot.index)).slice(0, bytes)
    }

    /// Send `source` by lines.
    #[inline]
    pub fn send_lines(&mut self, protocol: Protocol, slot: Slot, header: u64, source: Memory) {
        let (extent, bytes) = match protocol {
            Protocol::Ll => self.send_ll(slot, header, source),
            Protocol::Ll128 => {
                let extent = self.areas.ll128(slot.index);
                area(self.outbox, extent).pack_ll128(header, source, ll128::flag(slot.step));
                (extent, ll128::lines(source.bytes()) * LINE)
            }
            Protocol::Simple => unreachable!("Simple messages are filled in place"),
        };
        self.senders[protocol as usize].on_sent();
        self.post_range(at::SLOTS + extent.offset as usize, bytes);
        self.own_next(protocol, bytes);
    }

    /// The next message will probably be as long as this one. Its lines were last read by the peer; to get them back takes a round
    /// trip each, which passes here while we wait for an answer (1 KiB all_reduce of 2 ranks, cores without a common cache: 0.92 us
    /// before, see docs/performance.md).
    #[inline]
    fn own_next(&self, protocol: Protocol, bytes: usize) {
        let (None, Some(slot)) = (&self.posted, self.senders[protocol as usize].slot()) else { return };
        let extent = match protocol {
            Protocol::Ll => self.areas.ll(slot.index),
            Protocol::Ll128 => self.areas.ll128(slot.index),
            Protocol::Simple => return,
        };
        area(self.outbox, extent).slice(0, bytes).own_soon();
    }

    #[inline]
    fn send_ll(&mut self, slot: Slot, header: u64, source: Memory) -> (Extent, usize) {
        let extent = self.areas.ll(slot.index);
        let memory = area(self.outbox, extent);
        memory.pack_ll(header, source, ll::flag(slot.step));
        if !ll::clean_due(slot.step, SLOTS) {
            return (extent, ll::lines(source.bytes()) * ll::LL_LINE);
        }
        ll::clean(&memory.words(), source.bytes(), ll::flag(slot.step));
        (extent, extent.bytes as usize)
    }

    /// The Simple slot is filled with `bytes` bytes: let the peer see it.
    #[inline]
    pub fn send_filled(&mut self, slot: Slot, header: u64, bytes: usize) {
        self.post_range(at::SLOTS + self.areas.simple(slot.index).offset as usize, bytes);
        self.describe(slot, header, bytes);
    }

    /// Record and counter of a Simple message.
    #[inline]
    fn describe(&mut self, slot: Slot, header: u64, bytes: usize) {
        let (records, tail) = (self.areas.records(), self.areas.tail());
        area(self.outbox, records).write_record(slot.index, Record { header, bytes: bytes as u64 });
        let record = at::SLOTS + records.offset as usize + slot.index as usize * simple::RECORD;
        self.post_small(record, simple::RECORD);
        simple::publish(&area(self.outbox, tail).words(), slot.step.wrapping_add(1));
        self.post_small(at::SLOTS + tail.offset as usize, 8);
        self.senders[Protocol::Simple as usize].on_sent();
    }

    /// Send a Simple message whose bytes lie in a registered buffer. It must stay as it is until [`Links::is_drained`](super::Links::is_drained).
    pub fn send_from(&mut self, slot: Slot, header: u64, local: Span) {
        if let Some(posted) = &mut self.posted {
            let offset = at::SLOTS as u64 + self.areas.simple(slot.index).offset;
            let target = Target { remote: posted.remote, offset };
            if local.bytes > 0 {
                posted.backlog.push_back(Op::Write { token: STRAIGHT, local, target, immediate: None });
                self.straight += 1;
            }
        }
        self.describe(slot, header, local.bytes as usize);
    }

    /// A message sent from a registered buffer has landed.
    pub fn on_landed(&mut self) {
        self.straight = self.straight.saturating_sub(1);
    }

    /// Whether registered buffers are still being sent from.
    pub fn is_straight(&self) -> bool {
        self.straight > 0
    }

    /// The header of the next message, once it has begun to arrive.
    #[inline]
    pub fn header(&self, protocol: Protocol) -> Result<Option<u64>> {
        let slot = self.receivers[protocol as usize].slot();
        match protocol {
            Protocol::Ll => Ok(ll::header(&self.ll_slot(slot).words(), ll::flag(slot.step))),
            Protocol::Ll128 => Ok(ll128::header(&self.ll128_slot(slot).words(), ll128::flag(slot.step))),
            Protocol::Simple => {
                let tail = simple::observe(&area(self.inbox, self.areas.tail()).words());
                match tail.wrapping_sub(slot.step) {
                    0 => Ok(None),
                    ahead if ahead <= u64::from(SLOTS) => Ok(Some(self.record(slot).header)),
                    _ => Err(self.corrupt()),
                }
            }
        }
    }

    /// The payload of the next Simple message, in its slot. Only after [`Connection::header`] gave its header.
    #[inline]
    pub fn payload(&self, bytes: usize) -> Result<Memory> {
        let slot = self.receivers[Protocol::Simple as usize].slot();
        if self.record(slot).bytes != bytes as u64 {
            return Err(self.corrupt());
        }
        Ok(area(self.inbox, self.areas.simple(slot.index)).slice(0, bytes))
    }

    /// Copy the lines of the next message that are there, from line `from` on; true when all are.
    #[inline]
    pub fn unpack(&self, protocol: Protocol, target: Memory, from: &mut usize) -> bool {
        let slot = self.receivers[protocol as usize].slot();
        match protocol {
            Protocol::Ll => {
                *from = self.ll_slot(slot).unpack_ll(target, ll::flag(slot.step), *from);
                *from == ll::lines(target.bytes())
            }
            Protocol::Ll128 => {
                *from = self.ll128_slot(slot).unpack_ll128(target, ll128::flag(slot.step), *from);
                *from == ll128::lines(target.bytes())
            }
            Protocol::Simple => unreachable!("Simple messages are read in place"),
        }
    }

    /// The next message has been used up: its slot may be filled again.
    #[inline]
    pub fn consume(&mut self, protocol: Protocol) {
        if let Some(head) = self.receivers[protocol as usize].on_consumed() {
            let at = at::HEAD + 128 * protocol as usize;
            self.outbox.store(at, head);
            self.post_small(at, 8);
            self.ring();
        }
    }

    /// Tell the peer where our buffers are.
    pub fn enter(&mut self, record: &EnterRecord) {
        self.entered.0 += 1;
        let at = at::ENTER + 128 * (self.entered.0 % 2) as usize;
        let regions = u64::from(record.input_region) | u64::from(record.output_region) << 32;
        for (index, word) in [record.hash, record.input, record.output, regions].into_iter().enumerate() {
            self.outbox.store(at + 8 + 8 * index, word);
        }
        self.outbox.store(at, self.entered.0);
        self.post_small(at, 40);
        self.ring();
        if self.posted.is_none() {
            self.outbox.slice(at::ENTER + 128 * ((self.entered.0 + 1) % 2) as usize, 64).own_soon();
        }
    }

    /// Where the peer's buffers are in its next operation, once it told. Does not use the record up: see [`Connection::entered`].
    pub fn peer_record(&self) -> Result<Option<EnterRecord>> {
        let next = self.entered.1 + 1;
        let at = at::ENTER + 128 * (next % 2) as usize;
        let number = self.inbox.load(at);
        if number != next {
            let old = number == 0 || number.wrapping_add(2) == next;
            return if old { Ok(None) } else { Err(self.corrupt()) };
        }
        let word = |index: usize| self.inbox.load(at + 8 + 8 * index);
        let regions = word(3);
        let (input_region, output_region) = (regions as u32, (regions >> 32) as u32);
        Ok(Some(EnterRecord { hash: word(0), input: word(1), output: word(2), input_region, output_region }))
    }

    /// The peer's record has been used up.
    pub fn entered(&mut self) {
        self.entered.1 += 1;
    }

    /// Tell the peer that we touch its buffers no more.
    pub fn leave(&mut self) {
        self.left.0 += 1;
        self.raise(at::LEAVE, self.left.0);
    }

    /// Whether the peer told us so; uses the notice up.
    pub fn peer_left(&mut self) -> Result<bool> {
        let seen = self.raised(at::LEAVE, self.left.1, LEAVES)?;
        self.left.1 += u64::from(seen);
        Ok(seen)
    }

    /// Raise our counter at the peer.
    pub fn signal(&mut self) {
        self.signalled.0 += 1;
        self.raise(at::SIGNAL, self.signalled.0);
    }

    /// Whether the peer signalled once more; uses the signal up.
    pub fn signalled(&mut self) -> Result<bool> {
        let seen = self.raised(at::SIGNAL, self.signalled.1, SIGNALS)?;
        self.signalled.1 += u64::from(seen);
        Ok(seen)
    }

    /// Whether the peer's counter stands beyond `used`: at most `most` beyond, and never before it.
    fn raised(&self, at: usize, used: u64, most: u64) -> Result<bool> {
        match self.inbox.load(at).wrapping_sub(used) {
            ahead if ahead > most => Err(self.corrupt()),
            ahead => Ok(ahead > 0),
        }
    }

    /// Wake the peer if it sleeps.
    #[inline]
    pub fn ring(&self) {
        if let Some(doorbell) = &self.doorbell {
            doorbell.ring();
        }
    }

    /// Hand what is due to the fabric. True if nothing is left to hand over.
    pub fn flush(&mut self, fabric: &mut dyn Fabric) -> Result<bool> {
        let Some(posted) = &mut self.posted else { return Ok(true) };
        while !posted.backlog.is_empty() {
            let accepted = fabric.post(posted.link, posted.backlog.make_contiguous());
            let accepted = accepted.map_err(|error| error.with_rank(self.peer))?;
            if accepted == 0 {
                return Ok(false);
            }
            posted.backlog.drain(..accepted);
        }
        Ok(true)
    }

    fn raise(&mut self, at: usize, value: u64) {
        self.outbox.store(at, value);
        self.post_small(at, 8);
        self.ring();
    }

    #[inline]
    fn post_range(&mut self, offset: usize, bytes: usize) {
        let Some(posted) = &mut self.posted else { return };
        if bytes > 0 {
            let local = Span { region: posted.mirror, offset: offset as u64, bytes: bytes as u64 };
            let target = Target { remote: posted.remote, offset: offset as u64 };
            posted.backlog.push_back(Op::Write { token: 0, local, target, immediate: None });
        }
    }

    #[inline]
    fn post_small(&mut self, offset: usize, bytes: usize) {
        let Some(posted) = &mut self.posted else { return };
        let mut data = [0; INLINE];
        self.outbox.slice(offset, bytes).copy_to(&mut data[..bytes]);
        let target = Target { remote: posted.remote, offset: offset as u64 };
        posted.backlog.push_back(Op::WriteInline { token: 0, data, bytes: bytes as u8, target, immediate: None });
    }

    #[inline]
    fn ll_slot(&self, slot: Slot) -> Memory {
        area(self.inbox, self.areas.ll(slot.index))
    }

    #[inline]
    fn ll128_slot(&self, slot: Slot) -> Memory {
        area(self.inbox, self.areas.ll128(slot.index))
    }

    #[inline]
    fn record(&self, slot: Slot) -> Record {
        area(self.inbox, self.areas.records()).read_record(slot.index)
    }

    fn corrupt(&self) -> Error {
        Error::new(Kind::Corrupt).with_rank(self.peer)
    }
}

/// An area of an inbox.
#[inline]
fn area(inbox: Memory, extent: Extent) -> Memory {
    inbox.slice(at::SLOTS + extent.offset as usize, extent.bytes as usize)
}
