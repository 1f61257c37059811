//! Many equal pages in one transfer: blocks of a cache, rows of a matrix.

use super::memory::LocalPages;
use super::post::{BATCH, Notify, Terms, Uses};
use super::regions::RemotePages;
use super::table::NONE;
use super::work::{Numbers, PagesLeft, Side, Work};
use super::{Endpoint, Posted};
use crate::{
    Kind, Result,
    fabric::{Op, RegionId, RemoteId},
};

/// Where pages lie in a region: page number `n` starts at `offset + n * stride`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PageList<'a> {
    /// Where page number 0 starts, in bytes.
    pub offset: u64,
    /// From one page number to the next, in bytes.
    pub stride: u64,
    numbers: Pick<'a>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Pick<'a> {
    Listed(&'a [u32]),
    Range { first: u32, count: u32 },
}

impl<'a> PageList<'a> {
    /// The pages with these numbers, in this order.
    pub fn listed(numbers: &'a [u32], stride: u64) -> Self {
        Self { offset: 0, stride, numbers: Pick::Listed(numbers) }
    }

    /// `count` pages from number `first` on.
    pub fn range(first: u32, count: u32, stride: u64) -> Self {
        Self { offset: 0, stride, numbers: Pick::Range { first, count } }
    }

    /// The same pages, this many bytes further.
    #[must_use]
    pub fn after(self, bytes: u64) -> Self {
        Self { offset: self.offset.saturating_add(bytes), ..self }
    }

    /// How many pages there are.
    pub fn len(&self) -> usize {
        match self.numbers {
            Pick::Listed(numbers) => numbers.len(),
            Pick::Range { count, .. } => count as usize,
        }
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    #[inline]
    fn number(&self, index: usize) -> u64 {
        match self.numbers {
            Pick::Listed(numbers) => u64::from(numbers[index]),
            Pick::Range { first, .. } => u64::from(first) + index as u64,
        }
    }

    #[inline]
    fn at(&self, index: usize) -> u64 {
        self.offset + self.number(index) * self.stride
    }

    /// Whether pages of this size lie within a region of this size.
    fn check(&self, page: u64, region: u64) -> Result<()> {
        let last = match self.numbers {
            Pick::Listed(numbers) => numbers.iter().max().copied().map(u64::from),
            Pick::Range { first, count } if count > 0 => Some(u64::from(first) + u64::from(count) - 1),
            Pick::Range { .. } => None,
        };
        let Some(last) = last else { return Ok(()) };
        let end = last
            .checked_mul(self.stride)
            .and_then(|at| at.checked_add(self.offset))
            .and_then(|at| at.checked_add(page));
        if end.is_some_and(|end| end <= region) { Ok(()) } else { Err(Kind::AccessDenied.into()) }
    }

    /// Numbers that are lists, and have to be kept if they cannot be handed over at once.
    fn listed_len(&self) -> usize {
        if let Pick::Listed(numbers) = self.numbers { numbers.len() } else { 0 }
    }

    fn rest(&self, from: usize, lists: &mut super::Lists) -> Side {
        let numbers = match self.numbers {
            Pick::Listed(numbers) => Numbers::List(lists.keep(&numbers[from..])),
            Pick::Range { first, .. } => Numbers::From(first + from as u32),
        };
        Side { offset: self.offset, stride: self.stride, numbers }
    }
}

/// A paged write that can be handed over.
struct Paged<'a> {
    region: RegionId,
    remote: RemoteId,
    bytes: u64,
    from: PageList<'a>,
    to: PageList<'a>,
    immediate: Option<u32>,
}

impl Paged<'_> {
    fn op(&self, index: usize, token: u64) -> Op {
        let local = crate::fabric::Span { region: self.region, offset: self.from.at(index), bytes: self.bytes };
        let target = crate::fabric::Target { remote: self.remote, offset: self.to.at(index) };
        let immediate = self.immediate.filter(|_| index + 1 == self.from.len());
        Op::Write { token, local, target, immediate }
    }

    fn rest(&self, from: usize, lists: &mut super::Lists) -> PagesLeft {
        PagesLeft {
            region: self.region,
            remote: self.remote,
            bytes: self.bytes,
            local: self.from.rest(from, lists),
            target: self.to.rest(from, lists),
            left: (self.from.len() - from) as u32,
            immediate: self.immediate,
        }
    }
}

impl Endpoint {
    /// Write pages of `page` bytes each from a local region to a peer's, in order, as one transfer. The target is told once, with the last
    /// page. No pages at all are an empty write.
    ///
    /// # Errors
    /// As for [`Endpoint::write`]; `InvalidArgument` if the lists differ in length or are longer than [`Limits::pages`](super::Limits::pages).
    pub fn write_paged(
        &mut self,
        page: u64,
        from: LocalPages<'_>,
        to: RemotePages<'_>,
        notify: Notify,
        terms: impl Into<Terms>,
    ) -> Result<Posted> {
        let (terms, local) = (terms.into(), from.local);
        if from.list.len() != to.list.len() {
            return Err(Kind::InvalidArgument.into());
        }
        if from.list.is_empty() {
            return self.write(local.part(0, 0), to.region.at(0), notify, terms);
        }
        from.list.check(page, local.bytes)?;
        to.list.check(page, to.region.bytes())?;
        let (peer, target) = self.writable(to.region.at(0))?;
        let (backend, _) = self.way(peer)?;
        let region = self.region_on(backend, local)?;
        let paged = Paged {
            region,
            remote: target.remote,
            bytes: page,
            from: from.list.after(local.offset),
            to: to.list,
            immediate: notify.immediate(),
        };
        let uses = Uses { region: local.region.index, ..Uses::NOTHING };
        self.start_pages(peer, &paged, uses, terms)
    }

    fn start_pages(&mut self, peer: super::PeerId, paged: &Paged<'_>, uses: Uses, terms: Terms) -> Result<Posted> {
        self.check_terms(terms)?;
        let lengths = [paged.from.listed_len(), paged.to.listed_len()];
        if !self.lists.could_hold(lengths) {
            return Err(Kind::InvalidArgument.into());
        }
        let (backend, link) = self.way(peer)?;
        if self.peers.get(peer).backlog != NONE || !self.lists.has_room(lengths) {
            return Ok(Posted::Busy);
        }
        let Some(index) = self.transfers.add(peer.0, terms.deadline, terms.context) else { return Ok(Posted::Busy) };
        let (token, count) = (self.transfers.token(index), paged.from.len());
        let mut done = 0;
        while done < count {
            let mut ops = [Op::Flush { token }; BATCH];
            let length = BATCH.min(count - done);
            for (op, page) in ops.iter_mut().zip(done..done + length) {
                *op = paged.op(page, token);
            }
            let accepted = match self.backends[backend].post(link, &ops[..length]) {
                Ok(accepted) => accepted,
                Err(error) if done == 0 => {
                    self.transfers.withdraw(index);
                    return Err(error);
                }
                // the link broke after some were accepted: they end with it, and the transfer with them
                Err(_) => 0,
            };
            done += accepted;
            if accepted < length {
                break;
            }
        }
        if done == 0 {
            self.transfers.withdraw(index);
            return Ok(Posted::Busy);
        }
        self.note_start(index, uses, terms);
        self.transfers.get_mut(index).outstanding = done as u32;
        if done < count {
            let rest = paged.rest(done, &mut self.lists);
            self.transfers.get_mut(index).work = Work::Pages(rest);
            self.queue(peer, index);
        }
        Ok(Posted::Started(self.transfers.handle(index)))
    }
}
