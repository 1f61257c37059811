//! Jobs that do not come up: who is named, how soon, and that all ranks are told.

use core::task::Poll;
use core::time::Duration;
use std::time::Instant;

use vervain_collectives::bootstrap::{InitError, Join, UniqueId};
use vervain_collectives::launch::Environment;
use vervain_collectives::{Communicator, Config, Error, Joining, Kind, Progress, Rank, ReduceOp};
use vervain_transport::Time;
use vervain_transport::fabric::Backend;

use crate::support::{FABRICS, finish, job, on, started, text};

/// Case B23.
#[test]
fn ranks_that_never_come_are_named_by_all_that_came() {
    for fabric in FABRICS {
        for missing in [vec![1], vec![0], vec![1, 3]] {
            let id = UniqueId::generate(None).unwrap();
            let config = Config { init_timeout: Duration::from_secs(1), ..on(fabric) };
            let began = Instant::now();
            let came: Vec<u32> = (0..4).filter(|rank| !missing.contains(rank)).collect();
            let errors: Vec<Box<InitError>> = std::thread::scope(|scope| {
                let join = |&rank: &u32| {
                    let (id, config) = (&id, &config);
                    scope.spawn(move || Communicator::init_rank(id, Rank::new(rank), 4, config).unwrap_err())
                };
                let threads: Vec<_> = came.iter().map(join).collect();
                threads.into_iter().map(|thread| thread.join().unwrap()).collect()
            });
            for error in errors {
                assert_eq!(error.error.kind(), Kind::TimedOut, "{error}");
                assert_eq!(error.error.rank(), Some(Rank::new(missing[0])), "{error}");
                let lines = error.report.lines.join("\n");
                assert!(missing.iter().all(|rank| lines.contains(&rank.to_string())), "{missing:?}: {lines}");
            }
            assert!(began.elapsed() < Duration::from_secs(8), "{:?}", began.elapsed());
        }
    }
}

#[test]
fn process_that_ends_before_it_joins_is_named_by_the_others() {
    let exits = finish(job(3, "init::body_of_which_rank_2_never_joins").start().unwrap());
    for exit in exits {
        assert!(exit.status.success() && !exit.killed, "{}", text(&exit));
    }
}

/// The launcher's listening socket outlives an environment that was only looked at: nobody dials into nothing.
#[test]
fn environment_may_be_asked_any_number_of_times() {
    for _ in 0..3 {
        for exit in finish(job(4, "init::body_that_asks_for_its_environment_first").start().unwrap()) {
            assert!(exit.status.success() && !exit.killed, "{}", text(&exit));
        }
    }
}

#[test]
fn body_that_asks_for_its_environment_first() {
    let Some(rank) = started() else { return };
    for _ in 0..2 {
        let environment = Environment::from_process().unwrap().unwrap();
        assert_eq!(environment.rank, rank);
        let address = environment.id.address();
        drop(environment);
        if rank.get() == 0 {
            std::net::TcpStream::connect(address).expect("somebody listens still");
        }
    }
    for _ in 0..2 {
        let communicator = Communicator::from_env(&on(Backend::Shm)).unwrap();
        communicator.barrier().unwrap();
    }
}

#[test]
fn body_of_which_rank_2_never_joins() {
    let Some(rank) = started() else { return };
    if rank.get() == 2 {
        return;
    }
    let config = Config { init_timeout: Duration::from_secs(1), ..on(Backend::Shm) };
    let error = Communicator::from_env(&config).unwrap_err();
    assert_eq!((error.error.kind(), error.error.rank()), (Kind::TimedOut, Some(Rank::new(2))), "{error}");
}

