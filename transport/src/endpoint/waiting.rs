//! Calls that wait: they poll, and sleep while nothing happens.

use core::time::Duration;

use super::{Arrivals, Completion, Endpoint, Exposed, PeerId, Posted, Quarantined, Region, Transfer};
use crate::{Error, Kind, Result, Time, sync};

/// Polls before the first yield: about 20 us.
const SPINS: u32 = 1000;
/// Polls that each yield, before sleeping.
const YIELDS: u32 = 50;
/// Polls between two looks at the clock.
const CLOCK: u32 = 16;
/// With several fabrics one is slept on, and the others are looked at this often: at first, and when nothing has happened for long.
const SLICE: Duration = Duration::from_millis(1);
const LONGEST: Duration = Duration::from_millis(16);

impl Endpoint {
    /// Connect to the endpoint with this address.
    ///
    /// # Errors
    /// As for [`Endpoint::dial`], `TimedOut`, or why the connection failed.
    pub fn connect(&mut self, address: &[u8], deadline: Time) -> Result<PeerId> {
        self.now = Time::now();
        let peer = self.dial(address, deadline)?;
        let up = self.wait_until(deadline, |endpoint| match endpoint.is_up(peer) {
            Ok(true) => Some(Ok(())),
            Ok(false) => None,
            Err(error) => Some(Err(error)),
        });
        match up {
            Ok(result) => result.map(|()| peer),
            Err(error) => {
                let _ = self.disconnect(peer);
                Err(error)
            }
        }
    }

    /// Start a transfer, waiting while there is no room for it.
    ///
    /// # Errors
    /// `TimedOut`, or why it cannot be started.
    pub fn wait_start(
        &mut self,
        deadline: Time,
        mut start: impl FnMut(&mut Self) -> Result<Posted>,
    ) -> Result<Transfer> {
        self.wait_until(deadline, |endpoint| start(endpoint).map(Posted::started).transpose())?
    }

    /// Wait for the end of a transfer, which comes by its own deadline.
    ///
    /// # Errors
    /// `InvalidArgument` if there is no such transfer, or its completion was taken.
    pub fn wait(&mut self, transfer: Transfer) -> Result<Completion> {
        self.wait_until(Time::NEVER, |endpoint| endpoint.end_of(transfer).transpose())?
    }

    /// Wait until all have arrived.
    ///
    /// # Errors
    /// `TimedOut`.
    pub fn wait_arrivals(&mut self, arrivals: &Arrivals, deadline: Time) -> Result<()> {
        self.wait_until(deadline, |_| arrivals.is_complete().then_some(()))
    }

    /// Take a region back from all peers: when this returns well, nothing that a peer does reaches it any more.
    ///
    /// # Errors
    /// The region, quarantined, if that cannot be proven by the deadline.
    pub fn revoke(&mut self, exposed: Exposed, deadline: Time) -> Result<Region, Quarantined> {
        if let Err(error) = self.start_revoke(&exposed, deadline) {
            return Err(Quarantined { exposed, error });
        }
        // the fabric answers by the deadline
        let _ = self.wait_until(Time::NEVER, |endpoint| endpoint.revoked(&exposed).then_some(()));
        self.reclaim(exposed)
    }

    /// Try once more.
    ///
    /// # Errors
    /// As for [`Endpoint::revoke`].
    pub fn retry_revoke(&mut self, quarantined: Quarantined, deadline: Time) -> Result<Region, Quarantined> {
        self.revoke(quarantined.exposed, deadline)
    }

    /// Poll until `ready` gives something: first without pause, then yielding, then asleep.
    ///
    /// # Errors
    /// `TimedOut`.
    pub fn wait_until<T>(&mut self, deadline: Time, mut ready: impl FnMut(&mut Self) -> Option<T>) -> Result<T> {
        let mut now = Time::now();
        let (mut polls, mut slice, mut heard) = (0u32, SLICE, self.heard);
        loop {
            if let Some(value) = ready(self) {
                return Ok(value);
            }
            if polls % CLOCK == 0 || polls >= SPINS {
                now = Time::now();
                if now >= deadline {
                    return Err(Error::new(Kind::TimedOut));
                }
            }
            self.poll(now);
            if self.heard != heard {
                (polls, slice, heard) = (0, SLICE, self.heard);
                continue;
            }
            match polls {
                spinning if spinning < SPINS => sync::spin_loop(),
                yielding if yielding < SPINS + YIELDS => sync::thread::yield_now(),
                _ => {
                    if let Some(value) = self.sleep(now, deadline, &mut slice, &mut ready) {
                        return Ok(value);
                    }
                }
            }
            polls = polls.saturating_add(1);
        }
    }

    /// Sleep until something may have happened, unless it has: then what is `ready`, if it is.
    fn sleep<T>(
        &mut self,
        now: Time,
        deadline: Time,
        slice: &mut Duration,
        ready: &mut impl FnMut(&mut Self) -> Option<T>,
    ) -> Option<T> {
        let used = (0..self.backends.len()).filter(|&backend| self.peers.uses(backend)).count();
        let on = (0..self.backends.len()).find(|&backend| self.peers.uses(backend)).unwrap_or(0);
        let mut end = deadline.min(self.transfers.earliest()).min(self.again);
        if self.backends.len() > 1 || used > 1 {
            // the others ring none of the bells that we listen to
            end = end.min(now.after(*slice));
            *slice = (*slice * 2).min(LONGEST);
        }
        if !self.backends[on].is_drained() {
            return None;
        }
        self.backends[on].arm();
        let heard = self.heard;
        // what was granted before the bell was armed has rung nothing
        self.poll_backend(on, now);
        self.tidy(now);
        let value = ready(self);
        if value.is_some() || self.heard != heard || !self.peers.waiting.is_empty() {
            self.backends[on].disarm();
        } else {
            self.backends[on].sleep(end);
        }
        value
    }

    /// They wake whoever waits in a call of this endpoint, from other threads.
    pub(super) fn bells(&self) -> alloc::vec::Vec<crate::fabric::Doorbell> {
        self.backends.iter().map(|fabric| fabric.doorbell()).collect()
    }
}
