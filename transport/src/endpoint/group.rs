//! Several peers at once.

use alloc::vec::Vec;

use super::messages::Purpose;
use super::post::{Terms, Uses, Write};
use super::table::NONE;
use super::work::Work;
use super::{Endpoint, PeerId, Posted};
use crate::{Error, Kind, Result, fabric::Op};

/// A barrier that has not been reached by everybody.
#[derive(Debug)]
pub(super) struct Barrier {
    transfer: u32,
    /// Who is missing, and how many barrier messages must have come from there.
    missing: Vec<(PeerId, u64)>,
}

impl Endpoint {
    /// Write to several peers as one transfer, which is done when all have it; the contexts of the writes are not used. If one part fails, the others still run to their ends, and the
    /// transfer ends with the first error.
    ///
    /// # Errors
    /// As for [`Endpoint::write`] for any of the writes; nothing was started then.
    pub fn scatter(&mut self, writes: &[Write], terms: impl Into<Terms>) -> Result<Posted> {
        let terms = terms.into();
        self.check_terms(terms)?;
        for write in writes {
            let (peer, _) = self.writable(write.remote)?;
            let (backend, _) = self.way(peer)?;
            self.span_on(backend, write.local)?;
            if self.peers.get(peer).backlog != NONE {
                return Ok(Posted::Busy);
            }
        }
        if !self.transfers.has_room(writes.len() + 1) {
            return Ok(Posted::Busy);
        }
        let Some(parent) = self.transfers.add(NONE, terms.deadline, terms.context) else { return Ok(Posted::Busy) };
        self.transfers.get_mut(parent).detached = terms.detached;
        // keeps the parent open while parts end
        self.transfers.get_mut(parent).outstanding = 1;
        let handle = self.transfers.handle(parent);
        for (position, write) in writes.iter().enumerate() {
            match self.start_part(parent, write, terms) {
                Ok(()) => {}
                Err(error) if position == 0 => {
                    self.transfers.withdraw(parent);
                    return Err(error);
                }
                // the link broke in between: what is under way ends by itself
                Err(error) => self.transfers.get_mut(parent).note(error),
            }
        }
        self.let_end(parent);
        Ok(Posted::Started(handle))
    }

    fn start_part(&mut self, parent: u32, write: &Write, terms: Terms) -> Result<()> {
        let (peer, target) = self.writable(write.remote)?;
        let (backend, link) = self.way(peer)?;
        let local = self.span_on(backend, write.local)?;
        let index = self.transfers.add(peer.0, terms.deadline, 0).ok_or(Error::new(Kind::Bug))?;
        let token = self.transfers.token(index);
        let op = Op::Write { token, local, target, immediate: write.notify.immediate() };
        let is_free = self.peers.get(peer).backlog == NONE;
        let accepted = if is_free { self.backends[backend].post(link, &[op]) } else { Ok(0) };
        let accepted = accepted.inspect_err(|_| self.transfers.withdraw(index))?;
        self.note_start(index, Uses { region: write.local.region.index, parent, ..Uses::NOTHING }, terms);
        self.transfers.get_mut(parent).outstanding += 1;
        if accepted == 1 {
            self.transfers.get_mut(index).outstanding = 1;
        } else if is_free {
            self.transfers.get_mut(index).work = Work::One(op);
            self.queue(peer, index);
        } else {
            // two parts for one peer, and the first waits: the second would overtake it
            self.transfers.get_mut(index).work = Work::One(op);
            self.give_up(index, Kind::InvalidUsage.into());
        }
        Ok(())
    }

    /// The parts are started: from here on the last one that ends ends the whole.
    fn let_end(&mut self, parent: u32) {
        self.transfers.get_mut(parent).outstanding -= 1;
        self.finish_if_over(parent);
    }

    /// Meet with peers, each of which must do the same with a group of the same members. Done when all have come. Barriers that share a member
    /// are entered in the same order by all. Everything that a member wrote to us before it came is visible.
    ///
    /// # Errors
    /// `InvalidArgument` for a peer that is named twice, or why a peer is down. Nothing was started then.
    pub fn barrier(&mut self, peers: &[PeerId], terms: impl Into<Terms>) -> Result<Posted> {
        let terms = terms.into();
        self.check_terms(terms)?;
        for (position, &peer) in peers.iter().enumerate() {
            self.way(peer)?;
            if peers[..position].contains(&peer) {
                return Err(Kind::InvalidArgument.into());
            }
        }
        let Some(parent) = self.transfers.add(NONE, terms.deadline, terms.context) else { return Ok(Posted::Busy) };
        self.transfers.get_mut(parent).detached = terms.detached;
        self.transfers.get_mut(parent).outstanding = 1;
        let handle = self.transfers.handle(parent);
        let mut barrier = Barrier { transfer: parent, missing: Vec::with_capacity(peers.len()) };
        for &peer in peers {
            let counts = &mut self.peers.get_mut(peer).barriers;
            counts.1 += 1;
            barrier.missing.push((peer, counts.1));
        }
        self.groups.unsent.extend(peers.iter().map(|&peer| (parent, peer, terms)));
        self.groups.open.push(barrier);
        self.step_barriers();
        Ok(Posted::Started(handle))
    }

    /// Say to peers that we have come, and see who has.
    pub(super) fn step_barriers(&mut self) {
        let mut unsent = core::mem::take(&mut self.groups.unsent);
        unsent.retain(|&(parent, peer, terms)| {
            match self.send_for(Purpose::Barrier, peer, 0, &[], terms, parent) {
                Ok(Posted::Started(_)) => self.transfers.get_mut(parent).outstanding += 1,
                Ok(Posted::Busy) => return true,
                Err(error) => self.transfers.get_mut(parent).note(error),
            }
            false
        });
        self.groups.unsent = unsent;
        let mut open = core::mem::take(&mut self.groups.open);
        open.retain_mut(|barrier| !self.step_barrier(barrier));
        self.groups.open.extend(open);
    }

    /// Whether it is over.
    fn step_barrier(&mut self, barrier: &mut Barrier) -> bool {
        let mut failure = None;
        barrier.missing.retain(|&(peer, count)| match self.peers.up(peer) {
            _ if self.peers.get(peer).barriers.0 >= count => false,
            Ok(_) => true,
            Err(error) => {
                failure = Some(error);
                false
            }
        });
        if let Some(error) = failure {
            self.transfers.get_mut(barrier.transfer).note(error);
            barrier.missing.clear();
        }
        let is_sent = self.groups.unsent.iter().all(|(parent, ..)| *parent != barrier.transfer);
        if !barrier.missing.is_empty() || !is_sent {
            return false;
        }
        self.let_end(barrier.transfer);
        true
    }

    /// The barrier's transfer is ended early.
    pub(super) fn leave_barrier(&mut self, transfer: u32) {
        let count = self.groups.open.len();
        self.groups.open.retain(|barrier| barrier.transfer != transfer);
        self.groups.unsent.retain(|(parent, ..)| *parent != transfer);
        if self.groups.open.len() < count {
            let entry = self.transfers.get_mut(transfer);
            entry.outstanding -= 1;
            entry.note(Kind::OutcomeUnknown.into());
        }
    }
}

/// Barriers under way.
#[derive(Debug, Default)]
pub(super) struct Groups {
    open: Vec<Barrier>,
    /// Messages that found no room: the barrier's transfer, to whom, and until when.
    unsent: Vec<(u32, PeerId, Terms)>,
}

impl Groups {
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.open.is_empty()
    }
}
