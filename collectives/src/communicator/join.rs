//! From a unique id to a communicator: make the fabrics, meet the others, agree on one fabric.

use core::cell::RefCell;
use core::task::Poll;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};

use vervain_transport::auth::random;
use vervain_transport::fabric::{Backend, Fabric, Identity, shm, tcp};
use vervain_transport::{Error, Kind, Rank, Result, Time};

use super::{Communicator, Config, Inner, Progress, Protocol};
use crate::bootstrap::{InitError, Join, Joined, Member, UniqueId};
use crate::control::poll;
use crate::executor::{self, Engine, Links};

/// A rank on its way into a job, driven by [`Joining::step`] without blocking.
#[derive(Debug)]
pub struct Joining {
    join: Join,
    fabrics: Fabrics,
    config: Config,
    prepared: bool,
    /// Why a fabric of ours could not be made, for the report.
    story: Option<String>,
}

/// The fabrics that this rank could make; the table decides which is used.
#[derive(Debug, Default)]
struct Fabrics {
    shm: Option<Box<dyn Fabric>>,
    tcp: Option<Box<dyn Fabric>>,
    incarnation: u64,
}

/// What a rank tells all others: its fabrics' addresses.
#[derive(Debug, Default, PartialEq, Eq)]
struct Offer {
    incarnation: u64,
    shm: Option<Vec<u8>>,
    tcp: Option<Vec<u8>>,
}

impl Joining {
    /// Start to join the job `id` as `rank` of `ranks`.
    ///
    /// # Errors
    /// As for [`Communicator::init_rank`].
    pub fn start(id: &UniqueId, rank: Rank, ranks: u32, config: &Config) -> Result<Self, Box<InitError>> {
        let now = Time::now();
        let made = Fabrics::make(id, rank, ranks, config);
        let (fabrics, offer, story) = match made {
            Ok(fabrics) => {
                let offer = fabrics.offer().emit();
                (fabrics, Ok(offer), None)
            }
            Err(Unusable { error, story }) => (Fabrics::default(), Err(error), Some(format!("rank {rank}: {story}"))),
        };
        let join = Join::start(id, rank, ranks, offer, now, now.after(config.init_timeout))?;
        Ok(Self { join, fabrics, config: config.clone(), prepared: false, story })
    }

    /// Go on.
    ///
    /// # Errors
    /// As for [`Communicator::init_rank`].
    pub fn step(&mut self, now: Time) -> Poll<Result<Communicator, Box<InitError>>> {
        if let Poll::Ready(result) = self.join.step(now) {
            return Poll::Ready(result.map_err(|error| self.tell(error)).and_then(|joined| self.finish(joined)));
        }
        if !self.prepared
            && let Some(members) = self.join.on_table()
        {
            let chosen = choose(members, &self.config).map(|_| ());
            self.prepared = true;
            self.join.ready(chosen, now);
        }
        Poll::Pending
    }

    /// Step until it is done, asleep in between.
    pub(super) fn wait(mut self) -> Result<Communicator, Box<InitError>> {
        loop {
            let now = Time::now();
            if let Poll::Ready(result) = self.step(now) {
                return result;
            }
            poll::wait(&self.join.watches(), now, self.join.wake(now));
        }
    }

    /// The error with what only we know of it.
    fn tell(&mut self, error: Box<InitError>) -> Box<InitError> {
        let Some(story) = self.story.take() else { return error };
        let mut lines = error.report.lines.clone();
        lines.push(story);
        Box::new(InitError::new(error.error, lines))
    }

    fn finish(&mut self, joined: Joined) -> Result<Communicator, Box<InitError>> {
        let rank = joined.rank;
        self.communicator(joined).map_err(|error| Box::new(InitError::from(error.with_rank(rank))))
    }

    fn communicator(&mut self, joined: Joined) -> Result<Communicator> {
        let (rank, ranks) = (joined.rank, joined.ranks);
        let local =
            joined.members.iter().filter(|member| member.host.boot == joined.members[rank.index()].host.boot).count();
        let links = match choose(&joined.members, &self.config)? {
            None => None,
            Some((backend, members)) => {
                let fabric = self.fabrics.take(backend).ok_or(Error::new(Kind::Bug))?;
                Some(Links::new(rank, fabric, members, self.config.timeout, self.config.first_step)?)
            }
        };
        let control = joined.mesh.handle();
        let (thread, mesh) = match self.config.progress {
            Progress::Thread => (Some(joined.mesh.spawn()?), None),
            Progress::Manual => (None, Some(joined.mesh)),
        };
        let mut engine = Engine::new(rank, links, control.clone(), mesh, self.config.timeout, local)?;
        let backend = engine.links().map(|links| {
            control.set_doorbell(links.fabric().doorbell());
            links.fabric().backend()
        });
        let inner = Inner {
            engine,
            config: self.config.clone(),
            operation: 0,
            prepared: Vec::new(),
            last: 0,
            programs: Vec::new(),
            alone: Vec::new(),
            pull: None,
            messages: vec![(0, 0); ranks as usize],
            begun: None,
        };
        Ok(Communicator { rank, ranks, backend, control, inner: RefCell::new(inner), _thread: thread })
    }
}

