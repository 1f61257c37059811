//! The device FIFO, the completion queue and the counter, one call at a time, at every edge of their counters.
#![cfg(not(vervain_loom))]

use core::ptr::NonNull;

use vervain_transport::{
    Error, Kind,
    ring::{
        completion,
        counter::{self, Reader, Writer, is_reached},
        fifo::{self, Accepted, Consumer, Position, Producer, Progress, Refusal, Trigger},
    },
    sync::{Arc, Inline, Mapped, Ordering::Relaxed, Words},
    wire::fifo::{HEAD, PARITY, TAIL},
};

type Memory = (Inline<{ fifo::words(8) }>, Inline<{ fifo::PRODUCER_WORDS }>);
type Ends<'a> = (Producer<&'a dyn Words, &'a Inline<16>>, Consumer<&'a dyn Words>);

fn memory() -> Memory {
    (Inline::new(), Inline::new())
}

fn ends((words, claims): &Memory, capacity: usize) -> Ends<'_> {
    let words: &dyn Words = words;
    (Producer::attach(words, claims, capacity).unwrap(), Consumer::attach(words, capacity).unwrap())
}

fn trigger(value: u64) -> Trigger {
    Trigger::new(value & !PARITY, !value & !PARITY).unwrap()
}

#[test]
fn full_fifo_refuses_returns_the_trigger_and_has_claimed_nothing() {
    let memory = memory();
    for capacity in [1, 2, 8] {
        fifo::reset(&memory.0, &memory.1, capacity, Position(0)).unwrap();
        let (producer, mut consumer) = ends(&memory, capacity);
        for value in 0..capacity as u64 {
            assert_eq!(producer.push(trigger(value)), Ok(Position(value)), "FF-4: all slots are usable");
        }
        assert_eq!(producer.push(trigger(99)), Err(Refusal::Full(trigger(99))), "FF-4");
        assert_eq!(producer.push_all(&[trigger(99); 3]).count, 0, "FF-4");
        assert_eq!(memory.1.load(HEAD, Relaxed), capacity as u64, "FF-4");
        assert_eq!(consumer.pop(), Some(trigger(0)), "FF-5");
        consumer.publish();
        assert_eq!(
            producer.push(trigger(7)),
            Ok(Position(capacity as u64)),
            "FF-8: the tail is reread before a refusal"
        );
    }
}

#[test]
fn a_batch_is_accepted_as_far_as_there_is_room() {
    let memory = memory();
    let (producer, mut consumer) = ends(&memory, 8);
    let triggers: Vec<Trigger> = (0..12).map(trigger).collect();
    assert_eq!(producer.push_all(&[]), Accepted { first: Position(0), count: 0 });
    assert_eq!(producer.push_all(&triggers), Accepted { first: Position(0), count: 8 }, "FF-4");
    let mut taken = [Trigger::default(); 5];
    assert_eq!((consumer.pop_batch(&mut taken), &taken[..]), (5, &triggers[..5]), "FF-5");
    assert_eq!(producer.push_all(&triggers[8..]).count, 0, "FF-6: taken is not handled");
    assert_eq!((consumer.pop_batch(&mut taken), &taken[..3]), (3, &triggers[5..8]), "FF-5");
    assert_eq!(producer.push_all(&triggers[8..]), Accepted { first: Position(8), count: 4 }, "FF-4");
}

#[test]
fn the_tail_is_published_lazily_and_at_the_latest_when_nothing_is_found() {
    let memory = memory();
    let (producer, mut consumer) = ends(&memory, 8);
    for value in 0..3 {
        producer.push(trigger(value)).unwrap();
    }
    let mut tails = Vec::new();
    for value in [Some(0), Some(1), Some(2), None] {
        assert_eq!(consumer.pop(), value.map(trigger));
        tails.push(memory.0.load(TAIL, Relaxed));
        let handled = (0..4).filter(|position| producer.is_handled(Position(*position))).count() as u64;
        assert_eq!(handled, *tails.last().unwrap(), "FF-6");
    }
    assert_eq!(tails, [0, 0, 2, 3], "FF-6: a quarter of eight is two");
}

