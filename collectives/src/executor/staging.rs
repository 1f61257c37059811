//! Memory between a peer's bytes and the kernel: unpacked line messages, and pieces of pulled buffers.

use vervain_transport::fabric::{RegionId, Span};

use super::connection::payload;
use crate::buffer::{self, Memory};
use crate::communicator::Protocol;

/// Bytes of an unpacked message, at most.
const MESSAGE: usize = payload(Protocol::Ll128, true);
/// Bytes for pulled pieces, all sources together: stays in a core's second-level cache.
const PULL: usize = 512 << 10;
/// Pieces are multiples of this.
const GRAIN: usize = 4096;

/// Staging memory of one executor.
#[derive(Debug)]
pub struct Staging {
    _owned: Box<[u64]>,
    memory: Memory,
    messages: usize,
    region: Option<RegionId>,
}

impl Staging {
    /// For Moves of up to `sources` sources.
    pub fn new(sources: usize) -> Self {
        let messages = sources + 1;
        let (owned, memory) = buffer::owned(messages * MESSAGE + PULL.max(sources * GRAIN));
        Self { _owned: owned, memory, messages, region: None }
    }

    /// All of it, to be registered.
    pub fn memory(&self) -> Memory {
        self.memory
    }

    /// It is registered: pulls may go here.
    pub fn registered(&mut self, region: RegionId) {
        self.region = Some(region);
    }

    /// Where the message of source `index` is unpacked.
    #[inline]
    pub fn message(&self, index: usize, bytes: usize) -> Memory {
        self.memory.slice(index * MESSAGE, bytes)
    }

    /// Where a result waits to be packed.
    #[inline]
    pub fn result(&self, bytes: usize) -> Memory {
        self.memory.slice((self.messages - 1) * MESSAGE, bytes)
    }

    /// Bytes of a piece, if `sources` sources are pulled at once.
    pub fn piece(&self, sources: usize) -> usize {
        (PULL / sources / GRAIN * GRAIN).max(GRAIN)
    }

    /// Where the piece of source `index` lies.
    pub fn pull(&self, index: usize, bytes: usize) -> Memory {
        self.memory.slice(self.pull_at(index, bytes), bytes)
    }

    /// The same as a span.
    pub fn pull_span(&self, index: usize, bytes: usize) -> Span {
        let region = self.region.expect("staging is registered before anything is pulled");
        Span { region, offset: self.pull_at(index, bytes) as u64, bytes: bytes as u64 }
    }

    /// Sources lie one behind the other, each rounded up to the grain.
    fn pull_at(&self, index: usize, bytes: usize) -> usize {
        self.messages * MESSAGE + index * bytes.next_multiple_of(GRAIN)
    }
}
