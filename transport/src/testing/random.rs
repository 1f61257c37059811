//! Chance from a seed: small, fast, the same on every machine, and good for nothing but tests.

use core::{ops::RangeInclusive, time::Duration};

/// A sequence that its seed determines (SplitMix64).
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// The sequence of this seed.
    pub const fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The next 64 bits.
    pub fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below `end`; 0 if `end` is 0.
    pub fn below(&mut self, end: u64) -> u64 {
        // the high half of the product: as even as 64 bits can make it
        ((u128::from(self.bits()) * u128::from(end)) >> 64) as u64
    }

    /// A duration within the range; its start if the range is empty.
    pub fn within(&mut self, range: &RangeInclusive<Duration>) -> Duration {
        let span = range.end().saturating_sub(*range.start());
        let nanos = u64::try_from(span.as_nanos()).unwrap_or(u64::MAX);
        range.start().saturating_add(Duration::from_nanos(self.below(nanos.saturating_add(1))))
    }

    /// Whether it happens this time.
    pub fn happens(&mut self, chance: Chance) -> bool {
        // what cannot happen draws nothing, so that a plan without a fault leaves the others' sequence alone
        chance.0 != 0 && self.below(1000) < u64::from(chance.0)
    }
}

/// How likely something is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Chance(u16);

impl Chance {
    /// It does not happen.
    pub const NEVER: Self = Self(0);
    /// It happens each time.
    pub const ALWAYS: Self = Self(1000);

    /// So many times in a thousand; at most always.
    pub const fn in_thousand(times: u16) -> Self {
        Self(if times > 1000 { 1000 } else { times })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_seed_gives_one_sequence() {
        let draw = |seed| {
            let mut random = Random::new(seed);
            [random.bits(), random.below(10), random.bits()]
        };
        assert_eq!(draw(5), draw(5));
        assert_ne!(draw(5), draw(6));
    }

    #[test]
    fn numbers_stay_in_their_ranges() {
        let mut random = Random::new(1);
        let range = Duration::from_nanos(3)..=Duration::from_nanos(5);
        let mut seen = [false; 3];
        for _ in 0..100 {
            let drawn = random.within(&range);
            assert!(range.contains(&drawn));
            seen[drawn.as_nanos() as usize - 3] = true;
            assert_eq!(random.below(1), 0);
            assert_eq!(random.below(0), 0);
        }
        assert_eq!(seen, [true; 3]);
        assert_eq!(random.within(&(Duration::ZERO..=Duration::MAX)).as_secs() >> 40, 0);
    }

    #[test]
    fn chances_are_kept() {
        let mut random = Random::new(2);
        let mut count = |chance| (0..10_000).filter(|_| random.happens(chance)).count();
        assert_eq!((count(Chance::NEVER), count(Chance::ALWAYS)), (0, 10_000));
        assert!((900..1100).contains(&count(Chance::in_thousand(100))));
    }
}
