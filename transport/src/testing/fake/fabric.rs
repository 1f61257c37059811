//! One rank's fabric on the network.

use core::{any::Any, fmt, ptr::NonNull, time::Duration};
use std::sync::{Arc, MutexGuard};

use memmap2::{MmapOptions, MmapRaw};

use super::{
    Network, Sleep,
    exchange::Exchange,
    node::{Life, Node, State},
    post::Room,
    wire::{End, Frame, Port},
};
use crate::{
    Error, Kind, Rank, Result, Time,
    fabric::{
        Access, Backend, Capabilities, Doorbell, Event, Fabric, Identity, Key, LinkId, Op, RegionId, RemoteId, View,
        doorbell::{self, Ringing},
    },
};

/// A fabric of a [`Network`]. Dropping it says goodbye to its peers.
pub struct FakeFabric {
    network: Network,
    node: usize,
    bell: Doorbell,
}

impl FakeFabric {
    pub(super) fn new(network: Network, identity: Identity) -> Result<Self> {
        let page = MmapRaw::from(MmapOptions::new().len(doorbell::PAGE).map_anon()?);
        let bell = Doorbell::from_page(Arc::new(page), Ringing::Full);
        let node = network.lock().add(identity, bell.clone());
        Ok(Self { network, node, bell })
    }

    /// The network that it is on.
    pub fn network(&self) -> &Network {
        &self.network
    }

    fn lock(&self) -> MutexGuard<'_, Exchange> {
        self.network.lock()
    }

    fn with<R>(&self, act: impl FnOnce(&mut Node) -> R) -> R {
        act(&mut self.lock().nodes[self.node])
    }

    /// Something is there for the next poll. How long until there is, otherwise.
    fn news(&self, now: Time) -> Result<(), Time> {
        let exchange = self.lock();
        let node = &exchange.nodes[self.node];
        let next = exchange.next_time_here(self.node).unwrap_or(Time::NEVER);
        let is_idle = node.events.is_empty() && node.is_drained() && next > now.max(exchange.now);
        if is_idle { Err(next) } else { Ok(()) }
    }

    /// Let the clock run to whatever comes first.
    fn skip(&self, deadline: Time) {
        let mut exchange = self.lock();
        let next = exchange.next_time(self.node).unwrap_or(Time::NEVER).min(deadline);
        if next != Time::NEVER {
            exchange.now = exchange.now.max(next);
        }
    }

    fn block(&self, deadline: Time) {
        let now = Time::now();
        if let Err(next) = self.news(now)
            && let limit = next.min(deadline).since(now)
            && limit > Duration::ZERO
        {
            self.bell.wait(limit);
        }
    }
}

impl Fabric for FakeFabric {
    fn backend(&self) -> Backend {
        Backend::Fake
    }

    fn capabilities(&self) -> Capabilities {
        let passive = self.lock().options.passive;
        Capabilities { mapped: false, pull: false, whole_lines: false, passive }
    }

    fn address(&self) -> Vec<u8> {
        let (rank, incarnation) = self.with(|node| (node.identity.rank, node.identity.incarnation));
        Address { network: self.network.id(), node: self.node as u64, rank, incarnation }.emit()
    }

    fn allocate(&mut self, bytes: usize) -> Result<RegionId> {
        self.with(|node| node.regions.allocate(bytes))
    }

    unsafe fn register(&mut self, start: NonNull<u8>, bytes: usize) -> Result<RegionId> {
        // SAFETY: the same promise. (`release` and a drop take the lock, so no frame is being carried out after them.)
        self.with(|node| unsafe { node.regions.register(start, bytes) })
    }

    fn release(&mut self, region: RegionId) -> Result<()> {
        self.with(|node| node.release(region))
    }

    fn memory(&self, region: RegionId) -> Option<View> {
        self.with(|node| node.regions.view(region))
    }

    fn keep(&self, region: RegionId) -> Option<Arc<dyn Any + Send + Sync>> {
        self.with(|node| node.regions.keep(region))
    }

    fn advertise(&mut self, link: LinkId, region: RegionId, access: Access) -> Result<Key> {
        let mut exchange = self.lock();
        let nonce = exchange.random.bits();
        exchange.nodes[self.node].advertise(link, region, access, nonce)
    }

    fn revoke(&mut self, region: RegionId, _deadline: Time) -> Result<()> {
        self.with(|node| node.revoke(region))
    }

    fn import(&mut self, link: LinkId, key: &Key) -> Result<RemoteId> {
        self.with(|node| node.import(link, key))
    }

    fn forget(&mut self, remote: RemoteId) -> Result<()> {
        self.with(|node| node.forget(remote))
    }

    fn view(&self, _remote: RemoteId) -> Option<View> {
        None
    }

    fn foreign(&self, _link: LinkId) -> Option<RemoteId> {
        None
    }

