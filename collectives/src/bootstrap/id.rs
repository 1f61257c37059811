//! The name of a job: what every rank must know before it can meet the others.

use core::fmt;
use core::str::FromStr;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6, TcpListener};
use std::sync::{Arc, Mutex, PoisonError};

use vervain_transport::{Error, Kind, Result, auth::Secret};

/// Names a job: where rank 0 listens, and the secret that all ranks prove to know.
///
/// The process that made it holds the listening socket already, so no other program can take the port; clones share it, and the
/// first rank 0 takes it. Elsewhere an id has only the address, and rank 0 binds it. `Debug` does not show the secret; the text
/// form and the bytes do.
#[derive(Clone)]
pub struct UniqueId {
    address: SocketAddr,
    secret: Secret,
    listener: Arc<Mutex<Listener>>,
}

/// The listening socket of an id, in this process.
#[derive(Debug)]
pub(crate) enum Listener {
    /// Never had one: rank 0 binds the address.
    Unbound,
    /// Waits for rank 0.
    Held(TcpListener),
    /// The same, from a launcher: a later rank 0 of the same environment binds the address again.
    Inherited(TcpListener),
    /// A rank 0 of this process has it, or had it.
    Taken,
}

/// Size of [`UniqueId::to_bytes`]; that of NCCL's.
pub const BYTES: usize = 128;

const MAGIC: [u8; 8] = *b"VVUNIQ1\0";

impl UniqueId {
    /// A new job whose rank 0 is in this process, listening on `address` (the loopback address if `None`) at a free port.
    ///
    /// # Errors
    /// `InvalidArgument` for the unspecified address: a job listens on one address that the caller chose, never on all of them.
    pub fn generate(address: Option<IpAddr>) -> Result<Self> {
        let address = address.unwrap_or(IpAddr::V4(Ipv4Addr::LOCALHOST));
        if address.is_unspecified() {
            return Err(Kind::InvalidArgument.into());
        }
        Self::with_listener(TcpListener::bind((address, 0))?, Secret::generate()?)
    }

    /// The job whose rank 0 will listen on `address`.
    pub fn from_parts(address: SocketAddr, secret: Secret) -> Self {
        Self { address, secret, listener: Arc::new(Mutex::new(Listener::Unbound)) }
    }

    /// The job whose rank 0 will use `listener`, for instance one inherited from a launcher.
    pub fn with_listener(listener: TcpListener, secret: Secret) -> Result<Self> {
        let address = listener.local_addr()?;
        if address.ip().is_unspecified() {
            return Err(Kind::InvalidArgument.into());
        }
        Ok(Self { address, secret, listener: Arc::new(Mutex::new(Listener::Held(listener))) })
    }

    /// The job of a launcher that passed the listening socket to this process. Ids of one environment share `slot`, so that the environment
    /// can be asked any number of times.
    pub(crate) fn inherited(address: SocketAddr, secret: Secret, slot: Arc<Mutex<Listener>>) -> Self {
        Self { address, secret, listener: slot }
    }

    /// Where rank 0 listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// What all ranks know.
    pub fn secret(&self) -> &Secret {
        &self.secret
    }

    /// Bytes to pass to other ranks over a channel that others cannot read.
    pub fn to_bytes(&self) -> [u8; BYTES] {
        let mut bytes = [0; BYTES];
        bytes[..8].copy_from_slice(&MAGIC);
        bytes[8..40].copy_from_slice(self.secret.as_bytes());
        bytes[40..40 + ADDRESS].copy_from_slice(&address_to_bytes(self.address));
        bytes
    }

    /// The id with these bytes.
    ///
    /// # Errors
    /// `InvalidArgument` if they are no id's bytes.
    pub fn from_bytes(bytes: &[u8; BYTES]) -> Result<Self> {
        let secret: [u8; 32] = bytes[8..40].try_into().expect("32 bytes");
        let address = address_from_bytes(bytes[40..40 + ADDRESS].try_into().expect("an address's bytes"));
        let rest_is_zero = bytes[40 + ADDRESS..].iter().all(|&byte| byte == 0);
        match address {
            Some(address) if bytes[..8] == MAGIC && rest_is_zero => {
                Ok(Self::from_parts(address, Secret::from_bytes(secret)))
            }
            _ => Err(Kind::InvalidArgument.into()),
        }
    }

    /// The listener, for a rank 0.
    pub(crate) fn take_listener(&self) -> Listener {
        let mut slot = self.listener.lock().unwrap_or_else(PoisonError::into_inner);
        match *slot {
            Listener::Unbound | Listener::Inherited(_) => core::mem::replace(&mut *slot, Listener::Unbound),
            Listener::Held(_) | Listener::Taken => core::mem::replace(&mut *slot, Listener::Taken),
        }
    }
}

