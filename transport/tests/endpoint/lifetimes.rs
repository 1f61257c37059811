//! Ends that are not good ones: deadlines, cancellations, peers that leave, restart or never poll.

use core::time::Duration;

use vervain_transport::auth::Secret;
use vervain_transport::endpoint::{Access, End, Endpoint, Notify, PeerEvent, Remote, Terms};
use vervain_transport::fabric::Backend;
use vervain_transport::{Kind, Time};

use crate::world::{FABRICS, PATIENCE, World, endpoint, loopback, pattern, soon};

#[test]
fn deadlines_in_the_past_start_nothing() {
    for fabric in FABRICS {
        let mut world = World::of(fabric, 2);
        let (_exposed, remote) = world.share(1, &[0; 64], Access::Write);
        let local = world.region(0, &[1; 64]);
        let peer = world.peers[1].unwrap();
        let past = Time::from_nanos(1);
        let end = &mut world.ends[0];
        assert_eq!(end.write(local.all(), remote.at(0), Notify::No, past).unwrap_err().kind(), Kind::TimedOut);
        assert_eq!(end.send(peer, 0, b"x", past).unwrap_err().kind(), Kind::TimedOut);
        assert_eq!(end.barrier(&[peer], past).unwrap_err().kind(), Kind::TimedOut);
        assert_eq!(end.scatter(&[], past).unwrap_err().kind(), Kind::TimedOut);
        assert_eq!(end.open(), 0);
    }
}

#[test]
fn transfer_to_a_peer_that_never_polls_ends_at_its_deadline_and_once() {
    // over shared memory writes need nobody's help; tcp needs the peer to read
    let mut world = World::of(Backend::Tcp, 2);
    let (_exposed, remote) = world.share(1, &vec![0; 64 << 20], Access::Write);
    let local = world.region(0, &vec![1; 64 << 20]);
    let begin = Time::now();
    let deadline = begin.after(Duration::from_millis(100));
    let posted = world.ends[0].write(local.all(), remote.at(0), Notify::No, deadline).unwrap();
    let transfer = posted.started().unwrap();
    let done = loop {
        world.ends[0].poll(Time::now());
        if let Some(done) = world.ends[0].end_of(transfer).unwrap() {
            break done;
        }
        assert!(Time::now().since(begin) < PATIENCE);
    };
    assert_eq!(done.end, End::TimedOut { remote: Remote::Unknown });
    assert_eq!(world.ends[0].end_of(transfer).unwrap_err().kind(), Kind::InvalidArgument);
    assert_eq!(world.ends[0].open(), 0);
    // the memory is ours again
    world.ends[0].release(local).unwrap();
}

#[test]
fn cancelled_transfers_end_once_whatever_had_happened() {
    for fabric in FABRICS {
        for polls in 0..6 {
            let mut world = World::of(fabric, 2);
            let (_exposed, remote) = world.share(1, &vec![0; 9 << 20], Access::ReadWrite);
            let local = world.region(0, &pattern(9 << 20, 1));
            let all = local.all();
            let transfer = if polls % 2 == 0 {
                world.start(0, |end| end.write(all, remote.at(0), Notify::No, soon()))
            } else {
                world.start(0, |end| end.read(all, remote.at(0), soon()))
            };
            for _ in 0..polls {
                world.step();
            }
            world.ends[0].cancel(transfer).unwrap();
            world.ends[0].cancel(transfer).unwrap();
            let end = world.end(0, transfer).end;
            assert!(matches!(end, End::Done | End::Cancelled { .. }), "{fabric} after {polls}: {end:?}");
            assert_eq!(world.ends[0].cancel(transfer).unwrap_err().kind(), Kind::InvalidArgument);
            for _ in 0..20 {
                world.step();
            }
            assert_eq!(world.ends[0].next_completion(), None);
        }
    }
}

