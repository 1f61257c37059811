//! Reads where the kernel forbids a pull: the owner copies piece by piece into bounce memory when it polls.
//!
//! Pieces are numbered; request and reply carry the number, and slot = number mod [`PIECES`]. Both queues are in order, so
//! replies come in the order of the requests, and anything else is [`Kind::Corrupt`].

use std::collections::VecDeque;

use super::{
    lanes::{Inbox, Outbox, PIECE, PIECES},
    notice::Notice,
};
use crate::{Kind, fabric::RegionId};

/// A read of memory that the peer registered.
#[derive(Debug)]
pub(super) struct Read {
    pub token: u64,
    /// What the peer knows the region by.
    pub key: u32,
    pub offset: u64,
    /// Where to; valid for `bytes` bytes as long as `region` is in use.
    pub to: *mut u8,
    pub bytes: u64,
    pub region: RegionId,
    requested: u64,
    arrived: u64,
    refused: bool,
    /// Its end was reported: what still comes is dropped.
    cancelled: bool,
}

// SAFETY: `to` is used only through the fabric that owns the read.
unsafe impl Send for Read {}

impl Read {
    pub fn new(token: u64, key: u32, offset: u64, to: *mut u8, bytes: u64, region: RegionId) -> Self {
        Self { token, key, offset, to, bytes, region, requested: 0, arrived: 0, refused: false, cancelled: false }
    }

    /// All that was requested has arrived, and no more will be requested.
    fn is_over(&self) -> bool {
        self.arrived == self.requested && (self.refused || self.cancelled || self.requested == self.bytes)
    }
}

/// What waits in order.
#[derive(Debug)]
pub(super) enum Entry {
    Read(Read),
    /// A flush that was posted after reads.
    Flush {
        token: u64,
    },
}

/// What ended.
#[derive(Debug)]
pub(super) enum Ended {
    Read {
        token: u64,
        region: RegionId,
        granted: bool,
    },
    Flush {
        token: u64,
    },
    /// What was cancelled.
    Nothing,
}

/// Whether something of a cancelled operation went to the peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Left {
    Nothing,
    Something,
}

/// The reads of one link.
#[derive(Debug)]
pub(super) struct Staged {
    entries: VecDeque<Entry>,
    /// Pieces requested so far.
    requested: u64,
    /// Pieces replied to so far.
    replied: u64,
}

impl Staged {
    pub fn with_capacity(entries: usize) -> Self {
        Self { entries: VecDeque::with_capacity(entries), requested: 0, replied: 0 }
    }

    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    pub fn push(&mut self, entry: Entry) {
        self.entries.push_back(entry);
    }

    /// Everything that has not been reported.
    pub fn drain(&mut self) -> impl Iterator<Item = Entry> + '_ {
        self.entries.drain(..).filter(|entry| !matches!(entry, Entry::Read(Read { cancelled: true, .. })))
    }

    /// End the operation with this token: what it was, and whether something of it has left.
    pub fn cancel(&mut self, wanted: u64) -> Option<(Ended, Left)> {
        let at = self.entries.iter().position(|entry| match entry {
            Entry::Read(read) => read.token == wanted && !read.cancelled,
            Entry::Flush { token } => *token == wanted,
        })?;
        match self.entries.get_mut(at)? {
            Entry::Read(read) if read.requested > 0 => {
                read.cancelled = true;
                Some((Ended::Read { token: wanted, region: read.region, granted: false }, Left::Something))
            }
            Entry::Read(read) => {
                let ended = Ended::Read { token: wanted, region: read.region, granted: false };
                self.entries.remove(at);
                Some((ended, Left::Nothing))
            }
            Entry::Flush { token } => {
                let ended = Ended::Flush { token: *token };
                self.entries.remove(at);
                Some((ended, Left::Nothing))
            }
        }
    }

    /// Ask for as many pieces as there are slots.
    pub fn request(&mut self, outbox: &mut Outbox) -> Result<(), Kind> {
        while self.requested - self.replied < PIECES {
            let Some(read) = self.entries.iter_mut().find_map(unrequested) else { break };
            let bytes = (read.bytes - read.requested).min(PIECE as u64);
            let offset = read.offset + read.requested;
            let notice = Notice::Request { piece: self.requested, key: read.key, offset, bytes };
            outbox.push(notice)?;
            read.requested += bytes;
            self.requested += 1;
        }
        Ok(())
    }

    /// A reply came.
    pub fn on_reply(&mut self, piece: u64, granted: bool, inbox: &Inbox) -> Result<(), Kind> {
        if piece != self.replied || self.replied == self.requested {
            return Err(Kind::Corrupt);
        }
        let read = self.entries.iter_mut().find_map(unanswered).ok_or(Kind::Corrupt)?;
        let bytes = (read.requested - read.arrived).min(PIECE as u64);
        if granted && !read.refused && !read.cancelled {
            // SAFETY: `arrived + bytes <= self.bytes`, for which `to` is valid while the region is in use.
            unsafe { inbox.unload(piece, read.to.add(read.arrived as usize), bytes as usize) };
        }
        read.refused |= !granted;
        read.arrived += bytes;
        self.replied += 1;
        Ok(())
    }

    /// The oldest entry, if it has ended.
    pub fn next_ended(&mut self) -> Option<Ended> {
        if let Entry::Read(read) = self.entries.front()?
            && !read.is_over()
        {
            return None;
        }
        self.entries.pop_front().map(|entry| match entry {
            Entry::Read(read) if read.cancelled => Ended::Nothing,
            Entry::Read(read) => Ended::Read { token: read.token, region: read.region, granted: !read.refused },
            Entry::Flush { token } => Ended::Flush { token },
        })
    }
}

fn unrequested(entry: &mut Entry) -> Option<&mut Read> {
    match entry {
        Entry::Read(read) if read.requested < read.bytes && !read.refused && !read.cancelled => Some(read),
        _ => None,
    }
}

fn unanswered(entry: &mut Entry) -> Option<&mut Read> {
    match entry {
        Entry::Read(read) if read.arrived < read.requested => Some(read),
        _ => None,
    }
}
