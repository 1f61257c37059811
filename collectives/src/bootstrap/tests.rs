//! Whole meetings, mostly stepped by one thread on virtual time.

use core::task::Poll;
use core::time::Duration;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::Instant;

use vervain_transport::auth::{CHALLENGE, Dialer, Purpose, Secret};
use vervain_transport::fabric::Identity;
use vervain_transport::{Error, Kind, Rank, Time};

use super::{InitError, Join, Joined, OFFER, UniqueId};

type Outcome = Result<Joined, Box<InitError>>;

/// Where an injected failure strikes.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Phase {
    Offer,
    Table,
}

/// One rank of a simulated job.
struct Player {
    join: Option<Join>,
    outcome: Option<(Time, Outcome)>,
    prepared: bool,
}

/// Ranks stepped in turn: a millisecond a round, and more when nothing has come of [`BUSY`].
struct Cluster {
    players: Vec<Player>,
    now: Time,
    failing: Option<(Rank, Error)>,
}

const DEADLINE: Time = Time::from_nanos(10_000_000_000);
const BUSY: Time = Time::from_nanos(1_500_000_000);
const MISSING: Error = Error::new(Kind::NoSpace);

impl Cluster {
    fn new(joins: impl IntoIterator<Item = Join>) -> Self {
        let mut cluster = Self { players: Vec::new(), now: Time::default(), failing: None };
        joins.into_iter().for_each(|join| cluster.add(join));
        cluster
    }

    fn add(&mut self, join: Join) {
        self.players.push(Player { join: Some(join), outcome: None, prepared: false });
    }

    /// Step everybody once; whether all are done.
    fn round(&mut self) -> bool {
        self.now = self.now.after(Duration::from_millis(if self.now < BUSY { 1 } else { 25 }));
        let (now, failing) = (self.now, self.failing);
        self.players.iter_mut().for_each(|player| player.step(now, failing));
        self.players.iter().all(|player| player.join.is_none())
    }

    fn rounds(&mut self, count: usize) {
        for _ in 0..count {
            self.round();
        }
    }

    /// When and how everybody ended.
    fn run(mut self) -> Vec<(Time, Outcome)> {
        for _ in 0..5_000 {
            if self.round() {
                return self.players.into_iter().map(|player| player.outcome.unwrap()).collect();
            }
        }
        panic!("the meeting did not end");
    }

    /// The failures of all.
    fn errors(self) -> Vec<(Time, Box<InitError>)> {
        self.run().into_iter().map(|(time, outcome)| (time, outcome.unwrap_err())).collect()
    }
}

impl Player {
    fn step(&mut self, now: Time, failing: Option<(Rank, Error)>) {
        let Some(join) = &mut self.join else { return };
        if let Poll::Ready(outcome) = join.step(now) {
            self.outcome = Some((now, outcome));
            self.join = None;
        } else if join.on_table().is_some() && !self.prepared {
            self.prepared = true;
            let failure = failing.filter(|(rank, _)| *rank == join.rank());
            join.ready(failure.map_or(Ok(()), |(_, error)| Err(error)), now);
        }
    }
}

fn start(id: &UniqueId, rank: u32, ranks: u32) -> Join {
    offer(id, rank, ranks, Ok(vec![rank as u8; rank as usize]))
}

fn offer(id: &UniqueId, rank: u32, ranks: u32, offer: Result<Vec<u8>, Error>) -> Join {
    Join::start(id, Rank::new(rank), ranks, offer, Time::default(), DEADLINE).unwrap()
}

pub(crate) fn joined(ranks: u32) -> Vec<Joined> {
    let id = UniqueId::generate(None).unwrap();
    let outcomes = Cluster::new((0..ranks).map(|rank| start(&id, rank, ranks))).run();
    outcomes.into_iter().map(|(_, outcome)| outcome.unwrap()).collect()
}

fn all_failed(cluster: Cluster, kind: Kind, rank: Option<u32>) -> Vec<(Time, Box<InitError>)> {
    let errors = cluster.errors();
    for (_, error) in &errors {
        assert_eq!((error.error.kind(), error.error.rank()), (kind, rank.map(Rank::new)), "{error}");
    }
    errors
}

