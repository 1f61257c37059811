//! One side, connected: its endpoint, its memory, and what the two say to each other.

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};
use vervain_transport::endpoint::{
    Access, Counter, Endpoint, Exposed, Limits, PeerEvent, PeerId, Posted, Region, RemoteRegion, Terms,
};
use vervain_transport::fabric::{Backend, tcp};
use vervain_transport::{Error, Time, auth::Secret, endpoint::Pages};

use super::job::Job;
use super::meet::Person;
use super::options::Test;
use super::settings::Settings;
use crate::exit::Failure;

/// Which side this is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// It begins, measures and prints.
    Initiator,
    /// It answers.
    Target,
}

/// What is said, as messages of the endpoint with a tag of their own.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Say {
    /// Use this memory of mine.
    Advert(Vec<u8>),
    /// What you serve is over.
    Stop,
    /// All messages have been sent.
    Sent,
    /// All messages were taken.
    Taken,
    /// So much of mine was done.
    Took(super::bandwidth::Took),
    /// I have added so much to your word.
    Sum(u64),
    /// So many bytes were wrong.
    Wrong(u64),
    /// I am leaving.
    Bye,
}

/// The tag of [`Say`].
const CONTROL: u32 = u32::MAX;
/// The tag of what is measured.
pub const DATA: u32 = 0;
/// The context of transfers that are measured.
pub const MEASURED: u64 = 1;
/// The context of barriers.
const MEETING: u64 = 2;
/// The immediate of writes.
pub const IMMEDIATE: u32 = 7;
/// Polls between two looks at the clock.
const CLOCK: u32 = 64;
/// Polls in vain after which the core is offered to others.
const QUIET: u32 = 1024;
/// Polls between two looks at whether the peer is there.
const ALIVE: u32 = 4096;

/// One side of the run.
#[derive(Debug)]
pub struct Pair {
    /// The endpoint.
    pub end: Endpoint,
    /// The other side.
    pub peer: PeerId,
    /// What is done.
    pub job: Job,
    /// Which side we are.
    pub side: Side,
    /// What we write from and read into.
    pub source: Option<Region>,
    /// What the peer writes to and reads from.
    pub landing: Option<Exposed>,
    /// The peer's.
    pub there: Option<RemoteRegion>,
    /// Measured transfers that were started.
    pub posted: u64,
    /// Measured transfers that have ended.
    pub done: u64,
    /// What the word held before the last atomic.
    pub before: u64,
    /// What we have added to the peer's word.
    pub added: u64,
    /// What the peer has added to ours, as it says.
    pub theirs_added: u64,
    /// Measured messages that have arrived.
    pub arrived: u64,
    /// The last of them, while somebody wants to know.
    pub kept: Option<Vec<u8>>,
    /// Whether somebody wants to know.
    pub keeps: bool,
    /// Measured writes that have arrived with an immediate.
    pub immediates: Counter,
    /// Whether writes land without a poll of ours.
    pub is_passive: bool,
    /// The last look at the clock.
    pub now: Time,
    heard: VecDeque<Say>,
    /// The peer has sent everything, and waits to hear that we have it.
    owes_taken: bool,
    has_met: bool,
    polls: u32,
    /// Polls since something happened.
    quiet: u32,
    shares_core: bool,
    name: String,
}

/// An endpoint as these settings ask for it.
pub fn endpoint(settings: &Settings, secret: &Secret, address: std::net::IpAddr) -> Result<Endpoint, Failure> {
    let job = &settings.job;
    let defaults = Limits::default();
    let limits = Limits {
        transfers: defaults.transfers.max(job.depth * 2 + 64),
        messages: defaults.messages.max(job.depth.min(4096) + 8),
        ..defaults
    };
    let tcp = tcp::Options { address: Some(address), sockets: job.sockets, ..Default::default() };
    let builder = Endpoint::builder().secret(secret.clone()).limits(limits).tcp(tcp);
    let builder = match settings.fabric {
        Some(backend) => builder.only(backend),
        None => builder,
    };
    builder.build().map_err(|error| Failure::failed(format!("no endpoint: {error}")))
}

