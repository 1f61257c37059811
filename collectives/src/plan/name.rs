//! The classic names of Moves: send, recv, recv_reduce_copy_send and so on.

use super::program::Place;
use super::{Operand, Step};

/// A list of places, as far as a name depends on it.
#[derive(Default)]
struct Shape {
    local: usize,
    direct: usize,
    connections: usize,
    /// The one local place, if there is exactly one.
    only: Option<String>,
}

/// What people call a symbolic Move.
pub(super) fn of_operands(sources: &[Operand], destinations: &[Operand]) -> &'static str {
    name(&Shape::of(sources, Shape::add_operand), &Shape::of(destinations, Shape::add_operand))
}

/// What people call a step.
pub(super) fn of_step(step: &Step) -> &'static str {
    match step {
        Step::Move { sources, destinations, .. } => {
            name(&Shape::of(sources, Shape::add_place), &Shape::of(destinations, Shape::add_place))
        }
        Step::Enter => "enter",
        Step::Leave => "leave",
        Step::Signal { .. } => "signal",
        Step::Wait { .. } => "wait",
    }
}

impl Shape {
    fn of<T>(items: &[T], add: impl Fn(&mut Self, &T, usize)) -> Self {
        let mut shape = Self::default();
        items.iter().for_each(|item| add(&mut shape, item, 1));
        shape
    }

    /// An operand list counts as several, however long it turns out to be.
    fn add_operand(&mut self, operand: &Operand, times: usize) {
        match operand {
            Operand::Each { operand, .. } => self.add_operand(operand, 2),
            Operand::Direct { .. } => self.direct += times,
            Operand::Connection { .. } => self.connections += times,
            Operand::Local { buffer, chunk } => self.add_local(times, || format!("{buffer}[{chunk}]")),
        }
    }

    fn add_place(&mut self, place: &Place, times: usize) {
        match place {
            Place::Direct { .. } => self.direct += times,
            Place::Connection { .. } => self.connections += times,
            Place::Local { buffer, chunk } => self.add_local(times, || format!("{buffer}[{chunk}]")),
        }
    }

    fn add_local(&mut self, times: usize, text: impl FnOnce() -> String) {
        self.local += times;
        self.only = (self.local == 1).then(text);
    }

    fn count(&self) -> usize {
        self.local + self.direct + self.connections
    }
}

fn name(from: &Shape, to: &Shape) -> &'static str {
    let (recv, reduce, send) = (from.connections > 0, from.count() > 1, to.connections > 0);
    let copy = to.local + to.direct > 0;
    match (recv, reduce, copy, send) {
        (false, false, true, false) if from.direct > 0 => "get",
        (false, false, true, false) if to.direct > 0 => "put",
        (false, false, true, false) => "copy",
        (false, false, true, true) => "copy_send",
        (false, false, false, _) => "send",
        (false, true, true, false) => "reduce",
        (false, true, true, true) => "reduce_copy_send",
        (false, true, false, _) => "reduce_send",
        (true, false, true, false) => "recv",
        (true, false, true, true) => "recv_copy_send",
        (true, false, false, _) => "recv_send",
        (true, true, true, false) if to.only.is_some() && from.only == to.only => "recv_reduce",
        (true, true, true, false) => "recv_reduce_copy",
        (true, true, true, true) => "recv_reduce_copy_send",
        (true, true, false, _) => "recv_reduce_send",
    }
}
