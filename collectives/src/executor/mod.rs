//! Runs programs: the host executor, a machine driven by [`Engine::step`] without blocking calls.
//!
//! ```text
//! an operation       -> tasks (one a lane), the peers they need, and what ranks must agree on
//!   connect           until there is a connection to every one of these peers          links.rs
//!   round 0..rounds   the message in slices that fit the slots                         geometry.rs
//!     step by step    a step that cannot go on returns, and is tried again             task.rs
//!   drain             until nothing of ours still needs us to leave this machine
//! ```
//! Data moves in three ways: lines or bytes through the slots of a *connection* (connection.rs), *directly* between buffers
//! that ranks announced to each other, or *pulled* from a peer's plain memory into staging.rs.

mod board;
mod connection;
#[cfg(test)]
pub mod exposed;
mod geometry;
mod links;
mod staging;
mod task;
mod wait;

use core::mem::replace;
use core::time::Duration;

use vervain_transport::{Error, Kind, Rank, Result, Time, sync};

pub use connection::{EnterRecord, FOREIGN, payload};
pub use geometry::Geometry;
pub use links::{Links, Member, room};
pub use task::{Advance, Binding, Task};

use crate::buffer::Reduction;
use crate::call::Descriptor;
use crate::control::{Handle, Mesh};
use staging::Staging;
use task::{Context, Waiting};
use wait::{Pause, Wait};

/// Without progress for so long, peers are asked what they are doing.
const STALL: Duration = Duration::from_millis(500);
/// How long the control mesh may take to say why a link broke or a header differed.
const EXPLANATION: Duration = Duration::from_secs(2);
/// How long notices of others may take to come in when our deadline has passed.
const LAST_WORD: Duration = Duration::from_millis(100);
/// Longest sleep: the deadline, links and failures are looked at this often.
const NAP: Duration = Duration::from_millis(50);

/// A task, and the one that must end before it may begin: messages of one connection keep their order.
#[derive(Debug)]
struct Entry {
    task: Task,
    after: Option<usize>,
    done: bool,
}

/// What runs between two calls of the user.
#[derive(Debug)]
pub struct Operation {
    entries: Vec<Entry>,
    peers: Vec<(usize, Rank)>,
    connected: bool,
    /// The first peer without a connection.
    unconnected: Option<Rank>,
    /// What ranks compare. Operations of one pair of ranks have several: the one of the first task that is not done.
    descriptors: Vec<Descriptor>,
    deadline: Option<Time>,
    /// The deadline has passed once.
    overdue: bool,
    stalled: bool,
    /// When stepping last found it stuck for the first time.
    since: Option<Time>,
    /// Who was gone at the last look, though waited for.
    gone: Option<Rank>,
    /// What went wrong, and until when the control mesh may say why.
    failed: Option<(Error, Time)>,
}

impl Operation {
    /// Without tasks.
    pub fn new() -> Self {
        Self {
            entries: Vec::new(),
            peers: Vec::new(),
            connected: false,
            unconnected: None,
            descriptors: Vec::new(),
            deadline: None,
            overdue: false,
            stalled: false,
            since: None,
            gone: None,
            failed: None,
        }
    }

    /// Add a task that needs connections to `peers` on `lane`.
    pub fn push(&mut self, task: Task, descriptor: Descriptor, after: Option<usize>, lane: usize, peers: &[Rank]) {
        self.entries.push(Entry { task, after, done: false });
        self.descriptors.push(descriptor);
        for &peer in peers {
            if !self.peers.contains(&(lane, peer)) {
                self.peers.push((lane, peer));
                self.connected = false;
            }
        }
    }

    /// Run the same tasks again, for another call of the same shape.
    pub fn restart(&mut self, descriptor: Descriptor, mut change: impl FnMut(&mut Binding)) {
        for (entry, known) in self.entries.iter_mut().zip(&mut self.descriptors) {
            entry.task.restart(&mut change);
            entry.done = false;
            *known = descriptor;
        }
        (self.deadline, self.stalled, self.since) = (None, false, None);
        (self.gone, self.failed, self.overdue) = (None, None, false);
    }

    /// What ranks compare, of the only or first task.
    ///
    /// # Panics
    /// Without a task.
    pub fn descriptor(&self) -> &Descriptor {
        &self.descriptors[0]
    }

    /// The binding of the only or first task.
    pub fn binding(&self) -> Option<&Binding> {
        self.entries.first().map(|entry| entry.task.binding())
    }

    /// For whom a task waits, or the whole operation before it begins.
    fn waiting(&self, task: &Task) -> Option<Waiting> {
        self.unconnected.map(|peer| Waiting { peer, what: "a connection" }).or(task.waiting())
    }

