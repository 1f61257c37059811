//! The clock around the calls.
//!
//! Back to back: a barrier, all iterations, then wall time over their number. After a barrier each: what a program sees that
//! meets its peers in step; the slowest rank counts, since all wait for it in the end.

use std::time::{Duration, Instant};

use vervain_collectives::{Communicator, Result};

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
    mut operation: impl FnMut() -> Result<()>,
) -> Result<Times> {
    let mut iteration = || (0..settings.aggregate).try_for_each(|_| operation());
    (0..settings.warmup).try_for_each(|_| iteration())?;
    communicator.barrier()?;
    let (total, samples) = match settings.timing {
        Timing::BackToBack => (back_to_back(settings.iterations, &mut iteration)?, vec![]),
        Timing::EachBackToBack => each(settings.iterations, || Ok(()), &mut iteration)?,
        Timing::EachAfterBarrier => each(settings.iterations, || communicator.barrier(), &mut iteration)?,
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

fn back_to_back(iterations: u64, iteration: &mut impl FnMut() -> Result<()>) -> Result<Duration> {
    let start = Instant::now();
    (0..iterations).try_for_each(|_| iteration())?;
    Ok(start.elapsed())
}

/// The time from the first iteration to the last, and of each.
fn each(
    iterations: u64,
    before: impl Fn() -> Result<()>,
    iteration: &mut impl FnMut() -> Result<()>,
) -> Result<(Duration, Vec<Duration>)> {
    let mut samples = Vec::with_capacity(iterations as usize);
    let begin = Instant::now();
    for _ in 0..iterations {
        before()?;
        let start = Instant::now();
        iteration()?;
        samples.push(start.elapsed());
    }
    Ok((begin.elapsed(), samples))
}
