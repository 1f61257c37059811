//! Endpoints that somebody else wakes: a loop of the embedding program, or a thread of ours.

use core::time::Duration;
use std::os::fd::{AsRawFd, RawFd};

use vervain_transport::endpoint::{
    Access, Client, Driver, End, Endpoint, Notify, PeerEvent, PeerId, Request, Terms, Verdict,
};
use vervain_transport::{Kind, Time};

use crate::world::{FABRICS, PATIENCE, World, endpoint, pattern, soon};

/// Whether the descriptor could be read within this time.
fn readable(fd: RawFd, limit: Duration) -> bool {
    let mut poll = libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
    // SAFETY: one live pollfd.
    unsafe { libc::poll(&mut poll, 1, limit.as_millis() as i32) == 1 }
}

/// What a program with an event loop of its own does, until `ready` gives something.
fn in_a_loop<T>(end: &mut Endpoint, mut ready: impl FnMut(&mut Endpoint) -> Option<T>) -> T {
    let limit = soon();
    loop {
        end.poll(Time::now());
        if let Some(value) = ready(end) {
            return value;
        }
        let now = Time::now();
        assert!(now < limit, "nothing comes");
        if end.arm() {
            readable(end.as_raw_fd(), end.next_deadline().min(limit).since(now) + Duration::from_millis(1));
        }
    }
}

fn up(end: &mut Endpoint) -> Option<PeerId> {
    match end.next_peer_event() {
        Some(PeerEvent::Up(peer)) => Some(peer),
        _ => None,
    }
}

#[test]
fn descriptor_tells_of_newcomers_of_messages_and_of_their_end() {
    for fabric in FABRICS {
        let (mut here, mut there) = (endpoint(fabric, Default::default()), endpoint(fabric, Default::default()));
        let address = there.address().unwrap();
        std::thread::scope(|scope| {
            scope.spawn(move || {
                let peer = in_a_loop(&mut there, up);
                for round in 0..50u32 {
                    in_a_loop(&mut there, |end| end.next_message().map(|message| assert_eq!(message.tag, round)));
                    in_a_loop(&mut there, |end| {
                        end.send(peer, round, b"back", Terms::by(soon()).detached()).unwrap().started()
                    });
                }
                in_a_loop(&mut there, |end| matches!(end.next_peer_event(), Some(PeerEvent::Down(..))).then_some(()));
            });
            let peer = here.dial(&address, soon()).unwrap();
            in_a_loop(&mut here, |end| end.is_up(peer).unwrap().then_some(()));
            for round in 0..50 {
                // at first the peer may not have given any credit yet
                in_a_loop(&mut here, |end| {
                    end.send(peer, round, b"there", Terms::by(soon()).detached()).unwrap().started()
                });
                in_a_loop(&mut here, |end| end.next_message().map(|message| assert_eq!(message.tag, round)));
            }
            drop(here);
        });
    }
}

/// Credit that comes before the bell is armed rings nothing: arming looks for what waits for it.
#[test]
fn arming_hands_over_what_found_no_room_before() {
    for fabric in FABRICS {
        let mut world = World::of(fabric, 2);
        let (peer, back) = (world.peers[1].unwrap(), world.back[1].unwrap());
        let mut sent = 0;
        while world.ends[0].send(peer, 0, b"full", Terms::by(soon()).detached()).unwrap().started().is_some() {
            sent += 1;
        }
        let barrier = world.ends[0].barrier(&[peer], soon()).unwrap().started().unwrap();
        let other = world.start(1, |end| end.barrier(&[back], soon()));
        // only the other one is polled: it takes the messages and gives credit
        let mut taken = 0;
        let limit = soon();
        while taken < sent {
            world.ends[1].poll(Time::now());
            taken += usize::from(world.ends[1].next_message().is_some());
            assert!(Time::now() < limit);
        }
        (0..10).for_each(|_| world.ends[1].poll(Time::now()));
        while !world.ends[0].arm() {
            assert!(Time::now() < limit);
        }
        let met = polled(&mut world.ends[1], |end| end.end_of(other).unwrap());
        assert!(met.end.is_done(), "{fabric}: the barrier's message left with arming");
        assert!(world.end(0, barrier).end.is_done());
    }
}

#[test]
fn nothing_to_come_is_nothing_to_read() {
    for fabric in FABRICS {
        let mut end = endpoint(fabric, Default::default());
        end.poll(Time::now());
        while !end.arm() {
            end.poll(Time::now());
        }
        assert!(!readable(end.as_raw_fd(), Duration::from_millis(120)), "{fabric}");
    }
}

/// A driven endpoint with a peer that is polled here, and a region of the peer's for each client.
fn driven(
    fabric: vervain_transport::fabric::Backend,
    clients: usize,
) -> (Driver, Vec<Client>, Endpoint, PeerId, PeerId) {
    let (here, mut there) = (endpoint(fabric, Default::default()), endpoint(fabric, Default::default()));
    let address = there.address().unwrap();
    let (driver, clients) = Driver::start(here, clients, None).unwrap();
    let peer = driver.call(move |end| end.dial(&address, soon()).unwrap()).unwrap();
    let back = there.wait_until(soon(), up).unwrap();
    let is_up = || driver.call(move |end| end.is_up(peer).unwrap()).unwrap();
    polled(&mut there, |_| is_up().then_some(()));
    (driver, clients, there, peer, back)
}

