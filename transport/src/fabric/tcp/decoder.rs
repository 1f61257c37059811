//! The read-ahead of one socket: raw bytes in, headers and payload out. Pure.

use crate::wire::frame::{HEADER, Header, MESSAGE, Malformed};

/// Payloads of at most this many bytes are handled once they are here as a whole: a counter never appears half-written.
/// Longer ones go from the socket to their place as they come.
pub(super) const WHOLE: u64 = MESSAGE;

/// Bytes asked for beyond the payload that is under way. Several small frames arrive with one call; of a large one, no more than
/// this is copied twice.
const AHEAD: usize = 16 << 10;

const _: () = assert!(AHEAD > HEADER + WHOLE as usize);

/// A window over the stream.
#[derive(Debug)]
pub(super) struct Decoder {
    buffer: Box<[u8]>,
    start: usize,
    end: usize,
}

impl Decoder {
    pub(super) fn new() -> Self {
        Self { buffer: vec![0; AHEAD].into_boxed_slice(), start: 0, end: 0 }
    }

    /// What has come and has not been taken.
    pub(super) fn bytes(&self) -> &[u8] {
        &self.buffer[self.start..self.end]
    }

    /// The next header, and its payload if that is short, once all of it is here. Takes nothing.
    pub(super) fn frame(&self) -> Option<Result<Header, Malformed>> {
        let raw = self.bytes().first_chunk::<HEADER>()?;
        let header = match Header::parse(raw) {
            Ok(header) => header,
            Err(malformed) => return Some(Err(malformed)),
        };
        let whole = if header.payload() <= WHOLE { header.payload() as usize } else { 0 };
        (self.bytes().len() >= HEADER + whole).then_some(Ok(header))
    }

    /// Forget the next `count` bytes.
    pub(super) fn take(&mut self, count: usize) {
        debug_assert!(count <= self.end - self.start, "only what has come can be taken");
        self.start += count;
        if self.start == self.end {
            self.start = 0;
            self.end = 0;
        }
    }

    /// Where the next bytes of the stream go.
    pub(super) fn space(&mut self) -> &mut [u8] {
        if self.start > 0 {
            self.buffer.copy_within(self.start..self.end, 0);
            self.end -= self.start;
            self.start = 0;
        }
        &mut self.buffer[self.end..]
    }

    /// `count` bytes have been put into [`Decoder::space`].
    pub(super) fn filled(&mut self, count: usize) {
        debug_assert!(count <= self.buffer.len() - self.end, "the space was given out");
        self.end += count;
    }
}
