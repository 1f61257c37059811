//! The one place that hands raw memory to the library: types are known at run time only, so the generic calls do not fit.
#![allow(unsafe_code)]

use vervain_collectives::plan::{Buffer, Verified};
use vervain_collectives::{Call, Collective, Communicator, DataType, Kind, Rank, ReduceOp, Result};

use super::memory::Lent;

/// A call without its memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// What to do.
    pub collective: Collective,
    /// Element type.
    pub datatype: DataType,
    /// For the reducing collectives.
    pub op: Option<ReduceOp>,
    /// For broadcast and reduce.
    pub root: Option<Rank>,
    /// Elements per block.
    pub count: usize,
    /// The memory came from [`Communicator::alloc`].
    pub registered: bool,
}

impl Request {
    /// Bytes of one block.
    pub fn block(&self) -> Option<usize> {
        self.count.checked_mul(self.datatype.bytes())
    }

    /// Bytes of the whole input or output.
    pub fn bytes(&self, buffer: Buffer, ranks: u32) -> Option<usize> {
        self.block()?.checked_mul(self.collective.blocks(buffer, ranks) as usize)
    }
}

/// Run one call, blocking: by `plan` if there is one, else as the communicator chooses.
///
/// # Errors
/// `InvalidArgument` if the memory is shorter than the call needs; else what the library says.
pub fn call(communicator: &Communicator, request: &Request, plan: Option<&Verified>, lent: Lent<'_>) -> Result<()> {
    let (input, output) = addresses(communicator, request, lent)?;
    let call = Call {
        collective: request.collective,
        datatype: request.datatype,
        op: request.op,
        root: request.root,
        count: request.count,
        input,
        output,
        registered: request.registered,
    };
    // SAFETY: both buffers are valid for the call's sizes, and in place lie as the collective's rule says, by `addresses`.
    // Nobody else touches them until the call returns: `lent` borrows them exclusively for as long as this function runs.
    unsafe {
        match plan {
            Some(plan) => communicator.call_plan(plan, &call),
            None => communicator.call(&call),
        }
    }
}

/// Where input and output begin: within the lent memory, which is long enough for both.
fn addresses(communicator: &Communicator, request: &Request, lent: Lent<'_>) -> Result<(*const u8, *mut u8)> {
    let ranks = communicator.ranks();
    let size = |buffer| request.bytes(buffer, ranks).ok_or(Kind::SizeOverflow);
    let (input_bytes, output_bytes) = (size(Buffer::Input)?, size(Buffer::Output)?);
    match lent {
        Lent::Apart(input, output) if input.len() >= input_bytes && output.len() >= output_bytes => {
            Ok((input.as_ptr(), output.as_mut_ptr()))
        }
        Lent::InPlace(both) if both.len() >= input_bytes.max(output_bytes) => {
            // a rank is below the number of ranks, so its block lies within
            let ours = communicator.rank().index() * request.block().ok_or(Kind::SizeOverflow)?;
            let start = both.as_mut_ptr();
            Ok(match request.collective {
                Collective::AllGather => (start.wrapping_add(ours), start),
                Collective::ReduceScatter => (start, start.wrapping_add(ours)),
                _ => (start, start),
            })
        }
        _ => Err(Kind::InvalidArgument.into()),
    }
}

/// Send our input to the next rank while the previous rank's arrives in the output. One rank alone keeps its data.
///
/// Messages have no arithmetic, so bytes do.
pub fn send_to_next(communicator: &Communicator, request: &Request, lent: Lent<'_>) -> Result<()> {
    let (rank, ranks) = (communicator.rank().get(), communicator.ranks());
    let Lent::Apart(input, output) = lent else { return Err(Kind::InvalidUsage.into()) };
    let bytes = request.block().ok_or(Kind::SizeOverflow)?;
    let (Some(input), Some(output)) = (input.get(..bytes), output.get_mut(..bytes)) else {
        return Err(Kind::InvalidArgument.into());
    };
    if ranks == 1 {
        output.copy_from_slice(input);
        return Ok(());
    }
    communicator.group(|group| {
        group.send(input, Rank::new((rank + 1) % ranks));
        group.recv(output, Rank::new((rank + ranks - 1) % ranks));
    })
}
