//! Making an endpoint, and its memory.

use alloc::{boxed::Box, string::ToString, vec::Vec};

use super::{Endpoint, Limits, Region};
use crate::{
    Error, Kind, Rank, Result,
    auth::{Secret, random},
    fabric::{Backend, Fabric, Identity, shm, tcp},
    wire::advert::Who,
};

/// How to make an [`Endpoint`]: see [`Endpoint::builder`].
#[derive(Clone, Debug)]
pub struct Builder {
    id: Option<u32>,
    secret: Option<Secret>,
    insecure: bool,
    refused: Vec<Backend>,
    shm: shm::Options,
    tcp: tcp::Options,
    limits: Limits,
}

/// What everybody knows: for endpoints that were made [`insecure`](Builder::insecure).
const NO_SECRET: [u8; 32] = *b"vervain: no secret was agreed on";

impl Endpoint {
    /// An endpoint over shared memory for peers of this host, and over tcp for the others.
    ///
    /// ```
    /// use vervain_transport::endpoint::Endpoint;
    /// let mut endpoint = Endpoint::builder().insecure().build()?;
    /// # Ok::<(), vervain_transport::Error>(())
    /// ```
    pub fn builder() -> Builder {
        Builder {
            id: None,
            secret: None,
            insecure: false,
            refused: Vec::new(),
            shm: shm::Options::from_env(),
            tcp: tcp::Options::default(),
            limits: Limits::default(),
        }
    }
}

impl Builder {
    /// A number that peers see. Random unless given.
    #[must_use]
    pub fn id(self, id: u32) -> Self {
        Self { id: Some(id), ..self }
    }

    /// What both ends of every link must know. Without it `VERVAIN_SECRET` is used: 64 hexadecimal digits.
    #[must_use]
    pub fn secret(self, secret: Secret) -> Self {
        Self { secret: Some(secret), ..self }
    }

    /// Use no secret. Anybody who reaches our sockets can connect, which is why tcp then listens on the loopback address unless
    /// [`Builder::tcp`] names another one.
    #[must_use]
    pub fn insecure(self) -> Self {
        Self { insecure: true, ..self }
    }

    /// Never use this fabric: connections that would need it fail.
    #[must_use]
    pub fn without(mut self, backend: Backend) -> Self {
        self.refused.push(backend);
        self
    }

    /// Use this fabric alone.
    #[must_use]
    pub fn only(self, backend: Backend) -> Self {
        let refused = [Backend::Shm, Backend::Tcp].into_iter().filter(|other| *other != backend).collect();
        Self { refused, ..self }
    }

    /// Options of shared memory.
    #[must_use]
    pub fn shm(self, options: shm::Options) -> Self {
        Self { shm: options, ..self }
    }

    /// Options of tcp: address, sockets for each peer, buffers.
    #[must_use]
    pub fn tcp(self, options: tcp::Options) -> Self {
        Self { tcp: options, ..self }
    }

    /// How large the endpoint's tables are.
    #[must_use]
    pub fn limits(self, limits: Limits) -> Self {
        Self { limits, ..self }
    }

    /// Make it.
    ///
    /// # Errors
    /// `Unauthenticated` without a secret, `InvalidArgument` if every fabric is refused, or why the last fabric that is not cannot be made.
    /// If one of two cannot be made the other is used; [`Endpoint::explain`] says so.
    pub fn build(self) -> Result<Endpoint> {
        let secret = self.agreed_secret()?;
        let incarnation = u64::from_le_bytes(random()?);
        let endpoint = match self.id {
            Some(id) => id,
            None => u32::from_le_bytes(random()?),
        };
        let identity = Identity { rank: Rank::new(endpoint), incarnation, secret };
        let (mut backends, mut absent, mut failure) = (Vec::new(), Vec::new(), None);
        for (backend, name) in [(Backend::Shm, "shm"), (Backend::Tcp, "tcp")] {
            if self.refused.contains(&backend) {
                absent.push((name, "refused by policy".to_string()));
                continue;
            }
            match self.fabric(backend, identity.clone()) {
                Ok(fabric) => backends.push(fabric),
                Err(error) => {
                    absent.push((name, error.to_string()));
                    failure = Some(error);
                }
            }
        }
        if backends.is_empty() {
            return Err(failure.unwrap_or(Kind::InvalidArgument.into()));
        }
        let mut made = Endpoint::over(Who { endpoint, incarnation }, backends, self.limits)?;
        made.absent = absent;
        Ok(made)
    }

    fn agreed_secret(&self) -> Result<Secret> {
        if let Some(secret) = &self.secret {
            return Ok(secret.clone());
        }
        if self.insecure {
            return Ok(Secret::from_bytes(NO_SECRET));
        }
        let text = std::env::var("VERVAIN_SECRET").map_err(|_| Error::new(Kind::Unauthenticated))?;
        Secret::from_hex(&text).ok_or(Kind::InvalidArgument.into())
    }

    fn fabric(&self, backend: Backend, identity: Identity) -> Result<Box<dyn Fabric>> {
        if backend == Backend::Shm {
            return Ok(Box::new(shm::Shm::new(identity, self.shm.clone())?));
        }
        let mut options = self.tcp.clone();
        if self.insecure && self.secret.is_none() && options.address.is_none() && options.interface.is_none() {
            options.address = Some(std::net::Ipv4Addr::LOCALHOST.into());
        }
        Ok(Box::new(tcp::Tcp::new(identity, options)?))
    }
}

/// Memory to be allocated: how much, in which pages, where.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pages {
    bytes: usize,
    huge: bool,
    node: Option<u32>,
    prefault: bool,
}

impl Pages {
    /// At least this many bytes, in pages as the fabric sees fit.
    pub fn new(bytes: usize) -> Self {
        Self { bytes, huge: false, node: None, prefault: false }
    }

    /// At least this many bytes, for which the kernel is asked for huge pages. Whether it gives any for memory that processes share is a setting
    /// of the system: `vervain doctor` shows it.
    pub fn huge(bytes: usize) -> Self {
        Self { huge: true, ..Self::new(bytes) }
    }

    /// On this NUMA node alone.
    #[must_use]
    pub fn on_node(self, node: u32) -> Self {
        Self { node: Some(node), ..self }
    }

    /// Make all pages present at once, so that no transfer pays for a page fault.
    #[must_use]
    pub fn prefault(self) -> Self {
        Self { prefault: true, ..self }
    }
}

impl Endpoint {
    /// Memory for transfers.
    ///
    /// # Errors
    /// `NoSpace` if there is not so much (on that node), `InvalidArgument` for a node that does not exist.
    pub fn register(&mut self, pages: Pages) -> Result<Region> {
        let policy = pages.node.map(crate::host::numa::bind_to).transpose()?;
        let region = self.allocate(pages.bytes);
        drop(policy);
        let region = region?;
        let place = (region.shared.start, region.bytes());
        if pages.huge {
            crate::host::pages::advise_huge(place.0, place.1);
        }
        if pages.prefault {
            crate::host::pages::populate(place.0, place.1)?;
        }
        Ok(region)
    }
}
