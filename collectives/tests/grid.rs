//! Every collective, algorithm and protocol, at boundary sizes, against plain loops.

mod common;

use common::cluster;
use vervain_collectives::plan::{Algorithm, Needs, builders};
use vervain_collectives::{Collective, Communicator, Config, Kind, Protocol, Rank, ReduceOp};
use vervain_transport::fabric::Backend;

const COUNTS: [usize; 14] = [0, 1, 2, 3, 7, 8, 28, 29, 31, 1000, 1024, 2049, 16385, 70001];

/// Small integers, so that every order of summation is exact.
fn value(rank: u32, index: usize) -> i32 {
    (rank as i32 + 1) * 7 + (index % 1013) as i32
}

fn data(rank: u32, count: usize) -> Vec<i32> {
    (0..count).map(|index| value(rank, index)).collect()
}

fn sum(ranks: u32, index: usize) -> i32 {
    (0..ranks).map(|rank| value(rank, index)).sum()
}

/// All seven collectives with data, out of place and in place where there is one, for one count.
fn all_collectives(c: &Communicator, count: usize) {
    let (rank, ranks) = (c.rank().get(), c.ranks());
    let n = ranks as usize;
    let mine = data(rank, count);

    let mut output = vec![-1; count];
    c.all_reduce(&mine, &mut output, ReduceOp::Sum).unwrap();
    assert!(output.iter().enumerate().all(|(i, &got)| got == sum(ranks, i)), "all_reduce {count}");
    let mut place = mine.clone();
    c.all_reduce_in_place(&mut place, ReduceOp::Sum).unwrap();
    assert_eq!(place, output, "all_reduce in place {count}");

    let mut gathered = vec![-1; count * n];
    c.all_gather(&mine, &mut gathered).unwrap();
    let expected: Vec<i32> = (0..ranks).flat_map(|rank| data(rank, count)).collect();
    assert_eq!(gathered, expected, "all_gather {count}");
    let mut place = vec![-1; count * n];
    place[rank as usize * count..][..count].copy_from_slice(&mine);
    c.all_gather_in_place(&mut place).unwrap();
    assert_eq!(place, expected, "all_gather in place {count}");

    let blocks = data(rank, count * n);
    let mut block = vec![-1; count];
    c.reduce_scatter(&blocks, &mut block, ReduceOp::Sum).unwrap();
    let first = rank as usize * count;
    let right = |block: &[i32]| block.iter().enumerate().all(|(i, &got)| got == sum(ranks, first + i));
    assert!(right(&block), "reduce_scatter {count}");
    let mut place = blocks.clone();
    c.reduce_scatter_in_place(&mut place, ReduceOp::Sum).unwrap();
    assert!(right(&place[first..][..count]), "reduce_scatter in place {count}");

    let mut swapped = vec![-1; count * n];
    c.all_to_all(&blocks, &mut swapped).unwrap();
    for from in 0..ranks {
        let part = &swapped[from as usize * count..][..count];
        assert!(part.iter().enumerate().all(|(i, &got)| got == value(from, first + i)), "all_to_all {count}");
    }

    for root in (0..ranks).map(Rank::new) {
        let mut copy = if rank == root.get() { mine.clone() } else { vec![-1; count] };
        c.broadcast(&mut copy, root).unwrap();
        assert_eq!(copy, data(root.get(), count), "broadcast {count} from {root}");
        let mut total = vec![-1; if rank == root.get() { count } else { 0 }];
        c.reduce(&mine, &mut total, ReduceOp::Sum, root).unwrap();
        assert!(total.iter().enumerate().all(|(i, &got)| got == sum(ranks, i)), "reduce {count} to {root}");
    }
    c.barrier().unwrap();
}

fn everything(config: &Config, ranks: &[u32], counts: &[usize]) {
    for &ranks in ranks {
        cluster(ranks, config, |c| counts.iter().for_each(|&count| all_collectives(c, count)));
    }
}

fn with(fabric: Backend, protocol: Option<Protocol>) -> Config {
    Config { fabric: Some(fabric), protocol, ..Config::default() }
}

#[test]
fn automatic_choice_is_right_on_shm() {
    everything(&with(Backend::Shm, None), &[1, 2, 3, 4, 7, 8], &COUNTS);
}

#[test]
fn automatic_choice_is_right_on_tcp() {
    everything(&with(Backend::Tcp, None), &[1, 2, 3, 5], &COUNTS);
}

#[test]
fn every_protocol_is_right_on_shm() {
    for protocol in [Protocol::Ll, Protocol::Ll128, Protocol::Simple] {
        everything(&with(Backend::Shm, Some(protocol)), &[2, 3], &COUNTS);
    }
}

#[test]
fn ll_and_simple_are_right_on_tcp_and_ll128_is_refused() {
    for protocol in [Protocol::Ll, Protocol::Simple] {
        everything(&with(Backend::Tcp, Some(protocol)), &[2, 3], &COUNTS);
    }
    let refused = Communicator::init_all(2, &with(Backend::Tcp, Some(Protocol::Ll128)));
    assert_eq!(refused.err().unwrap().error.kind(), Kind::Unsupported);
}

#[test]
fn fabric_that_no_job_can_use_is_refused_by_all_sizes_of_jobs() {
    for ranks in [1, 2, 3] {
        let refused = Communicator::init_all(ranks, &with(Backend::Fake, None));
        assert_eq!(refused.err().map(|error| error.error.kind()), Some(Kind::Unsupported), "{ranks} ranks");
    }
}

