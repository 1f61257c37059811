//! What one stream has to send: a queue of operations, a queue of answers, and the frames that are on their way.

use std::{collections::VecDeque, io};

use libc::iovec;

use super::{Context, Link};
use crate::{
    Error, Kind, Result,
    fabric::{Event, INLINE, Outcome, RegionId, Span, tcp::stream::Stream},
    wire::frame::{self, FRAGMENT, HEADER, Header},
};

/// Operations waiting on one stream.
pub(super) const QUEUE: usize = 256;
/// Frames in one system call.
pub(super) const FLIGHTS: usize = 32;
/// Bytes after which no further frame is put into a system call.
const BATCH: u64 = 4 << 20;

/// Where the payload comes from.
#[derive(Clone, Copy, Debug)]
pub(super) enum Source {
    None,
    Inline([u8; INLINE]),
    Region(RegionId, u64),
}

/// What to do when the last frame of an item is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OnSent {
    /// The message of this token is done, and its memory free.
    Report(u64, RegionId),
    /// A copy is not needed any more.
    Release(RegionId),
}

/// An operation or an answer: one or more frames.
#[derive(Clone, Copy, Debug)]
pub(super) struct Item {
    /// Of the whole: `bytes` may exceed a fragment.
    pub(super) header: Header,
    pub(super) source: Source,
    pub(super) on_sent: Option<OnSent>,
    /// Payload of the frames that have been cut off.
    pub(super) cut: u64,
}

impl Item {
    pub(super) fn new(header: Header, source: Source) -> Self {
        Self { header, source, on_sent: None, cut: 0 }
    }

    fn is_cut_up(&self) -> bool {
        self.cut == self.header.payload()
    }

    /// The next frame. Called once for an item without payload, else until [`Item::is_cut_up`].
    pub(super) fn cut(&mut self) -> Flight {
        let whole = self.header.payload();
        let is_first = self.cut == 0;
        let bytes = (whole - self.cut).min(FRAGMENT);
        let last = self.cut + bytes == whole;
        let mut header = self.header;
        let mut body = None;
        let mut head = [0; HEADER + INLINE];
        let mut head_bytes = HEADER;
        match self.source {
            Source::None => {}
            Source::Inline(data) => {
                head[HEADER..].copy_from_slice(&data);
                head_bytes += bytes as usize;
            }
            Source::Region(region, offset) => {
                header.bytes = bytes;
                header.offset += self.cut;
                body = Some(Span { region, offset: offset + self.cut, bytes });
            }
        }
        if !last {
            header.flags &= !(Header::LAST | Header::IMMEDIATE);
        }
        head[..HEADER].copy_from_slice(&header.emit());
        self.cut += bytes;
        let on_sent = if last { self.on_sent } else { None };
        Flight { head, head_bytes, body, written: 0, is_first, on_sent }
    }
}

/// A frame that is committed to the stream.
#[derive(Clone, Copy, Debug)]
pub(super) struct Flight {
    head: [u8; HEADER + INLINE],
    head_bytes: usize,
    pub(super) body: Option<Span>,
    pub(super) written: u64,
    /// Nothing of its item was sent before.
    pub(super) is_first: bool,
    pub(super) on_sent: Option<OnSent>,
}

impl Flight {
    pub(super) fn header(&self) -> Result<Header> {
        let raw = self.head.first_chunk().ok_or(Kind::Bug)?;
        Header::parse(raw).map_err(|_| Kind::Bug.into())
    }

    fn bytes(&self) -> u64 {
        self.head_bytes as u64 + self.body.map_or(0, |body| body.bytes)
    }
}

/// What one stream has to send.
#[derive(Debug)]
pub(super) struct Outbound {
    pub(super) queue: VecDeque<Item>,
    pub(super) answers: VecDeque<Item>,
    pub(super) flights: VecDeque<Flight>,
}

impl Outbound {
    pub(super) fn new() -> Self {
        Self {
            queue: VecDeque::with_capacity(QUEUE),
            answers: VecDeque::with_capacity(super::REQUESTS),
            flights: VecDeque::with_capacity(FLIGHTS + 1),
        }
    }

    pub(super) fn has_room(&self) -> bool {
        self.queue.len() < QUEUE
    }

    pub(super) fn push(&mut self, item: Item) {
        debug_assert!(self.has_room(), "asked for before");
        self.queue.push_back(item);
    }

    /// Answer a request.
    ///
    /// # Errors
    /// The peer has more requests open than it may.
    pub(super) fn answer(&mut self, item: Item) -> Result<()> {
        if self.answers.len() == super::REQUESTS {
            return Err(Kind::Corrupt.into());
        }
        self.answers.push_back(item);
        Ok(())
    }

    pub(super) fn is_between_frames(&self) -> bool {
        self.flights.front().is_none_or(|flight| flight.written == 0)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.queue.is_empty() && self.answers.is_empty() && self.flights.is_empty()
    }

