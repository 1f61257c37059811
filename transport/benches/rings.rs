//! The rings against the crates that people would use instead, in interleaved rounds: alone on one thread, and between two
//! threads, each pinned to a processor of its own.
//!
//! A machine whose speed drifts must not favour whoever ran in the better minute, so every group runs ours and theirs in
//! turn, [`ROUNDS`] times; compare rounds in pairs.

use core::hint::black_box;
use std::{
    thread,
    time::{Duration, Instant},
};

use criterion::{
    BenchmarkGroup, BenchmarkId, Criterion, Throughput, criterion_group, criterion_main, measurement::WallTime,
};
use crossbeam_queue::ArrayQueue;
use vervain_transport::{
    ring::{
        completion,
        fifo::{self, Consumer, Producer, Progress, Trigger},
        mpsc, spsc,
    },
    sync::{Arc, AtomicWords, Inline, Words, spin_loop},
};

const CAPACITY: usize = 256;
const ROUNDS: usize = 5;

/// Both ends of a queue, as functions.
struct Ends<Push, Pop>(Push, Pop);

fn ours_spsc() -> Ends<impl FnMut(u64) -> bool + Send, impl FnMut() -> Option<u64> + Send> {
    let (mut sender, mut receiver) = spsc::channel::<u64, CAPACITY>();
    Ends(move |value| sender.push(value).is_ok(), move || receiver.pop())
}

fn rtrb_spsc() -> Ends<impl FnMut(u64) -> bool + Send, impl FnMut() -> Option<u64> + Send> {
    let (mut sender, mut receiver) = rtrb::RingBuffer::<u64>::new(CAPACITY);
    Ends(move |value| sender.push(value).is_ok(), move || receiver.pop().ok())
}

fn ours_mpsc() -> Ends<impl FnMut(u64) -> bool + Send + Clone, impl FnMut() -> Option<u64> + Send> {
    let (sender, mut receiver) = mpsc::channel::<u64, CAPACITY>();
    Ends(move |value| sender.push(value).is_ok(), move || receiver.pop())
}

fn crossbeam_mpsc() -> Ends<impl FnMut(u64) -> bool + Send + Clone, impl FnMut() -> Option<u64> + Send> {
    let queue = Arc::new(ArrayQueue::new(CAPACITY));
    let other = queue.clone();
    Ends(move |value| queue.push(value).is_ok(), move || other.pop())
}

type FifoMemory = (Inline<{ fifo::words(CAPACITY) }>, Inline<{ fifo::PRODUCER_WORDS }>);

/// Two words a value, as triggers have, and the peer the same.
fn ours_fifo(memory: &FifoMemory) -> Ends<impl FnMut(u64) -> bool + Send + Clone, impl FnMut() -> Option<u64> + Send> {
    let (producer, mut consumer) = fifo_ends(memory);
    let push = move |value| producer.push(trigger(value)).is_ok();
    Ends(push, move || consumer.pop().map(|trigger| trigger.second()))
}

/// The same, claimed by addition as a device does. A claim is kept until there is room for it.
fn claiming_fifo(
    memory: &FifoMemory,
) -> Ends<impl FnMut(u64) -> bool + Send + Clone, impl FnMut() -> Option<u64> + Send> {
    let (producer, mut consumer) = fifo_ends(memory);
    let push = move |value| {
        let triggers = [trigger(value)];
        let mut claim = producer.claim(&triggers);
        until(|| (claim.fill() == Progress::Complete).then_some(true))
    };
    Ends(push, move || consumer.pop().map(|trigger| trigger.second()))
}

fn fifo_ends((words, claims): &FifoMemory) -> (Producer<&impl Words, &impl AtomicWords>, Consumer<&impl Words>) {
    fifo::reset(words, claims, CAPACITY, fifo::Position(0)).expect("the memory fits");
    let producer = Producer::attach(words, claims, CAPACITY).expect("the memory fits");
    (producer, Consumer::attach(words, CAPACITY).expect("the memory fits"))
}

