//! Which elements a chunk stands for in a round.

use crate::plan::Program;

/// Chunks start at multiples of this many bytes of their block, so that no two ranks store into one pair of cache lines.
const ALIGN: usize = 128;

/// How a message is cut: into rounds, and every round of a block into chunks. All sizes in bytes; all ranks compute the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Geometry {
    /// Of one block.
    block: usize,
    /// Per block.
    chunks: usize,
    /// Of one block in one round; the last round may have less.
    round: usize,
    /// How often the program runs.
    rounds: usize,
}

impl Geometry {
    /// Blocks of `block` bytes, cut so that no chunk is longer than `limit` (a multiple of 128), if there is a limit.
    /// A program without data runs once; one with data but without elements not at all.
    pub fn new(program: &Program, block: usize, limit: Option<usize>) -> Self {
        let chunks = program.chunks.max(1) as usize;
        if block == 0 {
            let rounds = usize::from(program.collective == crate::Collective::Barrier);
            return Self { block, chunks, round: 0, rounds };
        }
        let most = limit.and_then(|limit| limit.checked_mul(chunks)).unwrap_or(usize::MAX).min(block);
        let rounds = block.div_ceil(most);
        // Equal rounds beat full ones: a last round of a few bytes would cost as much latency as a full one.
        let even = block.div_ceil(rounds).checked_next_multiple_of(chunks * ALIGN).unwrap_or(block);
        let round = if rounds == 1 { block } else { even.min(most) };
        Self { block, chunks, round, rounds: block.div_ceil(round) }
    }

    /// One message between two ranks, in pieces of at most `limit` bytes. It has at least one piece, whose header says that
    /// both sides agree.
    pub fn of_message(bytes: usize, limit: usize) -> Self {
        Self { block: bytes, chunks: 1, round: bytes.min(limit), rounds: bytes.div_ceil(limit).max(1) }
    }

    /// How often the program runs.
    pub fn rounds(&self) -> usize {
        self.rounds
    }

    /// Length of the longest chunk.
    pub fn longest(&self) -> usize {
        self.part(self.round)
    }

    /// Offset and length of a chunk in its buffer, given its index over all blocks.
    #[inline]
    pub fn chunk(&self, round: usize, index: u32) -> (usize, usize) {
        let (block, chunk) = (index as usize / self.chunks, index as usize % self.chunks);
        let (start, length) = self.within(round, chunk);
        (block * self.block + start, length)
    }

    /// Offset and length of a chunk of scratch: one place for the longest chunk each, as long as the same chunk of a block.
    pub fn scratch(&self, round: usize, index: u32) -> (usize, usize) {
        let (_, length) = self.within(round, index as usize % self.chunks);
        (index as usize * self.longest(), length)
    }

    /// Offset and length of chunk `chunk` within its block.
    #[inline]
    fn within(&self, round: usize, chunk: usize) -> (usize, usize) {
        let first = round * self.round;
        let length = self.round.min(self.block - first);
        let part = self.part(length);
        let start = (chunk * part).min(length);
        (first + start, part.min(length - start))
    }

    #[inline]
    fn part(&self, length: usize) -> usize {
        if self.chunks == 1 { length } else { length.div_ceil(self.chunks).next_multiple_of(ALIGN).min(length) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Collective;
    use vervain_transport::Rank;

    fn program(collective: Collective, chunks: u32) -> Program {
        Program { collective, rank: Rank::new(0), ranks: chunks, root: None, chunks, scratch: 0, lanes: vec![] }
    }

    #[test]
    fn chunks_cover_every_byte_once_and_stay_under_the_limit() {
        for chunks in [1, 2, 3, 7, 8] {
            for block in [1, 127, 128, 129, 4096, 65536, 65537, 1 << 20, (1 << 20) + 4] {
                for limit in [None, Some(128), Some(4096)] {
                    let geometry = Geometry::new(&program(Collective::AllReduce, chunks), block, limit);
                    let mut next = 0;
                    for round in 0..geometry.rounds() {
                        for chunk in 0..chunks {
                            let (start, length) = geometry.chunk(round, chunk);
                            assert!(length == 0 || start == next, "{chunks} {block} {limit:?}");
                            assert!(length <= geometry.longest() && length <= limit.unwrap_or(block));
                            next += length;
                        }
                    }
                    assert_eq!(next, block);
                }
            }
        }
    }

    #[test]
    fn offsets_beyond_four_gibibytes_equal_wide_arithmetic() {
        for ranks in [8u32, 64, 1024] {
            let block = 512 << 20;
            let geometry = Geometry::new(&program(Collective::AllToAll, 1), block, Some(65536));
            for rank in [0, 1, ranks / 2, ranks - 1] {
                for round in [0, 1, geometry.rounds() - 1] {
                    let (start, length) = geometry.chunk(round, rank);
                    let wide = u128::from(rank) * block as u128 + round as u128 * geometry.round as u128;
                    assert_eq!(start as u128, wide);
                    assert!(start as u128 + length as u128 <= u128::from(ranks) * block as u128);
                }
            }
        }
    }

    #[test]
    fn nothing_to_move_is_no_round_and_a_barrier_is_one() {
        assert_eq!(Geometry::new(&program(Collective::AllReduce, 2), 0, None).rounds(), 0);
        assert_eq!(Geometry::new(&program(Collective::Barrier, 0), 0, None).rounds(), 1);
    }
}
