//! The device FIFO, with two slots or one.

use vervain_transport::{
    ring::fifo::{self, Consumer, Position, Producer, Progress, Refusal, Trigger},
    sync::{
        Ordering::{Relaxed, Release},
        Owned, Words, model, thread,
    },
    wire::fifo::Capacity,
};

use super::{Side, until};

fn ends(capacity: usize) -> (Producer<Owned, Owned>, Consumer<Owned>) {
    let (words, claims) = (Owned::new(fifo::words(capacity)), Owned::new(fifo::PRODUCER_WORDS));
    (Producer::attach(words.clone(), claims, capacity).unwrap(), Consumer::attach(words, capacity).unwrap())
}

fn trigger(value: u64) -> Trigger {
    Trigger::new(value, !value >> 1).unwrap()
}

fn push(producer: &Producer<Owned, Owned>, values: impl Iterator<Item = u64>) {
    for value in values {
        until(|| producer.push(trigger(value)).ok());
    }
}

fn claim(producer: &Producer<Owned, Owned>, triggers: &[Trigger]) {
    let mut claim = producer.claim(triggers);
    until(|| (claim.fill() == Progress::Complete).then_some(()));
}

#[test]
fn loom_fifo_triggers_arrive_whole_and_in_order_across_laps() {
    model(|| {
        let (producer, mut consumer) = ends(1);
        let pushing = thread::spawn(move || push(&producer, 0..3));
        for value in 0..3 {
            assert_eq!(until(|| consumer.pop()), trigger(value), "FF-1, FF-2, FF-5");
        }
        pushing.join().unwrap();
    });
}

#[test]
fn loom_fifo_two_producers_that_push_and_claim_lose_and_double_nothing() {
    model(|| {
        let (producer, mut consumer) = ends(2);
        let other = producer.clone();
        let pushing = thread::spawn(move || push(&producer, 1..2));
        let claiming = thread::spawn(move || claim(&other, &[trigger(2)]));
        let sum: u64 = (0..2).map(|_| until(|| consumer.pop()).first()).sum();
        assert_eq!((sum, consumer.pop()), (3, None), "FF-3");
        pushing.join().unwrap();
        claiming.join().unwrap();
    });
}

#[test]
fn loom_fifo_claims_beyond_the_capacity_wait_for_the_tail() {
    model(|| {
        let (producer, mut consumer) = ends(1);
        let claiming = thread::spawn(move || claim(&producer, &[trigger(0), trigger(1)]));
        for value in 0..2 {
            assert_eq!(until(|| consumer.pop()), trigger(value), "FF-4");
        }
        claiming.join().unwrap();
    });
}

#[test]
fn loom_fifo_two_producers_on_a_full_fifo_share_one_free_slot() {
    model(|| {
        let (producer, mut consumer) = ends(1);
        push(&producer, 0..1);
        let other = producer.clone();
        let pushing = thread::spawn(move || other.push(trigger(1)).is_ok());
        let first = consumer.pop();
        consumer.publish();
        let pushed = producer.push(trigger(2)).is_ok();
        assert_eq!((first, pushed), (Some(trigger(0)), !pushing.join().unwrap()), "FF-4");
    });
}

#[test]
fn loom_fifo_trigger_shows_what_was_stored_before_it() {
    model(|| {
        let ((producer, mut consumer), side) = (ends(1), Side::new());
        let peer_side = side.clone();
        let pushing = thread::spawn(move || {
            peer_side.set();
            push(&producer, 5..6);
        });
        until(|| consumer.pop());
        assert_eq!(side.get(), 1, "FF-7");
        pushing.join().unwrap();
    });
}

#[test]
fn loom_fifo_trigger_is_taken_whole_whichever_word_arrives_first() {
    model(|| {
        let words = Owned::new(fifo::words(1));
        let mut consumer = Consumer::attach(words.clone(), 1).unwrap();
        let device = thread::spawn(move || {
            let capacity = Capacity::new(1).unwrap();
            let [first, second] = trigger(9).emit(capacity.parity(Position(0)));
            let at = capacity.word(Position(0));
            // SYNC fifo.publish -> fifo.observe: as in the producer, with the words turned round.
            words.store(at + 1, second, Release);
            // Relaxed: it says for itself that it is new.
            words.store(at, first, Relaxed);
        });
        assert_eq!(until(|| consumer.pop()), trigger(9), "FF-1");
        device.join().unwrap();
    });
}

#[test]
fn loom_fifo_tail_says_that_what_was_read_because_of_a_trigger_is_read() {
    model(|| {
        let ((producer, mut consumer), side) = (ends(2), Side::new());
        let peer_side = side.clone();
        let pushing = thread::spawn(move || {
            let position = producer.push(trigger(0)).unwrap();
            until(|| producer.is_handled(position).then_some(()));
            peer_side.set();
        });
        until(|| consumer.pop());
        side.get();
        assert_eq!(consumer.pop(), None, "asking for the next says that the first is handled: FF-6");
        pushing.join().unwrap();
    });
}

#[test]
fn loom_fifo_tail_that_another_producer_has_seen_counts_too() {
    model(|| {
        let ((producer, mut consumer), side) = (ends(1), Side::new());
        let position = producer.push(trigger(0)).unwrap();
        let (peer, peer_side) = (producer.clone(), side.clone());
        let reading = thread::spawn(move || {
            peer.is_handled(position);
        });
        let writing = thread::spawn(move || {
            until(|| producer.is_handled(position).then_some(()));
            peer_side.set();
        });
        consumer.pop().unwrap();
        side.get();
        consumer.publish();
        reading.join().unwrap();
        writing.join().unwrap();
    });
}

#[test]
fn loom_fifo_closing_ends_the_waiting_after_the_last_read() {
    model(|| {
        let ((producer, consumer), side) = (ends(1), Side::new());
        push(&producer, 0..1);
        let peer_side = side.clone();
        let pushing = thread::spawn(move || {
            let refusal = until(|| match producer.push(trigger(1)) {
                Err(Refusal::Full(_)) => None,
                other => Some(other),
            });
            if refusal == Err(Refusal::Closed(trigger(1))) {
                peer_side.set();
            }
        });
        // not taken: the FIFO stays full
        assert!(consumer.is_ready());
        side.get();
        consumer.close();
        pushing.join().unwrap();
    });
}
