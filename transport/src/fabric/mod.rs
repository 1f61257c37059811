//! The seam below collectives and endpoints: regions, links and batched one-sided operations.
//!
//! A [`Fabric`] belongs to one communicator or endpoint and is driven by it: nothing happens between calls. Work goes
//! down as plain [`Op`] values, what came of it comes up from [`Fabric::poll`] as plain [`Event`] values; there is no callback.
//!
//! # Words
//! - A *region* is local memory; it is advertised to one link as a [`Key`] (bytes that travel any way you like) and
//!   imported on the other side as a *remote*.
//! - A *link* is one ordered path to one peer. Writes are ordered within a link, not across links. A read is not ordered
//!   after earlier writes of the same batch unless a [`Op::Flush`] stands between them.
//! - *Done* means that the target's memory has it (write, atomic), that the local memory has it (read, receive) or that
//!   the local memory may be reused (send). *Visible* to the target's processor: whoever observes a later immediate, receive
//!   or write of the same link sees all earlier writes of that link.
//! - Sends and immediates consume a receive that the target posted. A fabric accounts for them: a post that would find no
//!   receive is not accepted (back-pressure), and is never an error.
//! - A link that fails completes everything outstanding exactly once, with an error, then reports [`Event::Down`].

use alloc::{string::String, sync::Arc, vec::Vec};
use core::ptr::NonNull;

use crate::{Rank, Result, Time, error::Error};

#[cfg(any(test, feature = "testing"))]
pub mod conformance;
#[cfg(feature = "std")]
pub mod doorbell;
#[cfg(feature = "std")]
pub mod shm;
#[cfg(feature = "std")]
pub mod tcp;

#[cfg(feature = "std")]
pub use doorbell::Doorbell;

/// Fabrics need native words of 64 bits, little-endian: what is stored in a region is what the peer reads.
#[cfg(not(all(target_pointer_width = "64", target_endian = "little")))]
compile_error!(
    "vervain's fabrics need a 64-bit little-endian target; without the feature `std`, wire, proto and ring build anywhere"
);

/// Which backend a fabric is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Backend {
    /// Processes of one host through mapped memory.
    Shm,
    /// Sockets.
    Tcp,
    /// Simulated, for tests.
    Fake,
}

impl core::fmt::Display for Backend {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(match self {
            Backend::Shm => "shm",
            Backend::Tcp => "tcp",
            Backend::Fake => "fake",
        })
    }
}

/// What a backend can do beyond the operations that all have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capabilities {
    /// Allocated regions of peers can be mapped ([`Fabric::view`]): protocols may store through the view directly.
    pub mapped: bool,
    /// Memory that a peer did not allocate from the fabric can be read by address ([`Fabric::foreign`]).
    pub pull: bool,
    /// Aligned 128-byte lines written by the peer arrive whole, data before flag: what LL128 needs.
    /// Set only by backends that are known to keep it, never by measurement.
    pub whole_lines: bool,
    /// Data arrives while the target does not poll.
    pub passive: bool,
}

#[cfg(feature = "std")]
/// Who a fabric is and what it must prove to its peers.
#[derive(Clone, Debug)]
pub struct Identity {
    /// Our rank.
    pub rank: Rank,
    /// Changes with every start: a restarted peer is a new peer.
    pub incarnation: u64,
    /// Shared by the job; both ends of a link prove that they know it.
    pub secret: crate::auth::Secret,
}

macro_rules! id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(pub u32);
    };
}
id!(/// A path to one peer. Never reused within a fabric.
    LinkId);
id!(/// Local memory known to the fabric. Never reused within a fabric.
    RegionId);
id!(/// A peer's region, imported over one link. Never reused within a fabric.
    RemoteId);

/// A range of a local region, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// The region.
    pub region: RegionId,
    /// First byte.
    pub offset: u64,
    /// Length; 0 is allowed.
    pub bytes: u64,
}

/// Where in a peer's region an operation starts. The length is that of the local span.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Target {
    /// The imported region.
    pub remote: RemoteId,
    /// First byte; the peer's virtual address if `remote` is [`Fabric::foreign`].
    pub offset: u64,
}

/// Largest payload of [`Op::WriteInline`], in bytes.
pub const INLINE: usize = 64;

/// Largest payload of [`Op::Send`], in bytes.
pub const MESSAGE: usize = 4096;

