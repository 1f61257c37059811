//! Numbers that are known only per rank: data, not closures, so that a plan can be hashed, printed, stored and bounded.

use core::fmt;
use core::ops::{Add, Div, Mul, Rem, Sub};

use super::defect::Reason;

/// A whole number over the rank, the number of ranks, the root and the loop variables.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Expr {
    /// A number.
    Constant(i64),
    /// The rank that runs the program.
    Rank,
    /// How many ranks there are.
    Ranks,
    /// The root of the call; only in collectives that have one.
    Root,
    /// The variable of an enclosing loop or operand list. Inner ones hide outer ones of the same number.
    Variable(u32),
    /// Two numbers combined.
    Binary(Operator, Box<Expr>, Box<Expr>),
}

/// How two numbers are combined.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Operator {
    /// Sum.
    Add,
    /// Difference.
    Sub,
    /// Product.
    Mul,
    /// Euclidean quotient.
    Div,
    /// Euclidean remainder: never negative.
    Mod,
    /// The smaller.
    Min,
    /// The larger.
    Max,
}

/// Two numbers compared.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Condition {
    /// The left number.
    pub left: Expr,
    /// How they are compared.
    pub comparison: Comparison,
    /// The right number.
    pub right: Expr,
}

/// How two numbers are compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Comparison {
    /// Equal.
    Is,
    /// Different.
    IsNot,
    /// Left below right.
    Below,
    /// Left not below right.
    AtLeast,
}

impl Expr {
    /// The smaller of both.
    #[must_use]
    pub fn min(self, other: impl Into<Expr>) -> Expr {
        binary(Operator::Min, self, other.into())
    }

    /// The larger of both.
    #[must_use]
    pub fn max(self, other: impl Into<Expr>) -> Expr {
        binary(Operator::Max, self, other.into())
    }

    /// Whether both are equal.
    pub fn is(self, other: impl Into<Expr>) -> Condition {
        Condition { left: self, comparison: Comparison::Is, right: other.into() }
    }

    /// Whether they differ.
    pub fn is_not(self, other: impl Into<Expr>) -> Condition {
        Condition { left: self, comparison: Comparison::IsNot, right: other.into() }
    }

    /// Whether this is below the other.
    pub fn is_below(self, other: impl Into<Expr>) -> Condition {
        Condition { left: self, comparison: Comparison::Below, right: other.into() }
    }

    /// Whether this is not below the other.
    pub fn is_at_least(self, other: impl Into<Expr>) -> Condition {
        Condition { left: self, comparison: Comparison::AtLeast, right: other.into() }
    }
}

impl Operator {
    /// The sign in plan text.
    pub const fn sign(self) -> &'static str {
        match self {
            Operator::Add => "+",
            Operator::Sub => "-",
            Operator::Mul => "*",
            Operator::Div => "/",
            Operator::Mod => "%",
            Operator::Min => "min",
            Operator::Max => "max",
        }
    }

    fn apply(self, left: i64, right: i64) -> Result<i64, Reason> {
        let outcome = match self {
            Operator::Add => left.checked_add(right),
            Operator::Sub => left.checked_sub(right),
            Operator::Mul => left.checked_mul(right),
            Operator::Div | Operator::Mod if right == 0 => return Err(Reason::DivisionByZero),
            Operator::Div => left.checked_div_euclid(right),
            Operator::Mod => left.checked_rem_euclid(right),
            Operator::Min => Some(left.min(right)),
            Operator::Max => Some(left.max(right)),
        };
        outcome.ok_or(Reason::Overflow)
    }

    /// Sums bind weakest, products stronger, calls strongest.
    const fn strength(self) -> u8 {
        match self {
            Operator::Add | Operator::Sub => 1,
            Operator::Mul | Operator::Div | Operator::Mod => 2,
            Operator::Min | Operator::Max => 3,
        }
    }
}

impl Comparison {
    /// The sign in plan text.
    pub const fn sign(self) -> &'static str {
        match self {
            Comparison::Is => "==",
            Comparison::IsNot => "!=",
            Comparison::Below => "<",
            Comparison::AtLeast => ">=",
        }
    }
}

/// What the symbols stand for, and how much evaluation is still allowed.
#[derive(Debug)]
pub(super) struct Scope {
    pub rank: u32,
    pub ranks: u32,
    pub root: Option<u32>,
    pub variables: Vec<(u32, i64)>,
    pub work: u64,
}

impl Scope {
    /// The number that `expr` stands for.
    pub fn value(&mut self, expr: &Expr) -> Result<i64, Reason> {
        self.value_at(expr, 0)
    }

    /// Whether `condition` holds.
    pub fn holds(&mut self, condition: &Condition) -> Result<bool, Reason> {
        let (left, right) = (self.value(&condition.left)?, self.value(&condition.right)?);
        Ok(match condition.comparison {
            Comparison::Is => left == right,
            Comparison::IsNot => left != right,
            Comparison::Below => left < right,
            Comparison::AtLeast => left >= right,
        })
    }

    /// Pay for one unit of expansion.
    pub fn pay(&mut self) -> Result<(), Reason> {
        self.work = self.work.checked_sub(1).ok_or(Reason::TooMuchWork)?;
        Ok(())
    }

