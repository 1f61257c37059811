//! Counters that say how far somebody is: one side counts up, everybody else looks or waits.
//!
//! ```text
//! writer:   value += by                     line = value
//! reader:   line - target, as a signed number, is not negative: reached
//! ```
//! A counter has one writer, so that no two sides ever compete for its line, and lies in the memory of whoever reads it, alone on
//! 128 bytes (CN-1). It begins anywhere and wraps, and is compared by difference only (CN-2). Who has seen a value sees what was
//! stored before it (CN-3). Waiting has no clock: the caller is asked between two looks whether to go on (CN-5).
//!
//! ```
//! use vervain_transport::{Error, Kind, ring::counter, sync::{Inline, spin_loop}};
//!
//! static LINE: Inline<{ counter::WORDS }> = Inline::new();
//! let (mut writer, mut reader) = (counter::Writer::attach(&LINE)?, counter::Reader::attach(&LINE)?);
//! writer.advance(80);
//! assert_eq!(reader.wait_until(80, || Ok::<(), Error>(spin_loop())), Ok(80));
//! // nobody counts further, so let the caller's patience end
//! assert_eq!(reader.wait_until(81, || Err(Error::new(Kind::TimedOut))), Err(Error::new(Kind::TimedOut)));
//! # Ok::<(), Kind>(())
//! ```

use crate::{
    Kind,
    sync::{
        Ordering::{Acquire, Relaxed, Release},
        Words, label,
    },
    wire::LINE_WORDS,
};

/// Words of a counter: it lies in the first, and the others keep everything else away.
pub const WORDS: usize = LINE_WORDS;

/// Whether a counter that stands at `value` has come to `target`. The two are less than 2^63 apart (CN-2).
#[inline(always)]
pub const fn is_reached(value: u64, target: u64) -> bool {
    value.wrapping_sub(target) < 1 << 63
}

/// The counting side; there is one.
#[derive(Debug)]
pub struct Writer<W> {
    line: W,
    /// What the line says. Kept here, so that the line is only ever stored to.
    value: u64,
}

/// A looking side. Clone it for every thread.
#[derive(Clone, Debug)]
pub struct Reader<W> {
    line: W,
    /// The highest value seen. May be stale.
    seen: u64,
}

impl<W: Words> Writer<W> {
    /// The only writer of this line. It goes on from what the line says; fresh memory says 0.
    ///
    /// # Errors
    /// `InvalidArgument` if there are fewer than [`WORDS`] words.
    pub fn attach(line: W) -> Result<Self, Kind> {
        has_a_line(&line)?;
        // Relaxed: only writers write it, and whoever replaces one was told by it.
        let value = line.load(0, Relaxed);
        Ok(Self { line, value })
    }

    /// The only writer of this line, which begins at `start`. Readers attach afterwards.
    ///
    /// # Errors
    /// `InvalidArgument` if there are fewer than [`WORDS`] words.
    pub fn starting_at(line: W, start: u64) -> Result<Self, Kind> {
        has_a_line(&line)?;
        // Relaxed: nobody reads it yet, and whoever is told of it is told after this.
        line.store(0, start, Relaxed);
        Ok(Self { line, value: start })
    }

    /// Count up, and return the new value. By less than 2^63 beyond what every reader has seen (CN-2).
    #[inline]
    pub fn advance(&mut self, by: u64) -> u64 {
        self.value = self.value.wrapping_add(by);
        // SYNC counter.publish -> counter.observe: what we stored before is visible to whoever has seen the value (CN-3).
        self.line.store(0, self.value, label("counter.publish", Release));
        self.value
    }

    /// Where the counter stands.
    #[inline]
    pub fn value(&self) -> u64 {
        self.value
    }
}

impl<W: Words> Reader<W> {
    /// A reader of this line, from what it says now.
    ///
    /// # Errors
    /// `InvalidArgument` if there are fewer than [`WORDS`] words.
    pub fn attach(line: W) -> Result<Self, Kind> {
        has_a_line(&line)?;
        let mut reader = Self { line, seen: 0 };
        reader.seen = reader.load();
        Ok(reader)
    }

    /// The highest value seen so far, without looking.
    #[inline]
    pub fn seen(&self) -> u64 {
        self.seen
    }

    /// Look, and return what the counter says.
    ///
    /// # Errors
    /// `Corrupt` if it moved back (CN-4).
    #[inline]
    pub fn observe(&mut self) -> Result<u64, Kind> {
        let value = self.load();
        if !is_reached(value, self.seen) {
            return Err(Kind::Corrupt);
        }
        self.seen = value;
        Ok(value)
    }

    /// Whether the counter has come to `target`. Looks only if it had not when we looked last.
    ///
    /// # Errors
    /// As [`Reader::observe`].
    #[inline]
    pub fn has_reached(&mut self, target: u64) -> Result<bool, Kind> {
        Ok(is_reached(self.seen, target) || is_reached(self.observe()?, target))
    }

    /// Look until the counter has come to `target`, and return what it says then. Between two looks `idle` is called: to spin,
    /// yield, poll or sleep, and to end the waiting with an error of its own, such as a deadline or an abort (CN-5).
    ///
    /// # Errors
    /// What `idle` returned, or as [`Reader::observe`].
    #[inline]
    pub fn wait_until<E: From<Kind>>(
        &mut self,
        target: u64,
        mut idle: impl FnMut() -> Result<(), E>,
    ) -> Result<u64, E> {
        while !self.has_reached(target)? {
            idle()?;
        }
        Ok(self.seen)
    }

    #[inline(always)]
    fn load(&self) -> u64 {
        // SYNC counter.observe <- counter.publish: what the writer stored before is visible from here on (CN-3).
        self.line.load(0, label("counter.observe", Acquire))
    }
}

fn has_a_line(line: &impl Words) -> Result<(), Kind> {
    if line.len() < WORDS { Err(Kind::InvalidArgument) } else { Ok(()) }
}
