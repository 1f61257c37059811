//! What travels: frames, each for one end of a wire.

use std::collections::VecDeque;

use crate::{Kind, Rank, Time, auth::Secret, fabric::Access};

/// One end of a wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Port {
    pub wire: usize,
    pub side: usize,
}

impl Port {
    pub fn other(self) -> Self {
        Self { side: 1 - self.side, ..self }
    }

    /// As one number, for keys.
    pub fn number(self) -> u64 {
        2 * self.wire as u64 + self.side as u64
    }
}

/// Where frames for one side are.
#[derive(Debug)]
pub(super) struct End {
    /// Whose side it is.
    pub node: usize,
    /// Its link there: the accepting side has one from the handshake on.
    pub link: Option<u32>,
    /// On their way here, in order.
    pub inbox: VecDeque<Parcel>,
    /// The next frame sent here.
    pub next: u64,
    /// The next frame taken here.
    pub expected: u64,
    /// Nothing that is sent here later arrives before.
    pub busy_until: Time,
    /// A frame's second coming, which follows the next frame.
    pub echo: Option<Parcel>,
}

impl End {
    pub fn of(node: usize) -> Self {
        Self { node, link: None, inbox: VecDeque::new(), next: 0, expected: 0, busy_until: Time::default(), echo: None }
    }
}

/// A frame on its way.
#[derive(Clone, Debug)]
pub(super) struct Parcel {
    /// Its place among all frames to this end: what comes twice is known by it.
    pub number: u64,
    pub frame: Frame,
}

/// The place of an operation in a peer's region.
#[derive(Clone, Copy, Debug)]
pub(super) struct Aim {
    pub grant: u32,
    pub nonce: u64,
    pub offset: u64,
}

/// What a frame says.
#[derive(Clone, Debug)]
pub(super) enum Frame {
    /// A dial.
    Hello { rank: Rank, incarnation: u64, secret: Secret },
    /// Its answer.
    Welcome { rank: Rank, incarnation: u64 },
    /// Its other answer.
    Refused(Kind),
    /// The sender has posted so many receives.
    Credit(usize),
    /// To be carried out, and answered under this number.
    Request { number: u64, request: Request },
    /// What a request came to.
    Answer { number: u64, answer: Result<Answer, Kind> },
    /// A message.
    Message(Vec<u8>),
    /// The link ended, for this reason as the receiver sees it.
    End(Kind),
}

/// Something to be done at the target.
#[derive(Clone, Debug)]
pub(super) enum Request {
    Write { aim: Aim, data: Vec<u8>, immediate: Option<u32> },
    Read { aim: Aim, bytes: u64 },
    FetchAdd { aim: Aim, add: u64 },
    CompareSwap { aim: Aim, expected: u64, desired: u64 },
    Flush,
}

/// What it came to.
#[derive(Clone, Debug)]
pub(super) enum Answer {
    Done,
    Data(Vec<u8>),
    Before(u64),
}

impl Request {
    /// What it needs, and where.
    pub fn needs(&self) -> Option<(Aim, Access)> {
        match *self {
            Request::Write { aim, .. } => Some((aim, Access::Write)),
            Request::Read { aim, .. } => Some((aim, Access::Read)),
            Request::FetchAdd { aim, .. } | Request::CompareSwap { aim, .. } => Some((aim, Access::ReadWrite)),
            Request::Flush => None,
        }
    }
}

impl Frame {
    /// Whether only its target's own poll takes it, however passive the network is.
    pub fn needs_host(&self) -> bool {
        matches!(self, Frame::Hello { .. })
    }
}
