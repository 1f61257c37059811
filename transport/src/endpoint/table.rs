//! Transfers under way: a fixed number of entries, so that starting and ending one allocates nothing.

use alloc::vec::Vec;

use super::end::{Completion, End, Remote, Transfer};
use super::work::Work;
use crate::{Error, Kind, Time};

/// No entry.
pub(super) const NONE: u32 = u32::MAX;

/// Why a transfer is being ended early.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ending {
    /// It is not.
    No,
    TimedOut,
    Cancelled,
}

/// One transfer.
#[derive(Debug)]
pub(super) struct Entry {
    pub generation: u32,
    state: State,
    pub peer: u32,
    pub deadline: Time,
    pub context: u64,
    /// Which client of a driver asked for it.
    pub owner: u32,
    /// Operations that the fabric has accepted and not ended, and children that have not ended.
    pub outstanding: u32,
    /// What is still to be handed to the fabric.
    pub work: Work,
    /// The region that the operations use, to be counted down at the end; `NONE` for several or none.
    pub region: u32,
    /// The slot that a message is sent from.
    pub slot: u32,
    /// The transfer that this is a part of.
    pub parent: u32,
    pub ending: Ending,
    error: Option<Error>,
    remote: Remote,
    pub before: u64,
    /// Nobody wants to know how it ends.
    pub detached: bool,
    /// In the list of free entries, or of ended ones.
    next: u32,
    previous: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Free,
    Open,
    Ended(End),
}

/// All entries.
#[derive(Debug)]
pub(super) struct Transfers {
    entries: Vec<Entry>,
    free: u32,
    open: u32,
    /// Ended and not taken, the oldest first.
    first: u32,
    last: u32,
    /// No deadline is earlier than this.
    earliest: Time,
}

impl Transfers {
    pub fn new(depth: u32) -> Self {
        let entry = |index: u32| Entry {
            generation: 0,
            state: State::Free,
            peer: NONE,
            deadline: Time::NEVER,
            context: 0,
            owner: 0,
            outstanding: 0,
            work: Work::Nothing,
            region: NONE,
            slot: NONE,
            parent: NONE,
            ending: Ending::No,
            error: None,
            remote: Remote::Fenced,
            before: 0,
            detached: false,
            next: if index + 1 < depth { index + 1 } else { NONE },
            previous: NONE,
        };
        let entries = (0..depth).map(entry).collect();
        Self { entries, free: 0, open: 0, first: NONE, last: NONE, earliest: Time::NEVER }
    }

    /// Transfers that have not ended.
    pub fn open(&self) -> u32 {
        self.open
    }

    /// Whether there is room for this many more.
    pub fn has_room(&self, count: usize) -> bool {
        let mut at = self.free;
        for _ in 0..count {
            if at == NONE {
                return false;
            }
            at = self.get(at).next;
        }
        true
    }

    /// A fresh entry, if there is room.
    #[inline]
    pub fn add(&mut self, peer: u32, deadline: Time, context: u64) -> Option<u32> {
        let index = self.free;
        let entry = self.entries.get_mut(index as usize)?;
        self.free = entry.next;
        entry.state = State::Open;
        entry.detached = false;
        entry.owner = 0;
        entry.peer = peer;
        entry.deadline = deadline;
        entry.context = context;
        entry.outstanding = 0;
        entry.work = Work::Nothing;
        entry.region = NONE;
        entry.slot = NONE;
        entry.parent = NONE;
        entry.ending = Ending::No;
        entry.error = None;
        entry.remote = Remote::Fenced;
        entry.before = 0;
        self.open += 1;
        self.earliest = self.earliest.min(deadline);
        Some(index)
    }

    /// Whose completion this will be.
    #[cfg(feature = "std")]
    pub fn set_owner(&mut self, transfer: Transfer, owner: u32) {
        if let Some(entry) =
            self.entries.get_mut(transfer.index as usize).filter(|entry| entry.generation == transfer.generation)
        {
            entry.owner = owner;
        }
    }

    /// Take back an entry of which nothing was started.
    pub fn withdraw(&mut self, index: u32) {
        self.open -= 1;
        self.free(index);
    }

    #[inline]
    fn free(&mut self, index: u32) {
        let free = self.free;
        let entry = self.get_mut(index);
        entry.generation = entry.generation.wrapping_add(1) & GENERATIONS;
        entry.state = State::Free;
        entry.next = free;
        self.free = index;
    }

    #[inline]
    pub fn get(&self, index: u32) -> &Entry {
        &self.entries[index as usize]
    }

    #[inline]
    pub fn get_mut(&mut self, index: u32) -> &mut Entry {
        &mut self.entries[index as usize]
    }

    #[inline]
    pub fn handle(&self, index: u32) -> Transfer {
        Transfer { index, generation: self.get(index).generation }
    }

