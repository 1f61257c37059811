//! Endpoints that are polled in turn.

use core::time::Duration;

use vervain_transport::auth::Secret;
use vervain_transport::endpoint::{
    Access, Completion, Endpoint, Exposed, Limits, PeerEvent, PeerId, Posted, Region, RemoteRegion, Transfer,
};
use vervain_transport::fabric::Backend;
use vervain_transport::{Result, Time};

/// Longest wait for what must come.
pub const PATIENCE: Duration = Duration::from_secs(20);

pub const FABRICS: [Backend; 2] = [Backend::Shm, Backend::Tcp];

pub fn soon() -> Time {
    Time::now().after(PATIENCE)
}

pub fn endpoint(backend: Backend, limits: Limits) -> Endpoint {
    Endpoint::builder()
        .secret(Secret::from_bytes([5; 32]))
        .only(backend)
        .limits(limits)
        .tcp(loopback())
        .build()
        .unwrap()
}

pub fn loopback() -> vervain_transport::fabric::tcp::Options {
    vervain_transport::fabric::tcp::Options {
        address: Some(std::net::Ipv4Addr::LOCALHOST.into()),
        ..Default::default()
    }
}

/// Endpoints 0, 1, ...; 0 has connected to all others.
pub struct World {
    pub ends: Vec<Endpoint>,
    /// What 0 calls the others; its own place is empty.
    pub peers: Vec<Option<PeerId>>,
    /// What the others call 0.
    pub back: Vec<Option<PeerId>>,
}

impl World {
    pub fn of(backend: Backend, count: usize) -> Self {
        Self::with(backend, count, Limits::default())
    }

    pub fn with(backend: Backend, count: usize, limits: Limits) -> Self {
        let ends = (0..count).map(|_| endpoint(backend, limits)).collect();
        let mut world = Self { ends, peers: vec![None], back: vec![None] };
        for other in 1..count {
            world.connect(other);
        }
        world
    }

    fn connect(&mut self, other: usize) {
        let address = self.ends[other].address().unwrap();
        let peer = self.ends[0].dial(&address, soon()).unwrap();
        self.until("a connection", |ends| ends[0].is_up(peer).unwrap().then_some(()));
        let back = self.until("a peer", |ends| match ends[other].next_peer_event() {
            Some(PeerEvent::Up(back)) => Some(back),
            _ => None,
        });
        assert_eq!(self.ends[0].next_peer_event(), Some(PeerEvent::Up(peer)));
        self.until("quiet", |ends| ends.iter().all(|end| end.open() == 0).then_some(()));
        self.peers.push(Some(peer));
        self.back.push(Some(back));
    }

    pub fn step(&mut self) {
        let now = Time::now();
        self.ends.iter_mut().for_each(|end| end.poll(now));
        vervain_transport::sync::thread::yield_now();
    }

    pub fn until<T>(&mut self, what: &str, mut ready: impl FnMut(&mut [Endpoint]) -> Option<T>) -> T {
        let end = soon();
        loop {
            if let Some(value) = ready(&mut self.ends) {
                return value;
            }
            assert!(Time::now() < end, "waited in vain for {what}");
            self.step();
        }
    }

    /// Start, polling while there is no room.
    pub fn start(&mut self, at: usize, mut post: impl FnMut(&mut Endpoint) -> Result<Posted>) -> Transfer {
        self.until("room", |ends| post(&mut ends[at]).unwrap().started())
    }

    pub fn end(&mut self, at: usize, transfer: Transfer) -> Completion {
        self.until("an end", |ends| ends[at].end_of(transfer).unwrap())
    }

    pub fn run(&mut self, at: usize, post: impl FnMut(&mut Endpoint) -> Result<Posted>) -> Completion {
        let transfer = self.start(at, post);
        self.end(at, transfer)
    }

    /// A region of `owner` with this content, opened to 0 (or of 0, opened to 1).
    pub fn share(&mut self, owner: usize, bytes: &[u8], access: Access) -> (Exposed, RemoteRegion) {
        let mut region = self.ends[owner].allocate(bytes.len().max(1)).unwrap();
        region.copy_in(0, bytes).unwrap();
        self.open(owner, region, access)
    }

    pub fn open(&mut self, owner: usize, region: Region, access: Access) -> (Exposed, RemoteRegion) {
        let user = if owner == 0 { 1 } else { 0 };
        let (from, to) = if owner == 0 { (self.peers[1], self.back[1]) } else { (self.back[owner], self.peers[owner]) };
        let (exposed, advert) = self.ends[owner].advertise(region, from.unwrap(), access).unwrap();
        let remote = self.until("an advertised region", |ends| ends[user].open_region(to.unwrap(), &advert).ok());
        (exposed, remote)
    }

    pub fn region(&mut self, at: usize, bytes: &[u8]) -> Region {
        let mut region = self.ends[at].allocate(bytes.len().max(1)).unwrap();
        region.copy_in(0, bytes).unwrap();
        region
    }
}

pub fn pattern(bytes: usize, seed: u8) -> Vec<u8> {
    (0..bytes).map(|at| (at.wrapping_mul(37) ^ (at >> 7)) as u8 ^ seed).collect()
}

pub fn bytes_of(exposed: &Exposed, offset: usize, bytes: usize) -> Vec<u8> {
    let mut copy = vec![0; bytes];
    exposed.copy_out(offset, &mut copy).unwrap();
    copy
}
