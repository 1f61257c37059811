//! Whether a Move can run: room for what it sends, and everything that it reads.

use vervain_transport::fabric::{Span, Target};
use vervain_transport::{Error, Kind, Rank, Result};

use super::{Context, EnterRecord, FOREIGN, PIECE, Task};
use crate::buffer::Memory;
use crate::communicator::Protocol;
use crate::plan::{Buffer, Place};

impl Task {
    /// Bytes of a piece of a Move without messages.
    pub(super) fn piece(&self, cx: &mut Context<'_>, sources: &[Place], destinations: &[Place]) -> usize {
        let pulls = sources.iter().any(|place| matches!(place, Place::Direct { rank, .. } if *rank != self.rank));
        let straight = self.is_straight(sources, destinations) && self.binding.output_region.is_some();
        if pulls && !straight && self.pulls_any(cx, sources) { cx.staging.piece(sources.len()) } else { PIECE }
    }

    /// Whether some source must be pulled into the staging memory.
    fn pulls_any(&self, cx: &mut Context<'_>, sources: &[Place]) -> bool {
        sources.iter().any(|place| match *place {
            Place::Direct { rank, buffer, .. } if rank != self.rank => {
                self.records[rank.index()].is_none_or(|record| self.view(cx, rank, buffer, &record).is_none())
            }
            _ => false,
        })
    }

    /// One source as it is, into one buffer of ours: nothing lies between.
    pub(super) fn is_straight(&self, sources: &[Place], destinations: &[Place]) -> bool {
        sources.len() == 1 && !self.is_raw(&sources[0]) && matches!(destinations, [Place::Local { .. }])
    }

    pub(super) fn destination_ready(&mut self, cx: &mut Context<'_>, place: &Place) -> Result<bool> {
        match *place {
            Place::Local { .. } => Ok(true),
            Place::Direct { rank, .. } if rank == self.rank => Ok(true),
            Place::Direct { rank, .. } => {
                let ready = self.record(cx, rank)?.is_some();
                Ok(ready || self.not_ready(rank, "it to enter"))
            }
            Place::Connection { .. } if self.binding.to_all => {
                match cx.links()?.boards()?.free_slot(self.binding.protocol)? {
                    Ok(_) => Ok(true),
                    Err(slowest) => Ok(self.not_ready(slowest, "credits")),
                }
            }
            Place::Connection { peer } => {
                let ready = cx.connection(self.lane, peer)?.free_slot(self.binding.protocol)?.is_some();
                Ok(ready || self.not_ready(peer, "credits"))
            }
        }
    }

    pub(super) fn sources_ready(
        &mut self,
        cx: &mut Context<'_>,
        sources: &[Place],
        destinations: &[Place],
        piece: usize,
    ) -> Result<bool> {
        let mut all = true;
        let mut pulls = false;
        for (index, place) in sources.iter().enumerate() {
            match *place {
                Place::Local { .. } => {}
                Place::Direct { rank, .. } if rank == self.rank => {}
                Place::Direct { rank, buffer, .. } => match self.record(cx, rank)? {
                    Some(record) => pulls |= self.view(cx, rank, buffer, &record).is_none(),
                    None => all = self.not_ready(rank, "it to enter"),
                },
                Place::Connection { peer } => {
                    let into = self.unpack_into(cx, index, sources, destinations, piece)?;
                    all &= self.message_ready(cx, peer, index, into)?;
                }
            }
        }
        if !all || !pulls {
            return Ok(all);
        }
        self.pulled(cx, sources, destinations, piece)
    }

    /// Where line messages are unpacked to: straight into the destination, or into the staging memory.
    fn unpack_into(
        &mut self,
        cx: &mut Context<'_>,
        index: usize,
        sources: &[Place],
        destinations: &[Place],
        bytes: usize,
    ) -> Result<Memory> {
        if self.is_straight(sources, destinations) {
            return self.local(&destinations[0], bytes);
        }
        Ok(cx.staging.message(index, bytes))
    }