/// All ranks of a job as threads of this process.
pub(super) fn all(ranks: u32, config: &Config) -> Result<Vec<Communicator>, Box<InitError>> {
    let id = UniqueId::generate(None).map_err(|error| Box::new(InitError::from(error)))?;
    let joining: Result<Vec<_>, _> =
        (0..ranks).map(|rank| Joining::start(&id, Rank::new(rank), ranks, config)).collect();
    let mut waiting: Vec<Option<Joining>> = joining?.into_iter().map(Some).collect();
    let mut ready: Vec<Option<Communicator>> = (0..ranks).map(|_| None).collect();
    while ready.iter().any(Option::is_none) {
        let now = Time::now();
        for (slot, communicator) in waiting.iter_mut().zip(&mut ready) {
            let Some(joining) = slot else { continue };
            if let Poll::Ready(result) = joining.step(now) {
                *communicator = Some(result?);
                *slot = None;
            }
        }
        vervain_transport::sync::thread::yield_now();
    }
    Ok(ready.into_iter().flatten().collect())
}

/// The fabric that all ranks use, with everybody's address on it; none for a single rank.
fn choose(members: &[Member], config: &Config) -> Result<Option<(Backend, Vec<executor::Member>)>> {
    if members.len() == 1 {
        return Ok(None);
    }
    let offers: Result<Vec<Offer>> = members
        .iter()
        .zip(0..)
        .map(|(member, rank)| Offer::parse(&member.offer).ok_or(Error::new(Kind::Corrupt).with_rank(Rank::new(rank))))
        .collect();
    let offers = offers?;
    let one_host = members.iter().all(|member| member.host.boot == members[0].host.boot);
    let all_shm = one_host && offers.iter().all(|offer| offer.shm.is_some());
    let backend = match config.fabric {
        Some(Backend::Shm) if !all_shm => return Err(Kind::Unsupported.into()),
        None if all_shm => Backend::Shm,
        None => Backend::Tcp,
        Some(backend) => backend,
    };
    // Lines of 128 bytes arrive whole only in memory: nothing else may carry LL128 (L8-5).
    if config.protocol == Some(Protocol::Ll128) && backend != Backend::Shm {
        return Err(Kind::Unsupported.into());
    }
    let member = |offer: Offer| {
        let address = if backend == Backend::Shm { offer.shm } else { offer.tcp };
        address.map(|address| executor::Member { incarnation: offer.incarnation, address })
    };
    let members: Option<Vec<_>> = offers.into_iter().map(member).collect();
    Ok(Some((backend, members.ok_or(Error::new(Kind::Unsupported))?)))
}

/// A fabric that cannot be made, and why in a sentence.
#[derive(Debug)]
struct Unusable {
    error: Error,
    story: String,
}

impl Unusable {
    fn new(what: &str, error: Error) -> Self {
        Self { error, story: format!("{what} is not usable: {error}") }
    }
}

impl Fabrics {
    /// Those that the configuration allows. A fabric that cannot be made is an error only if it was asked for.
    fn make(id: &UniqueId, rank: Rank, ranks: u32, config: &Config) -> Result<Self, Unusable> {
        if let Some(backend) = config.fabric.filter(|backend| !matches!(backend, Backend::Shm | Backend::Tcp)) {
            return Err(Unusable::new(&format!("the fabric `{backend}`"), Kind::Unsupported.into()));
        }
        let random = random().map_err(|error| Unusable::new("the system's source of random bytes", error))?;
        let incarnation = u64::from_le_bytes(random);
        let mut fabrics = Self { incarnation, ..Self::default() };
        if ranks == 1 {
            return Ok(fabrics);
        }
        let identity = Identity { rank, incarnation, secret: id.secret().clone() };
        if config.fabric != Some(Backend::Tcp) {
            match shared_memory(identity.clone(), ranks) {
                Ok(shm) => fabrics.shm = Some(Box::new(shm)),
                Err(unusable) if config.fabric.is_some() => return Err(unusable),
                Err(unusable) => tracing::warn!("{}; all ranks go on over tcp", unusable.story),
            }
        }
        if config.fabric != Some(Backend::Shm) {
            let tcp = tcp::Tcp::new(identity, tcp_options(id.address()));
            fabrics.tcp = Some(Box::new(tcp.map_err(|error| Unusable::new("tcp", error))?));
        }
        Ok(fabrics)
    }