/// Poll until `ready` gives something that comes from another thread, and so wakes nobody here.
fn polled<T>(there: &mut Endpoint, mut ready: impl FnMut(&mut Endpoint) -> Option<T>) -> T {
    let limit = soon();
    loop {
        there.poll(Time::now());
        if let Some(value) = ready(there) {
            return value;
        }
        assert!(Time::now() < limit, "nothing comes");
        vervain_transport::sync::thread::yield_now();
    }
}

fn answer(client: &mut Client, there: &mut Endpoint) -> vervain_transport::endpoint::Answer {
    polled(there, |_| client.next_answer())
}

#[test]
fn clients_on_several_threads_get_their_own_answers() {
    for fabric in FABRICS {
        let (driver, clients, mut there, peer, back) = driven(fabric, 2);
        let region = there.allocate(2 * 4096).unwrap();
        let (exposed, advert) = there.advertise(region, back, Access::ReadWrite).unwrap();
        let open = move |end: &mut Endpoint| end.open_region(peer, &advert).ok();
        let remote = polled(&mut there, |_| driver.call(open).unwrap());
        let local = driver
            .call(|end| {
                let mut region = end.allocate(4096).unwrap();
                region.copy_in(0, &pattern(4096, 3)).unwrap();
                region
            })
            .unwrap();
        let span = local.span(0, 64);
        std::thread::scope(|scope| {
            let threads: Vec<_> = clients
                .into_iter()
                .zip(0u64..)
                .map(|(mut client, number)| {
                    scope.spawn(move || {
                        let (mut asked, mut answered) = (0u64, 0u64);
                        while answered < 600 {
                            let to = remote.at(number * 4096 + asked % 64 * 64);
                            let request = Request::Write { local: span, remote: to, notify: Notify::No };
                            let terms = Terms::by(soon()).context(number << 32 | asked);
                            asked += u64::from(asked < 600 && client.submit(request, terms).is_ok());
                            while let Some(answer) = client.next_answer() {
                                assert_eq!(answer.context, number << 32 | answered, "in order, and ours");
                                assert_eq!(answer.verdict, Verdict::Ended(End::Done));
                                answered += 1;
                            }
                            vervain_transport::sync::thread::yield_now();
                        }
                        assert_eq!(client.open(), 0);
                    })
                })
                .collect();
            polled(&mut there, |_| threads.iter().all(|thread| thread.is_finished()).then_some(()));
        });
        let mut bytes = [0; 64];
        exposed.copy_out(4096, &mut bytes).unwrap();
        assert_eq!(bytes, pattern(4096, 3)[..64]);
        assert!(driver.stop().unwrap().is_up(peer).unwrap());
    }
}

#[test]
fn refused_and_late_requests_are_answered_too() {
    for fabric in FABRICS {
        let (driver, mut clients, mut there, peer, _back) = driven(fabric, 1);
        let client = &mut clients[0];
        client.submit(Request::Flush { peer }, Terms::by(Time::from_nanos(1)).context(1)).unwrap();
        let late = answer(client, &mut there);
        assert_eq!((late.context, late.verdict), (1, Verdict::Refused(Kind::TimedOut.into())));
        driver.call(move |end| end.disconnect(peer)).unwrap().unwrap();
        let gone = move |end: &mut Endpoint| end.is_up(peer).is_err();
        polled(&mut there, |_| driver.call(gone).unwrap().then_some(()));
        client.submit(Request::Flush { peer }, Terms::by(soon()).context(2)).unwrap();
        let refused = answer(client, &mut there);
        assert!(matches!(refused.verdict, Verdict::Refused(_)) && refused.context == 2);
    }
}

#[test]
fn driver_sleeps_wakes_for_clients_and_survives_a_call_that_panics() {
    let (driver, mut clients, mut there, peer, _back) = driven(FABRICS[0], 1);
    // long enough to fall asleep
    let _ = there.wait_until(Time::now().after(Duration::from_millis(30)), |_| None::<()>);
    let begin = Time::now();
    clients[0].submit(Request::Flush { peer }, soon()).unwrap();
    assert_eq!(answer(&mut clients[0], &mut there).verdict, Verdict::Ended(End::Done));
    assert!(Time::now().since(begin) < PATIENCE);
    let panicked = driver.call(|_| -> () { std::panic::resume_unwind(Box::new("on purpose")) });
    assert_eq!(panicked.unwrap_err().kind(), Kind::Aborted);
    assert!(driver.call(move |end| end.is_up(peer)).unwrap().unwrap());
}

#[test]
fn endpoint_that_cannot_be_driven_comes_back() {
    let endpoint = endpoint(FABRICS[0], Default::default());
    let who = endpoint.who();
    let refused = Driver::start(endpoint, 0, Some(1 << 20)).unwrap_err();
    assert_eq!(refused.value.who(), who);
}
