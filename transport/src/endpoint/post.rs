//! Starting transfers.

use super::memory::Local;
use super::regions::RemoteSpan;
use super::table::NONE;
use super::{Access, Endpoint, PeerId, Posted};
use crate::{
    Kind, Result, Time,
    fabric::{INLINE, LinkId, Op, RemoteId, Span, Target},
};

/// When a transfer must have ended, and what its completion brings back. A [`Time`] converts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Terms {
    pub(super) deadline: Time,
    pub(super) context: u64,
    pub(super) detached: bool,
}

impl Terms {
    /// To end by `deadline`.
    pub fn by(deadline: Time) -> Self {
        Self { deadline, context: 0, detached: false }
    }

    /// A number for the completion.
    #[must_use]
    pub fn context(self, context: u64) -> Self {
        Self { context, ..self }
    }

    /// Nobody asks how it ends: there is no completion.
    #[must_use]
    pub fn detached(self) -> Self {
        Self { detached: true, ..self }
    }
}

impl From<Time> for Terms {
    fn from(deadline: Time) -> Self {
        Self::by(deadline)
    }
}

/// Whether the target is told when a write has landed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Notify {
    /// It is not.
    #[default]
    No,
    /// The counter of this value goes up by one there, after the bytes have landed: see [`Endpoint::expect`]. Any value will do, and what it means
    /// is between the two sides. Like a message it takes one of the peer's receives.
    Immediate(u32),
}

impl Notify {
    #[inline]
    pub(super) fn immediate(self) -> Option<u32> {
        match self {
            Notify::No => None,
            Notify::Immediate(value) => Some(value),
        }
    }
}

/// One write of several.
#[derive(Clone, Copy, Debug)]
pub struct Write {
    /// What to write.
    pub local: Local,
    /// Where to.
    pub remote: RemoteSpan,
    /// Whether the target is told.
    pub notify: Notify,
    /// A number for the completion.
    pub context: u64,
}

/// What [`Endpoint::start`] needs to know besides the operation.
#[derive(Clone, Copy, Debug)]
pub(super) struct Uses {
    /// A region, or `NONE`.
    pub region: u32,
    /// A message slot, or `NONE`.
    pub slot: u32,
    /// The transfer it is a part of, or `NONE`.
    pub parent: u32,
}

impl Uses {
    pub const NOTHING: Uses = Uses { region: NONE, slot: NONE, parent: NONE };
}

/// Operations handed to a fabric in one call.
pub(super) const BATCH: usize = 16;

impl Endpoint {
    /// Write a local range to a peer's memory, from `remote` on; no bytes at all are allowed, and notify like others. Writes to one peer land in
    /// the order of their starts. The local bytes must stay as they are until the end; those that change meanwhile land old, new, or mixed.
    ///
    /// # Errors
    /// `TimedOut` for a deadline that has passed, `InvalidArgument` for a region that is not known, `AccessDenied` for a range outside a region or
    /// its rights, `Unsupported` where the fabric cannot write that memory, or why the peer is down. Nothing was started then.
    #[inline]
    pub fn write(
        &mut self,
        local: Local,
        remote: RemoteSpan,
        notify: Notify,
        terms: impl Into<Terms>,
    ) -> Result<Posted> {
        let (peer, target) = self.writable(remote)?;
        let (backend, _) = self.way(peer)?;
        let local_span = self.span_on(backend, local)?;
        let immediate = notify.immediate();
        let op = |token| Op::Write { token, local: local_span, target, immediate };
        self.start(peer, Uses { region: local.region.index, ..Uses::NOTHING }, terms.into(), op)
    }

    /// Write up to [`INLINE`] bytes, which may be reused at once.
    ///
    /// # Errors
    /// As for [`Endpoint::write`]; `InvalidArgument` for more bytes.
    #[inline]
    pub fn write_inline(
        &mut self,
        bytes: &[u8],
        remote: RemoteSpan,
        notify: Notify,
        terms: impl Into<Terms>,
    ) -> Result<Posted> {
        let (peer, target) = self.writable(remote)?;
        if bytes.len() > INLINE {
            return Err(Kind::InvalidArgument.into());
        }
        let mut data = [0; INLINE];
        data[..bytes.len()].copy_from_slice(bytes);
        let (bytes, immediate) = (bytes.len() as u8, notify.immediate());
        let op = |token| Op::WriteInline { token, data, bytes, target, immediate };
        self.start(peer, Uses::NOTHING, terms.into(), op)
    }