#[test]
fn ranks_stepped_by_one_thread_join() {
    for ranks in [1, 2, 3, 4, 7, 8, 16] {
        let all = joined(ranks);
        for (rank, one) in all.iter().enumerate() {
            assert_eq!((one.rank.index(), one.ranks), (rank, ranks));
            assert_eq!(one.members, all[0].members);
            let is_right = |(at, offer): (usize, &[u8])| offer == vec![at as u8; at];
            assert!(one.members.iter().map(|member| &member.offer[..]).enumerate().all(is_right));
        }
    }
}

#[test]
fn order_of_arrival_does_not_matter() {
    for first in 0..4 {
        let id = UniqueId::generate(None).unwrap();
        let mut cluster = Cluster::new([start(&id, first, 4)]);
        for rank in (0..4).rev().filter(|&rank| rank != first) {
            cluster.rounds(300);
            cluster.add(start(&id, rank, 4));
        }
        assert!(cluster.run().into_iter().all(|(_, outcome)| outcome.is_ok()));
    }
}

#[test]
fn rank_0_may_bind_late_and_in_ipv6() {
    for address in ["127.0.0.1:0", "[::1]:0"] {
        let Ok(probe) = TcpListener::bind(address) else {
            eprintln!("SKIPPED: no {address} on this machine");
            continue;
        };
        let id = UniqueId::from_parts(probe.local_addr().unwrap(), Secret::generate().unwrap());
        drop(probe);
        let mut cluster = Cluster::new([start(&id, 1, 2)]);
        cluster.rounds(50);
        cluster.add(start(&id, 0, 2));
        assert!(cluster.run().into_iter().all(|(_, outcome)| outcome.is_ok()));
    }
}

#[test]
fn largest_offers_arrive_and_larger_ones_fail_by_name() {
    let id = UniqueId::generate(None).unwrap();
    let cluster = Cluster::new((0..3).map(|rank| offer(&id, rank, 3, Ok(vec![7; OFFER]))));
    assert!(cluster.run().into_iter().all(|(_, outcome)| outcome.unwrap().members[2].offer.len() == OFFER));
    let id = UniqueId::generate(None).unwrap();
    let sizes = [0, OFFER + 1];
    let cluster = Cluster::new((0..2).map(|rank| offer(&id, rank, 2, Ok(vec![7; sizes[rank as usize]]))));
    all_failed(cluster, Kind::SizeOverflow, Some(1));
}

#[test]
fn impossible_ranks_are_refused() {
    let id = UniqueId::generate(None).unwrap();
    for (rank, ranks) in [(0, 0), (1, 1), (5, 2)] {
        let error = Join::start(&id, Rank::new(rank), ranks, Ok(vec![]), Time::default(), DEADLINE).unwrap_err();
        assert_eq!(error.error.kind(), Kind::InvalidArgument);
    }
}

#[test]
fn missing_ranks_are_named_by_all_others_in_time() {
    let id = UniqueId::generate(None).unwrap();
    let cluster = Cluster::new([0, 1, 3].map(|rank| start(&id, rank, 5)));
    for (time, error) in all_failed(cluster, Kind::TimedOut, Some(2)) {
        assert!(time <= DEADLINE);
        assert_eq!(error.report.lines, ["ranks 2, 4 did not come"]);
    }
}

#[test]
fn most_impatient_rank_is_answered_in_its_time() {
    let id = UniqueId::generate(None).unwrap();
    let soon = Time::from_nanos(3_000_000_000);
    let hasty = Join::start(&id, Rank::new(1), 3, Ok(vec![]), Time::default(), soon).unwrap();
    for (time, error) in
        all_failed(Cluster::new([start(&id, 0, 3), hasty]), Kind::TimedOut, Some(2)).into_iter().skip(1)
    {
        assert!(time < soon);
        assert_eq!(error.report.lines, ["rank 2 did not come"]);
    }
}

