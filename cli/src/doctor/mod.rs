//! `vervain doctor`: what this machine has, what it lacks, and which command would bring it.

mod finding;
mod libraries;
mod memory;
mod network;
mod processor;
mod pull;

use std::io::Write;

use finding::{Finding, State};

use crate::exit::{Failure, Status, conclude};

/// `vervain doctor`.
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Each line: what, then ok, warn or absent, then details, and the command that would change them.
Exit status: 0 if ranks can reach each other by shared memory or by sockets, else 1.")]
pub struct Options {
    /// Print JSON instead of lines
    #[arg(long)]
    json: bool,
    /// Read the memory of the process that started this one (how `pull` is tried)
    #[arg(long, hide = true, num_args = 2, value_names = ["PID", "ADDRESS"])]
    probe: Option<Vec<u64>>,
}

/// Look at everything and print it.
pub fn run(options: &Options) -> Status {
    if let Some([pid, address]) = options.probe.as_deref() {
        return pull::child(*pid, *address);
    }
    let findings = examine();
    let text =
        if options.json { as_json(&findings) } else { findings.iter().map(|finding| format!("{finding}\n")).collect() };
    if std::io::stdout().write_all(text.as_bytes()).is_err() {
        return Status::Failed;
    }
    conclude(verdict(&findings))
}

/// One finding for each thing that matters to vervain.
fn examine() -> Vec<Finding> {
    vec![
        processor::cores(),
        processor::vectors(),
        memory::shared(),
        pull::probe(),
        processor::membarrier(),
        network::sockets(),
        memory::huge_pages(),
        memory::locked(),
        libraries::verbs(),
        libraries::cuda(),
    ]
}

fn verdict(findings: &[Finding]) -> Result<Status, Failure> {
    let works = |name: &str| findings.iter().any(|finding| finding.name == name && finding.state != State::Absent);
    if works("shm") || works("tcp") {
        return Ok(Status::Fine);
    }
    Err(Failure::wrong("neither shared memory nor sockets work here; ranks cannot reach each other"))
}

fn as_json(findings: &[Finding]) -> String {
    let list: Vec<_> = findings.iter().map(Finding::to_json).collect();
    format!("{:#}\n", serde_json::Value::from(list))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_finding_has_a_name_and_a_detail() {
        let findings = examine();
        for finding in &findings {
            assert!(!finding.name.is_empty() && !finding.detail.is_empty(), "{finding:?}");
        }
        let names: Vec<_> = findings.iter().map(|finding| finding.name).collect();
        for name in ["cores", "shm", "pull", "tcp", "verbs", "cuda", "memlock"] {
            assert!(names.contains(&name), "{name}");
        }
    }

    #[test]
    fn one_way_to_reach_each_other_is_enough() {
        let finding = |name, state| Finding { state, ..Finding::ok(name, "detail") };
        let of = |shm, tcp| verdict(&[finding("shm", shm), finding("tcp", tcp)]);
        assert_eq!(of(State::Absent, State::Ok).unwrap(), Status::Fine);
        assert_eq!(of(State::Warn, State::Absent).unwrap(), Status::Fine);
        assert_eq!(of(State::Absent, State::Absent).unwrap_err().status(), Status::Wrong);
    }
}
