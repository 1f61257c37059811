//! The first bytes of every socket: the authenticated handshake, then which link and which of its sockets this is.
//!
//! ```text
//! dialer                                     acceptor
//!   auth hello                          ->
//!                                      <-    auth challenge
//!   auth proof, {link, index, count}    ->
//!                                      <-    welcome
//! ```
//! Every message has a fixed size, and nothing is read beyond it: a stranger costs one socket and these buffers until its deadline.

use std::net::SocketAddr;

use super::{link::Peer, stream::Socket};
use crate::{
    Error, Kind, Rank, Result, Time,
    auth::{self, Acceptor, CHALLENGE, Dialer, HELLO, PROOF, Purpose},
    fabric::Identity,
};

/// Size of {link nonce, origin of its counters, index, count}.
const PLACE: usize = 24;
const WELCOME: [u8; 8] = *b"VWELCOME";
/// The longest message.
const LONGEST: usize = 96;

const _: () = assert!(LONGEST >= HELLO && LONGEST >= CHALLENGE && LONGEST >= PROOF + PLACE);

/// Which socket of which link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) nonce: u64,
    pub(super) origin: u64,
    pub(super) index: u32,
    pub(super) count: u32,
}

impl Place {
    fn emit(&self) -> [u8; PLACE] {
        let mut raw = [0; PLACE];
        raw[..8].copy_from_slice(&self.nonce.to_le_bytes());
        raw[8..16].copy_from_slice(&self.origin.to_le_bytes());
        raw[16..20].copy_from_slice(&self.index.to_le_bytes());
        raw[20..24].copy_from_slice(&self.count.to_le_bytes());
        raw
    }

    fn parse(raw: &[u8; PLACE]) -> Result<Self> {
        let u32_at = |at: usize| u32::from_le_bytes(raw[at..at + 4].try_into().expect("four bytes"));
        let u64_at = |at: usize| u64::from_le_bytes(raw[at..at + 8].try_into().expect("eight bytes"));
        let place = Self { nonce: u64_at(0), origin: u64_at(8), index: u32_at(16), count: u32_at(20) };
        if place.count == 0 || place.count > super::MOST_SOCKETS || place.index >= place.count {
            return Err(Kind::Corrupt.into());
        }
        Ok(place)
    }
}

/// Which side of the handshake this is, and how far it has come.
#[derive(Debug)]
enum Stage {
    /// Dialer: waiting for the connection.
    Connecting { dialer: Box<Dialer>, place: Place, incarnation: u64 },
    /// Dialer: waiting for the challenge.
    Challenge { dialer: Box<Dialer>, place: Place, incarnation: u64 },
    /// Dialer: waiting for the welcome.
    Welcome { peer: auth::Peer, place: Place },
    /// Acceptor: waiting for the hello.
    Hello { acceptor: Box<Acceptor> },
    /// Acceptor: waiting for the proof.
    Proof { acceptor: Box<Acceptor> },
    /// Either: the last message is going out.
    Leaving { peer: auth::Peer, place: Place },
}

/// A handshake that ended well.
#[derive(Debug)]
pub(super) struct Greeted {
    pub(super) socket: Socket,
    pub(super) peer: Peer,
    pub(super) place: Place,
}

/// A socket in its handshake.
#[derive(Debug)]
pub(super) struct Greeting {
    socket: Socket,
    stage: Stage,
    deadline: Time,
    input: [u8; LONGEST],
    got: usize,
    output: [u8; LONGEST],
    sent: usize,
    to_send: usize,
}

impl Greeting {
    /// A connection that has been started towards `to`.
    pub(super) fn dial(
        socket: Socket,
        identity: &Identity,
        to: (Rank, u64),
        place: Place,
        deadline: Time,
    ) -> Result<Self> {
        let dialer = Box::new(Dialer::new(identity, Purpose::Link, to.0)?);
        Ok(Self::new(socket, Stage::Connecting { dialer, place, incarnation: to.1 }, deadline))
    }

    /// A connection that came in.
    pub(super) fn accept(socket: Socket, identity: &Identity, deadline: Time) -> Self {
        let acceptor = Box::new(Acceptor::new(identity, Purpose::Link));
        Self::new(socket, Stage::Hello { acceptor }, deadline)
    }

    fn new(socket: Socket, stage: Stage, deadline: Time) -> Self {
        Self { socket, stage, deadline, input: [0; LONGEST], got: 0, output: [0; LONGEST], sent: 0, to_send: 0 }
    }

    pub(super) fn deadline(&self) -> Time {
        self.deadline
    }

    pub(super) fn fd(&self) -> std::os::fd::RawFd {
        self.socket.fd()
    }

