//! `--limits`: what this machine allows, whatever the software.
//!
//! A collective over shared memory cannot beat two things: the time of a cache line from core to core, and the rate at which
//! one core copies while all the others copy too. The bound of an all_reduce of S bytes is S over that rate, plus two one-way
//! times. System call and wake say what sleeping costs, where ranks outnumber cores.

use std::path::Path;
use std::sync::Barrier;
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use vervain_transport::host::{affinity, ping_pong};

use super::arithmetic::Distribution;
use super::sizes::human;
use super::{clock, json};
use crate::exit::{Failure, Status};
use crate::machine;
use crate::progress::{Audience, Progress};

/// Sizes of the copies.
const SIZES: [u64; 7] = [64 << 10, 256 << 10, 1 << 20, 4 << 20, 16 << 20, 64 << 20, 256 << 20];
/// How long the copies of one size go on, so that all cores copy at the same time.
const WINDOW: Duration = Duration::from_millis(60);
/// Batches of round trips for each pair of cores.
const BATCHES: usize = 15;

/// One way of a cache line, over all pairs of the cores in use.
#[derive(Clone, Debug, PartialEq)]
struct CacheLine {
    nearest: f64,
    median: f64,
    farthest: f64,
}

/// What one core copies while `cores` copy at once.
#[derive(Clone, Debug, PartialEq)]
struct CopyRate {
    cores: usize,
    bytes: u64,
    /// 10^9 bytes read (and as many written) a second, by one core: the median over cores.
    rate: f64,
}

/// Measure, print a table, and write JSON if asked for.
pub fn run(ranks: Option<u32>, json_file: Option<&Path>) -> Result<Status, Failure> {
    let allowed = affinity::allowed_cores()?;
    let cores: Vec<usize> = allowed.iter().copied().take(ranks.unwrap_or(u32::MAX) as usize).collect();
    let progress = Progress::new((cores.len() * SIZES.len() + 3) as u64, Audience::Person);
    progress.line(&format!("# vervain {}  limits of {}", env!("CARGO_PKG_VERSION"), machine::host_name()));
    progress.line(&format!("# {} of {} allowed cores, {}", cores.len(), allowed.len(), machine::processor()));
    let line = cache_line(&cores)?;
    progress.step();
    print_cache_line(&progress, line.as_ref());
    let call = system_call();
    progress.step();
    let wake = wake();
    progress.step();
    progress.line(&format!("{:<34}{:>9.3} us", "system call (getppid)", call));
    progress.line(&format!("{:<34}{wake:>9.3} us", "futex wake until the sleeper runs"));
    let rates = copy_rates(&cores, &progress)?;
    if let Some(path) = json_file {
        json::write(path, &document(&cores, line.as_ref(), call, wake, &rates))?;
    }
    Ok(Status::Fine)
}

fn print_cache_line(progress: &Progress, line: Option<&CacheLine>) {
    let Some(line) = line else {
        progress.line(&format!("{:<34}      n/a: one core only", "cache line, one way"));
        return;
    };
    for (name, nanoseconds) in [("nearest", line.nearest), ("median", line.median), ("farthest", line.farthest)] {
        let name = format!("cache line, one way, {name} pair");
        progress.line(&format!("{name:<34}{:>9.3} us", nanoseconds / 1e3));
    }
}

/// `None` with one core.
fn cache_line(cores: &[usize]) -> Result<Option<CacheLine>, Failure> {
    let mut times = Vec::new();
    for (index, &first) in cores.iter().enumerate() {
        for &second in &cores[index + 1..] {
            times.push(ping_pong::one_way_nanoseconds(first, second, BATCHES)?);
        }
    }
    let times = (!times.is_empty()).then(|| Distribution::new(times));
    Ok(times.map(|times| CacheLine { nearest: times.min(), median: times.median(), farthest: times.max() }))
}

/// Microseconds of the cheapest system call.
fn system_call() -> f64 {
    const CALLS: u32 = 20_000;
    best_of(5, || {
        let start = Instant::now();
        for _ in 0..CALLS {
            std::hint::black_box(std::os::unix::process::parent_id());
        }
        start.elapsed().as_secs_f64() * 1e6 / f64::from(CALLS)
    })
}

/// Microseconds from waking a sleeping thread until it runs: half a round trip between two threads that sleep in turn.
fn wake() -> f64 {
    const TRIPS: u32 = 500;
    // a wake that comes before the sleep is not lost, but two of them count as one: nobody sleeps for ever
    const LONGEST: Duration = Duration::from_millis(5);
    best_of(3, || {
        let asking = thread::current();
        thread::scope(|scope| {
            let answering = scope.spawn(move || {
                for _ in 0..TRIPS {
                    thread::park_timeout(LONGEST);
                    asking.unpark();
                }
            });
            let start = Instant::now();
            for _ in 0..TRIPS {
                answering.thread().unpark();
                thread::park_timeout(LONGEST);
            }
            start.elapsed().as_secs_f64() * 1e6 / f64::from(TRIPS) / 2.0
        })
    })
}

