//! The rings one call at a time, under load, and against a peer that forges their indexes.
#![cfg(not(vervain_loom))]

use core::ptr::NonNull;

use vervain_transport::{
    Kind,
    ring::{
        Full, completion, mpsc,
        record::{self, Consumer, Producer, Refusal},
        spsc,
    },
    sync::{Arc, Mapped, Ordering::Relaxed, Words, spin_loop, thread},
};

#[test]
fn full_spsc_refuses_and_returns_the_value() {
    let (mut sender, mut receiver) = spsc::channel::<String, 2>();
    for value in ["a", "b"] {
        sender.push(value.to_owned()).unwrap();
    }
    assert_eq!(sender.push("c".to_owned()), Err(Full("c".to_owned())), "SP-1: all slots are usable");
    assert_eq!(receiver.pop().as_deref(), Some("a"));
    sender.push("d".to_owned()).expect("SP-2: the stale copy of the head is reread before a refusal");
    assert_eq!([receiver.pop(), receiver.pop(), receiver.pop()].map(|value| value.is_some()), [true, true, false]);
}

#[test]
fn full_mpsc_refuses_and_returns_the_value() {
    let (sender, mut receiver) = mpsc::channel::<String, 2>();
    for value in ["a", "b"] {
        sender.push(value.to_owned()).unwrap();
    }
    assert_eq!(sender.clone().push("c".to_owned()), Err(Full("c".to_owned())), "MP-5");
    assert_eq!(receiver.pop().as_deref(), Some("a"), "MP-3");
    sender.push("d".to_owned()).unwrap();
    assert_eq!([receiver.pop(), receiver.pop(), receiver.pop()].map(|value| value.is_some()), [true, true, false]);
}

#[test]
fn values_left_in_a_ring_are_dropped_once() {
    let value = Arc::new(());
    let (mut sender, mut receiver) = spsc::channel::<Arc<()>, 4>();
    let (other_sender, mut other_receiver) = mpsc::channel::<Arc<()>, 4>();
    for _ in 0..3 {
        sender.push(value.clone()).unwrap();
        other_sender.push(value.clone()).unwrap();
    }
    drop((receiver.pop(), other_receiver.pop()));
    drop((sender, receiver, other_sender, other_receiver));
    assert_eq!(Arc::strong_count(&value), 1, "SP-4");
}

#[test]
fn a_ring_on_the_stack_keeps_its_values_between_splits() {
    let (mut ring, mut other) = (spsc::Ring::<u32, 4>::new(), mpsc::Ring::<u32, 4>::new());
    for value in 0..10 {
        ring.split().0.push(value).unwrap();
        other.split().0.push(value).unwrap();
        assert_eq!((ring.split().1.pop(), other.split().1.pop()), (Some(value), Some(value)));
    }
}

#[test]
fn ends_of_a_static_are_given_out_once_even_to_many_who_ask() {
    static ONE: spsc::Ring<u64, 4> = spsc::Ring::new();
    static MANY: mpsc::Ring<u64, 4> = mpsc::Ring::new();
    static ENDED: completion::Queue<u64, 4> = completion::Queue::new();
    let asking = [0, 1, 2].map(|_| {
        thread::spawn(|| [ONE.take_ends().is_some(), MANY.take_ends().is_some(), ENDED.take_ends().is_some()])
    });
    let given = asking.map(|thread| thread.join().unwrap());
    let count = |which: usize| given.iter().filter(|given| given[which]).count();
    assert_eq!([count(0), count(1), count(2)], [1; 3], "SP-7, MP-6, CQ-7");
}

#[test]
fn values_in_a_static_are_kept_from_one_end_to_the_other() {
    static RING: spsc::Ring<Box<u64>, 4> = spsc::Ring::new();
    let (mut sender, mut receiver) = RING.take_ends().unwrap();
    let pushing = thread::spawn(move || {
        for value in 0..1000 {
            let mut value = Box::new(value);
            while let Err(Full(back)) = sender.push(value) {
                value = back;
                thread::yield_now();
            }
        }
    });
    for value in 0..1000 {
        assert_eq!(wait(|| receiver.pop()), Box::new(value), "SP-3");
    }
    pushing.join().unwrap();
}

#[test]
fn spsc_streams_between_threads_in_order() {
    let (mut sender, mut receiver) = spsc::channel::<u64, 8>();
    let pushing = thread::spawn(move || {
        for value in 0..100_000 {
            while sender.push(value).is_err() {
                thread::yield_now();
            }
        }
    });
    for value in 0..100_000 {
        assert_eq!(wait(|| receiver.pop()), value);
    }
    pushing.join().unwrap();
}

