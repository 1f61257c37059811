//! Rights are kept (FE-7), and a region whose revocation was reported is touched by no peer, whatever that peer does (FE-1, FE-2).

use core::{ptr::NonNull, time::Duration};

use super::{
    Make,
    world::{Stage, World, pattern, span, target},
};
use crate::{
    Kind, Result, Time,
    fabric::{Access, Event, INLINE, LinkId, Op, Outcome, RegionId, RemoteId},
};

/// Bytes of the revoked region.
const BYTES: usize = 8192;
/// More than a backend may have in hand at once.
const MANY: usize = 100;

fn soon() -> Time {
    Time::now().after(Duration::from_secs(10))
}

/// What became of the revocation, while all are stepped.
fn revoked(world: &mut World, node: usize, region: RegionId) -> Result<()> {
    world.until("the end of a revocation", |nodes| nodes[node].revoked(region))
}

/// The same, while only `node` is polled.
fn revoked_alone(world: &mut World, node: usize, region: RegionId) -> Result<()> {
    let end = Time::now().after(super::PATIENCE);
    loop {
        world.nodes[node].poll();
        if let Some(result) = world.nodes[node].revoked(region) {
            return result;
        }
        assert!(Time::now() < end, "waited in vain for a revocation");
        crate::sync::thread::yield_now();
    }
}

/// One of each operation that uses a key; tokens 0 to 4, all at offset 0.
fn uses(local: RegionId, remote: RemoteId) -> [Op; 5] {
    let (local, target) = (span(local, 0, 64), target(remote, 0));
    [
        Op::Write { token: 0, local, target, immediate: None },
        Op::WriteInline { token: 1, data: [9; INLINE], bytes: 8, target, immediate: None },
        Op::Read { token: 2, local, target },
        Op::FetchAdd { token: 3, target, add: 1 },
        Op::CompareSwap { token: 4, target, expected: 0, desired: 1 },
    ]
}

/// All of them are accepted and end, without access; and the link goes on.
fn assert_out_of_reach(world: &mut World, near: LinkId, local: RegionId, remote: RemoteId) {
    for op in uses(local, remote) {
        let kind = world.post_and_end(0, near, op).map_err(|error| error.kind());
        assert_eq!(kind, Err(Kind::AccessDenied), "{op:?}");
    }
    assert_eq!(world.post_and_end(0, near, Op::Flush { token: 9 }), Ok(Outcome::Done));
}

/// The owner uses its memory for something else: returns what it must hold from now on.
fn reuse(world: &World, node: usize, region: RegionId) -> Vec<u8> {
    let bytes = pattern(BYTES, 0x77);
    world.nodes[node].fill(region, 0, &bytes);
    bytes
}

pub(super) fn rights_are_kept(make: &mut Make<'_>) {
    let Stage { mut world, near, far, local, region, .. } = Stage::new(make, BYTES);
    for access in [Access::Read, Access::Write, Access::ReadWrite] {
        let key = world.nodes[1].fabric.advertise(far, region, access).unwrap();
        let remote = world.nodes[0].fabric.import(near, &key).unwrap();
        for op in uses(local, remote) {
            let wanted = match op {
                Op::Read { .. } => Access::Read,
                Op::FetchAdd { .. } | Op::CompareSwap { .. } => Access::ReadWrite,
                _ => Access::Write,
            };
            if access.allows(wanted) {
                assert!(world.post_and_end(0, near, op).is_ok(), "{access:?} {op:?}");
            } else {
                assert_eq!(world.refusal(0, near, &[op]), Kind::AccessDenied, "{access:?} {op:?}");
            }
        }
    }
}

pub(super) fn revoked_region_is_out_of_reach(make: &mut Make<'_>) {
    let Stage { mut world, near, far, local, region, remote } = Stage::new(make, BYTES);
    let other = world.nodes[1].region(BYTES, 3);
    let untouched = world.share((1, far), other, (0, near));
    let key = world.nodes[1].fabric.advertise(far, region, Access::ReadWrite).unwrap();
    world.nodes[1].fabric.revoke(region, soon()).unwrap();
    assert_eq!(revoked(&mut world, 1, region), Ok(()));
    let expected = reuse(&world, 1, region);
    assert_out_of_reach(&mut world, near, local, remote);
    // a key that was not used before is as void
    if let Ok(remote) = world.nodes[0].fabric.import(near, &key) {
        assert_out_of_reach(&mut world, near, local, remote);
    }
    assert_eq!(world.nodes[1].bytes(region, 0, BYTES), expected);
    for op in uses(local, untouched) {
        assert!(world.post_and_end(0, near, op).is_ok(), "another region is as reachable as before");
    }
}