    fn offer(&self) -> Offer {
        let address = |fabric: &Option<Box<dyn Fabric>>| fabric.as_ref().map(|fabric| fabric.address());
        Offer { incarnation: self.incarnation, shm: address(&self.shm), tcp: address(&self.tcp) }
    }

    fn take(&mut self, backend: Backend) -> Option<Box<dyn Fabric>> {
        match backend {
            Backend::Shm => self.shm.take(),
            Backend::Tcp => self.tcp.take(),
            _ => None,
        }
    }
}

/// Bytes of the kernel's buffers per socket and direction: a message and a half, which stays in a core's cache.
const SOCKET_BUFFER: usize = 1 << 20;

/// Shared memory with room for what all ranks of this host will need, which is found out before anybody depends on it.
fn shared_memory(identity: Identity, ranks: u32) -> Result<shm::Shm, Unusable> {
    let options = shm::Options::from_env();
    let place = options
        .directory
        .as_ref()
        .map_or("shared memory".into(), |path| format!("shared memory in {} (VERVAIN_SHM_DIR)", path.display()));
    let mut shm = shm::Shm::new(identity, options).map_err(|error| Unusable::new(&place, error))?;
    match shm.check_room(executor::room(ranks as usize)) {
        Ok(()) => Ok(shm),
        Err(error) => {
            let story = shm.shortage().map_or_else(|| error.to_string(), shm::Shortage::to_string);
            Err(Unusable { error, story })
        }
    }
}

/// Links use the address from which rank 0 is reached; where that is not known yet, the interface that the rule chooses.
fn tcp_options(meeting: SocketAddr) -> tcp::Options {
    tcp::Options { address: reached_from(meeting), buffer: Some(SOCKET_BUFFER), ..tcp::Options::default() }
}

/// Our address on the way to `meeting`, as the kernel would choose it: a socket for datagrams that sends none. A link-local address
/// would also need its scope.
fn reached_from(meeting: SocketAddr) -> Option<IpAddr> {
    if meeting.ip().is_loopback() {
        return Some(meeting.ip());
    }
    let any = if meeting.is_ipv4() { IpAddr::V4(Ipv4Addr::UNSPECIFIED) } else { IpAddr::V6(Ipv6Addr::UNSPECIFIED) };
    let socket = UdpSocket::bind((any, 0)).ok()?;
    socket.connect(meeting).ok()?;
    let here = socket.local_addr().ok()?.ip();
    let is_link_local = matches!(here, IpAddr::V6(address) if address.is_unicast_link_local());
    (!here.is_unspecified() && !is_link_local).then_some(here)
}

impl Offer {
    fn emit(&self) -> Vec<u8> {
        let mut bytes = self.incarnation.to_le_bytes().to_vec();
        for address in [&self.shm, &self.tcp] {
            let address = address.as_deref().unwrap_or_default();
            bytes.extend((address.len() as u16).to_le_bytes());
            bytes.extend(address);
        }
        bytes
    }

    fn parse(bytes: &[u8]) -> Option<Self> {
        let (incarnation, bytes) = bytes.split_first_chunk()?;
        let (shm, bytes) = address(bytes)?;
        let (tcp, bytes) = address(bytes)?;
        bytes.is_empty().then_some(Self { incarnation: u64::from_le_bytes(*incarnation), shm, tcp })
    }
}

/// A counted address, and the rest. No bytes are no address.
fn address(bytes: &[u8]) -> Option<(Option<Vec<u8>>, &[u8])> {
    let (length, bytes) = bytes.split_first_chunk()?;
    let (address, rest) = bytes.split_at_checked(usize::from(u16::from_le_bytes(*length)))?;
    Some(((!address.is_empty()).then(|| address.to_vec()), rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn offers_round_trip_and_cut_ones_are_refused() {
        let offer = Offer { incarnation: 7, shm: Some(vec![1, 2, 3]), tcp: None };
        let bytes = offer.emit();
        assert_eq!(Offer::parse(&bytes), Some(offer));
        for length in 0..bytes.len() {
            assert_eq!(Offer::parse(&bytes[..length]), None);
        }
        assert_eq!(Offer::parse(&[&bytes[..], &[0]].concat()), None);
    }
}