#[test]
fn missing_rank_0_is_named_with_its_address() {
    let id = UniqueId::from_bytes(&UniqueId::generate(None).unwrap().to_bytes()).unwrap();
    for (_, error) in all_failed(Cluster::new([1, 2].map(|rank| start(&id, rank, 3))), Kind::TimedOut, Some(0)) {
        assert!(error.report.lines[0].contains(&id.address().to_string()));
    }
}

#[test]
fn rank_that_does_not_get_ready_is_named() {
    let id = UniqueId::generate(None).unwrap();
    let mut cluster = Cluster::new((0..3).map(|rank| start(&id, rank, 3)));
    cluster.players[2].prepared = true;
    for (time, error) in all_failed(cluster, Kind::TimedOut, Some(2)) {
        assert!(time <= DEADLINE);
        assert_eq!(error.report.lines, ["rank 2 came, but did not get ready"]);
    }
}

#[test]
fn failure_of_any_rank_in_any_phase_is_everybodys_at_once() {
    for phase in [Phase::Offer, Phase::Table] {
        for ranks in [1, 2, 5] {
            for bad in 0..ranks {
                let id = UniqueId::generate(None).unwrap();
                let made = |rank| if rank == bad && phase == Phase::Offer { Err(MISSING) } else { Ok(vec![1]) };
                let mut cluster = Cluster::new((0..ranks).map(|rank| offer(&id, rank, ranks, made(rank))));
                cluster.failing = (phase == Phase::Table).then_some((Rank::new(bad), MISSING));
                for (time, _) in all_failed(cluster, Kind::NoSpace, Some(bad)) {
                    assert!(time < Time::from_nanos(1_500_000_000), "{phase:?} {bad} of {ranks}");
                }
            }
        }
    }
}

#[test]
fn latecomer_is_told_of_the_failure() {
    let id = UniqueId::generate(None).unwrap();
    let mut cluster = Cluster::new([start(&id, 0, 3), offer(&id, 1, 3, Err(MISSING))]);
    cluster.rounds(500);
    cluster.add(start(&id, 2, 3));
    all_failed(cluster, Kind::NoSpace, Some(1));
}

#[test]
fn failed_rank_without_rank_0_does_not_wait_for_the_deadline() {
    let id = UniqueId::from_bytes(&UniqueId::generate(None).unwrap().to_bytes()).unwrap();
    let errors = all_failed(Cluster::new([offer(&id, 1, 2, Err(MISSING))]), Kind::NoSpace, Some(1));
    assert!(errors[0].0 < Time::from_nanos(2_100_000_000));
}

#[test]
fn rank_that_dies_in_the_meeting_is_named_at_once() {
    for dead in 0..3 {
        let id = UniqueId::generate(None).unwrap();
        let mut cluster = Cluster::new((0..3).map(|rank| start(&id, rank, 3)));
        cluster.players.iter_mut().for_each(|player| player.prepared = true);
        cluster.rounds(50);
        cluster.players.remove(dead);
        for (time, _) in all_failed(cluster, Kind::PeerDied, Some(dead as u32)) {
            assert!(time < Time::from_nanos(1_500_000_000));
        }
    }
}

#[test]
fn two_that_claim_one_rank_both_fail_and_all_are_told() {
    for claimed in [0, 1] {
        for elsewhere in [false, true] {
            let id = UniqueId::generate(None).unwrap();
            let rival = if elsewhere { UniqueId::from_bytes(&id.to_bytes()).unwrap() } else { id.clone() };
            let joins = [start(&id, 0, 3), start(&id, 1, 3), start(&rival, claimed, 3)];
            for (time, error) in all_failed(Cluster::new(joins), Kind::DuplicateRank, Some(claimed)) {
                assert!(time < Time::from_nanos(1_500_000_000));
                assert_eq!(error.report.lines, [format!("two processes claim rank {claimed}")]);
            }
        }
    }
}

#[test]
fn used_id_of_this_process_is_a_duplicate() {
    let id = UniqueId::generate(None).unwrap();
    let first: Vec<_> = Cluster::new([0, 1].map(|rank| start(&id, rank, 2))).run();
    all_failed(Cluster::new([start(&id, 0, 2)]), Kind::DuplicateRank, Some(0));
    drop(first);
}

