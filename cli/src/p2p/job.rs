//! What both sides must agree on. The initiator tells the target, which judges it again.

use core::fmt;
use core::str::FromStr;
use core::time::Duration;

use serde::{Deserialize, Serialize};
use vervain_transport::endpoint::MESSAGE;
use vervain_transport::fabric::tcp::MOST_SOCKETS;

use super::options::Test;
use crate::perf::{human, sizes};

/// One run: what is measured, and how.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Job {
    /// What is measured.
    pub test: Test,
    /// The lines of a table.
    pub sizes: Vec<u64>,
    /// Timed iterations, if their number is given.
    pub iterations: Option<u64>,
    /// Untimed ones before, if their number is given.
    pub warmup: Option<u64>,
    /// How long a line takes, if not so many iterations.
    pub duration: Option<f64>,
    /// Which tables.
    pub tables: Vec<Table>,
    /// Transfers in flight.
    pub depth: u32,
    /// Writes of one call.
    pub batch: u32,
    /// How a write is cut.
    pub paging: Option<Paging>,
    /// Both directions at once.
    pub bidirectional: bool,
    /// Writes come with an immediate.
    pub notify: bool,
    /// Short writes are passed by value.
    pub inline: bool,
    /// Sockets of tcp.
    pub sockets: u32,
    /// Data is checked.
    pub checks: bool,
    /// One wrong byte is planted.
    pub inject: bool,
    /// Seconds until a wait counts as failed.
    pub timeout: u64,
}

/// One of the two tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Table {
    /// Times of single transfers.
    Latency,
    /// Many transfers in flight.
    Bandwidth,
}

/// Pages of a write: their size, and how far apart they lie at the target.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Paging {
    /// Bytes of a page.
    pub page: u64,
    /// From one page to the next, in bytes.
    pub stride: u64,
}

/// Largest transfer.
pub const LARGEST: u64 = 4 << 30;
/// More transfers than this are not in flight.
pub const DEEPEST: u32 = 1 << 16;
/// Pages of one write.
const MOST_PAGES: u64 = 1 << 24;
/// Lines of a table.
const MOST_SIZES: usize = 1000;
/// A day.
const LONGEST: f64 = 86_400.0;
/// Stays untouched behind what is written.
pub const GUARD: u64 = 64;

impl Job {
    /// Whether it makes sense, or the sentence that says why not.
    pub fn check(&self) -> Result<(), String> {
        self.check_numbers()?;
        self.check_shape()?;
        self.sizes.iter().try_for_each(|&size| self.check_size(size))?;
        if !self.inject {
            return Ok(());
        }
        if !self.checks {
            return Err("--inject-error tries the check, which -c 0 turns off".into());
        }
        if self.sizes.iter().all(|&size| size == 0) {
            return Err("--inject-error: 0 bytes have no data that could be wrong".into());
        }
        Ok(())
    }

    fn check_numbers(&self) -> Result<(), String> {
        if self.sizes.is_empty() || self.sizes.len() > MOST_SIZES {
            return Err(format!("{} sizes; measure 1 to {MOST_SIZES} of them", self.sizes.len()));
        }
        if self.iterations == Some(0) {
            return Err("-n/--iters must be 1 or more".into());
        }
        if self.duration.is_some_and(|seconds| !(seconds > 0.0 && seconds <= LONGEST)) {
            return Err("--duration must be more than 0 seconds, and a day at most".into());
        }
        if self.depth == 0 || self.depth > DEEPEST {
            return Err(format!("--depth {}: 1 to {DEEPEST} transfers can be in flight", self.depth));
        }
        if self.batch == 0 || self.batch > self.depth {
            return Err(format!("--batch {}: give 1 to --depth {}", self.batch, self.depth));
        }
        if !(1..=MOST_SOCKETS).contains(&self.sockets) {
            return Err(format!("--sockets {}: a pair has 1 to {MOST_SOCKETS}", self.sockets));
        }
        if self.timeout == 0 {
            return Err("-T/--timeout must be 1 second or more".into());
        }
        Ok(())
    }

    fn check_shape(&self) -> Result<(), String> {
        let only_write = [
            (self.batch > 1, "--batch"),
            (self.paging.is_some(), "--paged"),
            (self.notify, "--notify"),
            (self.inline, "--inline"),
        ];
        for (is_set, option) in only_write {
            if is_set && self.test != Test::Write {
                return Err(format!("{option} is about writes; {} has no such thing", self.test.name()));
            }
        }
        if self.inline && self.paging.is_some() {
            return Err("--inline and --paged: pages are not passed by value; keep one".into());
        }
        if self.batch > 1 && (self.inline || self.paging.is_some()) {
            return Err("--batch starts plain writes; leave --inline and --paged out".into());
        }
        match self.paging {
            Some(Paging { page, stride }) if page == 0 || stride < page || stride > LARGEST => {
                Err(format!("--paged {page}:{stride}: a page is 1 byte or more, and the stride a page or more"))
            }
            _ => Ok(()),
        }
    }