fn trigger(value: u64) -> Trigger {
    Trigger::new(0, value).expect("63 bits")
}

fn crossbeam_pairs() -> Ends<impl FnMut(u64) -> bool + Send + Clone, impl FnMut() -> Option<u64> + Send> {
    let queue = Arc::new(ArrayQueue::new(CAPACITY));
    let other = queue.clone();
    Ends(move |value| queue.push([0, value]).is_ok(), move || other.pop().map(|pair| pair[1]))
}

/// Reserved and completed by the same thread, one after the other.
fn ours_completion(
    queue: &mut completion::Queue<u64, CAPACITY>,
) -> Ends<impl FnMut(u64) -> bool + Send + Clone, impl FnMut() -> Option<u64> + Send> {
    let (mut reserver, mut poller) = queue.split();
    let push = move |value| reserver.reserve().map(|ticket| ticket.complete(value)).is_some();
    Ends(push, move || poller.pop())
}

/// One thread pushes and pops in turn.
fn alone(
    iterations: u64,
    Ends(mut push, mut pop): Ends<impl FnMut(u64) -> bool, impl FnMut() -> Option<u64>>,
) -> Duration {
    let begin = Instant::now();
    for value in 0..iterations {
        black_box(push(black_box(value)));
        black_box(pop());
    }
    begin.elapsed()
}

/// One thread pushes, this one pops.
fn between_two(
    iterations: u64,
    Ends(mut push, mut pop): Ends<impl FnMut(u64) -> bool + Send, impl FnMut() -> Option<u64>>,
) -> Duration {
    thread::scope(|scope| {
        scope.spawn(move || {
            pin(1);
            (0..iterations).for_each(|value| until(|| push(value).then_some(())));
        });
        pin(0);
        let begin = Instant::now();
        (0..iterations).for_each(|_| {
            black_box(until(&mut pop));
        });
        begin.elapsed()
    })
}

/// Two threads push half each, this one pops as well as it can; with two processors they share one.
fn from_two(
    iterations: u64,
    Ends(push, mut pop): Ends<impl FnMut(u64) -> bool + Send + Clone, impl FnMut() -> Option<u64>>,
) -> Duration {
    thread::scope(|scope| {
        let halves = [iterations / 2, iterations - iterations / 2];
        for (processor, half) in halves.into_iter().enumerate() {
            let mut push = push.clone();
            scope.spawn(move || {
                pin(processor + 1);
                (0..half).for_each(|value| until(|| push(value).then_some(())));
            });
        }
        pin(0);
        let begin = Instant::now();
        (0..iterations).for_each(|_| {
            black_box(until(&mut pop));
        });
        begin.elapsed()
    })
}

/// Spin, and let others run now and then: a pushing thread may share our processor.
fn until<T>(mut attempt: impl FnMut() -> Option<T>) -> T {
    for spins in 0_u32.. {
        if let Some(answer) = attempt() {
            return answer;
        }
        if spins % 1024 == 1023 { vervain_transport::sync::thread::yield_now() } else { spin_loop() }
    }
    unreachable!("the loop ends with an answer")
}

/// Bind this thread to a processor, modulo those that there are.
fn pin(processor: usize) {
    let count = thread::available_parallelism().map_or(1, usize::from);
    // SAFETY: an all-zero set is a valid empty set, and the index is below 1024.
    unsafe {
        let mut set: libc::cpu_set_t = core::mem::zeroed();
        libc::CPU_SET(processor % count % 1024, &mut set);
        libc::sched_setaffinity(0, size_of_val(&set), &set);
    }
}