    /// Nothing more will be sent: the messages that were not.
    pub(super) fn abandon(&mut self, mut end: impl FnMut(OnSent)) {
        self.flights.drain(..).filter_map(|flight| flight.on_sent).for_each(&mut end);
        self.queue.drain(..).filter_map(|item| item.on_sent).for_each(end);
        self.answers.clear();
    }

    /// Commit frames until a system call is full.
    fn fill(&mut self) {
        let mut bytes: u64 = self.flights.iter().map(|flight| flight.bytes() - flight.written).sum();
        while self.flights.len() < FLIGHTS && bytes < BATCH {
            let from = if self.answers.is_empty() { &mut self.queue } else { &mut self.answers };
            let Some(item) = from.front_mut() else { return };
            let flight = item.cut();
            if item.is_cut_up() {
                from.pop_front();
            }
            bytes += flight.bytes();
            self.flights.push_back(flight);
        }
    }

    /// `count` bytes were taken: drop the frames that are out.
    fn advance(&mut self, mut count: u64, mut sent: impl FnMut(OnSent)) {
        while let Some(flight) = self.flights.front_mut() {
            let left = flight.bytes() - flight.written;
            if count < left {
                flight.written += count;
                return;
            }
            count -= left;
            flight.on_sent.into_iter().for_each(&mut sent);
            self.flights.pop_front();
        }
    }

    /// The ranges to send, and their total.
    fn ranges(&self, into: &mut [iovec; 2 * FLIGHTS + 2], context: &Context<'_>) -> Result<(usize, u64)> {
        let (mut count, mut total) = (0, 0);
        for flight in &self.flights {
            let head = &flight.head[..flight.head_bytes];
            let body = flight.body.map(|body| context.regions.memory(body)).transpose().map_err(|_| Kind::Bug)?;
            let mut skip = flight.written as usize;
            for (start, bytes) in [
                (head.as_ptr().cast_mut().cast(), head.len()),
                body.map_or((core::ptr::null_mut(), 0), |body| (body.iov_base, body.iov_len)),
            ] {
                let skipped = skip.min(bytes);
                skip -= skipped;
                if skipped < bytes {
                    into[count] = iovec { iov_base: start.wrapping_byte_add(skipped), iov_len: bytes - skipped };
                    total += (bytes - skipped) as u64;
                    count += 1;
                }
            }
        }
        Ok((count, total))
    }
}

impl<S: Stream> Link<S> {
    /// Send what is to be sent, as far as the streams take it.
    pub(super) fn send(&mut self, context: &mut Context<'_>) -> Result<()> {
        (0..self.lanes.len()).try_for_each(|lane| self.send_lane(lane, context))
    }

    fn send_lane(&mut self, lane: usize, context: &mut Context<'_>) -> Result<()> {
        let mut out = 0;
        while out < BATCH {
            if lane == 0 {
                self.report_progress();
            }
            let link = self.id;
            let Some(lane) = self.lanes.get_mut(lane) else { return Ok(()) };
            if lane.outbound.is_empty() {
                return Ok(());
            }
            lane.outbound.fill();
            let mut ranges = [iovec { iov_base: core::ptr::null_mut(), iov_len: 0 }; 2 * FLIGHTS + 2];
            let (count, total) = lane.outbound.ranges(&mut ranges, context)?;
            // SAFETY: the ranges are heads in `flights`, which does not change before the call returns, and spans that
            // `Regions::memory` has just found in valid regions.
            let sent = match unsafe { lane.stream.send(&ranges[..count]) } {
                Ok(sent) => sent as u64,
                Err(error) => return retry(&error),
            };
            lane.outbound.advance(sent, |sent| {
                let (OnSent::Report(_, region) | OnSent::Release(region)) = sent;
                context.regions.drop_hold(region);
                if let OnSent::Report(token, _) = sent {
                    context.events.push_back(Event::Done { link, token, result: Ok(Outcome::Done) });
                }
            });
            if sent < total {
                return Ok(());
            }
            out += sent;
        }
        Ok(())
    }

    /// Put a `Progress` frame in front of what waits, if the peer is owed one and something is sent anyway or it is due.
    fn report_progress(&mut self) {
        let Some(lane) = self.lanes.first_mut() else { return };
        let idle = lane.outbound.is_empty();
        if lane.outbound.flights.len() >= FLIGHTS || !self.inbound.owes(idle) {
            return;
        }
        let mut say = |header| lane.outbound.flights.push_back(Item::new(header, Source::None).cut());
        if let Some(number) = self.inbound.next_denial() {
            return say(Header { number, ..Header::new(frame::Kind::Denied) });
        }
        let (landed, granted) = self.inbound.tell();
        say(Header { number: landed, offset: granted, ..Header::new(frame::Kind::Progress) });
    }
}

/// Nothing, if the call is to be repeated later; else what it means for the link.
pub(super) fn retry(error: &io::Error) -> Result<()> {
    match error.kind() {
        io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted => Ok(()),
        io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe | io::ErrorKind::UnexpectedEof => {
            Err(Kind::PeerDied.into())
        }
        _ => Err(Error::new(Kind::LinkFailed).with_os(error.raw_os_error().unwrap_or(0))),
    }
}