/// One operation. `token` comes back in [`Event::Done`].
#[derive(Clone, Copy, Debug)]
pub enum Op {
    /// Copy a local span into the peer's region; with an immediate, the peer's next posted receive completes with it.
    Write {
        /// Comes back in [`Event::Done`].
        token: u64,
        /// What to copy.
        local: Span,
        /// Where to.
        target: Target,
        /// What the peer's receive completes with, if one is to complete.
        immediate: Option<u32>,
    },
    /// Like `Write`, of at most [`INLINE`] bytes that are copied at once: `data` may be reused when `post` returns.
    WriteInline {
        /// Comes back in [`Event::Done`].
        token: u64,
        /// What to copy, from its start.
        data: [u8; INLINE],
        /// How many bytes of it.
        bytes: u8,
        /// Where to.
        target: Target,
        /// What the peer's receive completes with, if one is to complete.
        immediate: Option<u32>,
    },
    /// Copy from the peer's region into a local span.
    Read {
        /// Comes back in [`Event::Done`].
        token: u64,
        /// Where to.
        local: Span,
        /// What to copy.
        target: Target,
    },
    /// A message of at most [`MESSAGE`] bytes into the peer's next posted receive.
    Send {
        /// Comes back in [`Event::Done`].
        token: u64,
        /// The message.
        local: Span,
    },
    /// Memory for one incoming message or immediate. Received in posting order. A message that is longer than the span is
    /// dropped: this receive ends with `AccessDenied`, and the link goes on.
    Receive {
        /// Comes back in [`Event::Done`].
        token: u64,
        /// Where to; an immediate leaves it as it is.
        local: Span,
    },
    /// Add to the peer's 8-byte word (8-aligned); done with the value before. Atomic against other operations of the same
    /// device only.
    FetchAdd {
        /// Comes back in [`Event::Done`].
        token: u64,
        /// The word.
        target: Target,
        /// What to add, modulo 2^64.
        add: u64,
    },
    /// Replace the peer's 8-byte word (8-aligned) if it holds `expected`; done with the value before.
    CompareSwap {
        /// Comes back in [`Event::Done`].
        token: u64,
        /// The word.
        target: Target,
        /// What it must hold.
        expected: u64,
        /// What it is to hold then.
        desired: u64,
    },
    /// Done when everything posted before on this link is done and visible at the target.
    Flush {
        /// Comes back in [`Event::Done`].
        token: u64,
    },
}

impl Op {
    /// What comes back in [`Event::Done`].
    pub fn token(&self) -> u64 {
        match *self {
            Self::Write { token, .. }
            | Self::WriteInline { token, .. }
            | Self::Read { token, .. }
            | Self::Send { token, .. }
            | Self::Receive { token, .. }
            | Self::FetchAdd { token, .. }
            | Self::CompareSwap { token, .. }
            | Self::Flush { token } => token,
        }
    }
}

/// What an operation came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// A write, read, send or flush is done.
    Done,
    /// A receive got a message, or an immediate.
    Received {
        /// Length of the message, or of the write that carried the immediate.
        bytes: u64,
        /// The immediate; `None` for a message.
        immediate: Option<u32>,
    },
    /// An atomic is done.
    Atomic {
        /// What the word held before.
        before: u64,
    },
}

/// What the peer may do with a region that is advertised to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Access {
    /// Read it.
    Read,
    /// Write it.
    Write,
    /// Read it, write it, and change words of it in one step: atomics need both.
    ReadWrite,
}

impl Access {
    /// Whether it allows reads.
    pub const fn reads(self) -> bool {
        matches!(self, Access::Read | Access::ReadWrite)
    }

    /// Whether it allows writes.
    pub const fn writes(self) -> bool {
        matches!(self, Access::Write | Access::ReadWrite)
    }

    /// Whether it allows all that `wanted` does.
    pub const fn allows(self, wanted: Access) -> bool {
        (self.reads() || !wanted.reads()) && (self.writes() || !wanted.writes())
    }
}

