//! From connections to links: listen, accept, dial, and put the sockets of a link together.
//!
//! Everything that has not proven who it is, is bounded: in number by [`Options::pending`], in time by [`Options::handshake`].

use core::time::Duration;
use std::net::{IpAddr, SocketAddr};

use socket2::{Domain, Protocol, TcpKeepalive, Type};

use super::{
    MOST_SOCKETS, Options,
    address::Address,
    greeting::{Greeted, Greeting, Place, log},
    interface::{self, Interface, Spec},
    link::Peer,
    poller::{Interest, Poller, Token},
    stream::Socket,
};
use crate::{
    Error, Kind, Rank, Result, Time,
    fabric::{Identity, LinkId},
};

/// Connections accepted in one go.
const ACCEPTS: usize = 16;
/// How long the listener rests when no descriptor or no place is free.
const REST: Duration = Duration::from_millis(50);
/// When places are short, a stranger that has been silent for this long makes room.
const PATIENCE: Duration = Duration::from_secs(1);
/// How long a closed link waits for its peer to take what was sent.
const LINGER: Duration = Duration::from_secs(2);

/// What came of handshakes.
#[derive(Debug)]
pub(super) enum Arrival {
    /// A link is complete.
    Link { dialled: Option<LinkId>, peer: Peer, sockets: Vec<Socket> },
    /// A link that we dialled has failed.
    Failed { link: LinkId, error: Error },
}

#[derive(Debug)]
struct Entry {
    greeting: Greeting,
    dialled: Option<LinkId>,
    since: Time,
}

/// A link that lacks sockets.
#[derive(Debug)]
struct Assembly {
    dialled: Option<LinkId>,
    /// Who is at the other end; known when the first socket is greeted.
    peer: Option<Peer>,
    to: Option<Rank>,
    sockets: Vec<Option<Socket>>,
    deadline: Time,
}

/// All connections that are not yet links.
#[derive(Debug)]
pub(super) struct Establish {
    identity: Identity,
    options: Options,
    listener: socket2::Socket,
    local: SocketAddr,
    entries: Vec<Option<Entry>>,
    assemblies: Vec<Assembly>,
    arrivals: Vec<Arrival>,
    /// Sockets of closed links.
    lingering: Vec<(Socket, Time)>,
    /// The listener rests until then.
    resting: Option<Time>,
}

impl Establish {
    pub(super) fn new(identity: Identity, options: Options, poller: &Poller) -> Result<Self> {
        let local = own_address(&options)?.socket(0);
        let listener = open(local)?;
        listener.listen(1024)?;
        let local = listener.local_addr()?.as_socket().ok_or(Kind::Bug)?;
        let this = Self {
            identity,
            options,
            listener,
            local,
            entries: Vec::new(),
            assemblies: Vec::new(),
            arrivals: Vec::new(),
            lingering: Vec::new(),
            resting: None,
        };
        poller.add(this.listener_fd(), Token::Listener, Interest::Readable)?;
        Ok(this)
    }

    fn listener_fd(&self) -> i32 {
        std::os::fd::AsRawFd::as_raw_fd(&self.listener)
    }

    pub(super) fn rank(&self) -> Rank {
        self.identity.rank
    }

    pub(super) fn local(&self) -> SocketAddr {
        self.local
    }

    pub(super) fn address(&self) -> Address {
        Address { socket: self.local, incarnation: self.identity.incarnation, sockets: self.options.sockets }
    }

    /// Whether epoll should be asked at every poll.
    pub(super) fn is_busy(&self) -> bool {
        !self.arrivals.is_empty() || !self.assemblies.is_empty() || self.entries.iter().any(Option::is_some)
    }

    /// When something ends by itself.
    pub(super) fn next_deadline(&self) -> Time {
        let entries = self.entries.iter().flatten().map(|entry| entry.greeting.deadline());
        let assemblies = self.assemblies.iter().map(|assembly| assembly.deadline);
        entries.chain(assemblies).chain(self.resting).min().unwrap_or(Time::NEVER)
    }

