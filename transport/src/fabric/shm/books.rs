//! What a link's two ends have shown each other: keys that we gave, and memory that arrived.

use std::{
    collections::HashMap,
    io,
    os::fd::{AsFd, OwnedFd},
    sync::Arc,
};

use hmac::{Hmac, KeyInit, Mac};
use memmap2::MmapRaw;
use sha2::Sha256;

use super::{
    memory::{self, Segment},
    socket::{self, Incoming, Packet},
};
use crate::{
    Error, Kind, Result,
    auth::Secret,
    fabric::{Key, RegionId, View},
};

/// A parsed key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Claim {
    /// The owner's number for it.
    pub number: u32,
    pub kind: Way,
    pub bytes: u64,
    /// Where it lies in the owner's address space.
    pub start: u64,
}

/// How a region can be reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    /// Its file was passed.
    Mapped = 1,
    /// It can only be read.
    Readable = 2,
}

/// Keys and mappings of one link.
#[derive(Debug)]
pub(super) struct Books {
    own_nonce: u64,
    peer_nonce: u64,
    next: u32,
    given: HashMap<u32, RegionId>,
    arrived: HashMap<u32, Arc<MmapRaw>>,
    demand_seals: bool,
    said_goodbye: bool,
}

const SHOW: u64 = 1;
const WITHDRAW: u64 = 2;
const GOODBYE: u64 = 3;
/// Size of a packet: kind, number, bytes.
const BYTES: usize = 24;
/// Most mappings that the peer shows without our importing them.
const MOST: usize = 16 << 10;

impl Books {
    pub fn new(own_nonce: u64, peer_nonce: u64, demand_seals: bool) -> Self {
        Self {
            own_nonce,
            peer_nonce,
            next: 0,
            given: HashMap::new(),
            arrived: HashMap::new(),
            demand_seals,
            said_goodbye: false,
        }
    }

    /// A key for the region, and its file to the peer if it has one.
    pub fn show(
        &mut self,
        socket: &OwnedFd,
        secret: &Secret,
        region: RegionId,
        view: View,
        file: Option<&Segment>,
    ) -> Result<Key> {
        let known = self.given.iter().find_map(|(number, given)| (*given == region).then_some(*number));
        let number = known.unwrap_or(self.next);
        let kind = if file.is_some() { Way::Mapped } else { Way::Readable };
        let claim = Claim { number, kind, bytes: view.bytes as u64, start: view.start.addr().get() as u64 };
        if known.is_none() {
            if let Some(segment) = file {
                let packet = packet(SHOW, number, claim.bytes);
                socket::send(socket.as_fd(), &packet, &[segment.file.as_fd()]).map_err(crowded)?;
            }
            self.next = number.checked_add(1).ok_or(Error::new(Kind::NoSpace))?;
            self.given.insert(number, region);
        }
        Ok(claim.seal(secret, self.own_nonce))
    }

    /// The region that we gave under this number.
    pub fn given(&self, number: u32) -> Option<RegionId> {
        self.given.get(&number).copied()
    }

    /// A region is gone: its keys are void.
    pub fn withdraw(&mut self, socket: &OwnedFd, region: RegionId) {
        self.given.retain(|number, given| {
            if *given == region {
                // a peer that cannot be told keeps an unused mapping until the link ends; nothing else depends on it
                let _ = socket::send(socket.as_fd(), &packet(WITHDRAW, *number, 0), &[]);
            }
            *given != region
        });
    }

    /// The key's claim, if it was made for this link by its peer.
    pub fn open(&self, secret: &Secret, key: &Key) -> Result<Claim> {
        Claim::open(secret, self.peer_nonce, key)
    }

