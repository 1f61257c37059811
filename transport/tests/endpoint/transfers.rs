//! Every operation, on every fabric.

use vervain_transport::endpoint::{Access, End, Limits, MESSAGE, Notify, PageList, Posted, Terms, Write};
use vervain_transport::{Kind, Time};

use crate::world::{FABRICS, World, bytes_of, pattern, soon};

/// At the edges of words, lines, pages, messages and fragments.
const SIZES: [usize; 14] = [0, 1, 7, 8, 9, 63, 64, 65, 127, 128, 4095, 4096, 65_537, (4 << 20) + 5];

#[test]
fn writes_of_every_size_arrive_and_change_nothing_else() {
    for fabric in FABRICS {
        let mut world = World::of(fabric, 2);
        let room = SIZES[SIZES.len() - 1] + 64;
        let (exposed, remote) = world.share(1, &vec![0xee; room], Access::Write);
        for size in SIZES {
            let data = pattern(size, size as u8);
            let local = world.region(0, &data);
            let span = local.span(0, size as u64);
            let done = world.run(0, |end| end.write(span, remote.at(13), Notify::No, Terms::by(soon()).context(7)));
            assert_eq!((done.end, done.context), (End::Done, 7));
            let flushed = world.peers[1].unwrap();
            world.run(0, |end| end.flush(flushed, soon()));
            assert_eq!(bytes_of(&exposed, 13, size), data, "{fabric} {size}");
            assert_eq!(bytes_of(&exposed, 13 + size, 32), vec![0xee; 32], "{fabric} {size}");
            exposed.copy_in(0, &vec![0xee; size + 13]).unwrap();
        }
    }
}

#[test]
fn reads_bring_what_the_peer_has() {
    for fabric in FABRICS {
        let mut world = World::of(fabric, 2);
        for size in SIZES {
            let data = pattern(size, 3);
            let (_exposed, remote) = world.share(1, &data, Access::Read);
            let local = world.region(0, &vec![0; size + 1]);
            let span = local.span(1, size as u64);
            assert!(world.run(0, |end| end.read(span, remote.at(0), soon())).end.is_done());
            assert_eq!(&world.ends[0].bytes(&local).unwrap()[1..=size], &data[..], "{fabric} {size}");
        }
    }
}

#[test]
fn immediates_are_counted_and_everything_written_before_is_there() {
    for fabric in FABRICS {
        let mut world = World::of(fabric, 2);
        let (exposed, remote) = world.share(1, &[0; 4096], Access::Write);
        let local = world.region(0, &pattern(4096, 9));
        let all = local.span(0, 4096);
        let early = world.ends[1].expect(42, 1);
        world.run(0, |end| end.write(all, remote.at(0), Notify::Immediate(42), soon()));
        world.until("the first", |_| early.is_complete().then_some(()));
        assert_eq!(bytes_of(&exposed, 0, 4096), pattern(4096, 9));
        // more than a peer has receives for: what finds no room is started later
        let burst = world.ends[1].expect(42, 500);
        let other = world.ends[1].expect(43, 1);
        for _ in 0..500 {
            world.start(0, |end| {
                end.write_inline(&[1, 2], remote.at(8), Notify::Immediate(42), Terms::by(soon()).detached())
            });
        }
        world.until("the burst", |_| burst.is_complete().then_some(()));
        assert_eq!((burst.missing(), other.missing(), burst.counter().get()), (0, 1, 501));
    }
}

#[test]
fn messages_keep_their_order_and_their_bytes() {
    for fabric in FABRICS {
        let mut world = World::of(fabric, 2);
        let (peer, back) = (world.peers[1].unwrap(), world.back[1].unwrap());
        let sizes = [0, 1, 7, 8, 31, 32, 33, 56, 57, 64, 1000, MESSAGE - 1, MESSAGE];
        for round in 0..20u32 {
            for (tag, size) in (0..).zip(sizes) {
                let data = pattern(size, round as u8);
                let mut sent = false;
                let expected = data.clone();
                world.until("the message", |ends| {
                    if !sent {
                        sent = ends[0].send(peer, tag, &data, Terms::by(soon()).detached()).unwrap() != Posted::Busy;
                    }
                    let message = ends[1].next_message()?;
                    assert_eq!((message.peer, message.tag, message.bytes), (back, tag, &expected[..]));
                    Some(())
                });
            }
        }
        let refused = world.ends[0].send(peer, 0, &vec![0; MESSAGE + 1], soon());
        assert_eq!(refused.unwrap_err().kind(), Kind::InvalidArgument);
    }
}

