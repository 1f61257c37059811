//! What comes in: bytes become frames, frames find their place, and what they owe the peer is counted.

use std::collections::VecDeque;

use libc::iovec;

use super::{Context, Link, outbound::retry};
use crate::{
    Kind, Result,
    fabric::{Outcome, RegionId, Span, tcp::stream::Stream},
    wire::frame::{self, HEADER, Header},
};

/// Bytes of one link in one poll, so that a busy link does not starve the others.
const BUDGET: u64 = 4 << 20;
/// Unreported writes that make a report due at once.
const DUE_WRITES: u64 = 16;
/// Unreported bytes that make a report due at once.
const DUE_BYTES: u64 = 128 << 10;

/// Whether something happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in super::super) enum Moved {
    Yes,
    No,
}

/// A posted receive.
#[derive(Clone, Copy, Debug)]
pub(super) struct Receive {
    pub(super) token: u64,
    pub(super) local: Span,
}

/// What came for a receive that was cancelled, and waits for the next one.
#[derive(Clone, Debug)]
pub(super) enum Parked {
    Message(Box<[u8]>),
    /// A write with an immediate.
    Notice(Result<Outcome>),
}

/// A long payload on its way.
#[derive(Clone, Copy, Debug)]
struct Payload {
    header: Header,
    /// Where it goes; `None`: it is thrown away.
    place: Option<Span>,
    /// What is still to come.
    left: u64,
}

impl Payload {
    fn advance(&mut self, count: usize) {
        self.left -= count as u64;
        if let Some(place) = &mut self.place {
            place.offset += count as u64;
            place.bytes -= count as u64;
        }
    }
}

/// The receiving side of one stream.
#[derive(Debug)]
pub(super) struct Lane {
    payload: Option<Payload>,
    /// Pieces of striped writes that are complete.
    pub(super) done: u64,
    /// A striped write is under way here.
    pub(super) in_piece: bool,
    /// The stream may have more: it has not said that it has not.
    pub(super) readable: bool,
}

impl Lane {
    pub(super) fn new(origin: u64) -> Self {
        Self { payload: None, done: origin, in_piece: false, readable: true }
    }

    /// If an answer is coming into memory of ours, throw away the rest.
    pub(super) fn drop_answer(&mut self) {
        if let Some(payload) = self.payload.as_mut().filter(|payload| payload.header.kind == frame::Kind::Data) {
            payload.place = None;
        }
    }

    /// If the peer is writing into `region`, throw away the rest; whether it was.
    pub(super) fn revoke(&mut self, region: RegionId) -> bool {
        let Some(payload) = &mut self.payload else { return false };
        let was =
            payload.header.kind == frame::Kind::Write && payload.place.is_some_and(|place| place.region == region);
        if was {
            payload.place = None;
        }
        was
    }
}

/// The receiving side of a link: all counters run from the link's origin.
#[derive(Debug)]
pub(super) struct Inbound {
    pub(super) receives: VecDeque<Receive>,
    /// Receives that the peer knows of, that were cancelled and have no successor yet.
    pub(super) debt: usize,
    /// What came for them. No receive is posted then.
    pub(super) parked: VecDeque<Parked>,
    /// Striped writes that socket 0 has reached.
    pub(super) started: u64,
    /// Writes that have landed.
    pub(super) landed: u64,
    /// Bytes of the write under way.
    pub(super) write_bytes: u64,
    /// Immediate of the write under way.
    pub(super) immediate: Option<u32>,
    /// The write under way goes where the peer may not.
    pub(super) denied: bool,
    /// Writes that did, and of which the peer has not been told.
    denials: VecDeque<u64>,
    /// Receives posted since the link began.
    granted: u64,
    /// What the peer has been told of `landed` and `granted`.
    told: (u64, u64),
    /// Bytes landed since.
    untold_bytes: u64,
    /// The next report is due.
    due: bool,
    /// The last poll ended because its budget did.
    pub(super) cut_short: bool,
}

impl Inbound {
    pub(super) fn new(origin: u64) -> Self {
        Self {
            receives: VecDeque::with_capacity(super::RECEIVES),
            debt: 0,
            parked: VecDeque::new(),
            started: origin,
            landed: origin,
            write_bytes: 0,
            immediate: None,
            denied: false,
            denials: VecDeque::new(),
            granted: origin,
            told: (origin, origin),
            untold_bytes: 0,
            due: false,
            cut_short: false,
        }
    }