/// Case B65.
#[test]
fn two_that_claim_one_rank_are_told_at_once() {
    let id = UniqueId::generate(None).unwrap();
    let began = Instant::now();
    let errors: Vec<Error> = std::thread::scope(|scope| {
        let join = |rank| {
            let id = &id;
            scope.spawn(move || Communicator::init_rank(id, Rank::new(rank), 2, &on(Backend::Shm)).unwrap_err().error)
        };
        let threads = [join(0), join(0)];
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    assert!(errors.iter().all(|error| error.kind() == Kind::DuplicateRank && error.rank() == Some(Rank::new(0))));
    assert!(began.elapsed() < Duration::from_secs(10));
}

/// Case B65: independent ids do not disturb each other.
#[test]
fn eight_threads_join_eight_jobs_each_in_their_own_order() {
    let ids: Vec<UniqueId> = (0..32).map(|_| UniqueId::generate(None).unwrap()).collect();
    std::thread::scope(|scope| {
        for thread in 0..8usize {
            let ids = &ids;
            scope.spawn(move || {
                // pairs of threads share eight ids, and both go through them alike, each pair in another order
                let (pair, rank) = (thread / 2, thread as u32 % 2);
                for step in 0..8 {
                    let id = &ids[pair * 8 + (step * 3 + pair) % 8];
                    let c = Communicator::init_rank(id, Rank::new(rank), 2, &on(FABRICS[step % 2])).unwrap();
                    let mut data = [rank + 1].map(|value| value as i32);
                    c.all_reduce_in_place(&mut data, ReduceOp::Sum).unwrap();
                    assert_eq!(data, [3]);
                }
            });
        }
    });
}

/// Case B32: memory runs out in one rank while it makes its offer, or while it prepares what the table asks for.
#[test]
fn memory_that_runs_out_in_one_rank_is_everybodys_error() {
    for ranks in [2, 3, 5] {
        for poor in 0..ranks {
            for phase in 0..2 {
                let id = UniqueId::generate(None).unwrap();
                let began = Instant::now();
                let lack = |rank, at| if rank == poor && at == phase { Err(Error::new(Kind::NoSpace)) } else { Ok(()) };
                let errors: Vec<Error> = std::thread::scope(|scope| {
                    let join = |rank| {
                        let (id, lack) = (&id, &lack);
                        scope.spawn(move || {
                            let offer = lack(rank, 0).map(|()| vec![1]);
                            let end = Time::now().after(Duration::from_secs(60));
                            let join = Join::start(id, Rank::new(rank), ranks, offer, Time::now(), end).unwrap();
                            join.wait(|_| lack(rank, 1)).unwrap_err().error
                        })
                    };
                    let threads: Vec<_> = (0..ranks).map(join).collect();
                    threads.into_iter().map(|thread| thread.join().unwrap()).collect()
                });
                assert_eq!(errors, vec![Error::new(Kind::NoSpace).with_rank(Rank::new(poor)); ranks as usize]);
                assert!(began.elapsed() < Duration::from_secs(2), "{:?}", began.elapsed());
            }
        }
    }
}

/// Case B32, through the communicator: a rank whose shared memory cannot be made names itself to all.
#[test]
fn descriptors_that_run_out_in_one_rank_are_everybodys_error() {
    let exits = finish(job(3, "init::body_of_which_rank_1_has_no_descriptors").start().unwrap());
    for exit in exits {
        assert!(exit.status.success() && !exit.killed, "{}", text(&exit));
    }
}

#[test]
fn body_of_which_rank_1_has_no_descriptors() {
    let Some(rank) = started() else { return };
    let mut hoard = Vec::new();
    if rank.get() == 1 {
        let limit = libc::rlimit { rlim_cur: 64, rlim_max: 64 };
        // SAFETY: `limit` is a valid rlimit, read during the call.
        assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &limit) }, 0);
        while let Ok(file) = std::fs::File::open("/dev/null") {
            hoard.push(file);
        }
        // enough to dial rank 0 and to say what is wrong, too few for a fabric
        hoard.truncate(hoard.len() - 2);
    }
    let began = Instant::now();
    let error = Communicator::from_env(&on(Backend::Shm)).unwrap_err();
    assert_eq!((error.error.kind(), error.error.rank()), (Kind::NoSpace, Some(Rank::new(1))), "{error}");
    assert!(began.elapsed() < Duration::from_secs(2), "{:?}", began.elapsed());
    drop(hoard);
}

#[test]
fn rank_dropped_on_its_way_in_is_named_by_the_others() {
    let id = UniqueId::generate(None).unwrap();
    let config = Config { progress: Progress::Manual, ..on(Backend::Shm) };
    let mut joining: Vec<Option<Joining>> =
        (0..3).map(|rank| Some(Joining::start(&id, Rank::new(rank), 3, &config).unwrap())).collect();
    let mut errors = Vec::new();
    for round in 0.. {
        if round == 3 {
            joining[2] = None;
        }
        let mut open = false;
        for slot in &mut joining {
            let Some(rank) = slot else { continue };
            match rank.step(Time::now()) {
                Poll::Pending => open = true,
                Poll::Ready(result) => {
                    errors.push(result.unwrap_err());
                    *slot = None;
                }
            }
        }
        if !open && round > 3 {
            break;
        }
    }
    assert_eq!(errors.len(), 2);
    for error in errors {
        assert_eq!(error.error.kind(), Kind::PeerDied, "{error}");
        assert_eq!(error.error.rank(), Some(Rank::new(2)), "{error}");
    }
}

#[test]
fn impossible_ranks_and_sizes_are_refused() {
    let id = UniqueId::generate(None).unwrap();
    for (rank, ranks) in [(0, 0), (1, 1), (7, 3), (u32::MAX, u32::MAX)] {
        let error = Communicator::init_rank(&id, Rank::new(rank), ranks, &on(Backend::Shm)).unwrap_err();
        assert_eq!(error.error.kind(), Kind::InvalidArgument);
    }
    let c = Communicator::init_all(1, &Config::default()).unwrap().remove(0);
    assert_eq!(c.alloc::<f64>(usize::MAX).unwrap_err().kind(), Kind::SizeOverflow);
    assert_eq!(c.alloc::<f64>(usize::MAX / 8).unwrap_err().kind(), Kind::SizeOverflow);
    assert_eq!(c.all_reduce(&[1i32; 3], &mut [0; 4], ReduceOp::Sum).unwrap_err().kind(), Kind::InvalidArgument);
    assert_eq!(c.broadcast(&mut [1u8], Rank::new(1)).unwrap_err().kind(), Kind::InvalidArgument);
    assert_eq!(c.reduce(&[1u8], &mut [0u8], ReduceOp::Sum, Rank::new(9)).unwrap_err().kind(), Kind::InvalidArgument);
    c.barrier().unwrap();
}
