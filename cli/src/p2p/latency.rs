//! Times of single transfers.
//!
//! Writes and messages go back and forth, and half a round trip counts; a read or an atomic is over when its result is here. The
//! time of a round trip is the time between two starts. The clock is looked at right after a start, while the ball is under
//! way, so that looking costs the trip nothing; for reads and atomics there is no such moment, and a look is included.

use core::time::Duration;

use hdrhistogram::Histogram;
use vervain_transport::{Error, Kind, Time};

use super::job::Table;
use super::options::Test;
use super::pair::{Pair, Say, Side};
use super::post::Shot;
use crate::exit::Failure;

/// A line of the table.
#[derive(Clone, Debug)]
pub struct Latency {
    /// Bytes of a transfer.
    pub size: u64,
    /// Transfers.
    pub iterations: u64,
    /// Nanoseconds of round trips, or of transfers that are one.
    pub times: Histogram<u64>,
    /// How many transfers follow each other in such a time.
    pub ways: u64,
}

impl Latency {
    /// A time in microseconds, one way.
    pub fn one_way(&self, nanoseconds: f64) -> f64 {
        nanoseconds / self.ways as f64 / 1e3
    }

    /// The time in microseconds, one way, that this share of all does not exceed.
    pub fn percentile(&self, percent: f64) -> f64 {
        self.one_way(self.times.value_at_percentile(percent) as f64)
    }
}

/// Longest time that is told from longer ones.
const LONGEST: Duration = Duration::from_secs(3600);
/// Looks at memory between two polls, where writes need none.
const LOOKS: u32 = 256;

/// Measure one size; `None` at the target.
pub fn measure(pair: &mut Pair, size: u64) -> Result<Option<Latency>, Failure> {
    let is_volley = matches!(pair.job.test, Test::Write | Test::Send);
    let mut game = Game::new(pair, size)?;
    pair.meet()?;
    if pair.side == Side::Target {
        if is_volley {
            game.answer(pair)?;
        } else {
            pair.hear(|say| (*say == Say::Stop).then_some(()))?;
        }
        return Ok(None);
    }
    let mut line = Latency { size, iterations: 0, times: histogram()?, ways: if is_volley { 2 } else { 1 } };
    for _ in 0..pair.job.warmup(size) {
        game.turn(pair)?;
    }
    let (begin, mut last) = (Time::now(), None);
    while !is_over(pair, &line, begin) {
        let started = game.start(pair)?;
        record(&mut line.times, last, started);
        last = Some(started);
        game.finish(pair)?;
        line.iterations += 1;
    }
    record(&mut line.times, last, Time::now());
    pair.say(&Say::Stop)?;
    Ok(Some(line))
}

fn is_over(pair: &Pair, line: &Latency, begin: Time) -> bool {
    match pair.job.duration {
        Some(seconds) => line.iterations > 0 && pair.now.since(begin) >= Duration::from_secs_f64(seconds),
        None => line.iterations >= pair.job.iterations(Table::Latency, line.size),
    }
}

fn histogram() -> Result<Histogram<u64>, Failure> {
    Histogram::new_with_bounds(1, LONGEST.as_nanos() as u64, 3)
        .map_err(|error| Failure::failed(format!("no histogram: {error}")))
}

fn record(times: &mut Histogram<u64>, last: Option<Time>, now: Time) {
    if let Some(last) = last {
        times.saturating_record(now.since(last).as_nanos() as u64);
    }
}

/// How a side learns that a transfer has come.
#[derive(Clone, Copy, Debug)]
enum Sign {
    /// This byte of the memory changes: the word that it lies in, and how far it is shifted there.
    Memory { word: usize, shift: u32 },
    /// The count of immediates goes up from here.
    Immediate(u64),
    /// The count of messages goes up from here.
    Message(u64),
    /// A transfer of our own ends.
    Done,
}

/// Transfers one after the other.
#[derive(Debug)]
struct Game {
    shot: Shot,
    sign: Sign,
    started: u64,
    taken: u64,
}

/// What came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ball {
    Back,
    Over,
}

