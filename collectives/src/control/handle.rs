//! What the communicator, the executor and the aborter hold of the control mesh.

use std::collections::VecDeque;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use rustix::event::{EventfdFlags, eventfd};
use vervain_transport::fabric::Doorbell;
use vervain_transport::sync::{AtomicU64, Ordering};
use vervain_transport::{Error, Kind, Rank, Result};

use super::Report;
use super::record::Record;
use crate::call::Descriptor;

/// Lines that a report may grow to.
const LINES: usize = 64;

/// A share of one rank's control state; all methods may be called from any thread.
#[derive(Clone, Debug)]
pub struct Handle(Arc<Shared>);

/// What the holders of a handle and the mesh share.
#[derive(Debug)]
struct Shared {
    rank: Rank,
    ranks: u32,
    failure: OnceLock<Error>,
    lines: Mutex<Vec<String>>,
    record: Record,
    /// The rank waited for, plus one; 0 if none.
    waiting: AtomicU64,
    /// A bit per rank that said goodbye.
    left: Box<[AtomicU64]>,
    states: Mutex<Vec<Option<State>>>,
    doorbell: Mutex<Option<Doorbell>>,
    commands: Mutex<VecDeque<Command>>,
    /// Wakes the mesh's thread; none if there is no peer.
    waker: Option<OwnedFd>,
}

/// What a peer said about itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct State {
    pub entered: u64,
    pub waiting: Option<Rank>,
}

/// What the mesh is asked to do.
#[derive(Debug)]
pub(crate) enum Command {
    Stalled(Descriptor),
    Failed(Error, String),
    Died(Rank),
    Abort,
    Leave,
}

