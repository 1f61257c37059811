//! What one record of a link's queue says: a raw record and its meaning are two types.

use crate::{Kind, ring::record::Record};

/// A parsed record. What its numbers refer to is checked by who handles it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Notice {
    /// A write of this many bytes is in place and carries an immediate.
    Immediate { bytes: u64, immediate: u32 },
    /// The next message slot holds this many bytes.
    Message { bytes: u64 },
    /// Copy a part of the region that was advertised under `key` into a bounce piece.
    Request { piece: u64, key: u32, offset: u64, bytes: u64 },
    /// A bounce piece is filled, or was refused.
    Reply { piece: u64, granted: bool },
    /// The key of this number is void.
    Revoke { number: u32, slot: u32 },
    /// The key of this number is used no more.
    Revoked { number: u32 },
}

const IMMEDIATE: u64 = 1;
const MESSAGE: u64 = 2;
const REQUEST: u64 = 3;
const REPLY: u64 = 4;
const REVOKE: u64 = 5;
const REVOKED: u64 = 6;

impl Notice {
    #[inline]
    pub fn emit(self) -> Record {
        match self {
            Notice::Immediate { bytes, immediate } => [IMMEDIATE, bytes, u64::from(immediate), 0, 0, 0, 0, 0],
            Notice::Message { bytes } => [MESSAGE, bytes, 0, 0, 0, 0, 0, 0],
            Notice::Request { piece, key, offset, bytes } => [REQUEST, piece, u64::from(key), offset, bytes, 0, 0, 0],
            Notice::Reply { piece, granted } => [REPLY, piece, u64::from(granted), 0, 0, 0, 0, 0],
            Notice::Revoke { number, slot } => [REVOKE, u64::from(number), u64::from(slot), 0, 0, 0, 0, 0],
            Notice::Revoked { number } => [REVOKED, u64::from(number), 0, 0, 0, 0, 0, 0],
        }
    }

    /// # Errors
    /// `Corrupt` for what [`Notice::emit`] never writes.
    #[inline]
    pub fn parse(record: &Record) -> Result<Self, Kind> {
        let short = |word: u64| u32::try_from(word).map_err(|_| Kind::Corrupt);
        let notice = match *record {
            [IMMEDIATE, bytes, immediate, ..] => Notice::Immediate { bytes, immediate: short(immediate)? },
            [MESSAGE, bytes, ..] => Notice::Message { bytes },
            [REQUEST, piece, key, offset, bytes, ..] => Notice::Request { piece, key: short(key)?, offset, bytes },
            [REPLY, piece, granted, ..] => Notice::Reply { piece, granted: granted == 1 },
            [REVOKE, number, slot, ..] => Notice::Revoke { number: short(number)?, slot: short(slot)? },
            [REVOKED, number, ..] => Notice::Revoked { number: short(number)? },
            _ => return Err(Kind::Corrupt),
        };
        if notice.emit() == *record { Ok(notice) } else { Err(Kind::Corrupt) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn parse_accepts_only_what_emit_writes(record: Record) {
            prop_assert_eq!(Notice::parse(&record), Err(Kind::Corrupt));
        }

        #[test]
        fn emit_and_parse_agree(kind in 1_u64..=6, words: [u64; 4]) {
            let [a, b, c, d] = words;
            let record = match kind {
                IMMEDIATE => [kind, a, b >> 32, 0, 0, 0, 0, 0],
                MESSAGE => [kind, a, 0, 0, 0, 0, 0, 0],
                REQUEST => [kind, a, b >> 32, c, d, 0, 0, 0],
                REPLY => [kind, a, b & 1, 0, 0, 0, 0, 0],
                REVOKE => [kind, a >> 32, b >> 32, 0, 0, 0, 0, 0],
                _ => [kind, a >> 32, 0, 0, 0, 0, 0, 0],
            };
            prop_assert_eq!(Notice::parse(&record).map(Notice::emit), Ok(record));
            let mut tail = record;
            tail[7] = 1;
            prop_assert_eq!(Notice::parse(&tail), Err(Kind::Corrupt));
        }
    }
}
