//! Frames of the tcp fabric: a header of 40 bytes, then `payload()` bytes.
//!
//! ```text
//!  0 kind u8 | 1 flags u8 | 2 zero u16 | 4 immediate u32 | 8 grant u32 | 12 nonce u32
//! 16 offset u64 | 24 bytes u64 | 32 number u64                               (little-endian)
//! ```
//! The raw view is `[u8; HEADER]`, the valid value is [`Header`]: [`Header::parse`] is the only way from one to the other, and
//! accepts exactly what [`Header::emit`] can produce. It knows nothing of regions: whoever holds them checks grants and bounds.

/// Size of a header, in bytes.
pub const HEADER: usize = 40;

/// Largest payload of one frame. Longer writes are cut, so that acknowledgements find a gap on the way.
pub const FRAGMENT: u64 = 4 << 20;

/// Largest payload of a [`Kind::Send`].
pub const MESSAGE: u64 = 4096;

/// Payload of an atomic: two operands.
pub const OPERANDS: u64 = 16;

/// What a frame is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Kind {
    /// A fragment of a write; `number` counts the writes of the link.
    Write = 1,
    /// A message for a posted receive.
    Send,
    /// Asks for `bytes` bytes; `number` counts the requests of the link.
    Read,
    /// A fragment of the answer to a read; `offset` is relative to the range that was asked for.
    Data,
    /// Add the first operand.
    FetchAdd,
    /// Replace by the second operand if the first is found.
    CompareSwap,
    /// The answer to an atomic; `offset` is the value before.
    Value,
    /// Asks for a [`Kind::Flushed`].
    Flush,
    /// The answer to a flush.
    Flushed,
    /// `number` writes have landed, `offset` receives have been posted, since the link began.
    Progress,
    /// The sender leaves; `immediate` says why.
    Bye,
    /// The answer to a request for what the peer may not touch.
    Refused,
    /// Write `number` went where the peer may not touch anything, and was dropped. Comes before the progress that counts it.
    Denied,
}

impl Kind {
    const ALL: [Kind; 13] = [
        Kind::Write,
        Kind::Send,
        Kind::Read,
        Kind::Data,
        Kind::FetchAdd,
        Kind::CompareSwap,
        Kind::Value,
        Kind::Flush,
        Kind::Flushed,
        Kind::Progress,
        Kind::Bye,
        Kind::Refused,
        Kind::Denied,
    ];

    /// Flags that this kind may carry.
    const fn flags(self) -> u8 {
        match self {
            Kind::Write => Header::LAST | Header::IMMEDIATE | Header::STRIPED,
            Kind::Data => Header::LAST,
            _ => 0,
        }
    }

    /// Largest value of `bytes`.
    const fn limit(self) -> u64 {
        match self {
            Kind::Write | Kind::Data => FRAGMENT,
            Kind::Send => MESSAGE,
            Kind::Read => u64::MAX,
            Kind::FetchAdd | Kind::CompareSwap => OPERANDS,
            Kind::Value | Kind::Flush | Kind::Flushed | Kind::Progress | Kind::Bye | Kind::Refused | Kind::Denied => 0,
        }
    }
}

/// Why bytes are not a header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Malformed {
    /// No frame has this kind.
    Kind(u8),
    /// The kind does not carry these flags, or bytes that must be zero are not.
    Flags(u8),
    /// The length is not one that the kind can have.
    Length(u64),
}

/// A valid header. Fields that a kind does not use are zero when emitted and ignored when parsed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// What the frame is.
    pub kind: Kind,
    /// [`Header::LAST`], [`Header::IMMEDIATE`], [`Header::STRIPED`].
    pub flags: u8,
    /// The immediate of a write, with [`Header::IMMEDIATE`].
    pub immediate: u32,
    /// Which advertisement of the receiver this frame uses.
    pub grant: u32,
    /// Proves that the advertisement is the one that was handed out.
    pub nonce: u32,
    /// First byte in the advertised region.
    pub offset: u64,
    /// Length; what follows the header is [`Header::payload`].
    pub bytes: u64,
    /// Place in the sequence that the kind counts.
    pub number: u64,
}

impl Header {
    /// The last fragment of its operation on this socket.
    pub const LAST: u8 = 1;
    /// The write completes a receive with an immediate. Only with [`Header::LAST`].
    pub const IMMEDIATE: u8 = 2;
    /// A piece of a write of which every socket of the link carries one.
    pub const STRIPED: u8 = 4;

    /// A header of this kind with everything else zero.
    pub const fn new(kind: Kind) -> Self {
        Self { kind, flags: 0, immediate: 0, grant: 0, nonce: 0, offset: 0, bytes: 0, number: 0 }
    }

    /// Whether all of `flags` are set.
    pub const fn has(&self, flags: u8) -> bool {
        self.flags & flags == flags
    }

    /// How many bytes follow the header.
    pub const fn payload(&self) -> u64 {
        match self.kind {
            Kind::Read => 0,
            _ => self.bytes,
        }
    }

    /// The bytes on the wire.
    pub fn emit(&self) -> [u8; HEADER] {
        let mut raw = [0; HEADER];
        raw[0] = self.kind as u8;
        raw[1] = self.flags;
        raw[4..8].copy_from_slice(&self.immediate.to_le_bytes());
        raw[8..12].copy_from_slice(&self.grant.to_le_bytes());
        raw[12..16].copy_from_slice(&self.nonce.to_le_bytes());
        raw[16..24].copy_from_slice(&self.offset.to_le_bytes());
        raw[24..32].copy_from_slice(&self.bytes.to_le_bytes());
        raw[32..40].copy_from_slice(&self.number.to_le_bytes());
        raw
    }

