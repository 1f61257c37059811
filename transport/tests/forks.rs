//! A child that is forked without exec holds copies of all descriptors: what it does with them ends nothing of its parent's.
#![cfg(all(feature = "std", target_os = "linux"))]

mod common;

use vervain_transport::{
    Rank,
    auth::Secret,
    fabric::{
        Access, Event, Fabric, Identity, Op, Outcome, Span, Target,
        shm::{self, Shm},
        tcp::{self, Tcp},
    },
};

use common::{connect, wait};

fn identity(rank: u32) -> Identity {
    Identity { rank: Rank::new(rank), incarnation: 1, secret: Secret::from_bytes([6; 32]) }
}

fn link_outlives_a_child_that_drops_it(mut fabrics: [Box<dyn Fabric>; 2]) {
    let [one, other] = &mut fabrics;
    let (near, far) = connect(&mut **one, &mut **other);
    let region = other.allocate(8).unwrap();
    let key = other.advertise(far, region, Access::Write).unwrap();
    // SAFETY: the child only drops what it has, which the C library allows after a fork, and exits.
    let child = unsafe { libc::fork() };
    if child == 0 {
        drop(fabrics);
        // SAFETY: a system call without memory.
        unsafe { libc::_exit(0) };
    }
    let mut status = 0;
    // SAFETY: the child is ours and was not waited for; `status` is live.
    assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
    assert_eq!(status, 0, "the child ends in good order");
    let remote = one.import(near, &key).unwrap();
    let local = Span { region: one.allocate(8).unwrap(), offset: 0, bytes: 8 };
    let write = Op::Write { token: 1, local, target: Target { remote, offset: 0 }, immediate: None };
    assert_eq!(one.post(near, &[write]), Ok(1));
    let ended = wait(&mut fabrics, |_, event| match *event {
        Event::Done { result, .. } => Some(result),
        Event::Down { error, .. } => Some(Err(error)),
        _ => None,
    });
    assert_eq!(ended, Ok(Outcome::Done));
}

#[test]
fn shm_link_outlives_a_child_that_drops_it() {
    link_outlives_a_child_that_drops_it(
        [0, 1].map(|rank| Box::new(Shm::new(identity(rank), shm::Options::default()).unwrap()) as Box<dyn Fabric>),
    );
}

#[test]
fn tcp_link_outlives_a_child_that_drops_it() {
    link_outlives_a_child_that_drops_it([0, 1].map(|rank| {
        let address = Some(std::net::Ipv4Addr::LOCALHOST.into());
        Box::new(Tcp::new(identity(rank), tcp::Options { address, ..tcp::Options::default() }).unwrap())
            as Box<dyn Fabric>
    }));
}
