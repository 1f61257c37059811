//! Memory that all ranks register together.

use std::sync::Weak;

use vervain_transport::fabric::{Access, RegionId};
use vervain_transport::{Error, Kind, Rank, Result};

use super::{Letter, Links, Registration};
use crate::buffer::{self, Memory};

impl Links {
    /// Register `bytes` zeroed bytes of ours as the next registration, and tell all peers; it ends with `life`.
    /// All of them must be linked: see [`Links::link_all`].
    pub fn register(&mut self, bytes: usize, life: Weak<()>) -> Result<(u32, RegionId)> {
        self.sweep()?;
        let region = self.fabric.allocate(bytes)?;
        let memory = buffer::of_region(&*self.fabric, region)?;
        let index = self.registrations.len() as u32;
        let parts = vec![None; self.ranks()];
        let bytes = bytes as u64;
        let fresh =
            Registration { memory, region: Some(region), life, imported: 0, complete: 0, bytes, odd: None, parts };
        self.registrations.push(fresh);
        for peer in self.others() {
            let Some(link) = self.link(peer)? else { return Err(Kind::Bug.into()) };
            let key = self.fabric.advertise(link, region, Access::ReadWrite).map_err(super::of(peer))?;
            self.peers[peer.index()].letters.push_back(Letter::Registration { index, bytes, key });
            self.send_letters(peer)?;
            if let Some((key, bytes)) = self.early.remove(&(index, peer.get())) {
                self.import_part(link, peer, index, &key, bytes)?;
            }
        }
        Ok((index, region))
    }

    /// Give back what belonged to buffers that were dropped. Every operation on them has ended here, so no peer touches them.
    fn sweep(&mut self) -> Result<()> {
        for index in 0..self.registrations.len() {
            let registration = &mut self.registrations[index];
            if registration.life.strong_count() > 0 {
                continue;
            }
            let Some(region) = registration.region.take() else { continue };
            registration.memory = Memory::EMPTY;
            self.fabric.release(region)?;
            for peer in self.others() {
                self.peers[peer.index()].letters.push_back(Letter::Forget { index: index as u32 });
                self.send_letters(peer)?;
            }
        }
        Ok(())
    }

    /// Whether all peers told us their part of a registration, with as many bytes as ours, and have ours.
    pub fn registered(&self, index: u32) -> Result<bool> {
        let registration = &self.registrations[index as usize];
        if let Some((peer, _)) = registration.odd {
            return Err(Error::new(Kind::Mismatch).with_rank(peer));
        }
        let others = self.ranks() - 1;
        Ok(registration.complete == others && registration.imported == others)
    }

    /// Who keeps [`Links::link_all`] or the last registration waiting: the first such rank.
    pub fn behind(&self) -> Option<Rank> {
        let unlinked = self.others().find(|peer| !self.peers[peer.index()].up);
        let silent = || {
            self.others().find(|peer| self.registrations.last().is_some_and(|last| last.parts[peer.index()].is_none()))
        };
        unlinked.or_else(silent)
    }

    /// Both values of a registration whose sizes differ.
    pub fn difference(&self) -> Option<String> {
        let number = self.registrations.len().checked_sub(1)?;
        let registration = &self.registrations[number];
        let (peer, bytes) = registration.odd?;
        let (rank, ours) = (self.rank, registration.bytes);
        Some(format!("allocation {number}: rank {rank} wants {ours} bytes, rank {peer} wants {bytes}"))
    }

    /// Where the fabric's memory ran out.
    pub fn shortage(&self) -> Option<String> {
        self.fabric.shortage()
    }

    /// A registration that was made.
    pub fn registration(&self, index: u32) -> Option<&Registration> {
        self.registrations.get(index as usize)
    }

    /// Number of and offset in the registration in whose our part `memory` lies.
    pub fn locate(&self, memory: Memory) -> Option<(u32, u64)> {
        self.registrations.iter().zip(0..).find_map(|(known, number)| Some((number, memory.offset_in(known.memory)?)))
    }
}
