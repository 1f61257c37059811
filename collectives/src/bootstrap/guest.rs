//! The end of the meeting at every rank but 0: dial until rank 0 lets us in, then talk.

use core::time::Duration;
use std::collections::VecDeque;
use std::net::SocketAddr;

use vervain_transport::auth::Purpose;
use vervain_transport::fabric::Identity;
use vervain_transport::{Error, Kind, Rank, Result, Time};

use super::channel::{Channel, Frame, frame};
use super::message::{Statement, Verdict};
use crate::control::poll::Watch;

/// Pause between two dials at first, and at most.
const SHORTEST: Duration = Duration::from_millis(2);
const LONGEST: Duration = Duration::from_millis(200);
/// How long a rank that failed before it met rank 0 goes on trying to say so.
const CONFESSION: Duration = Duration::from_secs(2);

pub(crate) const ROOT: Rank = Rank::new(0);

/// A dial that is repeated until somebody lets us in.
#[derive(Debug)]
pub(crate) struct Dial {
    identity: Identity,
    purpose: Purpose,
    to: Rank,
    address: SocketAddr,
    limit: usize,
    channel: Option<Channel>,
    pause: Duration,
    again: Time,
    refusals: u32,
}

impl Dial {
    pub(crate) fn new(identity: &Identity, purpose: Purpose, to: Rank, address: SocketAddr, limit: usize) -> Self {
        Self {
            identity: identity.clone(),
            purpose,
            to,
            address,
            limit,
            channel: None,
            pause: SHORTEST,
            again: Time::default(),
            refusals: 0,
        }
    }

    /// The open channel, once there is one.
    ///
    /// # Errors
    /// Only what another attempt would not cure: who answers does not know the secret, or speaks another version.
    pub(crate) fn step(&mut self, now: Time) -> Result<Option<Channel>> {
        if self.channel.is_none() && now >= self.again {
            self.again = now.after(self.pause);
            self.pause = (self.pause * 2).min(LONGEST);
            self.channel = Channel::dial(&self.identity, self.purpose, self.to, self.address, self.limit).ok();
            self.refusals += u32::from(self.channel.is_none());
        }
        match self.channel.as_mut().map(Channel::shake) {
            None | Some(Ok(None)) => Ok(None),
            Some(Ok(Some(_))) => Ok(self.channel.take()),
            Some(Err(error)) if error.kind() == Kind::LinkFailed => {
                self.channel = None;
                self.refusals += 1;
                Ok(None)
            }
            Some(Err(error)) => Err(error),
        }
    }

    /// How often nobody was there, or the connection was closed before we were let in.
    pub(crate) fn refusals(&self) -> u32 {
        self.refusals
    }

    /// When to step at the latest.
    pub(crate) fn wake(&self) -> Time {
        if self.channel.is_some() { Time::NEVER } else { self.again }
    }

    pub(crate) fn watch<'a>(&'a self, into: &mut Vec<Watch<'a>>) {
        into.extend(self.channel.as_ref().map(Watch::channel));
    }
}

/// Our end of the conversation with rank 0.
#[derive(Debug)]
pub(crate) struct Guest {
    ranks: u32,
    deadline: Time,
    dial: Dial,
    channel: Option<Channel>,
    /// What is to be said once rank 0 listens.
    unsaid: VecDeque<Frame>,
    /// What we failed with; the answer names it, and so do we if none comes.
    confession: Option<(Error, Time)>,
    rival: Rivalry,
    /// Refusals when [`Guest::take_vacancy`] was last asked.
    refused: u32,
}

/// Whether we are a second rank 0, which only wants to tell the first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rivalry {
    /// We are not.
    None,
    /// Another program or another rank 0 listens on the address.
    AddressInUse,
    /// A rank 0 of this process took the id's listener.
    Taken,
}

impl Guest {
    pub(crate) fn new(identity: &Identity, ranks: u32, address: SocketAddr, deadline: Time, rival: Rivalry) -> Self {
        let dial = Dial::new(identity, Purpose::Bootstrap, ROOT, address, Verdict::limit(ranks));
        Self { ranks, deadline, dial, channel: None, unsaid: VecDeque::new(), confession: None, rival, refused: 0 }
    }

