//! Operations do what they say, at every boundary size.

use core::ptr::NonNull;

use super::{
    Make,
    world::{SIZES, World, pattern, span, target},
};
use crate::{
    Kind,
    fabric::{Event, INLINE, LinkId, MESSAGE, Op, Outcome, RegionId, RemoteId},
    sync::{
        AtomicU64,
        Ordering::{Acquire, Release},
    },
};

const LARGEST: usize = SIZES[SIZES.len() - 1];
/// Aligned and unaligned starts: of the local side and of the remote side.
const STARTS: [(usize, usize); 4] = [(0, 0), (1, 0), (0, 3), (5, 13)];

/// A pair, and a region of rank 1 that rank 0 can reach.
fn with_target(make: &mut Make<'_>, bytes: usize) -> (World, LinkId, LinkId, RegionId, RemoteId) {
    let (mut world, (near, far)) = World::pair(make);
    let region = world.nodes[1].region(bytes, 0);
    let remote = world.share((1, far), region, (0, near));
    (world, near, far, region, remote)
}

pub(super) fn writes_of_every_size_arrive(make: &mut Make<'_>) {
    let room = LARGEST + 64;
    let (mut world, near, _, region, remote) = with_target(make, room);
    let source = world.nodes[0].region(room, 0x5a);
    for bytes in SIZES {
        for (from, to) in STARTS {
            world.nodes[1].fill(region, 0, &vec![0xee; room]);
            let (local, target) = (span(source, from as u64, bytes as u64), target(remote, to as u64));
            world.post(0, near, &[Op::Write { token: 1, local, target, immediate: None }, Op::Flush { token: 2 }]);
            assert_eq!(world.outcome(0, near, 1), Ok(Outcome::Done));
            assert_eq!(world.outcome(0, near, 2), Ok(Outcome::Done));
            assert_landed(&world, region, to, &pattern(room, 0x5a)[from..from + bytes]);
        }
    }
}

/// The bytes are there, and their neighbours are untouched.
fn assert_landed(world: &World, region: RegionId, at: usize, expected: &[u8]) {
    let end = at + expected.len();
    let all = world.nodes[1].bytes(region, 0, end + 16);
    assert!(all[at..end] == *expected, "{} bytes at {at}", expected.len());
    assert!(all[..at].iter().chain(&all[end..]).all(|byte| *byte == 0xee), "{} bytes at {at}", expected.len());
}

pub(super) fn inline_writes_of_every_size_arrive(make: &mut Make<'_>) {
    let (mut world, near, _, region, remote) = with_target(make, 256);
    for bytes in 0..=INLINE as u8 {
        for to in [0, 3, 8] {
            world.nodes[1].fill(region, 0, &[0xee; 256]);
            let data: [u8; INLINE] = pattern(INLINE, bytes).try_into().unwrap();
            let target = target(remote, to as u64);
            world.post(
                0,
                near,
                &[Op::WriteInline { token: 1, data, bytes, target, immediate: None }, Op::Flush { token: 2 }],
            );
            assert_eq!(world.outcome(0, near, 1), Ok(Outcome::Done));
            assert_eq!(world.outcome(0, near, 2), Ok(Outcome::Done));
            assert_landed(&world, region, to, &data[..usize::from(bytes)]);
        }
    }
}

pub(super) fn reads_of_every_size_arrive(make: &mut Make<'_>) {
    let room = LARGEST + 64;
    let (mut world, near, _, region, remote) = with_target(make, room);
    world.nodes[1].fill(region, 0, &pattern(room, 0x33));
    assert_reads(&mut world, near, remote, 0, &pattern(room, 0x33));
}

