//! Whether the data is right: one more transfer after each line, with a pattern of its own, whose every byte is looked at, and
//! the bytes between pages and behind the end too, which must be untouched.

use core::ops::Range;

use vervain_transport::{Error, Kind};

use super::job::{GUARD, Paging};
use super::options::Test;
use super::pair::{Pair, Say};
use super::post::Shot;
use crate::exit::Failure;

/// What is wrong, on both sides together, and whether an error was planted.
#[derive(Clone, Copy, Debug, Default)]
pub struct Verdict {
    /// Wrong bytes so far.
    pub wrong: u64,
    planted: bool,
    lines: u64,
}

/// What memory holds where nothing was written.
const UNTOUCHED: u8 = 0xee;
/// Bytes that are made or looked at together.
const PIECE: usize = 64 << 10;

impl Verdict {
    /// Check one transfer of this size in each direction. Both sides call it together.
    pub fn check(&mut self, pair: &mut Pair, size: u64) -> Result<(), Failure> {
        self.lines += 1;
        let plants = pair.job.inject && !self.planted && size > 0;
        self.planted |= plants;
        self.check_one(pair, size, pair.side == super::pair::Side::Initiator, plants)?;
        if pair.job.bidirectional {
            self.check_one(pair, size, pair.side == super::pair::Side::Target, false)?;
        }
        Ok(())
    }

    /// One direction; `gives` if the transfer is ours.
    fn check_one(&mut self, pair: &mut Pair, size: u64, gives: bool, plants: bool) -> Result<(), Failure> {
        let pattern = Pattern { seed: self.lines, size, paging: pair.job.paging.filter(|_| size > 0) };
        if gives {
            prepare_giver(pair, &pattern)?
        } else {
            prepare_taker(pair, &pattern)?
        }
        pair.meet()?;
        if gives {
            give(pair, &pattern)?;
        } else {
            receive(pair)?;
        }
        // who has the bytes looks at them
        let judges = gives == (pair.job.test == Test::Read);
        if judges {
            if plants {
                plant(pair, &pattern)?;
            }
            let wrong = judge(pair, &pattern)?;
            if plants && pair.job.test == Test::Atomic {
                // this word lives on: change it back
                plant(pair, &pattern)?;
            }
            pair.say(&Say::Wrong(wrong))?;
            self.wrong += wrong;
        } else {
            self.wrong += pair.hear(|say| if let Say::Wrong(wrong) = say { Some(*wrong) } else { None })?;
        }
        Ok(())
    }
}

fn bug() -> Failure {
    Failure::from(Error::new(Kind::Bug))
}

fn prepare_giver(pair: &mut Pair, pattern: &Pattern) -> Result<(), Failure> {
    let is_read = pair.job.test == Test::Read;
    let Some(source) = &mut pair.source else { return Ok(()) };
    match is_read {
        true => pattern.each_untouched(0..pattern.size + GUARD, |at, bytes| source.copy_in(at, bytes))?,
        false => pattern.each_piece(0, pattern.size, |at, bytes| source.copy_in(at as usize, bytes))?,
    }
    Ok(())
}

fn prepare_taker(pair: &mut Pair, pattern: &Pattern) -> Result<(), Failure> {
    pair.kept = None;
    pair.keeps = pair.job.test == Test::Send;
    let extent = pair.job.extent(pattern.size);
    let Some(landing) = &pair.landing else { return Ok(()) };
    match pair.job.test {
        Test::Read => pattern.each_piece(0, pattern.size, |at, bytes| landing.copy_in(at as usize, bytes))?,
        Test::Write => pattern.each_untouched(0..extent + GUARD, |at, bytes| landing.copy_in(at, bytes))?,
        Test::Send | Test::Atomic => {}
    }
    Ok(())
}

fn give(pair: &mut Pair, pattern: &Pattern) -> Result<(), Failure> {
    let mut shot = Shot::new(pair, pattern.size);
    if shot.has_payload() {
        shot = Shot::with_payload(pair, &pattern.bytes());
    }
    shot.post(pair)?;
    pair.drain()?;
    match pair.job.test {
        Test::Atomic => pair.say(&Say::Sum(pair.added)),
        Test::Write | Test::Read => pair.say(&Say::Stop),
        Test::Send => Ok(()),
    }
}

