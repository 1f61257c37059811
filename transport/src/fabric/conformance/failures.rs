//! Whatever ends a link, everything outstanding on it ends exactly once, before the link is reported down.

use super::{
    Make,
    world::{Node, World, span, target},
};
use crate::{
    Error, Kind,
    fabric::{Access, Event, LinkId, Op, Outcome},
};

/// Posts receives and a read that will not end by themselves, and returns their tokens.
fn leave_outstanding(world: &mut World, near: LinkId) -> Vec<u64> {
    let local = world.nodes[0].region(4096, 0);
    let ops: Vec<Op> = (0..5).map(|token| Op::Receive { token, local: span(local, 0, 64) }).collect();
    world.post(0, near, &ops);
    (0..5).collect()
}

/// Every token ended once with an error, then the link went down, then nothing more came.
fn assert_all_ended(world: &mut World, near: LinkId, tokens: &[u64]) -> Error {
    let error = world.until("the end of the link", |nodes| {
        nodes[0].seen.iter().find_map(|event| match *event {
            Event::Down { link, error } if link == near => Some(error),
            _ => None,
        })
    });
    for _ in 0..50 {
        world.step();
    }
    let seen: Vec<Event> = world.nodes[0].seen.drain(..).collect();
    assert!(matches!(seen.last(), Some(Event::Down { .. })), "something followed the end: {seen:?}");
    assert_eq!(seen.iter().filter(|event| matches!(event, Event::Down { .. })).count(), 1);
    for token in tokens {
        let ends = seen.iter().filter(|event| is_failure(event, near, *token)).count();
        assert_eq!(ends, 1, "operation {token}: {seen:?}");
    }
    assert_eq!(seen.len(), tokens.len() + 1, "{seen:?}");
    error
}

fn is_failure(event: &Event, on: LinkId, wanted: u64) -> bool {
    matches!(*event, Event::Done { link, token, result: Err(_) } if link == on && token == wanted)
}

pub(super) fn close_ends_everything_once(make: &mut Make<'_>) {
    let (mut world, (near, far)) = World::pair(make);
    let tokens = leave_outstanding(&mut world, near);
    world.nodes[0].fabric.close(near);
    world.nodes[0].fabric.close(near);
    let error = assert_all_ended(&mut world, near, &tokens);
    assert_eq!((error.kind(), error.rank().map(|rank| rank.get())), (Kind::Aborted, Some(1)));
    let error = world.until("the end at the peer", |nodes| nodes[1].down(far));
    assert_eq!(error.rank().map(|rank| rank.get()), Some(0));
    // what ended gives its regions back
    let fabric = &mut world.nodes[0].fabric;
    let regions = (0..64).map(crate::fabric::RegionId).filter(|region| fabric.memory(*region).is_some());
    for region in regions.collect::<Vec<_>>() {
        assert_eq!(fabric.release(region), Ok(()));
    }
}

pub(super) fn dropped_peer_ends_everything_once(make: &mut Make<'_>) {
    let (mut world, (near, _)) = World::pair(make);
    let tokens = leave_outstanding(&mut world, near);
    world.nodes.truncate(1);
    let error = assert_all_ended(&mut world, near, &tokens);
    assert!(matches!(error.kind(), Kind::PeerLeft | Kind::PeerDied | Kind::LinkFailed), "{error}");
    assert_eq!(error.rank().map(|rank| rank.get()), Some(1));
}

pub(super) fn down_link_takes_nothing(make: &mut Make<'_>) {
    let (mut world, (near, far)) = World::pair(make);
    let region = world.nodes[1].region(64, 0);
    let key = world.nodes[1].fabric.advertise(far, region, Access::ReadWrite).unwrap();
    world.nodes[0].fabric.close(near);
    world.until("the end", |nodes| nodes[0].down(near));
    assert_eq!(world.refusal(0, near, &[Op::Flush { token: 1 }]), Kind::LinkFailed);
    let fabric = &mut world.nodes[0].fabric;
    assert_eq!(fabric.import(near, &key).unwrap_err().kind(), Kind::LinkFailed);
    assert!(fabric.foreign(near).is_none() && fabric.peer_doorbell(near).is_none());
}

pub(super) fn other_links_survive(make: &mut Make<'_>) {
    let mut world = World::new(make, 3);
    let (to_one, _) = world.connect(0, 1);
    let (to_two, from_two) = world.connect(0, 2);
    let region = world.nodes[2].region(4096, 0);
    let remote = world.share((2, from_two), region, (0, to_two));
    let dead = world.nodes.remove(1);
    drop(dead);
    world.until("the end of rank 1", |nodes: &mut [Node]| nodes[0].down(to_one));
    let local = world.nodes[0].region(64, 9);
    let write = Op::Write { token: 1, local: span(local, 0, 64), target: target(remote, 0), immediate: None };
    world.post(0, to_two, &[write, Op::Flush { token: 2 }]);
    assert_eq!(world.outcome(0, to_two, 1), Ok(Outcome::Done));
    assert_eq!(world.outcome(0, to_two, 2), Ok(Outcome::Done));
    assert_eq!(world.nodes[1].bytes(region, 0, 64), world.nodes[0].bytes(local, 0, 64));
}

pub(super) fn kept_memory_outlives_the_fabric(make: &mut Make<'_>) {
    let mut world = World::new(make, 1);
    let region = world.nodes[0].region(4096, 7);
    let view = world.nodes[0].fabric.memory(region).unwrap();
    let expected = world.nodes[0].bytes(region, 0, 4096);
    let kept = world.nodes[0].fabric.keep(region).expect("allocated memory can be kept");
    world.nodes[0].fabric.release(region).unwrap();
    drop(world);
    // SAFETY: `kept` keeps the memory valid; nobody else uses it.
    let bytes = unsafe { core::slice::from_raw_parts(view.start.as_ptr(), 4096) };
    assert_eq!(bytes, expected);
    drop(kept);
}
