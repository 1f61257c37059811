//! What is measured: the collectives, under the names that people type.

use core::fmt;
use core::str::FromStr;

use vervain_collectives::Collective;

/// What `vervain perf` measures.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Benchmark {
    /// Everybody gets the reduction of everybody's input.
    AllReduce,
    /// Everybody gets everybody's block.
    AllGather,
    /// Everybody gets its block of the reduction.
    ReduceScatter,
    /// Everybody gets the root's input.
    Broadcast,
    /// The root gets the reduction.
    Reduce,
    /// Everybody sends a block to everybody.
    AllToAll,
    /// Everybody sends to the next rank and receives from the one before.
    SendRecv,
    /// Nobody leaves before everybody came.
    Barrier,
}

impl Benchmark {
    /// All, in the order of the help text.
    pub const ALL: [Benchmark; 8] = [
        Benchmark::AllReduce,
        Benchmark::AllGather,
        Benchmark::ReduceScatter,
        Benchmark::Broadcast,
        Benchmark::Reduce,
        Benchmark::AllToAll,
        Benchmark::SendRecv,
        Benchmark::Barrier,
    ];

    /// The name in tables and files.
    pub const fn name(self) -> &'static str {
        match self {
            Benchmark::SendRecv => "sendrecv",
            Benchmark::AllReduce => Collective::AllReduce.name(),
            Benchmark::AllGather => Collective::AllGather.name(),
            Benchmark::ReduceScatter => Collective::ReduceScatter.name(),
            Benchmark::Broadcast => Collective::Broadcast.name(),
            Benchmark::Reduce => Collective::Reduce.name(),
            Benchmark::AllToAll => Collective::AllToAll.name(),
            Benchmark::Barrier => Collective::Barrier.name(),
        }
    }

    /// Whether the buffer is cut into a block for each rank.
    pub const fn is_blocked(self) -> bool {
        matches!(self, Benchmark::AllGather | Benchmark::ReduceScatter | Benchmark::AllToAll)
    }

    /// Whether elements are combined, so that an operation matters.
    pub const fn reduces(self) -> bool {
        matches!(self, Benchmark::AllReduce | Benchmark::ReduceScatter | Benchmark::Reduce)
    }

    /// Whether one rank is special.
    pub const fn has_root(self) -> bool {
        matches!(self, Benchmark::Broadcast | Benchmark::Reduce)
    }

    /// Whether input and output may be the same memory.
    pub const fn can_be_in_place(self) -> bool {
        !matches!(self, Benchmark::AllToAll | Benchmark::SendRecv | Benchmark::Barrier)
    }
}

impl fmt::Display for Benchmark {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Benchmark {
    type Err = String;

    /// Accepts our names, those without underscores, and the program names of nccl-tests (`alltoall_perf`).
    fn from_str(text: &str) -> Result<Self, String> {
        let plain = text.strip_suffix("_perf").unwrap_or(text).replace(['_', '-'], "").to_ascii_lowercase();
        Benchmark::ALL
            .into_iter()
            .find(|benchmark| benchmark.name().replace('_', "") == plain)
            .ok_or_else(|| format!("there is no such benchmark; choose one of {}", names()))
    }
}

/// All names, for messages.
pub fn names() -> String {
    Benchmark::ALL.map(Benchmark::name).join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_their_aliases_parse() {
        for benchmark in Benchmark::ALL {
            assert_eq!(benchmark.name().parse(), Ok(benchmark));
            assert_eq!(benchmark.name().replace('_', "").parse(), Ok(benchmark));
            assert_eq!(format!("{benchmark}_perf").parse(), Ok(benchmark));
        }
        assert_eq!("AllReduce".parse(), Ok(Benchmark::AllReduce));
        assert!("hypercube".parse::<Benchmark>().unwrap_err().contains("sendrecv"));
    }
}
