//! One authenticated connection that carries length-prefixed frames and never blocks.
//!
//! Nothing is read beyond the handshake's fixed sizes before the peer has proved that it knows the secret, and no frame longer
//! than the owner's limit after that: a stranger costs at most a few hundred bytes. A failed write is remembered and not
//! reported, because what the peer said before it went away can still be read; the read side decides.

use std::collections::VecDeque;
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use socket2::{Domain, Protocol, Socket, Type};
use vervain_transport::auth::{Acceptor, CHALLENGE, Dialer, HELLO, PROOF, Peer, Purpose};
use vervain_transport::fabric::Identity;
use vervain_transport::{Kind, Rank, Result};

/// Bytes of the length in front of a frame.
const PREFIX: usize = 4;
/// The acceptor's answer to a good proof.
const WELCOME: u8 = 0x06;
/// Read at most this much ahead.
const AHEAD: usize = 16 << 10;

/// A frame with its length in front, shared between the channels it is queued on.
pub(crate) type Frame = Arc<[u8]>;

/// Put the length in front of a payload.
pub(crate) fn frame(payload: &[u8]) -> Frame {
    let mut bytes = Vec::with_capacity(PREFIX + payload.len());
    bytes.extend_from_slice(&(payload.len() as u32).to_le_bytes());
    bytes.extend_from_slice(payload);
    bytes.into()
}

/// The connection.
#[derive(Debug)]
pub(crate) struct Channel {
    stream: TcpStream,
    stage: Stage,
    input: Vec<u8>,
    output: VecDeque<Frame>,
    /// Bytes of the first queued frame that are sent.
    sent: usize,
    queued: usize,
    /// Largest payload that the peer may send.
    limit: usize,
    deaf: bool,
}

#[derive(Debug)]
enum Stage {
    Challenge(Dialer),
    Welcome(Peer),
    Hello(Acceptor),
    Proof(Acceptor),
    Open(Peer),
}

impl Channel {
    /// Start to connect to `to`. Whether anybody listens there turns out in [`Channel::shake`].
    pub(crate) fn dial(
        identity: &Identity,
        purpose: Purpose,
        to: Rank,
        address: SocketAddr,
        limit: usize,
    ) -> Result<Self> {
        let dialer = Dialer::new(identity, purpose, to)?;
        let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
        socket.set_nonblocking(true)?;
        socket.set_tcp_nodelay(true)?;
        match socket.connect(&address.into()) {
            Ok(()) => {}
            Err(error) if error.raw_os_error() == Some(libc::EINPROGRESS) => {}
            Err(_) => return Err(Kind::LinkFailed.into()),
        }
        let hello = Arc::from(&dialer.hello()[..]);
        let mut channel = Self::new(socket.into(), Stage::Challenge(dialer), limit);
        channel.queue(hello);
        Ok(channel)
    }

    /// Take over an accepted connection.
    pub(crate) fn accepted(stream: TcpStream, identity: &Identity, purpose: Purpose, limit: usize) -> Result<Self> {
        stream.set_nonblocking(true)?;
        stream.set_nodelay(true)?;
        Ok(Self::new(stream, Stage::Hello(Acceptor::new(identity, purpose)), limit))
    }

    fn new(stream: TcpStream, stage: Stage, limit: usize) -> Self {
        Self { stream, stage, input: Vec::new(), output: VecDeque::new(), sent: 0, queued: 0, limit, deaf: false }
    }

    /// Go on with the handshake: the proven peer, once it is done.
    ///
    /// # Errors
    /// `LinkFailed` if the connection was refused or closed; whatever the handshake says otherwise. Drop the channel then.
    pub(crate) fn shake(&mut self) -> Result<Option<Peer>> {
        loop {
            self.flush();
            let advanced = match &self.stage {
                Stage::Open(peer) => return Ok(Some(*peer)),
                Stage::Challenge(_) => self.on_challenge()?,
                Stage::Welcome(_) => self.on_welcome()?,
                Stage::Hello(_) => self.on_hello()?,
                Stage::Proof(_) => self.on_proof()?,
            };
            if !advanced {
                return if self.deaf { Err(Kind::LinkFailed.into()) } else { Ok(None) };
            }
        }
    }

    fn on_challenge(&mut self) -> Result<bool> {
        if !self.fill(CHALLENGE)? {
            return Ok(false);
        }
        if self.is_talking_to_itself() {
            return Err(Kind::LinkFailed.into());
        }
        let challenge = self.take::<CHALLENGE>();
        let Stage::Challenge(dialer) = &self.stage else { return Err(Kind::Bug.into()) };
        let (peer, proof) = dialer.on_challenge(&challenge)?;
        self.stage = Stage::Welcome(peer);
        self.queue(Arc::from(&proof[..]));
        Ok(true)
    }

