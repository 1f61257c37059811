//! All-reduce among threads: every rank adds up what all ranks have.
//!
//! `cargo run --release -p vervain-collectives --example threads`

use std::thread;

use vervain_collectives::{Communicator, Config, ReduceOp};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    thread::scope(|scope| {
        for communicator in Communicator::init_all(4, &Config::default())? {
            scope.spawn(move || {
                let mut gradient = vec![communicator.rank().get() as f32; 1 << 20];
                communicator.all_reduce_in_place(&mut gradient, ReduceOp::Avg).expect("all ranks make this call");
                println!("rank {}: {}", communicator.rank(), gradient[0]);
            });
        }
        Ok(())
    })
}
