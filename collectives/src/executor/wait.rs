//! How a blocked call waits: spin while an answer is likely within a cache-line time, then yield, then sleep.

use std::sync::OnceLock;

use vervain_transport::Time;
use vervain_transport::sync;

/// What to do before trying again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pause {
    /// Try again at once.
    Spin,
    /// Look at the rare things too: failures, links, the deadline.
    Look,
    /// The same, then sleep until woken.
    Sleep,
}

/// Tries before the first look around, with a core for every rank: about 20 us.
const SPINS: u32 = 4000;
/// The same when ranks share cores: the peer we wait for may need ours.
const SPINS_SHARED: u32 = 60;
/// Looks, each after a yield, before sleeping.
const YIELDS: u32 = 50;
/// Tries between two looks.
const LOOK_EVERY: u32 = 256;

/// Counts tries that brought nothing.
#[derive(Clone, Copy, Debug)]
pub struct Wait {
    tries: u32,
    yields: u32,
    spins: u32,
    /// When it began, once somebody looked.
    since: Option<Time>,
}

impl Wait {
    /// For a job that runs `local` ranks on this host.
    pub fn new(local: usize) -> Self {
        let spins = if local <= cores() { SPINS } else { SPINS_SHARED };
        Self { tries: 0, yields: 0, spins, since: None }
    }

    /// Something happened.
    #[inline]
    pub fn reset(&mut self) {
        (self.tries, self.yields) = (0, 0);
        self.since = None;
    }

    /// Nothing happened: what now.
    #[inline]
    pub fn pause(&mut self) -> Pause {
        self.tries += 1;
        if self.tries < self.spins {
            sync::spin_loop();
            return if self.tries.is_multiple_of(LOOK_EVERY) { Pause::Look } else { Pause::Spin };
        }
        if self.yields < YIELDS {
            self.yields += 1;
            sync::thread::yield_now();
            return Pause::Look;
        }
        Pause::Sleep
    }

    /// How long nothing has happened.
    pub fn idle(&mut self, now: Time) -> core::time::Duration {
        now.since(*self.since.get_or_insert(now))
    }
}

/// Cores that the ranks of this host share. A launcher that binds every rank to one core has a core for each.
fn cores() -> usize {
    static CORES: OnceLock<usize> = OnceLock::new();
    *CORES.get_or_init(|| match std::thread::available_parallelism().map_or(1, usize::from) {
        1 => online().unwrap_or(1),
        several => several,
    })
}

/// Cores of the machine, from a list such as `0-3,8`.
fn online() -> Option<usize> {
    let list = std::fs::read_to_string("/sys/devices/system/cpu/online").ok()?;
    count(&list)
}

fn count(list: &str) -> Option<usize> {
    list.trim().split(',').try_fold(0, |sum, range| {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let (first, last): (usize, usize) = (first.parse().ok()?, last.parse().ok()?);
        Some(sum + (last.checked_sub(first)? + 1))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn core_lists_are_counted_and_nonsense_is_not() {
        assert_eq!(count("0-15\n"), Some(16));
        assert_eq!(count("0,2-3,8"), Some(4));
        assert_eq!(count("0"), Some(1));
        assert_eq!(count(""), None);
        assert_eq!(count("3-1"), None);
    }
}