#[test]
fn ranks_that_expect_other_numbers_of_ranks_are_named() {
    let id = UniqueId::generate(None).unwrap();
    let errors =
        all_failed(Cluster::new([start(&id, 0, 3), start(&id, 1, 4), start(&id, 2, 3)]), Kind::Mismatch, Some(1));
    assert_eq!(errors[1].1.report.lines, ["rank 1 expects 4 ranks, rank 0 expects 3"]);
    let id = UniqueId::generate(None).unwrap();
    all_failed(Cluster::new([start(&id, 0, 2), start(&id, 3, 4), start(&id, 1, 2)]), Kind::Mismatch, None);
}

#[test]
fn wrong_secret_is_refused_and_counted() {
    let id = UniqueId::generate(None).unwrap();
    let wrong = UniqueId::from_parts(id.address(), Secret::generate().unwrap());
    let errors = Cluster::new([start(&id, 0, 2), start(&wrong, 1, 2)]).errors();
    assert_eq!(errors[1].1.error.kind(), Kind::Unauthenticated);
    assert_eq!((errors[0].1.error.kind(), errors[0].1.error.rank()), (Kind::TimedOut, Some(Rank::new(1))));
    assert_eq!(
        errors[0].1.report.lines,
        ["rank 1 did not come", "connections refused because they did not prove that they know the secret: 1"]
    );
}

/// A socket to the meeting that the machine under test did not make.
fn stranger(address: SocketAddr) -> TcpStream {
    TcpStream::connect(address).unwrap()
}

fn hello(secret: Secret, rank: u32) -> Dialer {
    let identity = Identity { rank: Rank::new(rank), incarnation: 5, secret };
    Dialer::new(&identity, Purpose::Bootstrap, Rank::new(0)).unwrap()
}

#[test]
fn strangers_delay_nobody() {
    let id = UniqueId::generate(None).unwrap();
    let mut kept = Vec::new();
    (0..100).for_each(|_| kept.push(stranger(id.address())));
    let replayed = hello(id.secret().clone(), 1);
    let wrong = hello(Secret::generate().unwrap(), 1);
    let messages: [&[u8]; 5] =
        [b"GET / HTTP/1.1\r\n\r\n", &[0xff; 4096], &replayed.hello()[..36], replayed.hello(), wrong.hello()];
    for message in messages {
        let mut one = stranger(id.address());
        one.write_all(message).unwrap();
        kept.push(one);
    }
    let outcomes = Cluster::new((0..4).map(|rank| start(&id, rank, 4))).run();
    for (time, outcome) in outcomes {
        assert!(outcome.is_ok() && time < Time::from_nanos(2_000_000_000));
    }
}

#[test]
fn more_idle_strangers_than_are_let_wait_lock_nobody_out() {
    let id = UniqueId::generate(None).unwrap();
    let mut cluster = Cluster::new([start(&id, 0, 2)]);
    let mut kept = Vec::new();
    for _ in 0..400 {
        kept.push(stranger(id.address()));
        cluster.round();
    }
    cluster.add(start(&id, 1, 2));
    assert!(cluster.run().into_iter().all(|(_, outcome)| outcome.is_ok()));
}

#[test]
fn authenticated_rank_that_stays_silent_is_named() {
    let id = UniqueId::generate(None).unwrap();
    let mut cluster = Cluster::new([start(&id, 0, 3), start(&id, 1, 3)]);
    let silent = let_in(&id, &mut cluster);
    for (_, error) in all_failed(cluster, Kind::TimedOut, Some(2)) {
        assert_eq!(error.report.lines, ["rank 2 came, but sent no offer"]);
    }
    drop(silent);
}

#[test]
fn authenticated_rank_that_announces_a_huge_frame_is_corrupt() {
    let id = UniqueId::generate(None).unwrap();
    let mut cluster = Cluster::new([start(&id, 0, 3), start(&id, 1, 3)]);
    let mut rank = let_in(&id, &mut cluster);
    rank.write_all(&[0xff; 64]).unwrap();
    all_failed(cluster, Kind::Corrupt, Some(2));
}

