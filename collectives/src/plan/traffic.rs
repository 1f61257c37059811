//! How much a program moves.

use super::program::{Place, Program, Step};

/// What one rank moves in one round, in chunks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    /// Messages sent over connections; each carries one chunk.
    pub messages: u64,
    /// Chunks read or written directly in buffers of other ranks.
    pub remote: u64,
}

impl Program {
    /// How much this rank moves in one round.
    pub fn traffic(&self) -> Traffic {
        let mut traffic = Traffic::default();
        for step in self.lanes.iter().flatten() {
            let Step::Move { sources, destinations, .. } = step else { continue };
            traffic.messages += count(destinations, |place| matches!(place, Place::Connection { .. }));
            let remote = |place: &Place| matches!(place, Place::Direct { rank, .. } if *rank != self.rank);
            traffic.remote += count(sources, remote) + count(destinations, remote);
        }
        traffic
    }
}

fn count(places: &[Place], is_counted: impl Fn(&Place) -> bool) -> u64 {
    places.iter().filter(|place| is_counted(place)).count() as u64
}

#[cfg(test)]
mod tests {
    use vervain_transport::Rank;

    use super::super::{Algorithm, builders};
    use super::*;
    use crate::Collective;

    /// Messages, bytes over connections and remote bytes of all ranks together, for n ranks and blocks of n bytes: the formulas in the
    /// builders' documentation with B = n.
    type Formula = (Collective, Algorithm, fn(u64) -> [u64; 3]);

    const FORMULAS: &[Formula] = &[
        (Collective::AllReduce, Algorithm::Ring, |n| [2 * n * (n - 1), 2 * (n - 1) * n, 0]),
        (Collective::AllReduce, Algorithm::OneShot, |n| [n * (n - 1), n * (n - 1) * n, 0]),
        (Collective::AllReduce, Algorithm::TwoShot, |n| [2 * n * (n - 1), 2 * (n - 1) * n, 0]),
        (Collective::AllReduce, Algorithm::Direct, |n| [0, 0, 2 * (n - 1) * n]),
        (Collective::AllReduce, Algorithm::DirectOneShot, |n| [0, 0, n * (n - 1) * n]),
        (Collective::AllReduce, Algorithm::Pull, |n| [0, 0, 2 * (n - 1) * n]),
        (Collective::AllGather, Algorithm::Ring, |n| [n * (n - 1), n * (n - 1) * n, 0]),
        (Collective::AllGather, Algorithm::OneShot, |n| [n * (n - 1), n * (n - 1) * n, 0]),
        (Collective::AllGather, Algorithm::Direct, |n| [0, 0, n * (n - 1) * n]),
        (Collective::AllGather, Algorithm::Pull, |n| [0, 0, n * (n - 1) * n]),
        (Collective::ReduceScatter, Algorithm::Ring, |n| [n * (n - 1), n * (n - 1) * n, 0]),
        (Collective::ReduceScatter, Algorithm::OneShot, |n| [n * (n - 1), n * (n - 1) * n, 0]),
        (Collective::ReduceScatter, Algorithm::Direct, |n| [0, 0, n * (n - 1) * n]),
        (Collective::ReduceScatter, Algorithm::Pull, |n| [0, 0, n * (n - 1) * n]),
        (Collective::Broadcast, Algorithm::Ring, |n| [n - 1, (n - 1) * n, 0]),
        (Collective::Broadcast, Algorithm::OneShot, |n| [n - 1, (n - 1) * n, 0]),
        (Collective::Broadcast, Algorithm::Direct, |n| [0, 0, (n - 1) * n]),
        (Collective::Broadcast, Algorithm::Pull, |n| [0, 0, (n - 1) * n]),
        (Collective::Reduce, Algorithm::Ring, |n| [n - 1, (n - 1) * n, 0]),
        (Collective::Reduce, Algorithm::OneShot, |n| [n - 1, (n - 1) * n, 0]),
        (Collective::Reduce, Algorithm::Direct, |n| [0, 0, (n - 1) * (n + 1)]),
        (Collective::Reduce, Algorithm::Pull, |n| [0, 0, (n - 1) * n]),
        (Collective::AllToAll, Algorithm::OneShot, |n| [n * (n - 1), n * (n - 1) * n, 0]),
        (Collective::AllToAll, Algorithm::Direct, |n| [0, 0, n * (n - 1) * n]),
        (Collective::AllToAll, Algorithm::Pull, |n| [0, 0, n * (n - 1) * n]),
        (Collective::Barrier, Algorithm::OneShot, |_| [0, 0, 0]),
    ];

    fn moved(collective: Collective, algorithm: Algorithm, ranks: u32, root: Option<Rank>) -> [u64; 3] {
        let plan = builders::plan(collective, algorithm).unwrap();
        let mut total = [0; 3];
        for rank in (0..ranks).map(Rank::new) {
            let program = plan.expand(rank, ranks, root).unwrap();
            let (Traffic { messages, remote }, chunk) = (program.traffic(), u64::from(ranks / program.chunks));
            total = [total[0] + messages, total[1] + messages * chunk, total[2] + remote * chunk];
        }
        total
    }

    #[test]
    fn every_builder_moves_what_its_documentation_says() {
        for (collective, algorithm, formula) in FORMULAS {
            let rooted = matches!(collective, Collective::Broadcast | Collective::Reduce);
            for ranks in [1, 2, 3, 4, 7, 8, 16, 33] {
                let root = rooted.then(|| Rank::new(ranks / 2));
                let found = moved(*collective, *algorithm, ranks, root);
                assert_eq!(found, formula(ranks.into()), "{collective} {algorithm} {ranks}");
            }
        }
    }

    #[test]
    fn every_builder_has_a_formula() {
        let all = Collective::ALL.iter().flat_map(|&c| Algorithm::ALL.iter().map(move |&a| (c, a)));
        let built: Vec<_> = all.filter(|&(c, a)| builders::plan(c, a).is_some()).collect();
        let counted: Vec<_> = FORMULAS.iter().map(|&(c, a, _)| (c, a)).collect();
        assert!(built.iter().all(|pair| counted.contains(pair)));
        assert_eq!(built.len(), counted.len());
    }
}
