//! What a communicator costs before it is used: nothing with one rank, no connection with several. And one rank's results.

use std::collections::BTreeSet;
use std::fs;

use half::{bf16, f16};
use vervain_collectives::{Communicator, Config, Element, Rank, ReduceOp};

use crate::support::{finish, job, mappings, on, open_files, started, text, threads};

/// Counting descriptors and threads needs a process without other tests.
fn in_a_process(ranks: u32, body: &str) {
    for exit in finish(job(ranks, body).start().unwrap()) {
        assert!(exit.status.success() && !exit.killed, "{}", text(&exit));
    }
}

#[test]
fn one_rank_opens_nothing() {
    in_a_process(1, "alone::body_of_one_rank");
}

#[test]
fn body_of_one_rank() {
    if started().is_none() {
        return;
    }
    let count = || (open_files(), threads(), mappings());
    let before = count();
    let c = Communicator::init_all(1, &Config::default()).unwrap().remove(0);
    assert_eq!((count(), c.backend()), (before, None));
    let mut data = vec![1f32; 1 << 20];
    c.all_reduce_in_place(&mut data, ReduceOp::Avg).unwrap();
    let mut copy = vec![0f32; 1 << 20];
    c.group(|group| {
        group.send(&data, Rank::new(0));
        group.recv(&mut copy, Rank::new(0));
    })
    .unwrap();
    let mut registered = c.alloc::<f32>(1000).unwrap();
    c.all_reduce_in_place(&mut registered, ReduceOp::Sum).unwrap();
    c.barrier().unwrap();
    assert_eq!((count(), copy), (before, data));
}

#[test]
fn connections_and_slots_come_on_first_use() {
    in_a_process(1, "alone::body_that_counts_connections");
}

#[test]
fn body_that_counts_connections() {
    if started().is_none() {
        return;
    }
    for fabric in crate::support::FABRICS {
        let communicators = Communicator::init_all(3, &on(fabric)).unwrap();
        let count = || (open_files(), mappings());
        let before = count();
        std::thread::scope(|scope| {
            for (c, rank) in communicators.iter().map(SendRef).zip(0u32..) {
                scope.spawn(move || {
                    let c = c.get();
                    match rank {
                        0 => c.send(&[1u8], Rank::new(1)).unwrap(),
                        1 => c.recv(&mut [0u8], Rank::new(0)).unwrap(),
                        _ => {}
                    }
                });
            }
        });
        let one_pair = count();
        assert!(one_pair != before, "{fabric}: the first message makes a link");
        let used = |c: &Communicator| c.all_reduce_in_place(&mut [1i32; 10], ReduceOp::Sum).unwrap();
        let all = |times: usize| {
            std::thread::scope(|scope| {
                for c in communicators.iter().map(SendRef) {
                    scope.spawn(move || (0..times).for_each(|_| used(c.get())));
                }
            });
        };
        all(1);
        let three_pairs = count();
        assert!(three_pairs.0 > one_pair.0 || three_pairs.1 > one_pair.1, "{fabric}: the other pairs come later");
        all(100);
        assert_eq!(count(), three_pairs, "{fabric}: and stay");
    }
}

/// Each communicator is used by one thread at a time: a scope's.
#[derive(Clone, Copy)]
struct SendRef<'a>(&'a Communicator);

// SAFETY: the tests above use every communicator in one thread at a time, and join it before the next one uses it.
unsafe impl Send for SendRef<'_> {}

impl<'a> SendRef<'a> {
    fn get(self) -> &'a Communicator {
        self.0
    }
}

#[test]
fn every_descriptor_of_a_job_is_closed_at_its_end() {
    in_a_process(1, "alone::body_that_closes_everything");
}