    /// Whether it has not ended.
    #[inline]
    pub fn is_open(&self, index: u32) -> bool {
        self.get(index).state == State::Open
    }

    /// The entry of a handle that is still open or whose end was not taken.
    pub fn find(&self, transfer: Transfer) -> Option<&Entry> {
        let entry = self.entries.get(transfer.index as usize)?;
        (entry.generation == transfer.generation && entry.state != State::Free).then_some(entry)
    }

    /// The entry that the fabric's token names.
    #[inline]
    pub fn of_token(&mut self, token: u64) -> Option<u32> {
        let (generation, index) = ((token >> 32) as u32, token as u32);
        let entry = self.entries.get(index as usize)?;
        (entry.generation == generation && entry.state == State::Open).then_some(index)
    }

    /// The fabric's token for operations of this entry.
    #[inline]
    pub fn token(&self, index: u32) -> u64 {
        u64::from(self.get(index).generation) << 32 | u64::from(index)
    }

    /// End an open entry as its records say. A part of another transfer, or a detached one, is free at once.
    #[inline]
    pub fn end(&mut self, index: u32) -> End {
        self.open -= 1;
        let last = self.last;
        let entry = self.get_mut(index);
        let end = entry.verdict();
        if entry.detached || entry.parent != NONE {
            self.free(index);
            return end;
        }
        entry.state = State::Ended(end);
        (entry.previous, entry.next) = (last, NONE);
        self.last = index;
        match last {
            NONE => self.first = index,
            last => self.get_mut(last).next = index,
        }
        end
    }

    /// The completion of an ended transfer, once; its entry is free afterwards.
    #[inline]
    pub fn take(&mut self, transfer: Transfer) -> Option<Completion> {
        let entry = self.entries.get(transfer.index as usize)?;
        let State::Ended(end) = entry.state else { return None };
        if entry.generation != transfer.generation {
            return None;
        }
        let completion = Completion { transfer, context: entry.context, end, before: entry.before, owner: entry.owner };
        let (previous, next) = (entry.previous, entry.next);
        match previous {
            NONE => self.first = next,
            previous => self.get_mut(previous).next = next,
        }
        match next {
            NONE => self.last = previous,
            next => self.get_mut(next).previous = previous,
        }
        self.free(transfer.index);
        Some(completion)
    }

    /// The oldest completion that was not taken.
    #[inline]
    pub fn next(&mut self) -> Option<Completion> {
        if self.first == NONE {
            return None;
        }
        self.take(self.handle(self.first))
    }

    /// Open entries whose deadline has passed are given to `expire`. None has before [`Transfers::earliest`].
    pub fn expire(&mut self, now: Time, mut expire: impl FnMut(u32)) {
        let mut earliest = Time::NEVER;
        for (index, entry) in self.entries.iter().enumerate() {
            let is_running = entry.state == State::Open && entry.ending == Ending::No;
            match is_running {
                true if entry.deadline <= now => expire(index as u32),
                true => earliest = earliest.min(entry.deadline),
                false => {}
            }
        }
        self.earliest = earliest;
    }

    pub fn earliest(&self) -> Time {
        self.earliest
    }
}

/// Generations fit below the bit that marks tokens of receives.
const GENERATIONS: u32 = 0x7fff_ffff;

impl Entry {
    /// Remember how a part ended, if not well. The first error counts, and the worst knowledge about the target.
    pub fn note(&mut self, error: Error) {
        let is_fenced =
            matches!(error.kind(), Kind::Cancelled | Kind::AccessDenied | Kind::InvalidArgument | Kind::Unsupported);
        if !is_fenced {
            self.remote = Remote::Unknown;
        }
        self.error.get_or_insert(error);
    }

    /// The same for a child.
    pub fn note_end(&mut self, end: End) {
        match end {
            End::Done => {}
            End::Failed { error, remote } => self.note_both(error, remote),
            End::TimedOut { remote } => self.note_both(Kind::TimedOut.into(), remote),
            End::Cancelled { remote } => self.note_both(Kind::Cancelled.into(), remote),
        }
    }

    fn note_both(&mut self, error: Error, remote: Remote) {
        if remote == Remote::Unknown {
            self.remote = remote;
        }
        self.error.get_or_insert(error);
    }

    /// Whether nothing is left to hand over or to wait for.
    #[inline]
    pub fn is_over(&self) -> bool {
        self.outstanding == 0 && matches!(self.work, Work::Nothing)
    }

    /// What ended well in spite of its deadline has ended well.
    #[inline]
    fn verdict(&self) -> End {
        let remote = self.remote;
        match (self.error, self.ending) {
            (None, _) => End::Done,
            (Some(_), Ending::TimedOut) => End::TimedOut { remote },
            (Some(_), Ending::Cancelled) => End::Cancelled { remote },
            (Some(error), Ending::No) => End::Failed { error, remote },
        }
    }
}
