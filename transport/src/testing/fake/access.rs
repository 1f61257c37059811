//! Who may use which region: grants, keys, and the remotes that peers make of them.

use super::{
    key::{Claim, Grant},
    node::{Link, Node, Remote, Slot},
    wire::{Aim, Answer, Request},
};
use crate::{
    Error, Kind, Result,
    fabric::{Access, Event, Key, LinkId, RegionId, RemoteId, Span},
};

impl Node {
    pub fn advertise(&mut self, id: LinkId, region: RegionId, access: Access, nonce: u64) -> Result<Key> {
        self.link(id)?;
        let bytes = self.regions.view(region).ok_or(Error::new(Kind::InvalidArgument))?.bytes as u64;
        self.refuse_while_revoking(region)?;
        let link = self.link(id)?;
        let is_same =
            |grant: &Option<Grant>| grant.is_some_and(|grant| (grant.region, grant.access) == (region, access));
        let at = match link.grants.iter().position(is_same) {
            Some(at) => at,
            None => link.add_grant(Grant { region, access, nonce }),
        };
        let nonce = link.grants[at].map_or(0, |grant| grant.nonce);
        Ok(Claim { grant: at as u32, nonce, bytes, access }.emit(link.port.number()))
    }

    pub fn import(&mut self, id: LinkId, key: &Key) -> Result<RemoteId> {
        let owner = self.link(id)?.port.other();
        let Claim { grant, nonce, bytes, access } = Claim::parse(key, owner.number())?;
        let remote = u32::try_from(self.remotes.len()).map_err(|_| Error::new(Kind::NoSpace))?;
        self.remotes.push(Some(Remote { link: id, grant, nonce, bytes, access }));
        Ok(RemoteId(remote))
    }

    pub fn forget(&mut self, remote: RemoteId) -> Result<()> {
        let known = self.remotes.get_mut(remote.0 as usize).and_then(Option::take);
        known.map(drop).ok_or_else(|| Kind::InvalidArgument.into())
    }

    pub fn release(&mut self, region: RegionId) -> Result<()> {
        self.refuse_while_revoking(region)?;
        self.regions.release(region)?;
        self.void(region);
        Ok(())
    }

    /// Void all keys. A request is checked when it is carried out, so none gets through from here on.
    pub fn revoke(&mut self, region: RegionId) -> Result<()> {
        self.regions.view(region).ok_or(Error::new(Kind::InvalidArgument))?;
        if !self.revoking.insert(region) {
            return Err(Kind::InvalidUsage.into());
        }
        self.void(region);
        self.events.push_back(Event::Revoked { region, result: Ok(()) });
        Ok(())
    }

    fn refuse_while_revoking(&self, region: RegionId) -> Result<()> {
        if self.revoking.contains(&region) { Err(Kind::InvalidUsage.into()) } else { Ok(()) }
    }

    fn void(&mut self, region: RegionId) {
        for slot in &mut self.links {
            let Slot::Live(link) = slot else { continue };
            for grant in &mut link.grants {
                grant.take_if(|grant| grant.region == region);
            }
        }
    }

    /// The region that a request may use.
    pub fn granted(&mut self, id: LinkId, aim: Aim, access: Access) -> Result<RegionId, Kind> {
        let link = self.link(id).map_err(|error| error.kind())?;
        let grant = link.grants.get(aim.grant as usize).copied().flatten().filter(|grant| grant.nonce == aim.nonce);
        match grant {
            Some(grant) if grant.access.allows(access) => Ok(grant.region),
            _ => Err(Kind::AccessDenied),
        }
    }

    /// Do to the region what the request says.
    pub fn carry_out(&self, region: RegionId, request: &Request) -> Result<Answer, Kind> {
        let regions = &self.regions;
        let result = match request {
            Request::Write { aim, data, .. } => regions.write(region, aim.offset, data).map(|()| Answer::Done),
            Request::Read { aim, bytes } => {
                regions.read(Span { region, offset: aim.offset, bytes: *bytes }).map(Answer::Data)
            }
            Request::FetchAdd { aim, add } => regions.fetch_add(region, aim.offset, *add).map(Answer::Before),
            Request::CompareSwap { aim, expected, desired } => {
                regions.compare_swap(region, aim.offset, *expected, *desired).map(Answer::Before)
            }
            Request::Flush => Ok(Answer::Done),
        };
        result.map_err(|error| error.kind())
    }
}

impl Link {
    /// In the first free place.
    fn add_grant(&mut self, grant: Grant) -> usize {
        let at = self.grants.iter().position(Option::is_none).unwrap_or(self.grants.len());
        self.grants.resize(self.grants.len().max(at + 1), None);
        self.grants[at] = Some(grant);
        at
    }
}
