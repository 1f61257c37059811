//! The figures of a row: how many bytes a call moved, and what bandwidth that means. Pure; no clock.
//!
//! `algbw` is the call's bytes over its time, whatever the number of ranks. `busbw` multiplies it by a factor for the
//! collective, so that the figure can be compared with what a link or a memory bus does, and across numbers of ranks. With one
//! rank nothing crosses anything, and there is no such figure.

use core::time::Duration;

use super::benchmark::Benchmark;

/// How many of `algbw` cross each rank's link, for this many ranks. `None` for one rank.
pub fn bus_factor(benchmark: Benchmark, ranks: u32) -> Option<f64> {
    if ranks < 2 {
        return None;
    }
    let ranks = f64::from(ranks);
    match benchmark {
        Benchmark::AllReduce => Some(2.0 * (ranks - 1.0) / ranks),
        Benchmark::AllGather | Benchmark::ReduceScatter | Benchmark::AllToAll => Some((ranks - 1.0) / ranks),
        Benchmark::Broadcast | Benchmark::Reduce | Benchmark::SendRecv => Some(1.0),
        Benchmark::Barrier => None,
    }
}

/// The bytes that `algbw` counts: the whole buffer, over all blocks where there are several. `None` beyond 64 bits.
pub fn algorithm_bytes(benchmark: Benchmark, ranks: u32, count: u64, element: u64) -> Option<u64> {
    let blocks = if benchmark.is_blocked() { u64::from(ranks) } else { 1 };
    count.checked_mul(element)?.checked_mul(blocks)
}

/// Microseconds of one call of `calls` that took `total` together. 0 calls took no time.
///
/// Nanoseconds of a `Duration` fit 96 bits and calls 64, so nothing wraps; the quotient is rounded once.
pub fn microseconds_per_call(total: Duration, calls: u64) -> f64 {
    if calls == 0 {
        return 0.0;
    }
    total.as_secs_f64() * 1e6 / calls as f64
}

/// Gigabytes (10^9) per second. No time means no figure, and 0 stands for it as it does for no bytes.
pub fn gigabytes_per_second(bytes: u64, microseconds: f64) -> f64 {
    if microseconds <= 0.0 { 0.0 } else { bytes as f64 / microseconds / 1e3 }
}

/// Percentiles of times that are sorted here.
#[derive(Clone, Debug, PartialEq)]
pub struct Distribution {
    sorted: Vec<f64>,
}

impl Distribution {
    /// The distribution of these times.
    pub fn new(mut times: Vec<f64>) -> Self {
        times.sort_by(f64::total_cmp);
        Self { sorted: times }
    }

    /// The smallest time that at least this share of all times does not exceed; 0 if there are none.
    pub fn percentile(&self, percent: f64) -> f64 {
        let rank = (percent / 100.0 * self.sorted.len() as f64).ceil() as usize;
        self.sorted.get(rank.saturating_sub(1)).or(self.sorted.last()).copied().unwrap_or(0.0)
    }

    /// The time in the middle.
    pub fn median(&self) -> f64 {
        self.sorted.get(self.sorted.len() / 2).copied().unwrap_or(0.0)
    }

    /// The shortest.
    pub fn min(&self) -> f64 {
        self.sorted.first().copied().unwrap_or(0.0)
    }

    /// The longest.
    pub fn max(&self) -> f64 {
        self.sorted.last().copied().unwrap_or(0.0)
    }

    /// The mean.
    pub fn mean(&self) -> f64 {
        if self.sorted.is_empty() { 0.0 } else { self.sorted.iter().sum::<f64>() / self.sorted.len() as f64 }
    }

