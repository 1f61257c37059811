//! Bodies of fuzz targets: they take any bytes and panic if a property does not hold.

use vervain_transport::Rank;

use super::{Defect, Plan, Program, Ranks, Reason, show};

/// A plan file: refused, or a plan that survives writing and reading, and whose expansion and verification end.
pub fn plan_json(bytes: &[u8]) {
    let Ok(text) = core::str::from_utf8(bytes) else { return };
    let Ok(plan) = Plan::from_json(text) else { return };
    let again = Plan::from_json(&plan.to_json()).expect("what was written can be read");
    assert_eq!(again, plan);
    assert_eq!(again.hash(), plan.hash());
    let roots = [None, Some(0), Some(1), Some(2)].map(|root| root.map(Rank::new));
    let expand = |root| (0..3).map(move |rank| (rank, root));
    let mut programs =
        roots.into_iter().flat_map(expand).map(|(rank, root)| plan.expand_within(WORK, Rank::new(rank), 3, root));
    // A root that does not suit the collective is refused at once; any other defect may be the limit.
    let is_short = |program: Result<Program, Defect>| match program {
        Ok(program) => is_small(&program),
        Err(defect) => *defect.reason() == Reason::WrongRoot,
    };
    if programs.all(is_short) {
        let _ = plan.verify(Ranks::one(3));
        roots.into_iter().for_each(|root| drop(show(&plan, 3, root)));
    }
}

/// Larger plans are bounded too, but fuzzing has better things to do.
fn is_small(program: &Program) -> bool {
    let steps: usize = program.lanes.iter().map(Vec::len).sum();
    steps <= 256 && program.chunks <= 16 && program.scratch <= 16
}

/// Of one expansion.
const WORK: u64 = 1 << 14;