/// What [`Fabric::poll`] reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// A link is usable: one we dialled, or one that a peer dialled.
    Up {
        /// The link.
        link: LinkId,
        /// Who is at its other end, proven.
        peer: Rank,
        /// Which start of that peer.
        incarnation: u64,
    },
    /// A link will do nothing any more; everything outstanding on it has been reported before.
    Down {
        /// The link.
        link: LinkId,
        /// Why; `Aborted` if we closed it, `PeerLeft` if the peer did.
        error: Error,
    },
    /// An accepted operation ended. Exactly once for each.
    Done {
        /// The link it was posted on.
        link: LinkId,
        /// The operation's token.
        token: u64,
        /// What it came to.
        result: Result<Outcome>,
    },
    /// What [`Fabric::revoke`] came to. Exactly once for each accepted call.
    Revoked {
        /// The region.
        region: RegionId,
        /// `Ok`: from here on no operation of any peer through the keys that were void reads or writes the region.
        /// `TimedOut`: that cannot be proven; a peer may still touch the memory.
        result: Result<()>,
    },
}

/// A peer's region mapped here.
#[derive(Clone, Copy, Debug)]
pub struct View {
    /// First byte, aligned to a page.
    pub start: NonNull<u8>,
    /// Length.
    pub bytes: usize,
}

/// Bytes that let the peer of one link import a region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Key(pub [u8; 32]);

/// A transport backend. Object-safe; used as `Box<dyn Fabric>`.
pub trait Fabric: Send + core::fmt::Debug {
    /// Which backend this is.
    fn backend(&self) -> Backend;

    /// What it can do.
    fn capabilities(&self) -> Capabilities;

    /// Where memory ran out and how much was missing, when a call last failed with `NoSpace` and the backend knows.
    fn shortage(&self) -> Option<String> {
        None
    }

    /// What a peer needs to dial us, at most 256 bytes. Peers pass it to [`Fabric::dial`].
    fn address(&self) -> Vec<u8>;

    /// Zeroed, page-aligned memory of at least `bytes` bytes that peers can reach in this backend's best way.
    fn allocate(&mut self, bytes: usize) -> Result<RegionId>;

    /// Make foreign memory usable in spans and, where the backend can, by peers.
    ///
    /// # Safety
    /// `[start, start + bytes)` must stay valid for reads and writes until [`Fabric::release`] returns, and nobody may hold
    /// a reference to it that conflicts with the accesses that are posted or advertised.
    unsafe fn register(&mut self, start: NonNull<u8>, bytes: usize) -> Result<RegionId>;

    /// Forget a region, with its keys. Refused with `InvalidUsage` while an operation of ours uses it, or a revocation has not
    /// been reported. Mapped views of peers stay valid memory. Whether peers still use it is not waited for: see
    /// [`Fabric::revoke`].
    fn release(&mut self, region: RegionId) -> Result<()>;

    /// Where a region lies.
    fn memory(&self, region: RegionId) -> Option<View>;

    /// Keeps an allocated region's memory valid after its release and after the fabric is gone. `None` for registered memory.
    fn keep(&self, region: RegionId) -> Option<Arc<dyn core::any::Any + Send + Sync>>;

    /// Let the peer of `link` use `region` as `access` says. The key is for that link alone, and the same as before if the
    /// peer has one for these rights.
    ///
    /// # Errors
    /// `InvalidUsage` while a revocation of the region has not been reported, `Unsupported` if the backend cannot grant this
    /// (shared memory: writing what was only registered).
    fn advertise(&mut self, link: LinkId, region: RegionId, access: Access) -> Result<Key>;

    /// Void all keys of a region, for all links. [`Event::Revoked`] follows exactly once, by `deadline`, or at the next poll if
    /// that has passed. Then the region can be advertised again, under new keys, or released.
    ///
    /// Operations of peers that come later end with `AccessDenied` there. Those that are under way end with `Ok`,
    /// `AccessDenied` or `OutcomeUnknown`, and of the latter two a part may have landed before the report. Views of the region
    /// that peers hold go on to be valid memory, and are not the region any more once the report is `Ok`, unless their link has
    /// ended before ([`Fabric::view`]). A link on which nobody answers may go down.
    ///
    /// Until the report nobody but the fabric may store into the region: a backend may have to copy it. The report is
    /// `TimedOut` if a peer may still use the memory at the deadline, and `NoSpace` if only a lack of memory keeps it from being
    /// fenced. The keys are void all the same, and the call may be repeated.
    ///
    /// # Errors
    /// `InvalidArgument` for an unknown region, `InvalidUsage` while an earlier call for it has not been reported.
    fn revoke(&mut self, region: RegionId, deadline: Time) -> Result<()> {
        let _ = (region, deadline);
        Err(crate::Kind::Unsupported.into())
    }

