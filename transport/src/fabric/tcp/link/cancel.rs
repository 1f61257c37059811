//! Operations that end before their time: [`Link::cancel`].
//!
//! ```text
//! operation            nothing of it was sent         something was
//! write                empty write, Cancelled         rest out of a copy, OutcomeUnknown, acknowledgement ignored
//! read, atomic, flush  a flush instead, Cancelled     OutcomeUnknown, answer thrown away
//! send                 removed, Cancelled             rest out of a copy, OutcomeUnknown
//! receive              Cancelled; its credit goes to the next receive, with what comes meanwhile
//! ```
//! A write keeps its number and a request its place among the answers, so the stream stays as the peer expects it (CA-2, CA-3);
//! see [`cutoff`](super::cutoff).

use super::{Context, Link, Wants, cutoff::Progress, inbound::Parked};
use crate::{
    Error, Kind, Result,
    fabric::{Event, Outcome, RegionId, tcp::stream::Stream},
};

impl<S: Stream> Link<S> {
    /// See [`Fabric::cancel`](crate::fabric::Fabric::cancel).
    ///
    /// # Errors
    /// There is no memory for what is left of a frame; the link cannot go on.
    pub(in super::super) fn cancel(&mut self, token: u64, context: &mut Context<'_>) -> Result<()> {
        if let Some(at) = self.unacked.iter().position(|write| write.token == Some(token)) {
            return self.cancel_write(at, context);
        }
        if let Some(at) = self.requests.iter().position(|known| known.token == token && !known.is_cancelled) {
            return self.cancel_request(at, context);
        }
        if let Some(at) = self.inbound.receives.iter().position(|receive| receive.token == token) {
            self.cancel_receive(at, context);
            return Ok(());
        }
        let Some(outbound) = self.lanes.first_mut().map(|lane| &mut lane.outbound) else { return Ok(()) };
        if let Some((region, progress)) = outbound.cut_message(token, context.regions)? {
            let is_unsent = matches!(progress, Progress::Nothing { .. });
            self.credits += usize::from(is_unsent);
            self.end_early(token, Some(region), is_unsent, context);
        }
        Ok(())
    }

    fn cancel_write(&mut self, at: usize, context: &mut Context<'_>) -> Result<()> {
        let number = self.acked.wrapping_add(at as u64);
        let (mut striped, mut unsent_lanes, mut first_is_unsent) = (false, 0, false);
        for (index, lane) in self.lanes.iter_mut().enumerate() {
            match lane.outbound.cut_write(number, context.regions)? {
                Progress::Nothing { is_striped, had_immediate } => {
                    striped |= is_striped;
                    unsent_lanes += 1;
                    first_is_unsent |= index == 0;
                    self.credits += usize::from(had_immediate);
                }
                Progress::Something { had_immediate } => self.credits += usize::from(had_immediate),
            }
        }
        let write = &mut self.unacked[at];
        let (token, region) = (write.token.take(), write.region.take());
        let is_unsent = first_is_unsent && unsent_lanes == if striped { self.lanes.len() } else { 1 };
        if let Some(token) = token {
            self.end_early(token, region, is_unsent, context);
        }
        Ok(())
    }

    fn cancel_request(&mut self, at: usize, context: &mut Context<'_>) -> Result<()> {
        let number = self.requests[at].number;
        let lane = self.lanes.first_mut().ok_or(Kind::Bug)?;
        let is_unsent = matches!(lane.outbound.cut_request(number, context.regions)?, Progress::Nothing { .. });
        if at == 0 {
            lane.inbound.drop_answer();
        }
        let request = &mut self.requests[at];
        let region = if let Wants::Data { local, .. } = request.wants { Some(local.region) } else { None };
        request.is_cancelled = true;
        if is_unsent {
            request.wants = Wants::Flushed;
        }
        let token = request.token;
        self.end_early(token, region, is_unsent, context);
        Ok(())
    }

    /// CA-4
    fn cancel_receive(&mut self, at: usize, context: &mut Context<'_>) {
        let Some(receive) = self.inbound.receives.remove(at) else { return };
        self.inbound.debt += 1;
        self.end_early(receive.token, Some(receive.local.region), true, context);
    }

    fn end_early(&self, token: u64, region: Option<RegionId>, is_unsent: bool, context: &mut Context<'_>) {
        region.into_iter().for_each(|region| context.regions.drop_hold(region));
        let kind = if is_unsent { Kind::Cancelled } else { Kind::OutcomeUnknown };
        let result = Err(Error::new(kind).with_rank(self.peer.rank));
        context.events.push_back(Event::Done { link: self.id, token, result });
    }

    /// A receive was posted: what came for a cancelled one is for it.
    pub(super) fn take_parked(&mut self, context: &mut Context<'_>) -> Result<()> {
        let Some(parked) = self.inbound.parked.pop_front() else { return Ok(()) };
        let bytes = match parked {
            Parked::Notice(result) => return self.complete_receive(result, context),
            Parked::Message(bytes) => bytes,
        };
        let receive = *self.inbound.receives.front().ok_or(Kind::Bug)?;
        if bytes.len() as u64 > receive.local.bytes {
            return self.complete_receive(Err(Kind::AccessDenied.into()), context);
        }
        context.regions.store(receive.local, &bytes)?;
        let received = Outcome::Received { bytes: bytes.len() as u64, immediate: None };
        self.complete_receive(Ok(received), context)
    }
}
