//! A run as JSON.

use serde_json::{Value, json};

use super::bandwidth::Bandwidth;
use super::latency::Latency;
use super::limits::Limits;
use super::meet::Person;
use super::pair::Pair;
use crate::perf::json::framed;

/// What was measured.
#[derive(Debug, Default)]
pub struct Findings {
    /// The table of latencies.
    pub latencies: Vec<Latency>,
    /// The table of bandwidths.
    pub bandwidths: Vec<Bandwidth>,
    /// Wrong bytes.
    pub wrong: u64,
}

/// All of it.
pub fn document(
    pair: &Pair,
    people: [&Person; 2],
    fabric: &str,
    findings: &Findings,
    limits: Option<&Limits>,
    started: &str,
) -> Value {
    let results = json!({
        "config": pair.job,
        "fabric": fabric,
        "initiator": people[0],
        "target": people[1],
        "limits": limits.map(|limits| json!({
            "cache_line_one_way_us": limits.line,
            "memcpy": limits.copies.iter().map(|(size, rate)| json!({ "size": size, "mb_per_second": rate })).collect::<Vec<_>>(),
        })),
        "latency": findings.latencies.iter().map(latency).collect::<Vec<_>>(),
        "bandwidth": findings.bandwidths.iter().map(bandwidth).collect::<Vec<_>>(),
        "check": { "wrong_bytes": findings.wrong, "okay": findings.wrong == 0, "checked": pair.job.checks },
    });
    framed(started, results)
}

fn latency(line: &Latency) -> Value {
    json!({
        "size": line.size,
        "iterations": line.iterations,
        "half_round_trip": line.ways == 2,
        "min_us": line.one_way(line.times.min() as f64),
        "mean_us": line.one_way(line.times.mean()),
        "stdev_us": line.one_way(line.times.stdev()),
        "p50_us": line.percentile(50.0),
        "p90_us": line.percentile(90.0),
        "p99_us": line.percentile(99.0),
        "p99_9_us": line.percentile(99.9),
        "max_us": line.one_way(line.times.max() as f64),
    })
}

fn bandwidth(line: &Bandwidth) -> Value {
    json!({
        "size": line.size,
        "iterations": line.iterations,
        "peak_mb_per_second": line.peak,
        "average_mb_per_second": line.average,
        "million_per_second": line.rate,
    })
}