fn best_of(rounds: u32, measure: impl Fn() -> f64) -> f64 {
    (0..rounds).map(|_| measure()).fold(f64::INFINITY, f64::min)
}

/// A table of rates: a line for each size, a column for each number of copying cores.
fn copy_rates(cores: &[usize], progress: &Progress) -> Result<Vec<CopyRate>, Failure> {
    let counts: Vec<usize> = (1..=cores.len()).collect();
    let heads: String = counts.iter().map(|count| format!("{count:>8}")).collect();
    progress.line("#");
    progress.line("# copy rate of one core (GB/s) while so many cores copy at once");
    progress.line(&format!("# {:>10}{heads}", "size"));
    let mut rates = Vec::new();
    for bytes in SIZES {
        let mut line = format!("{:>12}", human(bytes));
        for &count in &counts {
            progress.says(format!("copies of {} on {count} cores", human(bytes)));
            let rate = if fits(bytes, count) { copy_rate(&cores[..count], bytes as usize)? } else { None };
            line += &rate.map_or_else(|| format!("{:>8}", "n/a"), |rate| format!("{rate:>8.2}"));
            rates.extend(rate.map(|rate| CopyRate { cores: count, bytes, rate }));
            progress.step();
        }
        progress.line(&line);
    }
    Ok(rates)
}

/// Whether source and destination of all cores fit what is free.
fn fits(bytes: u64, cores: usize) -> bool {
    machine::available_memory().is_none_or(|free| bytes * 2 * (cores as u64) <= free)
}

/// Copy on all these cores at once; the median over cores of each core's median rate. `None` if a thread could not start.
pub fn copy_rate(cores: &[usize], bytes: usize) -> Result<Option<f64>, Failure> {
    let barrier = Barrier::new(cores.len());
    let rates: Vec<f64> = thread::scope(|scope| {
        let barrier = &barrier;
        let threads: Vec<_> = cores.iter().map(|&core| scope.spawn(move || copy_on(core, bytes, barrier))).collect();
        threads
            .into_iter()
            .map(|thread| thread.join().unwrap_or(Err(vervain_collectives::Kind::Bug.into())))
            .collect::<Result<_, _>>()
    })?;
    Ok((!rates.is_empty()).then(|| Distribution::new(rates).median()))
}

fn copy_on(core: usize, bytes: usize, barrier: &Barrier) -> vervain_collectives::Result<f64> {
    let pinned = affinity::pin_to(core);
    // written by the thread that copies, so that the pages are near it
    let (source, mut destination) = (vec![1u8; bytes], vec![2u8; bytes]);
    // everybody comes here, whatever happened, because the others wait
    barrier.wait();
    pinned?;
    let begin = Instant::now();
    let mut times = Vec::new();
    while begin.elapsed() < WINDOW || times.len() < 3 {
        let start = Instant::now();
        destination.copy_from_slice(std::hint::black_box(&source));
        std::hint::black_box(&destination);
        times.push(start.elapsed().as_secs_f64());
    }
    Ok(bytes as f64 / Distribution::new(times).median() / 1e9)
}

fn document(cores: &[usize], line: Option<&CacheLine>, call: f64, wake: f64, rates: &[CopyRate]) -> Value {
    json!({
        "version": 1,
        "vervain_version": env!("CARGO_PKG_VERSION"),
        "time": clock::now(),
        "hostname": machine::host_name(),
        "processor": machine::processor(),
        "cores": cores,
        "cache_line_one_way_us": line.map(|line| json!({
            "nearest": line.nearest / 1e3,
            "median": line.median / 1e3,
            "farthest": line.farthest / 1e3,
        })),
        "system_call_us": call,
        "wake_us": wake,
        "copy_rate": rates.iter().map(|rate| json!({
            "cores": rate.cores,
            "bytes": rate.bytes,
            "gigabytes_per_second": rate.rate,
        })).collect::<Vec<_>>(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_core_copies_but_has_nobody_to_send_a_line_to() {
        let core = affinity::allowed_cores().unwrap()[0];
        assert!(copy_rate(&[core], 4096).unwrap().unwrap() > 0.0);
        assert_eq!(cache_line(&[core]).unwrap(), None);
    }

    #[test]
    fn the_file_names_every_figure_with_its_unit() {
        let rates = [CopyRate { cores: 2, bytes: 64, rate: 9.5 }];
        let line = CacheLine { nearest: 50.0, median: 60.0, farthest: 70.0 };
        let value = document(&[0, 1], Some(&line), 0.1, 2.0, &rates);
        assert_eq!(value["cache_line_one_way_us"]["nearest"], 0.05);
        assert_eq!(value["copy_rate"][0]["gigabytes_per_second"], 9.5);
        assert_eq!(document(&[0], None, 0.1, 2.0, &[])["cache_line_one_way_us"], Value::Null);
    }
}