    /// Say something to rank 0.
    pub(crate) fn tell(&mut self, statement: &Statement, now: Time) {
        if let Statement::Failed(error) = statement {
            self.confession.get_or_insert((*error, now.after(CONFESSION)));
        }
        self.unsaid.push_back(frame(&statement.to_bytes()));
    }

    /// Our end's address, once rank 0 has let us in.
    pub(crate) fn local_address(&self) -> Option<SocketAddr> {
        self.channel.as_ref()?.local_address().ok()
    }

    /// What rank 0 answered.
    pub(crate) fn step(&mut self, now: Time) -> Option<Verdict> {
        match self.advance(now) {
            Ok(None) => self.too_late(now),
            Ok(verdict) => verdict,
            Err(error) => Some(self.give_up(error)),
        }
    }

    fn advance(&mut self, now: Time) -> Result<Option<Verdict>> {
        if self.channel.is_none() {
            self.channel = self.dial.step(now)?;
        }
        let Some(channel) = &mut self.channel else {
            return if self.is_alone_with_a_claim() {
                Err(Error::new(Kind::DuplicateRank).with_rank(ROOT))
            } else {
                Ok(None)
            };
        };
        self.unsaid.drain(..).for_each(|frame| channel.send(&frame));
        channel.flush();
        let Some(payload) = channel.receive()? else { return Ok(None) };
        Verdict::parse(&payload, self.ranks).map(Some).ok_or(Kind::Corrupt.into())
    }

    /// Where nobody answers although the address was in use: whoever had it may have gone since. Asked once per refused dial.
    pub(crate) fn take_vacancy(&mut self) -> Option<SocketAddr> {
        let refusals = self.dial.refusals();
        let is_vacant = self.rival == Rivalry::AddressInUse && self.unsaid.is_empty() && refusals > self.refused;
        self.refused = refusals;
        (is_vacant && self.channel.is_none()).then_some(self.dial.address)
    }

    /// The listener was taken in this process and nobody listens on it any more.
    fn is_alone_with_a_claim(&self) -> bool {
        self.rival == Rivalry::Taken && self.dial.refusals() > 0
    }

    fn too_late(&self, now: Time) -> Option<Verdict> {
        if let Some((error, end)) = self.confession
            && now >= end.min(self.deadline)
        {
            return Some(Verdict::Failed(
                error,
                vec![format!("rank {} could not tell rank 0 at {}", self.dial.identity.rank, self.dial.address)],
            ));
        }
        if now < self.deadline {
            return None;
        }
        let address = self.dial.address;
        let line = match (&self.channel, self.rival) {
            (Some(_), _) => format!("rank 0 at {address} let us in, but did not answer in time"),
            (None, Rivalry::None) => {
                format!("rank 0 did not come: nobody let us in at {address}, {} attempts", self.dial.refusals())
            }
            (None, _) => format!("the address {address} of rank 0 is in use by another program; choose another port"),
        };
        Some(Verdict::Failed(Error::new(Kind::TimedOut).with_rank(ROOT), vec![line]))
    }

    fn give_up(&self, error: Error) -> Verdict {
        if let Some((confession, _)) = self.confession {
            return Verdict::Failed(confession, Vec::new());
        }
        let address = self.dial.address;
        match error.kind() {
            Kind::LinkFailed => Verdict::Failed(
                Error::new(Kind::PeerDied).with_rank(ROOT),
                vec![format!("rank 0 at {address} closed the connection before all ranks were ready")],
            ),
            Kind::DuplicateRank => Verdict::Failed(
                error,
                vec![format!(
                    "another rank 0 of this process uses the id of {address} already; generate an id per communicator"
                )],
            ),
            _ => Verdict::Failed(
                error.with_rank(ROOT),
                vec![format!("who listens at {address} is not the rank 0 of this job")],
            ),
        }
    }

    /// When to step at the latest.
    pub(crate) fn wake(&self) -> Time {
        let end = self.confession.map_or(self.deadline, |(_, end)| end.min(self.deadline));
        if self.channel.is_some() { end } else { end.min(self.dial.wake()) }
    }

    pub(crate) fn watch<'a>(&'a self, into: &mut Vec<Watch<'a>>) {
        self.dial.watch(into);
        into.extend(self.channel.as_ref().map(Watch::channel));
    }
}
