//! Keys of the fake: which grant of which end of which wire, how large it is and what it allows.

use crate::{
    Kind, Result,
    fabric::{Access, Key, RegionId},
};

/// A region that the peer of one link may use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Grant {
    pub region: RegionId,
    pub access: Access,
    /// A number that guesses do not hit; a grant in the place of one that is void has another.
    pub nonce: u64,
}

/// What a key says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Claim {
    /// The owner's place for the grant.
    pub grant: u32,
    pub nonce: u64,
    pub bytes: u64,
    pub access: Access,
}

const MAGIC: [u8; 4] = *b"VFK1";
/// Regions are shorter than 2^56 bytes: the top byte says what is allowed.
const ACCESS: u32 = 56;

impl Claim {
    /// The key for one end of a wire.
    pub fn emit(&self, end: u64) -> Key {
        let mut key = [0; 32];
        key[..4].copy_from_slice(&MAGIC);
        key[4..8].copy_from_slice(&self.grant.to_le_bytes());
        key[8..16].copy_from_slice(&self.nonce.to_le_bytes());
        let code = match self.access {
            Access::Read => 1_u64,
            Access::Write => 2,
            Access::ReadWrite => 3,
        };
        key[16..24].copy_from_slice(&(self.bytes | code << ACCESS).to_le_bytes());
        let check = check_of(&key[..24], end);
        key[24..].copy_from_slice(&check.to_le_bytes());
        Key(key)
    }

    /// What the key says, if it was made for this end.
    pub fn parse(key: &Key, end: u64) -> Result<Self> {
        let word = |at: usize| u64::from_le_bytes(key.0[at..at + 8].try_into().expect("eight bytes"));
        if key.0[..4] != MAGIC || word(24) != check_of(&key.0[..24], end) {
            return Err(Kind::Corrupt.into());
        }
        let access = match word(16) >> ACCESS {
            1 => Access::Read,
            2 => Access::Write,
            3 => Access::ReadWrite,
            _ => return Err(Kind::Corrupt.into()),
        };
        let bytes = word(16) & ((1 << ACCESS) - 1);
        Ok(Self { grant: (word(0) >> 32) as u32, nonce: word(8), bytes, access })
    }
}

/// FNV-1a: against mistakes. What a peer may touch is decided by the owner's grants.
fn check_of(bytes: &[u8], end: u64) -> u64 {
    let fold = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3);
    bytes.iter().chain(&end.to_le_bytes()).fold(0xcbf2_9ce4_8422_2325, fold)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn key_says_what_was_granted_and_no_changed_byte_survives() {
        for access in [Access::Read, Access::Write, Access::ReadWrite] {
            let claim = Claim { grant: 7, nonce: u64::MAX, bytes: (1 << 47) + 1, access };
            let key = claim.emit(3);
            assert_eq!(Claim::parse(&key, 3), Ok(claim));
            assert_eq!(Claim::parse(&key, 2).unwrap_err().kind(), Kind::Corrupt);
            for at in 0..32 {
                let mut changed = key;
                changed.0[at] ^= 0x80;
                assert_eq!(Claim::parse(&changed, 3).unwrap_err().kind(), Kind::Corrupt, "byte {at}");
            }
        }
    }
}
