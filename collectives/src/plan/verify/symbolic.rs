//! One round with contributions in place of data.

use vervain_transport::Rank;

use super::super::defect::{Defect, Reason, Site};
use super::super::program::{Buffer, Place, Step};
use super::cluster::{At, Cluster};
use super::engine::{self, Effects, Length};
use super::value::{Set, Value};
use crate::Collective;

/// What a run found out, besides that the outputs are right.
pub(super) struct Outcome {
    /// The Moves that combine several sources into a complete result.
    pub complete: Vec<At>,
    /// The author has marked all of them.
    pub marked: bool,
}

/// Run one round and check every output.
pub(super) fn run(cluster: &Cluster) -> Result<Outcome, Defect> {
    let mut contents = Contents::new(cluster);
    engine::run(cluster, Length { slots: usize::MAX, rounds: 1, operations: 1 }, &mut contents)?;
    contents.check_outputs()?;
    Ok(contents.outcome)
}

/// What all chunks hold.
struct Contents<'a> {
    cluster: &'a Cluster,
    all: Set,
    cells: Vec<Option<Value>>,
    outcome: Outcome,
}

impl<'a> Contents<'a> {
    fn new(cluster: &'a Cluster) -> Self {
        let mut cells = vec![None; cluster.cells_per_rank() * cluster.ranks as usize];
        for rank in (0..cluster.ranks).map(Rank::new) {
            for chunk in 0..cluster.chunks_of(rank, Buffer::Input) {
                cells[cluster.cell(rank, Buffer::Input, chunk)] = Some(Value::of(rank, cluster.ranks, chunk));
            }
        }
        let outcome = Outcome { complete: Vec::new(), marked: true };
        Self { cluster, all: Set::all(cluster.ranks), cells, outcome }
    }

    fn combine(&self, at: At, sources: &[Place], messages: Vec<Value>) -> Result<Option<Value>, Reason> {
        let mut messages = messages.into_iter();
        let mut sum: Option<Value> = None;
        for place in sources {
            let value = match self.cluster.chunk_at(at.rank, place) {
                Some((owner, buffer, chunk)) => {
                    let held = self.cells[self.cluster.cell(owner, buffer, chunk)];
                    Some(held.ok_or(Reason::Undefined { owner, buffer, chunk })?)
                }
                None => messages.next(),
            };
            sum = match (sum, value) {
                (Some(sum), Some(value)) => Some(sum.and(value)?),
                (sum, value) => sum.or(value),
            };
        }
        Ok(sum)
    }

    fn note_complete(&mut self, at: At, several: bool, value: Option<Value>, marked: bool) -> Result<(), Reason> {
        let complete = several && value.is_some_and(|value| value.ranks == self.all);
        if marked && !complete {
            return Err(Reason::NotComplete);
        }
        if complete {
            self.outcome.complete.push(at);
            self.outcome.marked &= marked;
        }
        Ok(())
    }

    fn check_outputs(&self) -> Result<(), Defect> {
        let cluster = self.cluster;
        for rank in (0..cluster.ranks).map(Rank::new) {
            for chunk in 0..cluster.chunks_of(rank, Buffer::Output) {
                self.check_output(rank, chunk).map_err(|reason| {
                    let (last, _) =
                        cluster.steps().filter(|(at, step)| self.writes(*at, step, rank, chunk)).last().unzip();
                    let site =
                        last.map_or_else(|| Site { rank: Some(rank), ..cluster.site() }, |at| cluster.site_at(at));
                    Defect::new(Site { chunk: Some(chunk), ..site }, reason)
                })?;
            }
        }
        Ok(())
    }

    fn writes(&self, at: At, step: &Step, owner: Rank, chunk: u32) -> bool {
        let Step::Move { destinations, .. } = step else { return false };
        let wanted = Some((owner, Buffer::Output, chunk));
        destinations.iter().any(|place| self.cluster.chunk_at(at.rank, place) == wanted)
    }

    fn check_output(&self, rank: Rank, chunk: u32) -> Result<(), Reason> {
        let held = self.cells[self.cluster.cell(rank, Buffer::Output, chunk)].ok_or(Reason::Unwritten)?;
        let (expected, ranks) = self.expected(rank, chunk);
        if held.chunk != expected {
            return Err(Reason::WrongChunk { found: held.chunk, expected });
        }
        if let Some(reason) = held.ranks.defect(ranks) {
            return Err(reason);
        }
        let first = self.cells[self.cluster.cell(Rank::new(0), Buffer::Output, chunk)];
        let differs =
            self.cluster.collective == Collective::AllReduce && first.is_some_and(|first| first.order != held.order);
        if differs { Err(Reason::OrderDiffers(Rank::new(0))) } else { Ok(()) }
    }

    /// Which input chunk of which ranks an output chunk should hold.
    fn expected(&self, rank: Rank, chunk: u32) -> (u32, Set) {
        let Cluster { chunks, ranks, root, .. } = *self.cluster;
        let (block, inner) = (chunk / chunks, chunk % chunks);
        let of = |rank| Set::of(rank, ranks);
        match self.cluster.collective {
            Collective::AllGather => (inner, of(Rank::new(block))),
            Collective::AllToAll => (rank.get() * chunks + inner, of(Rank::new(block))),
            Collective::Broadcast => (inner, of(root.unwrap_or(rank))),
            Collective::ReduceScatter => (rank.get() * chunks + inner, self.all),
            _ => (inner, self.all),
        }
    }
}

impl Effects for Contents<'_> {
    type Message = Value;
    type Token = ();

    fn release(&mut self, _thread: usize) {}

    fn acquire(&mut self, _thread: usize, (): &()) {}

    fn step(&mut self, at: At, _round: usize, step: &Step, messages: Vec<Value>) -> Result<Option<Value>, Reason> {
        let Step::Move { sources, destinations, complete } = step else { return Ok(None) };
        let value = self.combine(at, sources, messages)?;
        self.note_complete(at, sources.len() > 1, value, *complete)?;
        for place in destinations {
            if let Some((owner, buffer, chunk)) = self.cluster.chunk_at(at.rank, place) {
                self.cells[self.cluster.cell(owner, buffer, chunk)] = value;
            }
        }
        Ok(value)
    }

    fn end(&mut self, _rank: Rank) -> Result<(), Reason> {
        Ok(())
    }
}