impl Pair {
    /// Connect, and exchange memory. `address` is that of the target's endpoint, for the initiator.
    pub fn open(
        mut end: Endpoint,
        settings: &Settings,
        side: Side,
        other: &Person,
        address: &[u8],
    ) -> Result<Self, Failure> {
        let name = match side {
            Side::Initiator => format!("the target (process {} on {})", other.pid, other.host),
            Side::Target => format!("the initiator (process {} on {})", other.pid, other.host),
        };
        let deadline = Time::now().after(settings.patience());
        let lost = |error| Failure::failed(format!("{name} cannot be reached: {error}"));
        let peer = match side {
            Side::Initiator => end.connect(address, deadline).map_err(lost)?,
            Side::Target => {
                let up = |end: &mut Endpoint| match end.next_peer_event() {
                    Some(PeerEvent::Up(peer)) => Some(peer),
                    _ => None,
                };
                end.wait_until(deadline, up).map_err(lost)?
            }
        };
        let is_passive = end.explain(peer)?.backend == Backend::Shm;
        let immediates = end.counter(IMMEDIATE);
        let cores = vervain_transport::host::affinity::allowed_cores().map_or(1, |cores| cores.len());
        let mut pair = Self {
            end,
            peer,
            job: settings.job.clone(),
            side,
            source: None,
            landing: None,
            there: None,
            posted: 0,
            done: 0,
            before: 0,
            added: 0,
            theirs_added: 0,
            arrived: 0,
            kept: None,
            keeps: false,
            immediates,
            is_passive,
            now: Time::now(),
            heard: VecDeque::new(),
            owes_taken: false,
            has_met: false,
            polls: 0,
            quiet: 0,
            shares_core: cores < 2 && other.core.is_none_or(|core| Some(core) == super::only_core()),
            name,
        };
        pair.make_memory(settings)?;
        Ok(pair)
    }

    /// Whether this side has work of its own to measure.
    pub fn is_active(&self) -> bool {
        self.side == Side::Initiator || self.job.bidirectional
    }

    /// Whether the other one has.
    pub fn is_served(&self) -> bool {
        self.side == Side::Target || self.job.bidirectional
    }

    fn make_memory(&mut self, settings: &Settings) -> Result<(), Failure> {
        if self.job.test == Test::Send {
            return Ok(());
        }
        let both = self.job.is_symmetric();
        if both || self.side == Side::Initiator {
            self.source = Some(self.memory(settings, self.job.source_bytes())?);
        }
        if both || self.side == Side::Target {
            let region = self.memory(settings, self.job.landing_bytes())?;
            let opened = self.end.advertise(region, self.peer, Access::ReadWrite);
            let (exposed, advert) = opened.map_err(|refused| self.lost(refused.error))?;
            self.landing = Some(exposed);
            self.say(&Say::Advert(advert.to_vec()))?;
        }
        if both || self.side == Side::Initiator {
            let advert = self.hear(|say| if let Say::Advert(bytes) = say { Some(bytes.clone()) } else { None })?;
            self.there = Some(self.open_region(&advert)?);
        }
        Ok(())
    }

    fn memory(&mut self, settings: &Settings, bytes: u64) -> Result<Region, Failure> {
        let bytes = usize::try_from(bytes).map_err(|_| Failure::usage("-e is more than this machine can address"))?;
        let mut pages = if settings.huge { Pages::huge(bytes) } else { Pages::new(bytes) }.prefault();
        if let Some(node) = settings.node {
            pages = pages.on_node(node);
        }
        self.end.register(pages).map_err(|error| {
            let place = settings.node.map_or_else(String::new, |node| format!(" on --node {node}"));
            Failure::usage(format!("no memory for {bytes} bytes{place}: {error}"))
        })
    }

    fn open_region(&mut self, advert: &[u8]) -> Result<RemoteRegion, Failure> {
        let deadline = Time::now().after(self.job.patience());
        loop {
            match self.end.open_region(self.peer, advert) {
                Ok(region) => return Ok(region),
                Err(error) if Time::now() >= deadline => return Err(self.lost(error)),
                // its memory comes another way, and may still be on it
                Err(_) => self.step()?,
            }
        }
    }

    /// A sentence about the end of the peer, or of what was done with it.
    pub fn lost(&self, error: Error) -> Failure {
        Failure::failed(format!("{}: {error}", self.name))
    }

    /// When what starts now must have ended.
    #[inline]
    pub fn terms(&self) -> Terms {
        Terms::by(self.now.after(self.job.patience()))
    }

