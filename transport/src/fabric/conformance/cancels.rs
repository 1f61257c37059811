//! A cancelled operation ends once, its memory is left alone from then on, and its link goes on (CA-1).

use super::{
    Make,
    world::{World, pattern, span, target},
};
use crate::{
    Kind,
    fabric::{Event, LinkId, Op, Outcome, RegionId, RemoteId},
};

const GARBAGE: u8 = 0xee;
/// Large enough to be under way for a while where data has a way.
const LONG: usize = 1 << 20;

/// The end of an operation that was cancelled.
fn end(world: &mut World, node: usize, link: LinkId, token: u64) -> Result<Outcome, Kind> {
    world.outcome(node, link, token).map_err(|error| error.kind())
}

/// Nothing has been reported of any operation.
fn assert_quiet(world: &mut World) {
    for _ in 0..50 {
        world.step();
    }
    for node in &world.nodes {
        assert!(!node.seen.iter().any(|event| matches!(event, Event::Done { .. })), "{:?}", node.seen);
    }
}

pub(super) fn cancel_of_the_unknown_is_nothing(make: &mut Make<'_>) {
    let (mut world, (near, _)) = World::pair(make);
    let fabric = &mut world.nodes[0].fabric;
    assert_eq!(fabric.cancel(LinkId(9999), 1).unwrap_err().kind(), Kind::InvalidArgument);
    assert_eq!(fabric.cancel(near, 1), Ok(()));
    assert_quiet(&mut world);
    world.nodes[0].fabric.close(near);
    assert_eq!(world.nodes[0].fabric.cancel(near, 1), Ok(()));
}

pub(super) fn cancel_after_the_end_changes_nothing(make: &mut Make<'_>) {
    let (mut world, (near, far)) = World::pair(make);
    let (from, to) = (world.nodes[0].region(64, 1), world.nodes[1].region(64, 0));
    world.post(1, far, &[Op::Receive { token: 1, local: span(to, 0, 64) }]);
    world.post(0, near, &[Op::Send { token: 2, local: span(from, 0, 64) }]);
    assert_eq!(world.outcome(0, near, 2), Ok(Outcome::Done));
    assert_eq!(world.outcome(1, far, 1), Ok(Outcome::Received { bytes: 64, immediate: None }));
    assert_eq!(world.nodes[0].fabric.cancel(near, 2), Ok(()));
    assert_eq!(world.nodes[1].fabric.cancel(far, 1), Ok(()));
    assert_quiet(&mut world);
}

/// CA-4: its credit stays with the peer: what comes is for the receives that are left, then for those that follow.
pub(super) fn cancelled_receive_gives_its_turn_to_the_next(make: &mut Make<'_>) {
    let (mut world, (near, far)) = World::pair(make);
    let to = world.nodes[1].region(4096, 0);
    let from = world.nodes[0].region(4096, 1);
    let receive = |token: u64| Op::Receive { token, local: span(to, token * 64, 64) };
    world.post(1, far, &[receive(0), receive(1), receive(2)]);
    world.nodes[1].fabric.cancel(far, 1).unwrap();
    world.nodes[1].fabric.cancel(far, 1).unwrap();
    assert_eq!(end(&mut world, 1, far, 1), Err(Kind::Cancelled));
    let send = |token: u64| Op::Send { token, local: span(from, token * 64, 64) };
    // the third has no receive yet, and waits
    world.post(0, near, &[send(10), send(11), send(12)]);
    for (receive, send) in [(0, 10), (2, 11)] {
        assert_eq!(world.outcome(1, far, receive), Ok(Outcome::Received { bytes: 64, immediate: None }));
        assert_eq!(world.nodes[1].bytes(to, receive as usize * 64, 64), world.nodes[0].bytes(from, send * 64, 64));
    }
    for token in [10, 11, 12] {
        assert_eq!(world.outcome(0, near, token), Ok(Outcome::Done));
    }
    assert_eq!(world.nodes[1].bytes(to, 64, 64), pattern(4096, 0)[64..128], "the memory of a cancelled receive");
    world.post(1, far, &[receive(3)]);
    assert_eq!(world.outcome(1, far, 3), Ok(Outcome::Received { bytes: 64, immediate: None }));
    assert_eq!(world.nodes[1].bytes(to, 192, 64), world.nodes[0].bytes(from, 12 * 64, 64));
    // and credit is as it was
    world.post(1, far, &[receive(4)]);
    world.post(0, near, &[send(13)]);
    assert_eq!(world.outcome(1, far, 4), Ok(Outcome::Received { bytes: 64, immediate: None }));
}

