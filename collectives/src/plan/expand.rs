//! From the symbolic plan to the program of one rank, with bounded work: a plan may come from a stranger.

use vervain_transport::Rank;

use super::defect::{Defect, Reason, Site};
use super::expr::Scope;
use super::program::{Place, Program, Step};
use super::{Expr, Instruction, Operand, Plan, Statement};
use crate::Collective;

impl Plan {
    /// The program of `rank` of `ranks`. `complete` of a Move is the author's mark; our own builders mark all, for other plans
    /// [`Verified::program`](super::Verified::program) finds out.
    pub fn expand(&self, rank: Rank, ranks: u32, root: Option<Rank>) -> Result<Program, Defect> {
        self.expand_within(MAX_WORK, rank, ranks, root)
    }

    /// The same, with another limit on statements, turns and expression nodes.
    pub(super) fn expand_within(
        &self,
        work: u64,
        rank: Rank,
        ranks: u32,
        root: Option<Rank>,
    ) -> Result<Program, Defect> {
        let mut expansion = Expansion::new(work, rank, ranks, root);
        expansion.program(self).map_err(|reason| {
            let site = Site {
                ranks: Some(ranks),
                root,
                rank: Some(rank),
                lane: expansion.lane,
                step: expansion.lane.map(|_| expansion.steps.len()),
                ..Site::of(&self.name)
            };
            Defect::new(site, reason)
        })
    }
}

/// The expansion of one rank's program.
struct Expansion {
    scope: Scope,
    rank: Rank,
    root: Option<Rank>,
    /// The lane being expanded, and its steps so far.
    lane: Option<usize>,
    steps: Vec<Step>,
    /// Steps and operands of all lanes so far.
    length: usize,
}

impl Expansion {
    fn new(work: u64, rank: Rank, ranks: u32, root: Option<Rank>) -> Self {
        let scope = Scope { rank: rank.get(), ranks, root: root.map(Rank::get), variables: Vec::new(), work };
        Self { scope, rank, root, lane: None, steps: Vec::new(), length: 0 }
    }

    fn program(&mut self, plan: &Plan) -> Result<Program, Reason> {
        self.check_call(plan)?;
        let ranks = self.scope.ranks;
        let chunks = self.number("the number of chunks", &plan.chunks, 1, MAX_CHUNKS)?;
        let scratch = self.number("the number of scratch chunks", &plan.scratch, 0, MAX_CHUNKS)?;
        in_range("the number of lanes", plan.lanes.len() as i64, 1, MAX_LANES)?;
        let mut lanes = Vec::new();
        for (index, lane) in plan.lanes.iter().enumerate() {
            self.lane = Some(index);
            self.body(lane, 0)?;
            lanes.push(core::mem::take(&mut self.steps));
        }
        Ok(Program { collective: plan.collective, rank: self.rank, ranks, root: self.root, chunks, scratch, lanes })
    }

    fn check_call(&self, plan: &Plan) -> Result<(), Reason> {
        let ranks = self.scope.ranks;
        in_range("the number of ranks", ranks.into(), 1, MAX_RANKS)?;
        in_range("the rank", self.rank.get().into(), 0, i64::from(ranks) - 1)?;
        match (plan.collective, self.root) {
            (Collective::Send | Collective::Recv, _) => Err(Reason::NoPlan(plan.collective)),
            (Collective::Broadcast | Collective::Reduce, Some(root)) if root.get() < ranks => Ok(()),
            (Collective::Broadcast | Collective::Reduce, _) | (_, Some(_)) => Err(Reason::WrongRoot),
            (_, None) => Ok(()),
        }
    }

    fn body(&mut self, body: &[Statement], depth: usize) -> Result<(), Reason> {
        if depth > MAX_NESTING {
            return Err(Reason::TooDeep);
        }
        body.iter().try_for_each(|statement| self.statement(statement, depth))
    }

    fn statement(&mut self, statement: &Statement, depth: usize) -> Result<(), Reason> {
        self.scope.pay()?;
        match statement {
            Statement::Instruction(instruction) => self.instruction(instruction),
            Statement::For { variable, count, body } => {
                self.repeat(*variable, count, |expansion| expansion.body(body, depth + 1))
            }
            Statement::When { condition, then, otherwise } => {
                let body = if self.scope.holds(condition)? { then } else { otherwise };
                self.body(body, depth + 1)
            }
        }
    }

