//! Time as an argument: machines take `now` and never read a clock, so that tests can run them on virtual time.

use core::time::Duration;

/// A point in time: nanoseconds since an origin that only its clock knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Time(u64);

impl Time {
    /// Later than everything: a deadline that never passes. For tests and idle waits; operations always have a real one.
    pub const NEVER: Time = Time(u64::MAX);

    /// The time this many nanoseconds after the origin.
    pub const fn from_nanos(nanos: u64) -> Self {
        Self(nanos)
    }

    /// Nanoseconds since the origin.
    pub const fn nanos(self) -> u64 {
        self.0
    }

    /// The time `duration` later, at most [`Time::NEVER`].
    #[must_use]
    pub const fn after(self, duration: Duration) -> Self {
        let nanos = duration.as_nanos();
        if nanos > u64::MAX as u128 {
            return Self::NEVER;
        }
        Self(self.0.saturating_add(nanos as u64))
    }

    /// How long from `earlier` to here; zero if `earlier` is later.
    pub const fn since(self, earlier: Time) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }

    /// The monotonic clock of this machine.
    #[cfg(feature = "std")]
    pub fn now() -> Self {
        let mut spec = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        // SAFETY: `spec` is a live timespec that the call fills in.
        unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut spec) };
        Self(spec.tv_sec as u64 * 1_000_000_000 + spec.tv_nsec as u64)
    }
}
