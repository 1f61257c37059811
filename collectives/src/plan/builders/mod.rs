//! Our own plans. Each is short; its doc counts what it moves over connections or between ranks' buffers, and a test checks
//! that count against the expanded plan.
//!
//! Counts are per round, with n ranks and blocks of B bytes. "Messages" and "bytes" are what all ranks together send over
//! connections; "remote bytes" are what ranks read or write in buffers of other ranks.
//!
//! Peers are visited in the order me + 1, me + 2, ..., so that not all ranks turn to the same one at once. Sources of a
//! reduction are in the order of the ranks, so that the result is the same bit for bit on every rank, whatever the algorithm.
//! The rings are the exception: chunk c is combined in the order in which it travels.

mod all_gather;
mod all_reduce;
mod all_to_all;
mod broadcast;
mod reduce;
mod reduce_scatter;

use super::{Algorithm, Builder, Condition, Expr, Operand, Plan, build};
use crate::Collective;

/// The plan of a collective by an algorithm, if there is one.
pub fn plan(collective: Collective, algorithm: Algorithm) -> Option<Plan> {
    let write: fn(&Builder) = match (collective, algorithm) {
        (Collective::AllReduce, Algorithm::Ring) => all_reduce::ring,
        (Collective::AllReduce, Algorithm::OneShot) => all_reduce::one_shot,
        (Collective::AllReduce, Algorithm::TwoShot) => all_reduce::two_shot,
        (Collective::AllReduce, Algorithm::Direct) => all_reduce::direct,
        (Collective::AllReduce, Algorithm::DirectOneShot) => all_reduce::direct_one_shot,
        (Collective::AllReduce, Algorithm::Pull) => all_reduce::pull,
        (Collective::AllGather, Algorithm::Ring) => all_gather::ring,
        (Collective::AllGather, Algorithm::OneShot) => all_gather::one_shot,
        (Collective::AllGather, Algorithm::Direct) => all_gather::direct,
        (Collective::AllGather, Algorithm::Pull) => all_gather::pull,
        (Collective::ReduceScatter, Algorithm::Ring) => reduce_scatter::ring,
        (Collective::ReduceScatter, Algorithm::OneShot) => reduce_scatter::one_shot,
        (Collective::ReduceScatter, Algorithm::Direct | Algorithm::Pull) => reduce_scatter::direct,
        (Collective::Broadcast, Algorithm::Ring) => broadcast::ring,
        (Collective::Broadcast, Algorithm::OneShot) => broadcast::one_shot,
        (Collective::Broadcast, Algorithm::Direct) => broadcast::direct,
        (Collective::Broadcast, Algorithm::Pull) => broadcast::pull,
        (Collective::Reduce, Algorithm::Ring) => reduce::ring,
        (Collective::Reduce, Algorithm::OneShot) => reduce::one_shot,
        (Collective::Reduce, Algorithm::Direct) => reduce::direct,
        (Collective::Reduce, Algorithm::Pull) => reduce::pull,
        (Collective::AllToAll, Algorithm::OneShot) => all_to_all::one_shot,
        (Collective::AllToAll, Algorithm::Direct) => all_to_all::direct,
        (Collective::AllToAll, Algorithm::Pull) => all_to_all::pull,
        (Collective::Barrier, Algorithm::OneShot) => Builder::barrier,
        _ => return None,
    };
    Some(build(&format!("{collective}-{algorithm}"), collective, write))
}

/// For each other rank, in the order me + 1, me + 2, ...
fn each_other<T>(p: &Builder, body: impl FnOnce(Expr) -> T) {
    p.each(p.ranks() - 1, |i| body(p.after(i + 1)));
}

/// An operand for each other rank, in the order me + 1, me + 2, ...
fn others(p: &Builder, operand: impl FnOnce(Expr) -> Operand) -> Operand {
    p.count(p.ranks() - 1).map(|i| operand(p.after(i + 1)))
}

/// `mine`, and what the others send, in the order of the ranks.
fn all_in_rank_order(p: &Builder, mine: Operand) -> [Operand; 3] {
    let below = p.count(p.rank()).map(|r| p.link(r));
    let above = p.count(p.ranks() - 1 - p.rank()).map(|i| p.link(p.rank() + 1 + i));
    [below, mine, above]
}

/// Whether there is only one rank.
fn alone(p: &Builder) -> Condition {
    Expr::from(p.ranks()).is(1)
}
