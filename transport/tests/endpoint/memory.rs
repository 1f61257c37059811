//! Regions, rights, and taking both back.

use core::ptr::NonNull;

use vervain_transport::Kind;
use vervain_transport::endpoint::{Access, End, Notify, Pages, Remote};
use vervain_transport::fabric::Backend;

use crate::world::{FABRICS, World, bytes_of, endpoint, pattern, soon};

#[test]
fn rights_are_checked_here_and_there() {
    for fabric in FABRICS {
        let mut world = World::of(fabric, 2);
        let local = world.region(0, &[1; 64]);
        let all = local.span(0, 64);
        let (_a, readable) = world.share(1, &[0; 64], Access::Read);
        let (_b, writable) = world.share(1, &[0; 64], Access::Write);
        let kind = |posted: vervain_transport::Result<_>| posted.unwrap_err().kind();
        let end = &mut world.ends[0];
        assert_eq!(kind(end.write(all, readable.at(0), Notify::No, soon())), Kind::AccessDenied);
        assert_eq!(kind(end.fetch_add(readable.at(0), 1, soon())), Kind::AccessDenied);
        assert_eq!(kind(end.fetch_add(writable.at(0), 1, soon())), Kind::AccessDenied);
        assert_eq!(kind(end.read(all, writable.at(0), soon())), Kind::AccessDenied);
    }
}

#[test]
fn ranges_outside_are_refused_whatever_they_overflow() {
    for fabric in FABRICS {
        let mut world = World::of(fabric, 2);
        let (_exposed, remote) = world.share(1, &[0; 4096], Access::ReadWrite);
        let local = world.region(0, &[0; 4096]);
        let (here, there) = (local.bytes() as u64, remote.bytes());
        let refused = |posted: vervain_transport::Result<_>| {
            let kind = posted.unwrap_err().kind();
            assert!(matches!(kind, Kind::AccessDenied | Kind::InvalidArgument | Kind::SizeOverflow), "{kind:?}");
        };
        for (offset, bytes) in [(0, here + 1), (here, 1), (u64::MAX, 1), (1, u64::MAX), (u64::MAX, u64::MAX)] {
            refused(world.ends[0].write(local.span(offset, bytes), remote.at(0), Notify::No, soon()));
        }
        for (offset, bytes) in [(there, 1), (there - 7, 8), (u64::MAX, 1), (u64::MAX - 7, 8)] {
            refused(world.ends[0].write(local.span(0, bytes), remote.at(offset), Notify::No, soon()));
            refused(world.ends[0].read(local.span(0, bytes), remote.at(offset), soon()));
        }
        refused(world.ends[0].fetch_add(remote.at(u64::MAX - 7), 1, soon()));
        // and the edge itself is inside
        assert!(world.run(0, |end| end.write(local.span(here, 0), remote.at(there), Notify::No, soon())).end.is_done());
        assert!(
            world.run(0, |end| end.write(local.span(0, 8), remote.at(there - 8), Notify::No, soon())).end.is_done()
        );
    }
}

#[test]
fn no_changed_byte_of_an_advertisement_opens_anything() {
    for fabric in FABRICS {
        let mut world = World::of(fabric, 2);
        let region = world.ends[1].allocate(4096).unwrap();
        let (_exposed, advert) = world.ends[1].advertise(region, world.back[1].unwrap(), Access::Write).unwrap();
        let peer = world.peers[1].unwrap();
        world.until("the advertisement", |ends| ends[0].open_region(peer, &advert).ok());
        for at in 0..advert.len() {
            let mut changed = advert.to_vec();
            changed[at] ^= 0x41;
            match world.ends[0].open_region(peer, &changed) {
                Err(error) => assert!(
                    matches!(error.kind(), Kind::Corrupt | Kind::Stale | Kind::VersionMismatch | Kind::AccessDenied),
                    "{fabric} byte {at}: {error}"
                ),
                // what only we look at: minor version, features, the size and rights as we believe them
                Ok(_) => assert!((10..16).contains(&at) || (28..40).contains(&at), "{fabric} byte {at}"),
            }
        }
        for length in 0..advert.len() {
            assert_eq!(world.ends[0].open_region(peer, &advert[..length]).unwrap_err().kind(), Kind::Corrupt);
        }
    }
}

#[test]
fn dropped_regions_are_released_and_exposed_ones_revoked_first() {
    for fabric in FABRICS {
        let mut world = World::of(fabric, 2);
        let local = world.region(0, &pattern(1 << 20, 2));
        let (exposed, remote) = world.share(1, &vec![0; 1 << 20], Access::Write);
        let all = local.all();
        let transfer = world.start(0, |end| end.write(all, remote.at(0), Notify::No, soon()));
        drop(local);
        assert!(world.end(0, transfer).end.is_done());
        assert_eq!(bytes_of(&exposed, 0, 1 << 20), pattern(1 << 20, 2));
        drop(exposed);
        for _ in 0..20 {
            world.step();
        }
        let stale = world.ends[0].write(all, remote.at(0), Notify::No, soon());
        assert_eq!(stale.unwrap_err().kind(), Kind::InvalidArgument);
    }
}

