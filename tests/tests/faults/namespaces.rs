//! Machines with other networks than this one (cases B31, B50, B52), each in a network namespace of its own: one process, whose
//! sockets are the only ones there.

use core::time::Duration;
use std::fs;
use std::net::{IpAddr, SocketAddr};
use std::process::Command;
use std::thread;
use std::time::Instant;

use vervain_collectives::bootstrap::UniqueId;
use vervain_collectives::{Communicator, Config, Kind, Rank, ReduceOp};
use vervain_transport::auth::Secret;
use vervain_transport::fabric::Backend;

use crate::support::on;

/// The commands that make the network.
const NETWORK: &str = "VERVAIN_TEST_NETWORK";
/// Where ranks meet: the one address that sockets may have.
const ADDRESS: &str = "VERVAIN_TEST_ADDRESS";

const LOOPBACK: &str = "ip link set lo up";
/// An interface that is up and has only a link-local address, and two with addresses of different networks.
const SEVERAL: &str = "ip link set lo up
    ip link add aa0 type veth peer name bb0
    ip link set aa0 up
    ip link set bb0 up
    ip link add cc0 type veth peer name dd0
    ip addr add 10.1.0.1/24 dev cc0
    ip addr add 10.2.0.1/24 dev dd0
    ip link set cc0 up
    ip link set dd0 up";
/// The default route leads to a gateway that is not there.
const DEAD_ROUTE: &str = "ip link set lo up
    ip link add cc0 type veth peer name dd0
    ip addr add 10.1.0.1/24 dev cc0
    ip link set cc0 up
    ip link set dd0 up
    ip route add default via 10.1.0.254";
const ONLY_IPV6: &str = "ip link set lo up
    ip addr del 127.0.0.1/8 dev lo
    ip link add cc0 type veth peer name dd0
    ip addr add fd00::1/64 dev cc0 nodad
    ip link set cc0 up
    ip link set dd0 up";

/// Run the test `body` alone in a fresh network.
fn inside(name: &str, body: &str, network: &str, address: &str) {
    let unshare = ["--user", "--map-root-user", "--net"];
    if !Command::new("unshare").args(unshare).args(["ip", "link"]).output().is_ok_and(|tried| tried.status.success()) {
        println!(
            "skipped: {name} (no network namespace may be made here, or there is no `ip`: apt-get install iproute2)"
        );
        return;
    }
    let output = Command::new("unshare")
        .args(unshare)
        .arg(std::env::current_exe().unwrap())
        .args([body, "--exact", "--nocapture", "--test-threads=1"])
        .env(NETWORK, network)
        .env(ADDRESS, address)
        .env("RUST_BACKTRACE", "0")
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{name}: {text}{}", String::from_utf8_lossy(&output.stderr));
}

/// Make the network, if we are inside of one; the address.
fn network() -> Option<IpAddr> {
    let commands = std::env::var(NETWORK).ok()?;
    for command in commands.lines().map(str::trim) {
        let done = Command::new("sh").args(["-c", command]).status().unwrap();
        assert!(done.success(), "{command}");
    }
    Some(std::env::var(ADDRESS).unwrap().parse().unwrap())
}

#[test]
fn job_runs_on_the_addresses_that_it_chose_in_every_kind_of_network() {
    let body = "namespaces::body_of_a_whole_job";
    for (name, network, address) in [
        ("loopback alone", LOOPBACK, "127.0.0.1"),
        ("loopback alone, over IPv6", LOOPBACK, "::1"),
        ("several interfaces", SEVERAL, "10.1.0.1"),
        ("several interfaces, met on the other", SEVERAL, "10.2.0.1"),
        ("a dead default route", DEAD_ROUTE, "10.1.0.1"),
        ("IPv6 alone", ONLY_IPV6, "fd00::1"),
    ] {
        inside(name, body, network, address);
    }
}

#[test]
fn body_of_a_whole_job() {
    let Some(address) = network() else { return };
    let id = UniqueId::generate(Some(address)).unwrap();
    let all_chosen = || sockets().iter().all(|socket| socket.ip() == address);
    assert!(all_chosen(), "{:?}", sockets());
    thread::scope(|scope| {
        for rank in 0..3 {
            let (id, all_chosen) = (&id, &all_chosen);
            scope.spawn(move || {
                let c = Communicator::init_rank(id, Rank::new(rank), 3, &on(Backend::Tcp)).unwrap();
                let mut data = vec![rank as i32; 10_000];
                c.all_reduce_in_place(&mut data, ReduceOp::Sum).unwrap();
                assert_eq!(data, vec![3; 10_000]);
                assert!(all_chosen(), "{:?}", sockets());
                c.barrier().unwrap();
            });
        }
    });
}

/// Rank 0 is said to be where no packet can go, or none comes back from.
#[test]
fn rank_0_in_a_network_that_is_not_reached_is_a_time_out_with_its_address() {
    let body = "namespaces::body_that_dials_in_vain";
    for (name, network, address) in [
        ("no route", SEVERAL, "10.9.0.1"),
        ("no neighbour", SEVERAL, "10.2.0.77"),
        ("a dead default route", DEAD_ROUTE, "10.9.0.1"),
        ("the other family", ONLY_IPV6, "10.1.0.1"),
        ("loopback alone", LOOPBACK, "fd00::2"),
    ] {
        inside(name, body, network, address);
    }
}

#[test]
fn body_that_dials_in_vain() {
    let Some(address) = network() else { return };
    let id = UniqueId::from_parts(SocketAddr::new(address, 4711), Secret::from_bytes([1; 32]));
    let config = Config { init_timeout: Duration::from_secs(1), ..Config::default() };
    let began = Instant::now();
    let error = Communicator::init_rank(&id, Rank::new(1), 2, &config).unwrap_err();
    assert_eq!((error.error.kind(), error.error.rank()), (Kind::TimedOut, Some(Rank::new(0))), "{error}");
    let lines = error.report.lines.join("\n");
    assert!(lines.contains(&address.to_string()), "{lines}");
    assert!(began.elapsed() < Duration::from_secs(10), "{:?}", began.elapsed());
}

/// The local address of every socket of this network.
fn sockets() -> Vec<SocketAddr> {
    let lines = ["/proc/self/net/tcp", "/proc/self/net/tcp6"].map(|path| fs::read_to_string(path).unwrap_or_default());
    lines.iter().flat_map(|text| text.lines().skip(1)).filter_map(local_address).collect()
}

/// Words of an address are written as they lie in memory.
fn local_address(line: &str) -> Option<SocketAddr> {
    let (address, port) = line.split_whitespace().nth(1)?.split_once(':')?;
    let word = |at: usize| u32::from_str_radix(&address[at..at + 8], 16).map(u32::to_ne_bytes).ok();
    let ip = match address.len() {
        8 => IpAddr::from(word(0)?),
        _ => {
            let words = [word(0)?, word(8)?, word(16)?, word(24)?].concat();
            IpAddr::from(<[u8; 16]>::try_from(words).ok()?)
        }
    };
    Some(SocketAddr::new(ip, u16::from_str_radix(port, 16).ok()?))
}
