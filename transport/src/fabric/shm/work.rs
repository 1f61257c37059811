//! The data path of one link: posted operations go out, the peer's records come in.

use super::{
    completions::{Class, Completions},
    copy,
    lanes::{PIECE, RECEIVES, RECORDS},
    link::{Link, Receive, WORK},
    notice::Notice,
    region::{Reach, Region, Remote},
    staged::{Ended, Entry, Read},
    table::Table,
};
use crate::{
    Error, Kind, Result,
    fabric::{INLINE, MESSAGE, Op, Outcome, RegionId, Span, Target},
    sync::{
        AtomicU64,
        Ordering::{AcqRel, Acquire, SeqCst},
        fence,
    },
};

/// A link with the tables that its operations refer to.
pub(super) struct Work<'a> {
    pub link: &'a mut Link,
    pub regions: &'a mut Table<Region>,
    pub remotes: &'a mut Table<Remote>,
    pub done: &'a mut Completions,
}

/// Whether anything may be left to do at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Rest {
    Nothing,
    Something,
}

/// A valid operation: everything it names was found and is within bounds.
enum Step {
    Write {
        token: u64,
        from: *const u8,
        to: *mut u8,
        bytes: usize,
        immediate: Option<u32>,
    },
    Copy {
        token: u64,
        from: *const u8,
        to: *mut u8,
        bytes: usize,
    },
    /// Its key became void.
    Denied {
        token: u64,
    },
    Pull {
        token: u64,
        from: u64,
        to: *mut u8,
        bytes: usize,
    },
    Stage(Read),
    Send {
        token: u64,
        from: *const u8,
        bytes: usize,
    },
    Receive(Receive),
    Add {
        token: u64,
        word: *mut u64,
        add: u64,
    },
    Swap {
        token: u64,
        word: *mut u64,
        expected: u64,
        desired: u64,
    },
    Flush {
        token: u64,
    },
}