#[test]
fn regions_are_not_borrowed_while_a_transfer_uses_them() {
    let mut world = World::of(Backend::Tcp, 2);
    let (_exposed, remote) = world.share(1, &vec![0; 8 << 20], Access::Write);
    let mut local = world.region(0, &vec![1; 8 << 20]);
    let all = local.all();
    let transfer = world.start(0, |end| end.write(all, remote.at(0), Notify::No, soon()));
    assert_eq!(world.ends[0].bytes(&local).unwrap_err().kind(), Kind::InvalidUsage);
    assert_eq!(world.ends[0].bytes_mut(&mut local).unwrap_err().kind(), Kind::InvalidUsage);
    let local = world.ends[0].release(local).unwrap_err();
    assert_eq!(local.error.kind(), Kind::InvalidUsage);
    assert!(world.end(0, transfer).end.is_done());
    world.ends[0].release(local.value).unwrap();
}

#[test]
fn regions_of_another_endpoint_are_refused() {
    let mut world = World::of(Backend::Shm, 2);
    let (_exposed, remote) = world.share(1, &[0; 64], Access::Write);
    let stranger = endpoint(Backend::Shm, Default::default()).allocate(64).unwrap();
    let posted = world.ends[0].write(stranger.all(), remote.at(0), Notify::No, soon());
    assert_eq!(posted.unwrap_err().kind(), Kind::InvalidArgument);
    assert_eq!(world.ends[0].release(stranger).unwrap_err().error.kind(), Kind::InvalidArgument);
}

#[test]
fn raw_memory_is_written_from_and_read_into() {
    for fabric in FABRICS {
        let mut world = World::of(fabric, 2);
        let (exposed, remote) = world.share(1, &[0; 1000], Access::ReadWrite);
        let mut memory = pattern(1000, 6);
        let start = NonNull::new(memory.as_mut_ptr()).unwrap();
        // SAFETY: `memory` outlives the region, which is released below, and is not looked at before.
        let region = unsafe { world.ends[0].register_raw(start, 1000) }.unwrap();
        let all = region.all();
        assert!(world.run(0, |end| end.write(all, remote.at(0), Notify::No, soon())).end.is_done());
        let peer = world.peers[1].unwrap();
        world.run(0, |end| end.flush(peer, soon()));
        assert_eq!(bytes_of(&exposed, 0, 1000), pattern(1000, 6));
        exposed.copy_in(0, &pattern(1000, 7)).unwrap();
        assert!(world.run(0, |end| end.read(all, remote.at(0), soon())).end.is_done());
        world.ends[0].release(region).unwrap();
        assert_eq!(memory, pattern(1000, 7));
        // SAFETY: nothing is touched: the range is refused.
        let wraps = unsafe { world.ends[0].register_raw(NonNull::new(usize::MAX as *mut u8).unwrap(), 2) };
        assert_eq!(wraps.unwrap_err().kind(), Kind::SizeOverflow);
    }
}

#[test]
fn pages_of_every_policy_hold_data() {
    let mut end = endpoint(Backend::Shm, Default::default());
    for pages in [Pages::new(1), Pages::huge(4 << 20), Pages::new(1 << 20).prefault(), Pages::huge(1).on_node(0)] {
        let mut region = match end.register(pages) {
            Ok(region) => region,
            // a kernel without NUMA has no policy to set
            Err(error) if error.os() == Some(libc::ENOSYS) => continue,
            Err(error) => panic!("{pages:?}: {error}"),
        };
        region.copy_in(0, &[9]).unwrap();
        assert_eq!(end.bytes(&region).unwrap()[0], 9);
    }
    assert_eq!(end.register(Pages::new(64).on_node(900)).unwrap_err().kind(), Kind::InvalidArgument);
}
#[test]
fn revoked_region_comes_back_and_its_key_is_void() {
    for fabric in FABRICS {
        let mut world = World::of(fabric, 2);
        let (exposed, remote) = world.share(1, &pattern(8192, 1), Access::ReadWrite);
        let local = world.region(0, &[7; 64]);
        let all = local.span(0, 64);
        assert!(world.run(0, |end| end.write(all, remote.at(0), Notify::No, soon())).end.is_done());
        world.ends[1].start_revoke(&exposed, soon()).unwrap();
        world.until("the revocation", |ends| ends[1].revoked(&exposed).then_some(()));
        let mut region = world.ends[1].reclaim(exposed).unwrap();
        let mine = world.ends[1].bytes_mut(&mut region).unwrap();
        assert_eq!(mine[..64], [7; 64]);
        assert_eq!(mine[64..8192], pattern(8192, 1)[64..]);
        mine.fill(0x55);
        let late = world.ends[0].write(all, remote.at(0), Notify::No, soon());
        let end = match late {
            Err(error) => Err(error),
            Ok(posted) => {
                let transfer = posted.started().unwrap();
                let end = world.end(0, transfer).end;
                assert!(matches!(end, End::Failed { remote: Remote::Fenced, .. }), "{fabric}: {end:?}");
                end.ok()
            }
        };
        assert_eq!(end.unwrap_err().kind(), Kind::AccessDenied, "{fabric}");
        assert!(world.ends[1].bytes(&region).unwrap().iter().all(|&byte| byte == 0x55));
        // and it can be opened again
        let (exposed, remote) = world.open(1, region, Access::Write);
        assert!(world.run(0, |end| end.write(all, remote.at(100), Notify::No, soon())).end.is_done());
        let peer = world.peers[1].unwrap();
        world.run(0, |end| end.flush(peer, soon()));
        assert_eq!(bytes_of(&exposed, 100, 64), [7; 64]);
    }
}