    /// Use a region that the peer of `link` advertised. Corrupt keys are refused with `Corrupt` or `AccessDenied`.
    fn import(&mut self, link: LinkId, key: &Key) -> Result<RemoteId>;

    /// Drop an imported region; its view ends here. Needed only by who imports without end: links forget what they
    /// imported when the fabric is dropped, and views stay valid until then.
    fn forget(&mut self, remote: RemoteId) -> Result<()>;

    /// The mapping of an imported region, where the backend maps. One that was advertised for reading only cannot be written.
    /// `None` if its key is known to be void. Nothing is to be stored through it once its link is down: the owner may use the
    /// memory for something else then, though the mapping is still valid.
    fn view(&self, remote: RemoteId) -> Option<View>;

    /// The peer's whole address space as a remote that can only be read, where the backend can pull. Offsets are the
    /// peer's virtual addresses. `None` if the connect-time probe failed.
    fn foreign(&self, link: LinkId) -> Option<RemoteId>;

    /// Start a link to `peer`. [`Event::Up`] or [`Event::Down`] follows, by `deadline` at the latest.
    /// Only one side of a pair dials; links that peers dial come up by themselves.
    fn dial(&mut self, peer: Rank, address: &[u8], deadline: Time) -> Result<LinkId>;

    /// Drop a link: everything outstanding is reported as `Aborted`, then [`Event::Down`].
    fn close(&mut self, link: LinkId);

    /// Hand over operations in order. Returns how many were accepted; the rest is to be posted again after a poll.
    /// Memory of accepted operations must stay untouched (write, send) or unread (read, receive) until done.
    ///
    /// # Errors
    /// Refuses the whole batch, with nothing accepted, if an operation is malformed (out of bounds, unaligned atomic,
    /// unknown region) or the link is down.
    fn post(&mut self, link: LinkId, ops: &[Op]) -> Result<usize>;

    /// End an accepted operation early. Its [`Event::Done`] follows in the next poll, with the kind `Cancelled` if nothing of
    /// it has left or will leave, with `OutcomeUnknown` if it may have landed, in part or whole. If it had ended already,
    /// its report stays as it is. After this call its local memory is not touched any more. Of several operations with
    /// this token one is meant.
    ///
    /// The credit of a receive cannot be taken back from the peer: the next receive that is posted takes its place, and what
    /// comes before waits for that.
    ///
    /// A backend that needs memory for what is left of an operation, and finds none, takes the link down instead. A token that
    /// the link does not know is no error: its operation ended already.
    ///
    /// # Errors
    /// `InvalidArgument` for an unknown link.
    fn cancel(&mut self, link: LinkId, token: u64) -> Result<()> {
        let _ = (link, token);
        Err(crate::Kind::Unsupported.into())
    }

    /// Make progress and append what happened, at most to the capacity of `events` (which therefore never reallocates).
    fn poll(&mut self, now: Time, events: &mut Vec<Event>);

    /// Whether everything accepted goes on by itself, without further polls: the caller may turn to other things.
    /// Backends whose data moves only while they are polled say when that is so.
    fn is_drained(&self) -> bool {
        true
    }

    /// First half of sleeping: from here on whoever brings something for us rings our doorbell.
    /// Check everything once more after this, then [`Fabric::sleep`] or [`Fabric::disarm`].
    fn arm(&mut self);

    /// Second half of sleeping: return when the doorbell was rung since [`Fabric::arm`], or something may be there to poll,
    /// or at `deadline`. Disarms.
    fn sleep(&mut self, deadline: Time);

    /// A descriptor that can be read, while armed, when something may be there to poll. Where the doorbell is a word in shared
    /// memory, it does not tell of what the doorbell does: data of peers. For programs that sleep elsewhere than in
    /// [`Fabric::sleep`].
    #[cfg(feature = "std")]
    fn descriptor(&self) -> Option<std::os::fd::BorrowedFd<'_>> {
        None
    }

    /// Not going to sleep after all.
    fn disarm(&mut self);

    #[cfg(feature = "std")]
    /// Wakes *this* fabric's sleeper; for other threads of our process.
    fn doorbell(&self) -> Doorbell;

    #[cfg(feature = "std")]
    /// Wakes the sleeper at the other end of `link`, after stores through a [`View`]. `None` where stores cannot bypass the
    /// fabric, which then wakes by itself.
    fn peer_doorbell(&self, link: LinkId) -> Option<Doorbell>;
}