fn receive(pair: &mut Pair) -> Result<(), Failure> {
    match pair.job.test {
        Test::Write | Test::Read => pair.hear(|say| (*say == Say::Stop).then_some(())),
        Test::Atomic => {
            pair.theirs_added = pair.hear(|say| if let Say::Sum(sum) = say { Some(*sum) } else { None })?;
            Ok(())
        }
        Test::Send => {
            while pair.kept.is_none() {
                pair.step()?;
            }
            pair.keeps = false;
            Ok(())
        }
    }
}

/// Change one byte.
fn plant(pair: &mut Pair, pattern: &Pattern) -> Result<(), Failure> {
    let change = |byte: &[u8; 1]| [byte[0] ^ 0x10];
    let mut byte = [0];
    match pair.job.test {
        Test::Write | Test::Atomic => {
            let landing = pair.landing.as_ref().ok_or_else(bug)?;
            landing.copy_out(0, &mut byte)?;
            landing.copy_in(0, &change(&byte))?;
        }
        Test::Read => {
            let source = pair.source.as_mut().ok_or_else(bug)?;
            let last = pattern.size as usize - 1;
            source.copy_out(last, &mut byte)?;
            source.copy_in(last, &change(&byte))?;
        }
        Test::Send => {
            if let Some(byte) = pair.kept.as_mut().and_then(|kept| kept.last_mut()) {
                *byte ^= 0x10;
            }
        }
    }
    Ok(())
}

/// Wrong bytes.
fn judge(pair: &mut Pair, pattern: &Pattern) -> Result<u64, Failure> {
    match pair.job.test {
        Test::Write => {
            let landing = pair.landing.as_ref().ok_or_else(bug)?;
            Ok(pattern.wrong_in_pages(|at, into| landing.copy_out(at, into))?)
        }
        Test::Read => {
            let source = pair.source.as_ref().ok_or_else(bug)?;
            let copy = |at, into: &mut [u8]| source.copy_out(at, into);
            Ok(pattern.wrong(0, 0, pattern.size, copy)? + untouched_wrong(pattern.size..pattern.size + GUARD, copy)?)
        }
        Test::Send => {
            let kept = pair.kept.take().unwrap_or_default();
            let expected = pattern.bytes();
            let differing = kept.iter().zip(&expected).filter(|(one, other)| one != other).count();
            Ok((differing + kept.len().abs_diff(expected.len())) as u64)
        }
        Test::Atomic => {
            let word = pair.landing.as_ref().ok_or_else(bug)?.load(0)?;
            let wrong =
                word.to_le_bytes().iter().zip(pair.theirs_added.to_le_bytes()).filter(|(a, b)| **a != *b).count();
            Ok(wrong as u64)
        }
    }
}

/// The bytes of a transfer.
#[derive(Clone, Copy, Debug)]
struct Pattern {
    seed: u64,
    size: u64,
    paging: Option<Paging>,
}

type Copied = vervain_transport::Result<()>;

impl Pattern {
    /// The bytes from this one of the transfer on.
    fn fill(&self, position: u64, into: &mut [u8]) {
        let mut word = position / 8;
        let mut skip = (position % 8) as usize;
        let mut filled = 0;
        while filled < into.len() {
            let value = (word ^ self.seed << 40).wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29);
            let bytes = &value.to_le_bytes()[skip..];
            let count = bytes.len().min(into.len() - filled);
            into[filled..filled + count].copy_from_slice(&bytes[..count]);
            (word, skip, filled) = (word + 1, 0, filled + count);
        }
    }

    /// All of them; for short transfers.
    fn bytes(&self) -> Vec<u8> {
        let mut bytes = vec![0; self.size as usize];
        self.fill(0, &mut bytes);
        bytes
    }

    /// Hand out the bytes from one position to another, piece by piece.
    fn each_piece(&self, from: u64, to: u64, mut put: impl FnMut(u64, &[u8]) -> Copied) -> Copied {
        let mut piece = vec![0; PIECE.min((to - from) as usize)];
        let mut at = from;
        while at < to {
            let count = piece.len().min((to - at) as usize);
            self.fill(at, &mut piece[..count]);
            put(at, &piece[..count])?;
            at += count as u64;
        }
        Ok(())
    }

    fn each_untouched(&self, range: Range<u64>, mut put: impl FnMut(usize, &[u8]) -> Copied) -> Copied {
        let piece = [UNTOUCHED; PIECE];
        let mut at = range.start;
        while at < range.end {
            let count = PIECE.min((range.end - at) as usize);
            put(at as usize, &piece[..count])?;
            at += count as u64;
        }
        Ok(())
    }

    /// Wrong bytes of memory where a write has landed.
    fn wrong_in_pages(&self, copy: impl Fn(usize, &mut [u8]) -> Copied) -> vervain_transport::Result<u64> {
        let paging = self.paging.unwrap_or(Paging { page: self.size, stride: self.size });
        let pages = self.size.checked_div(paging.page).unwrap_or(0);
        let (mut wrong, mut end) = (0, 0);
        for page in 0..pages {
            let start = page * paging.stride;
            wrong += untouched_wrong(end..start, &copy)?;
            wrong += self.wrong(start, page * paging.page, paging.page, &copy)?;
            end = start + paging.page;
        }
        Ok(wrong + untouched_wrong(end..end + GUARD, &copy)?)
    }

    /// Wrong bytes among `count`, of which the first lies here in memory and there in the transfer.
    fn wrong(
        &self,
        start: u64,
        position: u64,
        count: u64,
        copy: impl Fn(usize, &mut [u8]) -> Copied,
    ) -> vervain_transport::Result<u64> {
        let (mut wrong, mut there) = (0, vec![0; PIECE.min(count as usize)]);
        self.each_piece(position, position + count, |at, expected| {
            let there = &mut there[..expected.len()];
            copy((start + at - position) as usize, there)?;
            wrong += differing(there, expected);
            Ok(())
        })?;
        Ok(wrong)
    }
}

