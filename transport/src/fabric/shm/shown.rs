//! What the peer of a link has shown us, and which of its keys are void.
//!
//! All of it is bounded, whatever the peer sends: mappings that nobody here has imported by [`MOST`], void keys by the
//! number of slots. What was imported is bounded by whoever imports.

use std::{collections::HashMap, sync::Arc};

use memmap2::MmapRaw;

use super::keys::{Claim, SLOTS};
use crate::{Kind, Result, fabric::Access};

/// Most mappings that the peer shows without our importing them.
const MOST: usize = 16 << 10;

#[derive(Debug)]
struct Arrived {
    map: Arc<MmapRaw>,
    access: Access,
    imported: bool,
}

/// See the module. The peer chooses the numbers, so the tables have a hash that it cannot foresee.
#[derive(Debug, Default)]
pub(super) struct Shown {
    arrived: HashMap<u32, Arrived>,
    /// Of these, the ones that nobody imported.
    strange: usize,
    /// The remotes that were imported by each number.
    remotes: HashMap<u32, Vec<u32>>,
    /// By slot, the greatest number that is void.
    void: HashMap<u32, u32>,
}

/// What is left of a key that has become void.
#[derive(Debug)]
pub(super) struct Ended {
    pub map: Option<Arc<MmapRaw>>,
    pub remotes: Vec<u32>,
}

impl Shown {
    /// # Errors
    /// `NoSpace` if too many wait to be imported, `Corrupt` if the number is taken.
    pub fn arrive(&mut self, number: u32, access: Access, map: MmapRaw) -> Result<()> {
        if self.strange >= MOST {
            return Err(Kind::NoSpace.into());
        }
        match self.arrived.insert(number, Arrived { map: Arc::new(map), access, imported: false }) {
            None => self.strange += 1,
            Some(_) => return Err(Kind::Corrupt.into()),
        }
        Ok(())
    }

    /// The mapping that a key means; it counts as imported.
    ///
    /// # Errors
    /// `AccessDenied` if it has not been shown.
    pub fn import(&mut self, claim: &Claim) -> Result<Arc<MmapRaw>> {
        let arrived = self.arrived.get_mut(&claim.number).ok_or(Kind::AccessDenied)?;
        if arrived.map.len() as u64 != claim.bytes || arrived.access != claim.access {
            return Err(Kind::Corrupt.into());
        }
        self.strange -= usize::from(!arrived.imported);
        arrived.imported = true;
        Ok(arrived.map.clone())
    }

    /// Whether the peer has said that the key is void.
    pub fn is_void(&self, claim: &Claim) -> bool {
        self.void.get(&claim.slot).is_some_and(|void| claim.number <= *void)
    }

    /// `remote` was imported by the key of this number.
    pub fn enter(&mut self, number: u32, remote: u32) {
        self.remotes.entry(number).or_default().push(remote);
    }

    /// `remote` is forgotten.
    pub fn leave(&mut self, number: u32, remote: u32) {
        if let Some(remotes) = self.remotes.get_mut(&number) {
            remotes.retain(|known| *known != remote);
            if remotes.is_empty() {
                self.remotes.remove(&number);
            }
        }
    }

    /// The peer says that a key is void.
    ///
    /// # Errors
    /// `Corrupt` for a slot that no key can have.
    pub fn end(&mut self, number: u32, slot: u32) -> Result<Ended, Kind> {
        if slot >= SLOTS {
            return Err(Kind::Corrupt);
        }
        let greatest = self.void.entry(slot).or_insert(number);
        *greatest = number.max(*greatest);
        let arrived = self.arrived.remove(&number);
        self.strange -= usize::from(arrived.as_ref().is_some_and(|arrived| !arrived.imported));
        let remotes = self.remotes.remove(&number).unwrap_or_default();
        Ok(Ended { map: arrived.map(|arrived| arrived.map), remotes })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fabric::shm::keys::Way;

    fn map() -> MmapRaw {
        memmap2::MmapOptions::new().len(4096).map_anon().unwrap().into()
    }

    fn claim(number: u32, slot: u32) -> Claim {
        Claim { number, slot, way: Way::Mapped, access: Access::Read, bytes: 4096, start: 0 }
    }

    #[test]
    fn void_key_cannot_be_imported_and_its_successor_can() {
        let mut shown = Shown::default();
        shown.arrive(4, Access::Read, map()).unwrap();
        assert!(!shown.is_void(&claim(4, 1)) && shown.import(&claim(4, 1)).is_ok());
        shown.enter(4, 50);
        let ended = shown.end(4, 1).unwrap();
        assert!(ended.map.is_some() && ended.remotes == [50]);
        assert!(shown.is_void(&claim(4, 1)) && shown.is_void(&claim(3, 1)));
        assert!(!shown.is_void(&claim(5, 1)) && !shown.is_void(&claim(4, 2)));
        assert_eq!(shown.import(&claim(4, 1)).unwrap_err().kind(), Kind::AccessDenied);
        // an older end that comes late changes nothing
        shown.end(2, 1).unwrap();
        assert!(shown.is_void(&claim(4, 1)));
    }

    #[test]
    fn slots_beyond_the_limit_and_wrong_rights_are_corrupt() {
        let mut shown = Shown::default();
        assert_eq!(shown.end(1, SLOTS).unwrap_err(), Kind::Corrupt);
        shown.arrive(1, Access::ReadWrite, map()).unwrap();
        assert_eq!(shown.arrive(1, Access::ReadWrite, map()).unwrap_err().kind(), Kind::Corrupt);
        assert_eq!(shown.import(&claim(1, 0)).unwrap_err().kind(), Kind::Corrupt);
    }

    #[test]
    fn mappings_that_nobody_imports_are_bounded_and_imported_ones_do_not_count() {
        let mut shown = Shown { strange: MOST - 1, ..Shown::default() };
        shown.arrive(1, Access::Read, map()).unwrap();
        assert_eq!(shown.arrive(2, Access::Read, map()).unwrap_err().kind(), Kind::NoSpace);
        shown.import(&claim(1, 0)).unwrap();
        shown.import(&claim(1, 0)).unwrap();
        shown.arrive(2, Access::Read, map()).unwrap();
        assert_eq!(shown.strange, MOST);
        shown.end(2, 0).unwrap();
        shown.end(1, 1).unwrap();
        assert_eq!(shown.strange, MOST - 1);
    }
}
