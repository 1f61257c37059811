//! Ranks as threads, for the tests of whole communicators.
#![allow(dead_code)]

use core::time::Duration;
use std::thread;

use vervain_collectives::{Communicator, Config};

/// Run `body` on every rank of a new job of `ranks` threads; results in rank order.
pub fn cluster<R: Send>(ranks: u32, config: &Config, body: impl Fn(&Communicator) -> R + Sync) -> Vec<R> {
    let config = &Config { timeout: config.timeout.min(Duration::from_secs(30)), ..config.clone() };
    let communicators = Communicator::init_all(ranks, config).expect("a job of threads comes up");
    thread::scope(|scope| {
        let body = &body;
        let threads: Vec<_> =
            communicators.into_iter().map(|communicator| scope.spawn(move || body(&communicator))).collect();
        threads.into_iter().map(|thread| thread.join().expect("no rank panics")).collect()
    })
}
