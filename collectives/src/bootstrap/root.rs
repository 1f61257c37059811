//! The end of the meeting at rank 0: a seat for every rank, and one answer for all.
//!
//! ```text
//! Gather  + every offer is here          => Connect   Table to all
//! Connect + every rank is ready          => Won       Go to all
//! Gather, Connect + any failure          => Lost      Failed to all, also to those that come later
//! Won     + all sent                     => over
//! Lost    + every rank told, or a moment => over
//! ```

use core::time::Duration;
use std::net::SocketAddr;

use vervain_transport::auth::Peer;
use vervain_transport::{Error, Kind, Rank, Time};

use super::channel::{Channel, Frame, frame};
use super::doorman::Doorman;
use super::message::{Member, Statement, Verdict, is_same_release};
use crate::control::poll::Watch;

/// How long a failed meeting waits for ranks that have not come, to tell them.
const LINGER: Duration = Duration::from_secs(1);
/// Largest part of a rank's patience that is kept for telling everybody.
const RESERVE: Duration = Duration::from_millis(500);
/// Connections beyond one per rank that are told why they were refused.
const RIVALS: usize = 64;

/// The gathering end.
#[derive(Debug)]
pub(crate) struct Root {
    ranks: u32,
    address: SocketAddr,
    /// None if there is only us.
    doorman: Option<Doorman>,
    seats: Vec<Seat>,
    /// Authenticated connections for which there is no seat.
    rivals: Vec<Channel>,
    phase: Phase,
    incarnation: u64,
    /// When the most impatient rank must be told.
    deadline: Time,
    /// When our caller wants an answer.
    end: Time,
    /// What our own rank has not been told yet.
    own: Option<Verdict>,
}

#[derive(Debug, Default)]
struct Seat {
    channel: Option<Channel>,
    incarnation: u64,
    member: Option<Member>,
    ready: bool,
    gone: bool,
}

#[derive(Debug)]
enum Phase {
    Gather,
    Connect,
    Won,
    Lost { verdict: Verdict, frame: Frame, until: Time },
}

impl Root {
    pub(crate) fn new(
        ranks: u32,
        incarnation: u64,
        address: SocketAddr,
        doorman: Option<Doorman>,
        end: Time,
        now: Time,
    ) -> Self {
        let seats = (0..ranks).map(|_| Seat::default()).collect();
        let deadline = latest_answer(now, end.since(now));
        Self {
            ranks,
            address,
            doorman,
            seats,
            rivals: Vec::new(),
            phase: Phase::Gather,
            incarnation,
            deadline,
            end,
            own: None,
        }
    }

    /// Where we listen.
    pub(crate) fn local_address(&self) -> SocketAddr {
        self.address
    }

    /// Our own rank's statement.
    pub(crate) fn tell(&mut self, statement: Statement, now: Time) {
        self.on_statement(0, statement, now);
    }

    /// What our own rank is told.
    pub(crate) fn step(&mut self, now: Time) -> Option<Verdict> {
        let arrivals = self.doorman.as_mut().map(|doorman| doorman.step(now)).unwrap_or_default();
        for (peer, channel) in arrivals {
            self.on_arrival(peer, channel, now);
        }
        for rank in 1..self.seats.len() {
            self.listen(rank, now);
        }
        self.on_time(now);
        self.on_complete();
        self.channels().for_each(Channel::flush);
        if self.is_over(now) { self.conclude() } else { self.own.take() }
    }

    fn on_arrival(&mut self, peer: Peer, mut channel: Channel, now: Time) {
        if let Phase::Lost { frame, .. } = &self.phase {
            channel.send(frame);
        }
        let rank = peer.rank;
        let Some(seat) = self.seats.get_mut(rank.index()) else {
            self.add_rival(channel);
            let line = format!("a rank {rank} came, but rank 0 expects {} ranks", self.ranks);
            return self.lose(Kind::Mismatch.into(), vec![line], now);
        };
        let known = if rank.get() == 0 { self.incarnation } else { seat.incarnation };
        let is_taken = rank.get() == 0 || seat.channel.is_some();
        if is_taken && known != peer.incarnation {
            self.add_rival(channel);
            let line = format!("two processes claim rank {rank}");
            return self.lose(Error::new(Kind::DuplicateRank).with_rank(rank), vec![line], now);
        }
        seat.incarnation = peer.incarnation;
        seat.channel = Some(channel);
    }

