//! Ranks that die, stop, never come to an operation, or leave: who is named, how soon, and what is left.

use core::time::Duration;
use std::fs;
use std::time::Instant;

use vervain_collectives::launch::Exit;
use vervain_collectives::{Communicator, Config, Kind, Rank, ReduceOp};
use vervain_transport::fabric::Backend;
use vervain_transport::sync::{AtomicU64, Ordering, thread as pause};

use crate::support::{
    Directory, FABRIC, FABRICS, PATIENCE, PLACE, await_file, cluster, finish, job, kind, member, on, open_files, place,
    reach, segments, signal, text, threads,
};

fn descriptors_before() -> usize {
    // what the first communicator of a process opens and keeps is counted before
    drop(Communicator::init_all(2, &on(Backend::Shm)).unwrap());
    open_files()
}

/// All survivors of a killed rank end well, said who died, and had nothing open any more.
fn assert_survived(exits: &[Exit], dead: u32) {
    for exit in exits.iter().filter(|exit| exit.rank != Rank::new(dead)) {
        let text = text(exit);
        assert!(exit.status.success() && !exit.killed, "rank {}: {text}", exit.rank);
        assert!(text.contains("survived with nothing open"), "{text}");
    }
}

fn check_death(c: Communicator, before: usize, result: Result<(), vervain_collectives::Error>) {
    let error = result.expect_err("somebody died");
    assert_eq!((error.kind(), error.rank()), (Kind::PeerDied, Some(Rank::new(c.ranks() - 1))), "{:?}", c.report());
    assert!(c.report().unwrap().lines.iter().any(|line| *line == format!("rank {} died", c.ranks() - 1)));
    drop(c);
    // rank 0 began with the listening socket of its launcher
    assert!(open_files() <= before && threads() <= 3, "{} descriptors, {before} before", open_files());
    println!("survived with nothing open");
}

#[test]
fn rank_killed_in_a_large_all_reduce_is_named_by_every_survivor() {
    for fabric in FABRICS {
        for ranks in [2, 3, 5, 8] {
            let (place, memory) = (Directory::new(&format!("killed-{fabric}-{ranks}")), Directory::new("memory"));
            let before = segments();
            let running = job(ranks, "death::body_that_loses_its_last_rank_in_a_call")
                .env(FABRIC, fabric.to_string())
                .env(PLACE, &place.0)
                .env("VERVAIN_SHM_DIR", &memory.0)
                .start()
                .unwrap();
            for rank in 0..ranks {
                await_file(&place.0.join(format!("busy.{rank}")));
            }
            let began = Instant::now();
            signal(running.processes()[ranks as usize - 1], "KILL");
            let exits = finish(running);
            assert_survived(&exits, ranks - 1);
            assert!(began.elapsed() < Duration::from_secs(15));
            assert_eq!((memory.files(), segments() <= before), (0, true));
        }
    }
}

#[test]
fn body_that_loses_its_last_rank_in_a_call() {
    if crate::support::started().is_none() {
        return;
    }
    let before = descriptors_before();
    let Some(c) = member(PATIENCE) else { return };
    let mut data = vec![1f32; 4 << 20];
    c.all_reduce_in_place(&mut data, ReduceOp::Max).unwrap();
    reach(c.rank(), "busy");
    let result = loop {
        let result = c.all_reduce_in_place(&mut data, ReduceOp::Max);
        if result.is_err() {
            break result;
        }
    };
    check_death(c, before, result);
}

#[test]
fn rank_killed_while_all_are_idle_is_named_by_the_next_call() {
    for fabric in FABRICS {
        let place = Directory::new(&format!("idle-{fabric}"));
        let running = job(4, "death::body_that_loses_its_last_rank_while_idle")
            .env(FABRIC, fabric.to_string())
            .env(PLACE, &place.0)
            .start()
            .unwrap();
        (0..4).for_each(|rank| await_file(&place.0.join(format!("idle.{rank}"))));
        signal(running.processes()[3], "KILL");
        while crate::support::lives(running.processes()[3]) {}
        fs::write(place.0.join("go"), "").unwrap();
        assert_survived(&finish(running), 3);
    }
}

