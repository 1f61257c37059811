//! Operations are checked, whole batches at a time, and queued; and taken back.

use super::{
    memory::within,
    node::{Link, Node, Queued, Receive, local_of, needs_credit},
};
use crate::{
    Error, Kind, Result,
    fabric::{Access, INLINE, LinkId, MESSAGE, Op, Target},
};

/// How many operations a link takes at a time: all but receives, and receives.
#[derive(Clone, Copy, Debug)]
pub(super) struct Room {
    pub depth: usize,
    pub receives: usize,
}

impl Node {
    pub fn post(&mut self, id: LinkId, ops: &[Op], room: Room) -> Result<usize> {
        self.link(id)?;
        ops.iter().try_for_each(|op| self.check(id, op))?;
        let mut accepted = 0;
        for op in ops {
            if !self.link(id)?.has_room(op, room) {
                break;
            }
            self.accept(id, op)?;
            accepted += 1;
        }
        Ok(accepted)
    }

    fn check(&self, link: LinkId, op: &Op) -> Result<()> {
        if let Some(local) = local_of(op) {
            self.regions.check(local)?;
        }
        match *op {
            Op::Write { local, target, .. } => self.reach(link, target, local.bytes, Access::Write),
            Op::Read { local, target, .. } => self.reach(link, target, local.bytes, Access::Read),
            Op::WriteInline { bytes, .. } if usize::from(bytes) > INLINE => Err(Kind::InvalidArgument.into()),
            Op::WriteInline { bytes, target, .. } => self.reach(link, target, bytes.into(), Access::Write),
            Op::Send { local, .. } if local.bytes > MESSAGE as u64 => Err(Kind::InvalidArgument.into()),
            Op::FetchAdd { target, .. } | Op::CompareSwap { target, .. } if !target.offset.is_multiple_of(8) => {
                Err(Kind::InvalidArgument.into())
            }
            Op::FetchAdd { target, .. } | Op::CompareSwap { target, .. } => {
                self.reach(link, target, 8, Access::ReadWrite)
            }
            Op::Send { .. } | Op::Receive { .. } | Op::Flush { .. } => Ok(()),
        }
    }

    /// The range lies in a remote of this link that allows it.
    fn reach(&self, link: LinkId, target: Target, bytes: u64, access: Access) -> Result<()> {
        let remote = self.remotes.get(target.remote.0 as usize).copied().flatten();
        let remote = remote.filter(|remote| remote.link == link).ok_or(Error::new(Kind::InvalidArgument))?;
        within(target.offset, bytes, remote.bytes)?;
        if remote.access.allows(access) { Ok(()) } else { Err(Kind::AccessDenied.into()) }
    }

    fn accept(&mut self, id: LinkId, op: &Op) -> Result<()> {
        if let Some(local) = local_of(op) {
            self.regions.hold(local.region);
        }
        let link = self.link(id)?;
        let number = link.number();
        let Op::Receive { token, local } = *op else {
            link.credits -= usize::from(needs_credit(op));
            link.queue.push_back(Queued { number, op: *op });
            return Ok(());
        };
        link.receives.push_back(Receive { number, token, local });
        if link.debt > 0 {
            // the peer knows of it: it takes the place of one that was cancelled
            link.debt -= 1;
        } else {
            link.untold += 1;
        }
        if let Some(arrival) = link.early.pop_front() {
            self.receive(id, arrival);
        }
        Ok(())
    }

    /// End the oldest operation with this token.
    pub fn cancel(&mut self, id: LinkId, token: u64) -> Result<()> {
        let link = match self.known(id) {
            Ok(link) => link,
            Err(error) if error.kind() == Kind::LinkFailed => return Ok(()),
            Err(error) => return Err(error),
        };
        let Some((number, _, local)) = link.outstanding().into_iter().find(|(_, known, _)| *known == token) else {
            return Ok(());
        };
        let error = Error::new(link.forget(number)).with_rank(link.peer);
        self.end(id, token, local, Err(error));
        Ok(())
    }
}

impl Link {
    fn has_room(&self, op: &Op, room: Room) -> bool {
        if matches!(op, Op::Receive { .. }) {
            return self.receives.len() < room.receives;
        }
        self.queue.len() + self.pending.len() < room.depth && (!needs_credit(op) || self.credits > 0)
    }

    /// Take the operation of this number out. What that means for it.
    fn forget(&mut self, number: u64) -> Kind {
        if let Some(at) = self.queue.iter().position(|queued| queued.number == number) {
            let used = self.queue.remove(at).is_some_and(|queued| needs_credit(&queued.op));
            self.credits += usize::from(used);
            return Kind::Cancelled;
        }
        if let Some(at) = self.receives.iter().position(|receive| receive.number == number) {
            self.receives.remove(at);
            // its credit stays with the peer
            self.debt += 1;
            return Kind::Cancelled;
        }
        self.pending.retain(|pending| pending.number != number);
        Kind::OutcomeUnknown
    }
}
