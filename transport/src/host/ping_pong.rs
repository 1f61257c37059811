//! How long a cache line takes from one core to another: the least latency that shared memory can have.

use core::time::Duration;

use super::affinity::pin_to;
use crate::sync::{AtomicU64, Ordering, spin_loop, thread};
use crate::{Result, Time};

/// A line of its own, and its neighbour, which the prefetcher fetches along.
#[repr(align(128))]
#[derive(Debug)]
struct Line(AtomicU64);

/// Round trips of one timed batch.
const TRIPS: u64 = 2_000;
/// A side that was not answered for so many looks gives its core away, so that two sides on one core make progress.
const PATIENCE: u32 = 10_000;

/// The time of one way between two cores, in nanoseconds: the median over `batches` batches of round trips, halved.
///
/// The cores must differ, or the scheduler is measured. Threads are pinned for the duration only.
pub fn one_way_nanoseconds(first: usize, second: usize, batches: usize) -> Result<f64> {
    let (ping, pong) = (Line(AtomicU64::new(0)), Line(AtomicU64::new(0)));
    let trips = TRIPS * batches as u64;
    let times = thread::scope(|scope| {
        let answering = scope.spawn(|| {
            let pinned = pin_to(second);
            // answer even when pinning failed: the other side waits for it
            for trip in 1..=trips {
                await_number(&ping, trip);
                // Relaxed: nothing but the number itself travels
                pong.0.store(trip, Ordering::Relaxed);
            }
            pinned
        });
        let asking = scope.spawn(|| {
            let pinned = pin_to(first);
            let times: Vec<Duration> = (0..batches as u64).map(|batch| batch_of_trips(batch, &ping, &pong)).collect();
            pinned.map(|()| times)
        });
        let answered = answering.join().unwrap_or(Err(crate::Kind::Bug.into()));
        answered.and(asking.join().unwrap_or(Err(crate::Kind::Bug.into())))
    })?;
    let mut one_way: Vec<f64> = times.iter().map(|time| time.as_nanos() as f64 / TRIPS as f64 / 2.0).collect();
    one_way.sort_by(f64::total_cmp);
    Ok(one_way.get(one_way.len() / 2).copied().unwrap_or(0.0))
}

fn batch_of_trips(batch: u64, ping: &Line, pong: &Line) -> Duration {
    let start = Time::now();
    for trip in batch * TRIPS + 1..=(batch + 1) * TRIPS {
        // Relaxed: nothing but the number itself travels
        ping.0.store(trip, Ordering::Relaxed);
        await_number(pong, trip);
    }
    Time::now().since(start)
}

/// Bounded by the other side, a thread of ours that only counts and cannot fail.
fn await_number(line: &Line, number: u64) {
    let mut looks = 0;
    // Relaxed: nothing else is read after it
    while line.0.load(Ordering::Relaxed) < number {
        looks += 1;
        if looks % PATIENCE == 0 {
            thread::yield_now();
        }
        spin_loop();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::affinity::allowed_cores;

    #[test]
    fn every_trip_is_answered() {
        let cores = allowed_cores().unwrap();
        if cores.len() < 2 {
            eprintln!("SKIPPED: one core only");
            return;
        }
        assert!(one_way_nanoseconds(cores[0], cores[1], 3).unwrap() > 0.0);
    }

    #[test]
    fn cores_that_do_not_exist_are_reported() {
        assert!(one_way_nanoseconds(usize::MAX, usize::MAX, 1).is_err());
    }
}
