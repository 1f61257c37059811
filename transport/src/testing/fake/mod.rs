//! A fabric that is only simulated: all ranks in one process, over a network that a test moves step by step.
//!
//! A [`Network`] makes fabrics ([`Network::fabric`]) that find each other by address like those of any backend. Nothing
//! happens by itself: operations leave when their fabric is polled, frames arrive when the fabric that they are for is
//! polled and their time has come, and [`Network::step`] does both for everybody, one frame at a time. There is no thread,
//! and everything that chance decides (latencies, the order among links, what is lost or comes twice) comes from
//! [`Options::seed`]: the same calls give the same run.
//!
//! # Time
//! The network has a clock of its own. [`Network::advance`] moves it, and so does whoever polls with a later `now`; it never
//! goes back. So a test may live on virtual time ([`Network::now`]) or on the machine's ([`Time::now`]), but not on both.
//! How a fabric sleeps follows from that: see [`Sleep`].
//!
//! # What is kept and what is not
//! It promises what [`crate::fabric`] says and no more, so that code which relies on more is found out: a local span is
//! read only when its operation leaves; reads overtake earlier writes ([`Options::overtaking`]); of two links either may be
//! first; unless [`Options::passive`], a target that does not poll gets nothing. Regions cannot be mapped or pulled by peers.
//! A frame that is lost comes later, as over a reliable transport, and one that comes twice is taken once.

mod access;
mod deliver;
mod exchange;
mod fabric;
mod key;
mod leave;
mod memory;
mod network;
mod node;
mod post;
#[cfg(test)]
mod tests;
mod wire;

use core::{ops::RangeInclusive, time::Duration};

use super::random::Chance;
#[cfg(doc)]
use crate::Time;

pub use fabric::FakeFabric;
pub use network::Network;

/// How a network behaves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// Where all chance comes from.
    pub seed: u64,
    /// How long a frame takes, each way. With no latency, what is due at the same time comes in any order, but for that of
    /// its link.
    pub latency: RangeInclusive<Duration>,
    /// How often a frame is lost. It is sent again after [`Options::resend`], and holds back the later ones of its link.
    pub losses: Chance,
    /// When a lost frame is sent again.
    pub resend: Duration,
    /// How often a frame comes twice.
    pub duplicates: Chance,
    /// How often a read leaves before the writes that were posted before it.
    pub overtaking: Chance,
    /// Whether frames are carried out while their target does not poll ([`Capabilities::passive`]). Handshakes never are.
    ///
    /// [`Capabilities::passive`]: crate::fabric::Capabilities::passive
    pub passive: bool,
    /// How a fabric sleeps.
    pub sleep: Sleep,
    /// Operations that a link takes before they end, receives apart. Small numbers make back-pressure frequent.
    pub depth: usize,
    /// Receives that a link takes before they end.
    pub receives: usize,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            seed: 0,
            latency: Duration::ZERO..=Duration::ZERO,
            losses: Chance::NEVER,
            resend: Duration::from_millis(1),
            duplicates: Chance::NEVER,
            overtaking: Chance::in_thousand(500),
            passive: false,
            sleep: Sleep::Skips,
            depth: 128,
            receives: 1024,
        }
    }
}

impl Options {
    /// A rough network on this seed: latencies between 1 and 50 us, one frame in fifty lost, one in fifty twice, short
    /// queues.
    pub fn rough(seed: u64) -> Self {
        Self {
            seed,
            latency: Duration::from_micros(1)..=Duration::from_micros(50),
            losses: Chance::in_thousand(20),
            duplicates: Chance::in_thousand(20),
            depth: 5,
            receives: 16,
            ..Self::default()
        }
    }
}

/// What [`Fabric::sleep`](crate::fabric::Fabric::sleep) does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sleep {
    /// It moves the network's clock to whatever comes next, and returns at once. For ranks of one thread on virtual time.
    Skips,
    /// It blocks its thread until the bell rings or the time has come. For ranks on threads, on [`Time::now`].
    Blocks,
}
