//! Connects the edges of the control mesh: of each pair the higher rank dials.

use vervain_transport::auth::{Peer, Purpose};
use vervain_transport::fabric::Identity;
use vervain_transport::{Error, Rank, Result, Time};

use super::channel::Channel;
use super::doorman::Doorman;
use super::guest::Dial;
use super::message::Member;
use crate::control::poll::Watch;
use crate::control::{FRAME, neighbours};

/// Edges on their way.
#[derive(Debug)]
pub(crate) struct Edges {
    wanted: Vec<Wanted>,
    doorman: Option<Doorman>,
}

#[derive(Debug)]
struct Wanted {
    rank: Rank,
    incarnation: u64,
    dial: Option<Dial>,
    channel: Option<Channel>,
}

impl Edges {
    /// Start to connect to our neighbours among `members`; lower ones are dialled, higher ones come to `doorman`, or have come `early`.
    pub(crate) fn start(
        identity: &Identity,
        members: &[Member],
        doorman: Option<Doorman>,
        early: Vec<(Peer, Channel)>,
    ) -> Self {
        let ours = identity.rank;
        let wanted = neighbours(ours, members.len() as u32).into_iter().map(|rank| {
            let member = &members[rank.index()];
            let dial = (rank < ours).then(|| Dial::new(identity, Purpose::Control, rank, member.control, FRAME));
            Wanted { rank, incarnation: member.incarnation, dial, channel: None }
        });
        let mut edges = Self { wanted: wanted.collect(), doorman };
        early.into_iter().for_each(|(peer, channel)| edges.on_arrival(peer, channel));
        edges
    }

    /// Whether all edges are connected.
    pub(crate) fn step(&mut self, now: Time) -> Result<bool> {
        let arrivals = self.doorman.as_mut().map(|doorman| doorman.step(now)).unwrap_or_default();
        for (peer, channel) in arrivals {
            self.on_arrival(peer, channel);
        }
        for wanted in &mut self.wanted {
            wanted.step(now).map_err(|error| error.with_rank(wanted.rank))?;
        }
        Ok(self.wanted.iter().all(|wanted| wanted.channel.is_some()))
    }

    /// Anybody but an expected neighbour is dropped.
    fn on_arrival(&mut self, peer: Peer, channel: Channel) {
        let is_expected = |wanted: &&mut Wanted| {
            wanted.rank == peer.rank && wanted.incarnation == peer.incarnation && wanted.dial.is_none()
        };
        if let Some(wanted) = self.wanted.iter_mut().find(is_expected) {
            wanted.channel = Some(channel);
        }
    }

    /// The edges.
    pub(crate) fn finish(self) -> Vec<(Rank, Channel)> {
        self.wanted.into_iter().filter_map(|wanted| Some((wanted.rank, wanted.channel?))).collect()
    }

    /// When to step at the latest.
    pub(crate) fn wake(&self) -> Time {
        let dials =
            self.wanted.iter().filter(|wanted| wanted.channel.is_none()).filter_map(|wanted| wanted.dial.as_ref());
        dials.map(Dial::wake).min().unwrap_or(Time::NEVER)
    }

    pub(crate) fn watch<'a>(&'a self, into: &mut Vec<Watch<'a>>) {
        if let Some(doorman) = &self.doorman {
            doorman.watch(into);
        }
        self.wanted.iter().filter_map(|wanted| wanted.dial.as_ref()).for_each(|dial| dial.watch(into));
        into.extend(
            self.wanted
                .iter()
                .filter_map(|wanted| wanted.channel.as_ref())
                .filter(|channel| channel.is_writing())
                .map(Watch::channel),
        );
    }
}

impl Wanted {
    fn step(&mut self, now: Time) -> Result<(), Error> {
        match (&mut self.channel, &mut self.dial) {
            (Some(channel), _) => channel.flush(),
            (None, Some(dial)) => self.channel = dial.step(now)?,
            (None, None) => {}
        }
        Ok(())
    }
}