    pub(super) fn post(&mut self, receive: Receive) {
        if self.debt > 0 {
            self.debt -= 1;
            return self.receives.push_back(receive);
        }
        // The receives that the peer knows of and has not used; none: it may be waiting.
        let known = self.receives.len() as u64 - self.granted.wrapping_sub(self.told.1);
        self.due |= known == 0;
        self.receives.push_back(receive);
        self.granted = self.granted.wrapping_add(1);
    }

    /// Whether what comes now is for a receive that was cancelled.
    pub(super) fn is_to_park(&self) -> bool {
        self.receives.is_empty() && self.parked.len() < self.debt
    }

    /// A write is complete: its length, or why it was dropped.
    pub(super) fn land(&mut self) -> Result<u64> {
        let denied = core::mem::take(&mut self.denied);
        if denied {
            self.denials.push_back(self.landed);
            self.due = true;
        }
        self.landed = self.landed.wrapping_add(1);
        self.untold_bytes += self.write_bytes;
        let bytes = core::mem::take(&mut self.write_bytes);
        if denied { Err(Kind::AccessDenied.into()) } else { Ok(bytes) }
    }

    /// Report at the next opportunity.
    pub(super) fn make_due(&mut self) {
        self.due = true;
    }

    /// End of a poll: decide whether a report is due without anything to go with.
    pub(super) fn settle(&mut self, moved: Moved) {
        let writes = self.landed.wrapping_sub(self.told.0);
        let waited = moved == Moved::No && self.told != (self.landed, self.granted);
        self.due |= waited || writes >= DUE_WRITES || self.untold_bytes >= DUE_BYTES;
    }

    /// Whether to report now; `idle`: nothing else is to be sent.
    pub(super) fn owes(&self, idle: bool) -> bool {
        self.told != (self.landed, self.granted) && (self.due || !idle)
    }

    /// A write that was dropped. They are reported before [`Inbound::tell`] counts them.
    pub(super) fn next_denial(&mut self) -> Option<u64> {
        self.denials.pop_front()
    }

    /// What to report.
    pub(super) fn tell(&mut self) -> (u64, u64) {
        self.told = (self.landed, self.granted);
        self.untold_bytes = 0;
        self.due = false;
        self.told
    }
}

impl<S: Stream> Link<S> {
    /// Whether socket `lane` must wait at its next frame (the order over several sockets).
    pub(super) fn is_held(&self, lane: usize) -> bool {
        match lane {
            0 => {
                let behind = self.lanes[0].inbound.done.wrapping_sub(1);
                self.lanes[1..].iter().any(|lane| lane.inbound.done == behind)
            }
            _ => self.lanes[lane].inbound.done == self.inbound.started,
        }
    }

    /// Take what has come, in order.
    pub(super) fn receive(&mut self, context: &mut Context<'_>) -> Result<Moved> {
        let mut moved = Moved::No;
        let mut budget = BUDGET;
        // Socket 0 can have got something at any time; the others matter when a striped write is under way.
        self.lanes[0].inbound.readable = true;
        for lane in 1..self.lanes.len() {
            self.lanes[lane].inbound.readable |= !self.is_held(lane);
        }
        loop {
            let mut again = Moved::No;
            for lane in 0..self.lanes.len() {
                if lane > 0 && self.is_held(lane) && self.lanes[lane].inbound.payload.is_none() {
                    continue;
                }
                if self.receive_lane(lane, &mut budget, context)? == Moved::Yes {
                    again = Moved::Yes;
                }
            }
            if again == Moved::Yes {
                moved = Moved::Yes;
            }
            self.inbound.cut_short = budget == 0;
            if again == Moved::No || budget == 0 {
                return Ok(moved);
            }
        }
    }

    /// Work off what is buffered, then read at most once.
    fn receive_lane(&mut self, index: usize, budget: &mut u64, context: &mut Context<'_>) -> Result<Moved> {
        let worked = self.process(index, context)?;
        if !self.lanes[index].inbound.readable || *budget == 0 {
            return Ok(worked);
        }
        let got = self.read(index, context)?;
        *budget = budget.saturating_sub(got);
        if got == 0 {
            return Ok(worked);
        }
        self.process(index, context)?;
        Ok(Moved::Yes)
    }

