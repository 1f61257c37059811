//! The static verifier: whether a plan does what its collective promises, on every rank, without running it.
//!
//! For each number of ranks and each root, all programs are expanded and then
//!
//! 1. [`check`]ed one by one and against each other: bounds, places, equal shape, matched messages and signals;
//! 2. run once with *contributions* in place of data ([`symbolic`]): every output chunk must hold exactly what it should, once each,
//!    and combined in the same order on every rank;
//! 3. run for S + 2 rounds of two consecutive operations with *vector clocks* in place of data ([`clocks`]): nobody may be stuck
//!    with S slots, and accesses to one chunk must be ordered unless both read.
//!
//! One run each decides, whatever the real schedule: messages, signals, entries and leaves have one giver and one taker each and
//! are taken in order, so that who is blocked and what happened before what do not depend on the order in which ready steps run.
//! S + 2 rounds let the first slot be reused and its second user meet the third; two operations let the end of one meet the start of the next.
//! More slots mean fewer orderings, fewer slots more waiting: so the fewest slots decide on deadlock, the most on races.

mod check;
mod clocks;
mod cluster;
mod engine;
mod symbolic;
mod value;

use core::ops::RangeInclusive;
use std::sync::Arc;

use vervain_transport::Rank;

use super::Plan;
use super::defect::{Defect, Reason, Site};
use super::program::{Program, Step};
use crate::Collective;
use cluster::Cluster;

/// For which numbers of ranks a plan is verified.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ranks(RangeInclusive<u32>);

/// A plan that has passed.
#[derive(Clone, Debug)]
pub struct Verified {
    plan: Plan,
    ranks: Ranks,
    in_place: Option<Defect>,
    marked: bool,
}

/// What one pass over a number of ranks and a root found besides that all is well.
struct Findings {
    /// Every complete Move was marked by the author.
    marked: bool,
    /// Why input and output may not be one buffer.
    in_place: Option<Defect>,
}

impl Ranks {
    /// All in this range.
    pub fn range(ranks: RangeInclusive<u32>) -> Self {
        Self(ranks)
    }

    /// Only this one.
    pub fn one(ranks: u32) -> Self {
        Self(ranks..=ranks)
    }

    /// Whether this number is among them.
    pub fn contains(&self, ranks: u32) -> bool {
        self.0.contains(&ranks)
    }
}

impl Plan {
    /// Prove the plan right for these numbers of ranks, and for every root (above 32 ranks: the first two and the last), or say what is wrong.
    pub fn verify(&self, ranks: Ranks) -> Result<Verified, Defect> {
        let mut verified = Verified { plan: self.clone(), ranks: ranks.clone(), in_place: None, marked: true };
        for count in ranks.0 {
            for root in roots(self.collective, count) {
                let findings = inspect(self, count, root)?;
                verified.marked &= findings.marked;
                verified.in_place = verified.in_place.or(findings.in_place);
            }
        }
        Ok(verified)
    }
}

impl Verified {
    /// The plan.
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// For which numbers of ranks.
    pub fn ranks(&self) -> &Ranks {
        &self.ranks
    }

    /// Whether input and output may be one buffer, as in-place calls have it; if not, why.
    pub fn in_place(&self) -> Result<(), &Defect> {
        self.in_place.as_ref().map_or(Ok(()), Err)
    }

    /// The program of one rank, with every complete Move marked. Costs an expansion of all ranks where the author has not marked them; keep it.
    pub fn program(&self, rank: Rank, ranks: u32, root: Option<Rank>) -> Result<Arc<Program>, Defect> {
        if !self.ranks.contains(ranks) {
            let site = Site { ranks: Some(ranks), root, ..Site::of(&self.plan.name) };
            return Err(Defect::new(site, Reason::NotVerified));
        }
        let mut program = self.plan.expand(rank, ranks, root)?;
        if !self.marked {
            self.mark(&mut program)?;
        }
        Ok(Arc::new(program))
    }

    fn mark(&self, program: &mut Program) -> Result<(), Defect> {
        let cluster = Cluster::new(&self.plan, program.ranks, program.root)?;
        for at in symbolic::run(&cluster)?.complete {
            if at.rank == program.rank
                && let Step::Move { complete, .. } = &mut program.lanes[at.lane][at.step]
            {
                *complete = true;
            }
        }
        Ok(())
    }
}

fn inspect(plan: &Plan, ranks: u32, root: Option<Rank>) -> Result<Findings, Defect> {
    inspect_cluster(Cluster::new(plan, ranks, root)?)
}

/// Verify the programs of all ranks, in their order, where there is no plan that they come from. Whether they may run in place is not asked.
pub fn verify_programs(programs: &[Program]) -> Result<(), Defect> {
    let cluster = Cluster::of(programs).ok_or_else(|| Defect::new(Site::of("programs"), Reason::NotOneCall))?;
    inspect_cluster(cluster).map(|_| ())
}

fn inspect_cluster(mut cluster: Cluster) -> Result<Findings, Defect> {
    check::all(&cluster)?;
    let outcome = symbolic::run(&cluster)?;
    clocks::run(&cluster, FEWEST_SLOTS, FEWEST_SLOTS + 2)?;
    clocks::run(&cluster, MOST_SLOTS, MOST_SLOTS + 2)?;
    if cluster.collective == Collective::Barrier {
        // One round must be a barrier already; several could pass the news around.
        clocks::run(&cluster, MOST_SLOTS, 1)?;
    }
    cluster.in_place = true;
    let in_place = match cluster.collective {
        Collective::AllToAll => Some(Defect::new(cluster.site(), Reason::NeverInPlace)),
        Collective::Barrier => None,
        _ => symbolic::run(&cluster).and_then(|_| clocks::run(&cluster, MOST_SLOTS, MOST_SLOTS + 2)).err(),
    };
    Ok(Findings { marked: outcome.marked, in_place })
}

fn roots(collective: Collective, ranks: u32) -> Vec<Option<Rank>> {
    match collective {
        Collective::Broadcast | Collective::Reduce if ranks <= ALL_ROOTS => {
            (0..ranks.max(1)).map(|root| Some(Rank::new(root))).collect()
        }
        Collective::Broadcast | Collective::Reduce => [0, 1, ranks - 1].map(|root| Some(Rank::new(root))).into(),
        _ => vec![None],
    }
}

/// No connection has fewer slots.
const FEWEST_SLOTS: usize = 2;
/// Connections of the executor have these many.
const MOST_SLOTS: usize = 8;
/// Up to here every root is tried.
const ALL_ROOTS: u32 = 32;
