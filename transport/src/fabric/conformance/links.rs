//! Links come up with who is proven at the other end, or go down.

use core::time::Duration;

use super::{
    Make,
    world::{Node, World, identity, span},
};
use crate::{
    Kind, Rank, Time,
    auth::Secret,
    fabric::{Event, Identity, LinkId, Op, Outcome},
};

pub(super) fn address_is_short(make: &mut Make<'_>) {
    let fabric = make(identity(0));
    assert!(!fabric.address().is_empty() && fabric.address().len() <= 256);
}

pub(super) fn link_reports_peer_and_incarnation(make: &mut Make<'_>) {
    let mut world = World::new(make, 2);
    let address = world.nodes[1].fabric.address();
    let link = world.nodes[0].fabric.dial(Rank::new(1), &address, Time::now().after(super::PATIENCE)).unwrap();
    let near = world.until("the dialled link", |nodes| nodes[0].up());
    let far = world.until("the accepted link", |nodes| nodes[1].up());
    assert_eq!(near, (link, Rank::new(1), 1001));
    assert_eq!((far.1, far.2), (Rank::new(0), 1000));
}

/// A message over the link arrives: the link works.
fn assert_works(world: &mut World, from: (usize, LinkId), to: (usize, LinkId), token: u64) {
    let room = world.nodes[to.0].region(64, 0);
    let text = world.nodes[from.0].region(64, token as u8);
    world.post(to.0, to.1, &[Op::Receive { token, local: span(room, 0, 64) }]);
    world.post(from.0, from.1, &[Op::Send { token: token + 1, local: span(text, 0, 64) }]);
    assert_eq!(world.outcome(from.0, from.1, token + 1), Ok(Outcome::Done));
    assert_eq!(world.outcome(to.0, to.1, token), Ok(Outcome::Received { bytes: 64, immediate: None }));
    assert_eq!(world.nodes[to.0].bytes(room, 0, 64), world.nodes[from.0].bytes(text, 0, 64));
}

pub(super) fn two_links_of_one_pair_are_independent(make: &mut Make<'_>) {
    let (mut world, (near, far)) = World::pair(make);
    let (near2, far2) = world.connect(0, 1);
    assert_ne!(near, near2);
    assert_works(&mut world, (0, near), (1, far), 10);
    assert_works(&mut world, (1, far2), (0, near2), 20);
    world.nodes[0].fabric.close(near);
    world.until("the end of the first link", |nodes| nodes[1].down(far));
    assert_works(&mut world, (0, near2), (1, far2), 30);
}

pub(super) fn link_to_oneself_works(make: &mut Make<'_>) {
    let mut world = World::new(make, 1);
    let address = world.nodes[0].fabric.address();
    let near = world.nodes[0].fabric.dial(Rank::new(0), &address, Time::now().after(super::PATIENCE)).unwrap();
    let first = world.until("one end", |nodes| nodes[0].up());
    let second = world.until("the other end", |nodes| nodes[0].up());
    let far = if first.0 == near { second.0 } else { first.0 };
    assert_works(&mut world, (0, near), (0, far), 10);
    assert_works(&mut world, (0, far), (0, near), 20);
}

pub(super) fn restarted_peer_is_a_new_incarnation(make: &mut Make<'_>) {
    let (mut world, (near, _)) = World::pair(make);
    let old = world.nodes[1].fabric.address();
    world.nodes.truncate(1);
    world.until("the end of the first life", |nodes| nodes[0].down(near));
    world.nodes.push(Node::new(make(Identity { incarnation: 2001, ..identity(1) })));
    assert_ne!(world.nodes[1].fabric.address(), old);
    let address = world.nodes[1].fabric.address();
    let link = world.nodes[0].fabric.dial(Rank::new(1), &address, Time::now().after(super::PATIENCE)).unwrap();
    let up = world.until("the second life", |nodes| nodes[0].up());
    assert_eq!(up, (link, Rank::new(1), 2001));
}

pub(super) fn nobody_listening_goes_down(make: &mut Make<'_>) {
    let mut world = World::new(make, 1);
    let address = make(identity(1)).address();
    // refused at once, or by an event
    match world.nodes[0].fabric.dial(Rank::new(1), &address, Time::now().after(super::PATIENCE)) {
        Err(error) => assert_eq!(error.rank(), Some(Rank::new(1))),
        Ok(link) => {
            let error = world.until("the end of the call", |nodes| nodes[0].down(link));
            assert_eq!(error.rank(), Some(Rank::new(1)));
        }
    }
}

pub(super) fn wrong_secret_goes_down(make: &mut Make<'_>) {
    let mut world = World::new(make, 1);
    world.nodes.push(Node::new(make(Identity { secret: Secret::from_bytes([1; 32]), ..identity(1) })));
    let address = world.nodes[1].fabric.address();
    let link = world.nodes[0].fabric.dial(Rank::new(1), &address, Time::now().after(super::PATIENCE)).unwrap();
    let error = world.until("the refusal", |nodes| nodes[0].down(link));
    assert_eq!((error.kind(), error.rank()), (Kind::Unauthenticated, Some(Rank::new(1))));
    for _ in 0..100 {
        world.step();
    }
    assert!(!world.nodes[1].seen.iter().any(|event| matches!(event, Event::Up { .. })));
}

/// The peer's fabric exists and is never polled.
pub(super) fn silent_peer_times_out(make: &mut Make<'_>) {
    let mut world = World::new(make, 1);
    let silent = make(identity(1));
    let deadline = Time::now().after(Duration::from_millis(30));
    let link = world.nodes[0].fabric.dial(Rank::new(1), &silent.address(), deadline).unwrap();
    let error = world.until("the time-out", |nodes| nodes[0].down(link));
    assert_eq!((error.kind(), error.rank()), (Kind::TimedOut, Some(Rank::new(1))));
    assert!(Time::now() >= deadline);
}