/// Reads at all sizes of what starts at `base` and holds `expected`.
fn assert_reads(world: &mut World, near: LinkId, remote: RemoteId, base: u64, expected: &[u8]) {
    let room = expected.len();
    let sink = world.nodes[0].region(room, 0);
    for bytes in SIZES {
        for (to, from) in STARTS {
            world.nodes[0].fill(sink, 0, &vec![0xee; room]);
            let (local, target) = (span(sink, to as u64, bytes as u64), target(remote, base + from as u64));
            assert_eq!(world.post_and_end(0, near, Op::Read { token: 7, local, target }), Ok(Outcome::Done));
            let got = world.nodes[0].bytes(sink, 0, room);
            assert!(got[to..to + bytes] == expected[from..from + bytes], "{bytes} bytes at {from}");
            assert!(got[..to].iter().chain(&got[to + bytes..]).all(|byte| *byte == 0xee), "{bytes} bytes at {from}");
        }
    }
}

pub(super) fn messages_of_every_size_arrive(make: &mut Make<'_>) {
    let (mut world, (near, far)) = World::pair(make);
    let source = world.nodes[0].region(2 * MESSAGE, 0x11);
    let room = world.nodes[1].region(2 * MESSAGE, 0);
    for bytes in SIZES.into_iter().filter(|bytes| *bytes <= MESSAGE) {
        for (from, to) in STARTS {
            world.nodes[1].fill(room, 0, &vec![0xee; 2 * MESSAGE]);
            let (local, memory) = (span(source, from as u64, bytes as u64), span(room, to as u64, MESSAGE as u64));
            world.post(1, far, &[Op::Receive { token: 1, local: memory }]);
            assert_eq!(world.post_and_end(0, near, Op::Send { token: 2, local }), Ok(Outcome::Done));
            let received = Outcome::Received { bytes: bytes as u64, immediate: None };
            assert_eq!(world.outcome(1, far, 1), Ok(received));
            assert_landed(&world, room, to, &pattern(2 * MESSAGE, 0x11)[from..from + bytes]);
        }
    }
    let local = span(source, 0, MESSAGE as u64 + 1);
    assert_eq!(world.refusal(0, near, &[Op::Send { token: 3, local }]), Kind::InvalidArgument);
}

pub(super) fn registered_memory_can_be_read(make: &mut Make<'_>) {
    let (mut world, (near, far)) = World::pair(make);
    let room = LARGEST + 64;
    let mut memory = pattern(room, 0x77);
    let start = NonNull::new(memory.as_mut_ptr()).unwrap();
    // SAFETY: `memory` lives until after the release below and is not touched by others before.
    let region = unsafe { world.nodes[1].fabric.register(start, room) }.unwrap();
    let remote = world.share((1, far), region, (0, near));
    assert_reads(&mut world, near, remote, 0, &pattern(room, 0x77));
    world.nodes[1].fabric.release(region).unwrap();
}

/// Where the backend can pull: any memory of the peer by address, and an error for an address that is not there.
pub(super) fn foreign_memory_can_be_read(make: &mut Make<'_>) {
    let (mut world, (near, _)) = World::pair(make);
    let Some(remote) = world.nodes[0].fabric.foreign(near) else {
        assert!(!world.nodes[0].fabric.capabilities().pull || cfg!(not(target_os = "linux")), "the probe failed");
        return;
    };
    let memory = pattern(LARGEST + 64, 0x66);
    assert_reads(&mut world, near, remote, memory.as_ptr().addr() as u64, &memory);
    let sink = world.nodes[0].region(64, 0);
    let read = |offset| Op::Read { token: 1, local: span(sink, 0, 64), target: target(remote, offset) };
    assert_eq!(world.post_and_end(0, near, read(64)).unwrap_err().kind(), Kind::AccessDenied);
    assert_eq!(world.refusal(0, near, &[read(u64::MAX - 1)]), Kind::AccessDenied);
    assert_eq!(world.post_and_end(0, near, read(memory.as_ptr().addr() as u64)), Ok(Outcome::Done));
    let write = Op::Write { token: 2, local: span(sink, 0, 8), target: target(remote, 4096), immediate: None };
    assert_eq!(world.refusal(0, near, &[write]), Kind::Unsupported);
}

