//! What a chunk holds: whose contributions, to which chunk, combined in which order.

use vervain_transport::Rank;

use super::super::defect::Reason;

/// The symbolic content of a chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Value {
    /// Which input chunk, counted over all blocks.
    pub chunk: u32,
    /// Of which ranks.
    pub ranks: Set,
    /// Fingerprint of the expression that combined them.
    pub order: u64,
}

/// A set of ranks: exact up to 256 ranks, above that the sum of a random 128-bit number per rank, in which a rank that is missing or
/// counted twice shows but for luck.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Set {
    Exact([u64; 4]),
    Sum(u128),
}

impl Value {
    /// What `rank` of `ranks` brings.
    pub fn of(rank: Rank, ranks: u32, chunk: u32) -> Self {
        let order = mix(u64::from(rank.get()) + 1);
        Self { chunk, ranks: Set::of(rank, ranks), order }
    }

    /// Both, in this order.
    pub fn and(self, other: Self) -> Result<Self, Reason> {
        if self.chunk != other.chunk {
            return Err(Reason::Mixed(self.chunk, other.chunk));
        }
        let order = mix(self.order.rotate_left(17).wrapping_add(mix(other.order)));
        Ok(Self { chunk: self.chunk, ranks: self.ranks.and(other.ranks)?, order })
    }
}

impl Set {
    pub fn of(rank: Rank, ranks: u32) -> Self {
        if ranks > EXACT {
            return Set::Sum(number(rank));
        }
        let mut words = [0; 4];
        words[rank.index() / 64] = 1 << (rank.index() % 64);
        Set::Exact(words)
    }

    pub fn all(ranks: u32) -> Self {
        let every = || (0..ranks).map(Rank::new);
        if ranks > EXACT {
            return Set::Sum(every().map(number).fold(0, u128::wrapping_add));
        }
        let mut words = [0; 4];
        every().for_each(|rank| words[rank.index() / 64] |= 1 << (rank.index() % 64));
        Set::Exact(words)
    }

    fn and(self, other: Self) -> Result<Self, Reason> {
        match (self, other) {
            (Set::Exact(left), Set::Exact(right)) => {
                let both: [u64; 4] = core::array::from_fn(|i| left[i] & right[i]);
                match first(both) {
                    Some(rank) => Err(Reason::Twice(rank)),
                    None => Ok(Set::Exact(core::array::from_fn(|i| left[i] | right[i]))),
                }
            }
            (Set::Sum(left), Set::Sum(right)) => Ok(Set::Sum(left.wrapping_add(right))),
            _ => Err(Reason::Incomplete),
        }
    }

    /// What is wrong with this set where `expected` should be.
    pub fn defect(self, expected: Self) -> Option<Reason> {
        let (Set::Exact(found), Set::Exact(expected)) = (self, expected) else {
            return (self != expected).then_some(Reason::Incomplete);
        };
        let missing = first(core::array::from_fn(|i| expected[i] & !found[i]));
        let foreign = first(core::array::from_fn(|i| found[i] & !expected[i]));
        match (foreign, missing) {
            (None, None) => None,
            (Some(foreign), Some(missing)) => Some(Reason::Instead(foreign, missing)),
            (None, Some(missing)) => Some(Reason::Missing(missing)),
            (Some(foreign), None) => Some(Reason::Twice(foreign)),
        }
    }
}

/// The lowest rank of an exact set.
fn first(words: [u64; 4]) -> Option<Rank> {
    let index = words.iter().position(|&word| word != 0)?;
    Some(Rank::new(index as u32 * 64 + words[index].trailing_zeros()))
}

/// The rank's number in sums: 128 bits as if drawn at random, but the same everywhere.
fn number(rank: Rank) -> u128 {
    let high = mix(u64::from(rank.get()) * 2 + 1);
    let low = mix(u64::from(rank.get()) * 2 + 2);
    u128::from(high) << 64 | u128::from(low)
}

/// The finisher of splitmix64: every bit of the input reaches every bit of the output.
fn mix(word: u64) -> u64 {
    let word = word.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ (word >> 31)
}

/// Up to this many ranks sets are exact.
const EXACT: u32 = 256;

#[cfg(test)]
mod tests {
    use super::*;

    fn sum(ranks: u32, members: impl Iterator<Item = u32>) -> Result<Value, Reason> {
        let values: Vec<_> = members.map(|rank| Value::of(Rank::new(rank), ranks, 0)).collect();
        let (&first, rest) = values.split_first().unwrap();
        rest.iter().try_fold(first, |sum, &value| sum.and(value))
    }

    #[test]
    fn all_ranks_make_the_full_set_at_every_edge() {
        for ranks in [1, 2, 63, 64, 65, 255, 256, 257, 1000] {
            let all = sum(ranks, 0..ranks).unwrap();
            assert_eq!(all.ranks.defect(Set::all(ranks)), None, "{ranks}");
        }
    }

    #[test]
    fn missing_and_repeated_ranks_are_named_where_sets_are_exact() {
        let without = sum(256, (0..256).filter(|&rank| rank != 200)).unwrap();
        assert_eq!(without.ranks.defect(Set::all(256)), Some(Reason::Missing(Rank::new(200))));
        assert_eq!(sum(256, [3, 4, 3].into_iter()), Err(Reason::Twice(Rank::new(3))));
    }

    #[test]
    fn fingerprints_show_missing_and_repeated_ranks() {
        let without = sum(257, (0..257).filter(|&rank| rank != 200)).unwrap();
        assert_eq!(without.ranks.defect(Set::all(257)), Some(Reason::Incomplete));
        let twice = sum(257, (0..257).chain([9])).unwrap();
        assert_eq!(twice.ranks.defect(Set::all(257)), Some(Reason::Incomplete));
    }

    #[test]
    fn the_order_of_combination_shows() {
        let forth = sum(4, 0..4).unwrap();
        let back = sum(4, (0..4).rev()).unwrap();
        assert_eq!(forth.ranks, back.ranks);
        assert_ne!(forth.order, back.order);
    }
}
