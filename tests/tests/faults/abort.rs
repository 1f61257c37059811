//! Ending a communicator from another thread, in the middle of a call and while nothing happens.

use std::sync::Barrier;
use std::thread;
use std::time::{Duration, Instant};

use vervain_collectives::{Communicator, Config, Kind, Rank, ReduceOp};

use crate::support::{FABRICS, cluster, kind, on};

#[test]
fn abort_in_the_middle_of_a_call_ends_it_on_all_ranks() {
    for fabric in FABRICS {
        for ranks in [2, 3, 8] {
            let (began, ready) = (Instant::now(), Barrier::new(ranks as usize));
            let endings = cluster(ranks, &on(fabric), |c| {
                let rank = c.rank().get();
                c.barrier().unwrap();
                ready.wait();
                if rank + 1 == ranks {
                    // never enters the operation in which all others wait
                    let aborter = c.aborter();
                    thread::spawn(move || aborter.abort()).join().unwrap();
                }
                let result = c.all_reduce_in_place(&mut vec![1f32; 100_000], ReduceOp::Sum);
                (result, c.report())
            });
            for (rank, (result, report)) in endings.into_iter().enumerate() {
                let error = result.unwrap_err();
                assert_eq!((error.kind(), error.rank()), (Kind::Aborted, Some(Rank::new(ranks - 1))), "rank {rank}");
                assert_eq!(report.unwrap().lines[0], format!("rank {} aborted", ranks - 1));
            }
            assert!(began.elapsed() < Duration::from_secs(10));
        }
    }
}

#[test]
fn abort_from_several_threads_while_data_moves_is_one_abort() {
    for fabric in FABRICS {
        let endings = cluster(3, &on(fabric), |c| {
            let aborter = c.aborter();
            let mut data = vec![1f32; 1 << 20];
            thread::scope(|scope| {
                scope.spawn(move || aborter.abort());
                loop {
                    if let Err(error) = c.all_reduce_in_place(&mut data, ReduceOp::Max) {
                        return error.kind();
                    }
                }
            })
        });
        assert_eq!(endings, [Kind::Aborted; 3]);
    }
}

/// Case B19: nothing but the abort wakes the idle threads.
#[test]
fn abort_while_all_threads_are_idle_ends_them_at_once() {
    let mut slowest = Duration::ZERO;
    for round in 0..150 {
        let config = Config { timeout: Duration::from_secs(30), ..on(FABRICS[round % 2]) };
        let communicators = Communicator::init_all(2, &config).unwrap();
        let began = Instant::now();
        communicators[1].aborter().abort();
        drop(communicators);
        slowest = slowest.max(began.elapsed());
    }
    // each farewell may take 50 ms, and the machine is shared
    assert!(slowest < Duration::from_secs(1), "{slowest:?}");
}

#[test]
fn aborted_communicator_refuses_every_call() {
    let endings = cluster(2, &on(FABRICS[0]), |c| {
        if c.rank().get() == 0 {
            c.aborter().abort();
        }
        while c.barrier().is_ok() {}
        let mut data = [1f32; 4];
        let to = Rank::new(1 - c.rank().get());
        [
            kind(&c.barrier()),
            kind(&c.all_reduce_in_place(&mut data, ReduceOp::Sum)),
            kind(&c.send(&data, to)),
            kind(&c.recv(&mut data, to)),
            kind(&c.alloc::<f32>(10)),
        ]
    });
    assert_eq!(endings, [[Some(Kind::Aborted); 5]; 2]);
}