/// Whatever was posted before ends once, with or without access, and writes nothing after the report.
pub(super) fn revoke_ends_what_is_under_way(make: &mut Make<'_>) {
    let Stage { mut world, near, local, region, remote, .. } = Stage::new(make, BYTES);
    let write = |token| {
        let (local, target) = (span(local, 0, BYTES as u64), target(remote, 0));
        Op::Write { token, local, target, immediate: None }
    };
    let ops: Vec<Op> = (0..20).map(write).collect();
    let accepted = world.nodes[0].fabric.post(near, &ops).unwrap();
    world.nodes[1].poll();
    world.nodes[1].fabric.revoke(region, soon()).unwrap();
    assert_eq!(revoked(&mut world, 1, region), Ok(()));
    let expected = reuse(&world, 1, region);
    for token in 0..accepted as u64 {
        let kind = world.outcome(0, near, token).err().map(|error| error.kind());
        assert!(matches!(kind, None | Some(Kind::AccessDenied)), "{token}: {kind:?}");
    }
    assert_eq!(world.post_and_end(0, near, Op::Flush { token: 99 }), Ok(Outcome::Done));
    assert_eq!(world.nodes[1].bytes(region, 0, BYTES), expected);
}

pub(super) fn revoke_is_for_all_links_and_all_rights(make: &mut Make<'_>) {
    let mut world = World::new(make, 3);
    let region = world.nodes[0].region(BYTES, 0);
    let mut remotes = Vec::new();
    for peer in [1, 2, 1] {
        let (far, near) = world.connect(0, peer);
        let local = world.nodes[peer].region(BYTES, 5);
        for access in [Access::Write, Access::ReadWrite] {
            let key = world.nodes[0].fabric.advertise(far, region, access).unwrap();
            remotes.push((peer, near, local, world.nodes[peer].fabric.import(near, &key).unwrap()));
        }
    }
    world.nodes[0].fabric.revoke(region, soon()).unwrap();
    assert_eq!(revoked(&mut world, 0, region), Ok(()));
    let expected = reuse(&world, 0, region);
    for (peer, near, local, remote) in remotes {
        let [write, ..] = uses(local, remote);
        let kind = world.post_and_end(peer, near, write).map_err(|error| error.kind());
        assert_eq!(kind, Err(Kind::AccessDenied), "rank {peer}");
    }
    assert_eq!(world.nodes[0].bytes(region, 0, BYTES), expected);
}

/// FE-6: no older key comes back.
pub(super) fn revoked_region_can_be_advertised_again(make: &mut Make<'_>) {
    let Stage { mut world, near, far, local, region, remote } = Stage::new(make, BYTES);
    let mut old = vec![remote];
    for round in 0..5_u8 {
        world.nodes[1].fabric.revoke(region, soon()).unwrap();
        assert_eq!(revoked(&mut world, 1, region), Ok(()));
        let fresh = world.share((1, far), region, (0, near));
        world.nodes[0].fill(local, 0, &pattern(BYTES, round));
        let write =
            Op::Write { token: 20, local: span(local, 0, BYTES as u64), target: target(fresh, 0), immediate: None };
        assert_eq!(world.post_and_end(0, near, write), Ok(Outcome::Done));
        assert_eq!(world.nodes[1].bytes(region, 0, BYTES), pattern(BYTES, round));
        old.iter().for_each(|remote| assert_out_of_reach(&mut world, near, local, *remote));
        old.push(fresh);
    }
    // and by the peer that had it, forgotten
    for remote in old {
        world.nodes[0].fabric.forget(remote).unwrap();
    }
}

