//! The clock around the calls.
//!
//! Back to back: a barrier, all iterations, then wall time over their number. After a barrier each: what a program sees that
//! meets its peers in step; the slowest rank counts, since all wait for it in the end.

use core::time::Duration;

use vervain_collectives::{Communicator, Result};
use vervain_transport::Time;

use super::arithmetic::{Distribution, microseconds_per_call};
use super::exchange;
use super::settings::{Settings, Timing};

/// What the clock said, the same on every rank.
#[derive(Clone, Debug, PartialEq)]
pub struct Times {
    /// Microseconds of one call.
    pub per_call: f64,
    /// Microseconds of one call in each iteration, of the slowest rank.
    pub each: Option<Distribution>,
}

/// Time `operation` as the settings say. All ranks call it together.
pub fn measure(
    communicator: &Communicator,
    settings: &Settings,
    operation: impl FnMut() -> Result<()>,
) -> Result<Times> {
    measure_by(Time::now, communicator, settings, operation)
}

/// The same by any clock.
fn measure_by(
    clock: impl Fn() -> Time,
    communicator: &Communicator,
    settings: &Settings,
    mut operation: impl FnMut() -> Result<()>,
) -> Result<Times> {
    let mut iteration = || (0..settings.aggregate).try_for_each(|_| operation());
    (0..settings.warmup).try_for_each(|_| iteration())?;
    communicator.barrier()?;
    let (total, samples) = match settings.timing {
        Timing::BackToBack => (back_to_back(clock, settings.iterations, &mut iteration)?, vec![]),
        Timing::EachBackToBack => each(clock, settings.iterations, || Ok(()), &mut iteration)?,
        Timing::EachAfterBarrier => each(clock, settings.iterations, || communicator.barrier(), &mut iteration)?,
    };
    let calls = settings.iterations * settings.aggregate;
    let mean = exchange::average(communicator, settings.average, microseconds_per_call(total, calls))?;
    if !settings.timing.has_samples() {
        return Ok(Times { per_call: mean, each: None });
    }
    let ours: Vec<f64> = samples.iter().map(|&sample| microseconds_per_call(sample, settings.aggregate)).collect();
    let slowest = Distribution::new(exchange::greatest(communicator, &ours)?);
    let per_call = if settings.timing == Timing::EachAfterBarrier { slowest.median() } else { mean };
    Ok(Times { per_call, each: Some(slowest) })
}

fn back_to_back(
    clock: impl Fn() -> Time,
    iterations: u64,
    iteration: &mut impl FnMut() -> Result<()>,
) -> Result<Duration> {
    let start = clock();
    (0..iterations).try_for_each(|_| iteration())?;
    Ok(clock().since(start))
}

/// The time from the first iteration to the last, and of each.
fn each(
    clock: impl Fn() -> Time,
    iterations: u64,
    before: impl Fn() -> Result<()>,
    iteration: &mut impl FnMut() -> Result<()>,
) -> Result<(Duration, Vec<Duration>)> {
    let mut samples = Vec::with_capacity(iterations as usize);
    let begin = clock();
    for _ in 0..iterations {
        before()?;
        let start = clock();
        iteration()?;
        samples.push(clock().since(start));
    }
    Ok((clock().since(begin), samples))
}

#[cfg(test)]
mod tests {
    use core::cell::Cell;
    use std::thread;

    use clap::Parser;
    use vervain_collectives::Config;

    use super::*;
    use crate::perf::options::Options;
    use crate::perf::settings::Average;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        options: Options,
    }

    fn settings(line: &str) -> Settings {
        let words = ["perf", "all_reduce"].into_iter().chain(line.split_whitespace());
        Settings::new(&Line::parse_from(words).options).unwrap()
    }

    /// What each rank's clock shows of a job whose rank r needs `nanos(r, call)` for a call, warm-up calls too.
    fn shown(ranks: u32, settings: &Settings, nanos: impl Fn(u32, u64) -> u64 + Sync) -> Vec<Times> {
        let communicators = Communicator::init_all(ranks, &Config::default()).unwrap();
        let one = |communicator: Communicator| {
            let (time, calls) = (Cell::new(1u64 << 40), Cell::new(0));
            let call = || {
                time.set(time.get() + nanos(communicator.rank().get(), calls.get()));
                calls.set(calls.get() + 1);
                Ok(())
            };
            let times = measure_by(|| Time::from_nanos(time.get()), &communicator, settings, call).unwrap();
            assert_eq!(calls.get(), (settings.warmup + settings.iterations) * settings.aggregate);
            times
        };
        thread::scope(|scope| {
            let threads: Vec<_> = communicators.into_iter().map(|each| scope.spawn(|| one(each))).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        })
    }

    const MINUTE: u64 = 60_000_000_000;

    #[test]
    fn n_calls_in_a_minute_are_n_calls_in_a_minute() {
        for calls in [1, 20, 1000, 120_000] {
            for timing in ["", "-I 1", "--per-iteration"] {
                for warmup in [0, 1, 7] {
                    let settings = settings(&format!("-n {calls} -w {warmup} {timing}"));
                    // a warm-up that takes an hour does not count
                    let nanos = |_, call| if call < warmup { 60 * MINUTE } else { MINUTE / calls };
                    let times = shown(1, &settings, nanos).remove(0);
                    assert_eq!(times.per_call, 60e6 / calls as f64, "{calls} {timing}");
                    if let Some(each) = times.each {
                        assert_eq!((each.min(), each.max()), (times.per_call, times.per_call));
                    }
                }
            }
        }
    }

    #[test]
    fn operations_of_an_iteration_share_its_time() {
        for timing in ["", "-I 1", "--per-iteration"] {
            let settings = settings(&format!("-n 10 -m 6 -w 2 {timing}"));
            let times = shown(1, &settings, |_, _| MINUTE / 60).remove(0);
            assert_eq!(times.per_call, 1e6);
        }
    }

    #[test]
    fn every_rank_shows_the_time_of_those_who_were_asked_for() {
        for (average, expected) in
            [(Average::Rank0, 1.0), (Average::Mean, 2.0), (Average::Least, 1.0), (Average::Greatest, 3.0)]
        {
            let settings = Settings { average, ..settings("-n 5 -w 1") };
            let times = shown(3, &settings, |rank, _| 1000 * u64::from(rank + 1));
            assert!(times.iter().all(|times| times.per_call == expected), "{average:?}: {times:?}");
        }
    }

    #[test]
    fn after_a_barrier_the_slowest_rank_of_each_iteration_counts() {
        // rank 0 is slow in the first of three iterations, rank 1 in the others
        let slow = |rank, call| if (call == 0) == (rank == 0) { 9000 } else { 1000 };
        for times in shown(2, &settings("-n 3 -w 0 --per-iteration"), slow) {
            let each = times.each.unwrap();
            assert_eq!((times.per_call, each.min(), each.max()), (9.0, 9.0, 9.0));
        }
    }
}