    /// The mapping that the peer showed under this number.
    pub fn arrived(&self, claim: &Claim) -> Result<Arc<MmapRaw>> {
        let map = self.arrived.get(&claim.number).ok_or(Kind::AccessDenied)?;
        if map.len() as u64 == claim.bytes { Ok(map.clone()) } else { Err(Kind::Corrupt.into()) }
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
                Incoming::End if self.said_goodbye => return Err(Kind::PeerLeft.into()),
                Incoming::End => return Err(Kind::PeerDied.into()),
                Incoming::Packet(packet) => self.on_packet(packet)?,
            }
        }
    }

    fn on_packet(&mut self, mut packet: Packet) -> Result<()> {
        let bytes = packet.exactly::<BYTES>().ok_or(Kind::Corrupt)?;
        let word = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"));
        let (kind, length) = (word(0), word(16));
        let number = u32::try_from(word(8)).map_err(|_| Kind::Corrupt)?;
        match (kind, packet.files[0].take()) {
            (SHOW, Some(file)) => self.on_show(number, length, file),
            (WITHDRAW, None) => {
                self.arrived.remove(&number);
                Ok(())
            }
            (GOODBYE, None) => {
                self.said_goodbye = true;
                Ok(())
            }
            _ => Err(Kind::Corrupt.into()),
        }
    }

    fn on_show(&mut self, number: u32, bytes: u64, file: OwnedFd) -> Result<()> {
        if self.arrived.len() >= MOST {
            return Err(Kind::NoSpace.into());
        }
        let bytes = usize::try_from(bytes).map_err(|_| Kind::Corrupt)?;
        let map = memory::adopt(file, bytes, self.demand_seals)?;
        match self.arrived.insert(number, Arc::new(map)) {
            None => Ok(()),
            Some(_) => Err(Kind::Corrupt.into()),
        }
    }
}

impl Claim {
    fn seal(&self, secret: &Secret, nonce: u64) -> Key {
        let mut key = [0; 32];
        key[..4].copy_from_slice(&self.number.to_le_bytes());
        key[4..8].copy_from_slice(&(self.kind as u32).to_le_bytes());
        key[8..16].copy_from_slice(&self.bytes.to_le_bytes());
        key[16..24].copy_from_slice(&self.start.to_le_bytes());
        let tag = tag(secret, nonce, &key[..24]).finalize().into_bytes();
        key[24..].copy_from_slice(&tag[..8]);
        Key(key)
    }

    fn open(secret: &Secret, nonce: u64, key: &Key) -> Result<Self> {
        let Key(key) = key;
        tag(secret, nonce, &key[..24]).verify_truncated_left(&key[24..]).map_err(|_| Error::new(Kind::Corrupt))?;
        let u32_at = |at: usize| u32::from_le_bytes(key[at..at + 4].try_into().expect("four bytes"));
        let u64_at = |at: usize| u64::from_le_bytes(key[at..at + 8].try_into().expect("eight bytes"));
        let kind = match u32_at(4) {
            1 => Way::Mapped,
            2 => Way::Readable,
            _ => return Err(Kind::Corrupt.into()),
        };
        Ok(Self { number: u32_at(0), kind, bytes: u64_at(8), start: u64_at(16) })
    }
}

fn tag(secret: &Secret, nonce: u64, bytes: &[u8]) -> Hmac<Sha256> {
    let mut mac = Hmac::<Sha256>::new_from_slice(secret.as_bytes()).expect("HMAC takes a key of any length");
    mac.update(b"shm key");
    mac.update(&nonce.to_le_bytes());
    mac.update(bytes);
    mac
}

fn packet(kind: u64, number: u32, bytes: u64) -> [u8; BYTES] {
    let mut packet = [0; BYTES];
    packet[..8].copy_from_slice(&kind.to_le_bytes());
    packet[8..16].copy_from_slice(&u64::from(number).to_le_bytes());
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn key_is_for_one_link_and_no_changed_byte_survives() {
        let secret = Secret::from_bytes([7; 32]);
        let claim = Claim { number: 5, kind: Way::Mapped, bytes: 4096, start: 0x7000 };
        let key = claim.seal(&secret, 11);
        assert_eq!(Claim::open(&secret, 11, &key), Ok(claim));
        assert_eq!(Claim::open(&secret, 12, &key).unwrap_err().kind(), Kind::Corrupt);
        for at in 0..32 {
            let mut changed = key;
            changed.0[at] ^= 1;
            assert_eq!(Claim::open(&secret, 11, &changed).unwrap_err().kind(), Kind::Corrupt, "byte {at}");
        }
    }
}