#[test]
fn mpsc_keeps_the_order_of_each_sender() {
    let (sender, mut receiver) = mpsc::channel::<(usize, u64), 8>();
    let pushing = [0, 1, 2].map(|who| {
        let sender = sender.clone();
        thread::spawn(move || {
            for value in 0..20_000 {
                while sender.push((who, value)).is_err() {
                    thread::yield_now();
                }
            }
        })
    });
    let mut next = [0; 3];
    for _ in 0..60_000 {
        let (who, value) = wait(|| receiver.pop());
        assert_eq!(value, next[who], "MP-4");
        next[who] += 1;
    }
    for thread in pushing {
        thread.join().unwrap();
    }
}

fn wait<T>(mut attempt: impl FnMut() -> Option<T>) -> T {
    loop {
        if let Some(value) = attempt() {
            return value;
        }
        spin_loop();
        thread::yield_now();
    }
}

/// Words of a ring of four records, and the vector below them.
fn shared() -> (Vec<u64>, Mapped) {
    let mut memory = vec![0; record::words(4)];
    // SAFETY: the caller keeps the vector and does not touch it.
    let words = unsafe { Mapped::new(NonNull::from(&mut memory[..]).cast(), memory.len()) };
    (memory, words)
}

const TAIL: usize = 0;
const HEAD: usize = 16;

#[test]
fn forged_indexes_are_refused_on_both_sides() {
    for lie in [5, 1 << 31, 1 << 32, 1 << 63, u64::MAX] {
        let (_memory, words) = shared();
        let mut consumer = Consumer::attach(words, 4).unwrap();
        words.store(TAIL, lie, Relaxed);
        assert_eq!((consumer.pop(), consumer.pop()), (Err(Kind::Corrupt), Err(Kind::Corrupt)), "SP-5");
        assert_eq!(Producer::attach(words, 4).map(|_| ()), Err(Kind::Corrupt), "SP-5");

        let (_memory, words) = shared();
        let mut producer = Producer::attach(words, 4).unwrap();
        for value in 0..4 {
            producer.push(&[value; 8]).unwrap();
        }
        assert_eq!(producer.push(&[9; 8]), Err(Refusal::Full([9; 8])), "SP-1");
        words.store(HEAD, lie, Relaxed);
        assert_eq!(producer.push(&[9; 8]), Err(Refusal::Corrupt([9; 8])), "SP-5");
    }
}

#[test]
fn own_index_in_shared_memory_is_not_read_back() {
    let (_memory, words) = shared();
    let (mut producer, mut consumer) = (Producer::attach(words, 4).unwrap(), Consumer::attach(words, 4).unwrap());
    producer.push(&[1; 8]).unwrap();
    words.store(HEAD, 77, Relaxed);
    assert_eq!(consumer.pop(), Ok(Some([1; 8])), "SP-5");
    assert_eq!(words.load(HEAD, Relaxed), 1, "overwritten with the private one");
}

#[test]
fn a_peer_that_scribbles_all_the_time_causes_no_panic() {
    let (_memory, words) = shared();
    let mut consumer = Consumer::attach(words, 4).unwrap();
    let scribbling = thread::spawn(move || {
        let mut random = 1_u64;
        for _ in 0..200_000 {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let value = if random >> 63 == 0 { random >> 33 & 7 } else { random };
            words.store((random >> 40) as usize % words.len(), value, Relaxed);
        }
    });
    while !scribbling.is_finished() {
        assert!(matches!(consumer.pop(), Ok(_) | Err(Kind::Corrupt)), "SP-5, SP-6");
    }
    scribbling.join().unwrap();
}

#[test]
fn a_late_side_continues_where_the_memory_says() {
    let (_memory, words) = shared();
    for value in 0..9 {
        Producer::attach(words, 4).unwrap().push(&[value; 8]).unwrap();
        assert_eq!(Consumer::attach(words, 4).unwrap().pop(), Ok(Some([value; 8])));
    }
}

#[test]
fn capacities_that_do_not_fit_are_refused() {
    let (_memory, words) = shared();
    for capacity in [0, 3, 8, usize::MAX, 1 << 63] {
        assert_eq!(Producer::attach(words, capacity).map(|_| ()), Err(Kind::InvalidArgument), "{capacity}");
        assert_eq!(Consumer::attach(words, capacity).map(|_| ()), Err(Kind::InvalidArgument), "{capacity}");
    }
}

#[test]
#[should_panic(expected = "8-aligned")]
fn misaligned_words_are_refused() {
    let mut bytes = [0_u64; 2];
    // SAFETY: refused before any use (B14).
    let _ = unsafe { Mapped::new(NonNull::from(&mut bytes).cast::<u8>().byte_add(4).cast(), 1) };
}