    fn dial(&mut self, peer: Rank, address: &[u8], deadline: Time) -> Result<LinkId> {
        let refuse = |kind: Kind| Error::new(kind).with_rank(peer);
        let address = Address::parse(address).filter(|address| address.rank == peer);
        let address = address.ok_or_else(|| refuse(Kind::InvalidArgument))?;
        if address.network != self.network.id() {
            return Err(refuse(Kind::Unsupported));
        }
        self.lock().dial(self.node, &address, deadline).ok_or_else(|| refuse(Kind::InvalidArgument))
    }

    fn close(&mut self, link: LinkId) {
        self.lock().hang_up(self.node, link, Kind::Aborted);
    }

    fn post(&mut self, link: LinkId, ops: &[Op]) -> Result<usize> {
        let mut exchange = self.lock();
        let room = Room { depth: exchange.options.depth, receives: exchange.options.receives };
        exchange.nodes[self.node].post(link, ops, room)
    }

    fn cancel(&mut self, link: LinkId, token: u64) -> Result<()> {
        self.with(|node| node.cancel(link, token))
    }

    fn poll(&mut self, now: Time, events: &mut Vec<Event>) {
        let mut exchange = self.lock();
        if exchange.nodes[self.node].life == Life::Alive {
            exchange.turn(self.node, now);
        }
        exchange.nodes[self.node].report(events);
    }

    fn is_drained(&self) -> bool {
        self.with(|node| node.is_drained())
    }

    fn arm(&mut self) {
        self.bell.arm();
    }

    fn sleep(&mut self, deadline: Time) {
        if self.bell.is_armed() {
            let sleep = self.lock().options.sleep;
            match sleep {
                Sleep::Skips if self.news(Time::default()).is_err() => self.skip(deadline),
                Sleep::Skips => {}
                Sleep::Blocks => self.block(deadline),
            }
        }
        self.disarm();
    }

    fn disarm(&mut self) {
        self.bell.disarm();
    }

    fn doorbell(&self) -> Doorbell {
        self.bell.clone()
    }

    fn peer_doorbell(&self, _link: LinkId) -> Option<Doorbell> {
        None
    }
}

impl Exchange {
    /// A link to the fabric at this address, if there ever was one and ours is there.
    fn dial(&mut self, node: usize, to: &Address, deadline: Time) -> Option<LinkId> {
        if self.nodes[node].life == Life::Gone {
            return None;
        }
        let target = usize::try_from(to.node).ok().filter(|target| *target < self.nodes.len())?;
        let near = Port { wire: self.wires.len(), side: 0 };
        self.wires.push([End::of(node), End::of(target)]);
        let link = self.nodes[node].add_link(near, to.rank, State::Dialling { deadline });
        self.end_mut(near).link = Some(link.0);
        let Identity { rank, incarnation, secret } = self.nodes[node].identity.clone();
        self.send(near.other(), Frame::Hello { rank, incarnation, secret });
        Some(link)
    }
}

impl Node {
    fn report(&mut self, events: &mut Vec<Event>) {
        while events.len() < events.capacity()
            && let Some(event) = self.events.pop_front()
        {
            if let Event::Revoked { region, .. } = event {
                self.revoking.remove(&region);
            }
            events.push(event);
        }
    }
}

impl Drop for FakeFabric {
    fn drop(&mut self) {
        let mut exchange = self.lock();
        exchange.part(self.node, Kind::PeerLeft);
        // its memory ends here; the place stays, so that its address is never another's
        let node = &mut exchange.nodes[self.node];
        *node = Node { life: Life::Gone, ..Node::new(node.identity.clone(), node.bell.clone()) };
    }
}

impl fmt::Debug for FakeFabric {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let rank = self.with(|node| node.identity.rank);
        f.debug_struct("FakeFabric").field("rank", &rank).field("node", &self.node).finish_non_exhaustive()
    }
}

/// Where a fabric is found.
#[derive(Debug, PartialEq, Eq)]
struct Address {
    network: u64,
    node: u64,
    rank: Rank,
    incarnation: u64,
}

const MAGIC: [u8; 4] = *b"VFAK";
/// Magic, rank, network, node, incarnation.
const BYTES: usize = 32;

impl Address {
    fn emit(&self) -> Vec<u8> {
        let words = [self.network, self.node, self.incarnation];
        let head = MAGIC.into_iter().chain(self.rank.get().to_le_bytes());
        head.chain(words.into_iter().flat_map(u64::to_le_bytes)).collect()
    }

    fn parse(bytes: &[u8]) -> Option<Self> {
        let bytes: &[u8; BYTES] = bytes.try_into().ok()?;
        let word = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"));
        let rank = Rank::new((word(0) >> 32) as u32);
        let is_ours = bytes[..4] == MAGIC;
        is_ours.then(|| Self { network: word(8), node: word(16), rank, incarnation: word(24) })
    }
}
