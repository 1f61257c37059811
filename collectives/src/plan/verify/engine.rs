//! Runs all programs with something else in place of data: contributions or vector clocks.
//!
//! The engine knows who must wait for what; the [`Effects`] say what that means. A Move happens at once, when all its sources have
//! a message and all its destinations a slot; an executor that begins earlier is blocked less, never more.

use std::collections::{HashMap, VecDeque};

use vervain_transport::Rank;

use super::super::defect::{Awaited, Defect, Reason, Waiting};
use super::super::program::{Place, Step};
use super::cluster::{At, Cluster};

/// What a run computes.
pub(super) trait Effects {
    /// What a message carries besides its token.
    type Message: Clone;
    /// What whoever waits learns from whoever it waited for.
    type Token: Clone;

    /// This lane lets others know what it has done so far.
    fn release(&mut self, thread: usize) -> Self::Token;
    /// This lane learns what another has done.
    fn acquire(&mut self, thread: usize, token: &Self::Token);
    /// A Move, with the messages of its sources in their order. Gives what goes into the destinations' messages.
    fn step(
        &mut self,
        at: At,
        round: usize,
        step: &Step,
        messages: Vec<Self::Message>,
    ) -> Result<Option<Self::Message>, Reason>;
    /// All lanes of the rank have ended an operation.
    fn end(&mut self, rank: Rank) -> Result<(), Reason>;
}

/// How long a run is.
pub(super) struct Length {
    pub slots: usize,
    pub rounds: usize,
    pub operations: usize,
}

/// Run all programs to their end, or say who is stuck.
pub(super) fn run<E: Effects>(cluster: &Cluster, length: Length, effects: &mut E) -> Result<(), Defect> {
    let lanes = cluster.programs.len() * cluster.lanes;
    let rounds = length.rounds * length.operations;
    let mut engine = Engine {
        cluster,
        length,
        effects,
        lanes: vec![Lane::default(); lanes],
        connections: HashMap::new(),
        signals: HashMap::new(),
        entered: vec![vec![None; cluster.programs.len()]; rounds],
        left: vec![Vec::new(); rounds],
    };
    while engine.pass()? {}
    engine.finish()
}

struct Engine<'a, E: Effects> {
    cluster: &'a Cluster,
    length: Length,
    effects: &'a mut E,
    lanes: Vec<Lane>,
    connections: HashMap<(Rank, Rank, usize), Connection<E>>,
    signals: HashMap<(Rank, Rank), VecDeque<E::Token>>,
    /// Per round and rank, once it has entered.
    entered: Vec<Vec<Option<E::Token>>>,
    /// Per round, of the ranks that have begun to leave.
    left: Vec<Vec<E::Token>>,
}

/// Where a lane is.
#[derive(Clone, Default)]
struct Lane {
    /// Rounds done, over all operations.
    round: usize,
    step: usize,
    /// It has told the others that it leaves, and waits.
    leaving: bool,
    /// It waits for its rank's other lanes at the end of an operation.
    ended: bool,
}

struct Connection<E: Effects> {
    messages: VecDeque<(E::Message, E::Token)>,
    /// What the sender learns when it reuses a slot.
    consumed: VecDeque<E::Token>,
    sent: usize,
}

impl<E: Effects> Default for Connection<E> {
    fn default() -> Self {
        Self { messages: VecDeque::new(), consumed: VecDeque::new(), sent: 0 }
    }
}