#[test]
fn barrier_that_nobody_joins_ends_at_its_deadline_and_can_be_cancelled() {
    for fabric in FABRICS {
        let mut world = World::of(fabric, 2);
        let peer = world.peers[1].unwrap();
        let end = Time::now().after(Duration::from_millis(30));
        let late = world.run(0, |endpoint| endpoint.barrier(&[peer], end));
        assert!(matches!(late.end, End::TimedOut { .. }), "{late:?}");
        let transfer = world.start(0, |endpoint| endpoint.barrier(&[peer], soon()));
        world.step();
        world.ends[0].cancel(transfer).unwrap();
        assert!(matches!(world.end(0, transfer).end, End::Cancelled { .. }));
        assert_eq!(world.ends[0].open(), 0);
    }
}

#[test]
fn everything_with_a_peer_that_is_gone_ends_and_nothing_new_starts() {
    for fabric in FABRICS {
        let mut world = World::of(fabric, 2);
        let (exposed, remote) = world.share(1, &[0; 64], Access::Write);
        let local = world.region(0, &[1; 64]);
        let peer = world.peers[1].unwrap();
        let waiting = world.start(0, |end| end.barrier(&[peer], soon()));
        drop(world.ends.pop());
        let end = world.end(0, waiting).end;
        assert!(matches!(end, End::Failed { .. }), "{fabric}: {end:?}");
        let down = world.until("the news", |ends| match ends[0].next_peer_event() {
            Some(PeerEvent::Down(down, error)) => Some((down, error)),
            _ => None,
        });
        assert_eq!(down.0, peer);
        assert!(matches!(down.1.kind(), Kind::PeerDied | Kind::PeerLeft | Kind::LinkFailed), "{fabric}: {}", down.1);
        let refused = world.ends[0].write(local.all(), remote.at(0), Notify::No, soon());
        assert_eq!(refused.unwrap_err(), down.1, "why, though its region is forgotten too");
        assert_eq!(world.ends[0].send(peer, 0, b"x", soon()).unwrap_err(), down.1);
        assert_eq!(world.ends[0].open(), 0);
        drop(exposed);
    }
}

#[test]
fn restarted_endpoint_is_another_peer_and_old_bytes_are_stale() {
    for fabric in FABRICS {
        let mut world = World::of(fabric, 2);
        let old_address = world.ends[1].address().unwrap();
        let region = world.ends[1].allocate(64).unwrap();
        let back = world.back[1].unwrap();
        let (_exposed, old_advert) = world.ends[1].advertise(region, back, Access::Write).unwrap();
        drop(world.ends.pop());
        world.ends.push(endpoint(fabric, Default::default()));
        let address = world.ends[1].address().unwrap();
        let peer = world.ends[0].dial(&address, soon()).unwrap();
        world.until("the new one", |ends| ends[0].is_up(peer).unwrap().then_some(()));
        assert_ne!(Some(peer), world.peers[1]);
        assert_eq!(world.ends[0].open_region(peer, &old_advert).unwrap_err().kind(), Kind::Stale);
        let stale = world.ends[0].dial(&old_address, Time::now().after(Duration::from_millis(200)));
        if let Ok(stale) = stale {
            world.until("a refusal", |ends| ends[0].is_up(stale).err());
        }
    }
}

#[test]
fn endpoints_without_the_secret_do_not_meet() {
    for fabric in FABRICS {
        let mut world = World::of(fabric, 1);
        let other =
            Endpoint::builder().secret(Secret::from_bytes([6; 32])).only(fabric).tcp(loopback()).build().unwrap();
        let address = other.address().unwrap();
        world.ends.push(other);
        let peer = world.ends[0].dial(&address, Time::now().after(Duration::from_secs(2))).unwrap();
        let error = world.until("a refusal", |ends| ends[0].is_up(peer).err());
        assert!(matches!(error.kind(), Kind::Unauthenticated | Kind::LinkFailed | Kind::TimedOut), "{error}");
        assert_eq!(world.ends[1].peers().count(), 0);
    }
}

