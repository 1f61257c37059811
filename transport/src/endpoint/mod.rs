//! What a system embeds to move bytes between processes: peers, memory with rights, transfers that end exactly once.
//!
//! An [`Endpoint`] stands on one or more [fabrics](crate::fabric), of which each peer uses one. It belongs to one thread at a time
//! (`Send`, not shared): nothing happens between calls, and no call but those named `wait…` blocks.
//!
//! # Transfers
//! Starting one gives [`Posted::Started`], or [`Posted::Busy`] if there is no room now: back-pressure is an outcome, not an
//! error. Every started transfer has a deadline and ends exactly once ([`End`]); its [`Completion`] is taken by
//! [`Endpoint::next_completion`], [`Endpoint::end_of`] or [`Endpoint::wait`]. After the end nothing touches the initiator's memory
//! on its behalf. What the *target* may still see is said by [`Remote`], and ended by the target's [`Endpoint::revoke`].
//!
//! # Order
//! Transfers to one peer are handed over in the order of their starts, and writes land in that order. Whoever observes a
//! notification, a message or a word written later sees everything written earlier by that peer. There is no order among
//! peers, and a read is not ordered after earlier writes unless these have ended.
//!
//! # What the compiler refuses
//! An endpoint is not used by two threads at once:
//! ```compile_fail,E0277
//! # use vervain_transport::endpoint::Endpoint;
//! fn shared<T: Sync>() {}
//! shared::<Endpoint>();
//! ```
//! Memory that a peer may touch is not borrowed, and is ours again only by `revoke`:
//! ```compile_fail,E0308
//! # use vervain_transport::{Result, endpoint::{Endpoint, Exposed}};
//! fn peek<'a>(endpoint: &'a Endpoint, exposed: &'a Exposed) -> Result<&'a [u8]> {
//!     endpoint.bytes(exposed)
//! }
//! ```
//! ```compile_fail,E0382
//! # use vervain_transport::endpoint::{Access, Endpoint, PeerId, Region};
//! fn keep(endpoint: &mut Endpoint, region: Region, peer: PeerId) -> usize {
//!     let _exposed = endpoint.advertise(region, peer, Access::Write);
//!     region.bytes()
//! }
//! ```
//! Borrowed bytes keep the endpoint from starting a transfer:
//! ```compile_fail,E0502
//! # use vervain_transport::{Time, endpoint::{Endpoint, Region}};
//! fn poll_meanwhile(endpoint: &mut Endpoint, region: &Region) {
//!     let bytes = endpoint.bytes(region).unwrap();
//!     endpoint.poll(Time::now());
//!     assert!(bytes.is_empty());
//! }
//! ```
//!
//! # Cost
//! After the first transfers to a peer nothing on the data path allocates or locks, but for an immediate value that was never seen. A poll
//! costs what the fabrics in use cost, and nothing for each peer of ours.

mod connect;
mod counters;
mod end;
mod group;
mod memory;
mod messages;
mod pages;
mod peers;
mod post;
mod progress;
mod regions;
mod table;
mod work;

#[cfg(feature = "std")]
mod builder;
#[cfg(feature = "std")]
mod descriptor;
#[cfg(feature = "std")]
mod driver;
#[cfg(feature = "std")]
mod waiting;

use alloc::{boxed::Box, sync::Arc, vec::Vec};
use core::time::Duration;

use crate::{
    Kind, Result, Time,
    fabric::{Event, Fabric},
    wire::advert::{self, Who},
};

pub use crate::fabric::Access;
#[cfg(feature = "std")]
pub use builder::{Builder, Pages};
pub use counters::{Arrivals, Counter};
#[cfg(feature = "std")]
pub use driver::{Answer, Client, Driver, Request, Verdict};
pub use end::{Completion, End, Posted, Remote, Transfer};
pub use memory::{Exposed, Local, LocalPages, Quarantined, Refused, Region};
pub use messages::{MESSAGE, Message};
pub use pages::PageList;
pub use peers::{Explanation, PeerEvent, PeerId};
pub use post::{Notify, Terms, Write};
pub use regions::{Advert, RemotePages, RemoteRegion, RemoteSpan};

use counters::Counters;
use group::Groups;
use memory::Dropped;
use messages::Messages;
use peers::Peers;
use regions::Regions;
use table::Transfers;
use work::Lists;

/// How large the tables of an endpoint are. All of it is allocated when the endpoint is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Transfers under way or ended and not taken.
    pub transfers: u32,
    /// Page numbers of paged transfers that wait for room.
    pub pages: u32,
    /// Messages being sent.
    pub messages: u32,
    /// Immediates and messages that a busy peer may have on its way to us; one that has sent nothing yet may have four.
    pub receives: u32,
}

impl Default for Limits {
    fn default() -> Self {
        Self { transfers: 4096, pages: 64 << 10, messages: 64, receives: 32 }
    }
}

