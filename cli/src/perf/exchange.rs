//! What ranks tell each other about a measurement, outside of the timed parts: through the communicator itself.

use vervain_collectives::{Collective, Communicator, DataType, ReduceOp, Result};

use super::invoke::{self, Request};
use super::memory::Lent;
use super::settings::Average;

/// Everybody's bytes, in rank order; all give equally many.
pub fn all_gather(communicator: &Communicator, ours: &[u8]) -> Result<Vec<Vec<u8>>> {
    let mut input = ours.to_vec();
    let mut output = vec![0; ours.len() * communicator.ranks() as usize];
    let request = Request { collective: Collective::AllGather, op: None, ..small(DataType::U8, ours.len()) };
    invoke::call(communicator, &request, None, Lent::Apart(&mut input, &mut output))?;
    Ok(output.chunks_exact(ours.len().max(1)).map(<[u8]>::to_vec).collect())
}

/// One number of each rank, in rank order.
pub fn numbers(communicator: &Communicator, ours: u64) -> Result<Vec<u64>> {
    let gathered = all_gather(communicator, &ours.to_le_bytes())?;
    Ok(gathered.iter().map(|bytes| bytes.as_slice().try_into().map_or(0, u64::from_le_bytes)).collect())
}

/// The sum over ranks, which every rank gets.
pub fn sum(communicator: &Communicator, ours: u64) -> Result<u64> {
    Ok(numbers(communicator, ours)?.into_iter().fold(0, u64::saturating_add))
}

/// One time out of all ranks' times.
pub fn average(communicator: &Communicator, average: Average, ours: f64) -> Result<f64> {
    let times: Vec<f64> = numbers(communicator, ours.to_bits())?.into_iter().map(f64::from_bits).collect();
    Ok(match average {
        Average::Rank0 => times.first().copied().unwrap_or(ours),
        Average::Mean => times.iter().sum::<f64>() / times.len() as f64,
        Average::Least => times.iter().copied().fold(f64::INFINITY, f64::min),
        Average::Greatest => times.iter().copied().fold(0.0, f64::max),
    })
}

/// Position by position the greatest over ranks. All give equally many.
pub fn greatest(communicator: &Communicator, ours: &[f64]) -> Result<Vec<f64>> {
    let mut bytes: Vec<u8> = ours.iter().flat_map(|time| time.to_le_bytes()).collect();
    let request = Request { op: Some(ReduceOp::Max), ..small(DataType::F64, ours.len()) };
    invoke::call(communicator, &request, None, Lent::InPlace(&mut bytes))?;
    Ok(bytes.chunks_exact(8).map(|eight| eight.try_into().map_or(0.0, f64::from_le_bytes)).collect())
}

fn small(datatype: DataType, count: usize) -> Request {
    Request { collective: Collective::AllReduce, datatype, op: None, root: None, count, registered: false }
}
