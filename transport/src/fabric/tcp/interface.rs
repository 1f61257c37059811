//! Which network interface to use, in the syntax that `NCCL_SOCKET_IFNAME` made known.
//!
//! | setting | means |
//! |---|---|
//! | empty | choose: see [`choose`] |
//! | `eth` | names that begin with `eth` |
//! | `=eth0` | the name `eth0` |
//! | `^eth`, `^=eth0,eth1` | any but these; loopback, docker and virtual bridges stay last |
//! | `ib,=eth0` | a list; its order is the order of preference |
//!
//! Aliases such as `eth0:1` are refused: an alias is an address, not an interface.

use core::fmt;
use std::net::{IpAddr, Ipv6Addr, SocketAddr, SocketAddrV6};

use crate::Result;

/// One address of one interface that is up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interface {
    /// The name that the system gives it.
    pub name: String,
    /// One of its addresses.
    pub address: IpAddr,
    /// Its number, which is the scope of its link-local addresses.
    pub index: u32,
}

impl Interface {
    /// The address with a port, and with the scope if it is link-local.
    pub fn socket(&self, port: u16) -> SocketAddr {
        match self.address {
            IpAddr::V4(address) => (address, port).into(),
            IpAddr::V6(address) => SocketAddrV6::new(address, port, 0, self.scope()).into(),
        }
    }

    /// The scope that the address needs; 0 if it needs none.
    pub fn scope(&self) -> u32 {
        if is_link_local(self.address) { self.index } else { 0 }
    }
}

/// A setting, parsed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Spec {
    verdict: Verdict,
    names: Vec<Name>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Verdict {
    #[default]
    Use,
    Avoid,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Name {
    Prefix(String),
    Exact(String),
}

impl Name {
    fn fits(&self, name: &str) -> bool {
        match self {
            Name::Prefix(prefix) => name.starts_with(prefix.as_str()),
            Name::Exact(exact) => name == exact,
        }
    }
}

/// Why no interface was chosen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ChoiceError {
    /// The setting cannot be read.
    Syntax {
        /// The part that cannot be read.
        part: String,
    },
    /// Nothing fits the setting.
    NoneFits {
        /// The setting, as understood.
        wanted: String,
        /// What exists.
        names: Vec<String>,
    },
}

impl fmt::Display for ChoiceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ChoiceError::Syntax { part } => write!(
                f,
                "`{part}` does not name an interface; write `eth` (prefix), `=eth0` (exact), `^docker` (all but), or a list of these without aliases such as `eth0:1`"
            ),
            ChoiceError::NoneFits { wanted, names } if names.is_empty() => {
                write!(f, "no interface fits `{wanted}`: none is up")
            }
            ChoiceError::NoneFits { wanted, names } => {
                write!(f, "no interface fits `{wanted}`; these are up: {}", names.join(", "))
            }
        }
    }
}

impl core::error::Error for ChoiceError {}

impl Spec {
    /// Read a setting.
    ///
    /// # Errors
    /// Names the part that cannot be read.
    pub fn parse(text: &str) -> Result<Self, ChoiceError> {
        let text = text.trim();
        let (verdict, rest) = text.strip_prefix('^').map_or((Verdict::Use, text), |rest| (Verdict::Avoid, rest));
        if text.is_empty() {
            return Ok(Self::default());
        }
        // `=` in front of the list makes the whole list exact, as in NCCL; in front of a later part it makes that part exact.
        let (exact, rest) = rest.strip_prefix('=').map_or((false, rest), |rest| (true, rest));
        let names = rest.split(',').map(|part| name_of(part.trim(), exact)).collect::<Result<_, _>>()?;
        Ok(Self { verdict, names })
    }

    /// The place of `name` in the order of preference, if it may be used.
    fn preference(&self, name: &str) -> Option<usize> {
        let found = self.names.iter().position(|wanted| wanted.fits(name));
        match self.verdict {
            _ if self.names.is_empty() => Some(0),
            Verdict::Use => found,
            Verdict::Avoid if found.is_some() => None,
            Verdict::Avoid => Some(0),
        }
    }
}

impl fmt::Display for Spec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.verdict == Verdict::Avoid { "^" } else { "" })?;
        for (place, name) in self.names.iter().enumerate() {
            f.write_str(if place > 0 { "," } else { "" })?;
            match name {
                Name::Prefix(name) => f.write_str(name)?,
                Name::Exact(name) => write!(f, "={name}")?,
            }
        }
        Ok(())
    }
}

