//! Abort: the first cause wins, is told to the peers once, and is final.

use crate::Error;

/// How far an abort has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// No abort.
    Running,
    /// There is a cause, and the peers must still be told.
    Telling,
    /// The peers were told.
    Aborted,
}

/// What can happen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// Our own caller or code wants to abort.
    Request,
    /// A peer says that it aborted.
    Notice,
    /// The notice was handed to all peers.
    Told,
}

impl State {
    /// Every state, for the snapshot.
    pub const ALL: [Self; 3] = [Self::Running, Self::Telling, Self::Aborted];

    /// The one table; `None` is a call that its owner must not make.
    pub const fn on(self, event: Event) -> Option<Self> {
        Some(match (self, event) {
            (Self::Running, Event::Request | Event::Notice) => Self::Telling, // AB-1
            (Self::Telling, Event::Told) => Self::Aborted,                    // AB-4
            (_, Event::Request | Event::Notice) => self,                      // AB-3
            (_, Event::Told) => return None,
        })
    }
}

impl Event {
    /// Every event, for the snapshot.
    pub const ALL: [Self; 3] = [Self::Request, Self::Notice, Self::Told];
}

/// The abort of one communicator or endpoint.
#[derive(Clone, Copy, Debug)]
pub struct Abort {
    state: State,
    cause: Option<Error>,
}

impl Abort {
    /// No abort yet.
    pub const fn new() -> Self {
        Self { state: State::Running, cause: None }
    }

    /// Abort because of our own trouble.
    pub fn request(&mut self, cause: Error) {
        self.begin(Event::Request, cause);
    }

    /// Abort because a peer did. It is passed on, so that peers without a path to the origin learn of it (AB-4).
    pub fn on_notice(&mut self, cause: Error) {
        self.begin(Event::Notice, cause);
    }

    /// The cause to tell all peers now; once (AB-4).
    pub fn poll_notice(&mut self) -> Option<Error> {
        if !matches!(self.state, State::Telling) {
            return None;
        }
        self.state = self.state.on(Event::Told)?;
        self.cause
    }

    /// Why everything ended, if it did: the first cause (AB-3).
    pub fn cause(&self) -> Option<Error> {
        self.cause
    }

    /// How far it has come.
    pub fn state(&self) -> State {
        self.state
    }

    fn begin(&mut self, event: Event, cause: Error) {
        if let Some(next) = self.state.on(event) {
            self.state = next;
            self.cause.get_or_insert(cause);
        }
    }
}

impl Default for Abort {
    fn default() -> Self {
        Self::new()
    }
}