pub(super) fn revoke_is_reported_once_and_one_at_a_time(make: &mut Make<'_>) {
    let Stage { mut world, far, region, .. } = Stage::new(make, BYTES);
    let fabric = &mut world.nodes[1].fabric;
    let unknown = fabric.revoke(RegionId(9999), soon());
    assert_eq!(unknown.unwrap_err().kind(), Kind::InvalidArgument);
    fabric.revoke(region, soon()).unwrap();
    assert_eq!(fabric.revoke(region, soon()).unwrap_err().kind(), Kind::InvalidUsage);
    assert_eq!(fabric.release(region).unwrap_err().kind(), Kind::InvalidUsage);
    assert_eq!(fabric.advertise(far, region, Access::Read).unwrap_err().kind(), Kind::InvalidUsage);
    assert_eq!(revoked(&mut world, 1, region), Ok(()));
    // nothing is advertised any more, which is no reason not to be told
    world.nodes[1].fabric.revoke(region, Time::default()).unwrap();
    assert_eq!(revoked(&mut world, 1, region), Ok(()));
    for _ in 0..50 {
        world.step();
    }
    assert!(!world.nodes[1].seen.iter().any(|event| matches!(event, Event::Revoked { .. })), "reported twice");
    world.nodes[1].fabric.release(region).unwrap();
    let gone = world.nodes[1].fabric.revoke(region, soon());
    assert_eq!(gone.unwrap_err().kind(), Kind::InvalidArgument);
}

/// The peer posts and never polls (FE-3). What it does after the report, in the belief that it may, harms nobody; and it is not told
/// that its writes have landed.
pub(super) fn silent_peer_is_fenced(make: &mut Make<'_>) {
    for deadline in [Time::default(), Time::now().after(Duration::from_millis(5)), soon()] {
        let Stage { mut world, near, local, region, remote, .. } = Stage::new(make, BYTES);
        world.nodes[1].fabric.revoke(region, deadline).unwrap();
        let asked = Time::now();
        assert_eq!(revoked_alone(&mut world, 1, region), Ok(()));
        assert!(Time::now().since(asked) < Duration::from_secs(5), "long before the deadline");
        assert_eq!(world.nodes[1].bytes(region, 0, BYTES), pattern(BYTES, 2), "the contents stay");
        let expected = reuse(&world, 1, region);
        let ops = uses(local, remote);
        assert_eq!(world.nodes[0].fabric.post(near, &ops), Ok(ops.len()));
        assert_eq!(world.nodes[1].bytes(region, 0, BYTES), expected);
        for token in 0..ops.len() as u64 {
            let kind = world.outcome(0, near, token).err().map(|error| error.kind());
            assert!(matches!(kind, Some(Kind::AccessDenied | Kind::OutcomeUnknown)), "{token}: {kind:?}");
        }
        assert_eq!(world.nodes[1].bytes(region, 0, BYTES), expected);
        // once it polls, everything is as after any revocation
        assert_out_of_reach(&mut world, near, local, remote);
    }
}

/// Whoever holds a view goes on to have valid memory, which is not the region.
pub(super) fn views_end_with_their_key(make: &mut Make<'_>) {
    for polls in [true, false] {
        let Stage { mut world, region, remote, .. } = Stage::new(make, BYTES);
        let Some(view) = world.nodes[0].fabric.view(remote) else { return };
        // SAFETY: a view is valid memory, and bytes of it are read and written by one thread here.
        let store = |byte: u8| unsafe { view.start.as_ptr().write_volatile(byte) };
        store(0xab);
        assert_eq!(world.nodes[1].bytes(region, 0, 1), [0xab]);
        world.nodes[1].fabric.revoke(region, soon()).unwrap();
        let result = if polls { revoked(&mut world, 1, region) } else { revoked_alone(&mut world, 1, region) };
        assert_eq!(result, Ok(()));
        let expected = reuse(&world, 1, region);
        store(0xcd);
        // SAFETY: as above.
        assert_eq!(unsafe { view.start.as_ptr().read_volatile() }, 0xcd);
        assert_eq!(world.nodes[1].bytes(region, 0, BYTES), expected);
    }
}

