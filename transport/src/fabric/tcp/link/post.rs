//! Operations become items of the queues.

use super::{
    Context, Link, RECEIVES, REQUESTS, Request, Unacked, WRITES, Wants,
    inbound::Receive,
    outbound::{Item, OnSent, Source},
    remote_of,
};
use crate::{
    Kind, Result,
    fabric::{
        Access, INLINE, Op, Span, Target,
        tcp::{
            region::{Remote, Table, within},
            stream::Stream,
        },
    },
    wire::frame::{self, Header},
};

/// Writes of at least this many bytes are spread over all sockets of a link.
const STRIPE: u64 = 256 << 10;
/// Pieces are multiples of this.
const LINE: u64 = 128;

/// The part of a write that goes over one socket: offset and length.
fn piece(bytes: u64, lane: u64, lanes: u64) -> (u64, u64) {
    let each = bytes.div_ceil(lanes).next_multiple_of(LINE);
    let start = (each * lane).min(bytes);
    (start, (bytes - start).min(each))
}

impl<S: Stream> Link<S> {
    /// See [`Fabric::post`](crate::fabric::Fabric::post).
    pub(in super::super) fn post(
        &mut self,
        ops: &[Op],
        remotes: &Table<Remote>,
        context: &mut Context<'_>,
    ) -> Result<usize> {
        ops.iter().try_for_each(|op| self.check(op, remotes, context))?;
        let mut accepted = 0;
        for op in ops {
            if !self.has_room(op) {
                break;
            }
            self.accept(op, remotes, context)?;
            accepted += 1;
        }
        self.push(context);
        Ok(accepted)
    }

    fn check(&self, op: &Op, remotes: &Table<Remote>, context: &Context<'_>) -> Result<()> {
        let reach = |target: Target, bytes, access| {
            let claim = remote_of(remotes, target.remote, self.id)?.claim;
            within(target.offset, bytes, claim.bytes)?;
            if claim.access.allows(access) { Ok(()) } else { Err(Kind::AccessDenied.into()) }
        };
        match *op {
            Op::Write { local, target, .. } => {
                context.regions.check(local)?;
                reach(target, local.bytes, Access::Write)
            }
            Op::Read { local, target, .. } => {
                context.regions.check(local)?;
                reach(target, local.bytes, Access::Read)
            }
            Op::WriteInline { bytes, target, .. } => {
                if usize::from(bytes) > INLINE {
                    return Err(Kind::InvalidArgument.into());
                }
                reach(target, bytes.into(), Access::Write)
            }
            Op::Send { local, .. } if local.bytes > frame::MESSAGE => Err(Kind::InvalidArgument.into()),
            Op::Send { local, .. } | Op::Receive { local, .. } => context.regions.check(local),
            Op::FetchAdd { target, .. } | Op::CompareSwap { target, .. } => {
                if !target.offset.is_multiple_of(8) {
                    return Err(Kind::InvalidArgument.into());
                }
                reach(target, 8, Access::ReadWrite)
            }
            Op::Flush { .. } => Ok(()),
        }
    }

    fn has_room(&self, op: &Op) -> bool {
        let write = |immediate: Option<u32>| self.unacked.len() < WRITES && (immediate.is_none() || self.credits > 0);
        match *op {
            Op::Receive { .. } => self.inbound.receives.len() < RECEIVES,
            Op::Send { .. } => self.lanes[0].outbound.has_room() && self.credits > 0,
            Op::Write { local, immediate, .. } if self.is_striped(local.bytes) => {
                write(immediate) && self.lanes.iter().all(|lane| lane.outbound.has_room())
            }
            Op::Write { immediate, .. } | Op::WriteInline { immediate, .. } => {
                write(immediate) && self.lanes[0].outbound.has_room()
            }
            Op::Read { .. } | Op::FetchAdd { .. } | Op::CompareSwap { .. } | Op::Flush { .. } => {
                self.requests.len() < REQUESTS && self.lanes[0].outbound.has_room()
            }
        }
    }

    fn is_striped(&self, bytes: u64) -> bool {
        self.lanes.len() > 1 && bytes >= STRIPE
    }

