//! From a connected socket to a peer that is proven and whose memory is mapped.
//!
//! ```text
//! dialer                                 acceptor
//!   hello               ->
//!                       <-                 challenge
//!   proof               ->
//!   setup + 2 files     ->
//!                       <-                 setup + 2 files
//! ```
//! The messages of [`auth`](crate::auth) come first; nothing of a stranger's is mapped or kept. Each step is one packet, taken when
//! it is there; whoever is silent, or sends something else, is dropped at the deadline or at once.

use std::{
    io,
    os::fd::{AsFd, OwnedFd},
    sync::Arc,
};

use memmap2::MmapRaw;

use super::{
    address::Address,
    host::Host,
    lanes::INBOX,
    memory::{self, Segment},
    socket::{self, Incoming, Packet},
};
use crate::{
    Error, Kind, Rank, Result, Time,
    auth::{Acceptor, CHALLENGE, Dialer, HELLO, PROOF, Peer, Purpose},
    fabric::{
        Access, Identity,
        doorbell::{self, Ringing},
    },
};

/// What one end tells the other about itself when both are proven.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Setup {
    /// Binds keys to this link and direction.
    pub nonce: u64,
    /// Where the probe word lies in the sender's address space.
    pub probe_at: u64,
    /// What it holds.
    pub probe_value: u64,
    /// How its doorbell is to be rung.
    pub ringing: Ringing,
}

/// Size of a setup packet, in bytes.
const SETUP: usize = 40;
const MAGIC: [u8; 8] = *b"VVSETUP\x01";

impl Setup {
    fn emit(&self) -> [u8; SETUP] {
        let mut bytes = [0; SETUP];
        bytes[..8].copy_from_slice(&MAGIC);
        let ringing = u64::from(self.ringing == Ringing::Light);
        for (at, word) in [self.nonce, self.probe_at, self.probe_value, ringing].into_iter().enumerate() {
            bytes[8 + 8 * at..16 + 8 * at].copy_from_slice(&word.to_le_bytes());
        }
        bytes
    }

    fn parse(packet: &Packet) -> Option<Self> {
        let bytes = packet.exactly::<SETUP>()?;
        let word = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"));
        let ringing = if word(32) == 1 { Ringing::Light } else { Ringing::Full };
        (bytes[..8] == MAGIC).then(|| Self { nonce: word(8), probe_at: word(16), probe_value: word(24), ringing })
    }
}

/// A proven peer with its memory.
#[derive(Debug)]
pub(super) struct Joined {
    pub socket: OwnedFd,
    pub peer: Peer,
    /// Our setup's nonce.
    pub own_nonce: u64,
    pub setup: Setup,
    /// Our end of the link, written by the peer.
    pub inbox: Segment,
    /// The peer's end, written by us.
    pub outbox: MmapRaw,
    pub bell: Arc<MmapRaw>,
}

/// A link that we dial.
#[derive(Debug)]
pub(super) struct Call {
    pub link: u32,
    pub to: Rank,
    pub deadline: Time,
    address: Address,
    dialer: Dialer,
    socket: Option<OwnedFd>,
    proven: Option<Proven>,
}

/// Somebody who dialled us.
#[derive(Debug)]
pub(super) struct Guest {
    pub deadline: Time,
    /// `None` once it went to a link.
    socket: Option<OwnedFd>,
    acceptor: Acceptor,
    state: Entry,
}

/// What a guest is to send next.
#[derive(Clone, Copy, Debug)]
enum Entry {
    Hello,
    Proof,
    Setup(Peer),
}

/// The dialled peer is proven; its setup is awaited.
#[derive(Debug)]
struct Proven {
    peer: Peer,
    own_nonce: u64,
    inbox: Segment,
}

impl Call {
    pub fn new(identity: &Identity, link: u32, address: Address, deadline: Time) -> Result<Self> {
        let to = address.rank;
        let dialer = Dialer::new(identity, Purpose::Link, to)?;
        Ok(Self { link, to, deadline, address, dialer, socket: None, proven: None })
    }