    fn check_size(&self, size: u64) -> Result<(), String> {
        if size > LARGEST {
            return Err(format!("{size} bytes are more than {}, the largest transfer", human(LARGEST)));
        }
        if self.test == Test::Send && size > MESSAGE as u64 {
            return Err(format!("a message of {size} bytes: send takes {MESSAGE} at most; measure write instead"));
        }
        if self.test == Test::Atomic && size != 8 {
            return Err(format!("{size} bytes: an atomic has 8"));
        }
        let Some(Paging { page, stride }) = self.paging else { return Ok(()) };
        if !size.is_multiple_of(page) {
            return Err(format!("{size} bytes are no whole pages of --paged {page}"));
        }
        if size / page > MOST_PAGES || (size / page).saturating_mul(stride) > 4 * LARGEST {
            return Err(format!("{size} bytes in pages of {page}, {stride} apart, are too many or too far apart"));
        }
        Ok(())
    }

    /// The largest size.
    pub fn largest(&self) -> u64 {
        self.sizes.iter().copied().max().unwrap_or(0)
    }

    /// How many bytes of the target's memory a transfer reaches over.
    pub fn extent(&self, size: u64) -> u64 {
        match self.paging {
            Some(Paging { page, stride }) if size > 0 => (size / page - 1) * stride + page,
            _ => size,
        }
    }

    /// Whether a transfer is announced by an immediate. Nobody sees 0 bytes come.
    pub fn has_immediate(&self, size: u64) -> bool {
        self.test == Test::Write && (self.notify || size == 0)
    }

    /// How many iterations one line has, if their number ends it.
    pub fn iterations(&self, table: Table, size: u64) -> u64 {
        let (most, bytes) = match table {
            Table::Latency => (10_000, 1 << 30),
            Table::Bandwidth => (100_000, 4 << 30),
        };
        self.iterations.unwrap_or((bytes / size.max(1)).clamp(5, most))
    }

    /// How many come before the timed ones.
    pub fn warmup(&self, size: u64) -> u64 {
        // warming up must not take longer than measuring
        self.warmup.unwrap_or(((1 << 28) / size.max(1)).clamp(1, 100))
    }

    /// Bytes of the memory from which the initiator (or both) writes, or into which it reads.
    pub fn source_bytes(&self) -> u64 {
        self.largest() + GUARD
    }

    /// Bytes of the memory that the target (or both) opens.
    pub fn landing_bytes(&self) -> u64 {
        self.sizes.iter().map(|&size| self.extent(size)).max().unwrap_or(0) + GUARD
    }

    /// Whether a side has both memories.
    pub fn is_symmetric(&self) -> bool {
        self.bidirectional || (self.test == Test::Write && self.tables.contains(&Table::Latency))
    }

    /// Memory that both sides need together, in bytes.
    pub fn bytes_of_both(&self) -> u64 {
        let one = self.source_bytes() + self.landing_bytes();
        if self.is_symmetric() { 2 * one } else { one }
    }

    /// How long a wait may take.
    pub fn patience(&self) -> Duration {
        Duration::from_secs(self.timeout)
    }
}

impl FromStr for Paging {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (page, stride) = match text.split_once(':') {
            Some((page, stride)) => (sizes::parse(page)?, Some(sizes::parse(stride)?)),
            None => (sizes::parse(text)?, None),
        };
        Ok(Self { page, stride: stride.unwrap_or(page) })
    }
}

impl fmt::Display for Paging {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.page, self.stride)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_end_where_the_last_one_does() {
        let job = super::super::settings::job("write --paged 4K:64K --sizes 4K,8K,1M").unwrap();
        assert_eq!(job.extent(4096), 4096);
        assert_eq!(job.extent(8192), (64 << 10) + 4096);
        assert_eq!(job.landing_bytes(), 255 * (64 << 10) + 4096 + GUARD);
        assert_eq!("8:16".parse(), Ok(Paging { page: 8, stride: 16 }));
        assert_eq!("8".parse(), Ok(Paging { page: 8, stride: 8 }));
    }

    #[test]
    fn large_sizes_have_fewer_iterations_but_some() {
        let job = super::super::settings::job("write --sizes 0,8,1G,4G").unwrap();
        assert_eq!(job.iterations(Table::Latency, 0), 10_000);
        assert_eq!(job.iterations(Table::Bandwidth, 8), 100_000);
        assert_eq!(job.iterations(Table::Bandwidth, 4 << 30), 5);
        assert_eq!((job.warmup(0), job.warmup(4 << 30)), (100, 1));
        let given = super::super::settings::job("write -n 7 -w 500").unwrap();
        assert_eq!((given.iterations(Table::Latency, 4 << 30), given.warmup(4 << 30)), (7, 500));
    }
}