#[test]
fn fabric_is_chosen_by_what_both_have_and_the_choice_is_explained() {
    let secret = || Endpoint::builder().secret(Secret::from_bytes([5; 32])).tcp(loopback());
    let (both, tcp) = (secret().build().unwrap(), secret().without(Backend::Shm).build().unwrap());
    let mut world = World { ends: vec![both, tcp, secret().build().unwrap()], peers: vec![], back: vec![] };
    for (other, expected) in [(1, Backend::Tcp), (2, Backend::Shm)] {
        let address = world.ends[other].address().unwrap();
        let peer = world.ends[0].dial(&address, soon()).unwrap();
        world.until("a connection", |ends| ends[0].is_up(peer).unwrap().then_some(()));
        let explained = world.ends[0].explain(peer).unwrap();
        assert_eq!(explained.backend, expected, "{explained}");
        assert_eq!(explained.refused.len(), 1, "{explained}");
    }
    let explained = world.ends[1].explain(world.ends[1].peers().next().unwrap()).unwrap();
    assert!(explained.to_string().contains("refused by policy"), "{explained}");
    let mut shm = secret().only(Backend::Shm).build().unwrap();
    let refused = shm.dial(&world.ends[1].address().unwrap(), soon());
    assert_eq!(refused.unwrap_err().kind(), Kind::Unsupported);
    let none = Endpoint::builder().insecure().without(Backend::Shm).without(Backend::Tcp).build();
    assert_eq!(none.unwrap_err().kind(), Kind::InvalidArgument);
}

/// A fabric that nobody uses yet is looked at by time, not by the number of polls.
#[test]
fn newcomers_over_an_idle_fabric_are_noticed_however_rarely_we_poll() {
    let secret = || Endpoint::builder().secret(Secret::from_bytes([5; 32])).tcp(loopback());
    let (mut host, mut guest) = (secret().build().unwrap(), secret().without(Backend::Shm).build().unwrap());
    let peer = guest.dial(&host.address().unwrap(), soon()).unwrap();
    let (mut now, mut polls) = (Time::now(), 0);
    while !guest.is_up(peer).unwrap() {
        for _ in 0..10_000 {
            guest.poll(Time::now());
        }
        // as a program does that has a tick of 10 ms
        now = now.after(Duration::from_millis(10));
        host.poll(now);
        polls += 1;
        assert!(polls < 60, "every poll looks");
    }
}

#[test]
fn bytes_that_are_no_address_are_refused() {
    let mut end = endpoint(Backend::Shm, Default::default());
    let address = end.address().unwrap();
    for length in 0..address.len() {
        assert_eq!(end.dial(&address[..length], soon()).unwrap_err().kind(), Kind::Corrupt);
    }
    let mut newer = address.clone();
    newer[8] = 9;
    assert_eq!(end.dial(&newer, soon()).unwrap_err().kind(), Kind::VersionMismatch);
}

#[test]
fn blocking_calls_work_between_threads() {
    for fabric in FABRICS {
        let (mut here, mut there) = (endpoint(fabric, Default::default()), endpoint(fabric, Default::default()));
        let address = there.address().unwrap();
        std::thread::scope(|scope| {
            scope.spawn(move || {
                let message =
                    |end: &mut Endpoint| end.next_message().map(|message| (message.peer, message.bytes.to_vec()));
                let (peer, bytes) = there.wait_until(soon(), message).unwrap();
                assert_eq!(bytes, b"ping");
                let sent =
                    there.wait_until(soon(), |end| end.send(peer, 0, b"pong", soon()).unwrap().started()).unwrap();
                assert!(there.wait(sent).unwrap().end.is_done());
                // stay until the other has it
                let left = there.wait_until(soon(), |end| match end.next_peer_event() {
                    Some(PeerEvent::Down(..)) => Some(()),
                    _ => None,
                });
                left.unwrap();
            });
            let peer = here.connect(&address, soon()).unwrap();
            // long enough for the other side to fall asleep
            let _ = here.wait_until(Time::now().after(Duration::from_millis(20)), |_| None::<()>);
            let send = |end: &mut Endpoint| end.send(peer, 0, b"ping", Terms::by(soon()).detached()).unwrap().started();
            here.wait_until(soon(), send).unwrap();
            let bytes =
                here.wait_until(soon(), |end| end.next_message().map(|message| message.bytes.to_vec())).unwrap();
            assert_eq!(bytes, b"pong");
            drop(here);
        });
    }
}
