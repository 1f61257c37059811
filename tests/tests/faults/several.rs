//! Several communicators at once (cases B64, B67).

use std::sync::Barrier;
use std::thread;

use vervain_collectives::{Communicator, Rank, ReduceOp};
use vervain_transport::sync::thread as pause;

use crate::support::{FABRICS, on};

/// Two jobs of two ranks: for each rank, its communicator in either job.
fn jobs(count: usize, fabric: vervain_transport::fabric::Backend) -> [Vec<Communicator>; 2] {
    let mut ranks = [Vec::new(), Vec::new()];
    for _ in 0..count {
        for (c, rank) in Communicator::init_all(2, &on(fabric)).unwrap().into_iter().zip(&mut ranks) {
            rank.push(c);
        }
    }
    ranks
}

/// Case B64: every rank uses both jobs from two threads, which take turns differently on the two ranks.
#[test]
fn two_communicators_used_in_opposite_order_do_not_wait_for_each_other() {
    for (fabric, rounds) in FABRICS.into_iter().zip([10_000, 1_000]) {
        let [zero, one] = jobs(2, fabric);
        thread::scope(|scope| {
            for (rank, communicators) in [zero, one].into_iter().enumerate() {
                let reversed = rank == 1;
                let mut order: Vec<(usize, Communicator)> = communicators.into_iter().enumerate().collect();
                if reversed {
                    order.reverse();
                }
                for (job, c) in order {
                    scope.spawn(move || {
                        let mut data = [0i32; 3];
                        for round in 0..rounds {
                            data.fill(round + job as i32);
                            c.all_reduce_in_place(&mut data, ReduceOp::Sum).unwrap();
                            assert_eq!(data, [2 * (round + job as i32); 3]);
                        }
                    });
                }
            }
        });
    }
}

/// Case B64, one thread a rank: what is begun on one communicator goes on while another one is used.
#[test]
fn one_thread_may_have_calls_open_on_two_communicators() {
    use core::task::Poll;
    use vervain_collectives::{Call, Collective, DataType};
    use vervain_transport::Time;
    for fabric in FABRICS {
        let [zero, one] = jobs(2, fabric);
        thread::scope(|scope| {
            for (rank, communicators) in [zero, one].into_iter().enumerate() {
                scope.spawn(move || {
                    for round in 0..500 {
                        let mut data = [[round + 1; 500], [round + 2; 500]];
                        let order = if rank == 0 { [0, 1] } else { [1, 0] };
                        for job in order {
                            let start = data[job].as_mut_ptr().cast::<u8>();
                            let call = Call {
                                collective: Collective::AllReduce,
                                datatype: DataType::I32,
                                op: Some(ReduceOp::Sum),
                                root: None,
                                count: 500,
                                input: start,
                                output: start,
                                registered: false,
                            };
                            // SAFETY: `data` is not touched before both calls are done.
                            unsafe { communicators[job].begin(&call) }.unwrap();
                        }
                        let mut open = vec![0, 1];
                        while !open.is_empty() {
                            open.retain(|&job: &usize| match communicators[job].step(Time::now()) {
                                Poll::Pending => true,
                                Poll::Ready(result) => {
                                    result.unwrap();
                                    false
                                }
                            });
                            pause::yield_now();
                        }
                        assert_eq!(data, [[2 * (round + 1); 500], [2 * (round + 2); 500]]);
                    }
                });
            }
        });
    }
}

/// Case B67: four threads of each rank use their communicators' peers for the first time at once.
#[test]
fn first_uses_by_many_threads_at_once_all_work() {
    for fabric in FABRICS {
        for _ in 0..20 {
            let [zero, one] = jobs(4, fabric);
            let start = Barrier::new(8);
            thread::scope(|scope| {
                for (rank, communicators) in [zero, one].into_iter().enumerate() {
                    for (job, c) in communicators.into_iter().enumerate() {
                        let start = &start;
                        scope.spawn(move || {
                            let peer = Rank::new(1 - rank as u32);
                            start.wait();
                            for length in [1usize, 1000, 100_000] {
                                let mine = vec![(rank * 10 + job) as i32; length];
                                let mut theirs = vec![-1; length];
                                c.group(|group| {
                                    group.send(&mine, peer);
                                    group.recv(&mut theirs, peer);
                                })
                                .unwrap();
                                assert_eq!(theirs, vec![((1 - rank) * 10 + job) as i32; length]);
                            }
                        });
                    }
                }
            });
        }
    }
}