impl Work<'_> {
    /// Do operations in order; returns how many were accepted.
    ///
    /// # Errors
    /// The outer error refuses the whole batch. The inner one says that the peer broke the link, after some were accepted.
    pub fn post(&mut self, ops: &[Op]) -> Result<(usize, Result<(), Kind>)> {
        // the first is parsed below; a single operation is parsed once
        for op in ops.iter().skip(1) {
            self.parse(op)?;
        }
        let mut accepted = 0;
        let mut health = Ok(());
        for op in ops {
            let step = self.parse(op)?;
            match self.execute(step) {
                Ok(true) => accepted += 1,
                Ok(false) => break,
                Err(kind) => {
                    health = Err(kind);
                    break;
                }
            }
        }
        if accepted > 0 {
            self.link.outbox.bell().ring();
        }
        Ok((accepted, health))
    }

    /// Take what the peer sent, answer it, and go on with what waits.
    pub fn progress(&mut self) -> Result<Rest, Kind> {
        let mut count = 0;
        while count < RECORDS
            && let Some(notice) = self.link.inbox.next()?
        {
            self.on_notice(notice)?;
            count += 1;
        }
        self.link.staged.request(&mut self.link.outbox)?;
        self.end_staged();
        if self.tell_void()? || count > 0 {
            self.link.outbox.bell().ring();
        }
        Ok(if count == RECORDS { Rest::Something } else { Rest::Nothing })
    }

    /// The link is down: end everything outstanding with this error.
    pub fn fail(&mut self, error: Error) {
        self.heed_fences();
        while let Some(receive) = self.link.receives.pop_front() {
            self.unuse(receive.region);
            self.done.end(self.link.id, receive.token, Class::Receive, Err(error));
        }
        for entry in self.link.staged.drain() {
            let token = match entry {
                Entry::Flush { token } => token,
                Entry::Read(read) => {
                    if let Some(region) = self.regions.find_mut(read.region.0) {
                        region.uses -= 1;
                    }
                    read.token
                }
            };
            self.done.end(self.link.id, token, Class::Work, Err(error));
        }
    }

    #[inline]
    fn parse(&self, op: &Op) -> Result<Step> {
        Ok(match *op {
            Op::Write { token, local, target, immediate } => {
                let from = self.local(local)?;
                let Some(to) = self.writable(target, local.bytes)? else { return Ok(Step::Denied { token }) };
                Step::Write { token, from, to, bytes: local.bytes as usize, immediate }
            }
            Op::WriteInline { token, ref data, bytes, target, immediate } => {
                if usize::from(bytes) > INLINE {
                    return Err(Kind::InvalidArgument.into());
                }
                let Some(to) = self.writable(target, u64::from(bytes))? else { return Ok(Step::Denied { token }) };
                Step::Write { token, from: data.as_ptr(), to, bytes: usize::from(bytes), immediate }
            }
            Op::Read { token, local, target } => self.parse_read(token, local, target)?,
            Op::Send { token, local } => {
                if local.bytes > MESSAGE as u64 {
                    return Err(Kind::InvalidArgument.into());
                }
                Step::Send { token, from: self.local(local)?, bytes: local.bytes as usize }
            }
            Op::Receive { token, local } => {
                let to = self.local(local)?;
                Step::Receive(Receive { token, to, room: local.bytes as usize, region: local.region })
            }
            Op::FetchAdd { token, target, add } => match self.word(target)? {
                Some(word) => Step::Add { token, word, add },
                None => Step::Denied { token },
            },
            Op::CompareSwap { token, target, expected, desired } => match self.word(target)? {
                Some(word) => Step::Swap { token, word, expected, desired },
                None => Step::Denied { token },
            },
            Op::Flush { token } => Step::Flush { token },
        })
    }

    fn parse_read(&self, token: u64, local: Span, target: Target) -> Result<Step> {
        let (to, bytes) = (self.local(local)?, local.bytes as usize);
        let remote = self.remote(target)?;
        let offset = remote.check(target.offset, local.bytes)?;
        if !remote.access.reads() {
            return Err(Kind::AccessDenied.into());
        }
        Ok(match (&remote.reach, self.link.source) {
            (Reach::Void { .. }, _) => Step::Denied { token },
            (Reach::Mapped(map), _) => {
                // SAFETY: `offset` is within the mapping by `check`.
                let from = unsafe { map.as_ptr().add(offset as usize) };
                Step::Copy { token, from, to, bytes }
            }
            (Reach::Foreign, _) => Step::Pull { token, from: offset, to, bytes },
            (Reach::Readable { start, .. }, Some(_)) => Step::Pull { token, from: start + offset, to, bytes },
            (Reach::Readable { key, .. }, None) => {
                Step::Stage(Read::new(token, *key, offset, to, local.bytes, local.region))
            }
        })
    }

    #[inline]
    fn local(&self, span: Span) -> Result<*mut u8> {
        self.regions.find(span.region.0).ok_or(Kind::InvalidArgument)?.at(span.offset, span.bytes)
    }

    #[inline]
    fn remote(&self, target: Target) -> Result<&Remote> {
        let remote = self.remotes.find(target.remote.0).ok_or(Kind::InvalidArgument)?;
        if remote.link == self.link.id { Ok(remote) } else { Err(Kind::InvalidArgument.into()) }
    }

    /// Where to write; `None` if the key became void.
    #[inline]
    fn writable(&self, target: Target, bytes: u64) -> Result<Option<*mut u8>> {
        let remote = self.remote(target)?;
        if matches!(remote.reach, Reach::Readable { .. } | Reach::Foreign) {
            return Err(Kind::Unsupported.into());
        }
        let offset = remote.check(target.offset, bytes)?;
        if !remote.access.writes() {
            return Err(Kind::AccessDenied.into());
        }
        let Reach::Mapped(map) = &remote.reach else { return Ok(None) };
        // SAFETY: `offset` is within the mapping by `check`.
        Ok(Some(unsafe { map.as_mut_ptr().add(offset as usize) }))
    }

    fn word(&self, target: Target) -> Result<Option<*mut u64>> {
        let word = self.writable(target, 8)?;
        if !target.offset.is_multiple_of(8) {
            return Err(Kind::InvalidArgument.into());
        }
        // an atomic tells what was there
        let is_readable = self.remote(target)?.access.reads();
        if is_readable { Ok(word.map(|word| word.cast())) } else { Err(Kind::AccessDenied.into()) }
    }

    /// Do one step; false if it is to be posted again later.
    #[inline]
    fn execute(&mut self, step: Step) -> Result<bool, Kind> {
        if let Step::Receive(receive) = step {
            return self.receive(receive);
        }
        if self.link.open_work >= WORK {
            return Ok(false);
        }
        let (token, result) = match step {
            Step::Write { token, from, to, bytes, immediate } => {
                if immediate.is_some() && !self.link.outbox.has_credit(&self.link.inbox)? {
                    return Ok(false);
                }
                // SAFETY: both ranges were checked by `parse`; regions and mappings outlive the call.
                unsafe { copy::publish(from, to, bytes) };
                if let Some(immediate) = immediate {
                    self.link.outbox.notify(bytes as u64, immediate)?;
                }
                (token, Ok(Outcome::Done))
            }
            Step::Copy { token, from, to, bytes } => {
                // SAFETY: both ranges were checked by `parse`; regions and mappings outlive the call.
                unsafe { copy::observe(from, to, bytes) };
                (token, Ok(Outcome::Done))
            }
            Step::Pull { token, from, to, bytes } => (token, self.pull(from, to, bytes)),
            Step::Denied { token } => (token, Err(Error::new(Kind::AccessDenied).with_rank(self.link.peer))),
            Step::Send { token, from, bytes } => {
                let link = &mut *self.link;
                if !link.outbox.has_credit(&link.inbox)? || !link.outbox.has_slot(&link.inbox)? {
                    return Ok(false);
                }
                // SAFETY: `from` was checked by `parse`, `bytes` is at most MESSAGE.
                unsafe { link.outbox.send(from, bytes)? };
                (token, Ok(Outcome::Done))
            }
            Step::Add { token, word, add } => {
                // SYNC shm.atomic: ordered after our earlier writes and before our later ones.
                // SAFETY: 8 mapped bytes, aligned, by `word`; atomic like all such accesses of the fabric.
                let before = unsafe { AtomicU64::from_ptr(word) }.fetch_add(add, AcqRel);
                (token, Ok(Outcome::Atomic { before }))
            }
            Step::Swap { token, word, expected, desired } => {
                // SYNC shm.atomic: ordered after our earlier writes and before our later ones.
                // SAFETY: 8 mapped bytes, aligned, by `word`; atomic like all such accesses of the fabric.
                let word = unsafe { AtomicU64::from_ptr(word) };
                let before = word.compare_exchange(expected, desired, AcqRel, Acquire).unwrap_or_else(|found| found);
                (token, Ok(Outcome::Atomic { before }))
            }
            Step::Stage(read) if read.bytes > 0 => return self.stage(read).map(|()| true),
            Step::Stage(read) => (read.token, Ok(Outcome::Done)),
            Step::Flush { token } if !self.link.staged.is_empty() => {
                self.link.staged.push(Entry::Flush { token });
                self.link.open_work += 1;
                return Ok(true);
            }
            Step::Flush { token } => {
                // stores are done when they are made; the fence also orders them before whatever is read next
                fence(SeqCst);
                (token, Ok(Outcome::Done))
            }
            Step::Receive(_) => return Err(Kind::Bug),
        };
        self.link.open_work += 1;
        self.done.end(self.link.id, token, Class::Work, result);
        Ok(true)
    }

    fn receive(&mut self, receive: Receive) -> Result<bool, Kind> {
        if self.link.open_receives >= RECEIVES {
            return Ok(false);
        }
        self.use_region(receive.region);
        self.link.receives.push_back(receive);
        self.link.open_receives += 1;
        if self.link.debt > 0 {
            return self.succeed().map(|()| true);
        }
        self.link.granted += 1;
        self.link.outbox.grant(self.link.granted);
        Ok(true)
    }

    fn pull(&self, from: u64, to: *mut u8, bytes: usize) -> Result<Outcome> {
        let source = self.link.source.ok_or(Kind::AccessDenied)?;
        // SAFETY: `to` was checked by `parse`.
        let result = unsafe { source.pull(self.link, from, to, bytes) };
        result.map(|()| Outcome::Done).map_err(|error| error.with_rank(self.link.peer))
    }

    fn stage(&mut self, read: Read) -> Result<(), Kind> {
        self.use_region(read.region);
        self.link.staged.push(Entry::Read(read));
        self.link.open_work += 1;
        // what does not fit now is asked for when replies come
        self.link.staged.request(&mut self.link.outbox)
    }

    pub(super) fn on_notice(&mut self, notice: Notice) -> Result<(), Kind> {
        match notice {
            Notice::Immediate { .. } | Notice::Message { .. } if self.is_to_park() => {
                self.link.parked.push_back(notice)
            }
            Notice::Immediate { bytes, immediate } => {
                let receive = self.link.receives.pop_front().ok_or(Kind::Corrupt)?;
                self.received(&receive, Ok(Outcome::Received { bytes, immediate: Some(immediate) }));
            }
            Notice::Message { bytes } => self.on_message(bytes)?,
            Notice::Request { piece, key, offset, bytes } => self.serve(piece, key, offset, bytes)?,
            Notice::Reply { piece, granted } => self.link.staged.on_reply(piece, granted, &self.link.inbox)?,
            Notice::Revoke { number, slot } => self.on_revoke(number, slot)?,
            Notice::Revoked { number } => self.on_revoked(number)?,
        }
        Ok(())
    }

    fn on_message(&mut self, bytes: u64) -> Result<(), Kind> {
        if bytes > MESSAGE as u64 {
            return Err(Kind::Corrupt);
        }
        let receive = self.link.receives.pop_front().ok_or(Kind::Corrupt)?;
        let fits = bytes <= receive.room as u64;
        let room = if fits { bytes as usize } else { 0 };
        // SAFETY: `to` is valid for `room` bytes: the region is in use by this receive.
        let taken = unsafe { self.link.inbox.take(receive.to, room) };
        self.link.outbox.mark_taken(taken);
        let result =
            if fits { Ok(Outcome::Received { bytes, immediate: None }) } else { Err(Kind::AccessDenied.into()) };
        self.received(&receive, result);
        Ok(())
    }

    fn received(&mut self, receive: &Receive, result: Result<Outcome>) {
        self.unuse(receive.region);
        self.done.end(self.link.id, receive.token, Class::Receive, result);
    }

    /// The peer wants to read what it cannot reach itself.
    fn serve(&mut self, piece: u64, key: u32, offset: u64, bytes: u64) -> Result<(), Kind> {
        if bytes > PIECE as u64 {
            return Err(Kind::Corrupt);
        }
        let grant = self.link.books.given.find(key).filter(|grant| grant.access.reads());
        let region = grant.and_then(|grant| self.regions.find(grant.region.0));
        let from = region.and_then(|region| region.at(offset, bytes).ok());
        if let Some(from) = from {
            // SAFETY: `from` is valid for `bytes` by `at`, which is at most PIECE.
            unsafe { self.link.outbox.load(piece, from, bytes as usize) };
        }
        self.link.outbox.push(Notice::Reply { piece, granted: from.is_some() })
    }

    fn end_staged(&mut self) {
        while let Some(ended) = self.link.staged.next_ended() {
            let (token, result) = match ended {
                Ended::Nothing => continue,
                Ended::Flush { token } => (token, Ok(Outcome::Done)),
                Ended::Read { token, region, granted } => {
                    self.unuse(region);
                    (token, if granted { Ok(Outcome::Done) } else { Err(Kind::AccessDenied.into()) })
                }
            };
            self.done.end(self.link.id, token, Class::Work, result);
        }
    }

    fn use_region(&mut self, region: RegionId) {
        if let Some(region) = self.regions.find_mut(region.0) {
            region.uses += 1;
        }
    }

    pub(super) fn unuse(&mut self, region: RegionId) {
        if let Some(region) = self.regions.find_mut(region.0) {
            region.uses -= 1;
        }
    }
}
