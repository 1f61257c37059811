//! The network as a test sees it.

use core::time::Duration;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::{FakeFabric, Options, exchange::Exchange, node::Life, wire::Port};
use crate::{Kind, Rank, Result, Time, fabric::Identity};

/// What fake fabrics are connected by. Clones name the same network.
#[derive(Clone, Debug)]
pub struct Network {
    exchange: Arc<Mutex<Exchange>>,
}

impl Network {
    /// A network that does what it should, on this seed.
    pub fn new(seed: u64) -> Self {
        Self::with(Options { seed, ..Options::default() })
    }

    /// A network that behaves as the options say.
    pub fn with(options: Options) -> Self {
        Self { exchange: Arc::new(Mutex::new(Exchange::new(options))) }
    }

    /// A fabric on this network. Several may have the same rank: a restart, or an error that a test makes.
    ///
    /// # Errors
    /// `NoSpace` if there is no page for its doorbell.
    pub fn fabric(&self, identity: Identity) -> Result<FakeFabric> {
        FakeFabric::new(self.clone(), identity)
    }

    /// The network's clock.
    pub fn now(&self) -> Time {
        self.lock().now
    }

    /// Move the clock on. What becomes due arrives when its fabric is polled, or by [`Network::step`].
    pub fn advance(&self, duration: Duration) {
        let mut exchange = self.lock();
        exchange.now = exchange.now.after(duration);
    }

    /// Let everything leave that was posted, and the next frame arrive, with the clock at its time. Nobody need poll for it.
    /// Whether there was a frame.
    pub fn step(&self) -> bool {
        self.lock().step()
    }

    /// Step until nothing is under way but what is [held](Network::hold).
    pub fn settle(&self) {
        while self.step() {}
    }

    /// Keep frames that go from one rank to another where they are, until [`Network::resume`]. Later ones queue behind
    /// them; nothing is lost, and nobody is told.
    pub fn hold(&self, from: Rank, to: Rank) {
        let mut exchange = self.lock();
        if !exchange.held.contains(&(from, to)) {
            exchange.held.push((from, to));
        }
    }

    /// Let frames go again.
    pub fn resume(&self, from: Rank, to: Rank) {
        let mut exchange = self.lock();
        exchange.held.retain(|held| *held != (from, to));
        exchange.nodes.iter().for_each(|node| node.bell.ring());
    }

    /// Break all links between two ranks: what is under way is lost, and both ends go down with `LinkFailed`.
    pub fn cut(&self, one: Rank, other: Rank) {
        let mut exchange = self.lock();
        for wire in 0..exchange.wires.len() {
            let ports = [0, 1].map(|side| Port { wire, side });
            let ranks = ports.map(|port| exchange.nodes[exchange.end(port).node].identity.rank);
            if ranks == [one, other] || ranks == [other, one] {
                ports.into_iter().for_each(|port| exchange.break_off(port, Kind::LinkFailed));
            }
        }
    }

    /// End the fabrics of a rank without a goodbye: peers see `PeerDied`, after what the dead one had sent. Its own links go
    /// down with `Aborted`.
    pub fn crash(&self, rank: Rank) {
        let mut exchange = self.lock();
        for node in 0..exchange.nodes.len() {
            let known = &exchange.nodes[node];
            if known.identity.rank == rank && known.life == Life::Alive {
                exchange.part(node, Kind::PeerDied);
                let known = &mut exchange.nodes[node];
                known.live().into_iter().for_each(|link| known.fail(link, Kind::Aborted));
                known.bell.ring();
            }
        }
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, Exchange> {
        // a test that failed while it held the lock has more to say than the next one
        self.exchange.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Tells networks apart.
    pub(super) fn id(&self) -> u64 {
        Arc::as_ptr(&self.exchange).addr() as u64
    }
}

impl Exchange {
    fn break_off(&mut self, port: Port, kind: Kind) {
        self.lose(port);
        let (node, link) = (self.end(port).node, self.end(port).link);
        if let Some(link) = link {
            self.nodes[node].fail(crate::fabric::LinkId(link), kind);
        }
        self.nodes[node].bell.ring();
    }
}