    /// The first task that is not done, with its descriptor.
    fn first_open(&self) -> Option<(&Task, &Descriptor)> {
        let index = self.entries.iter().position(|entry| !entry.done)?;
        Some((&self.entries[index].task, &self.descriptors[index]))
    }
}

/// Something that [`Engine::drive`] carries to its end.
pub trait Machine {
    /// Try everything that can go on.
    fn advance(&mut self, engine: &mut Engine) -> Result<Advance>;

    /// While it is stuck: look at the rare things. `idle` is how long it has been.
    fn look(&mut self, engine: &mut Engine, now: Time, idle: Duration) -> Result<()>;
}

impl Machine for Operation {
    #[inline]
    fn advance(&mut self, engine: &mut Engine) -> Result<Advance> {
        engine.advance(self)
    }

    fn look(&mut self, engine: &mut Engine, now: Time, idle: Duration) -> Result<()> {
        engine.look(self, now, idle)
    }
}

/// Tries a closure until it says that it is done, by a deadline.
pub struct Until<F> {
    condition: F,
    deadline: Option<Time>,
    /// Somebody whom it needs was gone at the last look.
    gone: bool,
}

impl<F: FnMut(&mut Links) -> Result<bool>> Until<F> {
    /// Done when `condition` says true.
    pub fn new(condition: F) -> Self {
        Self { condition, deadline: None, gone: false }
    }
}

impl<F: FnMut(&mut Links) -> Result<bool>> Machine for Until<F> {
    fn advance(&mut self, engine: &mut Engine) -> Result<Advance> {
        let Some(links) = &mut engine.links else { return Ok(Advance::Done) };
        Ok(if (self.condition)(links)? { Advance::Done } else { Advance::Stuck })
    }

    fn look(&mut self, engine: &mut Engine, now: Time, _: Duration) -> Result<()> {
        let deadline = *self.deadline.get_or_insert(now.after(engine.timeout));
        engine.step_mesh(now);
        engine.check()?;
        engine.poll(now)?;
        let behind = engine.links.as_ref().and_then(Links::behind);
        if let Some(error) = behind.and_then(|peer| engine.gone(peer)).filter(|_| replace(&mut self.gone, true)) {
            return Err(error);
        }
        let late = Error::new(Kind::TimedOut);
        if now >= deadline { Err(behind.map_or(late, |peer| late.with_rank(peer))) } else { Ok(()) }
    }
}

/// One rank's executor.
#[derive(Debug)]
pub struct Engine {
    rank: Rank,
    links: Option<Links>,
    staging: Staging,
    reduction: Reduction,
    control: Handle,
    /// The control mesh, if nobody else carries it.
    mesh: Option<Mesh>,
    timeout: Duration,
    /// Ranks on this host.
    local: usize,
}

impl Drop for Engine {
    fn drop(&mut self) {
        if let Some(mesh) = self.mesh.take() {
            mesh.close();
        }
    }
}

impl Engine {
    /// An executor over these links; none if there is only one rank.
    pub fn new(
        rank: Rank,
        links: Option<Links>,
        control: Handle,
        mesh: Option<Mesh>,
        timeout: Duration,
        local: usize,
    ) -> Result<Self> {
        let sources = links.as_ref().map_or(1, Links::ranks);
        let mut engine = Self {
            rank,
            links,
            staging: Staging::new(sources),
            reduction: Reduction::with_capacity(sources),
            control,
            mesh,
            timeout,
            local,
        };
        if let Some(links) = &mut engine.links {
            let region = crate::buffer::register(links.fabric(), engine.staging.memory())?;
            engine.staging.registered(region);
        }
        Ok(engine)
    }

    /// Our rank.
    pub fn rank(&self) -> Rank {
        self.rank
    }

    /// The links, if there are other ranks.
    pub fn links(&mut self) -> Option<&mut Links> {
        self.links.as_mut()
    }

    /// The control mesh.
    pub fn control(&self) -> &Handle {
        &self.control
    }

    /// Run an operation to its end.
    pub fn run(&mut self, operation: &mut Operation) -> Result<()> {
        let Err(error) = self.drive(operation) else { return Ok(()) };
        self.fail(operation, error, Time::now());
        loop {
            if let Some(error) = self.explained(operation, Time::now()) {
                return Err(error);
            }
            sync::thread::sleep(Duration::from_micros(200));
        }
    }

