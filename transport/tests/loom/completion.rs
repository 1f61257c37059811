//! The completion queue, with two places or one.

use vervain_transport::{
    ring::completion::{self, SharedReserver},
    sync::{Arc, model, thread},
};

use super::until;

fn complete<const N: usize>(reserver: &mut SharedReserver<u64, N>, value: u64) {
    until(|| reserver.reserve()).complete(value);
}

#[test]
fn loom_completion_values_arrive_whole_and_places_are_reused_after_they_are_free() {
    model(|| {
        let (mut reserver, mut poller) = completion::channel::<u64, 1>();
        let ending = thread::spawn(move || {
            for value in 0..3 {
                complete(&mut reserver, value);
            }
        });
        for value in 0..3 {
            assert_eq!(until(|| poller.pop()), value, "CQ-1, CQ-4");
        }
        ending.join().unwrap();
    });
}

#[test]
fn loom_completion_two_sides_lose_and_double_nothing() {
    model(|| {
        let (mut reserver, mut poller) = completion::channel::<u64, 2>();
        let mut other = reserver.clone();
        let ending = thread::spawn(move || complete(&mut reserver, 1));
        let ending_too = thread::spawn(move || complete(&mut other, 2));
        let sum: u64 = (0..2).map(|_| until(|| poller.pop())).sum();
        assert_eq!((sum, poller.pop()), (3, None), "CQ-2, CQ-5");
        ending.join().unwrap();
        ending_too.join().unwrap();
    });
}

#[test]
fn loom_completion_an_old_ticket_may_get_a_slot_that_it_never_saw_returned() {
    model(|| {
        let (mut reserver, mut poller) = completion::channel::<u64, 2>();
        let old = reserver.reserve().unwrap();
        reserver.reserve().unwrap().complete(0);
        let ending = thread::spawn(move || old.complete(1));
        let ending_too = thread::spawn(move || complete(&mut reserver, 2));
        let sum: u64 = (0..3).map(|_| until(|| poller.pop())).sum();
        assert_eq!(sum, 3, "CQ-4");
        ending.join().unwrap();
        ending_too.join().unwrap();
    });
}

#[test]
fn loom_completion_tickets_of_two_reservers_never_exceed_the_places() {
    model(|| {
        let (mut reserver, mut poller) = completion::channel::<u64, 1>();
        let mut other = reserver.clone();
        let reserving = thread::spawn(move || other.reserve().map(|ticket| ticket.complete(1)).is_some());
        let reserved = reserver.reserve();
        let is_ours = reserved.is_some();
        drop(reserved);
        let is_theirs = reserving.join().unwrap();
        assert!(is_ours || is_theirs, "CQ-1, CQ-3");
        assert_eq!(poller.pop(), is_theirs.then_some(1), "CQ-3");
    });
}

#[test]
fn loom_completion_values_left_behind_are_dropped_once() {
    model(|| {
        let (mut reserver, mut poller) = completion::channel::<Arc<u64>, 2>();
        let value = Arc::new(7);
        let copies = [value.clone(), value.clone()];
        let ending = thread::spawn(move || copies.map(|copy| reserver.reserve().unwrap().complete(copy)));
        drop(poller.pop());
        drop(poller);
        ending.join().unwrap();
        assert_eq!(Arc::strong_count(&value), 1, "CQ-6");
    });
}
