//! The machine that floods, compares and notices.

use core::time::Duration;
use std::collections::BTreeSet;

use rustix::event::{PollFd, PollFlags, Timespec, poll as poll_now};
use vervain_transport::{Error, Kind, Rank, Result, Time};

use super::edge::{Arrival, Edge};
use super::frame::{Flood, Message};
use super::handle::{Command, Handle, State};
use super::poll::{self, Watch};
use crate::bootstrap::Member;
use crate::bootstrap::channel::{Channel, frame};
use crate::call::Descriptor;

/// How long a leaving rank waits for its goodbye to be taken.
const FAREWELL: Duration = Duration::from_millis(50);
/// A question that we cannot answer yet is looked at again after this, then after twice as long, and so on to `SLOWEST`.
const RECHECK: Duration = Duration::from_millis(20);
const SLOWEST: Duration = Duration::from_secs(1);
/// We tell about ourselves at most this often.
const STATES: Duration = Duration::from_millis(100);

/// One rank's end of the control mesh. Dropped without [`Handle::leave`], it looks to its peers like a death.
#[derive(Debug)]
pub struct Mesh {
    handle: Handle,
    edges: Vec<Edge>,
    /// Our last message.
    sequence: u64,
    /// The last message of each rank that we have seen.
    seen: Vec<u64>,
    died: BTreeSet<Rank>,
    /// Questions of peers about operations that we have not entered.
    questions: Vec<Option<Descriptor>>,
    recheck: Time,
    pause: Duration,
    /// When we may tell about ourselves again.
    next_state: Time,
    stage: Stage,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Running,
    /// The goodbye is said; until then it may take to be sent.
    Leaving(Time),
    Over,
}

/// Whether a mesh has to be stepped any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// It has.
    Running,
    /// It said goodbye and closed its sockets.
    Over,
}

impl Mesh {
    pub(crate) fn new(rank: Rank, members: &[Member], edges: Vec<(Rank, Channel)>) -> Result<Self> {
        let ranks = members.len();
        let here = &members[rank.index()];
        let edges = edges.into_iter().map(|(peer, channel)| Edge::new(here, &members[peer.index()], channel)).collect();
        Ok(Self {
            handle: Handle::new(rank, ranks as u32)?,
            edges,
            sequence: 0,
            seen: vec![0; ranks],
            died: BTreeSet::new(),
            questions: vec![None; ranks],
            recheck: Time::NEVER,
            pause: RECHECK,
            next_state: Time::default(),
            stage: Stage::Running,
        })
    }

    /// What the rest of the program holds of it.
    pub fn handle(&self) -> Handle {
        self.handle.clone()
    }

    /// Do what there is to do; never blocks.
    pub fn step(&mut self, now: Time) -> Status {
        for command in self.handle.take_commands() {
            self.on_command(command, now);
        }
        self.receive(now);
        self.check_processes(now);
        self.check_questions(now);
        self.edges.iter_mut().for_each(Edge::flush);
        self.finish(now)
    }

