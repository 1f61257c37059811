//! Starting what is measured.

use vervain_transport::endpoint::{Notify, PageList, Posted, Write};
use vervain_transport::fabric::INLINE;
use vervain_transport::{Error, Kind, Result};

use super::job::Paging;
use super::options::Test;
use super::pair::{DATA, IMMEDIATE, MEASURED, Pair};
use crate::exit::Failure;

/// Transfers of one size, ready to be started over and over.
#[derive(Debug)]
pub struct Shot {
    size: u64,
    notify: Notify,
    paging: Option<Paging>,
    by_value: bool,
    /// What is sent, or written by value.
    payload: Vec<u8>,
    /// What one call starts.
    batch: Vec<Write>,
}

impl Shot {
    /// Transfers of this size.
    pub fn new(pair: &Pair, size: u64) -> Self {
        let job = &pair.job;
        let by_value = job.test == Test::Write && job.inline && size <= INLINE as u64;
        let has_payload = by_value || job.test == Test::Send;
        let mut shot = Self {
            size,
            notify: if job.has_immediate(size) { Notify::Immediate(IMMEDIATE) } else { Notify::No },
            paging: job.paging.filter(|_| size > 0),
            by_value,
            payload: if has_payload { vec![0; size as usize] } else { Vec::new() },
            batch: Vec::new(),
        };
        if let (Some(source), Some(there), true) = (&pair.source, pair.there, job.batch > 1) {
            let write =
                Write { local: source.span(0, size), remote: there.at(0), notify: shot.notify, context: MEASURED };
            shot.batch = vec![write; job.batch as usize];
        }
        shot
    }

    /// Transfers of this size with this content.
    pub fn with_payload(pair: &Pair, payload: &[u8]) -> Self {
        let mut shot = Self::new(pair, payload.len() as u64);
        if !shot.payload.is_empty() {
            shot.payload.copy_from_slice(payload);
        }
        shot
    }

    /// Whether the content is a part of this, and not of the source.
    pub fn has_payload(&self) -> bool {
        !self.payload.is_empty()
    }

    /// Set the last byte, by which the peer sees that a write has come.
    #[inline]
    pub fn stamp(&mut self, pair: &mut Pair, stamp: u8) -> Result<()> {
        if let Some(last) = self.payload.last_mut() {
            *last = stamp;
        } else if let (Some(source), true) = (&mut pair.source, self.size > 0) {
            source.copy_in(self.size as usize - 1, &[stamp])?;
        }
        Ok(())
    }

    /// Start one; whether there was room.
    #[inline]
    pub fn try_post(&self, pair: &mut Pair) -> Result<bool> {
        let terms = pair.terms().context(MEASURED);
        let posted = match pair.job.test {
            Test::Send => pair.end.send(pair.peer, DATA, &self.payload, terms)?,
            Test::Atomic => pair.end.fetch_add(there(pair)?.at(0), 1, terms)?,
            Test::Read => {
                let local = source(pair)?.span(0, self.size);
                pair.end.read(local, there(pair)?.at(0), terms)?
            }
            Test::Write if self.by_value => {
                pair.end.write_inline(&self.payload, there(pair)?.at(0), self.notify, terms)?
            }
            Test::Write => {
                let (local, there) = (source(pair)?.span(0, self.size), there(pair)?);
                match self.paging {
                    None => pair.end.write(local, there.at(0), self.notify, terms)?,
                    Some(Paging { page, stride }) => {
                        let count = (self.size / page) as u32;
                        let (from, to) = (PageList::range(0, count, page), PageList::range(0, count, stride));
                        pair.end.write_paged(page, local.pages(from), there.pages(to), self.notify, terms)?
                    }
                }
            }
        };
        let count = u64::from(matches!(posted, Posted::Started(_)));
        pair.posted += count;
        if pair.job.test == Test::Atomic {
            pair.added += count;
        }
        Ok(count == 1)
    }

    /// Start one, waiting for room.
    #[inline]
    pub fn post(&self, pair: &mut Pair) -> Result<(), Failure> {
        while !self.try_post(pair).map_err(|error| pair.lost(error))? {
            pair.step()?;
        }
        Ok(())
    }

    /// Start at most so many; how many found room.
    #[inline]
    pub fn try_post_many(&self, pair: &mut Pair, most: u64) -> Result<u64> {
        if self.batch.is_empty() {
            return Ok(u64::from(self.try_post(pair)?));
        }
        let terms = pair.terms();
        let writes = &self.batch[..self.batch.len().min(most as usize)];
        let count = pair.end.write_many(pair.peer, writes, terms)? as u64;
        pair.posted += count;
        Ok(count)
    }
}

fn there(pair: &Pair) -> Result<vervain_transport::endpoint::RemoteRegion> {
    pair.there.ok_or(Error::new(Kind::Bug))
}

fn source(pair: &Pair) -> Result<&vervain_transport::endpoint::Region> {
    pair.source.as_ref().ok_or(Error::new(Kind::Bug))
}
