//! What happens to transfers after they were started: their rest is handed over, they end, or are ended early.

use super::end::End;
use super::post::BATCH;
use super::table::{Ending, NONE};
use super::work::Work;
use super::{Endpoint, PeerId, Transfer};
use crate::{
    Error, Kind, Result, Time,
    fabric::{Op, Outcome},
};

impl Endpoint {
    /// What a poll does besides listening to the fabrics.
    pub(super) fn tidy(&mut self, now: Time) {
        if !self.peers.waiting.is_empty() {
            self.push_waiting();
        }
        if !self.peers.ungreeted.is_empty() {
            self.greet();
        }
        if !self.groups.is_empty() {
            self.step_barriers();
        }
        self.take_back_lent();
        while let Some(peer) = self.peers.hungry.pop() {
            self.feed(PeerId(peer));
        }
        if now >= self.transfers.earliest() {
            self.expire(now);
        }
        self.collect();
    }

    /// The rest of a transfer waits for the fabric.
    pub(super) fn queue(&mut self, peer: PeerId, index: u32) {
        self.peers.get_mut(peer).backlog = index;
        self.peers.waiting.push(peer.0);
    }

    fn push_waiting(&mut self) {
        let mut waiting = core::mem::take(&mut self.peers.waiting);
        waiting.retain(|&peer| self.push(PeerId(peer)));
        // nothing was added meanwhile: whoever would be is busy
        self.peers.waiting = waiting;
    }

    /// Hand over what the fabric takes now; whether something is left.
    fn push(&mut self, peer: PeerId) -> bool {
        let known = self.peers.get(peer);
        let (index, backend, link) = (known.backlog, usize::from(known.backend), known.link);
        if index == NONE {
            return false;
        }
        let token = self.transfers.token(index);
        loop {
            let entry = self.transfers.get_mut(index);
            let mut ops = [Op::Flush { token }; BATCH];
            let count = match &entry.work {
                Work::One(op) => {
                    ops[0] = *op;
                    1
                }
                Work::Pages(pages) => pages.fill(&self.lists, token, &mut ops),
                Work::Nothing => break,
            };
            let accepted = self.backends[backend].post(link, &ops[..count]).unwrap_or(0);
            let entry = self.transfers.get_mut(index);
            entry.outstanding += accepted as u32;
            match &mut entry.work {
                Work::Pages(pages) => {
                    (0..accepted).for_each(|_| pages.step(&mut self.lists));
                    if pages.left == 0 {
                        entry.work = Work::Nothing;
                    }
                }
                Work::One(_) if accepted == 1 => entry.work = Work::Nothing,
                Work::One(_) | Work::Nothing => {}
            }
            if accepted < count {
                // a link that is down has ended this transfer, or will
                return self.peers.get(peer).backlog == index;
            }
        }
        self.peers.get_mut(peer).backlog = NONE;
        false
    }

    #[inline]
    pub(super) fn on_done(&mut self, token: u64, result: Result<Outcome>) {
        let Some(index) = self.transfers.of_token(token) else { return };
        let entry = self.transfers.get_mut(index);
        entry.outstanding -= 1;
        match result {
            Ok(Outcome::Atomic { before }) => entry.before = before,
            Ok(_) => {}
            Err(error) => return self.on_failed(index, error),
        }
        if entry.is_over() {
            self.finish(index);
        }
    }

    /// A part failed: what was not handed over never will be.
    fn on_failed(&mut self, index: u32, error: Error) {
        self.transfers.get_mut(index).note(error);
        self.drop_work(index);
        self.finish_if_over(index);
    }

    pub(super) fn finish_if_over(&mut self, index: u32) {
        if self.transfers.get(index).is_over() {
            self.finish(index);
        }
    }

    /// Nothing is left: the transfer ends.
    #[inline]
    fn finish(&mut self, index: u32) {
        let entry = self.transfers.get(index);
        let (region, slot, parent) = (entry.region, entry.slot, entry.parent);
        if region != NONE {
            self.end_use(region);
        }
        if slot != NONE {
            self.messages.end_send(slot);
        }
        let end = self.transfers.end(index);
        self.heard += 1;
        if parent != NONE {
            self.on_part_ended(parent, end);
        }
    }

    fn on_part_ended(&mut self, parent: u32, end: End) {
        let entry = self.transfers.get_mut(parent);
        entry.outstanding -= 1;
        entry.note_end(end);
        self.finish_if_over(parent);
    }

    /// Drop what was not handed over.
    fn drop_work(&mut self, index: u32) {
        let entry = self.transfers.get_mut(index);
        let peer = entry.peer;
        match core::mem::replace(&mut entry.work, Work::Nothing) {
            Work::Nothing => return,
            Work::One(_) => {}
            Work::Pages(mut pages) => pages.drop(&mut self.lists),
        }
        entry.note(Kind::Cancelled.into());
        if peer != NONE && self.peers.get(PeerId(peer)).backlog == index {
            self.peers.get_mut(PeerId(peer)).backlog = NONE;
            self.peers.waiting.retain(|&waiting| waiting != peer);
        }
    }

    /// Its peer is gone: what was not handed over is not going to be, and what was has ended.
    pub(super) fn give_up(&mut self, index: u32, error: Error) {
        self.transfers.get_mut(index).note(error);
        self.drop_work(index);
        self.finish_if_over(index);
    }

    fn expire(&mut self, now: Time) {
        let mut expired = core::mem::take(&mut self.expired);
        self.transfers.expire(now, |index| expired.push(index));
        for &index in &expired {
            self.end_early(index, Ending::TimedOut);
        }
        expired.clear();
        self.expired = expired;
    }

    /// End a transfer early. Its end follows with the next poll, or has come already.
    ///
    /// # Errors
    /// `InvalidArgument` if there is no such transfer, or its completion was taken.
    pub fn cancel(&mut self, transfer: Transfer) -> Result<()> {
        self.transfers.find(transfer).ok_or(Kind::InvalidArgument)?;
        if self.transfers.is_open(transfer.index) && self.transfers.get(transfer.index).ending == Ending::No {
            self.end_early(transfer.index, Ending::Cancelled);
        }
        Ok(())
    }

    pub(super) fn end_early(&mut self, index: u32, ending: Ending) {
        let generation = self.transfers.get(index).generation;
        self.transfers.get_mut(index).ending = ending;
        self.drop_work(index);
        self.leave_barrier(index);
        self.end_parts(index, ending);
        // a part that was not handed over may have been the last
        let entry = self.transfers.get(index);
        if entry.generation != generation || !self.transfers.is_open(index) {
            return;
        }
        let (peer, count) = (self.transfers.get(index).peer, self.transfers.get(index).outstanding);
        if peer != NONE {
            self.cancel_operations(PeerId(peer), self.transfers.token(index), count);
        }
        self.finish_if_over(index);
    }

    /// The fabric reports each of them in its next poll.
    fn cancel_operations(&mut self, peer: PeerId, token: u64, count: u32) {
        let Ok((backend, link)) = self.way(peer) else { return };
        for _ in 0..count {
            if self.backends[backend].cancel(link, token).is_err() {
                // a fabric that cannot stop one operation stops them all
                return self.backends[backend].close(link);
            }
        }
    }

    fn end_parts(&mut self, parent: u32, ending: Ending) {
        if self.transfers.get(parent).peer != NONE {
            return;
        }
        for index in 0..self.limits.transfers {
            if self.transfers.is_open(index) && self.transfers.get(index).parent == parent {
                self.end_early(index, ending);
            }
        }
    }
}
