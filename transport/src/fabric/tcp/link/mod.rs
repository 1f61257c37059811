//! One link: the machine between operations and streams. It knows no sockets and no clock.
//!
//! # Order over several sockets
//! A link is one total order of frames. Socket 0 carries all of it; of a *striped* write every socket carries one piece, so that
//! the pieces of the other sockets need no numbers: the n-th piece of each belongs to the n-th striped write. With `started`,
//! the number of striped writes that socket 0 has reached, and `done[k]`, the pieces complete on socket k:
//!
//! - socket 0 goes on to its next frame only when `done[k] >= done[0]` for all k: what follows a striped write waits for all of it;
//! - socket k goes on to its next piece only when `done[k] < started`: a striped write waits for what was before it.
//!
//! Socket 0 never waits for a piece that has not been sent before what it holds back, so nothing can lock up.
//!
//! # Acknowledgements
//! Writes are numbered; the target reports how many have landed and how many receives it has posted in one `Progress` frame. It goes
//! with whatever is sent next, alone when a poll finds nothing else to do, and at once when the peer is about to run dry.
//!
//! # No deadlock
//! Reading never waits for writing: answers to requests have their own queue, as long as the number of requests that a peer may
//! have open. Writing never blocks.

mod cancel;
mod cutoff;
mod execute;
mod inbound;
mod outbound;
mod post;

#[cfg(test)]
mod tests;

use std::collections::VecDeque;

pub(super) use self::inbound::Moved;
use self::{
    inbound::Inbound,
    outbound::{OnSent, Outbound},
};
use super::{
    decoder::Decoder,
    region::{Claim, Grants, Regions, Remote, Table, emit_key, parse_key},
    stream::Stream,
};
use crate::{
    Error, Kind, Rank, Result,
    fabric::{Access, Event, Key, LinkId, Outcome, RegionId, RemoteId, Span},
    wire::frame::{self, Header},
};

/// Writes without acknowledgement.
const WRITES: usize = 512;
/// Reads, atomics and flushes without answer. Both ends must agree on it.
const REQUESTS: usize = 128;
/// Posted receives. Both ends must agree on it.
const RECEIVES: usize = 512;
/// Most events that one link can owe its user at once.
pub(super) const OUTSTANDING: usize = WRITES + REQUESTS + RECEIVES + outbound::QUEUE + outbound::FLIGHTS;

/// Who is at the other end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Peer {
    pub(super) rank: Rank,
    pub(super) incarnation: u64,
    /// Random; the same at both ends.
    pub(super) nonce: u64,
    /// Where all counters begin. Not 0 in tests of their edges only.
    pub(super) origin: u64,
}

/// What a link shares with the others of its fabric.
#[derive(Debug)]
pub(super) struct Context<'a> {
    pub(super) regions: &'a mut Regions,
    pub(super) events: &'a mut VecDeque<Event>,
}

/// A write without acknowledgement.
#[derive(Clone, Copy, Debug)]
struct Unacked {
    /// `None`: its end was reported.
    token: Option<u64>,
    region: Option<RegionId>,
    /// The peer has dropped it.
    denied: bool,
}

/// A request without answer.
#[derive(Clone, Copy, Debug)]
struct Request {
    token: u64,
    number: u64,
    wants: Wants,
    /// Its end was reported: the answer goes nowhere.
    is_cancelled: bool,
}

#[derive(Clone, Copy, Debug)]
enum Wants {
    Data { local: Span, got: u64 },
    Value,
    Flushed,
}

/// One stream and what is under way on it.
#[derive(Debug)]
struct Lane<S> {
    stream: S,
    decoder: Decoder,
    inbound: inbound::Lane,
    outbound: Outbound,
}

/// One link.
#[derive(Debug)]
pub(super) struct Link<S> {
    id: LinkId,
    peer: Peer,
    lanes: Vec<Lane<S>>,
    grants: Grants,
    inbound: Inbound,
    unacked: VecDeque<Unacked>,
    /// Number of the next write.
    writes: u64,
    requests: VecDeque<Request>,
    /// Number of the next request.
    asked: u64,
    /// Writes that have landed at the peer, as far as it has said.
    acked: u64,
    /// Receives that the peer has posted, as far as it has said.
    granted: u64,
    /// Of these, the ones that we have not used.
    credits: usize,
    /// Sending failed; what the peer said before is still to be read.
    broken: Option<Error>,
}

impl<S: Stream> Link<S> {
    pub(super) fn new(id: LinkId, peer: Peer, streams: Vec<S>) -> Self {
        let lane = |stream| Lane {
            stream,
            decoder: Decoder::new(),
            inbound: inbound::Lane::new(peer.origin),
            outbound: Outbound::new(),
        };
        Self {
            id,
            peer,
            lanes: streams.into_iter().map(lane).collect(),
            grants: Grants::new(peer.nonce as u32),
            inbound: Inbound::new(peer.origin),
            unacked: VecDeque::with_capacity(WRITES),
            writes: peer.origin,
            requests: VecDeque::with_capacity(REQUESTS),
            asked: peer.origin,
            acked: peer.origin,
            granted: peer.origin,
            credits: 0,
            broken: None,
        }
    }

    pub(super) fn peer(&self) -> Peer {
        self.peer
    }

    /// Let the peer use `region` of this many bytes.
    pub(super) fn advertise(&mut self, region: RegionId, bytes: u64, access: Access, owner: Rank) -> Result<Key> {
        let (grant, nonce) = self.grants.add(region, access)?;
        let claim = Claim { grant, nonce, access, bytes };
        Ok(emit_key(&claim, self.peer.nonce ^ u64::from(owner.get()).rotate_left(32)))
    }