    /// One system call: the rest of the payload to its place, then whatever fits into the read-ahead.
    fn read(&mut self, index: usize, context: &mut Context<'_>) -> Result<u64> {
        let held = self.is_held(index);
        let lane = &mut self.lanes[index];
        let direct = match &lane.inbound.payload {
            Some(Payload { place: Some(place), .. }) => {
                context.regions.memory(*place).map_err(|_| Kind::AccessDenied)?
            }
            _ => iovec { iov_base: core::ptr::null_mut(), iov_len: 0 },
        };
        let space = lane.decoder.space();
        let asked = direct.iov_len + space.len();
        if asked == 0 {
            return Ok(0);
        }
        let ahead = iovec { iov_base: space.as_mut_ptr().cast(), iov_len: space.len() };
        let ranges = if direct.iov_len == 0 { &[ahead][..] } else { &[direct, ahead][..] };
        // SAFETY: `direct` is the span of a valid region that the frame was checked against; `ahead` is the buffer's free part.
        let got = match unsafe { lane.stream.receive(ranges) } {
            // What is held back may still say why the peer has left.
            Ok(0) if held => {
                lane.inbound.readable = false;
                return Ok(0);
            }
            Ok(0) => return Err(Kind::PeerDied.into()),
            Ok(got) => got,
            Err(error) => {
                lane.inbound.readable = false;
                return retry(&error).map(|()| 0);
            }
        };
        lane.inbound.readable = got == asked;
        let placed = got.min(direct.iov_len);
        if let Some(payload) = &mut lane.inbound.payload {
            payload.advance(placed);
        }
        lane.decoder.filled(got - placed);
        Ok(got as u64)
    }

    /// Execute the frames that are complete and may be.
    fn process(&mut self, index: usize, context: &mut Context<'_>) -> Result<Moved> {
        let mut moved = Moved::No;
        loop {
            if let Some(header) = self.place_buffered(index, context)? {
                self.finish(index, &header, context)?;
            } else if self.lanes[index].inbound.payload.is_some() || self.is_held(index) {
                return Ok(moved);
            } else {
                let Some(header) = self.lanes[index].decoder.frame() else { return Ok(moved) };
                self.begin(index, &header.map_err(|_| Kind::Corrupt)?, context)?;
            }
            moved = Moved::Yes;
        }
    }

    /// Move buffered bytes of a long payload to their place; its header if that was the last of it.
    fn place_buffered(&mut self, index: usize, context: &Context<'_>) -> Result<Option<Header>> {
        let lane = &mut self.lanes[index];
        let Some(payload) = &mut lane.inbound.payload else { return Ok(None) };
        let buffered = lane.decoder.bytes();
        let count = buffered.len().min(usize::try_from(payload.left).unwrap_or(usize::MAX));
        if count > 0 {
            if let Some(place) = payload.place {
                context.regions.store(place, &buffered[..count])?;
            }
            lane.decoder.take(count);
            payload.advance(count);
        }
        let ended = (payload.left == 0).then_some(payload.header);
        if ended.is_some() {
            lane.inbound.payload = None;
        }
        Ok(ended)
    }

    /// A frame begins, and ends at once if its payload is short.
    fn begin(&mut self, index: usize, header: &Header, context: &mut Context<'_>) -> Result<()> {
        let place = self.place(index, header, context)?;
        let lane = &mut self.lanes[index];
        lane.decoder.take(HEADER);
        let bytes = header.payload() as usize;
        if header.payload() > super::super::decoder::WHOLE {
            lane.inbound.payload = Some(Payload { header: *header, place, left: header.payload() });
            return Ok(());
        }
        let payload = &lane.decoder.bytes()[..bytes];
        let operands = payload.first_chunk().copied().unwrap_or_default();
        if let Some(place) = place {
            context.regions.store(place, payload)?;
        }
        let is_parked = header.kind == frame::Kind::Send && self.inbound.is_to_park();
        if is_parked {
            self.inbound.parked.push_back(Parked::Message(payload.into()));
        }
        lane.decoder.take(bytes);
        if is_parked {
            return Ok(());
        }
        match header.kind {
            frame::Kind::FetchAdd | frame::Kind::CompareSwap => self.execute_atomic(header, operands, context),
            _ => self.finish(index, header, context),
        }
    }
}
