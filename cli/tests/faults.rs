//! What a user sees when a rank dies, and that nothing is left of the job.

mod common;

use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Command, Stdio};

use common::vervain;

/// The process numbers that the head of the table names, in rank order.
fn processes(lines: &mut impl Iterator<Item = String>, ranks: usize) -> Vec<String> {
    let named = lines.filter(|line| line.starts_with("#  Rank"));
    named.take(ranks).map(|line| line.split_whitespace().nth(6).unwrap().to_owned()).collect()
}

fn kill(signal: &str, pid: &str) {
    assert!(Command::new("kill").args([signal, pid]).status().unwrap().success());
}

#[test]
fn a_killed_rank_is_named_and_nothing_is_left() {
    let mut job = vervain("perf all_reduce --ranks 3 -b 64 -e 64 -N 0")
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(job.stdout.take().unwrap()).lines().map(Result::unwrap);
    let processes = processes(&mut lines, 3);
    // a row shows that they are at work
    assert!(lines.any(|line| !line.starts_with('#')));
    kill("-KILL", &processes[1]);
    lines.for_each(drop);
    let mut err = String::new();
    job.stderr.take().unwrap().read_to_string(&mut err).unwrap();
    assert_eq!(job.wait().unwrap().code(), Some(3), "{err}");
    assert!(err.contains("error: rank 1"), "{err}");
    assert!(err.contains("killed by signal 9"), "{err}");
    for pid in processes {
        assert!(!Path::new("/proc").join(&pid).exists(), "process {pid} is left");
    }
}

#[test]
fn an_interrupt_ends_all_ranks() {
    let mut job = vervain("perf all_reduce --ranks 2 -b 64 -e 64 -N 0").stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(job.stdout.take().unwrap()).lines().map(Result::unwrap);
    let processes = processes(&mut lines, 2);
    kill("-INT", &job.id().to_string());
    lines.for_each(drop);
    assert!(!job.wait().unwrap().success());
    for pid in processes {
        assert!(!Path::new("/proc").join(&pid).exists(), "process {pid} is left");
    }
}