impl Game {
    fn new(pair: &mut Pair, size: u64) -> Result<Self, Failure> {
        let sign = match pair.job.test {
            Test::Read | Test::Atomic => Sign::Done,
            Test::Send => Sign::Message(pair.arrived),
            Test::Write if pair.job.has_immediate(size) => Sign::Immediate(pair.immediates.get()),
            Test::Write => {
                let last = pair.job.extent(size) as usize - 1;
                let landing = pair.landing.as_ref().ok_or(Error::new(Kind::Bug))?;
                landing.copy_in(last, &[0])?;
                Sign::Memory { word: last & !7, shift: (last & 7) as u32 * 8 }
            }
        };
        Ok(Self { shot: Shot::new(pair, size), sign, started: 0, taken: 0 })
    }

    /// The byte of the transfer with this number: never that of the one before, and never 0.
    fn stamp(number: u64) -> u8 {
        (1 + number % 255) as u8
    }

    #[inline]
    fn start(&mut self, pair: &mut Pair) -> Result<Time, Failure> {
        if matches!(self.sign, Sign::Memory { .. }) {
            self.shot.stamp(pair, Self::stamp(self.started))?;
        }
        let is_trip = matches!(self.sign, Sign::Done);
        if is_trip {
            pair.now = Time::now();
        }
        self.shot.post(pair)?;
        if !is_trip {
            pair.now = Time::now();
        }
        self.started += 1;
        Ok(pair.now)
    }

    #[inline]
    fn finish(&mut self, pair: &mut Pair) -> Result<(), Failure> {
        match self.wait(pair)? {
            Ball::Back => Ok(()),
            Ball::Over => Err(pair.lost(Kind::Corrupt.into())),
        }
    }

    fn turn(&mut self, pair: &mut Pair) -> Result<(), Failure> {
        self.start(pair)?;
        self.finish(pair)
    }

    /// Give back what comes, until the peer has enough.
    fn answer(&mut self, pair: &mut Pair) -> Result<(), Failure> {
        while self.wait(pair)? == Ball::Back {
            if matches!(self.sign, Sign::Memory { .. }) {
                self.shot.stamp(pair, Self::stamp(self.started))?;
            }
            self.shot.post(pair)?;
            self.started += 1;
        }
        Ok(())
    }

    #[inline]
    fn wait(&mut self, pair: &mut Pair) -> Result<Ball, Failure> {
        let mut looks = 0u32;
        loop {
            if self.has_come(pair)? {
                self.taken += 1;
                return Ok(Ball::Back);
            }
            // ours must leave, and what comes may need us
            if !pair.is_passive
                || looks.is_multiple_of(LOOKS)
                || !matches!(self.sign, Sign::Memory { .. })
                || pair.has_open()
            {
                pair.step()?;
                if pair.is_stopped() {
                    return Ok(Ball::Over);
                }
            }
            vervain_transport::sync::spin_loop();
            looks = looks.wrapping_add(1);
        }
    }

    #[inline]
    fn has_come(&self, pair: &Pair) -> Result<bool, Failure> {
        let taken = self.taken;
        Ok(match self.sign {
            Sign::Memory { word, shift } => {
                let landing = pair.landing.as_ref().ok_or(Error::new(Kind::Bug))?;
                (landing.load(word)? >> shift) as u8 == Self::stamp(taken)
            }
            Sign::Immediate(before) => pair.immediates.get() > before + taken,
            Sign::Message(before) => pair.arrived > before + taken,
            Sign::Done => !pair.has_open(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stamps_differ_from_the_one_before_and_from_nothing() {
        for number in 0..600 {
            assert_ne!(Game::stamp(number), Game::stamp(number + 1), "{number}");
            assert_ne!(Game::stamp(number), 0);
        }
    }

    #[test]
    fn times_are_one_way_and_in_microseconds() {
        let mut times = histogram().unwrap();
        (1..=1000).for_each(|time| times.record(time * 2000).unwrap());
        let mut line = Latency { size: 8, iterations: 1000, times, ways: 2 };
        assert!((line.percentile(50.0) - 500.0).abs() < 1.0, "{}", line.percentile(50.0));
        line.ways = 1;
        assert!((line.percentile(99.0) - 1980.0).abs() < 4.0, "{}", line.percentile(99.0));
    }
}
