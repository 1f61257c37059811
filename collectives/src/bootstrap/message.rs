//! What ranks and rank 0 say to each other.

use core::time::Duration;
use std::net::SocketAddr;

use vervain_transport::{Error, Rank};

use super::host::Host;
use super::id::{address_from_bytes, address_to_bytes};
use crate::control::codec::{Reader, Writer};

/// Largest offer of a rank, in bytes.
pub const OFFER: usize = 16 << 10;
/// Largest payload of a [`Statement`].
pub(crate) const STATEMENT: usize = OFFER + 256;
/// Raised when messages or what depends on their agreement change.
const PARAMETERS: u64 = (crate::call::WORDS as u64) << 32 | 1;
/// Longest line, and most lines, of a story that travels.
const LINE: usize = 1024;
const LINES: usize = 64;
const MEMBER: usize = 96;

/// A rank that has come.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    /// Who.
    pub rank: Rank,
    /// Which start of it.
    pub incarnation: u64,
    /// Where it runs.
    pub host: Host,
    /// Its process, a number in the namespace of `host`.
    pub pid: u32,
    /// Where it accepts edges of the control mesh.
    pub control: SocketAddr,
    /// What it offers to its peers, opaque here.
    pub offer: Vec<u8>,
}

/// A rank to rank 0.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Statement {
    /// I am here, and expect so many ranks; I wait so long.
    Offer { parameters: u64, ranks: u32, patience: Duration, member: Member },
    /// I am ready for use.
    Ready,
    /// I cannot go on.
    Failed(Error),
}

/// Rank 0 to a rank.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// Everybody has come.
    Table(Vec<Member>),
    /// Everybody is ready.
    Go,
    /// It will not work.
    Failed(Error, Vec<String>),
}

impl Statement {
    pub(crate) fn offer(ranks: u32, patience: Duration, member: Member) -> Self {
        Self::Offer { parameters: PARAMETERS, ranks, patience, member }
    }

    pub(crate) fn to_bytes(&self) -> Vec<u8> {
        match self {
            Statement::Offer { parameters, ranks, patience, member } => {
                let patience = u64::try_from(patience.as_nanos()).unwrap_or(u64::MAX);
                put_member(Writer::new(1).u64(*parameters).u32(*ranks).u64(patience), member).done()
            }
            Statement::Ready => Writer::new(2).done(),
            Statement::Failed(error) => Writer::new(3).error(error).done(),
        }
    }

    pub(crate) fn parse(bytes: &[u8], limit: u32) -> Option<Self> {
        let mut reader = Reader(bytes);
        let statement = match reader.u8()? {
            1 => Statement::Offer {
                parameters: reader.u64()?,
                ranks: reader.u32()?,
                patience: Duration::from_nanos(reader.u64()?),
                member: member(&mut reader, limit)?,
            },
            2 => Statement::Ready,
            3 => Statement::Failed(reader.error(limit)?),
            _ => return None,
        };
        reader.end(statement)
    }
}

/// Whether the offer's build can work with ours.
pub(crate) fn is_same_release(parameters: u64) -> bool {
    parameters == PARAMETERS
}

impl Verdict {
    /// Largest payload, for so many ranks.
    pub(crate) fn limit(ranks: u32) -> usize {
        (ranks as usize).saturating_mul(OFFER + MEMBER).max(LINES * (LINE + 4) + 64)
    }

    pub(crate) fn to_bytes(&self) -> Vec<u8> {
        match self {
            Verdict::Table(members) => {
                members.iter().fold(Writer::new(16).u32(members.len() as u32), put_member).done()
            }
            Verdict::Go => Writer::new(17).done(),
            Verdict::Failed(error, lines) => {
                let start = Writer::new(18).error(error).u32(lines.len().min(LINES) as u32);
                lines.iter().take(LINES).fold(start, |writer, line| writer.text(line, LINE)).done()
            }
        }
    }