/// Many revocations with a peer that polls, then with one that does not.
pub(super) fn many_regions_are_revoked_at_once(make: &mut Make<'_>) {
    for polls in [true, false] {
        let Stage { mut world, near, far, local, .. } = Stage::new(make, BYTES);
        let regions: Vec<_> = (0..MANY).map(|_| world.nodes[1].region(BYTES, 0)).collect();
        let remotes: Vec<_> = regions.iter().map(|region| world.share((1, far), *region, (0, near))).collect();
        for region in &regions {
            world.nodes[1].fabric.revoke(*region, soon()).unwrap();
        }
        for region in &regions {
            let result = if polls { revoked(&mut world, 1, *region) } else { revoked_alone(&mut world, 1, *region) };
            assert_eq!(result, Ok(()), "{region:?}");
            reuse(&world, 1, *region);
        }
        for remote in remotes {
            // a backend may have given up a link on which nobody answers
            let _ = world.nodes[0].fabric.post(near, &uses(local, remote));
            world.step();
        }
        for region in regions {
            assert_eq!(world.nodes[1].bytes(region, 0, BYTES), pattern(BYTES, 0x77));
        }
    }
}

pub(super) fn end_of_a_link_ends_its_keys(make: &mut Make<'_>) {
    for ender in [0, 1] {
        let Stage { mut world, near, far, region, .. } = Stage::new(make, BYTES);
        let link = [near, far][ender];
        world.nodes[ender].fabric.close(link);
        world.nodes[1].fabric.revoke(region, soon()).unwrap();
        assert_eq!(revoked(&mut world, 1, region), Ok(()), "closed by rank {ender}");
    }
    let Stage { mut world, region, .. } = Stage::new(make, BYTES);
    world.nodes[1].fabric.revoke(region, soon()).unwrap();
    world.nodes.remove(0);
    assert_eq!(revoked(&mut world, 0, region), Ok(()), "the peer is gone");
}

/// Memory that the fabric did not allocate: a peer that polls confirms. Of one that does not, a backend may have to say that it
/// cannot know, at the deadline, and say more when it is asked again.
pub(super) fn registered_memory_is_revoked_or_the_deadline_passes(make: &mut Make<'_>) {
    let (mut world, (near, far)) = World::pair(make);
    let mut memory = vec![1_u8; BYTES];
    let start = NonNull::new(memory.as_mut_ptr()).unwrap();
    // SAFETY: `memory` lives until after the release below, and is used only through the fabric.
    let region = unsafe { world.nodes[1].fabric.register(start, BYTES) }.unwrap();
    let local = world.nodes[0].region(BYTES, 0);
    let read = |remote| Op::Read { token: 1, local: span(local, 0, BYTES as u64), target: target(remote, 0) };
    let mut remotes = Vec::new();
    for polls in [true, false] {
        let key = world.nodes[1].fabric.advertise(far, region, Access::Read).unwrap();
        let remote = world.nodes[0].fabric.import(near, &key).unwrap();
        assert_eq!(world.post_and_end(0, near, read(remote)), Ok(Outcome::Done));
        remotes.push(remote);
        let deadline = if polls { soon() } else { Time::now().after(Duration::from_millis(30)) };
        world.nodes[1].fabric.revoke(region, deadline).unwrap();
        if polls {
            assert_eq!(revoked(&mut world, 1, region), Ok(()));
            continue;
        }
        let result = revoked_alone(&mut world, 1, region).map_err(|error| error.kind());
        assert!(matches!(result, Ok(()) | Err(Kind::TimedOut)), "{result:?}");
        assert!(result.is_ok() || Time::now() >= deadline, "too early");
        world.nodes[1].fabric.revoke(region, soon()).unwrap();
        assert_eq!(revoked(&mut world, 1, region), Ok(()), "the same question, and the peer polls now");
    }
    for remote in remotes {
        let kind = world.post_and_end(0, near, read(remote)).map_err(|error| error.kind());
        assert_eq!(kind, Err(Kind::AccessDenied));
    }
    world.nodes[1].fabric.release(region).unwrap();
    drop(memory);
}

/// An owner that sleeps is woken when something is to be done about a silent peer.
pub(super) fn sleeper_does_not_miss_the_end_of_a_revocation(make: &mut Make<'_>) {
    let Stage { mut world, region, .. } = Stage::new(make, BYTES);
    world.nodes[1].fabric.revoke(region, soon()).unwrap();
    let asked = Time::now();
    loop {
        world.nodes[1].poll();
        if world.nodes[1].revoked(region).is_some() {
            break;
        }
        world.nodes[1].fabric.arm();
        world.nodes[1].fabric.sleep(asked.after(super::PATIENCE));
    }
    assert!(Time::now().since(asked) < Duration::from_secs(5), "slept past it");
}