    /// Read a peer's memory, from `remote` on, into a local range, as many bytes as that has. Not ordered behind writes that have not ended. What
    /// the range holds is undefined until the end, and after an end that is not [`End::Done`](super::End::Done).
    ///
    /// # Errors
    /// As for [`Endpoint::write`].
    pub fn read(&mut self, local: Local, remote: RemoteSpan, terms: impl Into<Terms>) -> Result<Posted> {
        let (peer, target) = self.readable(remote)?;
        let (backend, _) = self.way(peer)?;
        let local_span = self.span_on(backend, local)?;
        let op = |token| Op::Read { token, local: local_span, target };
        self.start(peer, Uses { region: local.region.index, ..Uses::NOTHING }, terms.into(), op)
    }

    /// Add to a peer's 8-byte word, modulo 2^64; the completion has the value before. Atomic against other operations of the same device.
    ///
    /// # Errors
    /// As for [`Endpoint::write`]; `InvalidArgument` for a place that is not 8-aligned.
    pub fn fetch_add(&mut self, remote: RemoteSpan, add: u64, terms: impl Into<Terms>) -> Result<Posted> {
        let (peer, target) = self.atomic(remote)?;
        self.start(peer, Uses::NOTHING, terms.into(), |token| Op::FetchAdd { token, target, add })
    }

    /// Replace a peer's 8-byte word if it holds `expected`; the completion has the value before.
    ///
    /// # Errors
    /// As for [`Endpoint::fetch_add`].
    pub fn compare_swap(
        &mut self,
        remote: RemoteSpan,
        expected: u64,
        desired: u64,
        terms: impl Into<Terms>,
    ) -> Result<Posted> {
        let (peer, target) = self.atomic(remote)?;
        self.start(peer, Uses::NOTHING, terms.into(), |token| Op::CompareSwap { token, target, expected, desired })
    }

    /// Done when everything started before with this peer is visible there.
    ///
    /// # Errors
    /// As for [`Endpoint::write`].
    pub fn flush(&mut self, peer: PeerId, terms: impl Into<Terms>) -> Result<Posted> {
        self.start(peer, Uses::NOTHING, terms.into(), |token| Op::Flush { token })
    }

    /// Start several writes to one peer, in order, each with an end of its own and the context of the write. Returns how many were started:
    /// the rest found no room, or the next call says why not.
    ///
    /// # Errors
    /// As for [`Endpoint::write`], for any of the first 16 writes; nothing was started then.
    pub fn write_many(&mut self, peer: PeerId, writes: &[Write], terms: impl Into<Terms>) -> Result<usize> {
        let terms = terms.into();
        let mut started = 0;
        for batch in writes.chunks(BATCH) {
            let count = match self.write_batch(peer, batch, terms) {
                Ok(count) => count,
                Err(_) if started > 0 => break,
                Err(error) => return Err(error),
            };
            started += count;
            if count < batch.len() {
                break;
            }
        }
        Ok(started)
    }

    fn write_batch(&mut self, peer: PeerId, writes: &[Write], terms: Terms) -> Result<usize> {
        self.check_terms(terms)?;
        let (backend, link) = self.way(peer)?;
        if self.peers.get(peer).backlog != NONE {
            return Ok(0);
        }
        let mut ops = [Op::Flush { token: 0 }; BATCH];
        let mut entries = [NONE; BATCH];
        let mut count = 0;
        let mut failure = None;
        for write in writes {
            let Some(index) = self.transfers.add(peer.0, terms.deadline, write.context) else { break };
            entries[count] = index;
            let token = self.transfers.token(index);
            match self.write_op(backend, peer, write, token) {
                Ok(op) => ops[count] = op,
                Err(error) => failure = Some(error),
            }
            count += 1;
            if failure.is_some() {
                break;
            }
        }
        let posted = match failure {
            None => self.backends[backend].post(link, &ops[..count]),
            Some(error) => Err(error),
        };
        let accepted = *posted.as_ref().unwrap_or(&0);
        for (&index, write) in entries[..accepted].iter().zip(writes) {
            self.note_start(index, Uses { region: write.local.region.index, ..Uses::NOTHING }, terms);
            self.transfers.get_mut(index).outstanding = 1;
        }
        for &index in entries[accepted..count].iter().rev() {
            self.transfers.withdraw(index);
        }
        posted
    }