    /// One step of an operation, without blocking. `None` while it is not at its end.
    pub fn step(&mut self, operation: &mut Operation, now: Time) -> Option<Result<()>> {
        if operation.failed.is_some() {
            return self.explained(operation, now).map(Err);
        }
        let result = match self.advance(operation) {
            Ok(Advance::Done) => return Some(Ok(())),
            Ok(Advance::Moved) => {
                operation.since = None;
                return None;
            }
            Ok(Advance::Stuck) => {
                let since = *operation.since.get_or_insert(now);
                self.look(operation, now, now.since(since))
            }
            Err(error) => Err(error),
        };
        if let Err(error) = result {
            self.fail(operation, error, now);
        }
        None
    }

    /// Carry on the control mesh, if that is our part.
    pub fn step_mesh(&mut self, now: Time) {
        if let Some(mesh) = &mut self.mesh {
            mesh.step(now);
        }
    }

    /// Carry a machine to its end.
    pub fn drive(&mut self, machine: &mut impl Machine) -> Result<()> {
        let mut wait = Wait::new(self.local);
        loop {
            match machine.advance(self)? {
                Advance::Done => return Ok(()),
                Advance::Moved => wait.reset(),
                Advance::Stuck => match wait.pause() {
                    Pause::Spin => {}
                    pause => {
                        let now = Time::now();
                        machine.look(self, now, wait.idle(now))?;
                        if pause == Pause::Sleep {
                            self.sleep(now, machine, &mut wait)?;
                        }
                    }
                },
            }
        }
    }

    /// Sleep until woken, or for a nap. The machine is tried once more after arming: what came before is seen, what comes
    /// after rings.
    fn sleep(&mut self, now: Time, machine: &mut impl Machine, wait: &mut Wait) -> Result<()> {
        let Some(links) = &mut self.links else { return Ok(()) };
        links.fabric().arm();
        let tried = machine.advance(self);
        let failed = self.control.failure().is_some();
        let Some(links) = &mut self.links else { return Ok(()) };
        match tried {
            Ok(Advance::Stuck) if !failed => links.fabric().sleep(now.after(NAP)),
            _ => links.fabric().disarm(),
        }
        if tried? != Advance::Stuck {
            wait.reset();
        }
        Ok(())
    }

    /// One try at everything that can go on.
    fn advance(&mut self, operation: &mut Operation) -> Result<Advance> {
        if !operation.connected && !self.connect(operation)? {
            return Ok(Advance::Stuck);
        }
        if self.links.as_ref().is_some_and(Links::wants_poll) {
            self.poll(Time::now())?;
        }
        let mut all = Advance::Done;
        for index in 0..operation.entries.len() {
            let ready = operation.entries[index].after.is_none_or(|before| operation.entries[before].done);
            let entry = &mut operation.entries[index];
            if entry.done {
                continue;
            }
            let mut context =
                Context { links: self.links.as_mut(), staging: &self.staging, reduction: &mut self.reduction };
            let advance = if ready { entry.task.advance(&mut context)? } else { Advance::Stuck };
            entry.done = advance == Advance::Done;
            all = match (all, advance) {
                (Advance::Moved, _) | (_, Advance::Moved) => Advance::Moved,
                (Advance::Stuck, Advance::Done) => Advance::Moved,
                (Advance::Done, Advance::Done) => Advance::Done,
                _ => Advance::Stuck,
            };
        }
        let drained = all != Advance::Done || self.links.as_mut().map_or(Ok(true), Links::is_drained)?;
        Ok(if drained { all } else { Advance::Stuck })
    }

    fn connect(&mut self, operation: &mut Operation) -> Result<bool> {
        let Some(links) = &mut self.links else { return Ok(operation.peers.is_empty()) };
        let boards = operation.binding().is_some_and(|binding| binding.to_all);
        let has_boards = !boards || links.connect_boards()?;
        operation.unconnected = None;
        for &(lane, peer) in &operation.peers {
            let connected = links.connect(lane, peer)?;
            operation.unconnected = operation.unconnected.or((!connected).then_some(peer));
            if let Some(error) = links.down(peer).filter(|_| !connected) {
                return Err(error);
            }
        }
        if !has_boards {
            operation.unconnected = operation.unconnected.or(links.without_board());
        }
        operation.connected = has_boards && operation.unconnected.is_none();
        if !operation.connected {
            links.poll(Time::now())?;
        }
        Ok(operation.connected)
    }

    /// Let the fabric and the letters go on.
    pub fn poll(&mut self, now: Time) -> Result<()> {
        if let Some(links) = &mut self.links {
            links.poll(now)?;
            links.retry_letters()?;
        }
        Ok(())
    }