fn name_of(part: &str, exact: bool) -> Result<Name, ChoiceError> {
    let (exact, name) = part.strip_prefix('=').map_or((exact, part), |name| (true, name));
    let strange = |c: char| c.is_whitespace() || "^=:/".contains(c);
    if name.is_empty() || name.contains(strange) {
        return Err(ChoiceError::Syntax { part: part.to_owned() });
    }
    Ok(if exact { Name::Exact(name.to_owned()) } else { Name::Prefix(name.to_owned()) })
}

/// The best of `interfaces` under `spec`: first by the order of the list, then real networks before docker, virtual bridges and
/// loopback, then IPv4, global IPv6, link-local; the system's order decides what is left.
///
/// # Errors
/// Lists what exists if nothing fits.
pub fn choose(spec: &Spec, interfaces: &[Interface]) -> Result<Interface, ChoiceError> {
    let usable = interfaces.iter().filter_map(|interface| {
        let preference = spec.preference(&interface.name)?;
        Some(((preference, standing(interface), family(interface.address)), interface))
    });
    usable.min_by_key(|(key, _)| *key).map(|(_, interface)| interface.clone()).ok_or_else(|| {
        let mut names: Vec<_> = interfaces.iter().map(|interface| interface.name.clone()).collect();
        names.dedup();
        ChoiceError::NoneFits { wanted: spec.to_string(), names }
    })
}

/// 0 for networks that other hosts share, then what reaches this host only. A link-local address alone ranks below both kinds of
/// routable address, so that a tunnel with nothing but `fe80::` never wins against a real network.
fn standing(interface: &Interface) -> u8 {
    let name = interface.name.as_str();
    match () {
        () if interface.address.is_loopback() || name == "lo" => 3,
        () if ["docker", "virbr", "br-"].iter().any(|prefix| name.starts_with(prefix)) => 2,
        () if is_link_local(interface.address) => 1,
        () => 0,
    }
}

fn family(address: IpAddr) -> u8 {
    match address {
        IpAddr::V4(_) => 0,
        IpAddr::V6(_) if !is_link_local(address) => 1,
        IpAddr::V6(_) => 2,
    }
}

fn is_link_local(address: IpAddr) -> bool {
    matches!(address, IpAddr::V6(address) if address.segments()[0] & 0xffc0 == 0xfe80)
}

/// The addresses of all interfaces that are up, in the system's order.
pub fn enumerate() -> Result<Vec<Interface>> {
    let mut first = core::ptr::null_mut();
    // SAFETY: `first` is a live pointer that the call fills in.
    if unsafe { libc::getifaddrs(&mut first) } != 0 {
        return Err(std::io::Error::last_os_error().into());
    }
    let mut found = Vec::new();
    let mut next = first;
    while !next.is_null() {
        // SAFETY: `next` is an element of the list that getifaddrs returned and that is freed below, after the last use.
        let element = unsafe { &*next };
        found.extend(interface_of(element));
        next = element.ifa_next;
    }
    // SAFETY: `first` came from getifaddrs; no reference into the list is left.
    unsafe { libc::freeifaddrs(first) };
    Ok(found)
}

fn interface_of(element: &libc::ifaddrs) -> Option<Interface> {
    let up = element.ifa_flags & libc::IFF_UP as u32 != 0;
    if !up || element.ifa_addr.is_null() {
        return None;
    }
    // SAFETY: a non-null `ifa_addr` of a live list element points to a socket address of the family that it names.
    let address = unsafe { address_of(element.ifa_addr) }?;
    // SAFETY: `ifa_name` is the zero-terminated name of a live list element.
    let name = unsafe { core::ffi::CStr::from_ptr(element.ifa_name) };
    // SAFETY: `name` is zero-terminated.
    let index = unsafe { libc::if_nametoindex(name.as_ptr()) };
    Some(Interface { name: name.to_str().ok()?.to_owned(), address, index })
}

