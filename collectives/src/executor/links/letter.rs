//! The small messages that set a pair of ranks up.

use vervain_transport::fabric::Key;

use super::LANES;

/// Size of a letter in bytes.
pub const LETTER: usize = 64;

/// What two linked ranks tell each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Letter {
    Inbox { lane: u32, key: Key },
    Registration { index: u32, bytes: u64, key: Key },
    Imported { index: u32 },
    Forget { index: u32 },
    Board { key: Key },
}

impl Letter {
    /// As bytes.
    pub fn emit(&self) -> [u8; LETTER] {
        let (kind, number, bytes, key) = match self {
            Letter::Inbox { lane, key } => (1u32, *lane, 0, key),
            Letter::Registration { index, bytes, key } => (2, *index, *bytes, key),
            Letter::Imported { index } => (3, *index, 0, &Key([0; 32])),
            Letter::Forget { index } => (4, *index, 0, &Key([0; 32])),
            Letter::Board { key } => (5, 0, 0, key),
        };
        let mut letter = [0; LETTER];
        letter[..4].copy_from_slice(&kind.to_le_bytes());
        letter[4..8].copy_from_slice(&number.to_le_bytes());
        letter[8..16].copy_from_slice(&bytes.to_le_bytes());
        letter[16..48].copy_from_slice(&key.0);
        letter
    }

    /// From bytes, if they are one.
    pub fn parse(letter: &[u8; LETTER]) -> Option<Self> {
        let number = u32::from_le_bytes(letter[4..8].try_into().ok()?);
        let bytes = u64::from_le_bytes(letter[8..16].try_into().ok()?);
        let key = Key(letter[16..48].try_into().ok()?);
        match u32::from_le_bytes(letter[..4].try_into().ok()?) {
            1 if (number as usize) < LANES => Some(Letter::Inbox { lane: number, key }),
            2 => Some(Letter::Registration { index: number, bytes, key }),
            3 => Some(Letter::Imported { index: number }),
            4 => Some(Letter::Forget { index: number }),
            5 => Some(Letter::Board { key }),
            _ => None,
        }
    }
}
