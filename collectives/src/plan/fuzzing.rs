//! Bodies of fuzz targets: they take any bytes and panic if a property does not hold.

use vervain_transport::Rank;

use super::{Plan, Program, Ranks, show};

/// A plan file: refused, or a plan that survives writing and reading, and whose expansion and verification end.
pub fn plan_json(bytes: &[u8]) {
    let Ok(text) = core::str::from_utf8(bytes) else { return };
    let Ok(plan) = Plan::from_json(text) else { return };
    let again = Plan::from_json(&plan.to_json()).expect("what was written can be read");
    assert_eq!(again, plan);
    assert_eq!(again.hash(), plan.hash());
    for root in [None, Some(Rank::new(1))] {
        let programs: Result<Vec<_>, _> = (0..3).map(|rank| plan.expand(Rank::new(rank), 3, root)).collect();
        if programs.is_ok_and(|programs| programs.iter().all(is_small)) {
            let _ = plan.verify(Ranks::one(3));
            let _ = show(&plan, 3, root);
        }
    }
}

/// Verification of large plans ends too, but fuzzing has better things to do.
fn is_small(program: &Program) -> bool {
    let steps: usize = program.lanes.iter().map(Vec::len).sum();
    steps <= 256 && program.chunks <= 16 && program.scratch <= 16
}
