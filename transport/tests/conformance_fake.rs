//! The fake fabric passes the suite of all fabrics: on a good network and on rough ones, passive and not, asleep and on
//! virtual time.
#![cfg(all(feature = "testing", target_os = "linux"))]

use core::time::Duration;

use vervain_transport::{
    fabric::{
        Fabric, Identity,
        conformance::{self, Make},
    },
    testing::fake::{Network, Options, Sleep},
};

fn run(options: Options) {
    let network = Network::with(Options { sleep: Sleep::Blocks, ..options });
    let make: &mut Make<'_> = &mut |identity: Identity| Box::new(network.fabric(identity).unwrap()) as Box<dyn Fabric>;
    conformance::run(make);
}

#[test]
fn good_network() {
    run(Options::default());
}

#[test]
fn passive_network() {
    run(Options { passive: true, ..Options::default() });
}

/// Short latencies, because the suite lives on the machine's time.
fn short(seed: u64) -> Options {
    Options {
        latency: Duration::ZERO..=Duration::from_micros(3),
        resend: Duration::from_micros(20),
        ..Options::rough(seed)
    }
}

#[test]
fn rough_network() {
    run(short(1));
}

#[test]
fn rough_passive_network() {
    run(Options { passive: true, ..short(2) });
}