/// See the [module](self).
#[derive(Debug)]
pub struct Endpoint {
    who: Who,
    /// In order of preference.
    backends: Vec<Box<dyn Fabric>>,
    /// Why others are not there, for [`Endpoint::explain`].
    absent: Vec<(&'static str, alloc::string::String)>,
    peers: Peers,
    regions: Regions,
    dropped: Arc<Dropped>,
    transfers: Transfers,
    lists: Lists,
    counters: Counters,
    messages: Messages,
    groups: Groups,
    /// Reused by every look at deadlines.
    expired: Vec<u32>,
    limits: Limits,
    now: Time,
    /// Reused by every poll.
    events: Vec<Event>,
    /// When fabrics without peers were last polled.
    looked: Time,
    /// Events of fabrics, and ends of transfers, so far: whoever waits looks again when there are more.
    heard: u64,
    /// Whoever waits polls again by then.
    #[cfg(feature = "std")]
    again: Time,
    #[cfg(feature = "std")]
    wakeup: descriptor::Wakeup,
}

/// Events taken from a fabric at a time.
const EVENTS: usize = 256;
/// A fabric without peers is looked at this often, for newcomers.
const IDLE: Duration = Duration::from_micros(200);

impl Endpoint {
    /// An endpoint over fabrics of yours, in order of preference. `who.incarnation` must differ between starts, and be the one that
    /// the fabrics were made with.
    ///
    /// # Errors
    /// `InvalidArgument` for no fabric, more than [`advert::BACKENDS`], or limits of zero.
    pub fn over(who: Who, backends: Vec<Box<dyn Fabric>>, limits: Limits) -> Result<Self> {
        let is_empty = [limits.transfers, limits.messages, limits.receives].contains(&0);
        if backends.is_empty() || backends.len() > advert::BACKENDS || is_empty || limits.transfers > 1 << 24 {
            return Err(Kind::InvalidArgument.into());
        }
        let count = backends.len();
        Ok(Self {
            who,
            #[cfg(feature = "std")]
            again: Time::NEVER,
            #[cfg(feature = "std")]
            wakeup: descriptor::Wakeup::new(&backends)?,
            backends,
            absent: Vec::new(),
            peers: Peers::new(count),
            regions: Regions::new(who.incarnation, count),
            dropped: Arc::new(Dropped::new()),
            transfers: Transfers::new(limits.transfers),
            lists: Lists::new(limits.pages as usize),
            counters: Counters::new(),
            messages: Messages::new(count),
            groups: Groups::default(),
            expired: Vec::with_capacity(limits.transfers as usize),
            limits,
            now: Time::default(),
            events: Vec::with_capacity(EVENTS),
            looked: Time::default(),
            heard: 0,
        })
    }

    /// Who we are.
    pub fn who(&self) -> Who {
        self.who
    }

    /// Transfers that have not ended.
    pub fn open(&self) -> u32 {
        self.transfers.open()
    }

    /// Make progress: move what can move, end what has ended, and what has passed its deadline. `now` must not go back.
    pub fn poll(&mut self, now: Time) {
        #[cfg(feature = "std")]
        self.disarm();
        self.now = now;
        let is_due = now.since(self.looked) >= IDLE;
        if is_due {
            self.looked = now;
        }
        for backend in 0..self.backends.len() {
            if is_due || self.peers.uses(backend) {
                self.poll_backend(backend, now);
            }
        }
        self.tidy(now);
    }

    #[inline]
    fn poll_backend(&mut self, backend: usize, now: Time) {
        let mut events = core::mem::take(&mut self.events);
        self.backends[backend].poll(now, &mut events);
        self.heard += events.len() as u64;
        for event in events.drain(..) {
            self.on_event(backend, event);
        }
        self.events = events;
    }

    fn on_event(&mut self, backend: usize, event: Event) {
        match event {
            Event::Done { link, token, result } if messages::is_receive(token) => {
                self.on_received(backend, link, token, result);
            }
            Event::Done { token, result, .. } => self.on_done(token, result),
            Event::Up { link, peer, incarnation } => self.on_up(backend, link, peer, incarnation),
            Event::Down { link, error } => self.on_down(backend, link, error),
            Event::Revoked { region, result } => self.on_revoked(backend, region, result),
        }
    }

    /// The next completion, the oldest first.
    #[inline]
    pub fn next_completion(&mut self) -> Option<Completion> {
        self.transfers.next()
    }

    /// The completion of this transfer, if it has ended and nobody took it yet.
    ///
    /// # Errors
    /// `InvalidArgument` if there is no such transfer, or its completion was taken.
    pub fn end_of(&mut self, transfer: Transfer) -> Result<Option<Completion>> {
        self.transfers.find(transfer).ok_or(Kind::InvalidArgument)?;
        Ok(self.transfers.take(transfer))
    }
}

const fn is_send<T: Send>() {}

/// What may move between threads. An [`Endpoint`] is not `Sync`: its fabrics are not.
const _: () = {
    is_send::<Endpoint>();
    is_send::<Region>();
    is_send::<Exposed>();
    is_send::<Quarantined>();
    is_send::<Arrivals>();
};
