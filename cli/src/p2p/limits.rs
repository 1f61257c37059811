//! `--limits`: what the same two cores allow, whatever the software.

use vervain_transport::host::{affinity, ping_pong};

use super::job::{Job, Table};
use crate::exit::Failure;
use crate::perf::human;
use crate::perf::limits::copy_rate;

/// What the machine allows.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Limits {
    /// Microseconds of a cache line between the two cores; `None` with one core.
    pub line: Option<f64>,
    /// 10^6 bytes a second that the initiator's core copies, by size.
    pub copies: Vec<(u64, f64)>,
}

/// Batches of round trips.
const BATCHES: usize = 15;
/// Copies of less would measure the clock.
const SMALLEST: u64 = 64 << 10;
/// Copies of more are as fast.
const LARGEST: u64 = 256 << 20;

/// Measure, before the target has anything to do.
pub fn measure(job: &Job) -> Result<Limits, Failure> {
    let cores = affinity::allowed_cores()?;
    let mut limits = Limits::default();
    if let (true, [first, second, ..]) = (job.tables.contains(&Table::Latency), &cores[..]) {
        limits.line = Some(ping_pong::one_way_nanoseconds(*first, *second, BATCHES)? / 1e3);
    }
    if job.tables.contains(&Table::Bandwidth) {
        for &size in job.sizes.iter().filter(|&&size| size >= SMALLEST) {
            if let Some(rate) = copy_rate(&cores[..1], size.min(LARGEST) as usize)? {
                limits.copies.push((size, rate * 1e3));
            }
        }
    }
    Ok(limits)
}

impl Limits {
    /// What one core copies of this size.
    pub fn copy(&self, size: u64) -> Option<f64> {
        self.copies.iter().find(|(of, _)| *of == size).map(|(_, rate)| *rate)
    }

    /// For the head of the tables.
    pub fn lines(&self) -> Vec<String> {
        let mut lines = vec![match self.line {
            Some(time) => format!("# limit: cache line, one way {time:.3} us"),
            None => "# limit: cache line n/a".into(),
        }];
        let copies = self.copies.iter();
        lines
            .extend(copies.map(|(size, rate)| format!("# limit: memcpy of {}, one core {rate:.0} MB/s", human(*size))));
        lines
    }
}
