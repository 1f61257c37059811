//! Ends of links, whoever else holds their sockets: a child that was forked without exec has copies of all of them.

use std::os::fd::OwnedFd;

use super::{Options, Shm, pair};
use crate::{
    Kind, Time,
    fabric::{Access, Event, Fabric, LinkId},
};

/// What a forked child would hold of a link.
fn copy_of_socket(fabric: &Shm, link: LinkId) -> OwnedFd {
    fabric.links.find(link.0).unwrap().socket.try_clone().unwrap()
}

/// Why the link went down, after as many polls as look at the sockets once.
fn end_of(fabric: &mut Shm, link: LinkId) -> Option<Kind> {
    let mut events = Vec::with_capacity(64);
    (0..=super::super::POLLS).for_each(|_| fabric.poll(Time::from_nanos(1), &mut events));
    events.iter().find_map(|event| match *event {
        Event::Down { link: down, error } if down == link => Some(error.kind()),
        _ => None,
    })
}

#[test]
fn link_ends_on_purpose_though_its_socket_is_held_open() {
    for advertised in [false, true] {
        let ([mut one, mut other], [near, far]) = pair(&Options::default());
        if advertised {
            let region = one.allocate(1).unwrap();
            one.advertise(near, region, Access::ReadWrite).unwrap();
        }
        let _held = copy_of_socket(&one, near);
        one.close(near);
        assert_eq!(end_of(&mut other, far), Some(Kind::PeerLeft), "advertised: {advertised}");
    }
}

#[test]
fn dropped_fabric_ends_its_links_though_their_sockets_are_held_open() {
    let ([one, mut other], [near, far]) = pair(&Options::default());
    let _held = copy_of_socket(&one, near);
    drop(one);
    assert_eq!(end_of(&mut other, far), Some(Kind::PeerLeft));
}

#[test]
fn peer_that_left_before_it_read_what_we_sent_is_not_taken_for_dead() {
    let ([one, mut other], [_, far]) = pair(&Options::default());
    let region = other.allocate(1).unwrap();
    other.advertise(far, region, Access::Read).unwrap();
    drop(one);
    assert_eq!(end_of(&mut other, far), Some(Kind::PeerLeft));
}
