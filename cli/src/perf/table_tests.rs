//! The table's lines as they are printed, and the published tables recomputed.

use std::path::PathBuf;

use clap::Parser;

use super::*;
use crate::perf::arithmetic::{bus_factor, gigabytes_per_second};
use crate::perf::benchmark::Benchmark;
use crate::perf::options::Options;

#[derive(Parser)]
struct Perf {
    #[command(flatten)]
    options: Options,
}

fn settings(line: &str) -> Settings {
    let words = core::iter::once("perf").chain(line.split_whitespace());
    Settings::new(&Perf::try_parse_from(words).unwrap().options).unwrap()
}

fn figures(time: f64, algbw: f64, busbw: Option<f64>) -> Figures {
    Figures { time, algbw, busbw, wrong: Some(0), each: None }
}

fn row() -> Row {
    Row {
        size: 1 << 20,
        count: 1 << 18,
        datatype: "float",
        op: "sum",
        root: -1,
        out_of_place: Some(figures(127.651, 8.2145, Some(14.375))),
        in_place: Some(figures(0.4049, 0.0198, Some(0.0297))),
        timestamp: None,
    }
}

#[test]
fn lines_have_the_known_columns() {
    let settings = settings("all_reduce");
    assert_eq!(
        line(&row(), &settings),
        "     1048576        262144     float     sum      -1   127.65    8.21   14.38       0     0.40    0.02    0.03       0"
    );
    assert_eq!(line(&row(), &settings).split_whitespace().count(), 13);
}

#[test]
fn heads_stand_above_their_columns() {
    let settings = settings("all_reduce -I 1 -S 1");
    let each = Some(Distribution::new(vec![1.0, 2.0]));
    let figures = Figures { each, ..figures(1.0, 1.0, Some(1.0)) };
    let row = Row { in_place: Some(figures), timestamp: Some("2026-11-30 12:00:00".into()), ..row() };
    let line = line(&row, &settings);
    let heading = heading(&settings);
    let heads = heading.lines().nth(2).unwrap();
    assert_eq!(line.len(), heads.len(), "{heads}\n{line}");
    for (at, head) in ends(heads) {
        assert!(line[..at].ends_with(|c: char| !c.is_whitespace()), "{head} is not right-aligned:\n{heads}\n{line}");
    }
}

/// Where each word of a line ends.
fn ends(line: &str) -> Vec<(usize, &str)> {
    let end = |word: &str| word.as_ptr() as usize + word.len() - line.as_ptr() as usize;
    line.trim_start_matches('#').split_whitespace().map(|word| (end(word), word)).collect()
}

#[test]
fn what_is_not_measured_says_so() {
    let settings = settings("all_to_all -c 0");
    let unchecked = Figures { wrong: None, ..figures(3.0, 1.0, None) };
    let row = Row { op: "none", out_of_place: Some(unchecked), in_place: None, ..row() };
    assert_eq!(
        line(&row, &settings),
        "     1048576        262144     float    none      -1     3.00    1.00     n/a     N/A      N/A     N/A     N/A     N/A"
    );
}

#[test]
fn numbers_keep_their_places() {
    for (number, width, text) in [
        (0.0, 7, "0.00"),
        (9_999.99, 7, "9999.99"),
        (9_999.996, 7, "10000.0"),
        (99_999.96, 7, "100000"),
        (1_234_567.0, 7, "1234567"),
        (12_345_678.0, 7, "1.2e7"),
        (999.99, 6, "999.99"),
        (2_821_923.32, 6, "2.8e6"),
    ] {
        assert_eq!(fixed(number, width), text);
        assert!(fixed(number, width).len() <= width);
    }
}

#[test]
fn footers_are_those_that_scripts_look_for() {
    assert_eq!(footer(0, Some(5.07658)), "# Out of bounds values : 0 OK\n# Avg bus bandwidth    : 5.07658\n#");
    assert_eq!(footer(3, None), "# Out of bounds values : 3 FAILED\n# Avg bus bandwidth    : n/a\n#");
    for (number, text) in
        [(0.0, "0"), (202_818.4, "202818"), (1.66510, "1.6651"), (0.001_234_567, "0.00123457"), (100.0, "100")]
    {
        assert_eq!(significant(number), text);
    }
}

#[test]
fn preamble_names_the_method() {
    let text = preamble(&settings("all_reduce -b 8 -e 64M -f 4"));
    assert!(text.starts_with(
        "# nThread 1 nGpus 1 minBytes 8 maxBytes 67108864 step: 4(factor) warmup iters: 1 iters: 20 agg iters: 1"
    ));
    assert!(preamble(&settings("all_reduce --per-iteration")).contains("median"));
}