    pub(crate) fn parse(bytes: &[u8], ranks: u32) -> Option<Self> {
        let mut reader = Reader(bytes);
        let verdict = match reader.u8()? {
            16 => Verdict::Table(table(&mut reader, ranks)?),
            17 => Verdict::Go,
            18 => {
                // may name a rank that we did not expect
                let error = reader.error(u32::MAX)?;
                let count = reader.u32().filter(|&count| count as usize <= LINES)?;
                Verdict::Failed(error, (0..count).map(|_| reader.text(LINE)).collect::<Option<_>>()?)
            }
            _ => return None,
        };
        reader.end(verdict)
    }
}

fn table(reader: &mut Reader<'_>, ranks: u32) -> Option<Vec<Member>> {
    if reader.u32()? != ranks {
        return None;
    }
    (0..ranks).map(|rank| member(reader, ranks).filter(|member| member.rank.get() == rank)).collect()
}

fn put_member(writer: Writer, member: &Member) -> Writer {
    writer
        .u32(member.rank.get())
        .u64(member.incarnation)
        .bytes(&member.host.boot)
        .u64(member.host.pids)
        .u32(member.pid)
        .bytes(&address_to_bytes(member.control))
        .blob(&member.offer)
}

fn member(reader: &mut Reader<'_>, ranks: u32) -> Option<Member> {
    Some(Member {
        rank: reader.rank(ranks)?,
        incarnation: reader.u64()?,
        host: Host { boot: *reader.array()?, pids: reader.u64()? },
        pid: reader.u32()?,
        control: address_from_bytes(reader.array()?)?,
        offer: reader.blob(OFFER)?.to_vec(),
    })
}

#[cfg(any(test, fuzzing))]
pub mod fuzzing {
    //! Body of the fuzz target `bootstrap_message`.

    use super::{Statement, Verdict};

    /// What parses is emitted as the same bytes; nothing panics.
    pub fn messages(bytes: &[u8]) {
        for ranks in [1, 3, 1 << 20] {
            if let Some(statement) = Statement::parse(bytes, ranks) {
                assert_eq!(Statement::parse(&statement.to_bytes(), ranks), Some(statement));
            }
            if let Some(verdict) = Verdict::parse(bytes, ranks) {
                assert_eq!(Verdict::parse(&verdict.to_bytes(), ranks), Some(verdict));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use vervain_transport::Kind;

    use super::*;

    fn example(rank: u32) -> Member {
        Member {
            rank: Rank::new(rank),
            incarnation: 77,
            host: Host { boot: [3; 16], pids: 4 },
            pid: 5,
            control: "[::1]:6".parse().unwrap(),
            offer: vec![rank as u8; rank as usize],
        }
    }

    #[test]
    fn messages_round_trip() {
        for statement in [
            Statement::offer(3, Duration::from_millis(7), example(2)),
            Statement::Ready,
            Statement::Failed(Error::new(Kind::NoSpace).with_os(12)),
        ] {
            assert_eq!(Statement::parse(&statement.to_bytes(), 3), Some(statement));
        }
        for verdict in [
            Verdict::Table((0..3).map(example).collect()),
            Verdict::Go,
            Verdict::Failed(Kind::TimedOut.into(), vec!["one".into(), String::new()]),
        ] {
            assert_eq!(Verdict::parse(&verdict.to_bytes(), 3), Some(verdict));
        }
    }

    #[test]
    fn cut_or_longer_messages_are_refused() {
        let bytes = Verdict::Table((0..3).map(example).collect()).to_bytes();
        for end in 0..bytes.len() {
            assert_eq!(Verdict::parse(&bytes[..end], 3), None, "cut at {end}");
        }
        assert_eq!(Verdict::parse(&[&bytes[..], &[0]].concat(), 3), None);
        assert_eq!(Verdict::parse(&bytes, 2), None);
        assert_eq!(Verdict::parse(&bytes, 4), None);
    }

    #[test]
    fn table_out_of_rank_order_is_refused() {
        assert_eq!(Verdict::parse(&Verdict::Table(vec![example(1), example(0)]).to_bytes(), 2), None);
    }

    proptest! {
        #[test]
        fn any_bytes_are_survived(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            fuzzing::messages(&bytes);
        }
    }
}
