//! `vervain p2p`: how fast transfers between two processes are, and whether their data is right.
//!
//! Without `--listen` and `--connect` this process only starts two others, which are this program again: the initiator, which
//! measures and prints, and the target. They [meet] over a socket, where the initiator says what is to be done; then each
//! connects its endpoint, and both go through the same lines ([`measure`]): a barrier, the timed part, a checked transfer.

mod bandwidth;
mod check;
mod job;
mod json;
mod latency;
mod limits;
mod meet;
mod options;
mod pair;
mod post;
mod settings;
mod start;
mod table;

use std::io::Write;

use check::Verdict;
use job::Table;
use json::Findings;
use limits::Limits;
use meet::Person;
pub use options::Options;
use pair::{Pair, Side};
use settings::Settings;

use crate::exit::{Failure, Status, conclude};
use crate::perf::clock;
use crate::progress::{Audience, Progress};

/// Do what the options ask for.
pub fn run(options: &Options) -> Status {
    match Settings::new(options) {
        Ok(settings) => conclude(start::run(&settings)),
        Err(sentence) => conclude(Err(Failure::usage(sentence))),
    }
}

/// Print a line that must be seen at once.
fn say(line: &str) {
    let mut out = std::io::stdout().lock();
    // nobody reads: nothing is lost
    let _ = writeln!(out, "{line}").and_then(|()| out.flush());
}

/// Our core, if there is only one.
fn only_core() -> Option<usize> {
    match vervain_transport::host::affinity::allowed_cores().as_deref() {
        Ok([core]) => Some(*core),
        _ => None,
    }
}

/// The whole run of one side that is connected.
fn measure(
    pair: &mut Pair,
    settings: &Settings,
    people: [&Person; 2],
    limits: Option<&Limits>,
) -> Result<Status, Failure> {
    let started = clock::now();
    let is_first = pair.side == Side::Initiator;
    let audience = if is_first { Audience::Person } else { Audience::Nobody };
    let progress = Progress::new((pair.job.tables.len() * pair.job.sizes.len()) as u64, audience);
    let explained = pair.end.explain(pair.peer)?;
    let fabric = explained.backend.to_string();
    if is_first {
        print_head(pair, people, &fabric, limits, &progress);
        if settings.explains {
            explained.to_string().lines().for_each(|line| progress.line(&format!("# {line}")));
        }
    }
    let findings = tables(pair, limits, &progress)?;
    pair.leave()?;
    if is_first {
        progress.line(&table::footer(pair.job.checks, findings.wrong));
        if let Some(path) = &settings.json {
            let document = json::document(pair, people, &fabric, &findings, limits, &started);
            crate::perf::json::write(path, &document)?;
        }
    }
    Ok(if findings.wrong == 0 { Status::Fine } else { Status::Wrong })
}

fn tables(pair: &mut Pair, limits: Option<&Limits>, progress: &Progress) -> Result<Findings, Failure> {
    let (mut findings, mut verdict) = (Findings::default(), Verdict::default());
    let is_first = pair.side == Side::Initiator;
    for table in pair.job.tables.clone() {
        if is_first {
            progress.line(&format!("#{}", table::heading(table, limits)));
        }
        for size in pair.job.sizes.clone() {
            progress.says(format!("{} of {}", pair.job.test.name(), crate::perf::human(size)));
            let text = match table {
                Table::Latency => latency::measure(pair, size)?.map(|line| {
                    let text = table::latency(&line, limits);
                    findings.latencies.push(line);
                    text
                }),
                Table::Bandwidth => bandwidth::measure(pair, size)?.map(|line| {
                    findings.bandwidths.push(line);
                    table::bandwidth(&line, limits)
                }),
            };
            text.iter().for_each(|text| progress.line(text));
            if pair.job.checks {
                verdict.check(pair, size)?;
            }
            progress.step();
        }
    }
    findings.wrong = verdict.wrong;
    Ok(findings)
}

fn print_head(pair: &Pair, people: [&Person; 2], fabric: &str, limits: Option<&Limits>, progress: &Progress) {
    let job = &pair.job;
    let mut words = vec![format!("fabric {fabric}")];
    if job.tables.contains(&Table::Bandwidth) {
        words.push(format!("depth {}", job.depth));
    }
    if job.batch > 1 {
        words.push(format!("batch {}", job.batch));
    }
    words.extend(job.paging.map(|paging| format!("pages {paging}")));
    for (is_set, word) in [
        (job.bidirectional, "both directions"),
        (job.notify, "by immediate"),
        (job.inline, "inline"),
        (!job.checks, "not checked"),
    ] {
        if is_set {
            words.push(word.into());
        }
    }
    let version = env!("CARGO_PKG_VERSION");
    progress.line(&format!("# vervain {version}  p2p {}  {}", job.test.name(), words.join("  ")));
    for (name, person) in ["initiator", "target"].into_iter().zip(people) {
        let core = person.core.map_or_else(|| "any core".into(), |core| format!("core {core}"));
        progress.line(&format!("#  {name:<9}  pid {:>7} on {}  {core}  {}", person.pid, person.host, person.processor));
    }
    limits.iter().flat_map(|limits| limits.lines()).for_each(|line| progress.line(&line));
}
