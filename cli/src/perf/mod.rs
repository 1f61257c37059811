//! `vervain perf`: how fast a collective is, and whether its data is right.
//!
//! With `--ranks N` this process only starts N others, which are this program again; each of those, and each process that a
//! launcher started, is one rank. Rank 0 prints.

mod arithmetic;
mod benchmark;
pub mod clock;
mod custom;
mod data;
mod exchange;
mod foreign;
mod invoke;
pub mod json;
pub mod limits;
mod memory;
mod options;
mod people;
mod plot;
mod settings;
pub mod sizes;
pub mod start;
mod sweep;
mod table;
mod timing;
mod verifiable;

use vervain_collectives::{Communicator, Rank};

pub use options::{Fabric, Options, OutputFile};
use people::Person;
pub use settings::algorithm;
use settings::{Roots, Settings};
pub use sizes::human;
use sweep::{Findings, Sweep};

use crate::exit::{Failure, Status, conclude};
use crate::progress::{Audience, Progress};

/// Do what the options ask for.
pub fn run(options: Options) -> Status {
    if options.method.limits {
        return conclude(limits::run(options.job.ranks, options.results.file.json.as_deref()));
    }
    let settings = match Settings::new(&options) {
        Ok(settings) => settings,
        Err(sentence) => return conclude(Err(Failure::usage(sentence))),
    };
    match start::role(&options) {
        Ok(start::Role::Parent(ranks)) => conclude(start::processes(ranks)),
        Ok(start::Role::Rank(join)) => start::as_rank(&settings, join, measure),
        Err(failure) => conclude(Err(failure)),
    }
}

/// One rank's whole run.
fn measure(communicator: &Communicator, settings: &Settings) -> Result<Status, Failure> {
    let started = clock::now();
    check_root(settings, communicator.ranks())?;
    let people = people::introduce(communicator, settings.pinning)?;
    check_memory(communicator, settings, &people)?;
    let mut sweep = Sweep::new(communicator, settings)?;
    let first = communicator.rank() == Rank::new(0);
    let audience = if first { Audience::Person } else { Audience::Nobody };
    let progress = Progress::new(sweep.rows().saturating_mul(settings.cycles.unwrap_or(1)), audience);
    if first {
        print_head(communicator, settings, &people, &progress);
    }
    let findings = sweep_all(&mut sweep, settings, &progress)?;
    if first {
        progress.line(&table::footer(findings.wrong, findings.mean_busbw()));
        if let Some(path) = &settings.json {
            json::write(path, &json::document(communicator, settings, &people, &findings, &started))?;
        }
        if let Some(path) = &settings.plot {
            plot::draw(path, settings.benchmark, communicator.ranks(), &findings.rows)?;
        }
    }
    Ok(if findings.wrong == 0 { Status::Fine } else { Status::Wrong })
}

/// All cycles; of endless ones only the last is kept.
fn sweep_all(sweep: &mut Sweep<'_>, settings: &Settings, progress: &Progress) -> Result<Findings, Failure> {
    let mut findings = Findings::default();
    let mut cycle = 0;
    while settings.cycles.is_none_or(|cycles| cycle < cycles) {
        if settings.cycles.is_none() {
            findings.rows.clear();
        }
        sweep.cycle(&mut findings, progress)?;
        cycle += 1;
    }
    Ok(findings)
}

/// Every rank refuses, before any has allocated, if one of them must.
fn check_memory(communicator: &Communicator, settings: &Settings, people: &[Person]) -> Result<(), Failure> {
    let ours = memory::check_available(settings, people::on_our_host(people, communicator.rank().get()));
    let refusals = exchange::sum(communicator, u64::from(ours.is_err()))?;
    ours.map_err(Failure::usage)?;
    match refusals {
        0 => Ok(()),
        _ => Err(Failure::usage("another host has too little memory for these sizes; lower -e/--maxbytes")),
    }
}

fn check_root(settings: &Settings, ranks: u32) -> Result<(), Failure> {
    match settings.roots {
        Roots::One(root) if settings.benchmark.has_root() && root >= ranks => {
            Err(Failure::usage(format!("-r/--root {root} is not one of the {ranks} ranks; they are numbered from 0")))
        }
        _ => Ok(()),
    }
}

fn print_head(communicator: &Communicator, settings: &Settings, people: &[Person], progress: &Progress) {
    let ranks = communicator.ranks();
    let on_host = people::on_our_host(people, 0);
    let place =
        if on_host == ranks { "on one host".to_owned() } else { format!("on several hosts, {on_host} on this one") };
    let fabric = communicator.backend().map_or_else(|| "none".to_owned(), |backend| backend.to_string());
    let registered = if settings.registered { "  registered buffers" } else { "" };
    let checked = if settings.checks > 0 { "checked" } else { "not checked" };
    let version = env!("CARGO_PKG_VERSION");
    let noun = if ranks == 1 { "rank" } else { "ranks" };
    progress.line(&format!(
        "# vervain {version}  {}  {ranks} {noun} {place}  fabric {fabric}{registered}  {checked}",
        settings.benchmark
    ));
    progress.line(&table::preamble(settings));
    progress.line("#\n# Using ranks");
    for person in people {
        progress.line(&person.line());
    }
    progress.line(&table::heading(settings));
}
