//! All-reduce among processes. Under a launcher each process is one rank; alone it starts four of itself.
//!
//! `cargo run --release -p vervain-collectives --example processes`
//! `torchrun --no-python --nproc-per-node 4 target/release/examples/processes`

use std::env;

use vervain_collectives::launch::{Environment, Local};
use vervain_collectives::{Communicator, Config, ReduceOp};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    if Environment::from_process()?.is_none() {
        let exits = Local::new(4, env::current_exe()?).start()?.wait();
        std::process::exit(if exits.iter().all(|exit| exit.status.success()) { 0 } else { 1 });
    }
    let communicator = Communicator::from_env(&Config::default())?;
    let mut gradient = communicator.alloc::<f32>(1 << 20)?; // registered by all ranks together: the direct path
    gradient.fill(communicator.rank().get() as f32);
    communicator.all_reduce_in_place(&mut gradient, ReduceOp::Sum)?;
    println!("rank {}: {} over {:?}", communicator.rank(), gradient[0], communicator.backend());
    Ok(())
}