    /// What the peer advertised.
    pub(super) fn import(&self, key: &Key) -> Result<Remote> {
        let owner = u64::from(self.peer.rank.get()).rotate_left(32);
        Ok(Remote { link: self.id.0, claim: parse_key(key, self.peer.nonce ^ owner)? })
    }

    /// The peer's keys of a region are void: when this returns, nothing the peer does reads or writes it any more (FE-4, FE-5).
    ///
    /// # Errors
    /// There is no memory for what is left of an answer that is half sent; the link cannot go on.
    pub(super) fn revoke(&mut self, region: RegionId, regions: &mut Regions) -> Result<()> {
        if !self.grants.remove(region) {
            return Ok(());
        }
        for lane in &mut self.lanes {
            self.inbound.denied |= lane.inbound.revoke(region);
            lane.outbound.cut_answers(region, regions)?;
        }
        Ok(())
    }

    /// Receive, execute, send.
    ///
    /// # Errors
    /// The link is beyond help: call [`Link::fail`].
    pub(super) fn poll(&mut self, context: &mut Context<'_>) -> Result<Moved> {
        let moved = self.receive(context)?;
        if let Some(error) = self.broken {
            return Err(error);
        }
        self.inbound.settle(moved);
        self.push(context);
        Ok(moved)
    }

    /// Tell the peer all that it may wait for: the last step before sleep.
    pub(super) fn arm(&mut self, context: &mut Context<'_>) {
        self.inbound.settle(Moved::No);
        self.push(context);
    }

    /// Send; a failure shows at the next poll, after what the peer has said.
    fn push(&mut self, context: &mut Context<'_>) {
        if let Err(error) = self.send(context) {
            self.broken = Some(error);
        }
    }

    /// Whether a poll is needed without a new event of the sockets.
    pub(super) fn is_busy(&self) -> bool {
        self.broken.is_some()
            || self.inbound.cut_short
            || (0..self.lanes.len()).any(|lane| self.lanes[lane].inbound.readable && !self.is_held(lane))
    }

    /// Whether everything to be sent is in the kernel's hands.
    pub(super) fn is_drained(&self) -> bool {
        self.lanes.iter().all(|lane| lane.outbound.is_empty())
    }

    /// An event of socket `lane`: it may have become readable.
    pub(super) fn wake(&mut self, lane: usize) {
        if let Some(lane) = self.lanes.get_mut(lane) {
            lane.inbound.readable = true;
        }
    }

    /// The link ends: everything outstanding is reported, then that it is down. `why` goes to the peer if that is possible.
    pub(super) fn fail(mut self, error: Error, context: &mut Context<'_>) -> Vec<S> {
        let error = error.with_rank(self.peer.rank);
        self.say_goodbye(error.kind());
        let link = self.id;
        let mut end = |token, region: Option<RegionId>| {
            region.into_iter().for_each(|region| context.regions.drop_hold(region));
            context.events.push_back(Event::Done { link, token, result: Err(error) });
        };
        for write in self.unacked.drain(..) {
            write.token.into_iter().for_each(|token| end(token, write.region));
        }
        for request in self.requests.drain(..).filter(|request| !request.is_cancelled) {
            let region = if let Wants::Data { local, .. } = request.wants { Some(local.region) } else { None };
            end(request.token, region);
        }
        self.inbound.receives.drain(..).for_each(|receive| end(receive.token, Some(receive.local.region)));
        let mut copies = Vec::new();
        for lane in &mut self.lanes {
            lane.outbound.abandon(|sent| match sent {
                OnSent::Report(token, region) => end(token, Some(region)),
                OnSent::Release(region) => copies.push(region),
            });
        }
        copies.into_iter().for_each(|region| context.regions.drop_hold(region));
        context.events.push_back(Event::Down { link, error });
        self.lanes.into_iter().map(|lane| lane.stream).collect()
    }

    fn say_goodbye(&mut self, why: Kind) {
        let code = match why {
            Kind::AccessDenied => 1,
            Kind::Corrupt => 2,
            _ => 0,
        };
        let bye = Header { immediate: code, ..Header::new(frame::Kind::Bye) }.emit();
        let Some(lane) = self.lanes.first_mut() else { return };
        if lane.outbound.is_between_frames() {
            let range = libc::iovec { iov_base: bye.as_ptr().cast_mut().cast(), iov_len: bye.len() };
            // SAFETY: the range is `bye`, which lives until the end of the function and is only read.
            // A goodbye that does not fit is not missed: the peer sees the end of the stream.
            let _ = unsafe { lane.stream.send(&[range]) };
        }
        self.lanes.iter_mut().for_each(|lane| lane.stream.finish());
    }

    /// Socket `lane`, for tests that put something into it.
    #[cfg(any(test, fuzzing))]
    pub(super) fn stream(&mut self, lane: usize) -> &mut S {
        &mut self.lanes[lane].stream
    }

    fn done(&self, context: &mut Context<'_>, token: u64, outcome: Outcome) {
        context.events.push_back(Event::Done { link: self.id, token, result: Ok(outcome) });
    }
}

/// The imported region `id`, if it belongs to `link`.
fn remote_of(remotes: &Table<Remote>, id: RemoteId, link: LinkId) -> Result<Remote> {
    remotes.get(&id.0).copied().filter(|remote| remote.link == link.0).ok_or_else(|| Kind::InvalidArgument.into())
}
