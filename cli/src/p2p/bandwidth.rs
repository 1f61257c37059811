//! Many transfers in flight: bytes and transfers a second.
//!
//! The clock runs from the first start to the last end. A transfer has ended when the target's memory has it (write, atomic),
//! when the data is here (read), or, for messages, when the receiver has said that it took them all.

use core::time::Duration;

use serde::{Deserialize, Serialize};
use vervain_transport::Time;

use super::job::Table;
use super::options::Test;
use super::pair::{Pair, Say, Side};
use super::post::Shot;
use crate::exit::Failure;

/// What one direction came to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Took {
    /// Transfers.
    pub count: u64,
    /// Their time.
    pub nanoseconds: u64,
    /// Most transfers a second, over a twentieth of them.
    pub peak: f64,
}

impl Took {
    fn rate(&self) -> f64 {
        if self.nanoseconds == 0 { 0.0 } else { self.count as f64 / self.nanoseconds as f64 * 1e9 }
    }
}

/// A line of the table.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Bandwidth {
    /// Bytes of a transfer.
    pub size: u64,
    /// Transfers of the initiator.
    pub iterations: u64,
    /// Best 10^6 bytes a second.
    pub peak: f64,
    /// 10^6 bytes a second, over all directions.
    pub average: f64,
    /// 10^6 transfers a second.
    pub rate: f64,
}

/// Parts of a line, of which the best is the peak.
const PARTS: u64 = 20;

/// Measure one size; `None` at the target.
pub fn measure(pair: &mut Pair, size: u64) -> Result<Option<Bandwidth>, Failure> {
    let mut ours = None;
    pair.meet()?;
    if pair.is_active() {
        let shot = Shot::new(pair, size);
        let warmup = pair.job.warmup(size);
        pump(pair, &shot, End::After(warmup))?;
        let end = match pair.job.duration {
            Some(seconds) => End::At(Time::now().after(Duration::from_secs_f64(seconds))),
            None => End::After(pair.job.iterations(Table::Bandwidth, size)),
        };
        let took = pump(pair, &shot, end)?;
        pair.say(&Say::Took(took))?;
        ours = Some(took);
    }
    let theirs = match pair.is_served() {
        true => Some(pair.hear(|say| if let Say::Took(took) = say { Some(*took) } else { None })?),
        false => None,
    };
    let line = ours.map(|ours| line(size, ours, theirs));
    Ok(line.filter(|_| pair.side == Side::Initiator))
}

fn line(size: u64, ours: Took, theirs: Option<Took>) -> Bandwidth {
    let theirs = theirs.unwrap_or_default();
    let rate = ours.rate() + theirs.rate();
    let peak = ours.peak.max(ours.rate()) + theirs.peak.max(theirs.rate());
    let megabytes = |rate: f64| rate * size as f64 / 1e6;
    Bandwidth { size, iterations: ours.count, peak: megabytes(peak), average: megabytes(rate), rate: rate / 1e6 }
}

/// When no more is started.
#[derive(Clone, Copy, Debug)]
enum End {
    After(u64),
    At(Time),
}

/// Keep transfers in flight.
fn pump(pair: &mut Pair, shot: &Shot, end: End) -> Result<Took, Failure> {
    let depth = u64::from(pair.job.depth);
    let window = match end {
        End::After(count) => (count / PARTS).max(depth),
        End::At(_) => depth * 100,
    };
    // only who receives something has to look for messages all the time
    let hears = pair.job.bidirectional || pair.job.test == Test::Send;
    let first = pair.posted;
    let mut took = Took::default();
    let begin = Time::now();
    let mut part = (begin, 0);
    pair.now = begin;
    loop {
        let (started, ended) = (pair.posted - first, pair.done - first);
        if ended - part.1 >= window {
            part = note_part(&mut took, part, ended);
        }
        let left = match end {
            End::After(count) => count - started,
            End::At(time) if pair.now < time => u64::MAX,
            End::At(_) => 0,
        };
        if left == 0 && ended == started {
            break;
        }
        fill(pair, shot, left.min(depth - (started - ended)))?;
        if hears { pair.step()? } else { pair.poll()? }
    }
    if pair.job.test == Test::Send {
        pair.say(&Say::Sent)?;
        pair.hear(|say| (*say == Say::Taken).then_some(()))?;
    }
    took.count = pair.posted - first;
    took.nanoseconds = Time::now().since(begin).as_nanos() as u64;
    Ok(took)
}

/// Start so many, or as many as there is room for.
#[inline]
fn fill(pair: &mut Pair, shot: &Shot, mut room: u64) -> Result<(), Failure> {
    let batch = u64::from(pair.job.batch);
    while room > 0 {
        let asked = room.min(batch);
        let started = shot.try_post_many(pair, asked).map_err(|error| pair.lost(error))?;
        room -= started;
        if started < asked {
            break;
        }
    }
    Ok(())
}

fn note_part(took: &mut Took, part: (Time, u64), ended: u64) -> (Time, u64) {
    let now = Time::now();
    let seconds = now.since(part.0).as_secs_f64();
    if seconds > 0.0 {
        took.peak = took.peak.max((ended - part.1) as f64 / seconds);
    }
    (now, ended)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_directions_are_added() {
        let one = Took { count: 1000, nanoseconds: 1_000_000, peak: 2e6 };
        let single = line(1000, one, None);
        assert_eq!((single.average, single.peak, single.rate), (1000.0, 2000.0, 1.0));
        let both = line(1000, one, Some(one));
        assert_eq!((both.average, both.rate, both.iterations), (2000.0, 2.0, 1000));
    }

    #[test]
    fn nothing_took_no_time_and_has_no_rate() {
        let nothing = line(0, Took::default(), None);
        assert_eq!((nothing.average, nothing.rate), (0.0, 0.0));
    }
}
