//! Several rounds with vector clocks in place of data: who is stuck, and which accesses are not ordered.
//!
//! Every lane has a clock, and a vector of what it knows of all clocks. An access is remembered with its lane's clock; a later one to
//! the same cell is ordered after it exactly if its lane knows of that clock. Rounds touch different elements of the caller's buffers,
//! but the same scratch. The caller is one more writer, before and after each operation.

use std::rc::Rc;

use vervain_transport::Rank;

use super::super::defect::{Access, Defect, Reason};
use super::super::program::{Buffer, Place, Step};
use super::cluster::{At, Cluster};
use super::engine::{self, Effects, Length};
use crate::Collective;

/// Run two operations of so many rounds with so many slots per connection.
pub(super) fn run(cluster: &Cluster, slots: usize, rounds: usize) -> Result<(), Defect> {
    let length = Length { slots, rounds, operations: 2 };
    let mut clocks = Clocks::new(cluster, length.rounds);
    engine::run(cluster, length, &mut clocks)
}

struct Clocks<'a> {
    cluster: &'a Cluster,
    rounds: usize,
    /// What each lane knows of all lanes.
    known: Vec<Vec<u32>>,
    /// Per round and cell.
    cells: Vec<Cell>,
    /// Per rank, the clock of its lane 0 at the beginning of each operation so far.
    begun: Vec<Vec<u32>>,
}

/// Who touched a cell since its last write, and who wrote it.
#[derive(Clone, Default)]
struct Cell {
    write: Option<Touch>,
    reads: Vec<Touch>,
}

#[derive(Clone, Copy)]
struct Touch {
    thread: usize,
    clock: u32,
    access: Access,
}

impl<'a> Clocks<'a> {
    fn new(cluster: &'a Cluster, rounds: usize) -> Self {
        let lanes = cluster.ranks as usize * cluster.lanes;
        let mut known = vec![vec![0; lanes]; lanes];
        known.iter_mut().enumerate().for_each(|(lane, known)| known[lane] = 1);
        let cells = vec![Cell::default(); rounds * cluster.cells_per_rank() * cluster.ranks as usize];
        Self { cluster, rounds, known, cells, begun: vec![vec![1]; cluster.ranks as usize] }
    }

    fn thread(&self, at: At) -> usize {
        at.rank.index() * self.cluster.lanes + at.lane
    }

    fn cell(&mut self, round: usize, cell: usize) -> &mut Cell {
        let round = if self.cluster.is_callers(cell) { round % self.rounds } else { 0 };
        let index = round * self.cluster.cells_per_rank() * self.cluster.ranks as usize + cell;
        &mut self.cells[index]
    }

    fn touch(&mut self, at: At, round: usize, place: &Place, writes: bool) -> Result<(), Reason> {
        let Some((owner, buffer, chunk)) = self.cluster.chunk_at(at.rank, place) else { return Ok(()) };
        let thread = self.thread(at);
        let access = Access::Step { rank: at.rank, lane: at.lane, step: at.step };
        let touch = Touch { thread, clock: self.known[thread][thread], access };
        self.order(touch, round, (owner, buffer, chunk), writes)
    }

    /// In place, a copy may find its data where it should go: it writes nothing there.
    fn is_copy_onto_itself(&self, at: At, sources: &[Place], destination: &Place) -> bool {
        let cell = |place| {
            let (owner, buffer, chunk) = self.cluster.chunk_at(at.rank, place)?;
            Some(self.cluster.cell(owner, buffer, chunk))
        };
        matches!(sources, [source] if cell(source).is_some() && cell(source) == cell(destination))
    }

    fn order(
        &mut self,
        touch: Touch,
        round: usize,
        (owner, buffer, chunk): (Rank, Buffer, u32),
        writes: bool,
    ) -> Result<(), Reason> {
        let known = core::mem::take(&mut self.known[touch.thread]);
        let index = self.cluster.cell(owner, buffer, chunk);
        let cell = self.cell(round, index);
        let reads = if writes { cell.reads.as_slice() } else { &[] };
        let unordered = cell.write.iter().chain(reads).find(|earlier| earlier.clock > known[earlier.thread]);
        let outcome = match unordered {
            Some(other) => Err(Reason::Race { owner, buffer, chunk, other: other.access }),
            None => Ok(()),
        };
        cell.remember(touch, writes);
        self.known[touch.thread] = known;
        outcome
    }

    fn all_came(&self, rank: Rank) -> Result<(), Reason> {
        let lanes = self.cluster.lanes;
        let known = &self.known[rank.index() * lanes];
        let operation = self.begun[rank.index()].len() - 1;
        let knows = |other: usize| self.begun[other].get(operation).is_some_and(|&clock| known[other * lanes] >= clock);
        let late = (0..self.begun.len()).find(|&other| !knows(other));
        late.map_or(Ok(()), |other| Err(Reason::NoBarrier(Rank::new(other as u32))))
    }
}

impl Cell {
    fn remember(&mut self, touch: Touch, writes: bool) {
        if writes {
            self.reads.clear();
            self.write = Some(touch);
        } else if let Some(earlier) = self.reads.iter_mut().find(|earlier| earlier.thread == touch.thread) {
            *earlier = touch;
        } else {
            self.reads.push(touch);
        }
    }
}

impl Effects for Clocks<'_> {
    type Message = ();
    type Token = Rc<[u32]>;

    fn release(&mut self, thread: usize) -> Rc<[u32]> {
        let token = Rc::from(self.known[thread].as_slice());
        self.known[thread][thread] += 1;
        token
    }

    fn acquire(&mut self, thread: usize, token: &Rc<[u32]>) {
        for (mine, theirs) in self.known[thread].iter_mut().zip(token.iter()) {
            *mine = (*mine).max(*theirs);
        }
    }

    fn step(&mut self, at: At, round: usize, step: &Step, _messages: Vec<()>) -> Result<Option<()>, Reason> {
        let Step::Move { sources, destinations, .. } = step else { return Ok(None) };
        sources.iter().try_for_each(|place| self.touch(at, round, place, false))?;
        for place in destinations {
            if !self.is_copy_onto_itself(at, sources, place) {
                self.touch(at, round, place, true)?;
            }
        }
        Ok(Some(()))
    }

    /// The caller has its buffers back, and writes all of them before it calls again.
    fn end(&mut self, rank: Rank) -> Result<(), Reason> {
        if self.cluster.collective == Collective::Barrier {
            self.all_came(rank)?;
        }
        let thread = rank.index() * self.cluster.lanes;
        let touch = Touch { thread, clock: self.known[thread][thread], access: Access::Caller };
        for buffer in [Buffer::Input, Buffer::Output] {
            for chunk in 0..self.cluster.chunks_of(rank, buffer) {
                (0..self.rounds).try_for_each(|round| self.order(touch, round, (rank, buffer, chunk), true))?;
            }
        }
        self.begun[rank.index()].push(touch.clock);
        Ok(())
    }
}
