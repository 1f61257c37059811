//! All programs of one call, and where their chunks lie.

use vervain_transport::Rank;

use super::super::Plan;
use super::super::defect::{Defect, Reason, Site};
use super::super::program::{Buffer, Place, Program, Step};
use crate::Collective;

/// The programs of all ranks.
pub(super) struct Cluster {
    pub plan: String,
    pub collective: Collective,
    pub ranks: u32,
    pub root: Option<Rank>,
    pub programs: Vec<Program>,
    /// Input and output are one buffer, as the collective defines in-place calls.
    pub in_place: bool,
    /// Of rank 0; the same on all ranks once `check` has passed.
    pub chunks: u32,
    pub lanes: usize,
    scratch: u32,
}

/// A step of the cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct At {
    pub rank: Rank,
    pub lane: usize,
    pub step: usize,
}

impl Cluster {
    /// Expand the plan for every rank.
    pub fn new(plan: &Plan, ranks: u32, root: Option<Rank>) -> Result<Self, Defect> {
        let first = plan.expand(Rank::new(0), ranks, root)?;
        let mut cluster = Self::started(&plan.name, first);
        cluster.limit(MAX_LANES, cluster.lanes.saturating_mul(ranks as usize))?;
        cluster.limit(MAX_CELLS, cluster.cells_per_rank().saturating_mul(ranks as usize))?;
        let mut length = cluster.length_of(0);
        for rank in 1..ranks {
            cluster.programs.push(plan.expand(Rank::new(rank), ranks, root)?);
            length += cluster.length_of(rank as usize);
            cluster.limit(MAX_LENGTH, length)?;
        }
        Ok(cluster)
    }

    /// The cluster of programs that are at hand: those of all ranks, in their order.
    pub fn of(programs: &[Program]) -> Option<Self> {
        let (first, rest) = programs.split_first()?;
        let mut cluster = Self::started("programs", first.clone());
        cluster.programs.extend_from_slice(rest);
        let fits = |(rank, program): (usize, &Program)| {
            let Program { ranks, root, collective, .. } = program;
            program.rank.index() == rank && (*ranks, *root, *collective) == (first.ranks, first.root, first.collective)
        };
        (first.ranks as usize == programs.len() && programs.iter().enumerate().all(fits)).then_some(cluster)
    }

    fn started(plan: &str, first: Program) -> Self {
        Self {
            plan: plan.to_owned(),
            collective: first.collective,
            ranks: first.ranks,
            root: first.root,
            chunks: first.chunks,
            lanes: first.lanes.len(),
            scratch: first.scratch,
            in_place: false,
            programs: vec![first],
        }
    }

    /// The whole call.
    pub fn site(&self) -> Site {
        let (ranks, root) = (Some(self.ranks), self.root);
        Site { ranks, root, in_place: self.in_place, ..Site::of(&self.plan) }
    }

    /// One step.
    pub fn site_at(&self, at: At) -> Site {
        Site { rank: Some(at.rank), lane: Some(at.lane), step: Some(at.step), ..self.site() }
    }

    /// The defect of one step.
    pub fn defect(&self, at: At, reason: Reason) -> Defect {
        Defect::new(self.site_at(at), reason)
    }

    /// Every step of every rank.
    pub fn steps(&self) -> impl Iterator<Item = (At, &Step)> {
        self.programs.iter().flat_map(|program| {
            program.lanes.iter().enumerate().flat_map(move |(lane, steps)| {
                let at = move |step| At { rank: program.rank, lane, step };
                steps.iter().enumerate().map(move |(step, instruction)| (at(step), instruction))
            })
        })
    }

    /// How many chunks of a buffer a rank has. A rank without a role in a rooted collective has no such buffer.
    pub fn chunks_of(&self, rank: Rank, buffer: Buffer) -> u32 {
        let rootless = self.root != Some(rank);
        match (self.collective, buffer) {
            (_, Buffer::Scratch) => self.scratch,
            (Collective::Broadcast, Buffer::Input) | (Collective::Reduce, Buffer::Output) if rootless => 0,
            _ => self.collective.blocks(buffer, self.ranks).saturating_mul(self.chunks),
        }
    }

    /// Whose chunk a place is, if it is one.
    pub fn chunk_at(&self, rank: Rank, place: &Place) -> Option<(Rank, Buffer, u32)> {
        match *place {
            Place::Local { buffer, chunk } => Some((rank, buffer, chunk)),
            Place::Direct { rank, buffer, chunk } => Some((rank, buffer, chunk)),
            Place::Connection { .. } => None,
        }
    }

    /// The number of a chunk's memory; in place, chunks of input and output share it. Only for chunks that exist.
    pub fn cell(&self, rank: Rank, buffer: Buffer, chunk: u32) -> usize {
        let mine = rank.get().saturating_mul(self.chunks);
        let (buffer, chunk) = match (self.collective, buffer) {
            _ if !self.in_place => (buffer, chunk),
            (Collective::AllReduce | Collective::Broadcast | Collective::Reduce, Buffer::Output) => {
                (Buffer::Input, chunk)
            }
            (Collective::AllGather, Buffer::Input) => (Buffer::Output, mine + chunk),
            (Collective::ReduceScatter, Buffer::Output) => (Buffer::Input, mine + chunk),
            _ => (buffer, chunk),
        };
        let before = match buffer {
            Buffer::Input => 0,
            Buffer::Output => self.most(Buffer::Input),
            Buffer::Scratch => self.most(Buffer::Input) + self.most(Buffer::Output),
        };
        rank.index() * self.cells_per_rank() + before + chunk as usize
    }

    /// How many chunks' memory each rank has.
    pub fn cells_per_rank(&self) -> usize {
        self.most(Buffer::Input) + self.most(Buffer::Output) + self.most(Buffer::Scratch)
    }

    /// Whether a cell is of a buffer of the caller, not scratch.
    pub fn is_callers(&self, cell: usize) -> bool {
        cell % self.cells_per_rank() < self.most(Buffer::Input) + self.most(Buffer::Output)
    }

    /// How many chunks of a buffer a rank can have.
    fn most(&self, buffer: Buffer) -> usize {
        let chunks = match buffer {
            Buffer::Scratch => self.scratch,
            _ => self.collective.blocks(buffer, self.ranks).saturating_mul(self.chunks),
        };
        chunks as usize
    }

    fn length_of(&self, program: usize) -> usize {
        let moved = |step: &Step| match step {
            Step::Move { sources, destinations, .. } => 1 + sources.len() + destinations.len(),
            _ => 1,
        };
        self.programs[program].lanes.iter().flatten().map(moved).sum()
    }

    fn limit(&self, most: usize, found: usize) -> Result<(), Defect> {
        if found <= most { Ok(()) } else { Err(Defect::new(self.site(), Reason::TooLarge { found, most })) }
    }
}

/// Steps and operands of all ranks together.
const MAX_LENGTH: usize = 16 << 20;
/// Chunks of all ranks together; the clocks of each take some 100 bytes a round.
const MAX_CELLS: usize = 2 << 20;
/// Lanes of all ranks together; each knows of each other.
const MAX_LANES: usize = 2048;
