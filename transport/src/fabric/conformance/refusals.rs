//! What is wrong is refused, whole and by kind, and leaves no trace.

use super::{
    Make,
    world::{Node, Stage, World, span, target},
};
use crate::{
    Kind, Time,
    fabric::{Access, INLINE, Key, LinkId, Op, Outcome, RegionId, RemoteId, Span, Target},
};

/// One page.
const BYTES: usize = 4096;

fn write(local: Span, target: Target) -> Op {
    Op::Write { token: 1, local, target, immediate: None }
}

pub(super) fn ranges_out_of_bounds_are_refused(make: &mut Make<'_>) {
    let Stage { mut world, near, local, region, remote, .. } = Stage::new(make, BYTES);
    let bytes = world.nodes[1].fabric.memory(region).unwrap().bytes as u64;
    let mut refuse = |op| {
        let kind = world.refusal(0, near, &[op]);
        assert!(matches!(kind, Kind::AccessDenied | Kind::SizeOverflow), "{op:?}: {kind:?}");
    };
    let good = span(local, 0, 8);
    for offset in [bytes - 7, bytes, bytes + 1, u64::MAX - 7, u64::MAX - 8, u64::MAX] {
        refuse(write(good, target(remote, offset)));
        refuse(Op::Read { token: 1, local: good, target: target(remote, offset) });
        refuse(Op::WriteInline {
            token: 1,
            data: [0; INLINE],
            bytes: 8,
            target: target(remote, offset),
            immediate: None,
        });
        refuse(write(span(local, offset, 8), target(remote, 0)));
        refuse(Op::Receive { token: 1, local: span(local, offset, 8) });
        refuse(Op::Send { token: 1, local: span(local, offset, 8) });
    }
    for offset in [bytes, bytes + 8, u64::MAX - 7] {
        refuse(Op::FetchAdd { token: 1, target: target(remote, offset), add: 1 });
        refuse(Op::CompareSwap { token: 1, target: target(remote, offset), expected: 0, desired: 1 });
    }
    for length in [bytes + 1, u64::MAX] {
        refuse(write(span(local, 0, length), target(remote, 0)));
        refuse(Op::Receive { token: 1, local: span(local, 0, length) });
        refuse(write(span(local, 1, length), target(remote, 0)));
    }
    assert_eq!(world.nodes[0].fabric.post(near, &[write(span(local, bytes, 0), target(remote, bytes))]), Ok(1));
}

pub(super) fn malformed_operation_refuses_its_batch(make: &mut Make<'_>) {
    let Stage { mut world, near, local, region, remote, .. } = Stage::new(make, BYTES);
    let before = world.nodes[1].bytes(region, 0, 64);
    let good = write(span(local, 0, 64), target(remote, 0));
    let unaligned = Op::FetchAdd { token: 2, target: target(remote, 4), add: 1 };
    assert_eq!(world.refusal(0, near, &[good, unaligned]), Kind::InvalidArgument);
    assert_eq!(world.refusal(0, near, &[unaligned, good]), Kind::InvalidArgument);
    let swap = Op::CompareSwap { token: 2, target: target(remote, 1), expected: 0, desired: 0 };
    assert_eq!(world.refusal(0, near, &[good, good, swap]), Kind::InvalidArgument);
    let long = Op::WriteInline { token: 2, data: [0; INLINE], bytes: 65, target: target(remote, 0), immediate: None };
    assert_eq!(world.refusal(0, near, &[good, long]), Kind::InvalidArgument);
    for _ in 0..50 {
        world.step();
    }
    assert!(world.nodes[0].seen.is_empty(), "a refused batch reported something");
    assert_eq!(world.nodes[1].bytes(region, 0, 64), before, "a refused batch was done in part");
}

pub(super) fn unknown_names_are_refused(make: &mut Make<'_>) {
    let Stage { mut world, near, far, local, region, remote, .. } = Stage::new(make, BYTES);
    let (far2, near2) = world.connect(1, 0);
    let elsewhere = world.share((1, far2), region, (0, near2));
    let unknown = RegionId(9999);
    for op in [
        write(span(unknown, 0, 8), target(remote, 0)),
        write(span(local, 0, 8), target(RemoteId(9999), 0)),
        write(span(local, 0, 8), target(elsewhere, 0)),
        Op::Receive { token: 1, local: span(unknown, 0, 0) },
        Op::Flush { token: 1 },
    ] {
        let link = if matches!(op, Op::Flush { .. }) { LinkId(9999) } else { near };
        assert_eq!(world.refusal(0, link, &[op]), Kind::InvalidArgument, "{op:?}");
    }
    let fabric = &mut world.nodes[1].fabric;
    assert_eq!(fabric.release(unknown).unwrap_err().kind(), Kind::InvalidArgument);
    assert_eq!(fabric.advertise(far, unknown, Access::ReadWrite).unwrap_err().kind(), Kind::InvalidArgument);
    assert_eq!(fabric.advertise(LinkId(9999), region, Access::ReadWrite).unwrap_err().kind(), Kind::InvalidArgument);
    assert_eq!(fabric.forget(RemoteId(9999)).unwrap_err().kind(), Kind::InvalidArgument);
    assert!(fabric.memory(unknown).is_none() && fabric.view(RemoteId(9999)).is_none());
    assert!(fabric.foreign(LinkId(9999)).is_none() && fabric.peer_doorbell(LinkId(9999)).is_none());
    fabric.close(LinkId(9999));
}