fn untouched_wrong(range: Range<u64>, copy: impl Fn(usize, &mut [u8]) -> Copied) -> vervain_transport::Result<u64> {
    let mut there = vec![0; PIECE.min((range.end - range.start) as usize)];
    let (mut wrong, mut at) = (0, range.start);
    while at < range.end {
        let count = there.len().min((range.end - at) as usize);
        copy(at as usize, &mut there[..count])?;
        wrong += differing(&there[..count], &[UNTOUCHED; PIECE][..count]);
        at += count as u64;
    }
    Ok(wrong)
}

fn differing(there: &[u8], expected: &[u8]) -> u64 {
    if there == expected {
        return 0;
    }
    there.iter().zip(expected).filter(|(one, other)| one != other).count() as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn landed(pattern: &Pattern, extent: usize) -> Vec<u8> {
        let mut memory = vec![UNTOUCHED; extent + GUARD as usize];
        let paging = pattern.paging.unwrap_or(Paging { page: pattern.size, stride: pattern.size });
        let bytes = pattern.bytes();
        for (page, bytes) in bytes.chunks(paging.page.max(1) as usize).enumerate() {
            let at = page * paging.stride as usize;
            memory[at..at + bytes.len()].copy_from_slice(bytes);
        }
        memory
    }

    fn wrong(pattern: &Pattern, memory: &[u8]) -> u64 {
        let copy = |at: usize, into: &mut [u8]| {
            into.copy_from_slice(&memory[at..at + into.len()]);
            Ok(())
        };
        pattern.wrong_in_pages(copy).unwrap()
    }

    #[test]
    fn every_changed_byte_is_found_wherever_it_lies() {
        for (size, paging) in [
            (0, None),
            (1, None),
            (7, None),
            (9, None),
            (64, Some(Paging { page: 4, stride: 4 })),
            (30, Some(Paging { page: 3, stride: 11 })),
        ] {
            let pattern = Pattern { seed: 3, size, paging };
            let extent = paging.map_or(size, |paging| (size / paging.page - 1) * paging.stride + paging.page);
            let mut memory = landed(&pattern, extent as usize);
            assert_eq!(wrong(&pattern, &memory), 0, "{size}");
            for at in 0..memory.len() {
                memory[at] ^= 1;
                assert_eq!(wrong(&pattern, &memory), 1, "{size} at {at}");
                memory[at] ^= 1;
            }
        }
    }

    #[test]
    fn pieces_join_and_seeds_differ() {
        let size = PIECE as u64 * 2 + 5;
        let (one, other) = (Pattern { seed: 1, size, paging: None }, Pattern { seed: 2, size, paging: None });
        let bytes = one.bytes();
        let mut joined = Vec::new();
        one.each_piece(3, size, |at, piece| {
            assert_eq!(at as usize, joined.len() + 3);
            joined.extend_from_slice(piece);
            Ok(())
        })
        .unwrap();
        assert_eq!(joined, bytes[3..]);
        assert!(differing(&bytes, &other.bytes()) > size / 2);
    }
}