    /// Start all sockets of a link.
    pub(super) fn dial(
        &mut self,
        link: LinkId,
        to: Rank,
        address: &Address,
        deadline: Time,
        poller: &Poller,
    ) -> Result<()> {
        if address.ip().is_ipv4() != self.local.is_ipv4() {
            return Err(Error::new(Kind::Unsupported).with_rank(to));
        }
        let count = self.options.sockets.min(address.sockets).clamp(1, MOST_SOCKETS);
        let nonce = u64::from_le_bytes(crate::auth::random()?);
        let since = Time::now();
        for index in 0..count {
            let place = Place { nonce, origin: self.options.origin, index, count };
            let started = self.start(address, (to, address.incarnation), place, deadline);
            let added =
                started.and_then(|greeting| self.insert(Entry { greeting, dialled: Some(link), since }, poller));
            if let Err(error) = added {
                self.forget(link);
                return Err(error.with_rank(to));
            }
        }
        let sockets = (0..count).map(|_| None).collect();
        self.assemblies.push(Assembly { dialled: Some(link), peer: None, to: Some(to), sockets, deadline });
        Ok(())
    }

    fn start(&self, address: &Address, to: (Rank, u64), place: Place, deadline: Time) -> Result<Greeting> {
        let mut from = self.local;
        from.set_port(0);
        let socket = open(from)?;
        let to_address = address.seen_from(self.local);
        tune(&socket, &self.options)?;
        tune_for_host(&socket, self.local.ip(), to_address.ip());
        match socket.connect(&to_address.into()) {
            Ok(()) => {}
            Err(error) if error.raw_os_error() == Some(libc::EINPROGRESS) => {}
            Err(error) => return Err(Error::new(Kind::LinkFailed).with_os(error.raw_os_error().unwrap_or(0))),
        }
        Greeting::dial(socket.into(), &self.identity, to, place, deadline)
    }

    fn insert(&mut self, entry: Entry, poller: &Poller) -> Result<()> {
        let slot = self.entries.iter().position(Option::is_none).unwrap_or(self.entries.len());
        poller.add(entry.greeting.fd(), Token::Greeting(slot as u32), Interest::Changes)?;
        if slot == self.entries.len() {
            self.entries.push(None);
        }
        self.entries[slot] = Some(entry);
        Ok(())
    }

    /// Take connections from the listener.
    pub(super) fn accept(&mut self, now: Time, poller: &Poller) {
        for _ in 0..ACCEPTS {
            if !self.has_place(now) {
                return self.rest(now, poller);
            }
            match self.listener.accept() {
                // A connection that cannot be set up is dropped, like one that was never made.
                Ok((socket, _)) => drop(self.greet(socket, now, poller)),
                Err(error) => match error.raw_os_error() {
                    Some(libc::EAGAIN) => return,
                    Some(libc::EMFILE | libc::ENFILE | libc::ENOBUFS | libc::ENOMEM) => {
                        tracing::warn!(%error, "no descriptor for a new connection; raise the limit of open files");
                        return self.rest(now, poller);
                    }
                    // The connection went away before it was taken.
                    _ => {}
                },
            }
        }
    }

    fn greet(&mut self, socket: socket2::Socket, now: Time, poller: &Poller) -> Result<()> {
        socket.set_nonblocking(true)?;
        tune(&socket, &self.options)?;
        let (local, remote) = (socket.local_addr()?, socket.peer_addr()?);
        if let Some((local, remote)) = local.as_socket().zip(remote.as_socket()) {
            log(local, remote);
            tune_for_host(&socket, local.ip(), remote.ip());
        }
        let deadline = now.after(self.options.handshake);
        let greeting = Greeting::accept(socket.into(), &self.identity, deadline);
        self.insert(Entry { greeting, dialled: None, since: now }, poller)
    }

