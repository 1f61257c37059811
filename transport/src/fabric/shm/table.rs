//! Values by identifiers that are never used again.

use std::{
    collections::HashMap,
    hash::{BuildHasherDefault, Hasher},
};

use crate::{Error, Kind, Result};

/// Values by numbers of our own.
pub(super) type Numbers<T> = HashMap<u32, T, BuildHasherDefault<Spread>>;

/// Values by number. A number that was removed does not come back, and costs nothing.
#[derive(Debug)]
pub(super) struct Table<T> {
    next: u32,
    values: Numbers<T>,
}

impl<T> Table<T> {
    pub fn new() -> Self {
        Self { next: 0, values: HashMap::default() }
    }

    /// A number for a value that comes later, or never.
    pub fn reserve(&mut self) -> Result<u32> {
        let number = self.next;
        self.next = number.checked_add(1).ok_or(Error::new(Kind::NoSpace))?;
        Ok(number)
    }

    pub fn put(&mut self, number: u32, value: T) {
        self.values.insert(number, value);
    }

    pub fn add(&mut self, value: T) -> Result<u32> {
        let number = self.reserve()?;
        self.put(number, value);
        Ok(number)
    }

    #[inline]
    pub fn find(&self, number: u32) -> Option<&T> {
        self.values.get(&number)
    }

    #[inline]
    pub fn find_mut(&mut self, number: u32) -> Option<&mut T> {
        self.values.get_mut(&number)
    }

    pub fn contains(&self, number: u32) -> bool {
        self.values.contains_key(&number)
    }

    pub fn remove(&mut self, number: u32) -> Option<T> {
        self.values.remove(&number)
    }

    pub fn values_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.values.values_mut()
    }

    pub fn values(&self) -> impl Iterator<Item = &T> {
        self.values.values()
    }

    pub fn len(&self) -> usize {
        self.values.len()
    }

    /// The number was given out, though its value may be gone.
    pub fn was_reserved(&self, number: u32) -> bool {
        number < self.next
    }
}

/// Our own consecutive numbers need no protection against collisions, only spreading.
#[derive(Default)]
pub(super) struct Spread(u64);

impl Hasher for Spread {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_u32(u32::from(*byte));
        }
    }

    fn write_isize(&mut self, number: isize) {
        self.write_u32(number as u32);
    }

    fn write_u32(&mut self, number: u32) {
        self.0 = (self.0 ^ u64::from(number)).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(26);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn removed_number_does_not_come_back() {
        let mut table = Table::new();
        let first = table.add('a').unwrap();
        assert_eq!(table.remove(first), Some('a'));
        let second = table.add('b').unwrap();
        assert_ne!(first, second);
        assert_eq!((table.find(first), table.find(second)), (None, Some(&'b')));
    }

    #[test]
    fn numbers_run_out_with_an_error() {
        let mut table = Table::<()>::new();
        table.next = u32::MAX;
        assert_eq!(table.reserve().unwrap_err().kind(), Kind::NoSpace);
    }
}
