//! Device FIFO: where its words lie, and how a trigger says that it is new.
//!
//! ```text
//! consumer's memory, words(capacity) words
//! byte 0             tail     triggers that are handled             written by the consumer alone          FF-6
//! byte 8             closed   not 0: nobody takes triggers here     written by the consumer alone          FF-9
//! byte 16 .. 128     0        reserved
//! byte 128 + 16 s    first    bits 0..63 data, bit 63 parity        written by the producer whose turn it is
//! byte 136 + 16 s    second   bits 0..63 data, bit 63 parity        slot s = position mod capacity         FF-1, FF-2
//!
//! producers' memory, PRODUCER_WORDS words
//! byte 0             head     positions claimed                     counted up by all producers            FF-3
//! byte 8             seen     a tail that some producer has seen    written by all producers               FF-8
//! byte 16 .. 128     0        reserved
//! ```
//! All words are little-endian, and both memories are 128-aligned. They are apart because a device counts fast in its own
//! memory only, and because no two kinds of device ever count on one word. The parity of lap 0 is 1, so that zeroed memory is
//! an empty FIFO; no slot is ever cleared.

use super::{LINE, LINE_WORDS};
use crate::Kind;

/// Bytes of one trigger.
pub const TRIGGER: usize = 16;
/// Words of the producers' memory.
pub const PRODUCER_WORDS: usize = LINE_WORDS;
/// The bit of both words that says which lap a trigger belongs to; the others are the caller's.
pub const PARITY: u64 = 1 << 63;

/// Word of the consumer's memory: the tail.
pub const TAIL: usize = 0;
/// Word of the consumer's memory: whether the FIFO is closed.
pub const CLOSED: usize = 1;
/// Word of the producers' memory: the head.
pub const HEAD: usize = 0;
/// Word of the producers' memory: a tail that was seen.
pub const SEEN: usize = 1;
/// Word of the consumer's memory: the first trigger.
const TRIGGERS: usize = LINE_WORDS;

const _: () = assert!(size_of::<Trigger>() == TRIGGER && align_of::<Trigger>() == TRIGGER);
const _: () = assert!(LINE.is_multiple_of(TRIGGER) && TRIGGERS * 8 == LINE && words(4) * 8 == LINE + 4 * TRIGGER);
const _: () = assert!(TAIL < TRIGGERS && CLOSED < TRIGGERS && HEAD < PRODUCER_WORDS && SEEN < PRODUCER_WORDS);

/// Words of the consumer's memory for this many triggers; saturates.
pub const fn words(capacity: usize) -> usize {
    capacity.saturating_mul(TRIGGER / 8).saturating_add(TRIGGERS)
}

/// What a producer says: two words of 63 bits, whose meaning is the caller's.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(C, align(16))]
pub struct Trigger {
    first: u64,
    second: u64,
}

impl Trigger {
    /// A trigger of these two words; `None` if one of them uses bit 63, which is the parity's.
    pub const fn new(first: u64, second: u64) -> Option<Self> {
        if (first | second) & PARITY == 0 { Some(Self { first, second }) } else { None }
    }

    /// The first word.
    pub const fn first(self) -> u64 {
        self.first
    }

    /// The second word.
    pub const fn second(self) -> u64 {
        self.second
    }

    /// The words as they lie in the slot of a position with this parity (FF-1).
    #[inline(always)]
    pub const fn emit(self, parity: Parity) -> [u64; 2] {
        [self.first | parity.0, self.second | parity.0]
    }

    /// What a slot says; `None` unless both words carry the parity (FF-1, FF-5).
    #[inline(always)]
    pub const fn parse([first, second]: [u64; 2], parity: Parity) -> Option<Self> {
        if !parity.is_of(first) || !parity.is_of(second) {
            return None;
        }
        Some(Self { first: first & !PARITY, second: second & !PARITY })
    }
}

/// The parity of a lap: bit 63 of its words, the others 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parity(u64);

impl Parity {
    /// Whether a word carries it.
    #[inline(always)]
    pub const fn is_of(self, word: u64) -> bool {
        word & PARITY == self.0
    }

    /// That of the laps before and after.
    #[must_use]
    pub const fn opposite(self) -> Self {
        Self(self.0 ^ PARITY)
    }
}

/// The number of a trigger, counted from the FIFO's begin. It wraps after 2^64 and is compared by difference.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Position(pub u64);

impl Position {
    /// The position so many triggers later.
    #[inline(always)]
    #[must_use]
    pub const fn plus(self, count: u64) -> Self {
        Self(self.0.wrapping_add(count))
    }

    /// How many triggers lie between an earlier position and this one.
    #[inline(always)]
    pub const fn since(self, earlier: Self) -> u64 {
        self.0.wrapping_sub(earlier.0)
    }