    /// Whether one more stranger may come; sends the most patient one away if that helps.
    fn has_place(&mut self, now: Time) -> bool {
        let strangers = || self.entries.iter().enumerate().filter_map(|(slot, entry)| Some((slot, entry.as_ref()?)));
        let strangers = || strangers().filter(|(_, entry)| entry.dialled.is_none());
        if strangers().count() < self.options.pending {
            return true;
        }
        match strangers().min_by_key(|(_, entry)| entry.since) {
            Some((slot, entry)) if now.since(entry.since) >= PATIENCE => {
                self.entries[slot] = None;
                true
            }
            _ => false,
        }
    }

    fn rest(&mut self, now: Time, poller: &Poller) {
        if poller.change(self.listener_fd(), Token::Listener, Interest::Nothing).is_ok() {
            self.resting = Some(now.after(REST));
        }
    }

    /// Something happened to a socket in its handshake.
    pub(super) fn step(&mut self, slot: u32, now: Time) {
        let Some(place) = self.entries.get_mut(slot as usize) else { return };
        let Some(entry) = place else { return };
        let dialled = entry.dialled;
        match entry.greeting.step() {
            Ok(false) => {}
            Ok(true) => {
                if let Some(greeted) = place.take().and_then(|entry| entry.greeting.end()) {
                    self.assemble(greeted, dialled, now);
                }
            }
            Err(error) => {
                *place = None;
                match dialled {
                    Some(link) => self.give_up(link, error),
                    None => tracing::debug!(%error, "a connection that did not prove who it is"),
                }
            }
        }
    }

    fn assemble(&mut self, greeted: Greeted, dialled: Option<LinkId>, now: Time) {
        let Greeted { socket, peer, place } = greeted;
        let same = |assembly: &Assembly| match dialled {
            Some(_) => assembly.dialled == dialled,
            None => assembly.dialled.is_none() && assembly.peer == Some(peer),
        };
        let found = self.assemblies.iter().position(same).or_else(|| self.begin(dialled, place, now));
        let Some(at) = found else { return };
        let assembly = &mut self.assemblies[at];
        assembly.peer = Some(peer);
        let agreed = assembly.sockets.len() == place.count as usize;
        match assembly.sockets.get_mut(place.index as usize) {
            Some(free @ None) if agreed => *free = Some(socket),
            // A correct peer does not send the same socket twice.
            _ => return,
        }
        if assembly.sockets.iter().all(Option::is_some) {
            let assembly = self.assemblies.swap_remove(at);
            let sockets = assembly.sockets.into_iter().flatten().collect();
            self.arrivals.push(Arrival::Link { dialled, peer, sockets });
        }
    }

    /// The first socket of a link that a peer dials.
    fn begin(&mut self, dialled: Option<LinkId>, place: Place, now: Time) -> Option<usize> {
        if dialled.is_some() || self.assemblies.len() >= self.options.pending {
            return None;
        }
        let sockets = (0..place.count).map(|_| None).collect();
        let deadline = now.after(self.options.handshake);
        self.assemblies.push(Assembly { dialled: None, peer: None, to: None, sockets, deadline });
        Some(self.assemblies.len() - 1)
    }

    fn give_up(&mut self, link: LinkId, error: Error) {
        let to =
            self.assemblies.iter().find(|assembly| assembly.dialled == Some(link)).and_then(|assembly| assembly.to);
        let error = to.map_or(error, |to| error.with_rank(to));
        self.forget(link);
        self.arrivals.push(Arrival::Failed { link, error });
    }

    /// Drop everything of a link that we dialled.
    pub(super) fn forget(&mut self, link: LinkId) {
        self.assemblies.retain(|assembly| assembly.dialled != Some(link));
        for entry in &mut self.entries {
            if entry.as_ref().is_some_and(|entry| entry.dialled == Some(link)) {
                *entry = None;
            }
        }
    }

