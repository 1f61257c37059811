//! The listening end: lets in those who know the secret, and nobody else, for a bounded price.

use core::time::Duration;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::{AsFd, BorrowedFd};

use vervain_transport::auth::{Peer, Purpose};
use vervain_transport::fabric::Identity;
use vervain_transport::{Result, Time};

use super::channel::Channel;
use crate::control::poll::Watch;

/// How long a connection may take to prove itself.
const HANDSHAKE: Duration = Duration::from_secs(5);
/// Connections that may be proving themselves at a time; one more drops the oldest, so that idle strangers lock nobody out.
const PENDING: usize = 128;
/// Connections accepted in one step.
const BURST: usize = 64;

/// A listener and the connections that have not proved themselves yet.
#[derive(Debug)]
pub(crate) struct Doorman {
    listener: TcpListener,
    identity: Identity,
    purpose: Purpose,
    /// Largest payload that a peer may send.
    limit: usize,
    /// In order of arrival.
    pending: Vec<(Time, Channel)>,
    refused: u32,
}

impl Doorman {
    pub(crate) fn new(listener: TcpListener, identity: &Identity, purpose: Purpose, limit: usize) -> Result<Self> {
        listener.set_nonblocking(true)?;
        Ok(Self { listener, identity: identity.clone(), purpose, limit, pending: Vec::new(), refused: 0 })
    }

    pub(crate) fn address(&self) -> Result<SocketAddr> {
        Ok(self.listener.local_addr()?)
    }

    /// Connections that were dropped because they did not prove themselves.
    pub(crate) fn refused(&self) -> u32 {
        self.refused
    }

    /// Accept, go on with all handshakes, and hand out whoever is through.
    pub(crate) fn step(&mut self, now: Time) -> Vec<(Peer, Channel)> {
        self.accept(now);
        let mut through = Vec::new();
        for (deadline, mut channel) in core::mem::take(&mut self.pending) {
            match channel.shake() {
                Ok(Some(peer)) => through.push((peer, channel)),
                Ok(None) if now < deadline => self.pending.push((deadline, channel)),
                Ok(None) | Err(_) => self.refused = self.refused.saturating_add(1),
            }
        }
        through
    }

    fn accept(&mut self, now: Time) {
        for _ in 0..BURST {
            let Ok((stream, _)) = self.listener.accept() else { return };
            if self.pending.len() == PENDING {
                self.pending.remove(0);
                self.refused = self.refused.saturating_add(1);
            }
            if let Ok(channel) = Channel::accepted(stream, &self.identity, self.purpose, self.limit) {
                self.pending.push((now.after(HANDSHAKE), channel));
            }
        }
    }

    pub(crate) fn watch<'a>(&'a self, into: &mut Vec<Watch<'a>>) {
        into.push(Watch::read(self.listener.as_fd()));
        into.extend(self.pending.iter().map(|(_, channel)| Watch::channel(channel)));
    }
}

impl AsFd for Doorman {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.listener.as_fd()
    }
}