    /// Whether a tail covers this position (FF-6). The two are less than 2^63 apart.
    #[inline(always)]
    pub const fn is_covered_by(self, tail: Self) -> bool {
        tail.since(self.plus(1)) < 1 << 63
    }
}

/// How many triggers there is room for: a power of two.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capacity {
    shift: u32,
}

impl Capacity {
    /// A valid capacity.
    ///
    /// # Errors
    /// `InvalidArgument` unless it is a power of two below 2^63.
    pub const fn new(count: usize) -> Result<Self, Kind> {
        if !count.is_power_of_two() || count.trailing_zeros() > 62 {
            return Err(Kind::InvalidArgument);
        }
        Ok(Self { shift: count.trailing_zeros() })
    }

    /// The number itself.
    #[inline(always)]
    pub const fn get(self) -> u64 {
        1 << self.shift
    }

    /// The parity of the lap that a position belongs to (FF-2).
    #[inline(always)]
    pub const fn parity(self, position: Position) -> Parity {
        Parity(!(position.0 >> self.shift) << 63)
    }

    /// The word of the consumer's memory where the trigger of a position begins.
    #[inline(always)]
    pub const fn word(self, position: Position) -> usize {
        TRIGGERS + (position.0 & (self.get() - 1)) as usize * (TRIGGER / 8)
    }
}

#[cfg(all(test, feature = "std"))]
mod tests {
    use super::*;

    /// Capacities, and positions around every edge of their laps and of 64 bits.
    fn edges() -> impl Iterator<Item = (Capacity, Position)> {
        [1, 2, 8, 1 << 20].into_iter().flat_map(|count: u64| {
            let edges = [0, count, 1 << 31, 1 << 32, 1 << 63].into_iter();
            let around = edges.flat_map(|edge| (0..5).map(move |step| edge.wrapping_sub(2).wrapping_add(step)));
            around.map(move |at| (Capacity::new(count as usize).unwrap(), Position(at)))
        })
    }

    #[test]
    fn parity_differs_between_neighbouring_laps_and_not_within_one() {
        for (capacity, position) in edges() {
            let lap = Position(position.0 & !(capacity.get() - 1));
            let parity = capacity.parity(position);
            assert_eq!(parity, capacity.parity(lap), "FF-2: {position:?}");
            assert_eq!(parity, capacity.parity(lap.plus(capacity.get() - 1)), "FF-2: {position:?}");
            assert_eq!(parity.opposite(), capacity.parity(position.plus(capacity.get())), "FF-2: {position:?}");
        }
    }

    #[test]
    fn zeroed_memory_is_empty_in_the_first_lap() {
        for position in 0..8 {
            let parity = Capacity::new(8).unwrap().parity(Position(position));
            assert_eq!(Trigger::parse([0, 0], parity), None, "FF-2");
        }
    }

    #[test]
    fn a_trigger_needs_the_parity_in_both_words() {
        for (capacity, position) in edges() {
            let (trigger, parity) = (Trigger::new(3, !PARITY).unwrap(), capacity.parity(position));
            let [first, second] = trigger.emit(parity);
            assert_eq!(Trigger::parse([first, second], parity), Some(trigger), "FF-1");
            for torn in [[first ^ PARITY, second], [first, second ^ PARITY], [first ^ PARITY, second ^ PARITY]] {
                assert_eq!(Trigger::parse(torn, parity), None, "FF-1");
            }
        }
        assert_eq!([Trigger::new(PARITY, 0), Trigger::new(0, PARITY)], [None, None]);
    }

    #[test]
    fn slots_repeat_after_a_lap_and_stay_within_the_words() {
        for (capacity, position) in edges() {
            let word = capacity.word(position);
            assert!(word >= LINE_WORDS && word + 2 <= words(capacity.get() as usize));
            assert_eq!(word, capacity.word(position.plus(capacity.get())));
        }
    }

    #[test]
    fn a_tail_covers_what_lies_before_it_at_every_edge() {
        for (_, position) in edges() {
            assert!(!position.is_covered_by(position), "FF-6");
            assert!(!position.is_covered_by(Position(position.0.wrapping_sub(1))), "FF-6");
            assert!(position.is_covered_by(position.plus(1)) && position.is_covered_by(position.plus(1 << 62)), "FF-6");
        }
    }

    #[test]
    fn capacities_are_powers_of_two() {
        assert!([0, 3, 1 << 63, usize::MAX].map(Capacity::new).iter().all(Result::is_err));
        assert_eq!([1, 2, 1 << 62].map(|count| Capacity::new(count).unwrap().get()), [1, 2, 1 << 62]);
    }
}
