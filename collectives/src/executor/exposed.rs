//! What peers can write: for tests that write anything there.

use vervain_transport::wire::connection::Areas;
use vervain_transport::wire::{LINE, ll};

use super::connection::SLOTS;
use crate::buffer::Memory;

/// A range of memory that peers write.
#[derive(Clone, Copy, Debug)]
pub struct Exposed {
    /// Aligned to words.
    pub memory: Memory,
    /// What lies there.
    pub content: Content,
}

/// What a wrong word may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Content {
    /// A counter or a word of a record: one that was not expected is noticed.
    Counter,
    /// Words with flags, flags of lines, and headers in lines: likewise.
    Line,
    /// Bytes of the user's, which a peer may choose anyway.
    Bytes,
}

impl Content {
    /// All that lies in `memory` is this.
    pub fn of(self, memory: Memory) -> Exposed {
        Exposed { memory, content: self }
    }
}

/// Every word of `memory` as a counter.
pub fn counters(memory: Memory) -> impl Iterator<Item = Exposed> {
    (0..memory.bytes()).step_by(8).map(move |at| Content::Counter.of(memory.slice(at, 8)))
}

/// The line slots that begin at `slots`: each word of LL has its flag; a line of LL128 has one, and the first one a header.
pub fn line_slots(slots: Memory, areas: &Areas) -> Vec<Exposed> {
    let mut all = Vec::new();
    for slot in 0..SLOTS {
        let (words, lines) = (areas.ll(slot), areas.ll128(slot));
        let whole = words.bytes as usize / ll::LL_LINE * ll::LL_LINE;
        all.push(Content::Line.of(slots.slice(words.offset as usize, whole)));
        let lines = slots.slice(lines.offset as usize, lines.bytes as usize);
        for line in (0..lines.bytes()).step_by(LINE) {
            let header = if line == 0 { 8 } else { 0 };
            if header > 0 {
                all.push(Content::Line.of(lines.slice(line, header)));
            }
            all.push(Content::Bytes.of(lines.slice(line + header, LINE - 8 - header)));
            all.push(Content::Line.of(lines.slice(line + LINE - 8, 8)));
        }
    }
    all
}
