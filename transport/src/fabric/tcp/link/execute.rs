//! What each frame means: where its payload goes, and what happens when it is there.

use super::{
    Context, Link, RECEIVES, Request, Wants,
    inbound::Parked,
    outbound::{Item, Source},
};
use crate::{
    Error, Kind, Result,
    fabric::{
        Access, Event, Outcome, Span,
        tcp::{region::within, stream::Stream},
    },
    sync::Ordering,
    wire::frame::{self, Header},
};

impl<S: Stream> Link<S> {
    /// Check a frame against everything that its payload could touch. `None`: there is none, or it goes nowhere.
    pub(super) fn place(&mut self, lane: usize, header: &Header, context: &Context<'_>) -> Result<Option<Span>> {
        if lane > 0 && !(header.kind == frame::Kind::Write && header.has(Header::STRIPED)) {
            return Err(Kind::Corrupt.into());
        }
        match header.kind {
            frame::Kind::Write => self.place_write(lane, header, context),
            frame::Kind::Data => self.place_data(header),
            frame::Kind::Send => {
                if self.inbound.is_to_park() {
                    return Ok(None);
                }
                let receive = self.inbound.receives.front().ok_or(Kind::Corrupt)?;
                let fits = header.bytes <= receive.local.bytes;
                Ok(fits.then_some(Span { bytes: header.bytes, ..receive.local }))
            }
            _ => Ok(None),
        }
    }

    fn place_write(&mut self, index: usize, header: &Header, context: &Context<'_>) -> Result<Option<Span>> {
        let striped = header.has(Header::STRIPED);
        let lane = &mut self.lanes[index].inbound;
        if header.number != self.inbound.landed || lane.in_piece && !striped {
            return Err(Kind::Corrupt.into());
        }
        let place = self.target(header, header.bytes, Access::Write, context).ok();
        self.inbound.denied |= place.is_none();
        let lane = &mut self.lanes[index].inbound;
        if striped && !lane.in_piece {
            lane.in_piece = true;
            if index == 0 {
                self.inbound.started = self.inbound.started.wrapping_add(1);
            }
        }
        Ok(place)
    }

    fn place_data(&self, header: &Header) -> Result<Option<Span>> {
        match self.requests.front() {
            Some(Request { number, wants: Wants::Data { local, got }, is_cancelled, .. })
                if *number == header.number && *got == header.offset =>
            {
                within(*got, header.bytes, local.bytes).map_err(|_| Kind::Corrupt)?;
                Ok((!is_cancelled).then_some(Span { offset: local.offset + got, bytes: header.bytes, ..*local }))
            }
            _ => Err(Kind::Corrupt.into()),
        }
    }

    /// The range of our memory that a frame names, if the peer may use it so (FE-4, FE-7).
    fn target(&self, header: &Header, bytes: u64, access: Access, context: &Context<'_>) -> Result<Span> {
        let grant = self.grants.find(header.grant, header.nonce)?;
        if !grant.access.allows(access) {
            return Err(Kind::AccessDenied.into());
        }
        let span = Span { region: grant.region, offset: header.offset, bytes };
        context.regions.check(span).map_err(|_| Kind::AccessDenied)?;
        Ok(span)
    }

    /// The payload of a frame is in its place.
    pub(super) fn finish(&mut self, lane: usize, header: &Header, context: &mut Context<'_>) -> Result<()> {
        match header.kind {
            frame::Kind::Write => self.finish_write(lane, header, context),
            frame::Kind::Send => self.finish_send(header, context),
            frame::Kind::Read => self.execute_read(header, context),
            frame::Kind::Data => self.finish_data(header, context),
            frame::Kind::Flush => self.execute_flush(header),
            frame::Kind::Value => self.answered(header, Outcome::Atomic { before: header.offset }, context),
            frame::Kind::Flushed => self.answered(header, Outcome::Done, context),
            frame::Kind::Progress => self.on_progress(header, context),
            frame::Kind::Refused => self.on_refused(header, context),
            frame::Kind::Denied => self.on_denied(header),
            frame::Kind::Bye => Err(goodbye(header.immediate)),
            frame::Kind::FetchAdd | frame::Kind::CompareSwap => Err(Kind::Bug.into()),
        }
    }

