//! The keys that one end of a link gave out, and the void ones among them that the peer has not confirmed.
//!
//! A key is void here as soon as it is withdrawn. The peer is told by a record ([`Given::next_untold`]) and confirms; until
//! then it may still use the memory by itself (rules FE-1 and FE-2).

use std::collections::{HashMap, VecDeque};

use super::{
    keys::SLOTS,
    table::{Numbers, Spread},
};
use crate::{
    Error, Kind, Result,
    fabric::{Access, RegionId},
};
use core::hash::BuildHasherDefault;

/// A valid key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Grant {
    pub region: RegionId,
    pub access: Access,
    pub slot: u32,
}

/// A key that is void, of which the peer has not said that it knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Void {
    pub number: u32,
    pub slot: u32,
    pub region: RegionId,
}

/// Most records about void keys that a peer has not confirmed. Both ends must agree on it.
pub(super) const VOIDS: usize = 32;

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Given {
    /// By number.
    live: Numbers<Grant>,
    /// The numbers of a region's keys.
    numbers: HashMap<(u32, Access), u32, BuildHasherDefault<Spread>>,
    next: u32,
    free: Vec<u32>,
    slots: u32,
    untold: VecDeque<Void>,
    told: VecDeque<Void>,
}

impl Given {
    /// The number of the region's key with these rights, if there is one.
    pub fn known(&self, region: RegionId, access: Access) -> Option<(u32, Grant)> {
        let number = *self.numbers.get(&(region.0, access))?;
        self.live.get(&number).map(|grant| (number, *grant))
    }

    /// What the next key will be.
    ///
    /// # Errors
    /// `NoSpace` if as many are valid as can be, or if all numbers are used up.
    pub fn upcoming(&self) -> Result<(u32, u32)> {
        let slot = self.free.last().copied().unwrap_or(self.slots);
        if slot >= SLOTS || self.next == u32::MAX {
            return Err(Error::new(Kind::NoSpace));
        }
        Ok((self.next, slot))
    }

    /// Give out what [`Given::upcoming`] said.
    pub fn add(&mut self, region: RegionId, access: Access) -> Result<u32> {
        let (number, slot) = self.upcoming()?;
        if self.free.pop().is_none() {
            self.slots += 1;
        }
        self.next += 1;
        self.live.insert(number, Grant { region, access, slot });
        self.numbers.insert((region.0, access), number);
        Ok(number)
    }

    /// The valid key of this number.
    pub fn find(&self, number: u32) -> Option<Grant> {
        self.live.get(&number).copied()
    }

    /// All keys of a region are void from here on.
    pub fn void(&mut self, region: RegionId) {
        for access in [Access::Read, Access::Write, Access::ReadWrite] {
            let Some(number) = self.numbers.remove(&(region.0, access)) else { continue };
            let Some(Grant { slot, .. }) = self.live.remove(&number) else { continue };
            self.free.push(slot);
            self.untold.push_back(Void { number, slot, region });
        }
    }

    /// A void key that the peer is to be told of now.
    pub fn next_untold(&mut self) -> Option<Void> {
        if self.told.len() == VOIDS {
            return None;
        }
        let void = self.untold.pop_front()?;
        self.told.push_back(void);
        Some(void)
    }

    /// Whether the peer has too many to confirm to be told of all.
    pub fn is_behind(&self) -> bool {
        !self.untold.is_empty()
    }

    /// Whether the peer has not even been told of this key: it has too many to confirm.
    pub fn is_untold(&self, number: u32) -> bool {
        self.untold.iter().any(|void| void.number == number)
    }

    /// The peer confirms: the region that the key was for. `None` if it was not asked to.
    pub fn confirm(&mut self, number: u32) -> Option<RegionId> {
        let at = self.told.iter().position(|void| void.number == number)?;
        self.told.remove(at).map(|void| void.region)
    }

    /// Every region that the peer may still use by itself.
    pub fn regions(&self) -> impl Iterator<Item = RegionId> + '_ {
        let void = self.told.iter().chain(&self.untold).map(|void| void.region);
        self.live.values().map(|grant| grant.region).chain(void)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const REGION: RegionId = RegionId(7);

    #[test]
    fn slots_come_back_under_greater_numbers() {
        let mut given = Given::default();
        let first = given.add(REGION, Access::Read).unwrap();
        let slot = given.find(first).unwrap().slot;
        given.void(REGION);
        assert_eq!((given.find(first), given.known(REGION, Access::Read)), (None, None));
        let second = given.add(REGION, Access::Read).unwrap();
        assert_eq!(given.find(second).unwrap().slot, slot);
        assert!(second > first);
    }

    #[test]
    fn rights_of_one_region_are_keys_of_their_own_and_end_together() {
        let mut given = Given::default();
        let both = [Access::Read, Access::ReadWrite].map(|access| given.add(REGION, access).unwrap());
        let other = given.add(RegionId(8), Access::Read).unwrap();
        assert_ne!(both[0], both[1]);
        given.void(REGION);
        assert!(both.iter().all(|number| given.find(*number).is_none()) && given.find(other).is_some());
        assert_eq!(given.regions().filter(|region| *region == REGION).count(), 2);
    }

    #[test]
    fn peers_are_told_of_so_many_at_once_and_confirm_each_once() {
        let mut given = Given::default();
        let count = VOIDS as u32 + 1;
        for region in 0..count {
            given.add(RegionId(region), Access::Read).unwrap();
            given.void(RegionId(region));
        }
        let told: Vec<_> = core::iter::from_fn(|| given.next_untold()).collect();
        assert_eq!(told.len(), VOIDS);
        assert!(given.is_untold(count - 1) && !given.is_untold(0));
        assert_eq!(given.confirm(count - 1), None, "it was not told of this one");
        assert_eq!(given.confirm(told[3].number), Some(told[3].region));
        assert_eq!(given.confirm(told[3].number), None);
        assert_eq!(given.next_untold().map(|void| void.number), Some(count - 1));
    }

    #[test]
    fn keys_run_out_with_an_error_and_one_that_ends_makes_room() {
        let mut given = Given::default();
        for region in 0..SLOTS {
            given.add(RegionId(region), Access::Write).unwrap();
        }
        assert_eq!(given.add(RegionId(SLOTS), Access::Write).unwrap_err().kind(), Kind::NoSpace);
        given.void(RegionId(5));
        given.add(RegionId(SLOTS), Access::Write).unwrap();
        given.next = u32::MAX;
        given.void(RegionId(6));
        assert_eq!(given.add(REGION, Access::Read).unwrap_err().kind(), Kind::NoSpace);
    }
}
