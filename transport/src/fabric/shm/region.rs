//! Local memory and what peers have shown us of theirs.

use core::ptr::NonNull;
use std::sync::Arc;

use memmap2::MmapRaw;

use super::memory::Segment;
use crate::{
    Kind, Result,
    fabric::{Access, LinkId, View},
};

/// Memory that spans refer to.
#[derive(Debug)]
pub(super) struct Region {
    view: View,
    /// Ours, to be mapped by peers; `None` for memory that was registered.
    pub segment: Option<Segment>,
    /// Operations outstanding on it.
    pub uses: usize,
    /// Who may use it by themselves, as far as is known.
    pub holders: Vec<Holder>,
    /// A revocation has not been reported.
    pub is_ending: bool,
}

/// A key that its peer may still use: it is valid, or the peer has not confirmed that it is void.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Holder {
    pub link: LinkId,
    /// The number of the key.
    pub number: u32,
}

// SAFETY: the region owns its mapping, or its memory is valid until it is released, by the contract of `register`.
unsafe impl Send for Region {}

impl Region {
    pub fn allocated(segment: Segment) -> Self {
        let start = NonNull::new(segment.map.as_mut_ptr()).expect("a mapping has an address");
        Self::new(View { start, bytes: segment.map.len() }, Some(segment))
    }

    pub fn registered(start: NonNull<u8>, bytes: usize) -> Self {
        Self::new(View { start, bytes }, None)
    }

    fn new(view: View, segment: Option<Segment>) -> Self {
        Self { view, segment, uses: 0, holders: Vec::new(), is_ending: false }
    }

    pub fn view(&self) -> View {
        self.view
    }

    /// The first of `bytes` bytes at `offset`.
    #[inline]
    pub fn at(&self, offset: u64, bytes: u64) -> Result<*mut u8> {
        check(offset, bytes, self.view.bytes as u64)?;
        // SAFETY: `offset` is at most the region's length.
        Ok(unsafe { self.view.start.as_ptr().add(offset as usize) })
    }
}

/// Memory of a peer.
#[derive(Debug)]
pub(super) struct Remote {
    pub link: LinkId,
    pub access: Access,
    pub reach: Reach,
    /// The number of its key; `None` if it has none.
    pub number: Option<u32>,
}

/// How it is reached.
#[derive(Debug)]
pub(super) enum Reach {
    /// Mapped here.
    Mapped(Arc<MmapRaw>),
    /// Registered by the peer: it can be read by its address, or with its owner's help.
    Readable { key: u32, start: u64, bytes: u64 },
    /// The whole address space of the peer, to be read by address.
    Foreign,
    /// The key became void. The mapping, if there was one, has pages of ours, for who holds a view.
    Void { bytes: u64, _map: Option<Arc<MmapRaw>> },
}

impl Remote {
    /// The offset, if `bytes` bytes from there are inside.
    #[inline]
    pub fn check(&self, offset: u64, bytes: u64) -> Result<u64> {
        let limit = match &self.reach {
            Reach::Mapped(map) => map.len() as u64,
            Reach::Readable { bytes, .. } | Reach::Void { bytes, .. } => *bytes,
            Reach::Foreign => u64::MAX,
        };
        check(offset, bytes, limit).map(|()| offset)
    }

    /// The key became void.
    pub fn end(&mut self) {
        let reach = Reach::Void { bytes: 0, _map: None };
        self.reach = match core::mem::replace(&mut self.reach, reach) {
            Reach::Mapped(map) => Reach::Void { bytes: map.len() as u64, _map: Some(map) },
            Reach::Readable { bytes, .. } => Reach::Void { bytes, _map: None },
            reach => reach,
        };
    }
}

#[inline]
fn check(offset: u64, bytes: u64, limit: u64) -> Result<()> {
    match offset.checked_add(bytes) {
        Some(end) if end <= limit => Ok(()),
        _ => Err(Kind::AccessDenied.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_end_where_the_memory_ends() {
        let mut memory = [0_u8; 16];
        let region = Region::registered(NonNull::from(&mut memory).cast(), 16);
        for (offset, bytes) in [(0, 0), (0, 16), (15, 1), (16, 0)] {
            assert!(region.at(offset, bytes).is_ok(), "{offset} + {bytes}");
        }
        for (offset, bytes) in [(0, 17), (16, 1), (17, 0), (u64::MAX, 1), (1, u64::MAX), (u64::MAX, u64::MAX)] {
            assert_eq!(region.at(offset, bytes).unwrap_err().kind(), Kind::AccessDenied, "{offset} + {bytes}");
        }
    }
}