pub(super) fn immediate_for_a_cancelled_receive_waits_for_the_next(make: &mut Make<'_>) {
    let (mut world, (near, far)) = World::pair(make);
    let to = world.nodes[1].region(4096, 0);
    let from = world.nodes[0].region(4096, 1);
    let remote = world.share((1, far), to, (0, near));
    let receive = |token: u64| Op::Receive { token, local: span(to, 2048, 0) };
    world.post(1, far, &[receive(1)]);
    let write = Op::Write { token: 2, local: span(from, 0, 64), target: target(remote, 0), immediate: Some(5) };
    world.post(0, near, &[write]);
    world.nodes[1].fabric.cancel(far, 1).unwrap();
    // it may have come before
    let first = end(&mut world, 1, far, 1);
    assert_eq!(world.outcome(0, near, 2), Ok(Outcome::Done));
    let received = Ok(Outcome::Received { bytes: 64, immediate: Some(5) });
    if first != received {
        assert_eq!(first, Err(Kind::Cancelled));
        world.post(1, far, &[receive(3)]);
        assert_eq!(end(&mut world, 1, far, 3), received);
    }
    assert_eq!(world.nodes[1].bytes(to, 0, 64), world.nodes[0].bytes(from, 0, 64));
}

/// Operations that are posted, cancelled at once or after some steps, and whose memory is used for something else at once.
pub(super) fn cancelled_operations_end_once_and_leave_their_memory_alone(make: &mut Make<'_>) {
    let (mut world, (near, far)) = World::pair(make);
    for steps in [0, 1, 3, 10] {
        let target_region = world.nodes[1].region(2 * LONG, 0);
        world.nodes[1].fill(target_region, 0, &vec![0; LONG]);
        let remote = world.share((1, far), target_region, (0, near));
        let local = world.nodes[0].region(2 * LONG, 0);
        for op in operations(local, remote) {
            world.nodes[0].fill(local, 0, &vec![7; LONG]);
            world.post(0, near, &[op]);
            (0..steps).for_each(|_| world.step());
            let token = op.token();
            world.nodes[0].fabric.cancel(near, token).unwrap();
            world.nodes[0].fill(local, 0, &vec![GARBAGE; LONG]);
            world.nodes[0].fabric.cancel(near, token).unwrap();
            let result = end(&mut world, 0, near, token);
            assert!(matches!(result, Ok(_) | Err(Kind::Cancelled | Kind::OutcomeUnknown)), "{op:?}: {result:?}");
            assert_eq!(world.post_and_end(0, near, Op::Flush { token: 100 }), Ok(Outcome::Done), "the link goes on");
            check(&world, &op, result, target_region, local);
            assert_quiet(&mut world);
        }
        // nothing holds the memory
        assert_eq!(world.nodes[0].fabric.release(local), Ok(()));
    }
}

fn operations(local: RegionId, remote: RemoteId) -> [Op; 4] {
    let (near, far) = (span(local, 0, LONG as u64), target(remote, 0));
    [
        Op::Write { token: 1, local: near, target: far, immediate: None },
        Op::Read { token: 2, local: near, target: target(remote, LONG as u64) },
        Op::FetchAdd { token: 3, target: target(remote, LONG as u64), add: 0 },
        Op::Flush { token: 4 },
    ]
}

