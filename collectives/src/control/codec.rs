//! Little-endian fields of the messages of bootstrap and control. Reading never goes out of bounds and allocates no more than arrived.

use vervain_transport::{Error, Kind, Rank};

/// Appends fields.
#[derive(Debug, Default)]
pub(crate) struct Writer(Vec<u8>);

impl Writer {
    pub(crate) fn new(kind: u8) -> Self {
        Self(vec![kind])
    }

    pub(crate) fn u16(mut self, value: u16) -> Self {
        self.0.extend_from_slice(&value.to_le_bytes());
        self
    }

    pub(crate) fn u32(mut self, value: u32) -> Self {
        self.0.extend_from_slice(&value.to_le_bytes());
        self
    }

    pub(crate) fn u64(mut self, value: u64) -> Self {
        self.0.extend_from_slice(&value.to_le_bytes());
        self
    }

    pub(crate) fn bytes(mut self, value: &[u8]) -> Self {
        self.0.extend_from_slice(value);
        self
    }

    pub(crate) fn blob(self, value: &[u8]) -> Self {
        self.u32(value.len() as u32).bytes(value)
    }

    /// At most `limit` bytes of the text.
    pub(crate) fn text(self, value: &str, limit: usize) -> Self {
        let end = (0..=value.len().min(limit)).rev().find(|&end| value.is_char_boundary(end)).unwrap_or(0);
        self.blob(&value.as_bytes()[..end])
    }

    pub(crate) fn error(self, error: &Error) -> Self {
        self.u16(error.kind() as u16)
            .u32(error.rank().map_or(u32::MAX, Rank::get))
            .u64(error.operation().unwrap_or(u64::MAX))
            .u32(error.os().unwrap_or(0) as u32)
    }

    pub(crate) fn done(self) -> Vec<u8> {
        self.0
    }
}

/// Takes fields off; `None` as soon as something does not fit.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reader<'a>(pub(crate) &'a [u8]);

impl<'a> Reader<'a> {
    pub(crate) fn bytes(&mut self, count: usize) -> Option<&'a [u8]> {
        let (head, tail) = self.0.split_at_checked(count)?;
        self.0 = tail;
        Some(head)
    }

    pub(crate) fn array<const N: usize>(&mut self) -> Option<&'a [u8; N]> {
        self.bytes(N)?.try_into().ok()
    }

    pub(crate) fn u8(&mut self) -> Option<u8> {
        self.array::<1>().map(|bytes| bytes[0])
    }

    pub(crate) fn u16(&mut self) -> Option<u16> {
        self.array().copied().map(u16::from_le_bytes)
    }

    pub(crate) fn u32(&mut self) -> Option<u32> {
        self.array().copied().map(u32::from_le_bytes)
    }

    pub(crate) fn u64(&mut self) -> Option<u64> {
        self.array().copied().map(u64::from_le_bytes)
    }

    pub(crate) fn blob(&mut self, limit: usize) -> Option<&'a [u8]> {
        let length = self.u32()? as usize;
        if length > limit { None } else { self.bytes(length) }
    }

    pub(crate) fn text(&mut self, limit: usize) -> Option<String> {
        String::from_utf8(self.blob(limit)?.to_vec()).ok()
    }

    /// A rank below `ranks`.
    pub(crate) fn rank(&mut self, ranks: u32) -> Option<Rank> {
        self.u32().filter(|&rank| rank < ranks).map(Rank::new)
    }

    pub(crate) fn error(&mut self, ranks: u32) -> Option<Error> {
        let kind = self.u16()?;
        let mut error = Error::new(KINDS.iter().copied().find(|&known| known as u16 == kind)?);
        let rank = self.u32()?;
        if rank != u32::MAX {
            error = error.with_rank(Rank::new(Some(rank).filter(|&rank| rank < ranks)?));
        }
        error = error.with_operation(self.u64()?);
        Some(error.with_os(self.u32()? as i32))
    }

    /// `value`, if nothing is left over.
    pub(crate) fn end<T>(self, value: T) -> Option<T> {
        self.0.is_empty().then_some(value)
    }
}

/// What may travel.
pub(crate) const KINDS: [Kind; 20] = [
    Kind::InvalidArgument,
    Kind::InvalidUsage,
    Kind::SizeOverflow,
    Kind::Unsupported,
    Kind::Mismatch,
    Kind::PeerDied,
    Kind::PeerLeft,
    Kind::Corrupt,
    Kind::Unauthenticated,
    Kind::VersionMismatch,
    Kind::DuplicateRank,
    Kind::LinkFailed,
    Kind::AccessDenied,
    Kind::Os,
    Kind::NoSpace,
    Kind::TimedOut,
    Kind::Aborted,
    Kind::Bug,
    Kind::Cancelled,
    Kind::OutcomeUnknown,
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_error_round_trips() {
        for kind in KINDS {
            for error in [Error::new(kind), Error::new(kind).with_rank(Rank::new(2)).with_operation(9).with_os(-4)] {
                let bytes = Writer::default().error(&error).done();
                assert_eq!(Reader(&bytes).error(3), Some(error));
            }
        }
        let foreign = Writer::default().error(&Error::new(Kind::Bug).with_rank(Rank::new(3))).done();
        assert_eq!(Reader(&foreign).error(3), None);
    }

    #[test]
    fn long_text_is_cut_between_characters() {
        let bytes = Writer::default().text("aßß", 4).done();
        assert_eq!(Reader(&bytes).text(4).as_deref(), Some("aß"));
        assert_eq!(Reader(&bytes).text(2), None);
    }
}