    /// Make progress, and count what has ended.
    #[inline]
    pub fn poll(&mut self) -> Result<(), Failure> {
        self.polls = self.polls.wrapping_add(1);
        self.quiet = self.quiet.saturating_add(1);
        if self.polls.is_multiple_of(CLOCK) {
            self.now = Time::now();
            self.look_around()?;
        }
        self.end.poll(self.now);
        while let Some(completion) = self.end.next_completion() {
            self.quiet = 0;
            completion.end.ok().map_err(|error| self.lost(error))?;
            match completion.context {
                MEASURED => {
                    self.done += 1;
                    self.before = completion.before;
                }
                _ => self.has_met = true,
            }
        }
        Ok(())
    }

    fn look_around(&mut self) -> Result<(), Failure> {
        // on a busy machine the other side may be waiting for this core
        if self.shares_core || self.quiet > QUIET {
            vervain_transport::sync::thread::yield_now();
        }
        if self.polls.is_multiple_of(ALIVE) {
            self.end.is_up(self.peer).map_err(|error| self.lost(error))?;
        }
        Ok(())
    }

    /// The same, and take messages.
    pub fn step(&mut self) -> Result<(), Failure> {
        self.poll()?;
        while let Some(message) = self.end.next_message() {
            self.quiet = 0;
            if message.tag != CONTROL {
                self.arrived += 1;
                if self.keeps {
                    self.kept = Some(message.bytes.to_vec());
                }
                continue;
            }
            match serde_json::from_slice(message.bytes) {
                Ok(Say::Sent) => self.owes_taken = true,
                Ok(say) => self.heard.push_back(say),
                Err(error) => return Err(Failure::failed(format!("{} is another version: {error}", self.name))),
            }
        }
        if self.owes_taken {
            self.owes_taken = !self.try_say(&Say::Taken)?;
        }
        Ok(())
    }

    fn try_say(&mut self, say: &Say) -> Result<bool, Failure> {
        let text = serde_json::to_vec(say).map_err(|_| Failure::from(Error::new(vervain_transport::Kind::Bug)))?;
        let terms = self.terms().detached();
        match self.end.send(self.peer, CONTROL, &text, terms) {
            Ok(Posted::Started(_)) => Ok(true),
            Ok(Posted::Busy) => Ok(false),
            Err(error) => Err(self.lost(error)),
        }
    }

    /// Say something.
    pub fn say(&mut self, say: &Say) -> Result<(), Failure> {
        while !self.try_say(say)? {
            self.step()?;
        }
        // what was handed over must also leave
        self.step()
    }

    /// Wait for the first thing said that `pick` takes, serving the peer meanwhile. A peer that is gone ends this.
    pub fn hear<T>(&mut self, pick: impl Fn(&Say) -> Option<T>) -> Result<T, Failure> {
        loop {
            if let Some(value) = self.take_heard(&pick) {
                return Ok(value);
            }
            self.step()?;
        }
    }

    /// The first thing said that `pick` takes, if it is here.
    pub fn take_heard<T>(&mut self, pick: impl Fn(&Say) -> Option<T>) -> Option<T> {
        let (at, value) = self.heard.iter().enumerate().find_map(|(at, say)| Some((at, pick(say)?)))?;
        self.heard.remove(at);
        Some(value)
    }

    /// Whether the peer has said that it needs us no more.
    #[inline]
    pub fn is_stopped(&mut self) -> bool {
        !self.heard.is_empty() && self.take_heard(|say| (*say == Say::Stop).then_some(())).is_some()
    }

    /// Meet the other side.
    pub fn meet(&mut self) -> Result<(), Failure> {
        self.has_met = false;
        self.now = Time::now();
        loop {
            let terms = self.terms().context(MEETING);
            match self.end.barrier(&[self.peer], terms) {
                Ok(Posted::Started(_)) => break,
                Ok(Posted::Busy) => self.step()?,
                Err(error) => return Err(self.lost(error)),
            }
        }
        while !self.has_met {
            self.step()?;
        }
        Ok(())
    }

    /// Whether a measured transfer has not ended.
    #[inline]
    pub fn has_open(&self) -> bool {
        self.done < self.posted
    }

    /// Wait until all measured transfers have ended.
    pub fn drain(&mut self) -> Result<(), Failure> {
        while self.has_open() {
            self.step()?;
        }
        Ok(())
    }

    /// Leave together, so that neither sees the other vanish.
    pub fn leave(&mut self) -> Result<(), Failure> {
        self.say(&Say::Bye)?;
        self.hear(|say| (*say == Say::Bye).then_some(()))?;
        // the other side may have what we said and be gone
        let _ = self.step();
        Ok(())
    }
}
