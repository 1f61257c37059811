//! Whole meetings, mostly stepped by one thread.

use core::task::Poll;
use core::time::Duration;

use vervain_transport::{Error, Kind, Rank, Time};

use super::{InitError, Join, Joined, UniqueId};

pub(crate) type Outcome = Result<Joined, Box<InitError>>;

/// One rank of a simulated job.
struct Player {
    join: Option<Join>,
    outcome: Option<Outcome>,
}

/// Ranks stepped in turn.
struct Cluster {
    players: Vec<Player>,
    now: Time,
}

impl Cluster {
    fn start(joins: impl IntoIterator<Item = Join>) -> Self {
        let players = joins.into_iter().map(|join| Player { join: Some(join), outcome: None }).collect();
        Self { players, now: Time::default() }
    }

    /// Step everybody once; time goes on by a millisecond.
    fn round(&mut self, prepare: &dyn Fn(Rank) -> Result<(), Error>) -> bool {
        self.now = self.now.after(Duration::from_millis(1));
        for player in &mut self.players {
            let Some(join) = &mut player.join else { continue };
            if let Poll::Ready(outcome) = join.step(self.now) {
                player.outcome = Some(outcome);
                player.join = None;
            } else if join.on_table().is_some() {
                let rank = join.rank();
                join.ready(prepare(rank), self.now);
            }
        }
        self.players.iter().all(|player| player.join.is_none())
    }

    fn run(mut self) -> Vec<Outcome> {
        for _ in 0..20_000 {
            if self.round(&|_| Ok(())) {
                return self.players.into_iter().map(|player| player.outcome.unwrap()).collect();
            }
        }
        panic!(
            "the meeting did not end: {:?}",
            self.players.iter().map(|player| player.outcome.is_some()).collect::<Vec<_>>()
        );
    }
}

const DEADLINE: Time = Time::from_nanos(10_000_000_000);

fn start(id: &UniqueId, rank: u32, ranks: u32) -> Join {
    Join::start(id, Rank::new(rank), ranks, Ok(vec![rank as u8; rank as usize]), Time::default(), DEADLINE).unwrap()
}

pub(crate) fn joined(ranks: u32) -> Vec<Joined> {
    let id = UniqueId::generate(None).unwrap();
    Cluster::start((0..ranks).map(|rank| start(&id, rank, ranks))).run().into_iter().map(Result::unwrap).collect()
}

#[test]
fn ranks_stepped_by_one_thread_join() {
    for ranks in [1, 2, 3, 4, 7, 8, 16] {
        let all = joined(ranks);
        for (rank, one) in all.iter().enumerate() {
            assert_eq!((one.rank.index(), one.ranks), (rank, ranks));
            assert_eq!(one.members, all[0].members);
            assert!(
                one.members
                    .iter()
                    .enumerate()
                    .all(|(at, member)| member.rank.index() == at && member.offer == vec![at as u8; at])
            );
        }
    }
}

#[test]
fn missing_rank_is_named_by_all_others() {
    let id = UniqueId::generate(None).unwrap();
    let outcomes = Cluster::start([0, 1, 3].map(|rank| start(&id, rank, 5))).run();
    for outcome in outcomes {
        let error = outcome.unwrap_err();
        assert_eq!((error.error.kind(), error.error.rank()), (Kind::TimedOut, Some(Rank::new(2))));
        assert_eq!(error.report.lines, ["ranks 2, 4 did not come"]);
    }
}