#[test]
fn peer_that_takes_no_message_is_back_pressure_and_then_a_deadline() {
    for fabric in FABRICS {
        let mut world = World::of(fabric, 2);
        let peer = world.peers[1].unwrap();
        // endpoint 1 is polled, but nobody looks at its messages
        let mut accepted = 0;
        let end = Time::now().after(core::time::Duration::from_millis(200));
        while Time::now() < end {
            world.step();
            accepted +=
                u32::from(world.ends[0].send(peer, 1, b"x", Terms::by(soon()).detached()).unwrap() != Posted::Busy);
        }
        assert!((1..200).contains(&accepted), "{fabric}: {accepted}");
        let mut taken = 0;
        world.until("all that were sent", |ends| {
            taken += u32::from(ends[1].next_message().is_some());
            (taken == accepted).then_some(())
        });
        // and there is room again
        world.start(0, |end| end.send(peer, 1, b"y", Terms::by(soon()).detached()));
        world.until("one more", |ends| ends[1].next_message().map(|message| assert_eq!(message.bytes, b"y")));
    }
}

#[test]
fn atomics_bring_the_value_before() {
    for fabric in FABRICS {
        let mut world = World::of(fabric, 2);
        let (exposed, remote) = world.share(1, &100u64.to_le_bytes().repeat(2), Access::ReadWrite);
        let add = |by| move |end: &mut vervain_transport::endpoint::Endpoint| end.fetch_add(remote.at(8), by, soon());
        assert_eq!(world.run(0, add(5)).before, 100);
        assert_eq!(world.run(0, add(u64::MAX)).before, 105);
        let swap = |from, to| {
            move |end: &mut vervain_transport::endpoint::Endpoint| end.compare_swap(remote.at(8), from, to, soon())
        };
        assert_eq!(world.run(0, swap(1, 2)).before, 104);
        assert_eq!(world.run(0, swap(104, 2)).before, 104);
        assert_eq!(bytes_of(&exposed, 8, 8), 2u64.to_le_bytes());
        let unaligned = world.ends[0].fetch_add(remote.at(4), 1, soon());
        assert_eq!(unaligned.unwrap_err().kind(), Kind::InvalidArgument);
    }
}

#[test]
fn pages_go_where_the_lists_say_and_the_target_is_told_once() {
    for fabric in FABRICS {
        for (page, count) in [(1u64, 1usize), (64, 15), (64, 16), (64, 17), (4096, 200), (128, 3000)] {
            let mut world = World::of(fabric, 2);
            let stride = page + 32;
            let (exposed, remote) = world.share(1, &vec![0; stride as usize * count + 8], Access::Write);
            let data = pattern(stride as usize * count, 1);
            let local = world.region(0, &data);
            // reversed on one side, in order on the other
            let from: Vec<u32> = (0..count as u32).rev().collect();
            let (from, to) = (PageList::listed(&from, stride), PageList::range(0, count as u32, stride).after(8));
            let told = world.ends[1].expect(1, 1);
            let all = local.all();
            let transfer = world
                .start(0, |end| end.write_paged(page, all.pages(from), remote.pages(to), Notify::Immediate(1), soon()));
            world.until("the notification", |_| told.is_complete().then_some(()));
            for index in 0..count {
                let source = (count - 1 - index) * stride as usize;
                let there = bytes_of(&exposed, 8 + index * stride as usize, stride as usize - 32);
                assert_eq!(there, data[source..source + page as usize], "{fabric} {page} x {count}: page {index}");
            }
            assert!(world.end(0, transfer).end.is_done());
            assert_eq!(told.counter().get(), 1);
        }
    }
}

#[test]
fn page_lists_that_do_not_fit_are_refused() {
    let limits = Limits { pages: 100, ..Limits::default() };
    let mut world = World::with(FABRICS[0], 2, limits);
    let (_exposed, remote) = world.share(1, &[0; 4096], Access::Write);
    let local = world.region(0, &[0; 4096]);
    let all = local.span(0, 4096);
    let mut kind = |page, from: PageList<'_>, to: PageList<'_>| {
        let posted = world.ends[0].write_paged(page, all.pages(from), remote.pages(to), Notify::No, soon());
        posted.map_err(|error| error.kind())
    };
    let (good, long) = ([0, 1], [0; 200]);
    assert_eq!(kind(8, PageList::listed(&good, 8), PageList::range(0, 3, 8)), Err(Kind::InvalidArgument));
    assert_eq!(kind(8, PageList::listed(&long, 8), PageList::range(0, 200, 8)), Err(Kind::InvalidArgument));
    for far in [512, u32::MAX] {
        let far = [0, far];
        assert_eq!(kind(8, PageList::listed(&far, 8), PageList::listed(&good, 8)), Err(Kind::AccessDenied));
        assert_eq!(kind(8, PageList::listed(&good, 8), PageList::listed(&far, 8)), Err(Kind::AccessDenied));
        assert_eq!(kind(8, PageList::listed(&far, u64::MAX), PageList::listed(&good, 8)), Err(Kind::AccessDenied));
    }
    assert!(matches!(kind(8, PageList::listed(&[], 8), PageList::range(9, 0, 8)), Ok(Posted::Started(_))));
}