    /// What to wait for until the next step.
    pub fn watches(&self) -> Vec<Watch<'_>> {
        let mut watches: Vec<_> = self.handle.waker().map(Watch::read).into_iter().collect();
        self.edges.iter().for_each(|edge| edge.watch(&mut watches));
        watches
    }

    /// When to step at the latest, if nothing arrives before.
    pub fn wake(&self) -> Time {
        match self.stage {
            Stage::Leaving(until) => until,
            Stage::Running | Stage::Over => self.recheck,
        }
    }

    /// Sleep until there is something to do, or until `end`.
    pub fn wait(&self, now: Time, end: Time) {
        poll::wait(&self.watches(), now, self.wake().min(end));
    }

    fn on_command(&mut self, command: Command, now: Time) {
        match command {
            Command::Stalled(call) => self.on_stalled(call),
            Command::Failed(error, text) => self.say(Message::Failed(error, text)),
            Command::Died(rank) => self.on_death(rank),
            Command::Abort => self.say(Message::Aborted),
            Command::Leave if self.stage == Stage::Running => {
                self.say(Message::Left);
                self.stage = Stage::Leaving(now.after(FAREWELL));
            }
            Command::Leave => {}
        }
    }

    fn on_stalled(&mut self, call: Descriptor) {
        self.say(Message::Stalled(call));
        let State { entered, waiting } = self.handle.state();
        self.say(Message::State { entered, waiting });
    }

    fn receive(&mut self, now: Time) {
        let ranks = self.handle.ranks();
        for at in (0..self.edges.len()).rev() {
            let rank = self.edges[at].rank;
            for arrival in self.edges[at].receive(ranks) {
                match arrival {
                    Arrival::Flood(flood) => self.on_flood(flood, rank, now),
                    Arrival::Garbage => self.on_garbage(at),
                    Arrival::Closed => self.on_closed(at),
                }
            }
        }
    }

    /// Pass on and take in what we have not seen before.
    fn on_flood(&mut self, flood: Flood, from: Rank, now: Time) {
        let seen = &mut self.seen[flood.origin.index()];
        if flood.origin == self.handle.rank() || flood.sequence <= *seen {
            return;
        }
        *seen = flood.sequence;
        self.forward(&flood, Some(from));
        self.on_message(flood.origin, flood.message, now);
    }

    fn on_message(&mut self, origin: Rank, message: Message, now: Time) {
        match message {
            Message::Died(rank) => self.note_death(rank),
            Message::Left => self.handle.set_left(origin),
            Message::Aborted => self
                .handle
                .set_failure(Error::new(Kind::Aborted).with_rank(origin), vec![format!("rank {origin} aborted")]),
            Message::Stalled(call) => self.on_question(origin, call, now),
            Message::State { entered, waiting } => self.handle.set_state(origin, State { entered, waiting }),
            Message::Mismatch(calls) => self.note_mismatch(&calls),
            Message::Failed(error, text) => self.handle.set_failure(error, text.lines().map(str::to_owned).collect()),
        }
    }

    fn on_question(&mut self, origin: Rank, call: Descriptor, now: Time) {
        self.questions[origin.index()] = Some(call);
        self.pause = RECHECK;
        self.recheck = now;
        if now >= self.next_state {
            self.next_state = now.after(STATES);
            let State { entered, waiting } = self.handle.state();
            self.say(Message::State { entered, waiting });
        }
    }

    /// Compare what peers are stalled in with what we called.
    fn check_questions(&mut self, now: Time) {
        if now < self.recheck {
            return;
        }
        for at in 0..self.questions.len() {
            let Some(theirs) = self.questions[at] else { continue };
            let ours = self.handle.calls().find(|ours| ours.operation == theirs.operation);
            // messages have numbers of their own, which tell nothing about other messages
            let is_past = !theirs.is_message() && self.handle.calls().entered() > theirs.operation;
            if ours.is_some() || is_past {
                self.questions[at] = None;
            }
            if let Some(ours) = ours.filter(|ours| *ours != theirs) {
                self.differ((self.handle.rank(), ours), (Rank::new(at as u32), theirs));
            }
        }
        let open = self.questions.iter().any(Option::is_some);
        self.recheck = if open { now.after(self.pause) } else { Time::NEVER };
        self.pause = (self.pause * 2).min(SLOWEST);
    }

    fn differ(&mut self, ours: (Rank, Descriptor), theirs: (Rank, Descriptor)) {
        let mut calls = [ours, theirs];
        calls.sort_by_key(|(rank, _)| *rank);
        self.note_mismatch(&calls);
        self.say(Message::Mismatch(calls));
    }

    fn note_mismatch(&mut self, calls: &[(Rank, Descriptor); 2]) {
        let [(first, _), (second, call)] = calls;
        let peer = if *second == self.handle.rank() { first } else { second };
        let error = Error::new(Kind::Mismatch).with_rank(*peer).with_operation(call.operation);
        self.handle.set_failure(error, vec![describe_mismatch(calls)]);
    }

    fn on_garbage(&mut self, at: usize) {
        let edge = self.edges.remove(at);
        let error = Error::new(Kind::Corrupt).with_rank(edge.rank);
        let text =
            format!("rank {} sent rank {} what no rank sends on the control mesh", edge.rank, self.handle.rank());
        self.handle.set_failure(error, vec![text.clone()]);
        self.say(Message::Failed(error, text));
    }

    fn on_closed(&mut self, at: usize) {
        let edge = self.edges.remove(at);
        self.on_death(edge.rank);
    }

    fn on_death(&mut self, rank: Rank) {
        if !self.handle.left(rank) && !self.died.contains(&rank) {
            self.note_death(rank);
            self.say(Message::Died(rank));
        }
    }

    fn note_death(&mut self, rank: Rank) {
        if !self.handle.left(rank) && self.died.insert(rank) {
            self.handle.set_failure(Error::new(Kind::PeerDied).with_rank(rank), vec![format!("rank {rank} died")]);
        }
    }

    /// A process that ended without its socket telling us, because a child of it holds the socket open.
    fn check_processes(&mut self, now: Time) {
        let mut fds: Vec<_> =
            self.edges.iter().filter_map(Edge::process).map(|fd| PollFd::new(fd, PollFlags::IN)).collect();
        if fds.is_empty() || !poll_now(&mut fds, Some(&Timespec::default())).is_ok_and(|ready| ready > 0) {
            return;
        }
        let ended: Vec<_> = fds.iter().map(|fd| !fd.revents().is_empty()).collect();
        let watched = self.edges.iter().enumerate().filter(|(_, edge)| edge.process().is_some()).map(|(at, _)| at);
        let ended: Vec<_> = watched.zip(ended).filter(|(_, ended)| *ended).map(|(at, _)| self.edges[at].rank).collect();
        // what it said before it ended comes first
        self.receive(now);
        for rank in ended {
            self.edges.retain(|edge| edge.rank != rank);
            self.on_death(rank);
        }
    }

    /// Say something to all.
    fn say(&mut self, message: Message) {
        self.sequence += 1;
        let flood = Flood { origin: self.handle.rank(), sequence: self.sequence, message };
        self.forward(&flood, None);
    }

    fn forward(&mut self, flood: &Flood, except: Option<Rank>) {
        let frame = frame(&flood.to_bytes());
        let is_droppable = flood.message.is_droppable();
        self.edges.iter_mut().filter(|edge| Some(edge.rank) != except).for_each(|edge| edge.send(&frame, is_droppable));
    }

    /// Send every neighbour bytes that need not be a message.
    #[cfg(test)]
    pub(crate) fn send_raw(&mut self, bytes: &[u8]) {
        self.edges.iter_mut().for_each(|edge| edge.send(&frame(bytes), false));
    }

    fn finish(&mut self, now: Time) -> Status {
        if let Stage::Leaving(until) = self.stage
            && (now >= until || !self.edges.iter().any(Edge::is_writing))
        {
            self.edges.clear();
            self.stage = Stage::Over;
        }
        if self.stage == Stage::Over { Status::Over } else { Status::Running }
    }
}

