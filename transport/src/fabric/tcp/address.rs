//! What a peer needs to dial us: {"VTA1", sockets u8, family u8, port u16, scope u32, 0 u32, incarnation u64, address 16 bytes}.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6};

use super::MOST_SOCKETS;
use crate::{Kind, Result};

const SIZE: usize = 40;

/// A parsed address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Address {
    pub(super) socket: SocketAddr,
    pub(super) incarnation: u64,
    /// How many sockets the peer wants per link.
    pub(super) sockets: u32,
}

impl Address {
    pub(super) fn emit(&self) -> Vec<u8> {
        let mut raw = vec![0; SIZE];
        raw[..4].copy_from_slice(b"VTA1");
        raw[4] = self.sockets as u8;
        raw[6..8].copy_from_slice(&self.socket.port().to_le_bytes());
        raw[16..24].copy_from_slice(&self.incarnation.to_le_bytes());
        match self.socket {
            SocketAddr::V4(v4) => {
                raw[5] = 4;
                raw[24..28].copy_from_slice(&v4.ip().octets());
            }
            SocketAddr::V6(v6) => {
                raw[5] = 6;
                raw[8..12].copy_from_slice(&v6.scope_id().to_le_bytes());
                raw[24..40].copy_from_slice(&v6.ip().octets());
            }
        }
        raw
    }

    pub(super) fn parse(raw: &[u8]) -> Result<Self> {
        let raw: &[u8; SIZE] = raw.try_into().map_err(|_| Kind::InvalidArgument)?;
        let port = u16::from_le_bytes([raw[6], raw[7]]);
        let sockets = u32::from(raw[4]);
        if raw[..4] != *b"VTA1" || port == 0 || sockets == 0 || sockets > MOST_SOCKETS {
            return Err(Kind::InvalidArgument.into());
        }
        let socket = match raw[5] {
            4 => (Ipv4Addr::new(raw[24], raw[25], raw[26], raw[27]), port).into(),
            6 => {
                let ip = Ipv6Addr::from(*raw[24..].first_chunk::<16>().expect("16 bytes"));
                let scope = u32::from_le_bytes([raw[8], raw[9], raw[10], raw[11]]);
                SocketAddrV6::new(ip, port, 0, scope).into()
            }
            _ => return Err(Kind::InvalidArgument.into()),
        };
        let incarnation = u64::from_le_bytes(raw[16..24].try_into().expect("eight bytes"));
        Ok(Self { socket, incarnation, sockets })
    }

    /// Where to connect to from `local`: the number of a link-local scope means something on its own host only.
    pub(super) fn seen_from(&self, local: SocketAddr) -> SocketAddr {
        match (self.socket, local) {
            (SocketAddr::V6(theirs), SocketAddr::V6(ours)) if theirs.scope_id() != 0 && ours.scope_id() != 0 => {
                SocketAddrV6::new(*theirs.ip(), theirs.port(), 0, ours.scope_id()).into()
            }
            (theirs, _) => theirs,
        }
    }

    pub(super) fn ip(&self) -> IpAddr {
        self.socket.ip()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_families_survive_and_the_scope_is_kept() {
        for socket in ["10.0.0.1:7", "[fd00::1]:65535", "[fe80::1%3]:9"] {
            let address = Address { socket: socket.parse().unwrap(), incarnation: u64::MAX, sockets: 16 };
            assert_eq!(Address::parse(&address.emit()), Ok(address));
        }
    }

    #[test]
    fn link_local_peers_are_reached_through_our_own_scope() {
        let address = |text: &str| Address { socket: text.parse().unwrap(), incarnation: 0, sockets: 1 };
        let seen = |theirs, ours: &str| address(theirs).seen_from(ours.parse().unwrap()).to_string();
        assert_eq!(seen("[fe80::1%3]:9", "[fe80::2%5]:0"), "[fe80::1%5]:9");
        assert_eq!(seen("[fd00::1]:9", "[fe80::2%5]:0"), "[fd00::1]:9");
    }

    #[test]
    fn garbage_is_refused() {
        let good = Address { socket: "10.0.0.1:7".parse().unwrap(), incarnation: 1, sockets: 1 }.emit();
        for (at, value) in [(0, 0), (4, 0), (4, 17), (5, 5), (6, 0)] {
            let mut bad = good.clone();
            bad[at] = value;
            assert!(Address::parse(&bad).is_err(), "{at} {value}");
        }
        assert!(Address::parse(&good[1..]).is_err());
        assert!(Address::parse(&[]).is_err());
    }
}
