//! What a key says, and who made it for whom.
//!
//! ```text
//! byte 0: number u32 | 4: slot and rights u32 | 8: bytes u64 | 16: start u64 | 24: the first 8 bytes of an HMAC
//! ```
//! The second word holds the slot in its lower 24 bits, then [`Way`] and [`Access`] in four bits each. Numbers of one link
//! count up and never come back (FE-6); slots do, so that the peer's memory of void keys is bounded ([`Claim::slot`]).

use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

use crate::{
    Error, Kind, Result,
    auth::Secret,
    fabric::{Access, Key},
};

/// A parsed key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Claim {
    /// The owner's number for it.
    pub number: u32,
    /// Of two keys with the same slot, the one with the smaller number is void.
    pub slot: u32,
    pub way: Way,
    pub access: Access,
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

/// Makes and checks the keys of one direction of a link.
#[derive(Clone, Debug)]
pub(super) struct Sealer(Hmac<Sha256>);

/// Slots of one direction of a link: as many keys can be valid at once.
pub(super) const SLOTS: u32 = 1 << 18;
const _: () = assert!(SLOTS <= 1 << 24);

impl Sealer {
    /// For keys made by the end that chose `nonce`.
    pub fn new(secret: &Secret, nonce: u64) -> Self {
        let mut mac = Hmac::<Sha256>::new_from_slice(secret.as_bytes()).expect("HMAC takes a key of any length");
        mac.update(b"shm key");
        mac.update(&nonce.to_le_bytes());
        Self(mac)
    }

    pub fn seal(&self, claim: &Claim) -> Key {
        let mut key = [0; 32];
        let rights = claim.slot | (claim.way as u32) << 24 | code(claim.access) << 28;
        key[..4].copy_from_slice(&claim.number.to_le_bytes());
        key[4..8].copy_from_slice(&rights.to_le_bytes());
        key[8..16].copy_from_slice(&claim.bytes.to_le_bytes());
        key[16..24].copy_from_slice(&claim.start.to_le_bytes());
        let tag = self.tag(&key[..24]).finalize().into_bytes();
        key[24..].copy_from_slice(&tag[..8]);
        Key(key)
    }

    /// # Errors
    /// `Corrupt` for what [`Sealer::seal`] of the other end did not make.
    pub fn open(&self, key: &Key) -> Result<Claim> {
        let Key(key) = key;
        self.tag(&key[..24]).verify_truncated_left(&key[24..]).map_err(|_| Error::new(Kind::Corrupt))?;
        let u32_at = |at: usize| u32::from_le_bytes(key[at..at + 4].try_into().expect("four bytes"));
        let u64_at = |at: usize| u64::from_le_bytes(key[at..at + 8].try_into().expect("eight bytes"));
        let rights = u32_at(4);
        let way = match rights >> 24 & 15 {
            1 => Way::Mapped,
            2 => Way::Readable,
            _ => return Err(Kind::Corrupt.into()),
        };
        let access = access_of(rights >> 28).ok_or(Kind::Corrupt)?;
        Ok(Claim { number: u32_at(0), slot: rights & 0xff_ffff, way, access, bytes: u64_at(8), start: u64_at(16) })
    }

    fn tag(&self, bytes: &[u8]) -> Hmac<Sha256> {
        let mut mac = self.0.clone();
        mac.update(bytes);
        mac
    }
}

/// Rights as a number.
pub(super) fn code(access: Access) -> u32 {
    match access {
        Access::Read => 1,
        Access::Write => 2,
        Access::ReadWrite => 3,
    }
}

/// The rights of a number.
pub(super) fn access_of(code: u32) -> Option<Access> {
    [Access::Read, Access::Write, Access::ReadWrite].into_iter().find(|access| self::code(*access) == code)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn key_is_for_one_link_and_no_changed_byte_survives() {
        let secret = Secret::from_bytes([7; 32]);
        let (maker, other) = (Sealer::new(&secret, 11), Sealer::new(&secret, 12));
        let claim =
            Claim { number: 5, slot: SLOTS - 1, way: Way::Mapped, access: Access::Read, bytes: 4096, start: 0x7000 };
        let key = maker.seal(&claim);
        assert_eq!(maker.open(&key), Ok(claim));
        assert_eq!(other.open(&key).unwrap_err().kind(), Kind::Corrupt);
        for at in 0..32 {
            let mut changed = key;
            changed.0[at] ^= 1;
            assert_eq!(maker.open(&changed).unwrap_err().kind(), Kind::Corrupt, "byte {at}");
        }
    }

    #[test]
    fn every_way_and_every_right_survives_a_key() {
        let sealer = Sealer::new(&Secret::from_bytes([7; 32]), 0);
        for way in [Way::Mapped, Way::Readable] {
            for access in [Access::Read, Access::Write, Access::ReadWrite] {
                let claim = Claim { number: u32::MAX, slot: 0, way, access, bytes: u64::MAX, start: 0 };
                assert_eq!(sealer.open(&sealer.seal(&claim)), Ok(claim));
            }
        }
    }
}
