//! Memory that transfers use: regions, and what becomes of them when peers may touch them.
//!
//! A [`Region`] is the right to use memory that an endpoint knows. Giving a peer access turns it into an [`Exposed`]; only
//! [`Endpoint::revoke`](super::Endpoint::revoke) gives it back, after every peer was fenced, or as a [`Quarantined`] that may
//! still be written. None of them needs to be handed back: what is dropped is released as soon as nothing uses it any more.

use alloc::boxed::Box;
use alloc::sync::Arc;
use core::any::Any;
use core::fmt;
use core::ptr::NonNull;

use super::pages::PageList;
use super::table::NONE;
use crate::sync::{
    AtomicU32, AtomicU64,
    Ordering::{AcqRel, Acquire, Relaxed, Release},
};
use crate::{Kind, Result};

/// Names a region of an endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RegionKey {
    pub index: u32,
    pub generation: u32,
}

/// A range of a local region, as a plain value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Local {
    pub(super) region: RegionKey,
    pub(super) endpoint: u64,
    pub(super) offset: u64,
    pub(super) bytes: u64,
}

impl Local {
    /// Length, in bytes.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// These pages, counted from its start.
    pub fn pages(self, list: PageList<'_>) -> LocalPages<'_> {
        LocalPages { local: self, list }
    }

    /// A part of it. What lies outside is refused when it is used.
    #[must_use]
    pub fn part(self, offset: u64, bytes: u64) -> Self {
        // a sum that overflows can only lie outside, and stays there
        Self { offset: self.offset.saturating_add(offset), bytes, ..self }
    }
}

/// Pages of a local region.
#[derive(Clone, Copy, Debug)]
pub struct LocalPages<'a> {
    pub(super) local: Local,
    pub(super) list: PageList<'a>,
}

/// What region and endpoint share.
#[derive(Debug)]
pub(super) struct Shared {
    pub endpoint: u64,
    pub key: RegionKey,
    pub start: NonNull<u8>,
    pub bytes: usize,
    /// Keeps owned memory valid.
    _owner: Option<Arc<dyn Any + Send + Sync>>,
    pub dropped: Arc<Dropped>,
    /// The next in the list of dropped ones.
    next: AtomicU32,
}

// SAFETY: the pointer is only used for copies whose caller has exclusive or shared use of the region, as their contracts say;
// everything else is atomic or never changed.
unsafe impl Send for Shared {}
// SAFETY: as above.
unsafe impl Sync for Shared {}

impl Shared {
    pub fn new(
        endpoint: u64,
        key: RegionKey,
        place: (NonNull<u8>, usize),
        owner: Option<Arc<dyn Any + Send + Sync>>,
        dropped: Arc<Dropped>,
    ) -> Self {
        Self { endpoint, key, start: place.0, bytes: place.1, _owner: owner, dropped, next: AtomicU32::new(NONE) }
    }

    /// The one dropped before this.
    pub fn next_dropped(&self) -> u32 {
        // ordered by the list's head
        self.next.load(Relaxed)
    }
}

/// Regions that their owners dropped, wherever they did: a stack that the endpoint empties as a whole.
#[derive(Debug)]
pub(super) struct Dropped {
    head: AtomicU32,
}

impl Dropped {
    pub fn new() -> Self {
        Self { head: AtomicU32::new(NONE) }
    }

    fn push(&self, shared: &Shared) {
        let mut head = self.head.load(Relaxed);
        loop {
            shared.next.store(head, Relaxed);
            // SYNC endpoint.drop -> endpoint.collect: the link to the next is visible to who takes the head.
            match self.head.compare_exchange_weak(head, shared.key.index, Release, Relaxed) {
                Ok(_) => return,
                Err(other) => head = other,
            }
        }
    }

    /// The last one dropped; the others follow by [`Shared::next_dropped`].
    #[inline]
    pub fn take(&self) -> u32 {
        // the common case must not write to the line; what is missed is seen by the next poll
        if self.head.load(Relaxed) == NONE {
            return NONE;
        }
        // SYNC endpoint.collect -> endpoint.drop: the links of all that were pushed are visible.
        self.head.swap(NONE, AcqRel)
    }
}

/// Memory that an endpoint can transfer from and into. `Send`, not `Clone`: whoever has it may use the memory.
#[derive(Debug)]
pub struct Region {
    pub(super) shared: Arc<Shared>,
}

impl Region {
    /// Size, in bytes: what was asked for, rounded up to whole pages if it was allocated by the endpoint.
    pub fn bytes(&self) -> usize {
        self.shared.bytes
    }

    /// The whole of it.
    pub fn all(&self) -> Local {
        self.span(0, self.shared.bytes as u64)
    }

    /// A range of it. What lies outside is refused when it is used.
    pub fn span(&self, offset: u64, bytes: u64) -> Local {
        Local { region: self.shared.key, endpoint: self.shared.endpoint, offset, bytes }
    }

    /// Where it lies. Peers and transfers may write there while an operation says so.
    pub fn as_ptr(&self) -> *mut u8 {
        self.shared.start.as_ptr()
    }

    /// Copy bytes in. A transfer that reads the same range at this time takes old bytes, new ones, or a mixture.
    ///
    /// # Errors
    /// `AccessDenied` if the range lies outside.
    pub fn copy_in(&mut self, offset: usize, from: &[u8]) -> Result<()> {
        self.shared.copy_in(offset, from)
    }