impl Handle {
    pub(crate) fn new(rank: Rank, ranks: u32) -> Result<Self> {
        let waker = if ranks > 1 {
            Some(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).map_err(std::io::Error::from)?)
        } else {
            None
        };
        Ok(Self(Arc::new(Shared {
            rank,
            ranks,
            failure: OnceLock::new(),
            lines: Mutex::default(),
            record: Record::new(),
            waiting: AtomicU64::new(0),
            left: (0..ranks.div_ceil(64)).map(|_| AtomicU64::new(0)).collect(),
            states: Mutex::new(vec![None; ranks as usize]),
            doorbell: Mutex::default(),
            commands: Mutex::default(),
            waker,
        })))
    }

    /// Our rank.
    pub fn rank(&self) -> Rank {
        self.0.rank
    }

    /// How many ranks there are.
    pub fn ranks(&self) -> u32 {
        self.0.ranks
    }

    /// The first failure of the job that this rank knows of. One atomic load while there is none.
    #[inline]
    pub fn failure(&self) -> Option<Error> {
        self.0.failure.get().copied()
    }

    /// What is known about the failure; `None` while there is none.
    pub fn report(&self) -> Option<Arc<Report>> {
        self.failure()?;
        Some(Arc::new(Report { lines: lock(&self.0.lines).clone() }))
    }

    /// Remember a call, so that peers can compare it with theirs. A few stores. One thread at a time calls this.
    #[inline]
    pub fn record(&self, call: &Descriptor) {
        self.0.record.write(call);
    }

    /// An operation made no progress for a while, or a peer's header did not match ours: compare our call with everybody's. Call it
    /// once per operation. If somebody called the operation differently, all ranks fail with `Mismatch`.
    pub fn stalled(&self, call: &Descriptor) {
        self.command(Command::Stalled(*call));
    }

    /// Whom we wait for, for the reports of time-outs. One store.
    #[inline]
    pub fn waiting(&self, peer: Option<Rank>) {
        // SYNC control.waiting -> control.waiting: a hint for reports; nothing is read because of it
        self.0.waiting.store(peer.map_or(0, |rank| u64::from(rank.get()) + 1), Ordering::Relaxed);
    }

    /// Our deadline passed while we waited for `missing`: all ranks fail. Returns the failure, which may be an earlier one.
    pub fn timed_out(&self, operation: u64, missing: Rank) -> Error {
        let error = Error::new(Kind::TimedOut).with_rank(missing).with_operation(operation);
        let mut lines =
            vec![format!("operation {operation}: rank {} waited for rank {missing} until its deadline", self.0.rank)];
        lines.extend(self.describe_peers());
        let text = lines.join("\n");
        self.set_failure(error, lines);
        self.command(Command::Failed(error, text));
        self.failure().unwrap_or(error)
    }

    /// Something broke that makes this communicator unusable: all ranks fail. Returns the failure, which may be an earlier one.
    pub fn fail(&self, error: Error, line: String) -> Error {
        self.set_failure(error, vec![line.clone()]);
        self.command(Command::Failed(error, line));
        self.failure().unwrap_or(error)
    }

    /// A data link showed that this rank's process ended: all ranks are told, unless it said goodbye.
    pub fn died(&self, rank: Rank) {
        self.command(Command::Died(rank));
    }

    /// End all calls, here and on all other ranks, with `Aborted`.
    pub fn abort(&self) {
        self.set_failure(
            Error::new(Kind::Aborted).with_rank(self.0.rank),
            vec![format!("rank {} aborted", self.0.rank)],
        );
        self.command(Command::Abort);
    }

    /// Say goodbye. The mesh ends soon after; peers that still need us get `PeerLeft`.
    pub fn leave(&self) {
        self.command(Command::Leave);
    }

    /// Whether this rank said goodbye. To be checked while waiting for it.
    #[inline]
    pub fn left(&self, rank: Rank) -> bool {
        // SYNC control.left -> control.left: a flag; nothing is read because of it
        self.0.left[rank.index() / 64].load(Ordering::Relaxed) >> (rank.index() % 64) & 1 == 1
    }

    /// Ring this whenever a failure or a goodbye arrives.
    pub fn set_doorbell(&self, doorbell: Doorbell) {
        *lock(&self.0.doorbell) = Some(doorbell);
    }

    /// Note a failure; the first one counts, later ones only add lines.
    pub(crate) fn set_failure(&self, error: Error, new: Vec<String>) {
        let mut lines = lock(&self.0.lines);
        let room = LINES.saturating_sub(lines.len());
        for line in new.into_iter().take(room) {
            if !lines.contains(&line) {
                lines.push(line);
            }
        }
        drop(lines);
        if self.0.failure.set(error).is_ok() {
            self.ring();
        }
    }

    pub(crate) fn set_left(&self, rank: Rank) {
        // SYNC control.left -> control.left; set by the mesh only
        let word = &self.0.left[rank.index() / 64];
        word.store(word.load(Ordering::Relaxed) | 1 << (rank.index() % 64), Ordering::Relaxed);
        self.ring();
    }

    fn ring(&self) {
        if let Some(doorbell) = &*lock(&self.0.doorbell) {
            doorbell.ring();
        }
    }

    pub(crate) fn set_state(&self, rank: Rank, state: State) {
        lock(&self.0.states)[rank.index()] = Some(state);
    }

    /// What we would say about ourselves.
    pub(crate) fn state(&self) -> State {
        // SYNC control.waiting -> control.waiting
        let waiting = self.0.waiting.load(Ordering::Relaxed);
        State { entered: self.0.record.entered(), waiting: waiting.checked_sub(1).map(|rank| Rank::new(rank as u32)) }
    }

    pub(crate) fn calls(&self) -> &Record {
        &self.0.record
    }

    /// What the peers said about themselves, shortest story first to tell who is behind.
    fn describe_peers(&self) -> Vec<String> {
        let states = lock(&self.0.states);
        let mut known: Vec<_> = states.iter().enumerate().filter_map(|(rank, state)| Some((rank, (*state)?))).collect();
        known.sort_by_key(|(_, state)| state.entered);
        known.iter().take(LINES / 4).map(|(rank, state)| describe(*rank, state)).collect()
    }

    fn command(&self, command: Command) {
        let Some(waker) = &self.0.waker else { return };
        lock(&self.0.commands).push_back(command);
        // only fails if the counter is full, and then the thread is awake
        let _ = rustix::io::write(waker, &1u64.to_ne_bytes());
    }

    pub(crate) fn take_commands(&self) -> VecDeque<Command> {
        if let Some(waker) = &self.0.waker {
            // fails if nobody woke us
            let _ = rustix::io::read(waker, &mut [0u8; 8]);
        }
        core::mem::take(&mut lock(&self.0.commands))
    }

    pub(crate) fn waker(&self) -> Option<BorrowedFd<'_>> {
        self.0.waker.as_ref().map(AsFd::as_fd)
    }
}

fn describe(rank: usize, state: &State) -> String {
    let entered = match state.entered.checked_sub(1) {
        None => format!("rank {rank} has not entered any operation"),
        Some(last) => format!("rank {rank} has entered operation {last}"),
    };
    state.waiting.map_or(entered.clone(), |peer| format!("{entered} and waits for rank {peer}"))
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
