//! Operations leave: from here on they are frames, and local memory that was sent has been read.

use super::{
    exchange::Exchange,
    node::{Link, Node, Pending, Queued, State, local_of},
    wire::{Aim, Frame, Request},
};
use crate::{
    fabric::{LinkId, Op, Outcome, Span, Target},
    testing::random::{Chance, Random},
};

impl Exchange {
    /// Everything that was accepted on links that are up.
    pub fn leave(&mut self, node: usize) {
        for id in self.nodes[node].live() {
            let Ok(link) = self.nodes[node].link(id) else { continue };
            link.overtake(self.options.overtaking, &mut self.random);
            let to = link.port.other();
            let untold = core::mem::take(&mut link.untold);
            let queue = core::mem::take(&mut link.queue);
            if untold > 0 {
                self.send(to, Frame::Credit(untold));
            }
            for queued in queue {
                let frame = self.nodes[node].leave(id, queued);
                self.send(to, frame);
            }
        }
    }
}

impl Node {
    /// Nothing waits for our next poll to leave.
    pub fn is_drained(&self) -> bool {
        self.links().all(|link| link.state != State::Up || (link.queue.is_empty() && link.untold == 0))
    }

    fn leave(&mut self, id: LinkId, queued: Queued) -> Frame {
        if let Op::Send { token, local } = queued.op {
            let data = self.data(local);
            self.end(id, token, Some(local), Ok(Outcome::Done));
            return Frame::Message(data);
        }
        let request = self.request(&queued.op);
        if let Ok(link) = self.link(id) {
            link.pending.push_back(Pending {
                number: queued.number,
                token: queued.op.token(),
                local: local_of(&queued.op),
            });
        }
        Frame::Request { number: queued.number, request }
    }

    fn request(&self, op: &Op) -> Request {
        match *op {
            Op::Write { local, target, immediate, .. } => {
                Request::Write { aim: self.aim(target), data: self.data(local), immediate }
            }
            Op::WriteInline { data, bytes, target, immediate, .. } => {
                Request::Write { aim: self.aim(target), data: data[..usize::from(bytes)].to_vec(), immediate }
            }
            Op::Read { local, target, .. } => Request::Read { aim: self.aim(target), bytes: local.bytes },
            Op::FetchAdd { target, add, .. } => Request::FetchAdd { aim: self.aim(target), add },
            Op::CompareSwap { target, expected, desired, .. } => {
                Request::CompareSwap { aim: self.aim(target), expected, desired }
            }
            Op::Flush { .. } | Op::Send { .. } | Op::Receive { .. } => Request::Flush,
        }
    }

    fn data(&self, local: Span) -> Vec<u8> {
        self.regions.read(local).expect("the span was checked and its region is held since the operation was accepted")
    }

    /// A remote that was forgotten since aims at nothing, which the target refuses.
    fn aim(&self, target: Target) -> Aim {
        let remote = self.remotes.get(target.remote.0 as usize).copied().flatten();
        let (grant, nonce) = remote.map_or((u32::MAX, 0), |remote| (remote.grant, remote.nonce));
        Aim { grant, nonce, offset: target.offset }
    }
}

impl Link {
    /// Reads pass the plain writes before them, which they are not ordered after.
    fn overtake(&mut self, chance: Chance, random: &mut Random) {
        let is_plain = |queued: &Queued| {
            matches!(queued.op, Op::Write { immediate: None, .. } | Op::WriteInline { immediate: None, .. })
        };
        for at in 1..self.queue.len() {
            if matches!(self.queue[at].op, Op::Read { .. }) && random.happens(chance) {
                let before = (0..at).rev().take_while(|earlier| is_plain(&self.queue[*earlier])).count();
                self.queue.make_contiguous()[at - before..=at].rotate_right(1);
            }
        }
    }
}