    /// What has arrived; drops what has had its time.
    pub(super) fn poll(&mut self, now: Time, poller: &Poller) -> Option<Arrival> {
        self.wake(now, poller);
        self.lingering.retain_mut(|(socket, deadline)| *deadline > now && is_open(socket));
        for slot in 0..self.entries.len() {
            let Some(entry) = &self.entries[slot] else { continue };
            if entry.greeting.deadline() > now {
                continue;
            }
            let dialled = entry.dialled;
            self.entries[slot] = None;
            dialled.into_iter().for_each(|link| self.give_up(link, Kind::TimedOut.into()));
        }
        let late = |assembly: &Assembly| assembly.deadline <= now;
        while let Some(at) = self.assemblies.iter().position(late) {
            match self.assemblies[at].dialled {
                Some(link) => self.give_up(link, Kind::TimedOut.into()),
                None => drop(self.assemblies.swap_remove(at)),
            }
        }
        self.arrivals.pop()
    }

    fn wake(&mut self, now: Time, poller: &Poller) {
        if self.resting.is_some_and(|until| until <= now)
            && poller.change(self.listener_fd(), Token::Listener, Interest::Readable).is_ok()
        {
            self.resting = None;
        }
    }

    /// Keep the sockets of a closed link until the peer has taken what was sent: closing them at once could destroy it.
    pub(super) fn linger(&mut self, sockets: Vec<Socket>) {
        let deadline = Time::now().after(LINGER);
        self.lingering.extend(sockets.into_iter().map(|socket| (socket, deadline)));
    }
}

/// Throw away what comes; whether more may.
fn is_open(socket: &mut Socket) -> bool {
    let mut waste = [0; 4096];
    match socket.receive_bytes(&mut waste) {
        Ok(count) => count > 0,
        Err(error) => error.kind() == std::io::ErrorKind::WouldBlock,
    }
}

/// The address to listen on and to connect from.
fn own_address(options: &Options) -> Result<Interface> {
    let interfaces = interface::enumerate()?;
    if let Some(address) = options.address {
        let known = interfaces.into_iter().find(|interface| interface.address == address);
        // Not listed does not mean impossible: all of 127.0.0.0/8 can be bound.
        return match address {
            IpAddr::V4(any) if any.is_unspecified() => Err(Kind::InvalidArgument.into()),
            IpAddr::V6(any) if any.is_unspecified() => Err(Kind::InvalidArgument.into()),
            _ => Ok(known.unwrap_or(Interface { name: String::new(), address, index: 0 })),
        };
    }
    let spec = Spec::parse(options.interface.as_deref().unwrap_or(""));
    spec.and_then(|spec| interface::choose(&spec, &interfaces)).map_err(|error| {
        tracing::warn!("{error}");
        Kind::InvalidArgument.into()
    })
}

/// A non-blocking socket bound to `local`.
fn open(local: SocketAddr) -> Result<socket2::Socket> {
    let socket = socket2::Socket::new(Domain::for_address(local), Type::STREAM, Some(Protocol::TCP))?;
    socket.set_nonblocking(true)?;
    socket.bind(&local.into())?;
    Ok(socket)
}

/// Within one host nothing is lost and nothing has to be paced: the plainest congestion control is the fastest. Where `bbr` is the
/// default, 1 MiB writes reach 9.1 GB/s with `reno` instead of 6.8 (2-core Xeon VM, Linux 6.18, 2026-12-01), small ones twice as
/// much. Every kernel has `reno` and lets everybody choose it.
fn tune_for_host(socket: &socket2::Socket, local: IpAddr, remote: IpAddr) {
    if local == remote || remote.is_loopback() {
        // A kernel that refuses is only slower.
        let _ = socket.set_tcp_congestion(b"reno");
    }
}

fn tune(socket: &socket2::Socket, options: &Options) -> Result<()> {
    socket.set_tcp_nodelay(true)?;
    let keepalive = TcpKeepalive::new().with_time(Duration::from_secs(15)).with_interval(Duration::from_secs(5));
    socket.set_tcp_keepalive(&keepalive.with_retries(6))?;
    socket.set_tcp_user_timeout(Some(options.silence))?;
    if let Some(bytes) = options.buffer {
        socket.set_send_buffer_size(bytes)?;
        socket.set_recv_buffer_size(bytes)?;
    }
    Ok(())
}
