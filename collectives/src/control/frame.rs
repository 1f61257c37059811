//! What is flooded, byte by byte.

use vervain_transport::{Error, Rank};

use super::codec::{Reader, Writer};
use crate::call::{Descriptor, WORDS};

/// Largest payload of a frame.
pub(crate) const FRAME: usize = 1024;
/// Longest text in a frame.
pub(crate) const TEXT: usize = 900;

/// A message on its way through the mesh.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Flood {
    /// Who said it.
    pub origin: Rank,
    /// The how manieth message of that rank, from 1.
    pub sequence: u64,
    /// What it said.
    pub message: Message,
}

/// What a rank says to all.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Message {
    /// This rank's process ended.
    Died(Rank),
    /// I leave.
    Left,
    /// I abort.
    Aborted,
    /// I make no progress in this operation.
    Stalled(Descriptor),
    /// I have entered this many operations, and wait for that rank.
    State { entered: u64, waiting: Option<Rank> },
    /// Two ranks called the same operation differently.
    Mismatch([(Rank, Descriptor); 2]),
    /// It will not work any more.
    Failed(Error, String),
}

impl Message {
    /// Whether it may be dropped for a peer that does not read: another one will follow, or the deadline.
    pub(crate) fn is_droppable(&self) -> bool {
        matches!(self, Message::Stalled(_) | Message::State { .. })
    }
}

impl Flood {
    pub(crate) fn to_bytes(&self) -> Vec<u8> {
        let start = |kind| Writer::new(kind).u32(self.origin.get()).u64(self.sequence);
        match &self.message {
            Message::Died(rank) => start(1).u32(rank.get()),
            Message::Left => start(2),
            Message::Aborted => start(3),
            Message::Stalled(call) => put_call(start(4), call),
            Message::State { entered, waiting } => start(5).u64(*entered).u32(waiting.map_or(u32::MAX, Rank::get)),
            Message::Mismatch(calls) => {
                calls.iter().fold(start(6), |writer, (rank, call)| put_call(writer.u32(rank.get()), call))
            }
            Message::Failed(error, text) => start(7).error(error).text(text, TEXT),
        }
        .done()
    }

    /// The message with these bytes, in a job of so many ranks.
    pub(crate) fn parse(bytes: &[u8], ranks: u32) -> Option<Self> {
        let mut reader = Reader(bytes);
        let kind = reader.u8()?;
        let origin = reader.rank(ranks)?;
        let sequence = reader.u64()?;
        let message = match kind {
            1 => Message::Died(reader.rank(ranks)?),
            2 => Message::Left,
            3 => Message::Aborted,
            4 => Message::Stalled(call(&mut reader)?),
            5 => Message::State { entered: reader.u64()?, waiting: waiting(&mut reader, ranks)? },
            6 => Message::Mismatch([
                (reader.rank(ranks)?, call(&mut reader)?),
                (reader.rank(ranks)?, call(&mut reader)?),
            ]),
            7 => Message::Failed(reader.error(ranks)?, reader.text(TEXT)?),
            _ => return None,
        };
        reader.end(Self { origin, sequence, message })
    }
}

fn put_call(writer: Writer, call: &Descriptor) -> Writer {
    call.to_words().into_iter().fold(writer, Writer::u64)
}

fn call(reader: &mut Reader<'_>) -> Option<Descriptor> {
    let mut words = [0; WORDS];
    for word in &mut words {
        *word = reader.u64()?;
    }
    Descriptor::from_words(words)
}

fn waiting(reader: &mut Reader<'_>, ranks: u32) -> Option<Option<Rank>> {
    match reader.u32()? {
        u32::MAX => Some(None),
        rank => (rank < ranks).then(|| Some(Rank::new(rank))),
    }
}

#[cfg(any(test, fuzzing))]
pub mod fuzzing {
    //! Body of the fuzz target `control_frame`.

    use super::{FRAME, Flood};

    /// What parses is emitted as the same message, in bounds; nothing panics.
    pub fn control_frame(bytes: &[u8]) {
        for ranks in [1, 3, 1 << 20] {
            let Some(flood) = Flood::parse(bytes, ranks) else { continue };
            let emitted = flood.to_bytes();
            assert!(emitted.len() <= FRAME);
            assert_eq!(Flood::parse(&emitted, ranks), Some(flood));
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use vervain_transport::Kind;

    use super::*;
    use crate::{Collective, DataType, ReduceOp};

    fn examples() -> Vec<Message> {
        let call = Descriptor {
            operation: 9,
            collective: Collective::AllReduce,
            count: 8,
            datatype: DataType::F32,
            op: Some(ReduceOp::Sum),
            root: None,
            registered: false,
            tuning: 1,
        };
        vec![
            Message::Died(Rank::new(2)),
            Message::Left,
            Message::Aborted,
            Message::Stalled(call),
            Message::State { entered: 4, waiting: Some(Rank::new(1)) },
            Message::State { entered: 0, waiting: None },
            Message::Mismatch([(Rank::new(0), call), (Rank::new(2), Descriptor { count: 7, ..call })]),
            Message::Failed(Error::new(Kind::TimedOut).with_rank(Rank::new(1)).with_operation(9), "why".into()),
        ]
    }

    #[test]
    fn messages_round_trip_and_cuts_are_refused() {
        for message in examples() {
            let flood = Flood { origin: Rank::new(1), sequence: 5, message };
            let bytes = flood.to_bytes();
            for end in 0..bytes.len() {
                assert_eq!(Flood::parse(&bytes[..end], 3), None, "{flood:?} cut at {end}");
            }
            assert_eq!(Flood::parse(&[&bytes[..], &[0]].concat(), 3), None);
            assert_eq!(Flood::parse(&bytes, 1), None);
            assert_eq!(Flood::parse(&bytes, 3), Some(flood));
        }
    }

    #[test]
    fn longest_text_fits_a_frame() {
        let message = Message::Failed(Kind::Bug.into(), "x".repeat(5000));
        assert!(Flood { origin: Rank::new(0), sequence: 1, message }.to_bytes().len() <= FRAME);
    }

    proptest! {
        #[test]
        fn any_bytes_are_survived(kind in 0u8..9, rest in proptest::collection::vec(any::<u8>(), 0..150)) {
            fuzzing::control_frame(&[&[kind][..], &rest].concat());
        }
    }
}
