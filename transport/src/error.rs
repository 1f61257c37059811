//! The one error type of all layers: small, `Copy`, split by whose fault it is.
//!
//! An [`Error`] says what went wrong ([`Kind`]), with which peer, and in which operation. The long story (both values of
//! a mismatch, who waited for what) belongs to the layer that knows it and is asked for there.

use core::fmt;

use crate::Rank;

/// Result with the crate's [`Error`].
pub type Result<T, E = Error> = core::result::Result<T, E>;

/// What went wrong, grouped by fault. Each kind's `Display` is a sentence with the remedy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
#[repr(u16)]
pub enum Kind {
    // the caller's fault
    /// An argument is outside its documented range.
    InvalidArgument = 1,
    /// The call is not allowed in the present state.
    InvalidUsage,
    /// A size or offset computation would overflow.
    SizeOverflow,
    /// The backend or plan cannot do what was asked for.
    Unsupported,
    // the peer's fault
    /// A peer called the same operation with other arguments.
    Mismatch,
    /// A peer's process ended.
    PeerDied,
    /// A peer said goodbye while it was still needed.
    PeerLeft,
    /// A peer sent bytes that no correct peer sends.
    Corrupt,
    /// A peer could not prove that it knows the secret.
    Unauthenticated,
    /// A peer speaks another major version of the protocol.
    VersionMismatch,
    /// Two peers claim the same rank.
    DuplicateRank,
    /// An address or advertisement belongs to another peer, or to an earlier start of it.
    Stale,
    // the fabric's fault
    /// A link broke.
    LinkFailed,
    /// An access lies outside the region or its rights.
    AccessDenied,
    // the operating system's fault
    /// A system call failed; [`Error::os`] has the code.
    Os,
    /// Memory, shared memory or descriptors ran out.
    NoSpace,
    // nobody's fault
    /// The deadline passed.
    TimedOut,
    /// This communicator or endpoint was aborted.
    Aborted,
    // ours
    /// An invariant of vervain does not hold.
    Bug,
    // how an operation ended that was not let run to its end
    /// The operation was cancelled before anything of it left: nothing of it has landed or will land.
    Cancelled,
    /// The operation was cut off on its way: it may have landed, in part or whole.
    OutcomeUnknown,
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Kind::InvalidArgument => "an argument is out of range; the call's documentation gives the limits",
            Kind::InvalidUsage => "the call is not allowed in this state; finish or abort what is running first",
            Kind::SizeOverflow => "the size overflows the address space; split the message",
            Kind::Unsupported => "this fabric or plan cannot do that; choose another one or let `auto` choose",
            Kind::Mismatch => "ranks called the operation with different arguments; the report names both values",
            Kind::PeerDied => "a peer's process ended; look at its own output for the cause",
            Kind::PeerLeft => "a peer left while it was still needed; every rank must make the same calls",
            Kind::Corrupt => "a peer sent bytes that no correct peer sends; check that all ranks run the same build",
            Kind::Unauthenticated => {
                "a peer does not know the secret; start all ranks with the same unique id or VERVAIN_SECRET"
            }
            Kind::VersionMismatch => "a peer speaks another protocol version; run the same release everywhere",
            Kind::DuplicateRank => "two processes claim the same rank; give every process its own",
            Kind::Stale => "the bytes belong to another peer or to an earlier start of it; ask it for new ones",
            Kind::LinkFailed => "a link broke; look at the peer and the network",
            Kind::AccessDenied => "an access lies outside the region or its rights",
            Kind::Os => "a system call failed",
            Kind::NoSpace => "memory, shared memory or file descriptors ran out; free some or raise the limit",
            Kind::TimedOut => "the deadline passed; a peer is slow, stopped or missing",
            Kind::Aborted => "the communicator was aborted; create a new one to go on",
            Kind::Bug => "an internal invariant does not hold; please report this",
            Kind::Cancelled => "the operation was cancelled before anything of it left; post it again if it is still wanted",
            Kind::OutcomeUnknown => {
                "the operation was cut off on its way and may have landed, in part or whole; ask the peer before repeating it"
            }
        })
    }
}

/// What went wrong, with whom, and in which operation.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Error {
    operation: u64,
    rank: u32,
    os: i32,
    kind: Kind,
}

const _: () = assert!(size_of::<Error>() <= 24);

/// `rank` and `operation` when the error concerns none.
const NONE: u32 = u32::MAX;

impl Error {
    /// An error that concerns no particular peer or operation.
    pub const fn new(kind: Kind) -> Self {
        Self { operation: u64::MAX, rank: NONE, os: 0, kind }
    }

    /// The same error, about this peer.
    #[must_use]
    pub const fn with_rank(mut self, rank: Rank) -> Self {
        self.rank = rank.get();
        self
    }

    /// The same error, in this operation.
    #[must_use]
    pub const fn with_operation(mut self, operation: u64) -> Self {
        self.operation = operation;
        self
    }

    /// The same error, with the operating system's code.
    #[must_use]
    pub const fn with_os(mut self, code: i32) -> Self {
        self.os = code;
        self
    }

    /// What went wrong.
    pub const fn kind(&self) -> Kind {
        self.kind
    }

    /// The peer concerned, if one is.
    pub const fn rank(&self) -> Option<Rank> {
        if self.rank == NONE { None } else { Some(Rank::new(self.rank)) }
    }

    /// The number of the operation concerned, if one is.
    pub const fn operation(&self) -> Option<u64> {
        if self.operation == u64::MAX { None } else { Some(self.operation) }
    }

    /// The operating system's error code, if a system call failed.
    pub const fn os(&self) -> Option<i32> {
        if self.os == 0 { None } else { Some(self.os) }
    }
}

impl From<Kind> for Error {
    fn from(kind: Kind) -> Self {
        Self::new(kind)
    }
}

#[cfg(feature = "std")]
impl From<std::io::Error> for Error {
    fn from(error: std::io::Error) -> Self {
        let code = error.raw_os_error().unwrap_or(0);
        let kind = match code {
            libc::ENOMEM | libc::ENOSPC | libc::EMFILE | libc::ENFILE => Kind::NoSpace,
            _ => Kind::Os,
        };
        Self::new(kind).with_os(code)
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(rank) = self.rank() {
            write!(f, "rank {rank}: ")?;
        }
        if let Some(operation) = self.operation() {
            write!(f, "operation {operation}: ")?;
        }
        write!(f, "{}", self.kind)?;
        #[cfg(feature = "std")]
        if let Some(code) = self.os() {
            write!(f, " ({})", std::io::Error::from_raw_os_error(code))?;
        }
        Ok(())
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}(", self.kind)?;
        fmt::Display::fmt(self, f)?;
        f.write_str(")")
    }
}

impl core::error::Error for Error {}
