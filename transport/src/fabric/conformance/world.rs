//! Fabrics that are stepped together.

use core::time::Duration;
use std::collections::VecDeque;

use super::Make;
use crate::{
    Error, Kind, Rank, Result, Time,
    auth::Secret,
    fabric::{Access, Event, Fabric, Identity, LinkId, Op, Outcome, RegionId, RemoteId, Span, Target},
};

/// How long a case waits for what must come.
pub const PATIENCE: Duration = Duration::from_secs(20);

/// Sizes at the edges of words, lines, pages and messages, and one that needs several pieces of everything.
pub(super) const SIZES: [usize; 13] = [0, 1, 7, 8, 9, 127, 128, 129, 4095, 4096, 4097, 65537, (1 << 20) + 3];

pub(super) fn identity(rank: u32) -> Identity {
    Identity { rank: Rank::new(rank), incarnation: 1000 + u64::from(rank), secret: Secret::from_bytes([42; 32]) }
}

/// One fabric and what it reported.
#[derive(Debug)]
pub(super) struct Node {
    pub fabric: Box<dyn Fabric>,
    batch: Vec<Event>,
    pub seen: VecDeque<Event>,
}

impl Node {
    pub fn new(fabric: Box<dyn Fabric>) -> Self {
        Self { fabric, batch: Vec::with_capacity(64), seen: VecDeque::new() }
    }

    pub fn poll(&mut self) {
        self.batch.clear();
        self.fabric.poll(Time::now(), &mut self.batch);
        self.seen.extend(self.batch.drain(..));
    }

    /// Take the first event that `pick` wants.
    pub fn take<T>(&mut self, pick: impl Fn(&Event) -> Option<T>) -> Option<T> {
        let (at, value) = self.seen.iter().enumerate().find_map(|(at, event)| pick(event).map(|value| (at, value)))?;
        self.seen.remove(at);
        Some(value)
    }

    pub fn ended(&mut self, link: LinkId, token: u64) -> Option<Result<Outcome>> {
        self.take(|event| match *event {
            Event::Done { link: on, token: known, result } if on == link && known == token => Some(result),
            _ => None,
        })
    }

    pub fn revoked(&mut self, region: RegionId) -> Option<Result<()>> {
        self.take(|event| match *event {
            Event::Revoked { region: known, result } if known == region => Some(result),
            _ => None,
        })
    }

    pub fn up(&mut self) -> Option<(LinkId, Rank, u64)> {
        self.take(|event| match *event {
            Event::Up { link, peer, incarnation } => Some((link, peer, incarnation)),
            _ => None,
        })
    }

    pub fn down(&mut self, link: LinkId) -> Option<Error> {
        self.take(|event| match *event {
            Event::Down { link: on, error } if on == link => Some(error),
            _ => None,
        })
    }

    /// A region of `bytes` bytes with a pattern.
    pub fn region(&mut self, bytes: usize, seed: u8) -> RegionId {
        let region = self.fabric.allocate(bytes).expect("memory for a test");
        self.fill(region, 0, &pattern(bytes, seed));
        region
    }

    pub fn fill(&self, region: RegionId, offset: usize, bytes: &[u8]) {
        let view = self.fabric.memory(region).expect("the region is known");
        assert!(offset + bytes.len() <= view.bytes);
        // SAFETY: within the region; no operation uses this range while a case fills it.
        unsafe { view.start.as_ptr().add(offset).copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) };
    }

    pub fn bytes(&self, region: RegionId, offset: usize, bytes: usize) -> Vec<u8> {
        let view = self.fabric.memory(region).expect("the region is known");
        assert!(offset + bytes <= view.bytes);
        let mut copy = vec![0; bytes];
        // SAFETY: within the region; what a case looks at has been reported before.
        unsafe { view.start.as_ptr().add(offset).copy_to_nonoverlapping(copy.as_mut_ptr(), bytes) };
        copy
    }
}

/// Fabrics of ranks 0, 1, ...
#[derive(Debug)]
pub(super) struct World {
    pub nodes: Vec<Node>,
}

/// Ends of a link, at the dialling and at the dialled node.
pub(super) type Ends = (LinkId, LinkId);