    /// The rare things: failures, links, a stall, the deadline.
    fn look(&mut self, operation: &mut Operation, now: Time, idle: Duration) -> Result<()> {
        self.step_mesh(now);
        self.check()?;
        self.poll(now)?;
        let mut deadline = *operation.deadline.get_or_insert(now.after(self.timeout));
        if now >= deadline && !replace(&mut operation.overdue, true) {
            // Perhaps it was us who stood still: then others have already said so, and their notice is on its way in.
            deadline = now.after(LAST_WORD);
            operation.deadline = Some(deadline);
        }
        let stalled = idle >= STALL && !core::mem::replace(&mut operation.stalled, idle >= STALL);
        let Some((task, &descriptor)) = operation.first_open() else { return Ok(()) };
        let waiting = operation.waiting(task);
        if stalled {
            self.control.waiting(waiting.map(|waiting| waiting.peer));
            self.control.stalled(&descriptor);
        }
        if let Some(waiting) = waiting {
            let gone = self.gone(waiting.peer);
            // What it did last may be here already: only who is still waited for after one more try was needed.
            if let Some(error) = gone.filter(|_| operation.gone == Some(waiting.peer)) {
                return Err(error);
            }
            operation.gone = gone.map(|_| waiting.peer);
            if now >= deadline {
                return Err(self.control.timed_out(descriptor.operation, waiting.peer));
            }
        }
        if now >= deadline { Err(Kind::TimedOut.into()) } else { Ok(()) }
    }

    /// Why nothing new can come from `peer`, if that is so.
    fn gone(&self, peer: Rank) -> Option<Error> {
        let left = || self.control.left(peer).then(|| Error::new(Kind::PeerLeft).with_rank(peer));
        self.links.as_ref().and_then(|links| links.down(peer)).or_else(left)
    }

    /// Whether something has failed already.
    #[inline]
    pub fn check(&self) -> Result<()> {
        self.control.failure().map_or(Ok(()), Err)
    }

    /// An operation went wrong: the control mesh knows more than one link does, if it is given a moment.
    fn fail(&mut self, operation: &mut Operation, error: Error, now: Time) {
        let unclear = matches!(
            error.kind(),
            Kind::Mismatch | Kind::LinkFailed | Kind::PeerDied | Kind::PeerLeft | Kind::Corrupt | Kind::AccessDenied
        );
        if let Some((_, descriptor)) = operation.first_open()
            && error.kind() == Kind::Mismatch
        {
            self.control.stalled(descriptor);
        }
        operation.failed = Some((error, if unclear { now.after(EXPLANATION) } else { now }));
    }

    /// Something that all ranks do together went wrong outside of an operation: they are told, with what is known.
    pub fn broken(&self, error: Error, what: &str) -> Error {
        let line = match self.shortage(error) {
            Some(shortage) => format!("rank {}: {what}: {shortage}", self.rank),
            None => format!("rank {}: {what}: {error}", self.rank),
        };
        self.control.fail(error.with_rank(error.rank().unwrap_or(self.rank)), line)
    }

    /// The numbers, if memory ran out.
    fn shortage(&self, error: Error) -> Option<String> {
        let links = self.links.as_ref().filter(|_| error.kind() == Kind::NoSpace)?;
        links.shortage()
    }

    /// The error with its operation, once it is as clear as it will get. All ranks are told.
    fn explained(&mut self, operation: &Operation, now: Time) -> Option<Error> {
        let (error, until) = operation.failed?;
        self.step_mesh(now);
        let by_link = matches!(error.kind(), Kind::LinkFailed | Kind::PeerDied);
        let left = error.rank().filter(|&peer| by_link && self.control.left(peer));
        let error = left.map_or(error, |peer| Error::new(Kind::PeerLeft).with_rank(peer));
        if left.is_none() && self.control.failure().is_none() && now < until {
            return None;
        }
        let (number, line) = match operation.first_open() {
            Some((task, descriptor)) => (descriptor.operation, describe(operation, task, descriptor)),
            None => (u64::MAX, String::new()),
        };
        let line = match self.shortage(error) {
            Some(shortage) => format!("{line}; {shortage}"),
            None => line,
        };
        let error = self.control.failure().unwrap_or(error);
        let error = if error.operation().is_none() { error.with_operation(number) } else { error };
        let error = self.control.fail(error, line);
        if let Some(links) = &mut self.links {
            links.close();
        }
        Some(error)
    }
}

fn describe(operation: &Operation, task: &Task, descriptor: &Descriptor) -> String {
    match operation.waiting(task) {
        Some(waiting) => format!("{descriptor}: waited for {} from rank {}", waiting.what, waiting.peer),
        None => descriptor.to_string(),
    }
}
