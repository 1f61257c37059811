//! The tcp fabric passes the suite of all fabrics: IPv4 and IPv6, one socket per link and several.
#![cfg(all(feature = "testing", target_os = "linux"))]

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use vervain_transport::fabric::{
    Fabric, Identity,
    conformance::{self, Make},
    tcp::{Options, Tcp},
};

fn run(address: IpAddr, sockets: u32, origin: u64) {
    let options = Options { address: Some(address), sockets, origin, ..Options::default() };
    let make: &mut Make<'_> =
        &mut |identity: Identity| Box::new(Tcp::new(identity, options.clone()).unwrap()) as Box<dyn Fabric>;
    conformance::run(make);
}

#[test]
fn one_socket_over_ipv4() {
    run(Ipv4Addr::LOCALHOST.into(), 1, 0);
}

#[test]
fn four_sockets_over_ipv4() {
    run(Ipv4Addr::LOCALHOST.into(), 4, 0);
}

#[test]
fn counters_that_pass_their_edge() {
    run(Ipv4Addr::LOCALHOST.into(), 2, (1 << 32) - 4);
}

#[test]
fn both_socket_counts_over_ipv6() {
    if std::net::TcpListener::bind((Ipv6Addr::LOCALHOST, 0)).is_err() {
        println!("SKIPPED: this host has no ::1");
        return;
    }
    run(Ipv6Addr::LOCALHOST.into(), 1, 0);
    run(Ipv6Addr::LOCALHOST.into(), 4, 0);
}
