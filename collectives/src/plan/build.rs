//! Writing a plan in Rust: the closure of [`build`] runs once, with symbols in place of numbers.

use core::cell::{Cell, RefCell};

use super::program::Buffer;
use super::{Condition, Expr, Instruction, Operand, Plan, Statement};
use crate::Collective;

/// Write a plan down. `body` runs once, for all ranks: what it gets from the [`Builder`] are symbols.
///
/// ```
/// use vervain_collectives::plan::{self, Buffer::*};
/// use vervain_collectives::{Collective, Rank};
///
/// // every rank reduces its own chunk from all peers, then everyone has the results
/// let two_shot = plan::build("two-shot", Collective::AllReduce, |p| {
///     p.chunks(p.ranks());
///     p.enter();
///     p.reduce(p.ranks().map(|r| p.at(r, Input, p.rank())), p.ranks().map(|r| p.at(r, Output, p.rank())));
///     p.leave();
/// });
/// let program = two_shot.expand(Rank::new(1), 4, None)?;
/// assert_eq!(program.lanes[0].len(), 3);
/// # Ok::<(), plan::Defect>(())
/// ```
pub fn build(name: &str, collective: Collective, body: impl FnOnce(&Builder)) -> Plan {
    let builder = Builder {
        collective,
        chunks: RefCell::new(Expr::Constant(1)),
        scratch: RefCell::new(Expr::Constant(0)),
        lanes: RefCell::default(),
        blocks: RefCell::new(vec![Vec::new()]),
        variables: Cell::new(0),
    };
    body(&builder);
    builder.finish(name)
}

/// Collects the statements of a plan.
#[derive(Debug)]
pub struct Builder {
    collective: Collective,
    chunks: RefCell<Expr>,
    scratch: RefCell<Expr>,
    lanes: RefCell<Vec<Vec<Statement>>>,
    /// The open bodies, outermost first. There is always one.
    blocks: RefCell<Vec<Vec<Statement>>>,
    /// Variables given out so far.
    variables: Cell<u32>,
}

/// A symbolic count, from which operand lists are made.
#[derive(Clone, Debug)]
pub struct Count<'p> {
    builder: &'p Builder,
    count: Expr,
}

/// A Move just written; [`Moved::complete`] says more about it.
#[derive(Debug)]
pub struct Moved<'p>(&'p Builder);

/// One operand, or several.
pub trait Operands {
    /// As a list.
    fn operands(self) -> Vec<Operand>;
}

impl Builder {
    /// The rank that runs the program.
    pub fn rank(&self) -> Expr {
        Expr::Rank
    }