fn bench(criterion: &mut Criterion) {
    compare(criterion, "spsc", |group, round| {
        let id = |name: &str| BenchmarkId::new(name, round);
        group.bench_function(id("vervain, one thread"), |b| b.iter_custom(|n| alone(n, ours_spsc())));
        group.bench_function(id("rtrb, one thread"), |b| b.iter_custom(|n| alone(n, rtrb_spsc())));
        group.bench_function(id("vervain, two threads"), |b| b.iter_custom(|n| between_two(n, ours_spsc())));
        group.bench_function(id("rtrb, two threads"), |b| b.iter_custom(|n| between_two(n, rtrb_spsc())));
    });
    compare(criterion, "mpsc", |group, round| {
        let id = |name: &str| BenchmarkId::new(name, round);
        group.bench_function(id("vervain, one thread"), |b| b.iter_custom(|n| alone(n, ours_mpsc())));
        group.bench_function(id("crossbeam, one thread"), |b| b.iter_custom(|n| alone(n, crossbeam_mpsc())));
        group.bench_function(id("vervain, two threads"), |b| b.iter_custom(|n| between_two(n, ours_mpsc())));
        group.bench_function(id("crossbeam, two threads"), |b| b.iter_custom(|n| between_two(n, crossbeam_mpsc())));
        group.bench_function(id("vervain, two senders"), |b| b.iter_custom(|n| from_two(n, ours_mpsc())));
        group.bench_function(id("crossbeam, two senders"), |b| b.iter_custom(|n| from_two(n, crossbeam_mpsc())));
    });
    compare(criterion, "fifo", |group, round| {
        let id = |name: &str| BenchmarkId::new(name, round);
        let memory = &FifoMemory::default();
        group.bench_function(id("vervain, one thread"), |b| b.iter_custom(|n| alone(n, ours_fifo(memory))));
        group.bench_function(id("crossbeam, one thread"), |b| b.iter_custom(|n| alone(n, crossbeam_pairs())));
        group.bench_function(id("vervain, two threads"), |b| b.iter_custom(|n| between_two(n, ours_fifo(memory))));
        group.bench_function(id("crossbeam, two threads"), |b| b.iter_custom(|n| between_two(n, crossbeam_pairs())));
        group.bench_function(id("vervain, two senders"), |b| b.iter_custom(|n| from_two(n, ours_fifo(memory))));
        group.bench_function(id("vervain, two claiming"), |b| b.iter_custom(|n| from_two(n, claiming_fifo(memory))));
        group.bench_function(id("crossbeam, two senders"), |b| b.iter_custom(|n| from_two(n, crossbeam_pairs())));
    });
    compare(criterion, "completion", |group, round| {
        let id = |name: &str| BenchmarkId::new(name, round);
        let queue = &mut completion::Queue::new();
        group.bench_function(id("vervain, one thread"), |b| b.iter_custom(|n| alone(n, ours_completion(queue))));
        group.bench_function(id("crossbeam, one thread"), |b| b.iter_custom(|n| alone(n, crossbeam_mpsc())));
        group.bench_function(id("vervain, two threads"), |b| b.iter_custom(|n| between_two(n, ours_completion(queue))));
        group.bench_function(id("crossbeam, two threads"), |b| b.iter_custom(|n| between_two(n, crossbeam_mpsc())));
        group.bench_function(id("vervain, two senders"), |b| b.iter_custom(|n| from_two(n, ours_completion(queue))));
        group.bench_function(id("crossbeam, two senders"), |b| b.iter_custom(|n| from_two(n, crossbeam_mpsc())));
    });
}

fn compare(criterion: &mut Criterion, name: &str, mut round: impl FnMut(&mut BenchmarkGroup<'_, WallTime>, usize)) {
    let mut group = criterion.benchmark_group(name);
    group.throughput(Throughput::Elements(1)).sample_size(20).measurement_time(Duration::from_secs(1));
    group.warm_up_time(Duration::from_millis(200));
    (0..ROUNDS).for_each(|number| round(&mut group, number));
    group.finish();
}

criterion_group!(benches, bench);
criterion_main!(benches);