#[test]
fn many_writes_end_one_by_one_in_order() {
    for fabric in FABRICS {
        let mut world = World::of(fabric, 2);
        let peer = world.peers[1].unwrap();
        let (exposed, remote) = world.share(1, &[0; 64 * 100], Access::Write);
        let data = pattern(64 * 100, 4);
        let local = world.region(0, &data);
        let writes: Vec<Write> = (0..100)
            .map(|index| Write {
                local: local.span(index * 64, 64),
                remote: remote.at(index * 64),
                notify: Notify::No,
                context: index,
            })
            .collect();
        let (mut started, mut next) = (0, 0);
        world.until("all ends", |ends| {
            started += ends[0].write_many(peer, &writes[started..], soon()).unwrap();
            while let Some(done) = ends[0].next_completion() {
                assert_eq!((done.context, done.end), (next, End::Done));
                next += 1;
            }
            (next == 100).then_some(())
        });
        assert_eq!(bytes_of(&exposed, 0, 6400), data);
        assert_eq!(world.ends[0].open(), 0);
    }
}

#[test]
fn writes_before_a_refused_one_are_counted_and_it_is_named_by_the_next_call() {
    for fabric in FABRICS {
        let mut world = World::of(fabric, 2);
        let peer = world.peers[1].unwrap();
        let (_exposed, remote) = world.share(1, &[0; 64], Access::Write);
        let local = world.region(0, &[1; 64]);
        let good = Write { local: local.span(0, 1), remote: remote.at(0), notify: Notify::No, context: 0 };
        let mut writes = [good; 20];
        writes[18].remote = remote.at(u64::MAX);
        let started = world.ends[0].write_many(peer, &writes, soon()).unwrap();
        assert_eq!(started, 16, "the batch before");
        assert!(world.ends[0].write_many(peer, &writes[started..], soon()).is_err());
        world.until("the ends of those", |ends| (ends[0].open() == 0).then_some(()));
        let ended = core::iter::from_fn(|| world.ends[0].next_completion()).count();
        assert_eq!(ended, started);
    }
}

#[test]
fn scatter_reaches_all_and_ends_once() {
    for fabric in FABRICS {
        let mut world = World::of(fabric, 4);
        let shared: Vec<_> = (1..4).map(|owner| world.share(owner, &[0; 100], Access::Write)).collect();
        let local = world.region(0, &pattern(300, 8));
        let told: Vec<_> = (1..4).map(|owner| world.ends[owner].expect(6, 1)).collect();
        let writes: Vec<Write> = shared
            .iter()
            .zip(0..)
            .map(|((_, remote), index)| Write {
                local: local.span(index * 100, 100),
                remote: remote.at(0),
                notify: Notify::Immediate(6),
                context: 0,
            })
            .collect();
        let done = world.run(0, |end| end.scatter(&writes, Terms::by(soon()).context(3)));
        assert_eq!((done.end, done.context), (End::Done, 3));
        world.until("all to be told", |_| told.iter().all(|told| told.is_complete()).then_some(()));
        for (index, (exposed, _)) in shared.iter().enumerate() {
            assert_eq!(bytes_of(exposed, 0, 100), pattern(300, 8)[index * 100..][..100]);
        }
        assert_eq!(world.ends[0].next_completion(), None);
        assert_eq!(world.ends[0].open(), 0);
    }
}

#[test]
fn barrier_ends_when_all_have_come() {
    for fabric in FABRICS {
        let mut world = World::of(fabric, 3);
        let (one, two) = (world.peers[1].unwrap(), world.peers[2].unwrap());
        let back: Vec<_> = (1..3).map(|other| world.back[other].unwrap()).collect();
        for _ in 0..5 {
            let centre = world.start(0, |end| end.barrier(&[one, two], soon()));
            let left = world.start(1, |end| end.barrier(&back[..1], soon()));
            for _ in 0..50 {
                world.step();
                assert_eq!(world.ends[0].end_of(centre).unwrap(), None);
            }
            let right = world.start(2, |end| end.barrier(&back[1..], soon()));
            for (at, transfer) in [(0, centre), (1, left), (2, right)] {
                assert!(world.end(at, transfer).end.is_done());
            }
        }
        let twice = world.ends[0].barrier(&[one, one], soon());
        assert_eq!(twice.unwrap_err().kind(), Kind::InvalidArgument);
        let alone = world.run(0, |end| end.barrier(&[], soon()));
        assert!(alone.end.is_done());
    }
}
