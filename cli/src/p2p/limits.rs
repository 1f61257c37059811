//! `--limits`: what the same two cores allow, whatever the software.

use std::collections::BTreeSet;

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
    /// 10^6 bytes a second that the initiator's core copies, by the size of the copies.
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
    if let [first, second, ..] = cores[..] {
        limits.line = Some(ping_pong::one_way_nanoseconds(first, second, BATCHES)? / 1e3);
    }
    if job.tables.contains(&Table::Bandwidth) {
        let sizes: BTreeSet<u64> = job.sizes.iter().filter_map(|&size| copied(size)).collect();
        for size in sizes {
            if let Some(rate) = copy_rate(&cores[..1], size as usize)? {
                limits.copies.push((size, rate * 1e3));
            }
        }
    }
    Ok(limits)
}

/// The size of the copies that a transfer is compared with.
fn copied(size: u64) -> Option<u64> {
    (size >= SMALLEST).then_some(size.min(LARGEST))
}

impl Limits {
    /// What one core copies, for transfers of this size.
    pub fn copy(&self, size: u64) -> Option<f64> {
        let size = copied(size)?;
        self.copies.iter().find(|(of, _)| *of == size).map(|(_, rate)| *rate)
    }

    /// For the head of the tables.
    pub fn lines(&self) -> Vec<String> {
        let mut lines = vec![match self.line {
            Some(time) => format!("# limit: cache line, one way {time:.3} us"),
            None => "# limit: cache line n/a: one core only".into(),
        }];
        let copies = self.copies.iter();
        lines
            .extend(copies.map(|(size, rate)| format!("# limit: memcpy of {}, one core {rate:.0} MB/s", human(*size))));
        lines
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_was_measured_is_shown() {
        let job = super::super::settings::job("write --sizes 8,64K,256M,1G,4G --bandwidth").unwrap();
        let sizes: BTreeSet<u64> = job.sizes.iter().filter_map(|&size| copied(size)).collect();
        assert_eq!(Vec::from_iter(sizes), [SMALLEST, LARGEST]);
        let limits = Limits { line: None, copies: vec![(SMALLEST, 5.0), (LARGEST, 2.0)] };
        assert_eq!([8, SMALLEST, 1 << 20, 4 << 30].map(|size| limits.copy(size)), [None, Some(5.0), None, Some(2.0)]);
        assert_eq!(limits.lines().len(), 3);
    }

    #[test]
    fn bandwidth_alone_has_the_cache_line_too() {
        let job = super::super::settings::job("write -b 8 --bandwidth").unwrap();
        let cores = affinity::allowed_cores().unwrap().len();
        assert_eq!(measure(&job).unwrap().line.is_some(), cores > 1);
    }
}
