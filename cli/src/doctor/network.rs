//! Sockets, and the interfaces that they can use.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, TcpListener};

use vervain_transport::host::interfaces::{Interface, interfaces};

use super::finding::Finding;
use crate::machine;

/// Whether ranks can reach each other by sockets, here and from elsewhere.
pub fn sockets() -> Finding {
    if let Err(error) = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)) {
        return Finding::absent("tcp", format!("no socket listens on 127.0.0.1 ({error})"), "ip link set lo up");
    }
    let all = interfaces().unwrap_or_default();
    let up: Vec<Interface> = all.into_iter().filter(|interface| interface.up).collect();
    let detail = describe(&up, speed);
    if up.iter().any(|interface| !interface.loopback && !is_link_local(interface.address)) {
        return Finding::ok("tcp", detail);
    }
    Finding::warn("tcp", detail, "ranks of other hosts need an address; see `ip address`")
}

fn is_link_local(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => address.is_link_local(),
        IpAddr::V6(address) => address.is_unicast_link_local(),
    }
}

/// `eth0 10.0.0.5 (25 Gb/s), lo`. A loopback interface needs no address here, and link-local ones say nothing.
fn describe(interfaces: &[Interface], speed: impl Fn(&str) -> Option<u64>) -> String {
    let mut by_name: BTreeMap<(bool, &str), Vec<String>> = BTreeMap::new();
    for interface in interfaces {
        let addresses = by_name.entry((interface.loopback, &interface.name)).or_default();
        if !interface.loopback && !is_link_local(interface.address) {
            addresses.push(interface.address.to_string());
        }
    }
    let one = |((_, name), addresses): ((bool, &str), Vec<String>)| {
        let speed = speed(name).map(|megabits| format!("({} Gb/s)", megabits as f64 / 1e3));
        let words = core::iter::once(name.to_owned()).chain(addresses).chain(speed);
        words.collect::<Vec<_>>().join(" ")
    };
    by_name.into_iter().map(one).collect::<Vec<_>>().join(", ")
}

/// Megabits a second, where the driver says.
fn speed(name: &str) -> Option<u64> {
    machine::first_line(&format!("/sys/class/net/{name}/speed"))?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn interface(name: &str, address: &str) -> Interface {
        let address: IpAddr = address.parse().unwrap();
        Interface { name: name.into(), address, up: true, loopback: address.is_loopback() }
    }

    #[test]
    fn interfaces_are_listed_once_with_all_addresses() {
        let all = [
            interface("lo", "127.0.0.1"),
            interface("eth0", "10.0.0.5"),
            interface("lo", "::1"),
            interface("eth0", "fe80::1"),
            interface("eth0", "2001:db8::5"),
        ];
        let speed = |name: &str| (name == "eth0").then_some(25_000);
        assert_eq!(describe(&all, speed), "eth0 10.0.0.5 2001:db8::5 (25 Gb/s), lo");
        assert_eq!(describe(&[], speed), "");
    }
}
