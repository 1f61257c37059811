//! Who takes part: each rank's process, host and core, told to all.

use serde_json::{Value, json};
use vervain_collectives::{Communicator, Result};
use vervain_transport::host::affinity;

use super::exchange;
use crate::machine;

/// A rank, as it introduces itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Person {
    /// Its rank.
    pub rank: u32,
    /// Its process.
    pub pid: u32,
    /// Its core, if it is pinned to one.
    pub core: Option<u32>,
    /// Its host.
    pub host: String,
    /// The host's processor.
    pub processor: String,
}

/// Bytes of an introduction: three numbers, and two names cut to fit.
const LENGTH: usize = 12 + HOST + PROCESSOR;
const HOST: usize = 64;
const PROCESSOR: usize = 52;

/// Whether ranks stay on one core each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pinning {
    /// Each rank gets a core of its own, where its host has enough.
    OwnCore,
    /// The scheduler decides.
    Free,
}

/// Everybody's introduction, in rank order; settles each on its core on the way. All ranks call it together.
///
/// Threads that the communicator has started before stay free.
pub fn introduce(communicator: &Communicator, pinning: Pinning) -> Result<Vec<Person>> {
    let ours = Person {
        rank: communicator.rank().get(),
        pid: std::process::id(),
        core: None,
        host: machine::host_name(),
        processor: machine::processor(),
    };
    let introductions = exchange::all_gather(communicator, &ours.to_bytes())?;
    let mut people: Vec<Person> = introductions.iter().filter_map(|bytes| Person::from_bytes(bytes)).collect();
    let core = if pinning == Pinning::OwnCore { pin(&people, ours.rank) } else { None };
    let cores = exchange::numbers(communicator, core.map_or(u64::MAX, |core| core as u64))?;
    for (person, core) in people.iter_mut().zip(cores) {
        person.core = u32::try_from(core).ok();
    }
    Ok(people)
}

/// Settle this rank on its core, if its host has one for each of its ranks and lets us choose.
fn pin(people: &[Person], rank: u32) -> Option<usize> {
    let cores = affinity::allowed_cores().ok()?;
    let ranks = on_our_host(people, rank) as usize;
    let core = *cores.get(position_on_host(people, rank))?;
    (ranks <= cores.len() && affinity::pin_to(core).is_ok()).then_some(core)
}

/// How many lower ranks are on the host of this one.
fn position_on_host(people: &[Person], rank: u32) -> usize {
    let host = people.iter().find(|person| person.rank == rank).map(|person| &person.host);
    people.iter().filter(|person| person.rank < rank && Some(&person.host) == host).count()
}

/// How many ranks are on the host of this one.
pub fn on_our_host(people: &[Person], rank: u32) -> u32 {
    let ours = people.iter().find(|person| person.rank == rank).map(|person| &person.host);
    people.iter().filter(|person| Some(&person.host) == ours).count() as u32
}

impl Person {
    /// The line below `# Using ranks`.
    pub fn line(&self) -> String {
        let core = self.core.map_or_else(|| "any core".into(), |core| format!("core {core:>2}"));
        format!("#  Rank {:>2} Group  0 Pid {:>6} on {:>10} {core} {}", self.rank, self.pid, self.host, self.processor)
    }

    /// The entry in the JSON file.
    pub fn to_json(&self) -> Value {
        json!({
            "rank": self.rank,
            "group": 0,
            "pid": self.pid,
            "hostname": self.host,
            "device": self.core.map_or(-1, i64::from),
            "device_info": self.processor,
        })
    }

    fn to_bytes(&self) -> [u8; LENGTH] {
        let mut bytes = [0; LENGTH];
        let numbers = [self.rank, self.pid, self.core.unwrap_or(u32::MAX)];
        for (to, number) in bytes.chunks_exact_mut(4).zip(numbers) {
            to.copy_from_slice(&number.to_le_bytes());
        }
        put(&mut bytes[12..12 + HOST], &self.host);
        put(&mut bytes[12 + HOST..], &self.processor);
        bytes
    }

    fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let number = |at: usize| Some(u32::from_le_bytes(bytes.get(at..at + 4)?.try_into().ok()?));
        Some(Self {
            rank: number(0)?,
            pid: number(4)?,
            core: number(8).filter(|&core| core != u32::MAX),
            host: text(bytes.get(12..12 + HOST)?),
            processor: text(bytes.get(12 + HOST..LENGTH)?),
        })
    }
}

fn put(to: &mut [u8], text: &str) {
    let length = text.len().min(to.len());
    to[..length].copy_from_slice(&text.as_bytes()[..length]);
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).trim_end_matches(['\0', '\u{fffd}']).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn person(rank: u32, host: &str) -> Person {
        Person { rank, pid: 77, core: Some(3), host: host.into(), processor: "Some CPU @ 2 GHz".into() }
    }

    #[test]
    fn introductions_survive_the_trip() {
        let ours = person(2, "host0");
        assert_eq!(Person::from_bytes(&ours.to_bytes()), Some(ours.clone()));
        let bare = Person { core: None, ..ours };
        assert_eq!(Person::from_bytes(&bare.to_bytes()), Some(bare));
        assert_eq!(Person::from_bytes(&[0; LENGTH - 1]), None);
    }

    #[test]
    fn long_names_are_cut() {
        let long = person(0, &"h".repeat(HOST + 1));
        assert_eq!(Person::from_bytes(&long.to_bytes()).unwrap().host, "h".repeat(HOST));
    }

    #[test]
    fn hosts_are_counted_by_name() {
        let people = [person(0, "a"), person(1, "b"), person(2, "a")];
        assert_eq!((on_our_host(&people, 2), on_our_host(&people, 1), on_our_host(&people, 9)), (2, 1, 0));
        assert_eq!((position_on_host(&people, 2), position_on_host(&people, 1)), (1, 0));
    }
}
