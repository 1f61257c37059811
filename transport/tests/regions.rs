//! A hundred thousand regions: all are known, advertised and imported, and each key still means its own region.
#![cfg(all(feature = "std", target_os = "linux"))]

mod common;

use core::ptr::NonNull;

use vervain_transport::{
    Kind, Rank, Result, Time,
    auth::Secret,
    fabric::{
        Access, Event, Fabric, Identity, LinkId, Op, Outcome, RemoteId, Span, Target,
        shm::{self, Shm},
        tcp::{self, Tcp},
    },
};

use common::{PATIENCE, connect, wait};

const REGIONS: usize = 100_000;

fn identity(rank: u32) -> Identity {
    Identity { rank: Rank::new(rank), incarnation: 1, secret: Secret::from_bytes([5; 32]) }
}

fn read(fabrics: &mut [Box<dyn Fabric>; 2], link: LinkId, local: Span, remote: RemoteId) -> Result<Outcome> {
    let target = Target { remote, offset: 0 };
    assert_eq!(fabrics[1].post(link, &[Op::Read { token: 1, local, target }]), Ok(1));
    wait(fabrics, |_, event| if let Event::Done { result, .. } = event { Some(*result) } else { None })
}

fn know_many(mut fabrics: [Box<dyn Fabric>; 2]) {
    let [one, other] = &mut fabrics;
    let (near, far) = connect(&mut **one, &mut **other);
    let mut memory: Vec<u64> = (0..REGIONS as u64).collect();
    let mut regions = Vec::with_capacity(REGIONS);
    let mut remotes = Vec::with_capacity(REGIONS);
    for word in &mut memory {
        // SAFETY: `memory` outlives the fabrics and is used through them only.
        let region = unsafe { fabrics[0].register(NonNull::from(word).cast(), 8) }.unwrap();
        let key = fabrics[0].advertise(near, region, Access::Read).unwrap();
        assert_eq!(fabrics[0].advertise(near, region, Access::Read), Ok(key));
        regions.push(region);
        remotes.push(fabrics[1].import(far, &key).unwrap());
    }
    let sink = fabrics[1].allocate(8).unwrap();
    let local = Span { region: sink, offset: 0, bytes: 8 };
    let found = fabrics[1].memory(sink).unwrap().start.cast::<u64>();
    for index in [0, 1, REGIONS / 2, REGIONS - 1] {
        assert_eq!(read(&mut fabrics, far, local, remotes[index]), Ok(Outcome::Done));
        // SAFETY: the region is this test's, and the read into it has ended.
        assert_eq!(unsafe { found.read() }, index as u64);
    }
    // one of them ends, and none of the others does
    fabrics[0].revoke(regions[7], Time::now().after(PATIENCE)).unwrap();
    let ended =
        wait(&mut fabrics, |_, event| if let Event::Revoked { result, .. } = event { Some(*result) } else { None });
    assert_eq!(ended, Ok(()));
    assert_eq!(read(&mut fabrics, far, local, remotes[7]).unwrap_err().kind(), Kind::AccessDenied);
    assert_eq!(read(&mut fabrics, far, local, remotes[8]), Ok(Outcome::Done));
    regions.into_iter().for_each(|region| fabrics[0].release(region).unwrap());
    drop(fabrics);
    drop(memory);
}

#[test]
fn shm_knows_a_hundred_thousand_regions() {
    know_many(
        [0, 1].map(|rank| Box::new(Shm::new(identity(rank), shm::Options::default()).unwrap()) as Box<dyn Fabric>),
    );
}

#[test]
fn tcp_knows_a_hundred_thousand_regions() {
    know_many([0, 1].map(|rank| {
        let address = Some(std::net::Ipv4Addr::LOCALHOST.into());
        Box::new(Tcp::new(identity(rank), tcp::Options { address, ..tcp::Options::default() }).unwrap())
            as Box<dyn Fabric>
    }));
}
