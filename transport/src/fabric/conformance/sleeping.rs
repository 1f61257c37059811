//! A fabric that sleeps is woken by whatever brings something for it, and no wake-up is lost.

use core::time::Duration;

use super::{
    Make,
    world::{Node, PATIENCE, World, span},
};
use crate::{
    Time,
    fabric::{LinkId, Op, Outcome, RegionId},
    sync::thread,
};

/// Longer than any case may take: a sleep of this length that ends was ended by somebody.
const LONG: Duration = Duration::from_secs(600);

pub(super) fn ring_wakes_a_sleeper(make: &mut Make<'_>) {
    let mut world = World::new(make, 1);
    let bell = world.nodes[0].fabric.doorbell();
    // before anybody sleeps: no trace of it is left
    bell.ring();
    for early in [true, false] {
        let fabric = &mut world.nodes[0].fabric;
        fabric.arm();
        if early {
            bell.ring();
            sleep_until_rung(&mut **fabric);
        } else {
            thread::scope(|scope| {
                scope.spawn(|| bell.ring());
                sleep_until_rung(&mut **fabric);
            });
        }
    }
}

/// A sleep may end early, but not for ever.
fn sleep_until_rung(fabric: &mut dyn crate::fabric::Fabric) {
    let start = Time::now();
    fabric.sleep(start.after(LONG));
    assert!(Time::now().since(start) < PATIENCE, "nobody was woken");
}

pub(super) fn sleep_ends_at_its_deadline(make: &mut Make<'_>) {
    let mut world = World::new(make, 1);
    world.step();
    for length in [Duration::ZERO, Duration::from_micros(300), Duration::from_millis(7)] {
        let deadline = Time::now().after(length);
        let fabric = &mut world.nodes[0].fabric;
        fabric.arm();
        fabric.sleep(deadline);
        assert!(Time::now().since(deadline) < PATIENCE);
    }
    world.nodes[0].fabric.arm();
    world.nodes[0].fabric.disarm();
}

pub(super) fn arriving_message_wakes_a_sleeper(make: &mut Make<'_>) {
    let (mut world, (near, far)) = World::pair(make);
    let (source, room) = (world.nodes[0].region(64, 0), world.nodes[1].region(64, 0));
    world.post(1, far, &[Op::Receive { token: 1, local: span(room, 0, 64) }]);
    world.post(0, near, &[]);
    let mut nodes = world.nodes.split_off(0).into_iter();
    let (mut sender, mut receiver) = (nodes.next().unwrap(), nodes.next().unwrap());
    thread::scope(|scope| {
        scope.spawn(|| {
            let send = Op::Send { token: 2, local: span(source, 0, 64) };
            poll_until(&mut sender, |node| node.fabric.post(near, &[send]).unwrap() == 1);
            // a fabric works when it is polled: until the message is out
            poll_until(&mut sender, |node| node.ended(near, 2).is_some());
        });
        assert_eq!(sleep_until_ended(&mut receiver, far, 1), Outcome::Received { bytes: 64, immediate: None });
    });
}

fn poll_until(node: &mut Node, mut ready: impl FnMut(&mut Node) -> bool) {
    let end = Time::now().after(PATIENCE);
    while !ready(node) {
        assert!(Time::now() < end, "waited in vain");
        node.poll();
        thread::yield_now();
    }
}

fn sleep_until_ended(node: &mut Node, link: LinkId, token: u64) -> Outcome {
    let end = Time::now().after(PATIENCE);
    loop {
        node.fabric.arm();
        node.poll();
        if let Some(result) = node.ended(link, token) {
            node.fabric.disarm();
            return result.expect("the operation");
        }
        assert!(Time::now() < end, "nobody was woken");
        node.fabric.sleep(end);
    }
}

/// Two threads that sleep whenever there is nothing to do pass a message back and forth.
pub(super) fn no_wake_up_is_lost(make: &mut Make<'_>) {
    let (mut world, (near, far)) = World::pair(make);
    let regions = [world.nodes[0].region(64, 0), world.nodes[1].region(64, 0)];
    let mut nodes = world.nodes.split_off(0).into_iter();
    let (mut first, mut second) = (nodes.next().unwrap(), nodes.next().unwrap());
    thread::scope(|scope| {
        scope.spawn(|| play(&mut first, near, regions[0], Turn::Serve));
        scope.spawn(|| play(&mut second, far, regions[1], Turn::Return));
    });
}

#[derive(Clone, Copy, PartialEq)]
enum Turn {
    Serve,
    Return,
}

fn play(node: &mut Node, link: LinkId, region: RegionId, turn: Turn) {
    for round in 0..ROUNDS {
        let (receive, send) = (2 * round, 2 * round + 1);
        let posted = node.fabric.post(link, &[Op::Receive { token: receive, local: span(region, 0, 8) }]);
        assert_eq!(posted, Ok(1));
        if turn == Turn::Return {
            sleep_until_ended(node, link, receive);
        }
        pass(node, link, Op::Send { token: send, local: span(region, 8, 8) });
        sleep_until_ended(node, link, send);
        if turn == Turn::Serve {
            sleep_until_ended(node, link, receive);
        }
    }
}

/// Post, and sleep while the peer has no receive.
fn pass(node: &mut Node, link: LinkId, op: Op) {
    let end = Time::now().after(PATIENCE);
    loop {
        node.fabric.arm();
        node.poll();
        if node.fabric.post(link, &[op]).expect("a valid operation") == 1 {
            return node.fabric.disarm();
        }
        assert!(Time::now() < end, "the peer's receive woke nobody");
        node.fabric.sleep(end);
    }
}

const ROUNDS: u64 = 10_000;
