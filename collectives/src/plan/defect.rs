//! What is wrong with a plan, and where.

use core::fmt;

use vervain_transport::Rank;

use super::program::Buffer;

/// What is wrong with a plan, and where. An owned value: it outlives the plan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Defect(Box<(Site, Reason)>);

/// Where in a plan. What is not known, or does not matter, is `None`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Site {
    /// Name of the plan.
    pub plan: String,
    /// With how many ranks.
    pub ranks: Option<u32>,
    /// With which root.
    pub root: Option<Rank>,
    /// Whether input and output were one buffer.
    pub in_place: bool,
    /// On which rank.
    pub rank: Option<Rank>,
    /// In which of its lanes.
    pub lane: Option<usize>,
    /// At which step of the expanded lane.
    pub step: Option<usize>,
    /// For which chunk, counted over all blocks.
    pub chunk: Option<u32>,
}

/// What is wrong.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Reason {
    // numbers
    /// Arithmetic left the range of 64 bits.
    #[error("an expression overflows 64 bits")]
    Overflow,
    /// Division or remainder by zero.
    #[error("an expression divides by zero")]
    DivisionByZero,
    /// The root is used where there is none.
    #[error("an expression uses the root, but the collective has none")]
    NoRoot,
    /// The call needs a root that is one of the ranks, or must not have one.
    #[error("the root does not suit the collective: a rank for broadcast and reduce, none for all others")]
    WrongRoot,
    /// A variable without its loop.
    #[error("variable i{0} is used outside of its loop")]
    Unbound(u32),
    /// A number that must be in some range is not.
    #[error("{what} is {value}, but must be {least} to {most}")]
    OutOfRange {
        /// Which number.
        what: &'static str,
        /// Its value.
        value: i64,
        /// The least allowed.
        least: i64,
        /// The most allowed.
        most: i64,
    },
    // limits
    /// Expressions or statements are nested too deeply.
    #[error("statements or expressions are nested too deeply")]
    TooDeep,
    /// The expansion is too long.
    #[error("the program of one rank has too many steps or operands; the limit is {0}")]
    TooLong(usize),
    /// All ranks together are too much to verify.
    #[error("all ranks together have {found} lanes, chunks, or steps and operands; the verifier takes at most {most}")]
    TooLarge {
        /// How many there are, at least.
        found: usize,
        /// How many may be.
        most: usize,
    },
    /// Expansion needs too much arithmetic.
    #[error("expansion takes too much work")]
    TooMuchWork,
    // shape
    /// A Move without sources.
    #[error("a move has no source")]
    NoSource,
    /// A Move without destinations.
    #[error("a move has no destination")]
    NoDestination,
    /// An operand occurs twice.
    #[error("a move names the same source or the same destination twice")]
    Repeated,
    /// Ranks disagree.
    #[error("{what} is {value} here, but {expected} on rank 0")]
    Shape {
        /// On what.
        what: &'static str,
        /// The value here.
        value: u32,
        /// The value on rank 0.
        expected: u32,
    },
    /// A buffer is touched outside of its chunks.
    #[error("chunk {chunk} of the {buffer} of rank {owner} does not exist; it has {chunks}")]
    NoSuchChunk {
        /// Whose.
        owner: Rank,
        /// Which buffer.
        buffer: Buffer,
        /// The chunk asked for.
        chunk: u32,
        /// How many there are.
        chunks: u32,
    },
    /// A rank that needs no connection to itself.
    #[error("a rank sends to, receives from or waits for itself")]
    ToItself,
    /// A plan of a collective that is no program.
    #[error("{0} is not made of a plan")]
    NoPlan(crate::Collective),
    // direct access
    /// Direct places, Enter, Leave, Signal and Wait belong to the first lane.
    #[error("direct places, enter, leave, signal and wait belong to lane 0")]
    NotInFirstLane,
    /// Direct access outside.
    #[error("a peer's buffer is touched outside of enter and leave")]
    NotEntered,
    /// Enter or Leave out of order.
    #[error("enter and leave must come in pairs, at most one pair in a program")]
    Unpaired,
    /// The collective has no in-place form.
    #[error("the collective cannot be done in place")]
    NeverInPlace,
    /// Another's scratch.
    #[error("scratch is touched directly; it belongs to its rank alone")]
    DirectScratch,
    /// Input is not ours to write.
    #[error("the input is written, but is not the output")]
    WritesInput,
    // contributions
    /// Nothing has been written there yet.
    #[error("chunk {chunk} of the {buffer} of rank {owner} is read before it is written")]
    Undefined {
        /// Whose.
        owner: Rank,
        /// Which buffer.
        buffer: Buffer,
        /// Which chunk.
        chunk: u32,
    },
    /// A collective that does not reduce.
    #[error("several sources are combined, but {0} does not reduce")]
    Reduces(crate::Collective),
    /// Two different chunks combined.
    #[error("input chunks {0} and {1} are combined")]
    Mixed(u32, u32),
    /// A rank counts twice.
    #[error("contribution of rank {0} counted twice")]
    Twice(Rank),
    /// A rank is missing.
    #[error("contribution of rank {0} missing")]
    Missing(Rank),
    /// A rank that should not be there.
    #[error("contribution of rank {0} instead of rank {1}")]
    Instead(Rank, Rank),
    /// Too many ranks to name the one.
    #[error("contributions are missing or counted twice")]
    Incomplete,
    /// Another chunk's data.
    #[error("holds input chunk {found} instead of {expected}")]
    WrongChunk {
        /// What is there.
        found: u32,
        /// What should be.
        expected: u32,
    },
    /// Nothing was written.
    #[error("the output is never written")]
    Unwritten,
    /// Results would differ in the last bits.
    #[error("the result is combined in another order than on rank {0}, so both may differ in the last bit")]
    OrderDiffers(Rank),
    /// The author's mark is wrong.
    #[error("the move is marked complete, but its result is not")]
    NotComplete,
    // concurrency
    /// Messages are left over or missing.
    #[error("lane {lane} sends {sent} messages to rank {to}, which receives {received}")]
    Messages {
        /// The receiver.
        to: Rank,
        /// The lane.
        lane: usize,
        /// How many are sent.
        sent: usize,
        /// How many are received.
        received: usize,
    },
    /// Signals are left over or missing.
    #[error("{signalled} signals go to rank {to}, which waits for {awaited}")]
    Signals {
        /// Who waits.
        to: Rank,
        /// How many are given.
        signalled: usize,
        /// How many are awaited.
        awaited: usize,
    },
    /// Nobody can go on.
    #[error("deadlock with {slots} slots: {}", Chain(.cycle))]
    Deadlock {
        /// Slots per connection.
        slots: u32,
        /// Who waits for whom; the last waits for one before.
        cycle: Vec<Waiting>,
    },
    /// Two accesses without an order.
    #[error("race on chunk {chunk} of the {buffer} of rank {owner} with {other}")]
    Race {
        /// Whose buffer.
        owner: Rank,
        /// Which buffer.
        buffer: Buffer,
        /// Which chunk.
        chunk: u32,
        /// The other access.
        other: Access,
    },
    /// A barrier that is none.
    #[error("the barrier may end before rank {0} came")]
    NoBarrier(Rank),
    // use
    /// The verifier has not seen this.
    #[error("not verified for this number of ranks or this root")]
    NotVerified,
    /// Programs that do not belong together.
    #[error("these are not the programs of all ranks of one call, in the order of the ranks")]
    NotOneCall,
    /// A plan file that cannot be read.
    #[error("{path}: {problem}")]
    File {
        /// Where in the document.
        path: String,
        /// What is wrong there.
        problem: String,
    },
}

