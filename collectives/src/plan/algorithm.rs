//! The names of our own plans.

use core::fmt;
use core::str::FromStr;

use vervain_transport::{Error, Kind};

/// A builder of plans.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Algorithm {
    /// Neighbour to neighbour, over connections: least traffic, latency grows with the ranks.
    Ring,
    /// Everybody sends everything to everybody who needs it; each reduces alone. Least latency, most traffic.
    OneShot,
    /// Everybody reduces one chunk from everybody and gives the result to everybody, over connections.
    TwoShot,
    /// Two-shot on buffers that all ranks registered together: reads and writes them directly.
    Direct,
    /// One-shot on buffers that all ranks registered together: everybody reads everything.
    DirectOneShot,
    /// Two-shot on any memory: data and results are read from their owner by the consumer.
    Pull,
}

/// What a plan asks of the ranks' memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Needs {
    /// Nothing: data goes through the slots of connections.
    Connections,
    /// Peers can read each other's buffers.
    ReadablePeers,
    /// Peers can read and write each other's buffers: all ranks registered them together.
    MappedPeers,
}

impl Algorithm {
    /// All algorithms.
    pub const ALL: &'static [Algorithm] = &[
        Algorithm::Ring,
        Algorithm::OneShot,
        Algorithm::TwoShot,
        Algorithm::Direct,
        Algorithm::DirectOneShot,
        Algorithm::Pull,
    ];

    /// The name on the command line, in files and in reports.
    pub const fn name(self) -> &'static str {
        match self {
            Algorithm::Ring => "ring",
            Algorithm::OneShot => "oneshot",
            Algorithm::TwoShot => "twoshot",
            Algorithm::Direct => "direct",
            Algorithm::DirectOneShot => "direct-oneshot",
            Algorithm::Pull => "pull",
        }
    }

    /// What its plans ask of the ranks' memory.
    pub const fn needs(self) -> Needs {
        match self {
            Algorithm::Ring | Algorithm::OneShot | Algorithm::TwoShot => Needs::Connections,
            Algorithm::Direct | Algorithm::DirectOneShot => Needs::MappedPeers,
            Algorithm::Pull => Needs::ReadablePeers,
        }
    }
}

impl fmt::Display for Algorithm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Algorithm {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let found = Algorithm::ALL.iter().find(|algorithm| algorithm.name() == text);
        found.copied().ok_or(Kind::InvalidArgument.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_parses_back() {
        for &algorithm in Algorithm::ALL {
            assert_eq!(algorithm.name().parse::<Algorithm>().unwrap(), algorithm);
        }
        assert!("tree".parse::<Algorithm>().is_err());
    }
}
