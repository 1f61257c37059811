//! A collective of your own: two-shot all-reduce on registered buffers, verified for 1 to 64 ranks, then run on four.
//!
//! `cargo run --release -p vervain-collectives --example custom_plan`

use std::thread;

use vervain_collectives::plan::{self, Buffer::*, Ranks};
use vervain_collectives::{Collective, Communicator, Config, ReduceOp};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    // every rank reduces its own chunk from all inputs, into all outputs
    let two_shot = plan::build("two-shot", Collective::AllReduce, |p| {
        p.chunks(p.ranks());
        p.enter();
        p.reduce(p.ranks().map(|r| p.at(r, Input, p.rank())), p.ranks().map(|r| p.at(r, Output, p.rank()))).complete();
        p.leave();
    });
    let two_shot = two_shot.verify(Ranks::range(1..=64))?; // Err: rank 5, lane 0, step 1, chunk 5: contribution of rank 3 missing
    thread::scope(|scope| {
        for communicator in Communicator::init_all(4, &Config::default())? {
            let two_shot = &two_shot;
            scope.spawn(move || {
                let mut input = communicator.alloc::<f32>(1000).expect("memory");
                let mut output = communicator.alloc::<f32>(1000).expect("memory");
                input.fill(1.0 + communicator.rank().get() as f32);
                communicator.run(two_shot, &input, &mut output, ReduceOp::Sum).expect("all ranks make this call");
                println!("rank {}: {}", communicator.rank(), output[999]);
            });
        }
        Ok(())
    })
}