#[test]
fn claims_beyond_the_capacity_go_on_as_the_tail_moves() {
    let memory = memory();
    let (producer, mut consumer) = ends(&memory, 2);
    let triggers: Vec<Trigger> = (0..5).map(trigger).collect();
    let mut claim = producer.claim(&triggers);
    let mut later = producer.claim(&triggers[..1]);
    assert_eq!((claim.next(), later.next()), (Position(0), Position(5)), "FF-3");
    assert_eq!((claim.fill(), claim.rest()), (Progress::Full, &triggers[2..]), "FF-4");
    assert_eq!(producer.push(trigger(9)), Err(Refusal::Full(trigger(9))), "FF-4: claims count as full");
    for value in 0..5 {
        let expected = if value < 4 { Progress::Full } else { Progress::Complete };
        assert_eq!(later.fill(), expected, "FF-4: position 5 has room when 3 is handled");
        assert_eq!(consumer.pop(), Some(trigger(value)));
        consumer.publish();
        let expected = if value < 2 { Progress::Full } else { Progress::Complete };
        assert_eq!(claim.fill(), expected, "FF-4");
    }
    assert_eq!(consumer.pop(), Some(trigger(0)), "FF-5");
}

#[test]
fn a_claim_that_is_not_filled_holds_back_what_was_claimed_later() {
    let memory = memory();
    let (producer, mut consumer) = ends(&memory, 8);
    let first = [trigger(0)];
    let mut claim = producer.claim(&first);
    producer.push(trigger(1)).unwrap();
    assert_eq!((consumer.pop(), consumer.is_ready()), (None, false), "FF-5");
    assert_eq!(claim.fill(), Progress::Complete);
    assert_eq!([consumer.pop(), consumer.pop(), consumer.pop()], [Some(trigger(0)), Some(trigger(1)), None], "FF-5");
}

#[test]
fn neither_word_of_a_trigger_is_enough() {
    for missing in [0, 1] {
        let memory = memory();
        let (producer, mut consumer) = ends(&memory, 1);
        for lap in 0..4 {
            let position = producer.push(trigger(lap)).unwrap();
            let word = 16 + missing;
            let written = memory.0.load(word, Relaxed);
            memory.0.store(word, written ^ PARITY, Relaxed);
            assert_eq!(consumer.pop(), None, "FF-1: lap {lap}");
            memory.0.store(word, written, Relaxed);
            assert_eq!((consumer.pop(), position), (Some(trigger(lap)), Position(lap)), "FF-1, FF-2");
            consumer.publish();
        }
    }
}

#[test]
fn positions_may_begin_anywhere_and_wrap() {
    // B01, B02: laps and integers of every width end within the run
    for start in [0, 1 << 31, 1 << 32, 1 << 63, 0].map(|edge: u64| edge.wrapping_sub(4)) {
        for capacity in [1, 2, 4, 8] {
            let memory = memory();
            fifo::reset(&memory.0, &memory.1, capacity, Position(start)).unwrap();
            let (producer, mut consumer) = ends(&memory, capacity);
            assert_eq!(consumer.pop(), None, "FF-2: a lap of odd number is empty too");
            for value in 0..64 {
                let position = producer.push(trigger(value)).unwrap();
                assert_eq!(position, Position(start).plus(value), "FF-3");
                assert!(!producer.is_handled(position), "FF-6");
                assert_eq!((consumer.pop(), consumer.pop()), (Some(trigger(value)), None), "FF-2");
                assert!(producer.is_handled(position), "FF-6");
            }
        }
    }
}

#[test]
fn closing_tells_all_who_would_wait() {
    let memory = memory();
    let (producer, mut consumer) = ends(&memory, 2);
    let triggers = [0, 1, 2].map(trigger);
    let mut claim = producer.claim(&triggers);
    assert_eq!((claim.fill(), consumer.pop(), producer.is_closed()), (Progress::Full, Some(triggers[0]), false));
    consumer.close();
    assert!(producer.is_handled(Position(0)) && !producer.is_handled(Position(1)), "FF-6");
    assert_eq!((claim.fill(), producer.is_closed()), (Progress::Complete, true), "FF-9: as long as there is room");
    assert_eq!(producer.push(trigger(3)), Err(Refusal::Closed(trigger(3))), "FF-9");
    assert_eq!(producer.claim(&triggers).fill(), Progress::Closed, "FF-9");
    assert_eq!(Consumer::attach(&memory.0, 2).map(|_| ()), Err(Kind::InvalidUsage), "FF-9");
    fifo::reset(&memory.0, &memory.1, 2, Position(7)).unwrap();
    let (producer, mut consumer) = ends(&memory, 2);
    assert_eq!((producer.push(trigger(4)), consumer.pop()), (Ok(Position(7)), Some(trigger(4))), "FF-2");
}

