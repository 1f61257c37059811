//! Whole meshes, stepped by one thread or carried by their own.

use std::time::{Duration, Instant};

use vervain_transport::{Error, Kind, Rank, Time};

use super::{Handle, Mesh, Status};
use crate::bootstrap::tests::joined;
use crate::call::Descriptor;
use crate::{Collective, DataType, ReduceOp};

fn meshes(ranks: u32) -> Vec<Option<Mesh>> {
    joined(ranks).into_iter().map(|joined| Some(joined.mesh)).collect()
}

fn handles(meshes: &[Option<Mesh>]) -> Vec<Handle> {
    meshes.iter().flatten().map(Mesh::handle).collect()
}

/// Step all until nothing happens any more; on loopback a message has arrived when its sender has written it.
fn settle(meshes: &mut [Option<Mesh>], now: Time) {
    for _ in 0..4 * meshes.len() + 8 {
        for mesh in meshes.iter_mut().flatten() {
            mesh.step(now);
        }
    }
}

fn call(count: u64) -> Descriptor {
    Descriptor {
        operation: 4711,
        collective: Collective::AllReduce,
        count,
        datatype: DataType::F32,
        op: Some(ReduceOp::Sum),
        root: None,
        registered: false,
        tuning: 5,
    }
}

const NOW: Time = Time::from_nanos(1_000_000_000);

#[test]
fn death_is_seen_by_all_survivors() {
    for ranks in 2..=8 {
        for dead in 0..ranks {
            let mut meshes = meshes(ranks);
            let handles = handles(&meshes);
            meshes[dead as usize] = None;
            settle(&mut meshes, NOW);
            for handle in handles.iter().filter(|handle| handle.rank().get() != dead) {
                let error = handle.failure().unwrap();
                assert_eq!((error.kind(), error.rank()), (Kind::PeerDied, Some(Rank::new(dead))), "of {ranks}");
                assert_eq!(handle.report().unwrap().lines, [format!("rank {dead} died")]);
            }
        }
    }
}

#[test]
fn every_survivor_learns_of_a_death_though_several_die() {
    for ranks in [4, 7, 16] {
        let mut meshes = meshes(ranks);
        let handles = handles(&meshes);
        (0..ranks as usize).filter(|rank| rank % 3 != 0).for_each(|rank| meshes[rank] = None);
        settle(&mut meshes, NOW);
        for handle in handles.iter().filter(|handle| handle.rank().get() % 3 == 0) {
            let error = handle.failure().unwrap();
            assert_eq!(error.kind(), Kind::PeerDied);
            assert_ne!(error.rank().unwrap().get() % 3, 0);
        }
    }
}

#[test]
fn goodbye_is_no_death() {
    let mut meshes = meshes(8);
    let handles = handles(&meshes);
    handles[3].leave();
    settle(&mut meshes, NOW);
    assert_eq!(meshes[3].as_mut().unwrap().step(NOW), Status::Over);
    meshes[3] = None;
    settle(&mut meshes, NOW);
    for handle in handles.iter().filter(|handle| handle.rank().get() != 3) {
        assert_eq!(handle.failure(), None);
        assert!(handle.left(Rank::new(3)) && !handle.left(Rank::new(4)));
    }
}

#[test]
fn everybody_may_leave_at_once() {
    let mut meshes = meshes(7);
    let handles = handles(&meshes);
    handles.iter().for_each(Handle::leave);
    settle(&mut meshes, NOW);
    assert!(handles.iter().all(|handle| handle.failure().is_none()));
    assert!(meshes.iter_mut().flatten().all(|mesh| mesh.step(NOW) == Status::Over));
}

#[test]
fn abort_reaches_all_and_names_who() {
    let mut meshes = meshes(7);
    let handles = handles(&meshes);
    handles[2].abort();
    assert_eq!(handles[2].failure().unwrap().kind(), Kind::Aborted);
    settle(&mut meshes, NOW);
    for handle in &handles {
        assert_eq!(handle.failure(), Some(Error::new(Kind::Aborted).with_rank(Rank::new(2))));
    }
}

#[test]
fn first_failure_stays() {
    let mut meshes = meshes(3);
    let handles = handles(&meshes);
    handles[1].abort();
    settle(&mut meshes, NOW);
    meshes[2] = None;
    settle(&mut meshes, NOW);
    for handle in &handles[..2] {
        assert_eq!(handle.failure().unwrap().kind(), Kind::Aborted);
        assert_eq!(handle.report().unwrap().lines, ["rank 1 aborted", "rank 2 died"]);
    }
}

#[test]
fn mismatch_fails_all_ranks_with_both_values() {
    for ranks in [2, 3, 8] {
        let mut meshes = meshes(ranks);
        let handles = handles(&meshes);
        let odd = ranks as usize - 1;
        handles.iter().enumerate().for_each(|(rank, handle)| handle.record(&call(if rank == odd { 9 } else { 8 })));
        handles[0].stalled(&call(8));
        settle(&mut meshes, NOW);
        for (rank, handle) in handles.iter().enumerate() {
            let error = handle.failure().unwrap();
            assert_eq!((error.kind(), error.operation()), (Kind::Mismatch, Some(4711)));
            assert_eq!(error.rank().unwrap().index(), if rank == odd { 0 } else { odd });
            let expected = format!(
                "operation 4711: rank 0 called all_reduce of 8 float, sum; rank {odd} called all_reduce of 9 float, sum"
            );
            assert_eq!(handle.report().unwrap().lines, [expected]);
        }
    }
}

