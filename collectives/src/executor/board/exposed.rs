//! What peers can write of boards.

use super::{Boards, LINE};
use crate::executor::exposed::{Exposed, counters, line_slots};

impl Boards {
    /// The counters on ours, and the slots of theirs.
    pub fn exposed(&self) -> Vec<Exposed> {
        let theirs = self.peers.iter().flatten();
        let slots = |board: &crate::buffer::Memory| {
            line_slots(board.slice(self.slots_at, self.areas.total() as usize), &self.areas)
        };
        let mut all: Vec<Exposed> = theirs.flat_map(slots).collect();
        let heads = (0..self.slots_at).step_by(LINE).flat_map(|at| counters(self.own.slice(at, 8)));
        all.extend(heads);
        all
    }
}