pub(super) fn views_show_what_is_stored(make: &mut Make<'_>) {
    let (mut world, near, _, region, remote) = with_target(make, 4096);
    let Some(view) = world.nodes[0].fabric.view(remote) else {
        assert!(!world.nodes[0].fabric.capabilities().mapped);
        return;
    };
    assert!(view.bytes >= 4096 && view.start.addr().get().is_multiple_of(4096));
    let own = world.nodes[1].fabric.memory(region).unwrap();
    // SAFETY: both are the first word of one page that stays mapped; it is accessed atomically only.
    let (theirs, ours) =
        unsafe { (AtomicU64::from_ptr(view.start.as_ptr().cast()), AtomicU64::from_ptr(own.start.as_ptr().cast())) };
    // SYNC conformance.view.store -> conformance.view.load: one thread, two mappings.
    theirs.store(17, Release);
    assert_eq!(ours.load(Acquire), 17);
    ours.store(18, Release);
    assert_eq!(theirs.load(Acquire), 18);
    assert!(world.nodes[0].fabric.peer_doorbell(near).is_some());
    world.nodes[0].fabric.forget(remote).unwrap();
    assert!(world.nodes[0].fabric.view(remote).is_none());
}

pub(super) fn immediate_makes_earlier_writes_visible(make: &mut Make<'_>) {
    let (mut world, near, far, region, remote) = with_target(make, 70_000);
    let source = world.nodes[0].region(70_000, 0);
    for round in 0..200_u32 {
        let bytes = [1, 8, 128, 4097, 65_537][round as usize % 5];
        world.nodes[0].fill(source, 0, &vec![round as u8; bytes]);
        world.post(1, far, &[Op::Receive { token: 1, local: span(region, 0, 0) }]);
        let plain =
            Op::Write { token: 2, local: span(source, 0, bytes as u64), target: target(remote, 7), immediate: None };
        let last = Op::Write { token: 3, local: span(source, 0, 1), target: target(remote, 0), immediate: Some(round) };
        world.post(0, near, &[plain, last]);
        // only the target is asked: what it reports must be enough
        let received = world.outcome(1, far, 1);
        assert_eq!(received, Ok(Outcome::Received { bytes: 1, immediate: Some(round) }));
        assert!(world.nodes[1].bytes(region, 7, bytes).iter().all(|byte| *byte == round as u8), "round {round}");
        assert_eq!(world.outcome(0, near, 2), Ok(Outcome::Done));
        assert_eq!(world.outcome(0, near, 3), Ok(Outcome::Done));
    }
}

pub(super) fn receives_complete_in_posting_order(make: &mut Make<'_>) {
    let (mut world, near, far, region, remote) = with_target(make, 4096);
    let source = world.nodes[0].region(64, 0);
    let receives: Vec<Op> = (0..9).map(|token| Op::Receive { token, local: span(region, 64 * token, 64) }).collect();
    world.post(1, far, &receives);
    for number in 0..9_u64 {
        let local = span(source, 0, number);
        let write = Op::Write { token: 100, local, target: target(remote, 2048), immediate: Some(number as u32) };
        let op = if number % 2 == 0 { Op::Send { token: 100, local } } else { write };
        assert_eq!(world.post_and_end(0, near, op), Ok(Outcome::Done));
    }
    for number in 0..9_u64 {
        let immediate = (number % 2 == 1).then_some(number as u32);
        assert_eq!(world.outcome(1, far, number), Ok(Outcome::Received { bytes: number, immediate }));
    }
}

