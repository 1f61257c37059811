//! The buffers of a rank: made once, at the size of the largest message, and lent out in the shape of each call.

use vervain_collectives::{Buffer, Communicator};

use super::settings::{Place, Settings};
use super::sizes::human;
use crate::exit::Failure;
use crate::machine;

/// Where plain buffers begin, before `-u` moves them.
const ALIGNMENT: usize = 4096;

/// Bytes that begin where they should.
#[derive(Debug)]
enum Bytes {
    /// Memory of the allocator, as most programs pass it.
    Plain(Vec<u8>),
    /// Memory that all ranks registered together.
    Registered(Buffer<u8>),
}

/// An input and an output of the largest size.
#[derive(Debug)]
pub struct Memory {
    input: Bytes,
    output: Bytes,
    unalign: usize,
}

/// What a call works on.
#[derive(Debug)]
pub enum Lent<'a> {
    /// Separate memory.
    Apart(&'a mut [u8], &'a mut [u8]),
    /// One memory for both; its length is that of the larger.
    InPlace(&'a mut [u8]),
}

impl Lent<'_> {
    /// The same memory, lent on.
    pub fn again(&mut self) -> Lent<'_> {
        match self {
            Lent::Apart(input, output) => Lent::Apart(input, output),
            Lent::InPlace(both) => Lent::InPlace(both),
        }
    }
}

impl Memory {
    /// Buffers of `settings.max` bytes. All ranks call it together.
    pub fn new(communicator: &Communicator, settings: &Settings) -> Result<Self, Failure> {
        let bytes =
            usize::try_from(settings.max).map_err(|_| Failure::usage("-e is more than this machine can address"))?;
        Ok(Self {
            input: Bytes::new(communicator, settings, bytes)?,
            output: Bytes::new(communicator, settings, bytes)?,
            unalign: settings.unalign,
        })
    }

    /// The first bytes of the buffers.
    pub fn lend(&mut self, place: Place, input: usize, output: usize) -> Lent<'_> {
        match place {
            Place::Apart => Lent::Apart(self.input.first(self.unalign, input), self.output.first(self.unalign, output)),
            Place::InPlace => Lent::InPlace(self.output.first(self.unalign, input.max(output))),
        }
    }
}

impl Bytes {
    fn new(communicator: &Communicator, settings: &Settings, bytes: usize) -> Result<Self, Failure> {
        let padded =
            bytes.checked_add(ALIGNMENT + settings.unalign).ok_or_else(|| Failure::usage("-e is too large"))?;
        if settings.registered {
            return Ok(Bytes::Registered(communicator.alloc::<u8>(padded)?));
        }
        let mut memory = Vec::new();
        memory.try_reserve_exact(padded).map_err(|_| {
            Failure::failed(format!("no memory for a buffer of {}; lower -e/--maxbytes", human(bytes as u64)))
        })?;
        memory.resize(padded, 0);
        Ok(Bytes::Plain(memory))
    }

    fn first(&mut self, unalign: usize, bytes: usize) -> &mut [u8] {
        let all: &mut [u8] = match self {
            Bytes::Plain(memory) => memory,
            Bytes::Registered(buffer) => buffer,
        };
        let start = all.as_ptr().align_offset(ALIGNMENT) + unalign;
        &mut all[start..][..bytes]
    }
}

/// Refuse sizes that the ranks of this host cannot hold together.
pub fn check_available(settings: &Settings, local_ranks: u32) -> Result<(), String> {
    match machine::available_memory() {
        Some(available) => fits(settings.max, local_ranks, available),
        None => Ok(()),
    }
}

fn fits(max: u64, local_ranks: u32, available: u64) -> Result<(), String> {
    let needed = max.checked_mul(2).and_then(|bytes| bytes.checked_mul(u64::from(local_ranks)));
    match needed {
        Some(needed) if needed <= available => Ok(()),
        _ => Err(format!(
            "{local_ranks} ranks of this host need two buffers of {} each, but only {} of memory are free; lower -e/--maxbytes or --ranks",
            human(max),
            human(available)
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_that_do_not_fit_are_refused_in_a_sentence() {
        assert_eq!(fits(1 << 20, 4, 8 << 20), Ok(()));
        let sentence = fits(1 << 20, 4, (8 << 20) - 1).unwrap_err();
        assert!(sentence.contains("4 ranks") && sentence.contains("1 MiB") && sentence.contains("-e"), "{sentence}");
        assert!(fits(u64::MAX, 1, u64::MAX).is_err());
        assert!(fits(1 << 62, 4, u64::MAX).is_err());
        assert_eq!(fits(0, 1, 0), Ok(()));
    }

    #[test]
    fn plain_buffers_begin_so_many_bytes_after_a_page() {
        for unalign in [0, 1, 4095] {
            let mut bytes = Bytes::Plain(vec![0; 10 + ALIGNMENT + unalign]);
            let first = bytes.first(unalign, 10);
            assert_eq!((first.as_ptr() as usize % ALIGNMENT, first.len()), (unalign, 10));
        }
    }
}
