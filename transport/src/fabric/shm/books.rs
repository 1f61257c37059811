//! What a link's two ends have shown each other: keys that we gave, and memory that arrived over the socket.

use std::{
    io,
    os::fd::{AsFd, OwnedFd},
    sync::Arc,
};

use memmap2::MmapRaw;

use super::{
    given::Given,
    keys::{Claim, Sealer, Way, access_of, code},
    memory::{self, Segment},
    shown::Shown,
    socket::{self, Incoming, Packet},
};
use crate::{
    Error, Kind, Result,
    auth::Secret,
    fabric::{Access, Key, RegionId, View},
};

/// Keys and mappings of one link.
#[derive(Debug)]
pub(super) struct Books {
    own: Sealer,
    peer: Sealer,
    pub given: Given,
    pub shown: Shown,
    demand_seals: bool,
    said_goodbye: bool,
}

/// Whether a region was new to the peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Novelty {
    Fresh { number: u32 },
    Known,
}

const SHOW: u64 = 1;
const GOODBYE: u64 = 3;
/// Size of a packet: kind, number and rights, bytes.
const BYTES: usize = 24;

impl Books {
    pub fn new(secret: &Secret, own_nonce: u64, peer_nonce: u64, demand_seals: bool) -> Self {
        Self {
            own: Sealer::new(secret, own_nonce),
            peer: Sealer::new(secret, peer_nonce),
            given: Given::default(),
            shown: Shown::default(),
            demand_seals,
            said_goodbye: false,
        }
    }

    /// A key for the region, and its file to the peer if it has one.
    pub fn show(
        &mut self,
        socket: &OwnedFd,
        region: RegionId,
        view: View,
        file: Option<&Segment>,
        access: Access,
    ) -> Result<(Key, Novelty)> {
        let way = if file.is_some() { Way::Mapped } else { Way::Readable };
        let (bytes, start) = (view.bytes as u64, view.start.addr().get() as u64);
        let claim = |number, slot| Claim { number, slot, way, access, bytes, start };
        if let Some((number, grant)) = self.given.known(region, access) {
            return Ok((self.own.seal(&claim(number, grant.slot)), Novelty::Known));
        }
        let (number, slot) = self.given.upcoming()?;
        if let Some(segment) = file {
            pass(socket, segment, number, bytes, access)?;
        }
        self.given.add(region, access)?;
        Ok((self.own.seal(&claim(number, slot)), Novelty::Fresh { number }))
    }

    /// The key's claim, if it was made for this link by its peer and is not known to be void.
    pub fn open(&self, key: &Key) -> Result<Claim> {
        let claim = self.peer.open(key)?;
        if self.shown.is_void(&claim) { Err(Kind::AccessDenied.into()) } else { Ok(claim) }
    }

    /// The mapping that a claim means. What the socket has is taken first if it is not there.
    pub fn import(&mut self, socket: &OwnedFd, claim: &Claim) -> Result<Arc<MmapRaw>> {
        if let Ok(map) = self.shown.import(claim) {
            return Ok(map);
        }
        self.read(socket)?;
        self.shown.import(claim)
    }

    /// Tell the peer that the link ends here on purpose.
    pub fn say_goodbye(&self, socket: &OwnedFd) {
        let _ = socket::send(socket.as_fd(), &packet(GOODBYE, 0, 0), &[]);
    }

    /// Take what the socket has.
    ///
    /// # Errors
    /// `PeerLeft` or `PeerDied` at its end, `Corrupt` for what no correct peer sends.
    pub fn read(&mut self, socket: &OwnedFd) -> Result<()> {
        loop {
            match socket::receive(socket.as_fd()) {
                Incoming::Nothing => return Ok(()),
                Incoming::End => return Err(self.end()),
                Incoming::Packet(packet) => self.on_packet(packet)?,
            }
        }
    }

    /// What the end of the peer means.
    pub fn end(&self) -> Error {
        Error::new(if self.said_goodbye { Kind::PeerLeft } else { Kind::PeerDied })
    }

    fn on_packet(&mut self, mut packet: Packet) -> Result<()> {
        let bytes = packet.exactly::<BYTES>().ok_or(Kind::Corrupt)?;
        let word = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"));
        let (kind, what, length) = (word(0), word(8), word(16));
        match (kind, packet.files[0].take()) {
            (SHOW, Some(file)) => {
                let access = access_of((what >> 32) as u32).ok_or(Kind::Corrupt)?;
                let length = usize::try_from(length).map_err(|_| Kind::Corrupt)?;
                let map = memory::adopt(file, length, self.demand_seals, access)?;
                self.shown.arrive(what as u32, access, map)
            }
            (GOODBYE, None) => {
                self.said_goodbye = true;
                Ok(())
            }
            _ => Err(Kind::Corrupt.into()),
        }
    }
}

/// Send the region's file, opened for reading only if the peer may do no more.
fn pass(socket: &OwnedFd, segment: &Segment, number: u32, bytes: u64, access: Access) -> Result<()> {
    let packet = packet(SHOW, u64::from(code(access)) << 32 | u64::from(number), bytes);
    let sent = match access {
        Access::Read => socket::send(socket.as_fd(), &packet, &[segment.read_only()?.as_fd()]),
        Access::Write | Access::ReadWrite => socket::send(socket.as_fd(), &packet, &[segment.file.as_fd()]),
    };
    sent.map_err(crowded)
}

fn packet(kind: u64, what: u64, bytes: u64) -> [u8; BYTES] {
    let mut packet = [0; BYTES];
    packet[..8].copy_from_slice(&kind.to_le_bytes());
    packet[8..16].copy_from_slice(&what.to_le_bytes());
    packet[16..].copy_from_slice(&bytes.to_le_bytes());
    packet
}

/// The socket is full of what the peer has not read, or the link is broken.
fn crowded(error: io::Error) -> Error {
    match error.raw_os_error() {
        Some(code @ (libc::EAGAIN | libc::ETOOMANYREFS | libc::ENOBUFS)) => Error::new(Kind::NoSpace).with_os(code),
        _ => Kind::LinkFailed.into(),
    }
}