impl<E: Effects> Engine<'_, E> {
    /// Let every lane go as far as it can. Whether any went on.
    fn pass(&mut self) -> Result<bool, Defect> {
        let mut moved = false;
        for thread in 0..self.lanes.len() {
            while self.advance(thread)? {
                moved = true;
            }
        }
        Ok(moved)
    }

    /// One step, or the end of a round.
    fn advance(&mut self, thread: usize) -> Result<bool, Defect> {
        if self.is_done(thread) || self.lanes[thread].ended {
            return Ok(false);
        }
        let (cluster, at) = (self.cluster, self.at(thread));
        let Some(step) = cluster.programs[at.rank.index()].lanes[at.lane].get(at.step) else {
            return self.end_round(thread).map(|()| true);
        };
        self.begin_leave(thread, step);
        if self.blocked(thread, step).is_some() {
            return Ok(false);
        }
        self.execute(thread, at, step).map_err(|reason| cluster.defect(at, reason))?;
        let lane = &mut self.lanes[thread];
        (lane.step, lane.leaving) = (lane.step + 1, false);
        Ok(true)
    }

    fn begin_leave(&mut self, thread: usize, step: &Step) {
        let lane = &mut self.lanes[thread];
        if *step == Step::Leave && !lane.leaving {
            lane.leaving = true;
            let token = self.effects.release(thread);
            self.left[lane.round].push(token);
        }
    }

    /// What the lane must wait for before this step.
    fn blocked(&self, thread: usize, step: &Step) -> Option<(Awaited, Rank)> {
        let (at, round) = (self.at(thread), self.lanes[thread].round);
        match step {
            Step::Move { sources, destinations, .. } => {
                let direct = sources.iter().chain(destinations).find_map(|place| self.unentered(round, place));
                let message = || sources.iter().find_map(|place| self.no_message(at, place));
                let slot = || destinations.iter().find_map(|place| self.no_slot(at, place));
                direct.or_else(message).or_else(slot)
            }
            Step::Wait { peer } => {
                let signals = self.signals.get(&(*peer, at.rank));
                signals.is_none_or(VecDeque::is_empty).then_some((Awaited::Signal, *peer))
            }
            Step::Leave if self.left[round].len() < self.cluster.programs.len() => {
                Some((Awaited::Leave, self.first_to_leave(round)))
            }
            Step::Leave | Step::Enter | Step::Signal { .. } => None,
        }
    }

    fn unentered(&self, round: usize, place: &Place) -> Option<(Awaited, Rank)> {
        match place {
            Place::Direct { rank, .. } if self.entered[round][rank.index()].is_none() => Some((Awaited::Enter, *rank)),
            _ => None,
        }
    }

    fn no_message(&self, at: At, place: &Place) -> Option<(Awaited, Rank)> {
        let Place::Connection { peer } = place else { return None };
        let connection = self.connections.get(&(*peer, at.rank, at.lane));
        connection.is_none_or(|connection| connection.messages.is_empty()).then_some((Awaited::Message, *peer))
    }

    fn no_slot(&self, at: At, place: &Place) -> Option<(Awaited, Rank)> {
        let Place::Connection { peer } = place else { return None };
        let connection = self.connections.get(&(at.rank, *peer, at.lane))?;
        (connection.messages.len() >= self.length.slots).then_some((Awaited::Slot, *peer))
    }

    /// The first rank that has not begun to leave in this round.
    fn first_to_leave(&self, round: usize) -> Rank {
        let late = self.lanes.iter().step_by(self.cluster.lanes).position(|lane| lane.round <= round && !lane.leaving);
        Rank::new(late.unwrap_or(0) as u32)
    }

    fn execute(&mut self, thread: usize, at: At, step: &Step) -> Result<(), Reason> {
        let round = self.lanes[thread].round;
        match step {
            Step::Move { sources, destinations, .. } => {
                return self.execute_move(thread, at, step, sources, destinations);
            }
            Step::Enter => self.entered[round][at.rank.index()] = Some(self.effects.release(thread)),
            Step::Leave => self.left[round].iter().for_each(|token| self.effects.acquire(thread, token)),
            Step::Signal { peer } => {
                let token = self.effects.release(thread);
                self.signals.entry((at.rank, *peer)).or_default().push_back(token);
            }
            Step::Wait { peer } => {
                if let Some(token) = self.signals.entry((*peer, at.rank)).or_default().pop_front() {
                    self.effects.acquire(thread, &token);
                }
            }
        }
        Ok(())
    }

    fn execute_move(
        &mut self,
        thread: usize,
        at: At,
        step: &Step,
        sources: &[Place],
        destinations: &[Place],
    ) -> Result<(), Reason> {
        let round = self.lanes[thread].round;
        for place in sources.iter().chain(destinations) {
            if let Place::Direct { rank, .. } = place
                && let Some(token) = &self.entered[round][rank.index()]
            {
                self.effects.acquire(thread, token);
            }
        }
        let messages = self.take_messages(thread, at, sources);
        self.take_slots(thread, at, destinations);
        let result = self.effects.step(at, round, step, messages)?;
        self.pass_on(thread, at, sources, destinations, result);
        Ok(())
    }

    fn take_messages(&mut self, thread: usize, at: At, sources: &[Place]) -> Vec<E::Message> {
        let mut messages = Vec::new();
        for place in sources {
            if let Place::Connection { peer } = place
                && let Some((message, token)) = self.connection(*peer, at.rank, at.lane).messages.pop_front()
            {
                self.effects.acquire(thread, &token);
                messages.push(message);
            }
        }
        messages
    }

    /// A slot that was used before comes with the knowledge that its message was consumed.
    fn take_slots(&mut self, thread: usize, at: At, destinations: &[Place]) {
        let slots = self.length.slots;
        for place in destinations {
            let Place::Connection { peer } = place else { continue };
            let connection = self.connection(at.rank, *peer, at.lane);
            connection.sent += 1;
            if connection.sent > slots
                && let Some(token) = connection.consumed.pop_front()
            {
                self.effects.acquire(thread, &token);
            }
        }
    }

    /// Free the slots of the sources, fill those of the destinations.
    fn pass_on(
        &mut self,
        thread: usize,
        at: At,
        sources: &[Place],
        destinations: &[Place],
        result: Option<E::Message>,
    ) {
        let is_connection = |place: &Place| matches!(place, Place::Connection { .. });
        if !sources.iter().chain(destinations).any(is_connection) {
            return;
        }
        let token = self.effects.release(thread);
        for place in sources {
            if let Place::Connection { peer } = place {
                self.connection(*peer, at.rank, at.lane).consumed.push_back(token.clone());
            }
        }
        for place in destinations {
            if let (Place::Connection { peer }, Some(message)) = (place, &result) {
                let message = (message.clone(), token.clone());
                self.connection(at.rank, *peer, at.lane).messages.push_back(message);
            }
        }
    }

    fn connection(&mut self, from: Rank, to: Rank, lane: usize) -> &mut Connection<E> {
        self.connections.entry((from, to, lane)).or_default()
    }

    fn end_round(&mut self, thread: usize) -> Result<(), Defect> {
        let lane = &mut self.lanes[thread];
        (lane.round, lane.step) = (lane.round + 1, 0);
        lane.ended = lane.round.is_multiple_of(self.length.rounds);
        if lane.ended { self.end_operation(thread) } else { Ok(()) }
    }

    /// When the last lane of a rank ends an operation, all go on together.
    fn end_operation(&mut self, thread: usize) -> Result<(), Defect> {
        let first = thread - thread % self.cluster.lanes;
        let all = first..first + self.cluster.lanes;
        if !self.lanes[all.clone()].iter().all(|lane| lane.ended) {
            return Ok(());
        }
        let tokens: Vec<_> = all.clone().map(|lane| self.effects.release(lane)).collect();
        tokens.iter().for_each(|token| self.effects.acquire(first, token));
        let rank = Rank::new((first / self.cluster.lanes) as u32);
        let end = At { rank, lane: 0, step: self.cluster.programs[rank.index()].lanes[0].len() };
        self.effects.end(rank).map_err(|reason| self.cluster.defect(end, reason))?;
        let start = self.effects.release(first);
        for lane in all {
            self.effects.acquire(lane, &start);
            self.lanes[lane].ended = false;
        }
        Ok(())
    }

    fn is_done(&self, thread: usize) -> bool {
        self.lanes[thread].round == self.length.rounds * self.length.operations
    }

    fn at(&self, thread: usize) -> At {
        let rank = Rank::new((thread / self.cluster.lanes) as u32);
        At { rank, lane: thread % self.cluster.lanes, step: self.lanes[thread].step }
    }

    fn finish(&self) -> Result<(), Defect> {
        match (0..self.lanes.len()).find(|&thread| self.waiting(thread).is_some()) {
            Some(stuck) => Err(self.deadlock(stuck)),
            None => Ok(()),
        }
    }

    fn waiting(&self, thread: usize) -> Option<Waiting> {
        let At { rank, lane, step } = self.at(thread);
        let instruction = self.cluster.programs[rank.index()].lanes[lane].get(step)?;
        if self.is_done(thread) || self.lanes[thread].ended {
            return None;
        }
        let (what, from) = self.blocked(thread, instruction)?;
        Some(Waiting { rank, lane, step, what, from })
    }

    /// Follow who waits for whom until someone comes up twice.
    fn deadlock(&self, stuck: usize) -> Defect {
        let mut chain = Vec::new();
        let mut thread = stuck;
        while let Some(waiting) = self.waiting(thread) {
            if let Some(start) = chain.iter().position(|earlier| *earlier == waiting) {
                chain.drain(..start);
                break;
            }
            let lane = if matches!(waiting.what, Awaited::Message | Awaited::Slot) { waiting.lane } else { 0 };
            thread = self.holder(waiting.from, lane);
            chain.push(waiting);
        }
        Defect::new(self.cluster.site(), Reason::Deadlock { slots: self.length.slots as u32, cycle: chain })
    }

    /// The lane of `rank` that holds up its lane `lane`: itself, or one for which it waits at the end of the operation.
    fn holder(&self, rank: Rank, lane: usize) -> usize {
        let first = rank.index() * self.cluster.lanes;
        let stuck = || (first..first + self.cluster.lanes).find(|&thread| self.waiting(thread).is_some());
        if self.lanes[first + lane].ended { stuck().unwrap_or(first + lane) } else { first + lane }
    }
}