#[test]
fn late_rank_is_no_mismatch_until_it_calls_differently() {
    for (late, fails) in [(8, false), (9, true)] {
        let mut meshes = meshes(3);
        let handles = handles(&meshes);
        handles[0].record(&call(8));
        handles[0].stalled(&call(8));
        settle(&mut meshes, NOW);
        assert!(handles.iter().all(|handle| handle.failure().is_none()));
        handles[2].record(&call(late));
        settle(&mut meshes, NOW.after(Duration::from_secs(2)));
        assert_eq!(handles.iter().filter(|handle| handle.failure().is_some()).count(), if fails { 3 } else { 0 });
    }
}

#[test]
fn plans_that_differ_alone_are_told_apart() {
    let mut meshes = meshes(2);
    let handles = handles(&meshes);
    handles[0].record(&call(8));
    handles[1].record(&Descriptor { tuning: 6, ..call(8) });
    handles[1].stalled(&Descriptor { tuning: 6, ..call(8) });
    settle(&mut meshes, NOW);
    let line = &handles[0].report().unwrap().lines[0];
    assert!(line.contains("plan 0000000000000005; ") && line.ends_with("plan 0000000000000006"), "{line}");
}

#[test]
fn messages_between_two_are_compared_with_their_counterpart_alone() {
    let number = crate::call::message_number(Rank::new(0), Rank::new(1), 3);
    let message = |count| Descriptor {
        operation: number,
        collective: Collective::Send,
        root: Some(Rank::new(1)),
        op: None,
        ..call(count)
    };
    for (count, fails) in [(8, false), (9, true)] {
        let mut meshes = meshes(3);
        let handles = handles(&meshes);
        handles[0].record(&message(8));
        handles[1].record(&call(8));
        handles[2].record(&call(8));
        handles[0].stalled(&message(8));
        settle(&mut meshes, NOW);
        // rank 1 is told before it calls, and remembers that it was
        handles[1].record(&message(count));
        settle(&mut meshes, NOW.after(Duration::from_secs(2)));
        assert!(handles.iter().all(|handle| handle.failure().is_some() == fails));
        if fails {
            let line = &handles[2].report().unwrap().lines[0];
            assert!(line.starts_with("message 3 from rank 0 to rank 1: rank 0 called send of 8 float"), "{line}");
        }
    }
}

#[test]
fn time_out_tells_all_who_waits_for_whom() {
    let mut meshes = meshes(3);
    let handles = handles(&meshes);
    handles[0].record(&call(8));
    handles[1].record(&call(8));
    handles[1].waiting(Some(Rank::new(2)));
    handles[0].stalled(&call(8));
    settle(&mut meshes, NOW);
    let error = handles[0].timed_out(4711, Rank::new(2));
    assert_eq!(error, Error::new(Kind::TimedOut).with_rank(Rank::new(2)).with_operation(4711));
    settle(&mut meshes, NOW);
    for handle in &handles {
        assert_eq!(handle.failure(), Some(error));
        assert_eq!(
            handle.report().unwrap().lines,
            [
                "operation 4711: rank 0 waited for rank 2 until its deadline",
                "rank 2 has not entered any operation",
                "rank 1 has entered operation 4711 and waits for rank 2",
            ]
        );
    }
}

#[test]
fn garbage_drops_the_edge_as_corrupt() {
    let mut meshes = meshes(2);
    let handles = handles(&meshes);
    meshes[1].as_mut().unwrap().send_raw(&[0xff; 40]);
    settle(&mut meshes, NOW);
    assert_eq!(handles[0].failure(), Some(Error::new(Kind::Corrupt).with_rank(Rank::new(1))));
}

#[test]
fn idle_thread_ends_at_once_when_told() {
    for round in 0..1000 {
        let threads: Vec<_> = meshes(2).into_iter().flatten().map(|mesh| mesh.spawn().unwrap()).collect();
        if round % 2 == 0 {
            threads[0].handle().abort();
        }
        let start = Instant::now();
        drop(threads);
        // 100 ms on a machine that is not busy with other tests
        assert!(start.elapsed() < Duration::from_secs(1), "round {round}");
    }
}

#[test]
fn one_rank_has_no_descriptor_and_no_thread() {
    let mesh = meshes(1).remove(0).unwrap();
    assert!(mesh.watches().is_empty());
    let thread = mesh.spawn().unwrap();
    thread.handle().abort();
    assert_eq!(thread.handle().failure().unwrap().kind(), Kind::Aborted);
}

#[test]
fn threads_carry_a_death_to_all() {
    let mut meshes = meshes(4);
    let dead = meshes.pop();
    let threads: Vec<_> = meshes.into_iter().flatten().map(|mesh| mesh.spawn().unwrap()).collect();
    drop(dead);
    let end = Instant::now() + Duration::from_secs(20);
    while !threads.iter().all(|thread| thread.handle().failure().is_some()) {
        assert!(Instant::now() < end, "the death did not arrive");
        vervain_transport::sync::thread::yield_now();
    }
    assert!(threads.iter().all(|thread| thread.handle().failure().unwrap().rank() == Some(Rank::new(3))));
}
