//! What can be seen without running anything.

use std::collections::{BTreeMap, HashSet};

use vervain_transport::Rank;

use super::super::defect::{Defect, Reason, Site};
use super::super::program::{Buffer, Place, Program, Step};
use super::cluster::{At, Cluster};
use crate::Collective;

/// All checks.
pub(super) fn all(cluster: &Cluster) -> Result<(), Defect> {
    shape(cluster)?;
    cluster.programs.iter().try_for_each(|program| entries(cluster, program))?;
    for (at, step) in cluster.steps() {
        check_step(cluster, at, step).map_err(|reason| cluster.defect(at, reason))?;
    }
    messages(cluster)?;
    signals(cluster)
}

/// Every rank has the same chunks, scratch, lanes and entries.
fn shape(cluster: &Cluster) -> Result<(), Defect> {
    let first = numbers(&cluster.programs[0]);
    for program in &cluster.programs {
        for ((what, value), (_, expected)) in numbers(program).into_iter().zip(first) {
            if value != expected {
                let site = Site { rank: Some(program.rank), ..cluster.site() };
                return Err(Defect::new(site, Reason::Shape { what, value, expected }));
            }
        }
    }
    Ok(())
}

fn numbers(program: &Program) -> [(&'static str, u32); 4] {
    [
        ("the number of chunks", program.chunks),
        ("the number of scratch chunks", program.scratch),
        ("the number of lanes", program.lanes.len() as u32),
        ("the number of enters", u32::from(program.is_direct())),
    ]
}

/// Enter and Leave come as one pair or not at all, and direct places lie between; all of it in lane 0.
fn entries(cluster: &Cluster, program: &Program) -> Result<(), Defect> {
    let mut state = Entry::Outside;
    for (lane, steps) in program.lanes.iter().enumerate() {
        for (step, instruction) in steps.iter().enumerate() {
            let at = At { rank: program.rank, lane, step };
            let local = match instruction {
                Step::Move { sources, destinations, .. } => !sources.iter().chain(destinations).any(is_direct),
                _ => false,
            };
            if lane > 0 && !local {
                return Err(cluster.defect(at, Reason::NotInFirstLane));
            }
            state = match (state, instruction) {
                (Entry::Outside, Step::Enter) => Entry::Inside,
                (Entry::Inside, Step::Leave) => Entry::Left,
                (_, Step::Enter | Step::Leave) => return Err(cluster.defect(at, Reason::Unpaired)),
                (Entry::Outside | Entry::Left, Step::Move { .. }) if !local => {
                    return Err(cluster.defect(at, Reason::NotEntered));
                }
                (state, _) => state,
            };
        }
    }
    if matches!(state, Entry::Inside) {
        let site = Site { rank: Some(program.rank), ..cluster.site() };
        return Err(Defect::new(site, Reason::Unpaired));
    }
    Ok(())
}

#[derive(Clone, Copy)]
enum Entry {
    Outside,
    Inside,
    Left,
}

fn is_direct(place: &Place) -> bool {
    matches!(place, Place::Direct { .. })
}

fn check_step(cluster: &Cluster, at: At, step: &Step) -> Result<(), Reason> {
    match step {
        Step::Move { sources, destinations, .. } => check_move(cluster, at, sources, destinations),
        Step::Signal { peer } | Step::Wait { peer } if *peer == at.rank => Err(Reason::ToItself),
        Step::Signal { .. } | Step::Wait { .. } | Step::Enter | Step::Leave => Ok(()),
    }
}

fn check_move(cluster: &Cluster, at: At, sources: &[Place], destinations: &[Place]) -> Result<(), Reason> {
    if sources.is_empty() {
        return Err(Reason::NoSource);
    }
    if destinations.is_empty() {
        return Err(Reason::NoDestination);
    }
    if sources.len() > 1 && !reduces(cluster.collective) {
        return Err(Reason::Reduces(cluster.collective));
    }
    for place in sources.iter().chain(destinations) {
        check_place(cluster, at.rank, place)?;
    }
    if destinations.iter().any(|place| matches!(cluster.chunk_at(at.rank, place), Some((_, Buffer::Input, _)))) {
        return Err(Reason::WritesInput);
    }
    distinct(cluster, at, sources)?;
    distinct(cluster, at, destinations)
}

/// No operand occurs twice: sources would count twice, destinations be written twice, and a Move takes one message of a connection.
fn distinct(cluster: &Cluster, at: At, places: &[Place]) -> Result<(), Reason> {
    let mut seen = HashSet::new();
    let all_new = places.iter().all(|place| match place {
        Place::Connection { peer } => seen.insert((*peer, None)),
        place => cluster
            .chunk_at(at.rank, place)
            .is_none_or(|(owner, buffer, chunk)| seen.insert((owner, Some((buffer, chunk))))),
    });
    if all_new { Ok(()) } else { Err(Reason::Repeated) }
}

fn check_place(cluster: &Cluster, rank: Rank, place: &Place) -> Result<(), Reason> {
    match place {
        Place::Connection { peer } if *peer == rank => return Err(Reason::ToItself),
        Place::Direct { buffer: Buffer::Scratch, .. } => return Err(Reason::DirectScratch),
        _ => {}
    }
    let Some((owner, buffer, chunk)) = cluster.chunk_at(rank, place) else { return Ok(()) };
    let chunks = cluster.chunks_of(owner, buffer);
    if chunk < chunks { Ok(()) } else { Err(Reason::NoSuchChunk { owner, buffer, chunk, chunks }) }
}

fn reduces(collective: Collective) -> bool {
    matches!(collective, Collective::AllReduce | Collective::ReduceScatter | Collective::Reduce)
}

/// Every connection delivers in a round as many messages as it is given.
fn messages(cluster: &Cluster) -> Result<(), Defect> {
    let mut counts: BTreeMap<(Rank, Rank, usize), (usize, usize)> = BTreeMap::new();
    for (at, step) in cluster.steps() {
        let Step::Move { sources, destinations, .. } = step else { continue };
        for peer in connections(sources) {
            counts.entry((peer, at.rank, at.lane)).or_default().1 += 1;
        }
        for peer in connections(destinations) {
            counts.entry((at.rank, peer, at.lane)).or_default().0 += 1;
        }
    }
    for ((from, to, lane), (sent, received)) in counts {
        if sent != received {
            let site = Site { rank: Some(from), ..cluster.site() };
            return Err(Defect::new(site, Reason::Messages { to, lane, sent, received }));
        }
    }
    Ok(())
}

/// The peers of the connections among these places.
fn connections(places: &[Place]) -> impl Iterator<Item = Rank> {
    places.iter().filter_map(|place| match place {
        Place::Connection { peer } => Some(*peer),
        _ => None,
    })
}

/// Every signal is waited for in its round.
fn signals(cluster: &Cluster) -> Result<(), Defect> {
    let mut counts: BTreeMap<(Rank, Rank), (usize, usize)> = BTreeMap::new();
    for (at, step) in cluster.steps() {
        match step {
            Step::Signal { peer } => counts.entry((at.rank, *peer)).or_default().0 += 1,
            Step::Wait { peer } => counts.entry((*peer, at.rank)).or_default().1 += 1,
            _ => {}
        }
    }
    for ((from, to), (signalled, awaited)) in counts {
        if signalled != awaited {
            let site = Site { rank: Some(from), ..cluster.site() };
            return Err(Defect::new(site, Reason::Signals { to, signalled, awaited }));
        }
    }
    Ok(())
}
