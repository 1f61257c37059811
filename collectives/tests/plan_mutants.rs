//! Every plan of our own, damaged in every small way, is refused.
//!
//! A mutant is one expanded step or operand dropped, doubled, exchanged with its neighbour, sent to another rank, or moved to another
//! chunk, on one rank. A few mutants are not wrong; each kind of these has its argument in [`may_pass`], and its proof is the verifier's
//! own run with contributions and clocks.

use vervain_collectives::plan::{self, Algorithm, Buffer, Place, Plan, Program, Step, builders};
use vervain_collectives::{Collective, Rank};

/// What was done to a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Damage {
    Drop,
    Double,
    Exchange,
    DropSource,
    DropDestination,
    DoubleSource,
    DoubleDestination,
    ExchangeSources,
    Redirect,
    Shift,
    Mark,
}

const ALL: [Damage; 11] = [
    Damage::Drop,
    Damage::Double,
    Damage::Exchange,
    Damage::DropSource,
    Damage::DropDestination,
    Damage::DoubleSource,
    Damage::DoubleDestination,
    Damage::ExchangeSources,
    Damage::Redirect,
    Damage::Shift,
    Damage::Mark,
];

/// The damaged steps, if the damage applies at this step.
fn damaged(steps: &[Step], index: usize, damage: Damage, program: &Program) -> Option<Vec<Step>> {
    let mut steps = steps.to_vec();
    match damage {
        Damage::Drop => drop(steps.remove(index)),
        Damage::Double => steps.insert(index, steps[index].clone()),
        Damage::Exchange if index + 1 < steps.len() && steps[index] != steps[index + 1] => steps.swap(index, index + 1),
        Damage::Exchange => return None,
        _ => damage_step(&mut steps[index], damage, program)?,
    }
    Some(steps)
}

fn damage_step(step: &mut Step, damage: Damage, program: &Program) -> Option<()> {
    let (ranks, me) = (program.ranks, program.rank);
    let another = |rank: Rank| {
        let next = Rank::new((rank.get() + 1) % ranks);
        if next == me { Rank::new((next.get() + 1) % ranks) } else { next }
    };
    match (step, damage) {
        (Step::Move { sources, .. }, Damage::DropSource) => drop(sources.pop()?),
        (Step::Move { destinations, .. }, Damage::DropDestination) => drop(destinations.pop()?),
        (Step::Move { sources, .. }, Damage::DoubleSource) => sources.push(*sources.first()?),
        (Step::Move { destinations, .. }, Damage::DoubleDestination) => destinations.push(*destinations.first()?),
        (Step::Move { sources, .. }, Damage::ExchangeSources) if sources.len() > 1 => sources.swap(0, 1),
        (Step::Move { complete, .. }, Damage::Mark) if !*complete => *complete = true,
        (Step::Signal { peer } | Step::Wait { peer }, Damage::Redirect) => *peer = changed(*peer, another(*peer))?,
        (Step::Move { sources, destinations, .. }, Damage::Redirect) => {
            let place = sources.iter_mut().chain(destinations).find(|place| !matches!(place, Place::Local { .. }))?;
            match place {
                Place::Connection { peer } => *peer = changed(*peer, another(*peer))?,
                Place::Direct { rank, .. } => *rank = changed(*rank, Rank::new((rank.get() + 1) % ranks))?,
                Place::Local { .. } => return None,
            }
        }
        (Step::Move { sources, destinations, .. }, Damage::Shift) => {
            let place =
                sources.iter_mut().chain(destinations).find(|place| !matches!(place, Place::Connection { .. }))?;
            let (Place::Local { chunk, .. } | Place::Direct { chunk, .. }) = place else { return None };
            *chunk += 1;
        }
        _ => return None,
    }
    Some(())
}

fn changed<T: PartialEq>(old: T, new: T) -> Option<T> {
    (old != new).then_some(new)
}

fn rooted(collective: Collective) -> Option<Rank> {
    matches!(collective, Collective::Broadcast | Collective::Reduce).then_some(Rank::new(1))
}

fn programs(plan: &Plan, ranks: u32) -> Vec<Program> {
    let root = rooted(plan.collective);
    (0..ranks).map(|rank| plan.expand(Rank::new(rank), ranks, root).unwrap()).collect()
}

/// Whether a mutant that passed may have: it is equivalent.
fn may_pass(damage: Damage, original: &Program, index: usize) -> bool {
    match damage {
        // Steps that touch nothing in common may come in any order: the run with contributions and clocks was their proof.
        Damage::Exchange => true,
        // A move within buffers gives the same result again, and what it wrote was not yet released.
        Damage::Double => !uses_connections(&original.lanes[0][index]),
        // Nothing but a reduction has an order, and only all_reduce promises the same one on every rank.
        Damage::ExchangeSources => original.collective != Collective::AllReduce || is_only_order(original, index),
        _ => false,
    }
}

fn uses_connections(step: &Step) -> bool {
    let Step::Move { sources, destinations, .. } = step else { return true };
    sources.iter().chain(destinations).any(|place| matches!(place, Place::Connection { .. }))
}

/// One rank computes the chunk and all others copy it: another order is still the same on every rank.
fn is_only_order(program: &Program, index: usize) -> bool {
    !matches!(&program.lanes[0][index], Step::Move { destinations, .. }
        if matches!(destinations[..], [Place::Local { buffer: Buffer::Output | Buffer::Scratch, .. }]) && program.chunks == 1)
}

#[test]
fn every_damaged_builder_is_refused() {
    let (mut mutants, mut equivalent) = (0, 0);
    for (&collective, &algorithm) in Collective::ALL.iter().flat_map(|c| Algorithm::ALL.iter().map(move |a| (c, a))) {
        let Some(plan) = builders::plan(collective, algorithm) else { continue };
        for ranks in [2, 3, 4] {
            let whole = programs(&plan, ranks);
            plan::verify_programs(&whole).unwrap_or_else(|defect| panic!("{defect}"));
            for (rank, index, damage) in places_to_damage(&whole) {
                let Some(steps) = damaged(&whole[rank].lanes[0], index, damage, &whole[rank]) else { continue };
                let mut broken = whole.clone();
                broken[rank].lanes[0] = steps;
                mutants += 1;
                if plan::verify_programs(&broken).is_ok() {
                    let step = &whole[rank].lanes[0][index];
                    assert!(
                        may_pass(damage, &whole[rank], index),
                        "{collective} {algorithm} {ranks}: {damage:?} at {rank}.{index}: {step}"
                    );
                    equivalent += 1;
                }
            }
        }
    }
    println!(
        "{mutants} mutants, all rejected but {equivalent}, which the run with contributions and clocks proves equivalent: reordered or repeated steps and sources"
    );
    assert!(mutants > 1000);
}

fn places_to_damage(programs: &[Program]) -> Vec<(usize, usize, Damage)> {
    let steps = programs
        .iter()
        .enumerate()
        .flat_map(|(rank, program)| (0..program.lanes[0].len()).map(move |step| (rank, step)));
    steps.flat_map(|(rank, step)| ALL.map(|damage| (rank, step, damage))).collect()
}