pub(super) fn post_without_receive_is_not_accepted(make: &mut Make<'_>) {
    let (mut world, near, far, region, remote) = with_target(make, 4096);
    let source = world.nodes[0].region(64, 0);
    let local = span(source, 0, 8);
    let send = Op::Send { token: 1, local };
    let immediate = Op::Write { token: 2, local, target: target(remote, 0), immediate: Some(1) };
    let plain = Op::Write { token: 3, local, target: target(remote, 0), immediate: None };
    for _ in 0..50 {
        assert_eq!(world.nodes[0].fabric.post(near, &[send]), Ok(0));
        assert_eq!(world.nodes[0].fabric.post(near, &[immediate]), Ok(0));
        world.step();
    }
    // what needs no receive is accepted, up to the first that does
    assert_eq!(world.nodes[0].fabric.post(near, &[plain, send, plain]), Ok(1));
    assert_eq!(world.outcome(0, near, 3), Ok(Outcome::Done));
    world.post(1, far, &[Op::Receive { token: 9, local: span(region, 0, 64) }]);
    world.post(0, near, &[send]);
    assert_eq!(world.outcome(1, far, 9), Ok(Outcome::Received { bytes: 8, immediate: None }));
    assert_eq!(world.nodes[0].fabric.post(near, &[immediate]), Ok(0));
}

pub(super) fn message_too_long_for_its_receive_ends_it(make: &mut Make<'_>) {
    let (mut world, (near, far)) = World::pair(make);
    let (source, room) = (world.nodes[0].region(64, 5), world.nodes[1].region(64, 0));
    world.post(
        1,
        far,
        &[Op::Receive { token: 1, local: span(room, 0, 7) }, Op::Receive { token: 2, local: span(room, 0, 8) }],
    );
    for token in [3, 4] {
        assert_eq!(world.post_and_end(0, near, Op::Send { token, local: span(source, 0, 8) }), Ok(Outcome::Done));
    }
    assert_eq!(world.outcome(1, far, 1).unwrap_err().kind(), Kind::AccessDenied);
    assert_eq!(world.outcome(1, far, 2), Ok(Outcome::Received { bytes: 8, immediate: None }));
}

pub(super) fn atomics_of_two_peers_add_up(make: &mut Make<'_>) {
    let mut world = World::new(make, 3);
    let ends = [world.connect(0, 2), world.connect(1, 2)];
    let region = world.nodes[2].region(4096, 0);
    world.nodes[2].fill(region, 8, &[0xff; 8]);
    let remotes = [0, 1].map(|node: usize| world.share((2, ends[node].1), region, (node, ends[node].0)));
    let mut seen = Vec::new();
    for token in 0..100 {
        for node in [0, 1] {
            let op = Op::FetchAdd { token, target: target(remotes[node], 8), add: 1 };
            world.post(node, ends[node].0, &[op]);
        }
        for (node, (near, _)) in ends.into_iter().enumerate() {
            let Ok(Outcome::Atomic { before }) = world.outcome(node, near, token) else { panic!("no atomic") };
            seen.push(before);
        }
    }
    seen.sort_by_key(|before| before.wrapping_add(1));
    assert_eq!(seen, (0..200).map(|count: u64| count.wrapping_sub(1)).collect::<Vec<_>>());
    assert_eq!(world.nodes[2].bytes(region, 8, 8), 199_u64.to_le_bytes());
}

pub(super) fn compare_swap_replaces_only_what_is_expected(make: &mut Make<'_>) {
    let (mut world, near, _, region, remote) = with_target(make, 4096);
    world.nodes[1].fill(region, 0, &7_u64.to_le_bytes());
    let swap = |expected, desired| Op::CompareSwap { token: 1, target: target(remote, 0), expected, desired };
    assert_eq!(world.post_and_end(0, near, swap(8, 9)), Ok(Outcome::Atomic { before: 7 }));
    assert_eq!(world.post_and_end(0, near, swap(7, u64::MAX)), Ok(Outcome::Atomic { before: 7 }));
    assert_eq!(world.post_and_end(0, near, swap(0, 1)), Ok(Outcome::Atomic { before: u64::MAX }));
    assert_eq!(world.nodes[1].bytes(region, 0, 8), u64::MAX.to_le_bytes());
}