impl PartialEq for UniqueId {
    fn eq(&self, other: &Self) -> bool {
        self.address == other.address && self.secret == other.secret
    }
}

impl Eq for UniqueId {}

impl fmt::Debug for UniqueId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "UniqueId({}, {:?})", self.address, self.secret)
    }
}

/// `address/secret in hexadecimal`: for environment variables. Contains the secret.
impl fmt::Display for UniqueId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.secret.to_hex())
    }
}

impl FromStr for UniqueId {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let (address, secret) = text.trim().rsplit_once('/').ok_or(Kind::InvalidArgument)?;
        let address: SocketAddr = address.parse().map_err(|_| Kind::InvalidArgument)?;
        if address.ip().is_unspecified() {
            return Err(Kind::InvalidArgument.into());
        }
        Ok(Self::from_parts(address, Secret::from_hex(secret).ok_or(Kind::InvalidArgument)?))
    }
}

/// Size of a socket address on the wire.
pub(crate) const ADDRESS: usize = 24;

/// Family, port, address, scope.
pub(crate) fn address_to_bytes(address: SocketAddr) -> [u8; ADDRESS] {
    let mut bytes = [0; ADDRESS];
    bytes[2..4].copy_from_slice(&address.port().to_le_bytes());
    match address {
        SocketAddr::V4(four) => {
            bytes[0] = 4;
            bytes[4..8].copy_from_slice(&four.ip().octets());
        }
        SocketAddr::V6(six) => {
            bytes[0] = 6;
            bytes[4..20].copy_from_slice(&six.ip().octets());
            bytes[20..24].copy_from_slice(&six.scope_id().to_le_bytes());
        }
    }
    bytes
}

/// The socket address with these bytes; nobody's address (unspecified) is refused.
pub(crate) fn address_from_bytes(bytes: &[u8; ADDRESS]) -> Option<SocketAddr> {
    let port = u16::from_le_bytes([bytes[2], bytes[3]]);
    let address = match bytes[0] {
        4 => SocketAddr::from((Ipv4Addr::from(<[u8; 4]>::try_from(&bytes[4..8]).ok()?), port)),
        6 => {
            let scope = u32::from_le_bytes(bytes[20..24].try_into().ok()?);
            SocketAddrV6::new(Ipv6Addr::from(<[u8; 16]>::try_from(&bytes[4..20]).ok()?), port, 0, scope).into()
        }
        _ => return None,
    };
    (!address.ip().is_unspecified() && port != 0).then_some(address)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_and_text_round_trip_in_both_families() {
        for address in ["127.0.0.1:4000", "[::1]:65535", "[fe80::1%3]:1"] {
            let id = UniqueId::from_parts(address.parse().unwrap(), Secret::generate().unwrap());
            assert_eq!(UniqueId::from_bytes(&id.to_bytes()).unwrap(), id);
            assert_eq!(id.to_string().parse::<UniqueId>().unwrap(), id);
        }
    }

    #[test]
    fn foreign_bytes_and_text_are_refused() {
        let good = UniqueId::from_parts("127.0.0.1:4000".parse().unwrap(), Secret::from_bytes([7; 32])).to_bytes();
        for (at, value) in [(0, 0), (40, 5), (42, 0), (BYTES - 1, 1)] {
            let mut bytes = good;
            bytes[at] = value;
            bytes[43] = if at == 42 { 0 } else { bytes[43] };
            assert!(UniqueId::from_bytes(&bytes).is_err(), "byte {at}");
        }
        for text in [
            "",
            "/",
            "127.0.0.1:1",
            "127.0.0.1:1/00",
            "nohost/00",
            &format!("0.0.0.0:5/{}", "0".repeat(64)),
            &format!("127.0.0.1:5/{}", "+".repeat(64)),
        ] {
            assert!(text.parse::<UniqueId>().is_err(), "{text}");
        }
    }

    #[test]
    fn debug_hides_the_secret() {
        let id = UniqueId::from_parts("127.0.0.1:4000".parse().unwrap(), Secret::from_bytes([0xab; 32]));
        assert!(!format!("{id:?}").contains("abab"));
    }

    #[test]
    fn never_listens_on_all_addresses() {
        assert_eq!(UniqueId::generate(Some("0.0.0.0".parse().unwrap())).unwrap_err().kind(), Kind::InvalidArgument);
        assert!(UniqueId::generate(None).unwrap().address().ip().is_loopback());
    }

    #[test]
    fn first_rank_0_takes_the_listener() {
        let id = UniqueId::generate(None).unwrap();
        assert!(matches!(id.clone().take_listener(), Listener::Held(_)));
        assert!(matches!(id.take_listener(), Listener::Taken));
        let elsewhere = UniqueId::from_bytes(&id.to_bytes()).unwrap();
        assert!(matches!(elsewhere.take_listener(), Listener::Unbound));
    }
}