    fn add_rival(&mut self, channel: Channel) {
        if self.rivals.len() < RIVALS {
            self.rivals.push(channel);
        }
    }

    /// Hear what a rank has to say.
    fn listen(&mut self, rank: usize, now: Time) {
        let named = Rank::new(rank as u32);
        loop {
            let seat = &mut self.seats[rank];
            let Some(channel) = seat.channel.as_mut().filter(|_| !seat.gone) else { return };
            match channel.receive() {
                Ok(None) => return,
                Ok(Some(payload)) => match Statement::parse(&payload, self.ranks) {
                    Some(statement) => self.on_statement(rank, statement, now),
                    None => {
                        return self.on_gone(
                            rank,
                            Error::new(Kind::Corrupt).with_rank(named),
                            "sent what no rank sends",
                            now,
                        );
                    }
                },
                Err(error) if error.kind() == Kind::Corrupt => {
                    return self.on_gone(rank, error.with_rank(named), "sent what no rank sends", now);
                }
                Err(_) => {
                    return self.on_gone(
                        rank,
                        Error::new(Kind::PeerDied).with_rank(named),
                        "ended before all ranks were ready",
                        now,
                    );
                }
            }
        }
    }

    fn on_gone(&mut self, rank: usize, error: Error, what: &str, now: Time) {
        self.seats[rank].gone = true;
        self.lose(error, vec![format!("rank {rank} {what}")], now);
    }

    fn on_statement(&mut self, rank: usize, statement: Statement, now: Time) {
        let named = Rank::new(rank as u32);
        match statement {
            Statement::Offer { parameters, .. } if !is_same_release(parameters) => {
                let line = format!("rank {rank} runs another release than rank 0");
                self.lose(Error::new(Kind::VersionMismatch).with_rank(named), vec![line], now);
            }
            Statement::Offer { ranks, .. } if ranks != self.ranks => {
                let line = format!("rank {rank} expects {ranks} ranks, rank 0 expects {}", self.ranks);
                self.lose(Error::new(Kind::Mismatch).with_rank(named), vec![line], now);
            }
            Statement::Offer { member, patience, .. }
                if member.rank == named && matches!(self.phase, Phase::Gather) =>
            {
                self.deadline = self.deadline.min(latest_answer(now, patience));
                self.seats[rank].member = Some(member);
            }
            Statement::Ready if matches!(self.phase, Phase::Connect) => self.seats[rank].ready = true,
            Statement::Failed(error) => {
                let cause = error.with_rank(error.rank().unwrap_or(named));
                self.lose(cause, vec![format!("rank {rank} could not go on: {error}")], now);
            }
            // said before it heard of a failure
            Statement::Offer { .. } | Statement::Ready if matches!(self.phase, Phase::Lost { .. }) => {}
            Statement::Offer { .. } | Statement::Ready => {
                self.on_gone(rank, Error::new(Kind::Corrupt).with_rank(named), "spoke out of turn", now)
            }
        }
    }

    fn on_time(&mut self, now: Time) {
        if now < self.deadline || matches!(self.phase, Phase::Won | Phase::Lost { .. }) {
            return;
        }
        let absent = self.ranks_where(|seat| seat.member.is_none() && seat.channel.is_none());
        let silent = self.ranks_where(|seat| seat.member.is_none() && seat.channel.is_some());
        let unready = self.ranks_where(|seat| seat.member.is_some() && !seat.ready);
        let gathering = matches!(self.phase, Phase::Gather);
        let first = if gathering { absent.iter().chain(&silent).min() } else { unready.first() };
        let mut error = Error::new(Kind::TimedOut);
        if let Some(&first) = first {
            error = error.with_rank(Rank::new(first));
        }
        let mut lines = Vec::new();
        let mut say =
            |ranks: &[u32], what: &str| lines.extend((!ranks.is_empty()).then(|| format!("{} {what}", list(ranks))));
        say(&absent, "did not come");
        say(&silent, "came, but sent no offer");
        if !gathering {
            say(&unready, "came, but did not get ready");
        }
        let refused = self.doorman.as_ref().map_or(0, Doorman::refused);
        if refused > 0 {
            lines.push(format!("connections refused because they did not prove that they know the secret: {refused}"));
        }
        self.lose(error, lines, now);
    }

