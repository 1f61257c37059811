//! Every plan of our own is right, at every number of ranks and for every root.

use vervain_collectives::Collective;
use vervain_collectives::plan::{Algorithm, Ranks, builders};

/// 1 to 16 in a debug build, 1 to 64 in a release build.
const MOST: u32 = if cfg!(debug_assertions) { 16 } else { 64 };

#[test]
fn every_builder_is_right_and_works_in_place() {
    let mut plans = 0;
    for &collective in Collective::ALL {
        for &algorithm in Algorithm::ALL {
            let Some(plan) = builders::plan(collective, algorithm) else { continue };
            let verified = plan.verify(Ranks::range(1..=MOST)).unwrap_or_else(|defect| panic!("{defect}"));
            if collective != Collective::AllToAll {
                assert_eq!(verified.in_place(), Ok(()));
            }
            plans += 1;
        }
    }
    println!("{plans} plans, 1 to {MOST} ranks, every root: all right");
}