    fn on_welcome(&mut self) -> Result<bool> {
        if !self.fill(1)? {
            return Ok(false);
        }
        let Stage::Welcome(peer) = self.stage else { return Err(Kind::Bug.into()) };
        if self.take::<1>() != [WELCOME] {
            return Err(Kind::Corrupt.into());
        }
        self.stage = Stage::Open(peer);
        Ok(true)
    }

    fn on_hello(&mut self) -> Result<bool> {
        if !self.fill(HELLO)? {
            return Ok(false);
        }
        let hello = self.take::<HELLO>();
        let Stage::Hello(mut acceptor) = core::mem::replace(&mut self.stage, Stage::Welcome(NOBODY)) else {
            return Err(Kind::Bug.into());
        };
        let challenge = acceptor.on_hello(&hello)?;
        self.stage = Stage::Proof(acceptor);
        self.queue(Arc::from(&challenge[..]));
        Ok(true)
    }

    fn on_proof(&mut self) -> Result<bool> {
        if !self.fill(PROOF)? {
            return Ok(false);
        }
        let proof = self.take::<PROOF>();
        let Stage::Proof(acceptor) = &mut self.stage else { return Err(Kind::Bug.into()) };
        let peer = acceptor.on_proof(&proof)?;
        self.stage = Stage::Open(peer);
        self.queue(Arc::from(&[WELCOME][..]));
        Ok(true)
    }

    /// A dial of a free port of the ephemeral range can connect a socket to itself.
    fn is_talking_to_itself(&self) -> bool {
        matches!((self.stream.local_addr(), self.stream.peer_addr()), (Ok(here), Ok(there)) if here == there)
    }

    /// Our end's address, once connected.
    pub(crate) fn local_address(&self) -> Result<SocketAddr> {
        Ok(self.stream.local_addr()?)
    }

    /// Queue a frame; [`Channel::flush`] sends it.
    pub(crate) fn send(&mut self, frame: &Frame) {
        self.queue(Arc::clone(frame));
    }

    fn queue(&mut self, bytes: Arc<[u8]>) {
        self.queued += bytes.len();
        self.output.push_back(bytes);
    }

    /// Bytes that wait for the peer to read.
    pub(crate) fn backlog(&self) -> usize {
        self.queued
    }

    /// Whether there is something to write as soon as the peer takes it.
    pub(crate) fn is_writing(&self) -> bool {
        !self.deaf && !self.output.is_empty()
    }

    /// Write what the peer takes.
    pub(crate) fn flush(&mut self) {
        while let Some(bytes) = self.output.front() {
            match self.stream.write(&bytes[self.sent..]) {
                Ok(count) => self.on_written(count),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                Err(_) => {
                    self.deaf = true;
                    self.output.clear();
                    self.queued = 0;
                }
            }
        }
    }

    fn on_written(&mut self, count: usize) {
        self.sent += count;
        self.queued -= count;
        if self.output.front().is_some_and(|bytes| bytes.len() == self.sent) {
            self.output.pop_front();
            self.sent = 0;
        }
    }

    /// The next frame's payload, if it is here.
    ///
    /// # Errors
    /// `LinkFailed` if the peer closed the connection, `Corrupt` if it announces more than the limit.
    pub(crate) fn receive(&mut self) -> Result<Option<Vec<u8>>> {
        if !self.fill(PREFIX)? {
            return Ok(None);
        }
        let length = u32::from_le_bytes(self.input[..PREFIX].try_into().expect("four bytes")) as usize;
        if length > self.limit {
            return Err(Kind::Corrupt.into());
        }
        if !self.fill(PREFIX + length)? {
            return Ok(None);
        }
        let payload = self.input[PREFIX..PREFIX + length].to_vec();
        self.input.drain(..PREFIX + length);
        Ok(Some(payload))
    }

    /// Read until `wanted` bytes are here; false if the rest has not arrived.
    fn fill(&mut self, wanted: usize) -> Result<bool> {
        while self.input.len() < wanted {
            let ahead = if matches!(self.stage, Stage::Open(_)) { AHEAD } else { 0 };
            let start = self.input.len();
            self.input.resize((start + AHEAD).min(wanted.max(start + ahead)), 0);
            let result = self.stream.read(&mut self.input[start..]);
            self.input.truncate(start + result.as_ref().map_or(0, |&count| count));
            match result {
                Ok(0) => return Err(Kind::LinkFailed.into()),
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(false),
                Err(_) => return Err(Kind::LinkFailed.into()),
            }
        }
        Ok(true)
    }

    fn take<const N: usize>(&mut self) -> [u8; N] {
        let bytes = self.input[..N].try_into().expect("filled before");
        self.input.drain(..N);
        bytes
    }
}

/// Stands in while a stage is replaced.
const NOBODY: Peer = Peer { rank: Rank::new(u32::MAX), incarnation: 0, features: 0 };

impl AsFd for Channel {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }
}