    /// Go on as far as the socket allows. `true`: the handshake has ended well, call [`Greeting::end`].
    ///
    /// # Errors
    /// Drop the socket.
    pub(super) fn step(&mut self) -> Result<bool> {
        if matches!(self.stage, Stage::Connecting { .. }) && !self.on_connected()? {
            return Ok(false);
        }
        loop {
            if !self.put()? {
                return Ok(false);
            }
            if matches!(self.stage, Stage::Leaving { .. }) {
                return Ok(true);
            }
            let wanted = self.wanted();
            if !self.get(wanted)? {
                return Ok(false);
            }
            self.got = 0;
            self.on_message()?;
        }
    }

    /// What came of it; `None` before the end.
    pub(super) fn end(self) -> Option<Greeted> {
        let Stage::Leaving { peer, place } = self.stage else { return None };
        let (rank, incarnation) = (peer.rank, peer.incarnation);
        let peer = Peer { rank, incarnation, nonce: place.nonce, origin: place.origin };
        Some(Greeted { socket: self.socket, peer, place })
    }

    fn on_connected(&mut self) -> Result<bool> {
        match self.socket.connected() {
            Ok(Some((local, remote))) => log(local, remote),
            Ok(None) => return Ok(false),
            Err(error) => return Err(Error::new(Kind::LinkFailed).with_os(error.raw_os_error().unwrap_or(0))),
        }
        let stage = core::mem::replace(&mut self.stage, idle());
        if let Stage::Connecting { dialer, place, incarnation } = stage {
            self.say(dialer.hello());
            self.stage = Stage::Challenge { dialer, place, incarnation };
        }
        Ok(true)
    }

    fn wanted(&self) -> usize {
        match self.stage {
            Stage::Challenge { .. } => CHALLENGE,
            Stage::Welcome { .. } => WELCOME.len(),
            Stage::Hello { .. } => HELLO,
            Stage::Proof { .. } => PROOF + PLACE,
            Stage::Connecting { .. } | Stage::Leaving { .. } => 0,
        }
    }

    fn on_message(&mut self) -> Result<()> {
        let input = self.input;
        self.stage = match core::mem::replace(&mut self.stage, idle()) {
            Stage::Hello { mut acceptor } => {
                let challenge = acceptor.on_hello(input.first_chunk().expect("LONGEST covers it"))?;
                self.say(&challenge);
                Stage::Proof { acceptor }
            }
            Stage::Proof { mut acceptor } => {
                let peer = acceptor.on_proof(input.first_chunk().expect("LONGEST covers it"))?;
                let place = Place::parse(input[PROOF..].first_chunk().expect("LONGEST covers it"))?;
                self.say(&WELCOME);
                Stage::Leaving { peer, place }
            }
            Stage::Challenge { dialer, place, incarnation } => {
                let (peer, proof) = dialer.on_challenge(input.first_chunk().expect("LONGEST covers it"))?;
                if peer.incarnation != incarnation {
                    return Err(Error::new(Kind::PeerDied).with_rank(peer.rank));
                }
                let mut message = [0; PROOF + PLACE];
                message[..PROOF].copy_from_slice(&proof);
                message[PROOF..].copy_from_slice(&place.emit());
                self.say(&message);
                Stage::Welcome { peer, place }
            }
            Stage::Welcome { peer, place } if input[..WELCOME.len()] == WELCOME => Stage::Leaving { peer, place },
            _ => return Err(Kind::Corrupt.into()),
        };
        Ok(())
    }

    fn say(&mut self, message: &[u8]) {
        self.output[..message.len()].copy_from_slice(message);
        self.to_send = message.len();
        self.sent = 0;
    }

    fn put(&mut self) -> Result<bool> {
        while self.sent < self.to_send {
            match self.socket.send_bytes(&self.output[self.sent..self.to_send]) {
                Ok(count) => self.sent += count,
                Err(error) => return later(&error),
            }
        }
        Ok(true)
    }

    fn get(&mut self, wanted: usize) -> Result<bool> {
        while self.got < wanted {
            match self.socket.receive_bytes(&mut self.input[self.got..wanted]) {
                Ok(0) => return Err(Kind::LinkFailed.into()),
                Ok(count) => self.got += count,
                Err(error) => return later(&error),
            }
        }
        Ok(true)
    }
}

/// A stage that accepts nothing, while the real one is being computed.
fn idle() -> Stage {
    let peer = auth::Peer { rank: Rank::new(0), incarnation: 0, features: 0 };
    Stage::Welcome { peer, place: Place { nonce: 0, origin: 0, index: 0, count: 0 } }
}

fn later(error: &std::io::Error) -> Result<bool> {
    match error.kind() {
        std::io::ErrorKind::WouldBlock | std::io::ErrorKind::Interrupted => Ok(false),
        _ => Err(Error::new(Kind::LinkFailed).with_os(error.raw_os_error().unwrap_or(0))),
    }
}

pub(super) fn log(local: SocketAddr, remote: SocketAddr) {
    tracing::debug!(%local, %remote, "connection");
}