fn check(world: &World, op: &Op, result: Result<Outcome, Kind>, region: RegionId, local: RegionId) {
    match op {
        Op::Write { .. } => {
            let landed = world.nodes[1].bytes(region, 0, LONG);
            let fits = |byte: &u8| match result {
                Ok(_) => *byte == 7,
                Err(Kind::Cancelled) => *byte == 0,
                Err(_) => *byte == 7 || *byte == 0,
            };
            assert!(landed.iter().all(fits), "{result:?}: what landed is not what was posted");
        }
        Op::Read { .. } => {
            let local = world.nodes[0].bytes(local, 0, LONG);
            assert!(local.iter().all(|byte| *byte == GARBAGE), "{result:?}: touched after its end");
        }
        _ => {}
    }
}

/// Many operations wait for a peer that does not poll; all are cancelled, from the last to the first.
pub(super) fn cancel_while_the_peer_never_polls(make: &mut Make<'_>) {
    let (mut world, (near, far)) = World::pair(make);
    let region = world.nodes[1].region(LONG, 0);
    world.nodes[1].fill(region, 0, &vec![0; LONG]);
    let remote = world.share((1, far), region, (0, near));
    let local = world.nodes[0].region(LONG, 0);
    world.nodes[0].fill(local, 0, &vec![7; LONG]);
    let write = |token: u64| {
        let (bytes, offset) = (LONG as u64 / 64, token * (LONG as u64 / 64));
        Op::Write { token, local: span(local, offset, bytes), target: target(remote, offset), immediate: None }
    };
    let read = |token| Op::Read { token, local: span(local, 0, 64), target: target(remote, 0) };
    let ops: Vec<Op> = (0..64).map(write).chain((64..80).map(read)).collect();
    let accepted = world.nodes[0].fabric.post(near, &ops).unwrap();
    for token in (0..accepted as u64).rev() {
        world.nodes[0].fabric.cancel(near, token).unwrap();
    }
    world.nodes[0].fill(local, 0, &vec![GARBAGE; LONG]);
    // the ends come without the peer
    let mut ends = Vec::new();
    for _ in 0..1000 {
        world.nodes[0].poll();
        ends.extend((0..accepted as u64).filter_map(|token| Some((token, world.nodes[0].ended(near, token)?))));
        if ends.len() == accepted {
            break;
        }
    }
    assert_eq!(ends.len(), accepted);
    assert_eq!(world.nodes[0].fabric.release(local), Ok(()));
    assert_eq!(world.post_and_end(0, near, Op::Flush { token: 100 }), Ok(Outcome::Done));
    assert_quiet(&mut world);
    let landed = world.nodes[1].bytes(region, 0, LONG);
    for (token, result) in ends.into_iter().filter(|(token, _)| *token < 64) {
        let part = &landed[token as usize * LONG / 64..][..LONG / 64];
        let kind = result.map_err(|error| error.kind());
        assert!(part.iter().all(|byte| *byte == 7 || kind.is_err() && *byte == 0), "{token}: {kind:?}");
        assert!(kind != Err(Kind::Cancelled) || part.iter().all(|byte| *byte == 0), "{token} was cancelled and landed");
    }
}

/// What was not accepted is not known; posting it again after a cancel of its name works.
pub(super) fn cancelled_token_can_be_used_again(make: &mut Make<'_>) {
    let (mut world, (near, far)) = World::pair(make);
    let region = world.nodes[1].region(4096, 0);
    let remote = world.share((1, far), region, (0, near));
    let local = world.nodes[0].region(4096, 9);
    let send = Op::Send { token: 1, local: span(local, 0, 64) };
    assert_eq!(world.nodes[0].fabric.post(near, &[send]), Ok(0), "no receive is posted");
    assert_eq!(world.nodes[0].fabric.cancel(near, 1), Ok(()));
    let write = Op::Write { token: 1, local: span(local, 0, 4096), target: target(remote, 0), immediate: None };
    world.post(0, near, &[write]);
    world.nodes[0].fabric.cancel(near, 1).unwrap();
    let _ = world.outcome(0, near, 1);
    assert_eq!(world.post_and_end(0, near, write), Ok(Outcome::Done));
    assert_eq!(world.nodes[1].bytes(region, 0, 4096), pattern(4096, 9));
}