/// The ranks 1, 2, 4, 8 … away in either direction, in order.
pub(crate) fn neighbours(rank: Rank, ranks: u32) -> Vec<Rank> {
    let (rank, ranks) = (u64::from(rank.get()), u64::from(ranks));
    let strides = (0..32).map(|power| 1u64 << power).take_while(|&stride| stride < ranks);
    let peers: BTreeSet<u64> =
        strides.flat_map(|stride| [(rank + stride) % ranks, (rank + ranks - stride) % ranks]).collect();
    peers.into_iter().map(|peer| Rank::new(peer as u32)).collect()
}

fn describe_mismatch(calls: &[(Rank, Descriptor); 2]) -> String {
    let [(first, one), (second, other)] = calls;
    let (mut a, mut b) = (one.to_string(), other.to_string());
    if a == b {
        a += &format!(", plan {:016x}", one.tuning);
        b += &format!(", plan {:016x}", other.tuning);
    }
    format!("{}: rank {first} called {a}; rank {second} called {b}", one.name())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbourhood_is_mutual_and_small() {
        for ranks in 1..=70 {
            for rank in (0..ranks).map(Rank::new) {
                let near = neighbours(rank, ranks);
                assert!(!near.contains(&rank) && near.len() as u32 <= 2 * ranks.ilog2() + 2);
                assert!(near.iter().all(|&peer| neighbours(peer, ranks).contains(&rank)), "{rank} of {ranks}");
            }
        }
        assert_eq!(neighbours(Rank::new(0), 1), []);
        assert_eq!(neighbours(Rank::new(1), 2), [Rank::new(0)]);
    }
}
