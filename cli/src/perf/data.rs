//! Which data goes where: what a rank puts into its input, and what it must find in its output.

use vervain_collectives::plan::Buffer;
use vervain_collectives::{Collective, DataType, Rank, ReduceOp};

use super::benchmark::Benchmark;
use super::invoke::Request;
use super::memory::Lent;
use super::verifiable;

/// One row's call, on one rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Case {
    /// What is measured.
    pub benchmark: Benchmark,
    /// Element type.
    pub datatype: DataType,
    /// For the reducing collectives.
    pub op: Option<ReduceOp>,
    /// For broadcast and reduce.
    pub root: u32,
    /// Elements per block.
    pub count: usize,
    /// Whose call it is.
    pub rank: u32,
    /// Of how many.
    pub ranks: u32,
    /// Whether the buffers are registered ones.
    pub registered: bool,
}

/// What an output block must hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Source {
    /// A rank's input from this element on.
    Copy { rank: u32, first: u64 },
    /// The reduction of all ranks' inputs from this element on.
    Reduced { first: u64 },
}

/// Outputs are compared in pieces, so that what is expected takes little memory.
const PIECE: usize = 1 << 20;
/// What outputs hold before the call.
const POISON: u8 = 0xa5;

impl Case {
    /// The call for the library.
    pub fn request(&self) -> Request {
        Request {
            collective: collective(self.benchmark),
            datatype: self.datatype,
            op: self.op,
            root: self.benchmark.has_root().then_some(Rank::new(self.root)),
            count: self.count,
            registered: self.registered,
        }
    }

    /// Bytes of the input and of the output; `None` beyond the address space.
    pub fn bytes(&self) -> Option<(usize, usize)> {
        let request = self.request();
        Some((request.bytes(Buffer::Input, self.ranks)?, request.bytes(Buffer::Output, self.ranks)?))
    }

    /// Whether this rank's output means anything.
    pub fn has_output(&self) -> bool {
        self.count > 0 && (self.benchmark != Benchmark::Reduce || self.rank == self.root)
    }

    /// Put the data into the input and poison into the output.
    pub fn prepare(&self, lent: &mut Lent<'_>) {
        if let Lent::InPlace(both) = lent {
            both.fill(POISON);
        }
        if let Lent::Apart(_, output) = lent {
            output.fill(POISON);
        }
        if self.benchmark == Benchmark::Broadcast && self.rank != self.root {
            return;
        }
        let op = self.op;
        verifiable::fill(self.input(lent), self.datatype, op, self.rank, self.ranks, 0);
    }

    /// How many elements of our output are not what they should be.
    pub fn wrong(&self, lent: &mut Lent<'_>) -> u64 {
        if !self.has_output() {
            return 0;
        }
        let block = self.count * self.datatype.bytes();
        let output = self.output(lent);
        output.chunks_exact(block).zip(self.sources()).map(|(block, source)| self.wrong_in_block(block, source)).sum()
    }

    /// Make the element in the middle of our output wrong by far.
    pub fn damage(&self, lent: &mut Lent<'_>) {
        let size = self.datatype.bytes();
        let output = self.output(lent);
        let middle = output.len() / size / 2;
        if let Some(element) = output.chunks_exact_mut(size).nth(middle) {
            // the top byte of a little-endian element: sign and exponent, or the highest bits
            element[size - 1] ^= 0x40;
        }
    }

    fn wrong_in_block(&self, block: &[u8], source: Source) -> u64 {
        let size = self.datatype.bytes();
        let mut expected = vec![0; PIECE.min(block.len())];
        let pieces = block.chunks(PIECE);
        pieces
            .zip(0u64..)
            .map(|(piece, index)| {
                let expected = &mut expected[..piece.len()];
                let before = index * (PIECE / size) as u64;
                match (source, self.op) {
                    (Source::Reduced { first }, Some(op)) => {
                        verifiable::expected(expected, self.datatype, op, self.ranks, first + before);
                    }
                    (Source::Copy { rank, first }, op) => {
                        verifiable::fill(expected, self.datatype, op, rank, self.ranks, first + before);
                    }
                    (Source::Reduced { .. }, None) => {}
                }
                verifiable::check(piece, expected, self.datatype, self.op)
            })
            .sum()
    }

    /// What each block of our output must hold.
    fn sources(&self) -> Vec<Source> {
        let first_of = |rank: u32| u64::from(rank) * self.count as u64;
        match self.benchmark {
            Benchmark::AllReduce | Benchmark::Reduce => vec![Source::Reduced { first: 0 }],
            Benchmark::ReduceScatter => vec![Source::Reduced { first: first_of(self.rank) }],
            Benchmark::AllGather => (0..self.ranks).map(|rank| Source::Copy { rank, first: 0 }).collect(),
            Benchmark::AllToAll => {
                (0..self.ranks).map(|rank| Source::Copy { rank, first: first_of(self.rank) }).collect()
            }
            Benchmark::Broadcast => vec![Source::Copy { rank: self.root, first: 0 }],
            Benchmark::SendRecv => {
                vec![Source::Copy { rank: (self.rank + self.ranks - 1) % self.ranks, first: 0 }]
            }
            Benchmark::Barrier => vec![],
        }
    }

    fn input<'a>(&self, lent: &'a mut Lent<'_>) -> &'a mut [u8] {
        match lent {
            Lent::Apart(input, _) => input,
            Lent::InPlace(both) => self.part(both, Benchmark::AllGather),
        }
    }

    fn output<'a>(&self, lent: &'a mut Lent<'_>) -> &'a mut [u8] {
        match lent {
            Lent::Apart(_, output) => output,
            Lent::InPlace(both) => self.part(both, Benchmark::ReduceScatter),
        }
    }

    /// Our block, if this is the benchmark that has only that in this place; else everything.
    fn part<'a>(&self, both: &'a mut [u8], one_block: Benchmark) -> &'a mut [u8] {
        if self.benchmark != one_block {
            return both;
        }
        let block = self.count * self.datatype.bytes();
        &mut both[self.rank as usize * block..][..block]
    }
}

/// What the library calls it. A ring of sends and receives has the shape of a broadcast: one block in, one out.
pub fn collective(benchmark: Benchmark) -> Collective {
    match benchmark {
        Benchmark::AllReduce => Collective::AllReduce,
        Benchmark::AllGather => Collective::AllGather,
        Benchmark::ReduceScatter => Collective::ReduceScatter,
        Benchmark::Broadcast | Benchmark::SendRecv => Collective::Broadcast,
        Benchmark::Reduce => Collective::Reduce,
        Benchmark::AllToAll => Collective::AllToAll,
        Benchmark::Barrier => Collective::Barrier,
    }
}

#[cfg(test)]
#[path = "data_tests.rs"]
mod tests;