    /// The valid header in these bytes.
    ///
    /// # Errors
    /// Says which field no correct peer sends.
    pub fn parse(raw: &[u8; HEADER]) -> Result<Self, Malformed> {
        let kind = *usize::from(raw[0])
            .checked_sub(1)
            .and_then(|index| Kind::ALL.get(index))
            .ok_or(Malformed::Kind(raw[0]))?;
        let header = Self {
            kind,
            flags: raw[1],
            immediate: u32_at(raw, 4),
            grant: u32_at(raw, 8),
            nonce: u32_at(raw, 12),
            offset: u64_at(raw, 16),
            bytes: u64_at(raw, 24),
            number: u64_at(raw, 32),
        };
        let stray = header.flags & !kind.flags() != 0 || raw[2..4] != [0, 0];
        if stray || header.has(Self::IMMEDIATE) && !header.has(Self::LAST) {
            return Err(Malformed::Flags(header.flags));
        }
        let atomic = matches!(kind, Kind::FetchAdd | Kind::CompareSwap);
        if header.bytes > kind.limit() || atomic && header.bytes != OPERANDS {
            return Err(Malformed::Length(header.bytes));
        }
        Ok(header)
    }
}

fn u32_at(raw: &[u8; HEADER], at: usize) -> u32 {
    u32::from_le_bytes([raw[at], raw[at + 1], raw[at + 2], raw[at + 3]])
}

fn u64_at(raw: &[u8; HEADER], at: usize) -> u64 {
    u64::from(u32_at(raw, at)) | u64::from(u32_at(raw, at + 4)) << 32
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn sample(kind: Kind) -> Header {
        let bytes = kind.limit().min(OPERANDS);
        Header {
            immediate: 0x0102_0304,
            grant: 5,
            nonce: 0x0607_0809,
            offset: u64::MAX,
            bytes,
            number: 1 << 63,
            ..Header::new(kind)
        }
    }

    #[test]
    fn every_kind_survives_the_wire() {
        for kind in Kind::ALL {
            assert_eq!(Header::parse(&sample(kind).emit()), Ok(sample(kind)));
        }
    }

    #[test]
    fn layout_is_as_documented() {
        let raw = Header { flags: Header::LAST, ..sample(Kind::Write) }.emit();
        assert_eq!(raw[..16], [1, 1, 0, 0, 4, 3, 2, 1, 5, 0, 0, 0, 9, 8, 7, 6]);
        assert_eq!(raw[16..24], [255; 8]);
        assert_eq!(raw[24..32], 16u64.to_le_bytes());
        assert_eq!(raw[32..40], (1u64 << 63).to_le_bytes());
    }

    #[test]
    fn unknown_kinds_stray_flags_and_lengths_are_named() {
        let refuse = |change: &dyn Fn(&mut [u8; HEADER]), kind| {
            let mut raw = sample(kind).emit();
            change(&mut raw);
            Header::parse(&raw).unwrap_err()
        };
        assert_eq!(refuse(&|raw| raw[0] = 0, Kind::Write), Malformed::Kind(0));
        assert_eq!(refuse(&|raw| raw[0] = 14, Kind::Write), Malformed::Kind(14));
        assert_eq!(refuse(&|raw| raw[1] = 8, Kind::Write), Malformed::Flags(8));
        assert_eq!(refuse(&|raw| raw[1] = Header::IMMEDIATE, Kind::Write), Malformed::Flags(2));
        assert_eq!(refuse(&|raw| raw[1] = Header::STRIPED, Kind::Send), Malformed::Flags(4));
        assert_eq!(refuse(&|raw| raw[3] = 1, Kind::Read), Malformed::Flags(0));
        assert_eq!(refuse(&|raw| raw[31] = 1, Kind::Write), Malformed::Length((1 << 56) + 16));
        assert_eq!(refuse(&|raw| raw[24] = 15, Kind::FetchAdd), Malformed::Length(15));
        assert_eq!(refuse(&|raw| raw[24] = 1, Kind::Bye), Malformed::Length(1));
    }

    #[test]
    fn lengths_end_at_the_limit_of_the_kind() {
        for (kind, limit) in [(Kind::Write, FRAGMENT), (Kind::Data, FRAGMENT), (Kind::Send, MESSAGE)] {
            let with = |bytes| Header::parse(&Header { bytes, ..Header::new(kind) }.emit()).is_ok();
            assert!(with(0) && with(limit) && !with(limit + 1), "{kind:?}");
        }
        assert_eq!(Header { bytes: u64::MAX, ..Header::new(Kind::Read) }.payload(), 0);
    }

    proptest! {
        #[test]
        fn what_parses_is_what_was_emitted(raw in proptest::array::uniform::<_, HEADER>(any::<u8>()), kind in 0u8..16) {
            let mut raw = raw;
            raw[0] = kind;
            raw[1] &= 7;
            raw[2] = 0;
            raw[3] = 0;
            raw[28..32].fill(0);
            if let Ok(header) = Header::parse(&raw) {
                prop_assert_eq!(header.emit(), raw);
                prop_assert!(header.payload() <= FRAGMENT);
            }
        }
    }
}