pub(super) fn changed_key_is_refused(make: &mut Make<'_>) {
    let Stage { mut world, near, far, region, .. } = Stage::new(make, BYTES);
    let key = world.nodes[1].fabric.advertise(far, region, Access::ReadWrite).unwrap();
    for at in 0..32 {
        for bit in [1, 0x80] {
            let mut bytes = key.0;
            bytes[at] ^= bit;
            assert_bad_key(&mut world, near, &Key(bytes));
        }
    }
    assert_bad_key(&mut world, near, &Key([0; 32]));
    assert_bad_key(&mut world, near, &Key([0xff; 32]));
    assert!(world.nodes[0].fabric.import(near, &key).is_ok());
}

fn assert_bad_key(world: &mut World, near: LinkId, key: &Key) {
    let kind = world.nodes[0].fabric.import(near, key).expect_err("a bad key was taken").kind();
    assert!(matches!(kind, Kind::Corrupt | Kind::AccessDenied), "{kind:?}");
}

pub(super) fn key_of_another_link_is_refused(make: &mut Make<'_>) {
    let Stage { mut world, near, region, .. } = Stage::new(make, BYTES);
    let (_, far2) = world.connect(0, 1);
    let key = world.nodes[1].fabric.advertise(far2, region, Access::ReadWrite).unwrap();
    assert_bad_key(&mut world, near, &key);
}

pub(super) fn release_in_use_is_refused(make: &mut Make<'_>) {
    let Stage { mut world, near, far, local, remote, .. } = Stage::new(make, BYTES);
    let text = world.nodes[1].region(64, 0);
    world.post(0, near, &[Op::Receive { token: 5, local: span(local, 0, 64) }]);
    assert_eq!(world.nodes[0].fabric.release(local).unwrap_err().kind(), Kind::InvalidUsage);
    world.post(1, far, &[Op::Send { token: 6, local: span(text, 0, 64) }]);
    assert!(world.outcome(0, near, 5).is_ok());
    assert_eq!(world.nodes[0].fabric.release(local), Ok(()));
    assert_eq!(world.nodes[0].fabric.release(local).unwrap_err().kind(), Kind::InvalidArgument);
    assert_eq!(world.refusal(0, near, &[write(span(local, 0, 8), target(remote, 0))]), Kind::InvalidArgument);
}

/// A released region cannot be imported any more, and its memory is not reached by a key that is gone.
pub(super) fn released_region_is_out_of_reach(make: &mut Make<'_>) {
    let Stage { mut world, near, far, .. } = Stage::new(make, BYTES);
    let mut memory = vec![1_u8; 100];
    let start = core::ptr::NonNull::new(memory.as_mut_ptr()).unwrap();
    // SAFETY: `memory` lives until after the release below.
    let region = unsafe { world.nodes[1].fabric.register(start, 100) }.unwrap();
    let allocated = world.nodes[1].region(4096, 0);
    let key = world.nodes[1].fabric.advertise(far, allocated, Access::ReadWrite).unwrap();
    let remote = world.share((1, far), region, (0, near));
    world.nodes[1].fabric.release(region).unwrap();
    world.nodes[1].fabric.release(allocated).unwrap();
    // the backends differ in when they notice; none may hang, and none may end the link
    let _ = world.nodes[0].fabric.import(near, &key);
    let sink = world.nodes[0].region(4096, 0);
    let _ = world.post_and_end(0, near, Op::Read { token: 1, local: span(sink, 0, 100), target: target(remote, 0) });
    assert_eq!(world.post_and_end(0, near, Op::Flush { token: 2 }), Ok(Outcome::Done));
    drop(memory);
}

pub(super) fn poll_stays_within_capacity(make: &mut Make<'_>) {
    let Stage { mut world, near, local, remote, .. } = Stage::new(make, BYTES);
    let ops: Vec<Op> = (0..10)
        .map(|token| Op::Write { token, local: span(local, 0, 8), target: target(remote, 0), immediate: None })
        .collect();
    world.post(0, near, &ops);
    let mut none = Vec::new();
    let mut few = Vec::with_capacity(3);
    let mut count = 0;
    world.until("ten ends, three at a time", |nodes| {
        let Node { fabric, seen, .. } = &mut nodes[0];
        fabric.poll(Time::now(), &mut none);
        assert_eq!(none.capacity(), 0);
        few.clear();
        let room = few.capacity();
        fabric.poll(Time::now(), &mut few);
        assert!(few.len() <= room && few.capacity() == room);
        count += few.len() + seen.drain(..).count();
        (count == 10).then_some(())
    });
}