    fn value_at(&mut self, expr: &Expr, depth: usize) -> Result<i64, Reason> {
        if depth > MAX_DEPTH {
            return Err(Reason::TooDeep);
        }
        self.pay()?;
        match expr {
            Expr::Constant(value) => Ok(*value),
            Expr::Rank => Ok(self.rank.into()),
            Expr::Ranks => Ok(self.ranks.into()),
            Expr::Root => self.root.map(i64::from).ok_or(Reason::NoRoot),
            Expr::Variable(variable) => self.variable(*variable),
            Expr::Binary(operator, left, right) => {
                let (left, right) = (self.value_at(left, depth + 1)?, self.value_at(right, depth + 1)?);
                operator.apply(left, right)
            }
        }
    }

    fn variable(&self, variable: u32) -> Result<i64, Reason> {
        let bound = self.variables.iter().rev().find(|(name, _)| *name == variable);
        bound.map(|(_, value)| *value).ok_or(Reason::Unbound(variable))
    }
}

impl fmt::Display for Expr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Expr::Constant(value) => value.fmt(f),
            Expr::Rank => f.write_str("rank"),
            Expr::Ranks => f.write_str("ranks"),
            Expr::Root => f.write_str("root"),
            Expr::Variable(variable) => write!(f, "i{variable}"),
            Expr::Binary(call @ (Operator::Min | Operator::Max), left, right) => {
                write!(f, "{}({left}, {right})", call.sign())
            }
            Expr::Binary(operator, left, right) => {
                write_operand(f, left, operator.strength())?;
                write!(f, " {} ", operator.sign())?;
                write_operand(f, right, operator.strength() + 1)
            }
        }
    }
}

/// `expr`, in parentheses if it binds weaker than its surroundings need.
fn write_operand(f: &mut fmt::Formatter<'_>, expr: &Expr, needed: u8) -> fmt::Result {
    match expr {
        Expr::Binary(operator, ..) if operator.strength() < needed => write!(f, "({expr})"),
        _ => write!(f, "{expr}"),
    }
}

impl fmt::Display for Condition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} {}", self.left, self.comparison.sign(), self.right)
    }
}

impl From<i64> for Expr {
    fn from(value: i64) -> Self {
        Expr::Constant(value)
    }
}

impl From<i32> for Expr {
    fn from(value: i32) -> Self {
        Expr::Constant(value.into())
    }
}

impl From<u32> for Expr {
    fn from(value: u32) -> Self {
        Expr::Constant(value.into())
    }
}

impl From<&Expr> for Expr {
    fn from(expr: &Expr) -> Self {
        expr.clone()
    }
}

macro_rules! operators {
    ($($trait:ident $method:ident $operator:ident),*) => {$(
        impl<T: Into<Expr>> $trait<T> for Expr {
            type Output = Expr;
            fn $method(self, other: T) -> Expr {
                binary(Operator::$operator, self, other.into())
            }
        }

        impl<T: Into<Expr>> $trait<T> for &Expr {
            type Output = Expr;
            fn $method(self, other: T) -> Expr {
                binary(Operator::$operator, self.clone(), other.into())
            }
        }

        impl<T: Into<Expr>> $trait<T> for super::Count<'_> {
            type Output = Expr;
            fn $method(self, other: T) -> Expr {
                binary(Operator::$operator, self.into(), other.into())
            }
        }
    )*};
}
operators!(Add add Add, Sub sub Sub, Mul mul Mul, Div div Div, Rem rem Mod);

fn binary(operator: Operator, left: Expr, right: Expr) -> Expr {
    Expr::Binary(operator, Box::new(left), Box::new(right))
}

/// Levels of nesting in one expression.
pub(super) const MAX_DEPTH: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;

    fn scope() -> Scope {
        Scope { rank: 2, ranks: 5, root: None, variables: vec![(0, 7), (1, 9), (0, 8)], work: 1000 }
    }

    #[test]
    fn remainders_are_never_negative() {
        assert_eq!(scope().value(&((Expr::Rank - 4) % Expr::Ranks)), Ok(3));
        assert_eq!(scope().value(&((Expr::Rank - 4) / 3)), Ok(-1));
    }

    #[test]
    fn inner_variables_hide_outer_ones() {
        assert_eq!(scope().value(&(Expr::Variable(0) + Expr::Variable(1))), Ok(17));
    }

    #[test]
    fn impossible_numbers_are_refused() {
        assert_eq!(scope().value(&(Expr::Rank % 0)), Err(Reason::DivisionByZero));
        assert_eq!(scope().value(&(Expr::Rank / 0)), Err(Reason::DivisionByZero));
        assert_eq!(scope().value(&(Expr::Constant(i64::MIN) / -1)), Err(Reason::Overflow));
        assert_eq!(scope().value(&(Expr::Constant(i64::MAX) + 1)), Err(Reason::Overflow));
        assert_eq!(scope().value(&Expr::Root), Err(Reason::NoRoot));
        assert_eq!(scope().value(&Expr::Variable(3)), Err(Reason::Unbound(3)));
    }

    #[test]
    fn evaluation_is_bounded() {
        let deep = (0..MAX_DEPTH + 1).fold(Expr::Rank, |expr, _| expr + 1);
        assert_eq!(scope().value(&deep), Err(Reason::TooDeep));
        let mut tired = Scope { work: 2, ..scope() };
        assert_eq!(tired.value(&(Expr::Rank + 1)), Err(Reason::TooMuchWork));
    }

    #[test]
    fn text_has_only_needed_parentheses() {
        let expr = (Expr::Rank + 1 - (Expr::Root - 2)) % Expr::Ranks * Expr::Variable(3).min(4);
        assert_eq!(expr.to_string(), "(rank + 1 - (root - 2)) % ranks * min(i3, 4)");
        assert_eq!(Expr::Rank.is_not(Expr::Root + 1).to_string(), "rank != root + 1");
    }
}