#[test]
fn body_that_loses_its_last_rank_while_idle() {
    if crate::support::started().is_none() {
        return;
    }
    let before = descriptors_before();
    let Some(c) = member(PATIENCE) else { return };
    c.all_reduce_in_place(&mut [1f32; 100], ReduceOp::Max).unwrap();
    reach(c.rank(), "idle");
    await_file(&place().join("go"));
    let result = c.all_reduce_in_place(&mut [1f32; 100], ReduceOp::Max);
    // small messages of the dead may have come; the next ones did not
    let result = result.and_then(|()| c.barrier());
    check_death(c, before, result);
}

#[test]
fn stopped_rank_that_goes_on_harms_nobody() {
    for fabric in FABRICS {
        let place = Directory::new(&format!("stopped-{fabric}"));
        let running = job(3, "death::body_that_goes_on_after_a_stop")
            .env(FABRIC, fabric.to_string())
            .env(PLACE, &place.0)
            .start()
            .unwrap();
        (0..3).for_each(|rank| await_file(&place.0.join(format!("busy.{rank}"))));
        let pid = running.processes()[1];
        signal(pid, "STOP");
        // rank 0 notices that it makes no progress, and asks; nobody may fail for that
        await_file(&place.0.join("slow.0"));
        signal(pid, "CONT");
        (0..3).for_each(|rank| fs::write(place.0.join(format!("enough.{rank}")), "").unwrap());
        for exit in finish(running) {
            assert!(exit.status.success() && !exit.killed, "{}", text(&exit));
        }
    }
}

#[test]
fn body_that_goes_on_after_a_stop() {
    let Some(c) = member(PATIENCE) else { return };
    let mut data = vec![1f32; 10_000];
    c.all_reduce_in_place(&mut data, ReduceOp::Max).unwrap();
    reach(c.rank(), "busy");
    let (rounds, slow) = (AtomicU64::new(0), place().join(format!("slow.{}", c.rank())));
    std::thread::scope(|scope| {
        // longer than it takes until a call asks its peers what they are doing
        scope.spawn(|| {
            let (mut seen, mut since) = (0, Instant::now());
            while seen != u64::MAX && since.elapsed() < Duration::from_secs(1) {
                let now = rounds.load(Ordering::Relaxed);
                if now != seen {
                    (seen, since) = (now, Instant::now());
                }
                pause::yield_now();
            }
            fs::write(slow, "").unwrap();
        });
        let mut all = [0f32];
        while all[0] == 0.0 {
            let enough = [f32::from(u8::from(place().join(format!("enough.{}", c.rank())).exists()))];
            c.all_reduce(&enough, &mut all, ReduceOp::Min).unwrap();
            c.all_reduce_in_place(&mut data, ReduceOp::Max).unwrap();
            rounds.fetch_add(1, Ordering::Relaxed);
        }
        rounds.store(u64::MAX, Ordering::Relaxed);
    });
    assert!(data.iter().all(|&value| value == 1.0) && c.report().is_none());
    c.finalize().unwrap();
}

#[test]
fn rank_stopped_beyond_the_deadline_is_named() {
    for fabric in FABRICS {
        let place = Directory::new(&format!("frozen-{fabric}"));
        let running = job(3, "death::body_that_waits_for_a_stopped_rank")
            .env(FABRIC, fabric.to_string())
            .env(PLACE, &place.0)
            .start()
            .unwrap();
        (0..3).for_each(|rank| await_file(&place.0.join(format!("ready.{rank}"))));
        let pid = running.processes()[1];
        signal(pid, "STOP");
        for rank in [0, 2] {
            await_file(&place.0.join(format!("late.{rank}")));
        }
        signal(pid, "CONT");
        for exit in finish(running) {
            assert!(exit.status.success() && !exit.killed, "{}", text(&exit));
        }
    }
}

#[test]
fn body_that_waits_for_a_stopped_rank() {
    let Some(c) = member(Duration::from_secs(1)) else { return };
    c.barrier().unwrap();
    reach(c.rank(), "ready");
    let error = loop {
        if let Err(error) = c.barrier() {
            break error;
        }
    };
    assert_eq!(error.kind(), Kind::TimedOut, "{:?}", c.report());
    // two that both wait for the stopped one may also wait for each other by a message: the report tells whom it is about
    assert_eq!(error.rank(), Some(Rank::new(1)), "{:?}", c.report());
    reach(c.rank(), "late");
}

