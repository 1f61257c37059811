//! Many peers on one fabric: how long they take to connect, and what idle ones cost.

use std::{
    net::{IpAddr, Ipv4Addr},
    time::{Duration, Instant},
};

use vervain_transport::{
    Rank, Time,
    auth::Secret,
    fabric::{
        Event, Fabric, Identity,
        tcp::{Options, Tcp},
    },
};

use crate::table::median;

fn fabric(rank: u32) -> Tcp {
    let identity = Identity { rank: Rank::new(rank), incarnation: 1, secret: Secret::from_bytes([7; 32]) };
    let address = Some(IpAddr::V4(Ipv4Addr::LOCALHOST));
    Tcp::new(identity, Options { address, ..Options::default() }).expect("loopback works")
}

/// A fabric that dials `peers` links to another one, all at once, and how long that took.
fn connect(peers: usize) -> (Tcp, Tcp, Duration) {
    let (mut hub, mut other) = (fabric(0), fabric(1));
    let (address, mut events) = (other.address(), Vec::with_capacity(4 * peers));
    let started = Instant::now();
    for _ in 0..peers {
        hub.dial(Rank::new(1), &address, Time::NEVER).expect("descriptors");
    }
    let mut up = 0;
    while up < 2 * peers {
        hub.poll(Time::now(), &mut events);
        other.poll(Time::now(), &mut events);
        up += events.drain(..).filter(|event| matches!(event, Event::Up { .. })).count();
    }
    (hub, other, started.elapsed())
}

/// Nanoseconds of one poll that finds nothing.
fn idle_poll(fabric: &mut Tcp) -> f64 {
    const POLLS: u32 = 20_000;
    let mut events = Vec::with_capacity(16);
    let started = Instant::now();
    for _ in 0..POLLS {
        fabric.poll(Time::now(), &mut events);
    }
    started.elapsed().as_secs_f64() * 1e9 / f64::from(POLLS)
}

pub fn run(rounds: usize) {
    println!("\n**Peers of one fabric (both ends in one thread)**\n");
    println!("| peers | connect, ms | idle poll, ns |\n|---|---|---|");
    for peers in [1, 10, 100, 1000] {
        let (mut times, mut polls) = (Vec::new(), Vec::new());
        for _ in 0..rounds {
            let (mut hub, _other, time) = connect(peers);
            times.push(time.as_secs_f64() * 1e3);
            polls.push(idle_poll(&mut hub));
        }
        let shown = |values| median(values).unwrap_or(f64::NAN);
        println!("| {peers} | {:.1} | {:.0} |", shown(times), shown(polls));
    }
}