    /// Copy bytes out. A transfer that writes the same range at this time gives old bytes, new ones, or a mixture.
    ///
    /// # Errors
    /// `AccessDenied` if the range lies outside.
    pub fn copy_out(&self, offset: usize, into: &mut [u8]) -> Result<()> {
        self.shared.copy_out(offset, into)
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        self.shared.dropped.push(&self.shared);
    }
}

impl Shared {
    fn place(&self, offset: usize, bytes: usize) -> Result<*mut u8> {
        let end = offset.checked_add(bytes).ok_or(Kind::AccessDenied)?;
        if end > self.bytes {
            return Err(Kind::AccessDenied.into());
        }
        // SAFETY: within the region, by the check.
        Ok(unsafe { self.start.as_ptr().add(offset) })
    }

    fn copy_in(&self, offset: usize, from: &[u8]) -> Result<()> {
        let to = self.place(offset, from.len())?;
        // SAFETY: `to` is valid for that many bytes as long as the region lives. A slice of ours cannot overlap memory that is
        // only reached through pointers.
        unsafe { to.copy_from(from.as_ptr(), from.len()) };
        Ok(())
    }

    fn load(&self, offset: usize) -> Result<u64> {
        let word = self.place(offset, 8)?.cast::<u64>();
        if !word.is_aligned() {
            return Err(Kind::InvalidArgument.into());
        }
        // SYNC endpoint.load <- shm.write: what the peer wrote before this word is visible.
        // SAFETY: aligned, and within the region; whoever writes it does so in one store.
        Ok(unsafe { AtomicU64::from_ptr(word) }.load(Acquire))
    }

    fn copy_out(&self, offset: usize, into: &mut [u8]) -> Result<()> {
        let from = self.place(offset, into.len())?;
        // whoever knows that the bytes are there has acquired that knowledge: from a counter, a message, or `load`
        // SAFETY: as in `copy_in`.
        unsafe { from.copy_to(into.as_mut_ptr(), into.len()) };
        Ok(())
    }
}

/// A region that peers may use. Its bytes can be copied, never borrowed: a peer may change them at any time.
///
/// Dropped, it is revoked by its endpoint, which keeps the memory until that is over.
#[derive(Debug)]
pub struct Exposed {
    pub(super) region: Region,
}

impl Exposed {
    /// Size, in bytes.
    pub fn bytes(&self) -> usize {
        self.region.bytes()
    }

    /// The whole of it.
    pub fn all(&self) -> Local {
        self.region.all()
    }

    /// A range of it, for transfers of ours.
    pub fn span(&self, offset: u64, bytes: u64) -> Local {
        self.region.span(offset, bytes)
    }

    /// Where it lies. Peers may write there at any time.
    pub fn as_ptr(&self) -> *mut u8 {
        self.region.as_ptr()
    }

    /// Copy bytes in.
    ///
    /// # Errors
    /// `AccessDenied` if the range lies outside.
    pub fn copy_in(&self, offset: usize, from: &[u8]) -> Result<()> {
        self.region.shared.copy_in(offset, from)
    }

    /// An 8-byte word (8-aligned), whole. If a peer wrote it after other bytes, these are there too.
    ///
    /// # Errors
    /// `AccessDenied` if it lies outside, `InvalidArgument` if it is not aligned.
    #[inline]
    pub fn load(&self, offset: usize) -> Result<u64> {
        self.region.shared.load(offset)
    }

    /// Copy bytes out. What a peer announced before (by an immediate, a message, or a counter) is whole.
    ///
    /// # Errors
    /// `AccessDenied` if the range lies outside.
    pub fn copy_out(&self, offset: usize, into: &mut [u8]) -> Result<()> {
        self.region.shared.copy_out(offset, into)
    }
}

/// A region of which nobody can prove that all peers have stopped writing. Its memory stays valid and may still change.
///
/// Try [`Endpoint::retry_revoke`](super::Endpoint::retry_revoke) later, or drop it: the endpoint goes on trying, and keeps the
/// memory until it succeeds or ends.
pub struct Quarantined {
    pub(super) exposed: Exposed,
    /// Why the revocation failed.
    pub error: crate::Error,
}

impl Quarantined {
    /// Size, in bytes.
    pub fn bytes(&self) -> usize {
        self.exposed.bytes()
    }
}

impl fmt::Debug for Quarantined {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Quarantined").field("bytes", &self.bytes()).field("error", &self.error).finish()
    }
}

impl fmt::Display for Quarantined {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the region of {} bytes may still be written by a peer: {}", self.bytes(), self.error)
    }
}

impl core::error::Error for Quarantined {}

/// A refusal that gives back what it was asked about.
#[derive(Debug)]
pub struct Refused<T> {
    /// What was passed in.
    pub value: T,
    /// Why it was refused.
    pub error: crate::Error,
}

impl<T> fmt::Display for Refused<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.error.fmt(f)
    }
}

impl<T: fmt::Debug> core::error::Error for Refused<T> {}

impl<T> From<Refused<T>> for crate::Error {
    /// Drops what was refused.
    fn from(refused: Refused<T>) -> Self {
        refused.error
    }
}

impl<T> From<Box<Refused<T>>> for crate::Error {
    /// Drops what was refused.
    fn from(refused: Box<Refused<T>>) -> Self {
        refused.error
    }
}