    /// The socket, if this call connected it; `None` if it was before, or if too many wait at the peer.
    pub fn connect(&mut self) -> Result<Option<&OwnedFd>> {
        if self.socket.is_some() {
            return Ok(None);
        }
        let socket = match socket::connect(&self.address.name) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(None),
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => return Err(self.error(Kind::PeerDied)),
            socket => socket?,
        };
        socket::send(socket.as_fd(), self.dialer.hello(), &[]).map_err(|_| self.error(Kind::LinkFailed))?;
        Ok(Some(self.socket.insert(socket)))
    }

    /// Whether the socket is still to be connected.
    pub fn is_waiting_to_connect(&self) -> bool {
        self.socket.is_none()
    }

    /// Take what has arrived.
    pub fn step(&mut self, host: &mut Host) -> Result<Option<Joined>> {
        while let Some(socket) = &self.socket {
            let packet = match socket::receive(socket.as_fd()) {
                Incoming::Packet(packet) => packet,
                Incoming::Nothing => break,
                Incoming::End => return Err(self.error(Kind::LinkFailed)),
            };
            match self.proven.take() {
                None => self.on_challenge(&packet, host)?,
                Some(proven) => return self.on_setup(proven, packet, host).map(Some),
            }
        }
        Ok(None)
    }

    fn on_challenge(&mut self, packet: &Packet, host: &mut Host) -> Result<()> {
        let challenge = packet.exactly::<CHALLENGE>().ok_or(self.error(Kind::Corrupt))?;
        let (peer, proof) = self.dialer.on_challenge(challenge)?;
        if peer.incarnation != self.address.incarnation {
            return Err(self.error(Kind::PeerDied));
        }
        let socket = self.socket.as_ref().ok_or(self.error(Kind::Bug))?;
        let (setup, inbox) = host.offer()?;
        socket::send(socket.as_fd(), &proof, &[]).map_err(|_| self.error(Kind::LinkFailed))?;
        give(socket, &setup, &inbox, host).map_err(|_| self.error(Kind::LinkFailed))?;
        self.proven = Some(Proven { peer, own_nonce: setup.nonce, inbox });
        Ok(())
    }

    fn on_setup(&mut self, proven: Proven, packet: Packet, host: &Host) -> Result<Joined> {
        let Proven { peer, own_nonce, inbox } = proven;
        let (setup, outbox, bell) = take(packet, host).map_err(|error| error.with_rank(self.to))?;
        let socket = self.socket.take().ok_or(self.error(Kind::Bug))?;
        Ok(Joined { socket, peer, own_nonce, setup, inbox, outbox, bell })
    }

    fn error(&self, kind: Kind) -> Error {
        Error::new(kind).with_rank(self.to)
    }
}

impl Guest {
    pub fn new(identity: &Identity, socket: OwnedFd, deadline: Time) -> Self {
        let acceptor = Acceptor::new(identity, Purpose::Link);
        Self { deadline, socket: Some(socket), acceptor, state: Entry::Hello }
    }

    /// Take what has arrived. After an error the guest is to be dropped.
    pub fn step(&mut self, host: &mut Host) -> Result<Option<Joined>> {
        while let Some(socket) = &self.socket {
            let packet = match socket::receive(socket.as_fd()) {
                Incoming::Packet(packet) => packet,
                Incoming::Nothing => break,
                Incoming::End => return Err(Kind::LinkFailed.into()),
            };
            self.state = match self.state {
                Entry::Hello => {
                    let challenge = self.acceptor.on_hello(packet.exactly::<HELLO>().ok_or(Kind::Corrupt)?)?;
                    socket::send(socket.as_fd(), &challenge, &[])?;
                    Entry::Proof
                }
                Entry::Proof => Entry::Setup(self.acceptor.on_proof(packet.exactly::<PROOF>().ok_or(Kind::Corrupt)?)?),
                Entry::Setup(peer) => return self.on_setup(peer, packet, host).map(Some),
            };
        }
        Ok(None)
    }

    fn on_setup(&mut self, peer: Peer, packet: Packet, host: &mut Host) -> Result<Joined> {
        let (theirs, outbox, bell) = take(packet, host)?;
        let (ours, inbox) = host.offer()?;
        let socket = self.socket.take().ok_or(Kind::Bug)?;
        give(&socket, &ours, &inbox, host)?;
        Ok(Joined { socket, peer, own_nonce: ours.nonce, setup: theirs, inbox, outbox, bell })
    }
}

fn give(socket: &OwnedFd, setup: &Setup, inbox: &Segment, host: &Host) -> io::Result<()> {
    socket::send(socket.as_fd(), &setup.emit(), &[inbox.file.as_fd(), host.bell_file.as_fd()])
}

/// The peer's setup: its inbox and its doorbell, mapped.
fn take(mut packet: Packet, host: &Host) -> Result<(Setup, MmapRaw, Arc<MmapRaw>)> {
    let setup = Setup::parse(&packet).ok_or(Kind::Corrupt)?;
    let [Some(outbox), Some(bell)] = core::mem::take(&mut packet.files) else { return Err(Kind::Corrupt.into()) };
    let seals = host.place.demands_seals();
    let outbox = memory::adopt(outbox, memory::whole_pages(INBOX)?, seals, Access::ReadWrite)?;
    let bell = memory::adopt(bell, memory::whole_pages(doorbell::PAGE)?, seals, Access::ReadWrite)?;
    Ok((setup, outbox, Arc::new(bell)))
}
