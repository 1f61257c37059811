//! What ranks tell each other about a measurement, outside of the timed parts: through the communicator itself.
//!
//! By messages between pairs, because these do not depend on the algorithm that the user may have asked for.

use vervain_collectives::{Communicator, Rank, Result};

use super::settings::Average;

/// Numbers that go at once.
const PIECE: usize = 1 << 16;

/// Everybody's bytes, in rank order; all give equally many.
pub fn all_gather(communicator: &Communicator, ours: &[u8]) -> Result<Vec<Vec<u8>>> {
    let mut all = vec![vec![0; ours.len()]; communicator.ranks() as usize];
    let rank = communicator.rank();
    all[rank.index()].copy_from_slice(ours);
    if all.len() > 1 {
        communicator.group(|group| {
            let others = all.iter_mut().zip(0..).map(|(theirs, peer)| (theirs, Rank::new(peer)));
            for (theirs, peer) in others.filter(|(_, peer)| *peer != rank) {
                group.send(ours, peer);
                group.recv(theirs.as_mut_slice(), peer);
            }
        })?;
    }
    Ok(all)
}

/// One number of each rank, in rank order.
pub fn numbers(communicator: &Communicator, ours: u64) -> Result<Vec<u64>> {
    let gathered = all_gather(communicator, &ours.to_le_bytes())?;
    Ok(gathered.iter().map(|bytes| number(bytes)).collect())
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
    let mut greatest = ours.to_vec();
    for piece in greatest.chunks_mut(PIECE) {
        let bytes: Vec<u8> = piece.iter().flat_map(|time| time.to_bits().to_le_bytes()).collect();
        for theirs in all_gather(communicator, &bytes)? {
            let times = theirs.chunks_exact(8).map(|bytes| f64::from_bits(number(bytes)));
            piece.iter_mut().zip(times).for_each(|(greatest, time)| *greatest = greatest.max(time));
        }
    }
    Ok(greatest)
}

fn number(bytes: &[u8]) -> u64 {
    bytes.try_into().map_or(0, u64::from_le_bytes)
}

#[cfg(test)]
mod tests {
    use std::thread;

    use vervain_collectives::Config;

    use super::*;

    /// What each of some ranks, as threads, makes of its communicator.
    fn among<T: Send>(ranks: u32, work: impl Fn(&Communicator) -> T + Sync) -> Vec<T> {
        let communicators = Communicator::init_all(ranks, &Config::default()).unwrap();
        thread::scope(|scope| {
            let work = &work;
            let threads: Vec<_> = communicators.into_iter().map(|each| scope.spawn(move || work(&each))).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        })
    }

    #[test]
    fn everybody_gets_everybodys_numbers() {
        for ranks in 1..=3 {
            let all = among(ranks, |each| numbers(each, 10 + u64::from(each.rank().get())).unwrap());
            assert!(all.iter().all(|numbers| *numbers == (10..10 + u64::from(ranks)).collect::<Vec<_>>()), "{all:?}");
        }
    }

    #[test]
    fn times_are_combined_over_ranks() {
        let of = |how| among(3, |each| average(each, how, f64::from(each.rank().get() + 1)).unwrap())[2];
        let all = [Average::Rank0, Average::Mean, Average::Least, Average::Greatest].map(of);
        assert_eq!(all, [1.0, 2.0, 1.0, 3.0]);
        let many = PIECE + 1;
        let slowest = among(2, |each| {
            let ours: Vec<f64> = (0..many).map(|at| if at % 2 == each.rank().index() { 7.0 } else { 1.0 }).collect();
            greatest(each, &ours).unwrap()
        });
        assert!(slowest.iter().all(|times| *times == vec![7.0; many]));
    }
}