#[test]
fn another_consumer_goes_on_where_the_tail_stands() {
    let memory = memory();
    let (producer, mut consumer) = ends(&memory, 8);
    for value in 0..3 {
        producer.push(trigger(value)).unwrap();
    }
    assert_eq!(consumer.pop(), Some(trigger(0)));
    consumer.publish();
    assert_eq!(consumer.pop(), Some(trigger(1)));
    let mut other = Consumer::attach(&memory.0, 8).unwrap();
    assert_eq!((other.position(), other.pop()), (Position(1), Some(trigger(1))), "FF-6: it was not handled");
}

#[test]
fn forged_words_lead_nowhere_else() {
    for lie in [1, 9, 1 << 31, 1 << 32, 1 << 63, u64::MAX] {
        // a guard before and behind: nothing beyond the words is touched
        let mut plain = vec![u64::MAX; fifo::words(2) + 2];
        plain[1..=fifo::words(2)].fill(0);
        let start = NonNull::from(&mut plain[1]);
        // SAFETY: the vector outlives the words, and is looked at only after their last use.
        let words = unsafe { Mapped::new(start, fifo::words(2)) };
        let claims = Inline::<{ fifo::PRODUCER_WORDS }>::new();
        let producer = Producer::attach(words, &claims, 2).unwrap();
        for (forge, at) in [(&words as &dyn Words, TAIL), (&claims, HEAD), (&claims, 1)] {
            forge.store(at, lie, Relaxed);
            let triggers = [1, 2, 3].map(trigger);
            let _ = (producer.push(trigger(5)), producer.push_all(&triggers), producer.claim(&triggers).fill());
            let mut consumer = Consumer::attach(words, 2).unwrap();
            let _ = (consumer.pop(), consumer.pop_batch(&mut [trigger(0); 9]));
        }
        assert_eq!((plain[0], plain[plain.len() - 1]), (u64::MAX, u64::MAX), "FF-10");
    }
}

#[test]
fn memory_that_does_not_fit_is_refused() {
    let (words, claims) = memory();
    for capacity in [0, 3, 16, usize::MAX, 1 << 63] {
        assert_eq!(Producer::attach(&words, &claims, capacity).map(|_| ()), Err(Kind::InvalidArgument), "{capacity}");
        assert_eq!(Consumer::attach(&words, capacity).map(|_| ()), Err(Kind::InvalidArgument), "{capacity}");
        assert_eq!(fifo::reset(&words, &claims, capacity, Position(0)), Err(Kind::InvalidArgument), "{capacity}");
    }
    let short = Inline::<15>::new();
    assert_eq!(Producer::attach(&words, &short, 8).map(|_| ()), Err(Kind::InvalidArgument));
    assert_eq!(fifo::reset(&words, &short, 8, Position(0)), Err(Kind::InvalidArgument));
}

// completion queue

#[test]
fn a_completion_queue_cannot_overflow() {
    let (mut reserver, mut poller) = completion::channel::<String, 2>();
    let tickets = [reserver.reserve().unwrap(), reserver.reserve().unwrap()];
    assert!(reserver.reserve().is_none(), "CQ-1: outstanding");
    for ticket in tickets {
        ticket.complete("done".to_owned());
    }
    assert!(reserver.clone().reserve().is_none(), "CQ-1: not polled");
    assert_eq!(poller.pop().as_deref(), Some("done"));
    let ticket = reserver.reserve().unwrap();
    assert!(reserver.reserve().is_none(), "CQ-1: one outstanding, one not polled");
    drop(ticket);
    assert!(reserver.reserve().is_some(), "CQ-3");
}

#[test]
fn a_batch_holds_its_places_until_it_is_dropped() {
    let mut queue = completion::Queue::<u8, 4>::new();
    let (mut reserver, mut poller) = queue.split();
    for value in 0..4 {
        reserver.reserve().unwrap().complete(value);
    }
    assert!(poller.is_ready());
    let mut batch = poller.poll(3);
    assert_eq!([batch.next(), batch.next()], [Some(0), Some(1)], "CQ-5");
    assert!(reserver.reserve().is_none(), "CQ-4");
    drop(batch);
    let tickets = [reserver.reserve(), reserver.reserve(), reserver.reserve()].map(|ticket| ticket.is_some());
    assert_eq!(tickets, [true, true, false], "CQ-4: as many as were taken");
    assert_eq!(poller.poll(0).next(), None);
    assert_eq!(poller.poll(9).collect::<Vec<_>>(), [2, 3]);
    assert!(!poller.is_ready());
}