    #[inline]
    fn write_op(&mut self, backend: usize, peer: PeerId, write: &Write, token: u64) -> Result<Op> {
        let (owner, target) = self.writable(write.remote)?;
        if owner != peer {
            return Err(Kind::InvalidArgument.into());
        }
        let local = self.span_on(backend, write.local)?;
        Ok(Op::Write { token, local, target, immediate: write.notify.immediate() })
    }

    /// Start a transfer of one operation.
    #[inline]
    pub(super) fn start(
        &mut self,
        peer: PeerId,
        uses: Uses,
        terms: Terms,
        op: impl FnOnce(u64) -> Op,
    ) -> Result<Posted> {
        self.check_terms(terms)?;
        let (backend, link) = self.way(peer)?;
        if self.peers.get(peer).backlog != NONE {
            return Ok(Posted::Busy);
        }
        let Some(index) = self.transfers.add(peer.0, terms.deadline, terms.context) else { return Ok(Posted::Busy) };
        let op = op(self.transfers.token(index));
        match self.backends[backend].post(link, &[op]) {
            Ok(0) => {
                self.transfers.withdraw(index);
                Ok(Posted::Busy)
            }
            Ok(_) => {
                self.note_start(index, uses, terms);
                self.transfers.get_mut(index).outstanding = 1;
                Ok(Posted::Started(self.transfers.handle(index)))
            }
            Err(error) => {
                self.transfers.withdraw(index);
                Err(error)
            }
        }
    }

    /// Note what a started transfer uses.
    #[inline]
    pub(super) fn note_start(&mut self, index: u32, uses: Uses, terms: Terms) {
        let entry = self.transfers.get_mut(index);
        entry.detached = terms.detached;
        (entry.region, entry.slot, entry.parent) = (uses.region, uses.slot, uses.parent);
        if uses.region != NONE {
            self.regions.add_use(uses.region);
        }
    }

    #[inline]
    pub(super) fn check_terms(&self, terms: Terms) -> Result<()> {
        if terms.deadline <= self.now { Err(Kind::TimedOut.into()) } else { Ok(()) }
    }

    /// Fabric and link of a peer that is up.
    #[inline]
    pub(super) fn way(&self, peer: PeerId) -> Result<(usize, LinkId)> {
        let known = self.peers.up(peer)?;
        Ok((usize::from(known.backend), known.link))
    }

    #[inline]
    pub(super) fn span_on(&mut self, backend: usize, local: Local) -> Result<Span> {
        let region = self.region_on(backend, local)?;
        Ok(Span { region, offset: local.offset, bytes: local.bytes })
    }

    /// A peer's region that is open. One that is not, since its peer is gone, says why that is.
    #[inline]
    fn opened(&self, remote: RemoteSpan) -> Result<(PeerId, RemoteId, Access)> {
        self.regions.remote(remote).map_err(|error| self.peers.up(remote.region.peer).err().unwrap_or(error))
    }

    #[inline]
    pub(super) fn writable(&self, remote: RemoteSpan) -> Result<(PeerId, Target)> {
        let (peer, id, access) = self.opened(remote)?;
        if !access.writes() {
            return Err(Kind::AccessDenied.into());
        }
        Ok((peer, Target { remote: id, offset: remote.offset }))
    }

    fn readable(&self, remote: RemoteSpan) -> Result<(PeerId, Target)> {
        let (peer, id, access) = self.opened(remote)?;
        if !access.reads() {
            return Err(Kind::AccessDenied.into());
        }
        Ok((peer, Target { remote: id, offset: remote.offset }))
    }

    fn atomic(&self, remote: RemoteSpan) -> Result<(PeerId, Target)> {
        self.readable(remote)?;
        self.writable(remote)
    }
}