    fn instruction(&mut self, instruction: &Instruction) -> Result<(), Reason> {
        self.grow()?;
        let step = match instruction {
            Instruction::Move { sources, destinations, complete } => {
                let (sources, destinations) = (self.places(sources)?, self.places(destinations)?);
                let complete = *complete && sources.len() > 1;
                Step::Move { sources, destinations, complete }
            }
            Instruction::Enter => Step::Enter,
            Instruction::Leave => Step::Leave,
            Instruction::Signal { peer } => Step::Signal { peer: self.peer(peer)? },
            Instruction::Wait { peer } => Step::Wait { peer: self.peer(peer)? },
        };
        self.steps.push(step);
        Ok(())
    }

    fn places(&mut self, operands: &[Operand]) -> Result<Vec<Place>, Reason> {
        let mut places = Vec::new();
        operands.iter().try_for_each(|operand| self.operand(operand, &mut places, 0))?;
        Ok(places)
    }

    fn operand(&mut self, operand: &Operand, places: &mut Vec<Place>, depth: usize) -> Result<(), Reason> {
        if depth > MAX_NESTING {
            return Err(Reason::TooDeep);
        }
        self.scope.pay()?;
        let place = match operand {
            Operand::Local { buffer, chunk } => Place::Local { buffer: *buffer, chunk: self.chunk(chunk)? },
            Operand::Direct { rank, buffer, chunk } => {
                Place::Direct { rank: self.peer(rank)?, buffer: *buffer, chunk: self.chunk(chunk)? }
            }
            Operand::Connection { peer } => Place::Connection { peer: self.peer(peer)? },
            Operand::Each { variable, count, operand } => {
                return self.repeat(*variable, count, |expansion| expansion.operand(operand, places, depth + 1));
            }
        };
        self.grow()?;
        places.push(place);
        Ok(())
    }

    /// `each` for every value of the variable. Every turn pays, so that also an empty body ends.
    fn repeat(
        &mut self,
        variable: u32,
        count: &Expr,
        mut each: impl FnMut(&mut Self) -> Result<(), Reason>,
    ) -> Result<(), Reason> {
        for value in 0..self.scope.value(count)? {
            self.scope.pay()?;
            self.scope.variables.push((variable, value));
            each(self)?;
            self.scope.variables.pop();
        }
        Ok(())
    }

    fn peer(&mut self, expr: &Expr) -> Result<Rank, Reason> {
        let most = i64::from(self.scope.ranks) - 1;
        Ok(Rank::new(self.number("a rank", expr, 0, most)?))
    }

    fn chunk(&mut self, expr: &Expr) -> Result<u32, Reason> {
        self.number("a chunk", expr, 0, u32::MAX.into())
    }

    fn number(&mut self, what: &'static str, expr: &Expr, least: i64, most: i64) -> Result<u32, Reason> {
        let value = self.scope.value(expr)?;
        in_range(what, value, least, most)?;
        u32::try_from(value).map_err(|_| Reason::Overflow)
    }

    fn grow(&mut self) -> Result<(), Reason> {
        self.length += 1;
        if self.length > MAX_LENGTH { Err(Reason::TooLong(MAX_LENGTH)) } else { Ok(()) }
    }
}

fn in_range(what: &'static str, value: i64, least: i64, most: i64) -> Result<(), Reason> {
    if (least..=most).contains(&value) { Ok(()) } else { Err(Reason::OutOfRange { what, value, least, most }) }
}

/// Ranks of a program.
pub(super) const MAX_RANKS: i64 = 65_536;
/// Chunks per block, and chunks of scratch.
const MAX_CHUNKS: i64 = 65_536;
/// Lanes of a program.
pub(super) const MAX_LANES: i64 = 64;
/// Steps and operands of one rank's program, together.
const MAX_LENGTH: usize = 4 << 20;
/// Statements, turns and expression nodes of one expansion.
const MAX_WORK: u64 = 64 << 20;
/// Loops and conditions within each other, and operand lists likewise.
pub(super) const MAX_NESTING: usize = 16;

#[cfg(test)]
mod tests {
    use super::super::{Buffer, build};
    use super::*;

    fn reason(plan: &Plan, ranks: u32) -> Reason {
        plan.expand(Rank::new(0), ranks, None).unwrap_err().reason().clone()
    }