    fn finish_write(&mut self, index: usize, header: &Header, context: &mut Context<'_>) -> Result<()> {
        self.inbound.write_bytes = self.inbound.write_bytes.saturating_add(header.bytes);
        if header.has(Header::IMMEDIATE) {
            self.inbound.immediate = Some(header.immediate);
        }
        if !header.has(Header::LAST) {
            return Ok(());
        }
        if header.has(Header::STRIPED) {
            let lane = &mut self.lanes[index].inbound;
            lane.in_piece = false;
            lane.done = lane.done.wrapping_add(1);
            if self.lanes.iter().any(|lane| lane.inbound.done != self.inbound.started) {
                return Ok(());
            }
        }
        let landed = self.inbound.land();
        match self.inbound.immediate.take() {
            Some(immediate) => {
                let immediate = Some(immediate);
                self.complete_receive(landed.map(|bytes| Outcome::Received { bytes, immediate }), context)
            }
            None => Ok(()),
        }
    }

    fn finish_send(&mut self, header: &Header, context: &mut Context<'_>) -> Result<()> {
        let fits = self.inbound.receives.front().is_some_and(|receive| header.bytes <= receive.local.bytes);
        let received = Outcome::Received { bytes: header.bytes, immediate: None };
        self.complete_receive(if fits { Ok(received) } else { Err(Kind::AccessDenied.into()) }, context)
    }

    /// The oldest receive is used up.
    pub(super) fn complete_receive(&mut self, result: Result<Outcome>, context: &mut Context<'_>) -> Result<()> {
        if self.inbound.is_to_park() {
            self.inbound.parked.push_back(Parked::Notice(result));
            return Ok(());
        }
        let receive = self.inbound.receives.pop_front().ok_or(Kind::Corrupt)?;
        context.regions.drop_hold(receive.local.region);
        let result = result.map_err(|error| error.with_rank(self.peer.rank));
        context.events.push_back(Event::Done { link: self.id, token: receive.token, result });
        Ok(())
    }

    fn execute_read(&mut self, header: &Header, context: &Context<'_>) -> Result<()> {
        let Ok(span) = self.target(header, header.bytes, Access::Read, context) else {
            return self.refuse(header.number);
        };
        let answer = Header {
            flags: Header::LAST,
            bytes: header.bytes,
            number: header.number,
            ..Header::new(frame::Kind::Data)
        };
        self.lanes[0].outbound.answer(Item::new(answer, Source::Region(span.region, span.offset)))
    }

    /// An atomic, executed here.
    pub(super) fn execute_atomic(&mut self, header: &Header, operands: [u8; 16], context: &Context<'_>) -> Result<()> {
        let target = self.target(header, 8, Access::ReadWrite, context);
        let word = target.and_then(|span| context.regions.word(span.region, span.offset));
        let Ok(word) = word else { return self.refuse(header.number) };
        let [first, second] =
            [0, 8].map(|at| u64::from_le_bytes(operands[at..at + 8].try_into().expect("eight bytes")));
        let before = if header.kind == frame::Kind::FetchAdd {
            // SYNC tcp.atomic -> reader of the region: earlier writes of the link are visible to who sees the new value.
            word.fetch_add(first, Ordering::AcqRel)
        } else {
            // SYNC tcp.atomic -> reader of the region: earlier writes of the link are visible to who sees the new value.
            let swapped = word.compare_exchange(first, second, Ordering::AcqRel, Ordering::Acquire);
            swapped.unwrap_or_else(|found| found)
        };
        let answer = Header { offset: before, number: header.number, ..Header::new(frame::Kind::Value) };
        self.lanes[0].outbound.answer(Item::new(answer, Source::None))
    }

    /// Answer a request for what the peer may not touch.
    fn refuse(&mut self, number: u64) -> Result<()> {
        self.lanes[0].outbound.answer(refusal(number))
    }