    /// How many ranks there are; `map` makes an operand for each.
    pub fn ranks(&self) -> Count<'_> {
        self.count(Expr::Ranks)
    }

    /// The root of the call.
    pub fn root(&self) -> Expr {
        Expr::Root
    }

    /// Any count; `map` makes an operand for each of 0 to below it.
    pub fn count(&self, count: impl Into<Expr>) -> Count<'_> {
        Count { builder: self, count: count.into() }
    }

    /// The rank `distance` after ours, around the ring.
    pub fn after(&self, distance: impl Into<Expr>) -> Expr {
        (Expr::Rank + distance.into()) % Expr::Ranks
    }

    /// The rank `distance` before ours, around the ring.
    pub fn before(&self, distance: impl Into<Expr>) -> Expr {
        (Expr::Rank - distance.into()) % Expr::Ranks
    }

    /// Cut every block into this many chunks; one if never called.
    pub fn chunks(&self, chunks: impl Into<Expr>) {
        *self.chunks.borrow_mut() = chunks.into();
    }

    /// Use this many chunks of scratch; none if never called.
    pub fn scratch(&self, chunks: impl Into<Expr>) {
        *self.scratch.borrow_mut() = chunks.into();
    }

    /// A chunk of our own buffer.
    pub fn local(&self, buffer: Buffer, chunk: impl Into<Expr>) -> Operand {
        Operand::Local { buffer, chunk: chunk.into() }
    }

    /// A chunk of our input.
    pub fn input(&self, chunk: impl Into<Expr>) -> Operand {
        self.local(Buffer::Input, chunk)
    }

    /// A chunk of our output.
    pub fn output(&self, chunk: impl Into<Expr>) -> Operand {
        self.local(Buffer::Output, chunk)
    }

    /// A chunk of a rank's buffer, touched directly. Between [`Builder::enter`] and [`Builder::leave`] only.
    pub fn at(&self, rank: impl Into<Expr>, buffer: Buffer, chunk: impl Into<Expr>) -> Operand {
        Operand::Direct { rank: rank.into(), buffer, chunk: chunk.into() }
    }

    /// The next message from (as a source) or to (as a destination) a rank.
    pub fn link(&self, peer: impl Into<Expr>) -> Operand {
        Operand::Connection { peer: peer.into() }
    }

    /// Let the others touch our buffers.
    pub fn enter(&self) {
        self.push(Instruction::Enter);
    }

    /// Wait until no rank touches another's buffers any more.
    pub fn leave(&self) {
        self.push(Instruction::Leave);
    }

    /// Tell `peer` that all our earlier moves are done.
    pub fn signal(&self, peer: impl Into<Expr>) {
        self.push(Instruction::Signal { peer: peer.into() });
    }

    /// Wait for the next signal of `peer`.
    pub fn wait(&self, peer: impl Into<Expr>) {
        self.push(Instruction::Wait { peer: peer.into() });
    }

    /// Signal to all others, then wait for all others.
    pub fn barrier(&self) {
        self.each(self.ranks() - 1, |i| self.signal(self.after(i + 1)));
        self.each(self.ranks() - 1, |i| self.wait(self.after(i + 1)));
    }

    /// One chunk to a rank.
    pub fn send(&self, from: Operand, peer: impl Into<Expr>) -> Moved<'_> {
        self.reduce(from, self.link(peer))
    }

    /// One chunk from a rank.
    pub fn recv(&self, peer: impl Into<Expr>, to: impl Operands) -> Moved<'_> {
        self.reduce(self.link(peer), to)
    }

    /// One chunk from here to there.
    pub fn copy(&self, from: Operand, to: impl Operands) -> Moved<'_> {
        self.reduce(from, to)
    }

    /// One chunk from here to there and to a rank.
    pub fn copy_send(&self, from: Operand, to: Operand, next: impl Into<Expr>) -> Moved<'_> {
        self.reduce(from, [to, self.link(next)])
    }

    /// What arrives is kept and passed on.
    pub fn recv_copy_send(&self, peer: impl Into<Expr>, to: Operand, next: impl Into<Expr>) -> Moved<'_> {
        self.reduce(self.link(peer), [to, self.link(next)])
    }

    /// What arrives is added to `place`.
    pub fn recv_reduce(&self, peer: impl Into<Expr>, place: Operand) -> Moved<'_> {
        self.recv_reduce_copy(peer, place.clone(), place)
    }

    /// What arrives is combined with `with` and passed on.
    pub fn recv_reduce_send(&self, peer: impl Into<Expr>, with: Operand, next: impl Into<Expr>) -> Moved<'_> {
        self.reduce([self.link(peer), with], self.link(next))
    }

    /// What arrives is combined with `with` and kept.
    pub fn recv_reduce_copy(&self, peer: impl Into<Expr>, with: Operand, to: Operand) -> Moved<'_> {
        self.reduce([self.link(peer), with], to)
    }

    /// What arrives is combined with `with`, kept and passed on.
    pub fn recv_reduce_copy_send(
        &self,
        peer: impl Into<Expr>,
        with: Operand,
        to: Operand,
        next: impl Into<Expr>,
    ) -> Moved<'_> {
        self.reduce([self.link(peer), with], [to, self.link(next)])
    }

    /// The general form: the sources are combined in their order, the result goes to every destination. One source is copied.
    pub fn reduce(&self, sources: impl Operands, destinations: impl Operands) -> Moved<'_> {
        let (sources, destinations) = (sources.operands(), destinations.operands());
        self.push(Instruction::Move { sources, destinations, complete: false });
        Moved(self)
    }

    /// A peer's chunk to us.
    pub fn get(&self, from: Operand, to: Operand) -> Moved<'_> {
        self.reduce(from, to)
    }

    /// Our chunk to peers.
    pub fn put(&self, from: Operand, to: impl Operands) -> Moved<'_> {
        self.reduce(from, to)
    }

    /// `body`, for each number from 0 to below `count`.
    pub fn each<T>(&self, count: impl Into<Expr>, body: impl FnOnce(Expr) -> T) {
        let variable = self.fresh();
        let body = self.body(|| body(Expr::Variable(variable)));
        self.statement(Statement::For { variable, count: count.into(), body });
    }

    /// `then`, on ranks for which the condition holds.
    pub fn when<'p, T>(&'p self, condition: Condition, then: impl FnOnce(&'p Self) -> T) {
        self.when_else(condition, then, |_| ());
    }

    /// `then` where the condition holds, else `otherwise`.
    pub fn when_else<'p, T, U>(
        &'p self,
        condition: Condition,
        then: impl FnOnce(&'p Self) -> T,
        otherwise: impl FnOnce(&'p Self) -> U,
    ) {
        let (then, otherwise) = (self.body(|| then(self)), self.body(|| otherwise(self)));
        self.statement(Statement::When { condition, then, otherwise });
    }

    /// A lane of its own for what `body` writes. Without this everything is one lane.
    pub fn lane<'p, T>(&'p self, body: impl FnOnce(&'p Self) -> T) {
        let lane = self.body(|| body(self));
        self.lanes.borrow_mut().push(lane);
    }

    fn body<T>(&self, write: impl FnOnce() -> T) -> Vec<Statement> {
        self.blocks.borrow_mut().push(Vec::new());
        write();
        self.blocks.borrow_mut().pop().unwrap_or_default()
    }

    fn push(&self, instruction: Instruction) {
        self.statement(Statement::Instruction(instruction));
    }

    fn statement(&self, statement: Statement) {
        if let Some(block) = self.blocks.borrow_mut().last_mut() {
            block.push(statement);
        }
    }

    fn fresh(&self) -> u32 {
        self.variables.replace(self.variables.get() + 1)
    }

    fn finish(self, name: &str) -> Plan {
        let mut lanes = self.lanes.into_inner();
        let outside: Vec<_> = self.blocks.into_inner().into_iter().flatten().collect();
        if lanes.is_empty() || !outside.is_empty() {
            lanes.insert(0, outside);
        }
        Plan {
            name: name.to_owned(),
            collective: self.collective,
            chunks: self.chunks.into_inner(),
            scratch: self.scratch.into_inner(),
            lanes,
        }
    }
}

impl Count<'_> {
    /// An operand for each number. `operand` runs once, with a symbol.
    pub fn map(self, operand: impl FnOnce(Expr) -> Operand) -> Operand {
        let variable = self.builder.fresh();
        let operand = Box::new(operand(Expr::Variable(variable)));
        Operand::Each { variable, count: self.count, operand }
    }
}

impl From<Count<'_>> for Expr {
    fn from(count: Count<'_>) -> Self {
        count.count
    }
}

impl Moved<'_> {
    /// Say that the result holds every rank's contribution where several sources are combined. The verifier checks it; without
    /// it only [`Verified::program`](super::Verified::program) knows where an integer average divides.
    pub fn complete(self) {
        if let Some(Statement::Instruction(Instruction::Move { complete, .. })) =
            self.0.blocks.borrow_mut().last_mut().and_then(|block| block.last_mut())
        {
            *complete = true;
        }
    }
}

impl Operands for Operand {
    fn operands(self) -> Vec<Operand> {
        vec![self]
    }
}

impl Operands for Vec<Operand> {
    fn operands(self) -> Vec<Operand> {
        self
    }
}

impl<const N: usize> Operands for [Operand; N] {
    fn operands(self) -> Vec<Operand> {
        self.into()
    }
}