impl World {
    pub fn new(make: &mut Make<'_>, ranks: u32) -> Self {
        Self { nodes: (0..ranks).map(|rank| Node::new(make(identity(rank)))).collect() }
    }

    /// Two ranks with a link that rank 0 dialled.
    pub fn pair(make: &mut Make<'_>) -> (Self, Ends) {
        let mut world = Self::new(make, 2);
        let ends = world.connect(0, 1);
        (world, ends)
    }

    pub fn step(&mut self) {
        for node in &mut self.nodes {
            node.poll();
        }
        crate::sync::thread::yield_now();
    }

    /// Step until `ready` gives something.
    pub fn until<T>(&mut self, what: &str, mut ready: impl FnMut(&mut [Node]) -> Option<T>) -> T {
        let end = Time::now().after(PATIENCE);
        loop {
            if let Some(value) = ready(&mut self.nodes) {
                return value;
            }
            assert!(Time::now() < end, "waited in vain for {what}; reported: {:?}", self.reported());
            self.step();
        }
    }

    fn reported(&self) -> Vec<&VecDeque<Event>> {
        self.nodes.iter().map(|node| &node.seen).collect()
    }

    pub fn connect(&mut self, from: usize, to: usize) -> Ends {
        let address = self.nodes[to].fabric.address();
        let peer = Rank::new(to as u32);
        let near = self.nodes[from].fabric.dial(peer, &address, Time::now().after(PATIENCE)).expect("dial");
        self.until("the dialled link", |nodes| {
            nodes[from].take(|event| matches!(event, Event::Up { link, .. } if *link == near).then_some(()))
        });
        let (far, ..) = self.until("the accepted link", |nodes| nodes[to].up());
        (near, far)
    }

    /// A region of `owner` as a remote of `user`.
    pub fn share(&mut self, owner: (usize, LinkId), region: RegionId, user: (usize, LinkId)) -> RemoteId {
        let key = self.nodes[owner.0].fabric.advertise(owner.1, region, Access::ReadWrite).expect("advertise");
        self.nodes[user.0].fabric.import(user.1, &key).expect("import")
    }

    /// Post everything, stepping as often as needed.
    pub fn post(&mut self, node: usize, link: LinkId, ops: &[Op]) {
        let mut left = ops;
        self.until("operations to be accepted", |nodes| {
            let accepted = nodes[node].fabric.post(link, left).expect("valid operations");
            left = &left[accepted..];
            left.is_empty().then_some(())
        });
    }

    pub fn outcome(&mut self, node: usize, link: LinkId, token: u64) -> Result<Outcome> {
        self.until(&format!("operation {token}"), |nodes| nodes[node].ended(link, token))
    }

    pub fn post_and_end(&mut self, node: usize, link: LinkId, op: Op) -> Result<Outcome> {
        self.post(node, link, &[op]);
        self.outcome(node, link, op.token())
    }

    pub fn refusal(&mut self, node: usize, link: LinkId, ops: &[Op]) -> Kind {
        let result = self.nodes[node].fabric.post(link, ops);
        result.expect_err("a malformed operation was accepted").kind()
    }
}

/// A pair, a region of rank 0 to work from, and one of rank 1 that rank 0 can reach.
pub(super) struct Stage {
    pub world: World,
    pub near: LinkId,
    pub far: LinkId,
    pub local: RegionId,
    pub region: RegionId,
    pub remote: RemoteId,
}

impl Stage {
    /// Both regions are of `bytes` bytes.
    pub fn new(make: &mut Make<'_>, bytes: usize) -> Self {
        let (mut world, (near, far)) = World::pair(make);
        let (local, region) = (world.nodes[0].region(bytes, 1), world.nodes[1].region(bytes, 2));
        let remote = world.share((1, far), region, (0, near));
        Self { world, near, far, local, region, remote }
    }
}

pub(super) fn pattern(bytes: usize, seed: u8) -> Vec<u8> {
    (0..bytes).map(|at| (at.wrapping_mul(31) ^ (at >> 8)) as u8 ^ seed).collect()
}

pub(super) fn span(region: RegionId, offset: u64, bytes: u64) -> Span {
    Span { region, offset, bytes }
}

pub(super) fn target(remote: RemoteId, offset: u64) -> Target {
    Target { remote, offset }
}
