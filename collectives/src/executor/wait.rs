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

/// Cores that this process may use.
fn cores() -> usize {
    static CORES: OnceLock<usize> = OnceLock::new();
    *CORES.get_or_init(|| std::thread::available_parallelism().map_or(1, usize::from))
}