    fn accept(&mut self, op: &Op, remotes: &Table<Remote>, context: &mut Context<'_>) -> Result<()> {
        let aim = |kind, target: Target, bytes| -> Result<Header> {
            let claim = remote_of(remotes, target.remote, self.id)?.claim;
            let (grant, nonce, offset) = (claim.grant, claim.nonce, target.offset);
            Ok(Header { grant, nonce, offset, bytes, ..Header::new(kind) })
        };
        match *op {
            Op::Write { token, local, target, immediate } => {
                let header = aim(frame::Kind::Write, target, local.bytes)?;
                context.regions.hold(local.region);
                self.write(
                    header,
                    immediate,
                    Unacked { token: Some(token), region: Some(local.region), denied: false },
                    Source::Region(local.region, local.offset),
                );
            }
            Op::WriteInline { token, data, bytes, target, immediate } => {
                let header = aim(frame::Kind::Write, target, bytes.into())?;
                self.write(
                    header,
                    immediate,
                    Unacked { token: Some(token), region: None, denied: false },
                    Source::Inline(data),
                );
            }
            Op::Read { token, local, target } => {
                let header = aim(frame::Kind::Read, target, local.bytes)?;
                context.regions.hold(local.region);
                self.request(header, Source::None, token, Wants::Data { local, got: 0 });
            }
            Op::FetchAdd { token, target, add } => {
                let header = aim(frame::Kind::FetchAdd, target, frame::OPERANDS)?;
                self.request(header, operands(add, 0), token, Wants::Value);
            }
            Op::CompareSwap { token, target, expected, desired } => {
                let header = aim(frame::Kind::CompareSwap, target, frame::OPERANDS)?;
                self.request(header, operands(expected, desired), token, Wants::Value);
            }
            Op::Flush { token } => self.request(Header::new(frame::Kind::Flush), Source::None, token, Wants::Flushed),
            Op::Send { token, local } => {
                context.regions.hold(local.region);
                self.message(token, local);
            }
            Op::Receive { token, local } => {
                context.regions.hold(local.region);
                self.inbound.post(Receive { token, local });
                self.take_parked(context)?;
            }
        }
        Ok(())
    }

    fn write(&mut self, mut header: Header, immediate: Option<u32>, unacked: Unacked, source: Source) {
        header.number = self.writes;
        header.flags = Header::LAST;
        self.writes = self.writes.wrapping_add(1);
        self.unacked.push_back(unacked);
        self.credits -= usize::from(immediate.is_some());
        let lanes = if self.is_striped(header.bytes) { self.lanes.len() } else { 1 };
        if lanes > 1 {
            header.flags |= Header::STRIPED;
        }
        for (lane, queue) in self.lanes.iter_mut().take(lanes).enumerate() {
            let (start, bytes) = piece(header.bytes, lane as u64, lanes as u64);
            let mut header = Header { bytes, offset: header.offset + start, ..header };
            if let (0, Some(immediate)) = (lane, immediate) {
                header.flags |= Header::IMMEDIATE;
                header.immediate = immediate;
            }
            let source = match source {
                Source::Region(region, offset) => Source::Region(region, offset + start),
                other => other,
            };
            queue.outbound.push(Item::new(header, source));
        }
    }

    fn request(&mut self, header: Header, source: Source, token: u64, wants: Wants) {
        let number = self.asked;
        self.asked = number.wrapping_add(1);
        self.requests.push_back(Request { token, number, wants, is_cancelled: false });
        self.lanes[0].outbound.push(Item::new(Header { number, ..header }, source));
    }

    fn message(&mut self, token: u64, local: Span) {
        self.credits -= 1;
        let header = Header { bytes: local.bytes, ..Header::new(frame::Kind::Send) };
        let item = Item::new(header, Source::Region(local.region, local.offset));
        self.lanes[0].outbound.push(Item { on_sent: Some(OnSent::Report(token, local.region)), ..item });
    }
}

fn operands(first: u64, second: u64) -> Source {
    let mut data = [0; INLINE];
    data[..8].copy_from_slice(&first.to_le_bytes());
    data[8..16].copy_from_slice(&second.to_le_bytes());
    Source::Inline(data)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_are_lines_that_cover_the_write_once() {
        for bytes in [STRIPE, STRIPE + 1, STRIPE + 127, STRIPE + 129, (1 << 30) - 1, u64::from(u32::MAX) + 2] {
            for lanes in 1..=16 {
                let mut next = 0;
                for lane in 0..lanes {
                    let (start, count) = piece(bytes, lane, lanes);
                    assert_eq!((start, start % LINE), (next, 0));
                    assert!(count > 0 && (lane + 1 == lanes || count % LINE == 0), "{bytes} {lanes} {lane}");
                    next = start + count;
                }
                assert_eq!(next, bytes);
            }
        }
    }
}
