//! Taking back what was to be sent: of a cancelled operation, and of a region that peers may not read any more.
//!
//! A stream has no way back: a frame that has begun must be sent whole, and operations are numbered. So
//! - what is only queued or committed is replaced by a frame that does nothing under the same number: an empty write, a
//!   flush, a refusal;
//! - a frame that has begun goes on out of a copy of what is left of it, at most one fragment for each socket.
//!
//! Either way the region is not read any more when these functions return, and the stream is as valid as before.

use super::{
    execute::refusal,
    outbound::{Flight, Item, OnSent, Outbound, Source},
};
use crate::{
    Result,
    fabric::{RegionId, Span, tcp::region::Regions},
    wire::frame::{self, Header},
};

/// How far an operation had come on one stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Progress {
    /// Nothing of it was sent. `is_striped`: the same must hold for the other streams. `had_immediate`: it will not be sent.
    Nothing { is_striped: bool, had_immediate: bool },
    /// Something of it was sent, or all.
    Something { had_immediate: bool },
}

impl Outbound {
    /// Send no more of write `number`.
    pub(super) fn cut_write(&mut self, number: u64, regions: &mut Regions) -> Result<Progress> {
        self.cut_off(regions, |header| header.kind == frame::Kind::Write && header.number == number, empty_write)
    }

    /// Do not ask request `number`, if it was not asked.
    pub(super) fn cut_request(&mut self, number: u64, regions: &mut Regions) -> Result<Progress> {
        let is_it = |header: &Header| is_request(header.kind) && header.number == number;
        let flush = |header: &Header| Header { number: header.number, ..Header::new(frame::Kind::Flush) };
        self.cut_off(regions, is_it, flush)
    }

    /// Replace the frames of an operation that have not begun, and let one that has go on out of a copy.
    fn cut_off(
        &mut self,
        regions: &mut Regions,
        is_it: impl Fn(&Header) -> bool,
        instead: impl Fn(&Header) -> Header,
    ) -> Result<Progress> {
        let (mut untouched, mut is_striped, mut had_immediate) = (false, false, false);
        for item in self.queue.iter_mut().filter(|item| is_it(&item.header)) {
            untouched |= item.cut == 0;
            is_striped |= item.header.has(Header::STRIPED);
            had_immediate |= item.header.has(Header::IMMEDIATE);
            *item = Item::new(instead(&item.header), Source::None);
        }
        for flight in &mut self.flights {
            let header = flight.header()?;
            if !is_it(&header) {
                continue;
            }
            if flight.written > 0 {
                freeze(flight, regions)?;
                continue;
            }
            untouched |= flight.is_first;
            is_striped |= header.has(Header::STRIPED);
            had_immediate |= header.has(Header::IMMEDIATE);
            let is_first = flight.is_first;
            *flight = Item::new(instead(&header), Source::None).cut();
            flight.is_first = is_first;
        }
        Ok(match untouched {
            true => Progress::Nothing { is_striped, had_immediate },
            false => Progress::Something { had_immediate },
        })
    }

    /// Do not send the message of this token, if it is still here: whether nothing of it was sent.
    pub(super) fn cut_message(&mut self, token: u64, regions: &mut Regions) -> Result<Option<(RegionId, Progress)>> {
        let nothing = Progress::Nothing { is_striped: false, had_immediate: false };
        if let Some(at) = self.queue.iter().position(|item| region_of(item.on_sent, token).is_some()) {
            let item = self.queue.remove(at);
            return Ok(item.and_then(|item| region_of(item.on_sent, token)).map(|region| (region, nothing)));
        }
        let Some(at) = self.flights.iter().position(|flight| region_of(flight.on_sent, token).is_some()) else {
            return Ok(None);
        };
        let Some(region) = region_of(self.flights[at].on_sent, token) else { return Ok(None) };
        if self.flights[at].written == 0 {
            self.flights.remove(at);
            return Ok(Some((region, nothing)));
        }
        self.flights[at].on_sent = None;
        freeze(&mut self.flights[at], regions)?;
        Ok(Some((region, Progress::Something { had_immediate: false })))
    }

    /// Answer no more out of `region`: the peers' reads of it are refused, in the middle if need be (FE-5).
    pub(super) fn cut_answers(&mut self, region: RegionId, regions: &mut Regions) -> Result<()> {
        let mut refused = None;
        let mut failure = Ok(());
        self.flights.retain_mut(|flight| {
            let Ok(header) = flight.header() else { return true };
            let is_it = header.kind == frame::Kind::Data && flight.body.is_some_and(|body| body.region == region);
            if !is_it {
                return true;
            }
            if flight.written > 0 {
                failure = freeze(flight, regions);
                return true;
            }
            if refused == Some(header.number) {
                return false;
            }
            refused = Some(header.number);
            *flight = refusal(header.number).cut();
            true
        });
        failure?;
        let is_it = |item: &Item| matches!(item.source, Source::Region(from, _) if from == region);
        self.answers.retain_mut(|answer| {
            if !is_it(answer) {
                return true;
            }
            let number = answer.header.number;
            *answer = refusal(number);
            refused != Some(number)
        });
        Ok(())
    }
}

/// Let a frame that has begun go on out of a copy of its payload.
fn freeze(flight: &mut Flight, regions: &mut Regions) -> Result<()> {
    let Some(Span { bytes: 1.., .. }) = flight.body else { return Ok(()) };
    if matches!(flight.on_sent, Some(OnSent::Release(_))) {
        return Ok(());
    }
    let copy = flight.body.map(|body| regions.copy(body)).transpose()?;
    flight.body = copy;
    flight.on_sent = copy.map(|copy| OnSent::Release(copy.region));
    Ok(())
}

/// A write that changes nothing and notifies nobody, in the place of another one or of the rest of it.
fn empty_write(header: &Header) -> Header {
    Header { bytes: 0, immediate: 0, flags: header.flags & !Header::IMMEDIATE, ..*header }
}

fn is_request(kind: frame::Kind) -> bool {
    use frame::Kind::{CompareSwap, FetchAdd, Flush, Read};
    matches!(kind, Read | FetchAdd | CompareSwap | Flush)
}

fn region_of(on_sent: Option<OnSent>, wanted: u64) -> Option<RegionId> {
    match on_sent {
        Some(OnSent::Report(token, region)) if token == wanted => Some(region),
        _ => None,
    }
}