    #[test]
    fn loops_conditions_and_lists_expand_per_rank() {
        let plan = build("test", Collective::AllReduce, |p| {
            p.chunks(p.ranks());
            p.each(2, |i| {
                p.when(p.rank().is(1), |p| {
                    p.copy(p.input(&i), p.output(i * 2));
                });
            });
            p.reduce(p.ranks().map(|r| p.at(r, Buffer::Input, p.rank())), [p.output(0), p.link(p.after(1))]).complete();
        });
        let lanes = plan.expand(Rank::new(1), 3, None).unwrap().lanes;
        assert_eq!(lanes[0].len(), 3);
        let output = |chunk| vec![Place::Local { buffer: Buffer::Output, chunk }];
        assert!(matches!(&lanes[0][1], Step::Move { destinations, complete: false, .. } if *destinations == output(2)));
        let Step::Move { sources, destinations, complete: true } = &lanes[0][2] else { panic!("{lanes:?}") };
        let input = |rank| Place::Direct { rank: Rank::new(rank), buffer: Buffer::Input, chunk: 1 };
        assert_eq!(sources, &[input(0), input(1), input(2)]);
        assert_eq!(destinations[1], Place::Connection { peer: Rank::new(2) });
        assert_eq!(plan.expand(Rank::new(0), 3, None).unwrap().lanes[0].len(), 1);
    }

    #[test]
    fn one_source_is_never_complete() {
        let plan = build("test", Collective::AllReduce, |p| {
            p.reduce(p.ranks().map(|r| p.at(r, Buffer::Input, 0)), p.output(0)).complete();
        });
        let complete = |ranks| match &plan.expand(Rank::new(0), ranks, None).unwrap().lanes[0][0] {
            Step::Move { complete, .. } => *complete,
            step => panic!("{step:?}"),
        };
        assert!(!complete(1));
        assert!(complete(2));
    }

    #[test]
    fn hostile_plans_are_refused_in_bounded_work() {
        let endless = build("endless", Collective::AllReduce, |p| p.each(i64::MAX, |_| ()));
        assert_eq!(reason(&endless, 2), Reason::TooMuchWork);
        let long = build("long", Collective::AllReduce, |p| p.each(i64::MAX, |_| p.enter()));
        assert_eq!(reason(&long, 2), Reason::TooLong(MAX_LENGTH));
        let wide = build("wide", Collective::AllReduce, |p| {
            p.reduce(p.count(i64::MAX).map(|_| p.input(0)), p.output(0));
        });
        assert_eq!(reason(&wide, 2), Reason::TooLong(MAX_LENGTH));
        let stray = build("stray", Collective::AllReduce, |p| p.signal(p.rank() - 1));
        assert!(matches!(reason(&stray, 2), Reason::OutOfRange { value: -1, .. }));
        let mut deep = vec![];
        for variable in 0..=MAX_NESTING as u32 {
            deep = vec![Statement::For { variable, count: Expr::Constant(1), body: deep }];
        }
        let deep = Plan { lanes: vec![deep], ..endless.clone() };
        assert_eq!(reason(&deep, 2), Reason::TooDeep);
        let laneless = Plan { lanes: vec![], ..endless.clone() };
        assert!(matches!(reason(&laneless, 2), Reason::OutOfRange { .. }));
        assert!(matches!(reason(&endless, 65_537), Reason::OutOfRange { .. }));
        assert!(matches!(reason(&endless, 0), Reason::OutOfRange { .. }));
    }

    #[test]
    fn roots_are_checked_against_the_collective() {
        let plan = |collective| build("test", collective, |_| ());
        let expand = |collective, root: Option<u32>| plan(collective).expand(Rank::new(0), 2, root.map(Rank::new));
        assert!(expand(Collective::Broadcast, Some(1)).is_ok());
        assert_eq!(expand(Collective::Broadcast, Some(2)).unwrap_err().reason(), &Reason::WrongRoot);
        assert_eq!(expand(Collective::Broadcast, None).unwrap_err().reason(), &Reason::WrongRoot);
        assert_eq!(expand(Collective::AllReduce, Some(0)).unwrap_err().reason(), &Reason::WrongRoot);
        assert!(matches!(expand(Collective::Send, None).unwrap_err().reason(), Reason::NoPlan(_)));
    }
}