    /// Standard deviation over the mean, in per cent.
    pub fn variation_percent(&self) -> f64 {
        let mean = self.mean();
        if mean <= 0.0 {
            return 0.0;
        }
        let variance = self.sorted.iter().map(|time| (time - mean).powi(2)).sum::<f64>() / self.sorted.len() as f64;
        variance.sqrt() / mean * 100.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bus_factors_are_those_of_the_definition() {
        let table = [
            (Benchmark::AllReduce, [None, Some(1.0), Some(4.0 / 3.0), Some(1.75)]),
            (Benchmark::AllGather, [None, Some(0.5), Some(2.0 / 3.0), Some(0.875)]),
            (Benchmark::ReduceScatter, [None, Some(0.5), Some(2.0 / 3.0), Some(0.875)]),
            (Benchmark::AllToAll, [None, Some(0.5), Some(2.0 / 3.0), Some(0.875)]),
            (Benchmark::Broadcast, [None, Some(1.0), Some(1.0), Some(1.0)]),
            (Benchmark::Reduce, [None, Some(1.0), Some(1.0), Some(1.0)]),
            (Benchmark::SendRecv, [None, Some(1.0), Some(1.0), Some(1.0)]),
            (Benchmark::Barrier, [None, None, None, None]),
        ];
        for (benchmark, factors) in table {
            for (ranks, expected) in [1, 2, 3, 8].into_iter().zip(factors) {
                assert_eq!(bus_factor(benchmark, ranks), expected, "{benchmark} {ranks}");
            }
        }
    }

    #[test]
    fn bytes_are_those_of_the_whole_buffer_and_never_wrap() {
        assert_eq!(algorithm_bytes(Benchmark::AllReduce, 8, 10, 4), Some(40));
        assert_eq!(algorithm_bytes(Benchmark::AllGather, 8, 10, 4), Some(320));
        assert_eq!(algorithm_bytes(Benchmark::AllReduce, 1, 0, 4), Some(0));
        assert_eq!(algorithm_bytes(Benchmark::AllReduce, 1, u64::MAX / 4, 4), Some(u64::MAX / 4 * 4));
        assert_eq!(algorithm_bytes(Benchmark::AllReduce, 1, u64::MAX / 4 + 1, 4), None);
        assert_eq!(algorithm_bytes(Benchmark::AllToAll, 3, u64::MAX / 8, 4), None);
    }

    #[test]
    fn a_minute_of_n_calls_is_a_minute_over_n_each() {
        let minute = Duration::from_secs(60);
        for calls in [1u64, 20, 1_000, 123_457, 1_000_000_000_000] {
            let expected = 60e6 / calls as f64;
            assert!((microseconds_per_call(minute, calls) - expected).abs() <= expected * 1e-12, "{calls}");
        }
        assert_eq!(microseconds_per_call(minute, 0), 0.0);
    }

    #[test]
    fn neither_huge_counts_nor_long_runs_wrap_or_go_negative() {
        let longest = Duration::MAX;
        for calls in [1, u64::from(u32::MAX) + 1, 1 << 40, u64::MAX] {
            let time = microseconds_per_call(longest, calls);
            assert!(time.is_finite() && time > 0.0);
            assert!(gigabytes_per_second(u64::MAX, time) >= 0.0);
        }
        assert!((microseconds_per_call(Duration::from_secs(2 * 86_400), 1_000_000_000_000) - 0.1728).abs() < 1e-9);
    }

    #[test]
    fn bandwidth_of_nothing_is_nothing() {
        assert_eq!(gigabytes_per_second(0, 1.0), 0.0);
        assert_eq!(gigabytes_per_second(1 << 30, 0.0), 0.0);
        assert_eq!(gigabytes_per_second(1_000_000_000, 1_000_000.0), 1.0);
    }

    #[test]
    fn percentiles_are_times_that_occurred() {
        let hundred = Distribution::new((1..=100).rev().map(f64::from).collect());
        assert_eq!((hundred.min(), hundred.median(), hundred.max()), (1.0, 51.0, 100.0));
        assert_eq!(hundred.percentile(99.0), 99.0);
        assert_eq!(hundred.percentile(0.0), 1.0);
        assert_eq!(hundred.percentile(100.0), 100.0);
        let one = Distribution::new(vec![3.0]);
        assert_eq!((one.median(), one.percentile(99.0), one.variation_percent()), (3.0, 3.0, 0.0));
        let none = Distribution::new(vec![]);
        assert_eq!((none.median(), none.percentile(99.0), none.mean(), none.variation_percent()), (0.0, 0.0, 0.0, 0.0));
    }
}
