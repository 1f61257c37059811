//! Every plan of our own is right, at every number of ranks and for every root that the verifier tries. One test per collective, so that they run side by side.

use vervain_collectives::Collective;
use vervain_collectives::plan::{Algorithm, Ranks, builders};

/// 1 to 16 in a debug build, 1 to 64 in a release build.
const MOST: u32 = if cfg!(debug_assertions) { 16 } else { 64 };

fn verify_all(collective: Collective) {
    for &algorithm in Algorithm::ALL {
        let Some(plan) = builders::plan(collective, algorithm) else { continue };
        let start = std::time::Instant::now();
        let verified = plan.verify(Ranks::range(1..=MOST)).unwrap_or_else(|defect| panic!("{defect}"));
        if collective != Collective::AllToAll {
            assert_eq!(verified.in_place(), Ok(()));
        }
        println!("{}: right for 1 to {MOST} ranks ({:.1} s)", plan.name, start.elapsed().as_secs_f64());
    }
}

macro_rules! right_and_in_place {
    ($($test:ident: $collective:ident),*) => {$(
        #[test]
        fn $test() {
            verify_all(Collective::$collective);
        }
    )*};
}

right_and_in_place! {
    all_reduce_is_right: AllReduce,
    all_gather_is_right: AllGather,
    reduce_scatter_is_right: ReduceScatter,
    broadcast_is_right: Broadcast,
    reduce_is_right: Reduce,
    all_to_all_is_right: AllToAll,
    barrier_is_right: Barrier
}