#[test]
fn counters_pass_every_edge_of_integer_width() {
    for first_step in [(1 << 31) - 4, (1 << 32) - 4, (1 << 63) - 4, u64::MAX - 3] {
        for fabric in [Backend::Shm, Backend::Tcp] {
            // three ranks: short messages go by the boards on shm
            for protocol in [Protocol::Ll, Protocol::Simple] {
                let config = Config { first_step, ..with(fabric, Some(protocol)) };
                cluster(3, &config, |c| {
                    for round in 0..64 {
                        let mut data = vec![value(c.rank().get(), round); 100];
                        c.all_reduce_in_place(&mut data, ReduceOp::Sum).unwrap();
                        assert_eq!(data, vec![sum(3, round); 100]);
                    }
                });
            }
        }
    }
}

/// One collective by one algorithm; plans that need registered buffers get them.
fn by(c: &Communicator, collective: Collective, registered: bool, count: usize) {
    let (rank, ranks) = (c.rank().get(), c.ranks());
    let n = ranks as usize;
    let (given, got) = match collective {
        Collective::AllGather => (count, count * n),
        Collective::ReduceScatter => (count * n, count),
        Collective::AllToAll => (count * n, count * n),
        _ => (count, count),
    };
    let mut input = c.alloc::<i32>(given).unwrap();
    let mut output = c.alloc::<i32>(got).unwrap();
    input.copy_from_slice(&data(rank, given));
    let root = Rank::new(ranks - 1);
    let run = |input: &mut [i32], output: &mut [i32]| match collective {
        Collective::AllReduce => c.all_reduce(input, output, ReduceOp::Sum),
        Collective::AllGather => c.all_gather(input, output),
        Collective::ReduceScatter => c.reduce_scatter(input, output, ReduceOp::Sum),
        Collective::AllToAll => c.all_to_all(input, output),
        Collective::Reduce => c.reduce(input, output, ReduceOp::Sum, root),
        Collective::Broadcast => c.broadcast(input, root),
        _ => c.barrier(),
    };
    if registered {
        match collective {
            Collective::AllReduce => c.all_reduce(&input, &mut output, ReduceOp::Sum),
            Collective::AllGather => c.all_gather(&input, &mut output),
            Collective::ReduceScatter => c.reduce_scatter(&input, &mut output, ReduceOp::Sum),
            Collective::AllToAll => c.all_to_all(&input, &mut output),
            Collective::Reduce => c.reduce(&input, &mut output, ReduceOp::Sum, root),
            Collective::Broadcast => c.broadcast(&mut input, root),
            _ => c.barrier(),
        }
        .unwrap();
    } else {
        run(&mut input, &mut output).unwrap();
    }
    let first = rank as usize * count;
    let right = match collective {
        Collective::AllReduce => output.iter().enumerate().all(|(i, &got)| got == sum(ranks, i)),
        Collective::AllGather => output.iter().enumerate().all(|(i, &got)| got == value((i / count) as u32, i % count)),
        Collective::ReduceScatter => output.iter().enumerate().all(|(i, &got)| got == sum(ranks, first + i)),
        Collective::AllToAll => {
            output.iter().enumerate().all(|(i, &got)| got == value((i / count) as u32, first + i % count))
        }
        Collective::Reduce => rank != root.get() || output.iter().enumerate().all(|(i, &got)| got == sum(ranks, i)),
        Collective::Broadcast => input.iter().enumerate().all(|(i, &got)| got == value(root.get(), i)),
        _ => true,
    };
    assert!(right, "{collective} of {count} on {ranks} ranks");
}

#[test]
fn every_plan_is_right_with_plain_and_registered_buffers() {
    for &algorithm in Algorithm::ALL {
        for ranks in [1, 2, 3, 4, 5] {
            let config = Config { algorithm: Some(algorithm), ..with(Backend::Shm, None) };
            cluster(ranks, &config, |c| {
                for &collective in Collective::ALL {
                    if builders::plan(collective, algorithm).is_none() || collective == Collective::Barrier {
                        continue;
                    }
                    for count in COUNTS {
                        if algorithm.needs() != Needs::MappedPeers {
                            by(c, collective, false, count);
                        }
                        by(c, collective, true, count);
                    }
                }
            });
        }
    }
}

#[test]
fn long_messages_sent_straight_from_the_buffers_are_right_on_tcp() {
    for algorithm in [None, Some(Algorithm::Ring), Some(Algorithm::OneShot)] {
        let config = Config { algorithm, ..with(Backend::Tcp, None) };
        cluster(3, &config, |c| {
            for count in [65_535, 65_536, 700_001] {
                let mine = data(c.rank().get(), count);
                let mut output = vec![-1; count];
                c.all_reduce(&mine, &mut output, ReduceOp::Sum).unwrap();
                assert!(output.iter().enumerate().all(|(i, &got)| got == sum(3, i)), "{algorithm:?} {count}");
                let mut place = mine;
                c.all_reduce_in_place(&mut place, ReduceOp::Sum).unwrap();
                assert_eq!(place, output, "{algorithm:?} {count} in place");
            }
        });
    }
}

#[test]
fn a_plan_that_needs_registered_buffers_is_refused_without_them() {
    let config = Config { algorithm: Some(Algorithm::Direct), ..with(Backend::Shm, None) };
    let results = cluster(2, &config, |c| c.all_reduce_in_place(&mut [1i32; 100], ReduceOp::Sum));
    assert!(results.iter().all(|result| result.unwrap_err().kind() == Kind::Unsupported));
}