/// # Safety
/// `address` points to a socket address of the family that it names.
unsafe fn address_of(address: *const libc::sockaddr) -> Option<IpAddr> {
    // SAFETY: every socket address begins with its family, by the caller's promise.
    match i32::from(unsafe { (*address).sa_family }) {
        libc::AF_INET => {
            // SAFETY: the family says that a `sockaddr_in` is there.
            let v4 = unsafe { &*address.cast::<libc::sockaddr_in>() };
            Some(IpAddr::V4(u32::from_be(v4.sin_addr.s_addr).into()))
        }
        libc::AF_INET6 => {
            // SAFETY: the family says that a `sockaddr_in6` is there.
            let v6 = unsafe { &*address.cast::<libc::sockaddr_in6>() };
            Some(IpAddr::V6(Ipv6Addr::from(v6.sin6_addr.s6_addr)))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn interfaces(list: &[(&str, &str)]) -> Vec<Interface> {
        let one = |(index, (name, address)): (usize, &(&str, &str))| Interface {
            name: (*name).to_owned(),
            address: address.parse().unwrap(),
            index: index as u32 + 1,
        };
        list.iter().enumerate().map(one).collect()
    }

    fn host() -> Vec<Interface> {
        interfaces(&[
            ("lo", "127.0.0.1"),
            ("docker0", "172.17.0.1"),
            ("eth0", "10.0.0.1"),
            ("eth1", "10.0.1.1"),
            ("eth10", "10.0.10.1"),
            ("ib0", "10.1.0.1"),
        ])
    }

    fn chosen(spec: &str, interfaces: &[Interface]) -> String {
        match Spec::parse(spec).and_then(|spec| choose(&spec, interfaces)) {
            Ok(interface) => interface.name,
            Err(error) => error.to_string(),
        }
    }

    #[test]
    fn every_form_of_the_setting_chooses_as_documented() {
        for (spec, name) in [
            ("", "eth0"),
            (" ", "eth0"),
            ("eth", "eth0"),
            ("eth0", "eth0"),
            ("eth1", "eth1"),
            ("=eth1", "eth1"),
            ("=eth10", "eth10"),
            ("eth10", "eth10"),
            ("^eth0", "eth1"),
            ("^eth", "ib0"),
            ("^=eth0,eth1", "eth10"),
            ("^docker0", "eth0"),
            ("^docker0,eth,ib", "lo"),
            ("ib,eth", "ib0"),
            ("=eth1,eth0", "eth1"),
            ("nope,=ib0", "ib0"),
            ("lo", "lo"),
            ("docker", "docker0"),
        ] {
            assert_eq!(chosen(spec, &host()), name, "{spec:?}");
        }
    }

    #[test]
    fn unknown_name_lists_what_exists() {
        let text = chosen("=eth", &host());
        assert_eq!(text, "no interface fits `=eth`; these are up: lo, docker0, eth0, eth1, eth10, ib0");
        assert_eq!(chosen("x", &[]), "no interface fits `x`: none is up");
    }

    #[test]
    fn aliases_and_empty_parts_are_refused_by_name() {
        for spec in ["eth0:1", "=eth0:1", "eth0,,eth1", "^", "=", "^^eth0", "eth 0", "eth0,"] {
            assert!(matches!(Spec::parse(spec), Err(ChoiceError::Syntax { .. })), "{spec:?}");
        }
        assert!(chosen("eth0:1", &host()).starts_with("`eth0:1` does not name an interface"));
    }

    #[test]
    fn link_local_tunnels_never_win_against_routable_addresses() {
        let loopback = ("lo", "127.0.0.1");
        assert_eq!(chosen("", &interfaces(&[loopback])), "lo");
        assert_eq!(chosen("", &interfaces(&[loopback, ("dummy0", "fe80::1")])), "dummy0");
        assert_eq!(chosen("", &interfaces(&[("ip6tnl0", "fe80::2"), ("veth0", "fd00::1"), loopback])), "veth0");
        assert_eq!(chosen("", &interfaces(&[("ip6tnl0", "fe80::2"), loopback, ("net0", "10.0.0.1")])), "net0");
        let both = interfaces(&[("net0", "fe80::3"), ("net0", "fd00::1"), ("net0", "10.0.0.1")]);
        assert_eq!(choose(&Spec::default(), &both).unwrap().address, both[2].address);
    }

    #[test]
    fn only_link_local_addresses_keep_their_scope() {
        let list = interfaces(&[("net0", "fe80::3"), ("net0", "fd00::1"), ("net0", "10.0.0.1")]);
        assert_eq!(list[0].socket(7).to_string(), "[fe80::3%1]:7");
        assert_eq!(list[1].socket(7).to_string(), "[fd00::1]:7");
        assert_eq!(list[2].socket(7).to_string(), "10.0.0.1:7");
    }

    #[test]
    fn this_host_has_an_interface() {
        let found = enumerate().unwrap();
        assert!(choose(&Spec::default(), &found).is_ok(), "{found:?}");
    }
}