/// Rank 2's socket after its handshake.
fn let_in(id: &UniqueId, cluster: &mut Cluster) -> TcpStream {
    let dialer = hello(id.secret().clone(), 2);
    let mut socket = stranger(id.address());
    socket.write_all(dialer.hello()).unwrap();
    cluster.rounds(20);
    let mut challenge = [0; CHALLENGE];
    socket.read_exact(&mut challenge).unwrap();
    socket.write_all(&dialer.on_challenge(&challenge).unwrap().1).unwrap();
    cluster.rounds(20);
    socket
}

#[test]
fn listener_that_accepts_and_never_answers_is_a_time_out() {
    let mute = TcpListener::bind("127.0.0.1:0").unwrap();
    let id = UniqueId::from_parts(mute.local_addr().unwrap(), Secret::generate().unwrap());
    let errors = all_failed(Cluster::new([start(&id, 1, 2)]), Kind::TimedOut, Some(0));
    assert!(errors[0].0 <= DEADLINE);
}

#[test]
fn port_of_another_program_is_named_to_rank_0() {
    let other = TcpListener::bind("127.0.0.1:0").unwrap();
    let id = UniqueId::from_parts(other.local_addr().unwrap(), Secret::generate().unwrap());
    let errors = all_failed(Cluster::new([start(&id, 0, 2)]), Kind::TimedOut, Some(0));
    assert!(errors[0].1.report.lines[0].contains("in use by another program"));
}

#[test]
fn rank_0_takes_its_address_when_the_program_that_had_it_ends() {
    let other = TcpListener::bind("127.0.0.1:0").unwrap();
    let id = UniqueId::from_parts(other.local_addr().unwrap(), Secret::generate().unwrap());
    let mut cluster = Cluster::new([start(&id, 0, 2), start(&id, 1, 2)]);
    cluster.rounds(20);
    drop(other);
    assert!(cluster.run().iter().all(|(_, outcome)| outcome.is_ok()));
}

fn wait(id: &UniqueId, rank: u32, ranks: u32) -> Outcome {
    let deadline = Time::now().after(Duration::from_secs(60));
    Join::start(id, Rank::new(rank), ranks, Ok(vec![rank as u8]), Time::now(), deadline).unwrap().wait(|_| Ok(()))
}

#[test]
fn threads_join_blocking() {
    for ranks in [1, 2, 5, 8] {
        let id = UniqueId::generate(None).unwrap();
        std::thread::scope(|scope| {
            let id = &id;
            let ranks: Vec<_> = (0..ranks).map(|rank| scope.spawn(move || wait(id, rank, ranks))).collect();
            ranks.into_iter().for_each(|rank| drop(rank.join().unwrap().unwrap()));
        });
    }
}

#[test]
fn eight_threads_of_two_ranks_make_eight_communicators_each() {
    std::thread::scope(|scope| {
        for thread in 0..8 {
            let ids: Vec<_> = (0..8).map(|_| UniqueId::generate(None).unwrap()).collect();
            for rank in 0..2 {
                let ids = ids.clone();
                scope.spawn(move || {
                    let order = (0..8).map(|at| (at * 3 + thread) % 8);
                    order.for_each(|at| drop(wait(&ids[at], rank, 2).unwrap()));
                });
            }
        }
    });
}

#[test]
fn blocking_failure_ends_soon_on_all_ranks() {
    let id = UniqueId::generate(None).unwrap();
    let begin = Instant::now();
    std::thread::scope(|scope| {
        let ranks = (0..3).map(|rank| {
            let id = &id;
            scope.spawn(move || {
                let deadline = Time::now().after(Duration::from_secs(60));
                let join = Join::start(id, Rank::new(rank), 3, Ok(vec![]), Time::now(), deadline).unwrap();
                join.wait(|_| if rank == 1 { Err(MISSING) } else { Ok(()) }).unwrap_err().error
            })
        });
        for rank in ranks.collect::<Vec<_>>() {
            assert_eq!(rank.join().unwrap(), MISSING.with_rank(Rank::new(1)));
        }
    });
    assert!(begin.elapsed() < Duration::from_secs(20));
}
