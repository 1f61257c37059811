//! What one fabric brings to every link: who it is, where its memory comes from, its doorbell and its probe word.

use std::os::fd::OwnedFd;

use super::{
    Options,
    handshake::Setup,
    lanes::{BOUNCE, INBOX},
    memory::{Failure, Place, Segment, Shortage, whole_pages},
};
use crate::{
    Error, Kind, Result, auth,
    fabric::{
        Identity,
        doorbell::{self, Doorbell, Ringing},
    },
    sync::register_heavy_fence,
};

/// See the module.
#[derive(Debug)]
pub(super) struct Host {
    pub identity: Identity,
    pub options: Options,
    pub place: Place,
    pub bell: Doorbell,
    pub bell_file: OwnedFd,
    /// Why the last reservation failed.
    pub shortage: Option<Shortage>,
    /// How peers are to ring.
    ringing: Ringing,
    /// Peers read this word to find out whether the kernel lets them.
    probe: Box<u64>,
}

impl Host {
    pub fn new(identity: Identity, options: Options) -> Result<Self> {
        let place = options.directory.clone().map_or(Place::Memory, Place::Directory);
        let bytes = whole_pages(doorbell::PAGE)?;
        let Segment { file, map } =
            place.segment(bytes, bytes, options.huge_pages).map_err(|failure| report(&failure))?;
        let ringing = if register_heavy_fence() { Ringing::Light } else { Ringing::Full };
        let probe = Box::new(u64::from_le_bytes(auth::random()?));
        let bell = Doorbell::from_page(map, ringing);
        Ok(Self { identity, options, place, bell, bell_file: file, shortage: None, ringing, probe })
    }

    /// Zeroed memory, all of it reserved.
    pub fn segment(&mut self, bytes: usize) -> Result<Segment> {
        let bytes = whole_pages(bytes)?;
        let segment = self.place.segment(bytes, bytes, self.options.huge_pages);
        segment.map_err(|failure| self.note(failure))
    }

    /// Fresh pages in the place of `segment`.
    pub fn renew(&mut self, segment: &mut Segment) -> Result<()> {
        segment.renew(&self.place, self.options.huge_pages).map_err(|failure| self.note(failure))
    }

    /// What a proven peer gets from us.
    pub fn offer(&mut self) -> Result<(Setup, Segment)> {
        let bytes = whole_pages(INBOX)?;
        // the bounce area is reserved when it turns out to be needed
        let inbox = self.place.segment(bytes, BOUNCE, self.options.huge_pages).map_err(|failure| self.note(failure))?;
        let nonce = u64::from_le_bytes(auth::random()?);
        let probe_at = (&raw const *self.probe).addr() as u64;
        Ok((Setup { nonce, probe_at, probe_value: *self.probe, ringing: self.ringing }, inbox))
    }

    /// Reserve the bounce area of a link that cannot pull.
    pub fn reserve_bounce(&mut self, inbox: &Segment) -> Result<()> {
        let rest = inbox.map.len() - BOUNCE;
        inbox.reserve(&self.place, BOUNCE, rest).map_err(|failure| self.note(failure))
    }

    /// Whether `bytes` more would fit; nothing is reserved. Who asks says so if it matters.
    pub fn check_room(&mut self, bytes: usize) -> Result<()> {
        match self.place.lacks(bytes) {
            Some(shortage) => {
                self.shortage = Some(shortage);
                Err(Kind::NoSpace.into())
            }
            None => Ok(()),
        }
    }

    fn note(&mut self, failure: Failure) -> Error {
        let error = report(&failure);
        if let Failure::Full(shortage) = failure {
            self.shortage = Some(shortage);
        }
        error
    }
}

fn report(failure: &Failure) -> Error {
    match failure {
        Failure::Full(shortage) => {
            tracing::warn!(path = %shortage.path.display(), needed = shortage.needed, free = shortage.free, "{shortage}");
            Kind::NoSpace.into()
        }
        Failure::System(error) => {
            tracing::warn!(%error, "shared memory cannot be made");
            let code = error.raw_os_error().unwrap_or(0);
            let kind =
                if matches!(code, libc::EMFILE | libc::ENFILE | libc::ENOMEM) { Kind::NoSpace } else { Kind::Os };
            Error::new(kind).with_os(code)
        }
    }
}
