//! Operations that end before their time.
//!
//! What is done in `post` cannot be cancelled any more: its end is only not reported yet. What waits is a receive, or a staged
//! read, or a flush behind staged reads.
//!
//! A peer that was granted a receive may send at any time, so the receive's memory can be withdrawn, but not its credit. The
//! next receive that is posted takes it over. Until then what comes stays in the inbox ([`Link::parked`](super::link::Link)),
//! so that no message is lost (CA-4).

use super::{
    completions::Class,
    staged::{Ended, Left},
    work::Work,
};
use crate::{Error, Kind};

impl Work<'_> {
    /// See [`Fabric::cancel`](crate::fabric::Fabric::cancel) (CA-1).
    pub(super) fn cancel(&mut self, token: u64) {
        if let Some(at) = self.link.receives.iter().position(|receive| receive.token == token) {
            let Some(receive) = self.link.receives.remove(at) else { return };
            self.unuse(receive.region);
            self.link.debt += 1;
            return self.report_cancelled(token, Class::Receive, Kind::Cancelled);
        }
        let Some((ended, left)) = self.link.staged.cancel(token) else { return };
        if let Ended::Read { region, .. } = ended {
            self.unuse(region);
        }
        let kind = if left == Left::Nothing { Kind::Cancelled } else { Kind::OutcomeUnknown };
        self.report_cancelled(token, Class::Work, kind);
    }

    fn report_cancelled(&mut self, token: u64, class: Class, kind: Kind) {
        let error = Error::new(kind).with_rank(self.link.peer);
        self.done.end(self.link.id, token, class, Err(error));
    }

    /// A receive was posted while credit of a cancelled one is out: it takes that over, and what has come for it.
    pub(super) fn succeed(&mut self) -> Result<(), Kind> {
        self.link.debt -= 1;
        match self.link.parked.pop_front() {
            Some(notice) => self.on_notice(notice),
            None => Ok(()),
        }
    }

    /// Whether what has come is for a receive that was cancelled.
    pub(super) fn is_to_park(&self) -> bool {
        self.link.receives.is_empty() && self.link.parked.len() < self.link.debt
    }
}
