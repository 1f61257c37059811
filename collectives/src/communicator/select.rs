//! Which algorithm and protocol a call uses: by size, with thresholds measured on the machines in docs/performance.md.
//!
//! Every input is the same on all ranks, so all ranks choose the same; what was chosen is part of the descriptor that they
//! compare. `Config::algorithm` and `Config::protocol` override it.

use vervain_transport::fabric::Backend;
use vervain_transport::{Kind, Result};

use super::Protocol;
use crate::Collective;
use crate::plan::{Algorithm, Needs};

/// What the choice depends on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Situation {
    /// What is done.
    pub collective: Collective,
    /// Bytes of one block.
    pub block: usize,
    /// How many ranks.
    pub ranks: u32,
    /// Over what.
    pub backend: Option<Backend>,
    /// The buffers are registered and peers' registrations are mapped.
    pub mapped: bool,
    /// Every rank can read every other's plain memory; `None` if that has not been found out yet.
    pub pull: Option<bool>,
}

/// What a call uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Choice {
    /// The plan.
    pub algorithm: Algorithm,
    /// How its messages travel.
    pub protocol: Protocol,
}

impl Choice {
    /// Whether every message of a rank goes to all others, so that it is better written once for all (executor/board.rs).
    pub fn shows_to_all(&self, collective: Collective) -> bool {
        let same = matches!(collective, Collective::AllReduce | Collective::AllGather | Collective::Broadcast);
        same && self.algorithm == Algorithm::OneShot && self.protocol != Protocol::Simple
    }
}

/// Payload up to which LL beats LL128: for two ranks, and for more, which read one line of everybody.
const LL_MOST: (usize, usize) = (256, 16);
/// Bytes up to which lines beat a slot and a counter.
const LL128_MOST: usize = 4 << 10;
/// Bytes up to which one shot beats two: for two ranks, and for more, which then use the boards.
const ONE_SHOT_MOST: (usize, usize) = (32 << 10, LL128_MOST);
/// Registered buffers are touched directly from here on.
const DIRECT_LEAST: usize = 256;
/// Plain buffers are pulled from here on: one copy by the kernel instead of two by us.
const PULL_LEAST: usize = 2 << 20;
/// An all_reduce is pulled below this size and by at most so many ranks; beyond, slots stay in the caches and pulled pages do not
/// (16 MiB: 2.9 against 4.8 ms for 2 ranks on 2 cores, 5.8 against 8.6 ms for 8 ranks on 16).
const PULL_ALL_REDUCE_BELOW: (usize, u32) = (8 << 20, 4);

impl Situation {
    /// Whether the choice needs [`Situation::pull`] to be known.
    pub fn asks_for_pull(&self) -> bool {
        self.pull.is_none() && self.backend == Some(Backend::Shm) && !self.mapped && self.gains_by_pull()
    }

    fn gains_by_pull(&self) -> bool {
        let (below, ranks) = PULL_ALL_REDUCE_BELOW;
        let few = self.collective != Collective::AllReduce || (self.block < below && self.ranks <= ranks);
        self.block >= PULL_LEAST && few
    }

    /// The choice.
    pub fn choose(&self) -> Choice {
        let algorithm = self.algorithm();
        Choice { algorithm, protocol: protocol(self.backend, self.ranks, self.message(algorithm)) }
    }

    fn algorithm(&self) -> Algorithm {
        let reducing = matches!(self.collective, Collective::AllReduce);
        if self.mapped && self.block >= DIRECT_LEAST {
            return Algorithm::Direct;
        }
        if self.pull == Some(true) && self.gains_by_pull() {
            return Algorithm::Pull;
        }
        let one_shot_most = if self.ranks > 2 { ONE_SHOT_MOST.1 } else { ONE_SHOT_MOST.0 };
        if reducing && self.block > one_shot_most {
            return Algorithm::TwoShot;
        }
        Algorithm::OneShot
    }

    /// Bytes of the longest message, if one round does it.
    fn message(&self, algorithm: Algorithm) -> usize {
        match algorithm {
            Algorithm::TwoShot | Algorithm::Ring => self.block.div_ceil(self.ranks.max(1) as usize),
            _ => self.block,
        }
    }

    /// The choice if the algorithm is given.
    ///
    /// # Errors
    /// `Unsupported` if the ranks' memory does not allow it; whether there is such a plan shows when it is made.
    pub fn with_algorithm(&self, algorithm: Algorithm) -> Result<Choice> {
        let allowed = match algorithm.needs() {
            Needs::Connections => true,
            Needs::MappedPeers => self.mapped,
            Needs::ReadablePeers => self.mapped || self.pull == Some(true),
        };
        if !allowed {
            return Err(Kind::Unsupported.into());
        }
        Ok(Choice { algorithm, protocol: protocol(self.backend, self.ranks, self.message(algorithm)) })
    }
}

/// The protocol for messages of this size.
pub fn protocol(backend: Option<Backend>, ranks: u32, message: usize) -> Protocol {
    let ll_most = if ranks > 2 { LL_MOST.1 } else { LL_MOST.0 };
    match backend {
        Some(Backend::Tcp) => Protocol::Simple,
        _ if message <= ll_most => Protocol::Ll,
        _ if message <= LL128_MOST => Protocol::Ll128,
        _ => Protocol::Simple,
    }
}
