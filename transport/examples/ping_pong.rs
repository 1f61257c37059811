//! Two processes send messages to and fro, over shared memory and over tcp, and the half round trip is printed.
//!
//! `cargo run --release -p vervain-transport --example ping_pong`

mod support;

use std::time::Duration;

use support::{Channel, Process, Result, accept, finish, receive, soon};
use vervain_transport::Time;
use vervain_transport::endpoint::{Endpoint, PeerEvent, PeerId};
use vervain_transport::fabric::Backend;

const FABRICS: [Backend; 2] = [Backend::Shm, Backend::Tcp];
/// What is measured of each size: so many rounds, or what can be had in this time where others need the cores.
const ROUNDS: usize = 2000;
const TIME: Duration = Duration::from_secs(1);

fn main() -> Result {
    match support::role()? {
        None => ping(),
        Some((_, channel)) => pong(channel),
    }
}

fn ping() -> Result {
    let mut other = Process::start("pong")?;
    for fabric in FABRICS {
        let mut endpoint = support::endpoint()?.only(fabric).build()?;
        let peer = endpoint.connect(&other.channel.receive()?, soon())?;
        for bytes in [8, 1024] {
            let (begin, mut trips) = (Time::now(), Vec::with_capacity(ROUNDS));
            while trips.len() < ROUNDS && Time::now().since(begin) < TIME {
                let ball = vec![trips.len() as u8; bytes];
                let thrown = Time::now();
                send(&mut endpoint, peer, &ball)?;
                assert_eq!(receive(&mut endpoint)?, ball);
                trips.push(Time::now().since(thrown));
            }
            let half = median(&mut trips) / 2;
            println!("{fabric}: {bytes:4} bytes, half round trip {:.2} us", half.as_nanos() as f64 / 1000.0);
        }
        // dropping the endpoint says goodbye
    }
    other.finish()
}

fn pong(mut channel: Channel) -> Result {
    for fabric in FABRICS {
        let mut endpoint = support::endpoint()?.only(fabric).build()?;
        channel.send(&endpoint.address()?)?;
        let peer = accept(&mut endpoint)?;
        while let Some(ball) = ball(&mut endpoint)? {
            send(&mut endpoint, peer, &ball)?;
        }
    }
    Ok(())
}

/// The next message, or `None` if the other side has left.
fn ball(endpoint: &mut Endpoint) -> Result<Option<Vec<u8>>> {
    let next = endpoint.wait_until(soon(), |endpoint| match endpoint.next_message() {
        Some(message) => Some(Some(message.bytes.to_vec())),
        None => matches!(endpoint.next_peer_event()?, PeerEvent::Down(..)).then_some(None),
    });
    Ok(next?)
}

fn send(endpoint: &mut Endpoint, peer: PeerId, bytes: &[u8]) -> Result {
    finish(endpoint, |endpoint| endpoint.send(peer, 0, bytes, soon()))
}

fn median<T: Ord + Copy>(values: &mut [T]) -> T {
    values.sort();
    values[values.len() / 2]
}