pub(super) fn flush_ends_after_what_was_posted_before(make: &mut Make<'_>) {
    let (mut world, near, _, region, remote) = with_target(make, LARGEST);
    let local = world.nodes[0].region(LARGEST, 0x44);
    let whole = span(local, 0, LARGEST as u64);
    let write = Op::Write { token: 1, local: whole, target: target(remote, 0), immediate: None };
    world.post(0, near, &[write, Op::Flush { token: 2 }]);
    assert_eq!(world.outcome(0, near, 2), Ok(Outcome::Done));
    assert!(world.nodes[1].bytes(region, 0, LARGEST) == pattern(LARGEST, 0x44));
    assert!(world.nodes[0].ended(near, 1).is_some(), "the flush ended before the write");
    world.post(0, near, &[Op::Read { token: 3, local: whole, target: target(remote, 0) }, Op::Flush { token: 4 }]);
    assert_eq!(world.outcome(0, near, 4), Ok(Outcome::Done));
    assert!(world.nodes[0].ended(near, 3).is_some(), "the flush ended before the read");
}

pub(super) fn long_streams_complete_each_once(make: &mut Make<'_>) {
    let (mut world, near, far, region, remote) = with_target(make, 4096);
    let source = world.nodes[0].region(4096, 3);
    let count = 2000;
    let ops: Vec<Op> = (0..count).map(|token| stream_op(token, source, remote)).collect();
    let receives: Vec<Op> = (0..count).map(|token| Op::Receive { token, local: span(region, 2048, 2048) }).collect();
    let (mut posted, mut granted, mut ended) = (0, 0, vec![[0; 2]; count as usize]);
    world.until("all to end once", |nodes| {
        posted += nodes[0].fabric.post(near, &ops[posted..ops.len().min(posted + 40)]).unwrap();
        granted += nodes[1].fabric.post(far, &receives[granted..receives.len().min(granted + 3)]).unwrap();
        for node in [0, 1] {
            for event in nodes[node].seen.drain(..) {
                let Event::Done { token, result, .. } = event else { panic!("{event:?}") };
                assert!(result.is_ok(), "operation {token}: {result:?}");
                ended[token as usize][node] += 1;
            }
        }
        let sent = ended.iter().all(|[sent, _]| *sent == 1);
        // every second operation consumed a receive
        let received = ended.iter().take(count as usize / 2).all(|[_, received]| *received == 1);
        (sent && received).then_some(())
    });
    for _ in 0..100 {
        world.step();
    }
    assert!(world.nodes[0].seen.is_empty() && world.nodes[1].seen.is_empty(), "something ended twice");
}

fn stream_op(token: u64, source: RegionId, remote: RemoteId) -> Op {
    let (local, target) = (span(source, token % 64, token % 1000), target(remote, token % 512));
    match token % 4 {
        0 => Op::Write { token, local, target, immediate: None },
        1 => Op::Send { token, local },
        2 => Op::Read { token, local: span(source, 2048, token % 1000), target },
        _ => Op::Write { token, local, target, immediate: Some(token as u32) },
    }
}

/// Where the target need not poll, it does not here.
pub(super) fn passive_target_need_not_poll(make: &mut Make<'_>) {
    let (mut world, near, _, region, remote) = with_target(make, 1 << 20);
    if !world.nodes[0].fabric.capabilities().passive {
        return;
    }
    let mut target_node = world.nodes.remove(1);
    let local = world.nodes[0].region(1 << 20, 0x21);
    let whole = span(local, 0, 1 << 20);
    let write = Op::Write { token: 1, local: whole, target: target(remote, 0), immediate: None };
    let add = Op::FetchAdd { token: 2, target: target(remote, 0), add: 1 };
    world.post(
        0,
        near,
        &[write, add, Op::Flush { token: 3 }, Op::Read { token: 4, local: whole, target: target(remote, 0) }],
    );
    for token in [1, 2, 3, 4] {
        assert!(world.outcome(0, near, token).is_ok(), "operation {token}");
    }
    let word = u64::from_le_bytes(pattern(8, 0x21).try_into().unwrap());
    assert_eq!(target_node.bytes(region, 0, 8), (word + 1).to_le_bytes());
    assert!(target_node.bytes(region, 8, (1 << 20) - 8) == pattern(1 << 20, 0x21)[8..]);
    target_node.poll();
}