    fn ranks_where(&self, is: impl Fn(&Seat) -> bool) -> Vec<u32> {
        (0..self.ranks).filter(|&rank| is(&self.seats[rank as usize])).collect()
    }

    /// Go on to the next phase if every rank has come there.
    fn on_complete(&mut self) {
        match self.phase {
            Phase::Gather if self.seats.iter().all(|seat| seat.member.is_some()) => {
                let members = self.seats.iter().filter_map(|seat| seat.member.clone()).collect();
                self.announce(Verdict::Table(members), Phase::Connect);
            }
            Phase::Connect if self.seats.iter().all(|seat| seat.ready) => self.announce(Verdict::Go, Phase::Won),
            _ => {}
        }
    }

    fn announce(&mut self, verdict: Verdict, phase: Phase) {
        let frame = frame(&verdict.to_bytes());
        self.channels().for_each(|channel| channel.send(&frame));
        self.own = matches!(phase, Phase::Connect).then_some(verdict);
        self.phase = phase;
    }

    /// The first failure is everybody's.
    fn lose(&mut self, error: Error, lines: Vec<String>, now: Time) {
        if matches!(self.phase, Phase::Won | Phase::Lost { .. }) {
            return;
        }
        let verdict = Verdict::Failed(error, lines);
        let frame = frame(&verdict.to_bytes());
        self.channels().for_each(|channel| channel.send(&frame));
        self.phase = Phase::Lost { verdict, frame, until: now.after(LINGER).min(self.end) };
    }

    fn is_over(&self, now: Time) -> bool {
        let is_sent = || {
            self.seats
                .iter()
                .filter_map(|seat| seat.channel.as_ref())
                .chain(&self.rivals)
                .all(|channel| !channel.is_writing())
        };
        match self.phase {
            Phase::Gather | Phase::Connect => false,
            Phase::Won => is_sent() || now >= self.end,
            Phase::Lost { until, .. } => {
                now >= until || (self.seats.iter().skip(1).all(|seat| seat.channel.is_some()) && is_sent())
            }
        }
    }

    fn conclude(&mut self) -> Option<Verdict> {
        match &self.phase {
            Phase::Won => Some(Verdict::Go),
            Phase::Lost { verdict, .. } => Some(verdict.clone()),
            Phase::Gather | Phase::Connect => None,
        }
    }

    fn channels(&mut self) -> impl Iterator<Item = &mut Channel> {
        self.seats.iter_mut().filter_map(|seat| seat.channel.as_mut()).chain(&mut self.rivals)
    }

    /// When to step at the latest.
    pub(crate) fn wake(&self) -> Time {
        match self.phase {
            Phase::Gather | Phase::Connect => self.deadline,
            Phase::Won => self.end,
            Phase::Lost { until, .. } => until,
        }
    }

    pub(crate) fn watch<'a>(&'a self, into: &mut Vec<Watch<'a>>) {
        if let Some(doorman) = &self.doorman {
            doorman.watch(into);
        }
        into.extend(
            self.seats.iter().filter(|seat| !seat.gone).filter_map(|seat| seat.channel.as_ref()).map(Watch::channel),
        );
    }
}

/// When a rank of this patience must be answered, so that the answer arrives in time.
fn latest_answer(now: Time, patience: Duration) -> Time {
    now.after(patience - RESERVE.min(patience / 8))
}

/// `rank 1`, `ranks 1, 4-6`.
fn list(ranks: &[u32]) -> String {
    let mut runs: Vec<(u32, u32)> = Vec::new();
    for &rank in ranks {
        match runs.last_mut() {
            Some((_, last)) if *last + 1 == rank => *last = rank,
            _ => runs.push((rank, rank)),
        }
    }
    let texts: Vec<_> = runs
        .iter()
        .map(|&(first, last)| if first == last { format!("{first}") } else { format!("{first}-{last}") })
        .collect();
    format!("{} {}", if ranks.len() == 1 { "rank" } else { "ranks" }, texts.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_of_ranks_are_listed_short() {
        assert_eq!(list(&[3]), "rank 3");
        assert_eq!(list(&[0, 2, 3, 4, 9]), "ranks 0, 2-4, 9");
    }
}