#[test]
fn body_that_closes_everything() {
    if started().is_none() {
        return;
    }
    let names =
        || -> BTreeSet<_> { fs::read_dir("/proc/self/fd").unwrap().map(|entry| entry.unwrap().file_name()).collect() };
    let mut before = None;
    for round in 0..30 {
        let fabric = crate::support::FABRICS[round % 2];
        crate::support::cluster(3, &on(fabric), |c| {
            let mut data = c.alloc::<f32>(1000).unwrap();
            c.all_reduce_in_place(&mut data, ReduceOp::Sum).unwrap();
            c.barrier().unwrap();
        });
        let now = (names().len(), threads(), mappings());
        let before = *before.get_or_insert(now);
        assert_eq!(now, before, "round {round}");
    }
}

/// Values that a lost tail, a wrong type or a scaling by something else than 1 would change.
trait Sample: Element {
    fn sample(index: usize) -> Self;
}

macro_rules! sample {
    ($($type:ty: $value:expr),*) => {$(
        impl Sample for $type {
            fn sample(index: usize) -> Self {
                let value: fn(usize) -> $type = $value;
                value(index)
            }
        }
    )*};
}
sample!(
    u8: |i| (i * 37 + 1) as u8,
    i32: |i| (i as i32 + 1).wrapping_mul(0x9e37_79b1u32 as i32),
    i64: |i| (i as i64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15u64 as i64),
    f16: |i| f16::from_f32((i % 2000) as f32 + 1.0),
    bf16: |i| bf16::from_f32((i % 250) as f32 + 1.0),
    f32: |i| i as f32 * 1.0e-3 + 1.0,
    f64: |i| i as f64 * 1.0e-30 + 1.0
);

/// Case B07: with one rank every operation is a copy, for every count and alignment, and nothing beyond is written.
fn one_rank_copies<T: Sample>(c: &Communicator, count: usize, op: ReduceOp) {
    const GUARD: usize = 16;
    let canary = T::sample(4711);
    for offset in [0, 1, 7, 15] {
        let given: Vec<T> = (0..count + offset).map(T::sample).collect();
        let expected = &given[offset..];
        let mut got = vec![canary; offset + count + GUARD];
        c.all_reduce(&given[offset..], &mut got[offset..offset + count], op).unwrap();
        let whole = |got: &[T]| {
            got[..offset].iter().chain(&got[offset + count..]).all(|&value| value == canary)
                && got[offset..offset + count] == *expected
        };
        assert!(whole(&got), "{op} of {count} {} at {offset}", T::TYPE);
        c.all_reduce_in_place(&mut got[offset..offset + count], op).unwrap();
        assert!(whole(&got), "{op} of {count} {} at {offset} in place", T::TYPE);
        got[offset..offset + count].fill(canary);
        c.reduce_scatter(&given[offset..], &mut got[offset..offset + count], op).unwrap();
        assert!(whole(&got), "reduce_scatter of {count} {} at {offset}", T::TYPE);
    }
}

#[test]
fn one_rank_has_its_own_values_for_every_type_operation_and_count() {
    let c = Communicator::init_all(1, &Config::default()).unwrap().remove(0);
    let ops = [ReduceOp::Sum, ReduceOp::Prod, ReduceOp::Min, ReduceOp::Max, ReduceOp::Avg];
    let large = (1 << 20) - 1..=(1 << 20) + 9;
    for count in 0..=257 {
        for op in ops {
            every_type(&c, count, op);
        }
    }
    for count in large.step_by(if cfg!(debug_assertions) { 5 } else { 1 }) {
        every_type(&c, count, ReduceOp::Avg);
    }
}

fn every_type(c: &Communicator, count: usize, op: ReduceOp) {
    one_rank_copies::<u8>(c, count, op);
    one_rank_copies::<i32>(c, count, op);
    one_rank_copies::<i64>(c, count, op);
    one_rank_copies::<f16>(c, count, op);
    one_rank_copies::<bf16>(c, count, op);
    one_rank_copies::<f32>(c, count, op);
    one_rank_copies::<f64>(c, count, op);
}