/// What is written about each published table: name, collective, ranks.
const PUBLISHED: [(&str, Benchmark, u32); 15] = [
    ("2080ti-1gpu-pcie3-nop2p-reduce.txt", Benchmark::Reduce, 1),
    ("2080ti-2gpu-pcie3-nop2p-all_gather.txt", Benchmark::AllGather, 2),
    ("2080ti-2gpu-pcie3-nop2p-broadcast.txt", Benchmark::Broadcast, 2),
    ("a100-2x-p4d-eks-efa-allreduce.txt", Benchmark::AllReduce, 16),
    ("dgx-a100-2node-8x200g-ib-k8s-ring-allreduce.txt", Benchmark::AllReduce, 16),
    ("dgx-a100-4node-slurm-allreduce.txt", Benchmark::AllReduce, 32),
    ("dgx-roce-sriov-k8s-allreduce.txt", Benchmark::AllReduce, 16),
    ("gb200-1440gpu-20rack-coreweave-allreduce.txt", Benchmark::AllReduce, 1440),
    // 144 by its title; the printed figures follow from 128 only
    ("gb200-144gpu-2rack-coreweave-allreduce.txt", Benchmark::AllReduce, 128),
    ("gb200-nvl72-1rack-coreweave-allreduce.txt", Benchmark::AllReduce, 72),
    ("h100-2node-oci-roce-cx7-allreduce.txt", Benchmark::AllReduce, 16),
    ("h100-2x-a3-megagpu-tcpxo-allgather.txt", Benchmark::AllGather, 16),
    ("h100-2x-a3-megagpu-tcpxo-allreduce.txt", Benchmark::AllReduce, 16),
    ("h100-2x-p5-k8s-efa-allreduce.txt", Benchmark::AllReduce, 16),
    ("ndv4-a100-8gpu-broadcast.txt", Benchmark::Broadcast, 8),
];

#[test]
fn published_tables_follow_from_their_sizes_and_times() {
    let Some(corpus) = std::env::var_os("VERVAIN_CORPUS") else {
        eprintln!("SKIPPED: VERVAIN_CORPUS is not set; published tables of nccl-tests were not recomputed");
        return;
    };
    for (name, benchmark, ranks) in PUBLISHED {
        let text = std::fs::read_to_string(PathBuf::from(&corpus).join("nccl-tests").join(name)).unwrap();
        let checked: usize = text.lines().map(|line| recompute(line, name, benchmark, ranks)).sum();
        assert!(checked >= 3, "{name}: only {checked} rows were understood");
    }
}

/// Recompute the bandwidths of one line, if it is a row. Returns how many rows that was.
fn recompute(line: &str, name: &str, benchmark: Benchmark, ranks: u32) -> usize {
    let words: Vec<&str> = line.split_whitespace().filter(|word| !word.starts_with('[')).collect();
    let Some(size) = words.first().and_then(|word| word.parse::<u64>().ok()) else { return 0 };
    // old tables have no root or no operation: the figures begin at the first number with a fraction, or at a long time
    let Some(first) = (2..words.len()).find(|&at| words[at].contains('.')) else { return 0 };
    let first = if words[first - 1].parse::<f64>().is_ok_and(|time| time > 1000.0) { first - 1 } else { first };
    for half in [&words[first..], &words[first + 4..]] {
        check_half(half, size, benchmark, ranks).unwrap_or_else(|problem| panic!("{name}: {problem}\n{line}"));
    }
    1
}

fn check_half(half: &[&str], size: u64, benchmark: Benchmark, ranks: u32) -> Result<(), String> {
    let number = |at: usize| half[at].parse::<f64>().map_err(|error| format!("{}: {error}", half[at]));
    let (time, algbw, busbw) = (number(0)?, number(1)?, number(2)?);
    // printed to the last digit: half a unit of the time, and half a hundredth of the bandwidth
    let unit = half[0].split_once('.').map_or(1.0, |(_, decimals)| 0.1f64.powi(decimals.len() as i32));
    let expected = gigabytes_per_second(size, time);
    let tolerance = |value: f64| value * unit / 2.0 / time + 0.0051;
    if (expected - algbw).abs() > tolerance(expected) {
        return Err(format!("algbw {expected} from size and time, {algbw} printed"));
    }
    // one rank: the tool printed algbw; there is no such figure
    let Some(factor) = bus_factor(benchmark, ranks) else { return Ok(()) };
    if (expected * factor - busbw).abs() > tolerance(expected * factor) {
        return Err(format!("busbw {} from size and time, {busbw} printed", expected * factor));
    }
    Ok(())
}