#[test]
fn completions_that_nobody_polled_are_dropped_once() {
    let value = Arc::new(());
    let mut queue = completion::Queue::<Arc<()>, 4>::new();
    for _ in 0..2 {
        let (mut reserver, mut poller) = queue.split();
        reserver.reserve().unwrap().complete(value.clone());
        reserver.reserve().unwrap().complete(value.clone());
        let mut batch = poller.poll(2);
        drop(batch.next());
        // it does not give its places back, and its value may not be taken twice
        std::mem::forget(batch);
    }
    assert_eq!(Arc::strong_count(&value), 3, "CQ-6");
    let (mut reserver, _) = queue.split();
    assert!(reserver.reserve().is_some(), "CQ-4: the next split gives back what was taken");
    drop(queue);
    assert_eq!(Arc::strong_count(&value), 1, "CQ-6");
}

#[test]
fn completion_counters_may_begin_anywhere_and_wrap() {
    for start in [0, 1 << 31, 1 << 32, 1 << 63, 0].map(|edge: usize| edge.wrapping_sub(4)) {
        let mut queue = completion::Queue::<usize, 4>::starting_at(start);
        let (mut reserver, mut poller) = queue.split();
        assert_eq!(poller.pop(), None);
        for value in 0..64 {
            let ticket = reserver.reserve().unwrap();
            reserver.reserve().unwrap().complete(value);
            ticket.complete(value + 100);
            assert_eq!(poller.poll(9).collect::<Vec<_>>(), [value, value + 100], "CQ-5");
        }
    }
}

// counter

#[test]
fn reached_is_told_by_difference_at_every_edge() {
    for edge in [0, 1 << 31, 1 << 32, 1 << 63] {
        for target in (0..5).map(|step: u64| step.wrapping_add(edge).wrapping_sub(2)) {
            assert!(is_reached(target, target) && is_reached(target.wrapping_add(i64::MAX as u64), target), "CN-2");
            assert!(!is_reached(target.wrapping_sub(1), target), "CN-2");
            assert!(!is_reached(target.wrapping_add(1 << 63), target), "CN-2");
        }
    }
}

#[test]
fn waiting_ends_at_the_target_or_as_the_caller_says() {
    let line = Inline::<{ counter::WORDS }>::new();
    let mut writer = Writer::starting_at(&line, u64::MAX - 1).unwrap();
    let mut reader = Reader::attach(&line).unwrap();
    let mut looks = 0;
    let reached = reader.wait_until(2, || {
        looks += 1;
        writer.advance(1);
        Ok::<(), Error>(())
    });
    assert_eq!((reached, looks, writer.value(), reader.seen()), (Ok(2), 4, 2, 2), "CN-5");
    assert_eq!(reader.wait_until(2, || unreachable!("it is there")), Ok::<u64, Error>(2), "CN-5");
    let stop = Error::new(Kind::Aborted).with_operation(7);
    assert_eq!(reader.wait_until(3, || Err(stop)), Err(stop), "CN-5");
}

#[test]
fn a_counter_that_moves_back_is_corrupt() {
    let line = Inline::<{ counter::WORDS }>::new();
    let mut writer = Writer::starting_at(&line, 10).unwrap();
    let mut reader = Reader::attach(&line).unwrap();
    for lie in [9, 0, 10 + (1 << 63), u64::MAX] {
        line.store(0, lie, Relaxed);
        assert_eq!(reader.observe(), Err(Kind::Corrupt), "CN-4: {lie}");
        assert_eq!(reader.has_reached(11), Err(Kind::Corrupt), "CN-4");
        assert_eq!(reader.has_reached(10), Ok(true), "CN-2: seen before");
    }
    writer.advance(5);
    assert_eq!(reader.observe(), Ok(15), "CN-1: the writer does not read the line back");
    assert_eq!(Writer::attach(&line).unwrap().value(), 15);
}

#[test]
fn a_counter_needs_a_line_of_its_own() {
    let short = Inline::<15>::new();
    assert_eq!(Writer::attach(&short).map(|_| ()), Err(Kind::InvalidArgument), "CN-1");
    assert_eq!(Writer::starting_at(&short, 1).map(|_| ()), Err(Kind::InvalidArgument), "CN-1");
    assert_eq!(Reader::attach(&short).map(|_| ()), Err(Kind::InvalidArgument), "CN-1");
}
