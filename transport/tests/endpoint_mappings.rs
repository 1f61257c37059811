//! What is left of peers that are gone: nothing. Alone in its process, because it counts mappings.

use vervain_transport::endpoint::{Access, PeerEvent};
use vervain_transport::fabric::Backend;

#[allow(dead_code, reason = "shared with the tests of the endpoint")]
#[path = "endpoint/world.rs"]
mod world;

use world::{World, endpoint, soon};

fn mappings() -> usize {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    maps.lines().filter(|line| line.contains("memfd:vervain")).count()
}

#[test]
fn memory_that_a_peer_opened_is_unmapped_when_the_peer_is_gone() {
    let mut world = World::of(Backend::Shm, 1);
    let mut counts = Vec::new();
    for _ in 0..4 {
        world.ends.push(endpoint(Backend::Shm, Default::default()));
        let address = world.ends[1].address().unwrap();
        let peer = world.ends[0].dial(&address, soon()).unwrap();
        world.until("a connection", |ends| ends[0].is_up(peer).unwrap().then_some(()));
        let back = world.until("a peer", |ends| match ends[1].next_peer_event() {
            Some(PeerEvent::Up(back)) => Some(back),
            _ => None,
        });
        for _ in 0..10 {
            let region = world.ends[1].allocate(1 << 16).unwrap();
            let (_exposed, advert) = world.ends[1].advertise(region, back, Access::Write).unwrap();
            world.until("the region", |ends| ends[0].open_region(peer, &advert).ok());
        }
        drop(world.ends.pop());
        world.until("the end", |ends| ends[0].is_up(peer).err());
        counts.push(mappings());
    }
    assert_eq!(counts, [counts[0]; 4]);
}