    fn execute_flush(&mut self, header: &Header) -> Result<()> {
        // The report goes in front of the answer: the writes are done before the flush is.
        self.inbound.make_due();
        let answer = Header { number: header.number, ..Header::new(frame::Kind::Flushed) };
        self.lanes[0].outbound.answer(Item::new(answer, Source::None))
    }

    fn finish_data(&mut self, header: &Header, context: &mut Context<'_>) -> Result<()> {
        let Some(request) = self.requests.front_mut() else { return Err(Kind::Bug.into()) };
        let Wants::Data { local, got } = &mut request.wants else { return Err(Kind::Bug.into()) };
        *got += header.bytes;
        if !header.has(Header::LAST) {
            return Ok(());
        }
        if *got != local.bytes {
            return Err(Kind::Corrupt.into());
        }
        let (token, region, is_cancelled) = (request.token, local.region, request.is_cancelled);
        self.requests.pop_front();
        if !is_cancelled {
            context.regions.drop_hold(region);
            self.done(context, token, Outcome::Done);
        }
        Ok(())
    }

    fn answered(&mut self, header: &Header, outcome: Outcome, context: &mut Context<'_>) -> Result<()> {
        let request =
            self.requests.front().copied().filter(|request| request.number == header.number).ok_or(Kind::Corrupt)?;
        match (request.wants, outcome) {
            (Wants::Value, Outcome::Atomic { .. }) | (Wants::Flushed, Outcome::Done) => {}
            _ => return Err(Kind::Corrupt.into()),
        }
        self.requests.pop_front();
        if !request.is_cancelled {
            self.done(context, request.token, outcome);
        }
        Ok(())
    }

    fn on_refused(&mut self, header: &Header, context: &mut Context<'_>) -> Result<()> {
        match self.requests.pop_front() {
            Some(Request { number, is_cancelled: true, .. }) if number == header.number => Ok(()),
            Some(Request { token, number, wants, .. }) if number == header.number => {
                if let Wants::Data { local, .. } = wants {
                    context.regions.drop_hold(local.region);
                }
                let result = Err(Error::new(Kind::AccessDenied).with_rank(self.peer.rank));
                context.events.push_back(Event::Done { link: self.id, token, result });
                Ok(())
            }
            _ => Err(Kind::Corrupt.into()),
        }
    }

    fn on_denied(&mut self, header: &Header) -> Result<()> {
        let place = usize::try_from(header.number.wrapping_sub(self.acked)).unwrap_or(usize::MAX);
        self.unacked.get_mut(place).ok_or(Kind::Corrupt)?.denied = true;
        Ok(())
    }

    fn on_progress(&mut self, header: &Header, context: &mut Context<'_>) -> Result<()> {
        let landed = header.number.wrapping_sub(self.acked);
        let granted = header.offset.wrapping_sub(self.granted);
        if landed > self.unacked.len() as u64 || granted > (RECEIVES - self.credits) as u64 {
            return Err(Kind::Corrupt.into());
        }
        self.acked = header.number;
        self.granted = header.offset;
        self.credits += granted as usize;
        for write in self.unacked.drain(..landed as usize) {
            let Some(token) = write.token else { continue };
            write.region.into_iter().for_each(|region| context.regions.drop_hold(region));
            let denied = Error::new(Kind::AccessDenied).with_rank(self.peer.rank);
            let result = if write.denied { Err(denied) } else { Ok(Outcome::Done) };
            context.events.push_back(Event::Done { link: self.id, token, result });
        }
        Ok(())
    }
}

/// The answer to a request that may not be.
pub(super) fn refusal(number: u64) -> Item {
    Item::new(Header { number, ..Header::new(frame::Kind::Refused) }, Source::None)
}

fn goodbye(code: u32) -> Error {
    Error::new(match code {
        1 => Kind::AccessDenied,
        2 => Kind::Corrupt,
        _ => Kind::PeerLeft,
    })
}