    fn message_ready(&mut self, cx: &mut Context<'_>, peer: Rank, index: usize, into: Memory) -> Result<bool> {
        if self.lines[index] == usize::MAX {
            return Ok(true);
        }
        let (protocol, hash) = (self.binding.protocol, self.binding.hash);
        let header = match self.binding.to_all {
            true => cx.links()?.boards()?.header(protocol, peer)?,
            false => cx.connection(self.lane, peer)?.header(protocol)?,
        };
        match header {
            None => return Ok(self.not_ready(peer, "data")),
            Some(header) if header != hash => return Err(Error::new(Kind::Mismatch).with_rank(peer)),
            Some(_) => {}
        }
        let lines = &mut self.lines[index];
        let whole = match protocol {
            Protocol::Simple => true,
            _ if self.binding.to_all => cx.links()?.boards()?.unpack(protocol, peer, into, lines)?,
            _ => cx.connection(self.lane, peer)?.unpack(protocol, into, lines),
        };
        if !whole {
            return Ok(self.not_ready(peer, "data"));
        }
        self.lines[index] = usize::MAX;
        Ok(true)
    }

    /// Post the reads of this piece, once, and see whether they are done.
    fn pulled(
        &mut self,
        cx: &mut Context<'_>,
        sources: &[Place],
        destinations: &[Place],
        piece: usize,
    ) -> Result<bool> {
        let lane = self.lane;
        if self.reading {
            let peer = sources.iter().find_map(|place| self.other(place)).unwrap_or(self.rank);
            return Ok(!cx.links()?.reading(lane) || self.not_ready(peer, "its memory"));
        }
        let first = self.lines.iter().position(|&lines| lines != usize::MAX - 1).unwrap_or(0);
        for (index, place) in sources.iter().enumerate().skip(first) {
            if let Some((rank, target)) = self.pull_target(cx, place)? {
                let local = self.pull_span(cx, index, sources, destinations, piece)?;
                if !cx.links()?.read(lane, rank, local, target)? {
                    return Ok(self.not_ready(rank, "room for a read"));
                }
            }
            // Posted: not again when the next one is not accepted.
            self.lines[index] = usize::MAX - 1;
        }
        self.reading = true;
        Ok(!cx.links()?.reading(lane))
    }

    fn pull_span(
        &self,
        cx: &Context<'_>,
        index: usize,
        sources: &[Place],
        destinations: &[Place],
        bytes: usize,
    ) -> Result<Span> {
        match self.binding.output_region {
            Some(region) if self.is_straight(sources, destinations) => {
                let (offset, _) = self.chunk(&destinations[0]).ok_or(Error::new(Kind::Bug))?;
                Ok(Span { region, offset: (offset + self.cursor) as u64, bytes: bytes as u64 })
            }
            _ => Ok(cx.staging.pull_span(index, bytes)),
        }
    }

    /// From where `place` is read if it must be pulled.
    fn pull_target(&self, cx: &mut Context<'_>, place: &Place) -> Result<Option<(Rank, Target)>> {
        let Place::Direct { rank, buffer, .. } = *place else { return Ok(None) };
        let Some(record) = self.records.get(rank.index()).copied().flatten() else { return Ok(None) };
        if rank == self.rank || self.view(cx, rank, buffer, &record).is_some() {
            return Ok(None);
        }
        let (start, _) = self.chunk(place).ok_or(Error::new(Kind::Bug))?;
        let (region, base) = record.of(buffer);
        let offset = base.checked_add((start + self.cursor) as u64).ok_or(Error::new(Kind::Corrupt).with_rank(rank))?;
        let links = cx.links()?;
        let part = |index| links.registration(index).and_then(|known| known.parts[rank.index()]);
        let remote = match region {
            FOREIGN => links.foreign(rank).ok_or(Kind::Unsupported),
            index => part(index).map(|part| part.remote).ok_or(Kind::Corrupt),
        };
        let remote = remote.map_err(|kind| Error::new(kind).with_rank(rank))?;
        Ok(Some((rank, Target { remote, offset })))
    }

    /// A peer's whole buffer as mapped here, if it is.
    pub(super) fn view(
        &self,
        cx: &mut Context<'_>,
        rank: Rank,
        buffer: Buffer,
        record: &EnterRecord,
    ) -> Option<Memory> {
        let (region, offset) = record.of(buffer);
        if region == FOREIGN {
            return None;
        }
        let part = cx.links.as_deref()?.registration(region)?.parts[rank.index()]?;
        let view = part.view?;
        let offset = usize::try_from(offset).ok().filter(|&offset| offset <= view.bytes())?;
        Some(view.slice(offset, view.bytes() - offset))
    }
}
