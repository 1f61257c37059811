//! Output of ranks, cut into lines so that those of different ranks do not mix.

use std::io::{ErrorKind, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};

use vervain_transport::Rank;

/// A line is cut here if it does not end before.
const LONGEST: usize = 64 << 10;

/// Where the lines of a pipe go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sink {
    Stdout,
    Stderr,
}

/// Takes a line.
type Take<'a> = &'a mut dyn FnMut(Rank, Sink, &[u8]);

/// One pipe of one rank.
#[derive(Debug)]
pub(super) struct Pipe<R> {
    rank: Rank,
    sink: Sink,
    source: R,
    partial: Vec<u8>,
}

/// Whether a pipe brings anything any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Flow {
    Open,
    Ended,
}

impl<R: Read> Pipe<R> {
    /// `source` must not block.
    pub(super) fn new(rank: Rank, sink: Sink, source: R) -> Self {
        Self { rank, sink, source, partial: Vec::new() }
    }

    /// Hand whole lines, and at the end the last one, to `take`.
    pub(super) fn drain(&mut self, take: Take<'_>) -> Flow {
        let mut buffer = [0; 8192];
        loop {
            match self.source.read(&mut buffer) {
                Ok(0) => break,
                Ok(count) => self.add(&buffer[..count], take),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Flow::Open,
                Err(_) => break,
            }
        }
        if !self.partial.is_empty() {
            take(self.rank, self.sink, &core::mem::take(&mut self.partial));
        }
        Flow::Ended
    }

    fn add(&mut self, bytes: &[u8], take: Take<'_>) {
        for part in bytes.split_inclusive(|&byte| byte == b'\n') {
            self.partial.extend_from_slice(part);
            if part.ends_with(b"\n") {
                self.partial.pop();
                take(self.rank, self.sink, &core::mem::take(&mut self.partial));
            } else if self.partial.len() >= LONGEST {
                take(self.rank, self.sink, &core::mem::take(&mut self.partial));
            }
        }
    }
}

impl<R: AsFd> AsFd for Pipe<R> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.source.as_fd()
    }
}

/// Print a line with its rank in front. A closed output is not our failure.
pub(super) fn print(rank: Rank, sink: Sink, line: &[u8]) {
    let text = [format!("[rank {rank}] ").as_bytes(), line, b"\n"].concat();
    let _ = match sink {
        Sink::Stdout => std::io::stdout().lock().write_all(&text),
        Sink::Stderr => std::io::stderr().lock().write_all(&text),
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_come_whole_and_the_last_one_without_an_end() {
        let mut pipe = Pipe::new(Rank::new(0), Sink::Stdout, &b"one\n\ntwo\nrest"[..]);
        let mut lines = Vec::new();
        assert_eq!(pipe.drain(&mut |_, _, line| lines.push(line.to_vec())), Flow::Ended);
        assert_eq!(lines, [&b"one"[..], b"", b"two", b"rest"]);
    }

    #[test]
    fn endless_line_is_cut() {
        let long = vec![b'x'; LONGEST + 10_000];
        let mut pipe = Pipe::new(Rank::new(0), Sink::Stdout, &long[..]);
        let mut sizes = Vec::new();
        pipe.drain(&mut |_, _, line| sizes.push(line.len()));
        assert_eq!(sizes.iter().sum::<usize>(), long.len());
        assert!(sizes.iter().all(|&size| size < LONGEST + 8192));
    }
}
