//! Every ring under load: a million items between two or three threads in every run, a hundred million in the long one.
#![cfg(not(vervain_loom))]

use std::sync::{Mutex, MutexGuard, PoisonError};

use vervain_transport::{
    Error,
    ring::{
        completion, counter,
        fifo::{self, Consumer, Producer, Progress, Trigger},
        mpsc, record, spsc,
    },
    sync::{Inline, Owned, spin_loop, thread},
};

const SHORT: u64 = 1_000_000;
const LONG: u64 = 100_000_000;

/// Two tests for a ring, of different length.
macro_rules! stress {
    ($name:ident, $body:expr) => {
        mod $name {
            use super::*;

            #[test]
            fn a_million_items_arrive_once_and_in_order() {
                let _turn = turn();
                ($body)(SHORT);
            }

            #[test]
            #[ignore = "a hundred million items take minutes; ci/test.sh --long runs them"]
            fn a_hundred_million_items_arrive_once_and_in_order() {
                let _turn = turn();
                ($body)(LONG);
            }
        }
    };
}

stress!(spsc_ring, |count| {
    let mut ring = spsc::Ring::<u64, 1024>::new();
    let (mut sender, mut receiver) = ring.split();
    from_one(count, |value| sender.push(value).is_ok(), || receiver.pop());
});

stress!(mpsc_ring, |count| {
    let mut ring = mpsc::Ring::<u64, 1024>::new();
    let (sender, mut receiver) = ring.split();
    let other = sender.clone();
    from_two(count, |value| sender.push(value).is_ok(), |value| other.push(value).is_ok(), || receiver.pop());
});

stress!(record_ring, |count| {
    let words = Inline::<{ record::words(1024) }>::new();
    let mut producer = record::Producer::attach(&words, 1024).unwrap();
    let mut consumer = record::Consumer::attach(&words, 1024).unwrap();
    let pop = || {
        let record = consumer.pop().unwrap()?;
        assert_eq!(record, [record[0]; 8], "SP-3");
        Some(record[0])
    };
    from_one(count, |value| producer.push(&[value; 8]).is_ok(), pop);
});

stress!(device_fifo, |count| {
    let words = Inline::<{ fifo::words(1024) }>::new();
    let claims = Inline::<{ fifo::PRODUCER_WORDS }>::new();
    let producer = Producer::attach(&words, &claims, 1024).unwrap();
    let mut consumer = Consumer::attach(&words, 1024).unwrap();
    let claim = |value| {
        let triggers = [trigger(value)];
        let mut claim = producer.claim(&triggers);
        until(|| (claim.fill() == Progress::Complete).then_some(()));
        true
    };
    let pop = || {
        let popped = consumer.pop()?;
        assert_eq!(popped, trigger(popped.first()), "FF-1");
        Some(popped.first())
    };
    from_two(count, |value| producer.push(trigger(value)).is_ok(), claim, pop);
});

stress!(device_fifo_in_batches, |count: u64| {
    let (words, claims) = (Owned::new(fifo::words(256)), Owned::new(fifo::PRODUCER_WORDS));
    let producer = Producer::attach(words.clone(), claims, 256).unwrap();
    let mut consumer = Consumer::attach(words, 256).unwrap();
    thread::scope(|scope| {
        scope.spawn(|| {
            let mut next = 0;
            while next < count {
                let batch: [Trigger; 7] = core::array::from_fn(|at| trigger(next + at as u64));
                let most = batch.len().min((count - next) as usize);
                next += until(|| Some(producer.push_all(&batch[..most]).count as u64).filter(|count| *count > 0));
            }
        });
        let (mut next, mut batch) = (0, [Trigger::default(); 5]);
        while next < count {
            let taken = until(|| Some(consumer.pop_batch(&mut batch)).filter(|count| *count > 0));
            for popped in &batch[..taken] {
                assert_eq!(*popped, trigger(next), "FF-5");
                next += 1;
            }
        }
        assert_eq!(consumer.pop(), None);
    });
});

stress!(completion_queue, |count| {
    let mut queue = completion::Queue::<u64, 1024>::new();
    let (mut reserver, mut poller) = queue.split();
    let mut other = reserver.clone();
    let complete = |value| reserver.reserve().map(|ticket| ticket.complete(value)).is_some();
    let complete_too = |value| other.reserve().map(|ticket| ticket.complete(value)).is_some();
    from_two(count, complete, complete_too, || poller.pop());
});

stress!(counter_line, |count| {
    let line = Inline::<{ counter::WORDS }>::new();
    // the counter wraps in the middle
    let start = 0_u64.wrapping_sub(count / 2);
    let mut writer = counter::Writer::starting_at(&line, start).unwrap();
    let mut reader = counter::Reader::attach(&line).unwrap();
    thread::scope(|scope| {
        scope.spawn(move || (0..count).for_each(|_| _ = writer.advance(1)));
        let mut spins = 0_u32;
        let end = reader.wait_until(start.wrapping_add(count), || {
            pause(&mut spins);
            Ok::<(), Error>(())
        });
        assert_eq!(end, Ok(start.wrapping_add(count)), "CN-2, CN-4");
    });
});

/// One test at a time, so that three threads are the most that run.
fn turn() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    // a test that failed has nothing to hide from the next one
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

fn trigger(value: u64) -> Trigger {
    Trigger::new(value, value << 8).unwrap()
}

/// One thread pushes 0, 1, ..., this one pops.
fn from_one(count: u64, mut push: impl FnMut(u64) -> bool + Send, mut pop: impl FnMut() -> Option<u64>) {
    thread::scope(|scope| {
        scope.spawn(move || (0..count).for_each(|value| until(|| push(value).then_some(()))));
        for value in 0..count {
            assert_eq!(until(&mut pop), value);
        }
        assert_eq!(pop(), None);
    });
}

/// One thread pushes the even numbers, one the odd ones, this one pops.
fn from_two(
    count: u64,
    mut push: impl FnMut(u64) -> bool + Send,
    mut push_too: impl FnMut(u64) -> bool + Send,
    mut pop: impl FnMut() -> Option<u64>,
) {
    thread::scope(|scope| {
        scope.spawn(move || (0..count).step_by(2).for_each(|value| until(|| push(value).then_some(()))));
        scope.spawn(move || (1..count).step_by(2).for_each(|value| until(|| push_too(value).then_some(()))));
        let mut next = [0, 1];
        for _ in 0..count {
            let value = until(&mut pop);
            let expected = &mut next[value as usize % 2];
            assert_eq!(value, *expected);
            *expected += 2;
        }
        assert_eq!(pop(), None);
    });
}

fn until<T>(mut attempt: impl FnMut() -> Option<T>) -> T {
    let mut spins = 0;
    loop {
        if let Some(answer) = attempt() {
            return answer;
        }
        pause(&mut spins);
    }
}

/// Spin, and let others run now and then: there may be fewer processors than threads.
fn pause(spins: &mut u32) {
    *spins += 1;
    if spins.is_multiple_of(64) { thread::yield_now() } else { spin_loop() }
}