#[test]
fn rank_that_never_enters_is_named() {
    for fabric in FABRICS {
        for (ranks, used) in [(2, false), (2, true), (3, false), (3, true), (8, true)] {
            let config = Config { timeout: Duration::from_secs(1), ..on(fabric) };
            let began = Instant::now();
            let endings = cluster(ranks, &config, |c| {
                if used {
                    c.barrier().unwrap();
                }
                if c.rank().get() == 1 {
                    // outside of any call, until the others have given up
                    while c.report().is_none() && began.elapsed() < PATIENCE {
                        pause::yield_now();
                    }
                    return (c.barrier(), c.report());
                }
                (c.all_reduce_in_place(&mut [1f32; 5], ReduceOp::Sum).and_then(|()| c.barrier()), c.report())
            });
            for (result, report) in endings {
                let (error, lines) = (result.unwrap_err(), report.unwrap().lines.clone());
                assert_eq!((error.kind(), error.rank()), (Kind::TimedOut, Some(Rank::new(1))), "{lines:?}");
                assert!(lines.iter().any(|line| line.contains("waited for ") && line.contains("rank 1")), "{lines:?}");
            }
            assert!(began.elapsed() < Duration::from_secs(10));
        }
    }
}

#[test]
fn rank_that_does_not_allocate_is_named() {
    let config = Config { timeout: Duration::from_secs(1), ..on(Backend::Shm) };
    let endings = cluster(3, &config, |c| {
        if c.rank().get() == 1 {
            while c.report().is_none() {
                pause::yield_now();
            }
            return (c.barrier(), c.report());
        }
        (c.alloc::<f32>(100).map(|_| ()), c.report())
    });
    for (result, report) in endings {
        let error = result.unwrap_err();
        assert_eq!((error.kind(), error.rank()), (Kind::TimedOut, Some(Rank::new(1))), "{report:?}");
    }
}

#[test]
fn rank_that_left_early_is_named_where_it_is_needed() {
    for fabric in FABRICS {
        for (ranks, used) in [(2, true), (2, false), (3, true), (3, false), (5, true)] {
            let communicators = Communicator::init_all(ranks, &on(fabric)).unwrap();
            let began = Instant::now();
            let leaver = ranks - 1;
            let results: Vec<_> = std::thread::scope(|scope| {
                let run = |c: Communicator| {
                    scope.spawn(move || {
                        if used {
                            c.all_reduce_in_place(&mut [1f32; 5], ReduceOp::Sum)?;
                        }
                        if c.rank().get() == leaver {
                            return c.finalize();
                        }
                        c.all_reduce_in_place(&mut [1f32; 5], ReduceOp::Sum)?;
                        c.barrier()
                    })
                };
                let threads: Vec<_> = communicators.into_iter().map(run).collect();
                threads.into_iter().map(|thread| thread.join().unwrap()).collect()
            });
            for (rank, result) in results.iter().enumerate() {
                if rank as u32 == leaver {
                    assert!(result.is_ok(), "{result:?}");
                } else {
                    let error = result.unwrap_err();
                    assert_eq!(error.kind(), Kind::PeerLeft, "rank {rank} of {ranks} over {fabric}, {used}: {error}");
                    assert_eq!(error.rank(), Some(Rank::new(leaver)));
                }
            }
            assert!(began.elapsed() < Duration::from_secs(10));
        }
    }
}

#[test]
fn rank_that_left_early_harms_nobody_who_needs_it_no_more() {
    for fabric in FABRICS {
        for _ in 0..20 {
            let communicators = Communicator::init_all(3, &on(fabric)).unwrap();
            std::thread::scope(|scope| {
                for c in communicators {
                    scope.spawn(move || {
                        let rank = c.rank().get();
                        c.all_reduce_in_place(&mut vec![1f32; 50_000], ReduceOp::Sum).unwrap();
                        if rank == 2 {
                            return c.finalize().unwrap();
                        }
                        for round in 0..20 {
                            let mut data = vec![round as f32 * (1 - rank) as f32; 1000];
                            if rank == 0 {
                                c.send(&data, Rank::new(1)).unwrap();
                            } else {
                                c.recv(&mut data, Rank::new(0)).unwrap();
                            }
                            assert_eq!(data, vec![round as f32; 1000]);
                        }
                        assert!(kind(&c.finalize()).is_none());
                    });
                }
            });
        }
    }
}