/// One link of a deadlock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Waiting {
    /// Who waits.
    pub rank: Rank,
    /// In which lane.
    pub lane: usize,
    /// At which step.
    pub step: usize,
    /// For what.
    pub what: Awaited,
    /// From whom.
    pub from: Rank,
}

/// What a step waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Awaited {
    /// A message.
    Message,
    /// A free slot: the receiver must take an earlier message.
    Slot,
    /// The other's Enter.
    Enter,
    /// The other's Leave.
    Leave,
    /// A signal.
    Signal,
}

/// The other side of a race.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// The caller, before or after the call.
    Caller,
    /// A step.
    Step {
        /// Of this rank.
        rank: Rank,
        /// In this lane.
        lane: usize,
        /// At this index.
        step: usize,
    },
}

impl Defect {
    pub(super) fn new(site: Site, reason: Reason) -> Self {
        Self(Box::new((site, reason)))
    }

    /// What is wrong.
    pub fn reason(&self) -> &Reason {
        &self.0.1
    }

    /// Where.
    pub fn site(&self) -> &Site {
        &self.0.0
    }
}

impl Site {
    /// In this plan, nowhere in particular.
    pub(super) fn of(plan: &str) -> Self {
        Self { plan: plan.to_owned(), ..Self::default() }
    }
}

impl fmt::Display for Defect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Site { plan, ranks, root, in_place, rank, lane, step, chunk } = self.site();
        write!(f, "plan {plan:?}")?;
        if let Some(ranks) = ranks {
            write!(f, " with {ranks} ranks")?;
        }
        if let Some(root) = root {
            write!(f, ", root {root}")?;
        }
        if *in_place {
            write!(f, ", in place")?;
        }
        let mut separator = ": ";
        for (name, value) in [
            ("rank", rank.map(|rank| u64::from(rank.get()))),
            ("lane", lane.map(|lane| lane as u64)),
            ("step", step.map(|step| step as u64)),
            ("chunk", chunk.map(u64::from)),
        ] {
            if let Some(value) = value {
                write!(f, "{separator}{name} {value}")?;
                separator = ", ";
            }
        }
        write!(f, ": {}", self.reason())
    }
}

impl core::error::Error for Defect {}

struct Chain<'a>(&'a [Waiting]);

impl fmt::Display for Chain<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, waiting) in self.0.iter().enumerate() {
            write!(f, "{}{waiting}", if index == 0 { "" } else { "; " })?;
        }
        Ok(())
    }
}

impl fmt::Display for Waiting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Waiting { rank, lane, step, what, from } = self;
        write!(f, "rank {rank}, lane {lane}, step {step} waits for ")?;
        match what {
            Awaited::Message => write!(f, "a message from rank {from}"),
            Awaited::Slot => write!(f, "a slot at rank {from}"),
            Awaited::Enter => write!(f, "rank {from} to enter"),
            Awaited::Leave => write!(f, "rank {from} to leave"),
            Awaited::Signal => write!(f, "a signal of rank {from}"),
        }
    }
}

impl fmt::Display for Access {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Access::Caller => f.write_str("the caller, who has the buffer before and after the call"),
            Access::Step { rank, lane, step } => write!(f, "rank {rank}, lane {lane}, step {step}"),
        }
    }
}

impl fmt::Display for Buffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Buffer::Input => "input",
            Buffer::Output => "output",
            Buffer::Scratch => "scratch",
        })
    }
}
