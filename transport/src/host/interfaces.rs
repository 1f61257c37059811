//! The network interfaces of this machine and their addresses.

use core::ptr::null_mut;
use std::ffi::CStr;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::Result;

/// One address of one interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interface {
    /// Its name, such as `eth0`.
    pub name: String,
    /// One of its addresses; an interface with several is listed several times.
    pub address: IpAddr,
    /// Whether it is up.
    pub up: bool,
    /// Whether it leads back to this host.
    pub loopback: bool,
}

/// All addresses of all interfaces, in the kernel's order.
pub fn interfaces() -> Result<Vec<Interface>> {
    let mut list: *mut libc::ifaddrs = null_mut();
    // SAFETY: `list` is a live pointer that the call fills in.
    if unsafe { libc::getifaddrs(&raw mut list) } != 0 {
        return Err(std::io::Error::last_os_error().into());
    }
    let mut found = Vec::new();
    let mut next = list;
    while !next.is_null() {
        // SAFETY: `next` is an element of the list, which lives until `freeifaddrs` below.
        let entry = unsafe { &*next };
        found.extend(interface(entry));
        next = entry.ifa_next;
    }
    // SAFETY: `list` came from `getifaddrs` and is freed once; nothing borrowed from it is left.
    unsafe { libc::freeifaddrs(list) };
    Ok(found)
}

fn interface(entry: &libc::ifaddrs) -> Option<Interface> {
    let address = address(entry)?;
    // SAFETY: `ifa_name` is a terminated string that lives as long as the entry.
    let name = unsafe { CStr::from_ptr(entry.ifa_name) }.to_string_lossy().into_owned();
    let has = |flag: libc::c_int| entry.ifa_flags & flag as libc::c_uint != 0;
    Some(Interface { name, address, up: has(libc::IFF_UP), loopback: has(libc::IFF_LOOPBACK) })
}

fn address(entry: &libc::ifaddrs) -> Option<IpAddr> {
    if entry.ifa_addr.is_null() {
        return None;
    }
    // SAFETY: every socket address begins with its family.
    match i32::from(unsafe { (*entry.ifa_addr).sa_family }) {
        libc::AF_INET => {
            // SAFETY: the family says that a `sockaddr_in` lies there.
            let v4 = unsafe { entry.ifa_addr.cast::<libc::sockaddr_in>().read_unaligned() };
            Some(Ipv4Addr::from(u32::from_be(v4.sin_addr.s_addr)).into())
        }
        libc::AF_INET6 => {
            // SAFETY: the family says that a `sockaddr_in6` lies there.
            let v6 = unsafe { entry.ifa_addr.cast::<libc::sockaddr_in6>().read_unaligned() };
            Some(Ipv6Addr::from(v6.sin6_addr.s6_addr).into())
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loopback_interfaces_have_loopback_addresses() {
        for interface in interfaces().unwrap().iter().filter(|interface| interface.loopback && interface.name == "lo") {
            assert!(interface.address.is_loopback() || interface.address.is_ipv6(), "{interface:?}");
        }
    }
}
