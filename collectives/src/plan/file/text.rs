//! Expressions and conditions from text. The text is short, which also bounds the depth.

use super::super::expr::MAX_DEPTH;
use super::super::{Comparison, Condition, Expr, Operator};

/// The expression that `text` is.
pub(super) fn expr(text: &str) -> Result<Expr, String> {
    let mut parser = Parser::new(text)?;
    let expr = parser.sum(0)?;
    parser.end()?;
    Ok(expr)
}

/// The condition that `text` is.
pub(super) fn condition(text: &str) -> Result<Condition, String> {
    let mut parser = Parser::new(text)?;
    let left = parser.sum(0)?;
    let comparison = parser.comparison()?;
    let right = parser.sum(0)?;
    parser.end()?;
    Ok(Condition { left, comparison, right })
}

/// The number of the variable that `text` names.
pub(super) fn variable(text: &str) -> Result<u32, String> {
    let number = text.strip_prefix('i').filter(|digits| digits.bytes().all(|byte| byte.is_ascii_digit()));
    number
        .and_then(|digits| digits.parse().ok())
        .ok_or_else(|| format!("{text:?} is no variable; they are i0, i1, ..."))
}

struct Parser<'a> {
    rest: &'a str,
}

impl<'a> Parser<'a> {
    fn new(text: &'a str) -> Result<Self, String> {
        if text.len() > MAX_TEXT {
            return Err(format!("an expression has {} bytes; the limit is {MAX_TEXT}", text.len()));
        }
        Ok(Self { rest: text.trim_start() })
    }

    fn sum(&mut self, depth: usize) -> Result<Expr, String> {
        self.chain(depth, &[Operator::Add, Operator::Sub], Self::product)
    }

    fn product(&mut self, depth: usize) -> Result<Expr, String> {
        self.chain(depth, &[Operator::Mul, Operator::Div, Operator::Mod], Self::atom)
    }

    /// Items with operators between them, combined from the left.
    fn chain(
        &mut self,
        depth: usize,
        operators: &[Operator],
        item: fn(&mut Self, usize) -> Result<Expr, String>,
    ) -> Result<Expr, String> {
        let mut left = item(self, depth)?;
        while let Some(&operator) = operators.iter().find(|operator| self.rest.starts_with(operator.sign())) {
            self.take(operator.sign());
            left = Expr::Binary(operator, Box::new(left), Box::new(item(self, depth)?));
        }
        Ok(left)
    }

    fn atom(&mut self, depth: usize) -> Result<Expr, String> {
        if depth > MAX_DEPTH {
            return Err("parentheses are nested too deeply".to_owned());
        }
        if self.take("(") {
            let inner = self.sum(depth + 1)?;
            return self.expect(")").map(|()| inner);
        }
        let end = |c: char| !c.is_ascii_alphanumeric() && c != '-';
        let word = match self.rest.strip_prefix('-') {
            Some(digits) => &self.rest[..1 + digits.find(|c: char| !c.is_ascii_digit()).unwrap_or(digits.len())],
            None => &self.rest[..self.rest.find(|c| end(c) || c == '-').unwrap_or(self.rest.len())],
        };
        self.take(word);
        match word {
            "rank" => Ok(Expr::Rank),
            "ranks" => Ok(Expr::Ranks),
            "root" => Ok(Expr::Root),
            "min" => self.call(Operator::Min, depth),
            "max" => self.call(Operator::Max, depth),
            "" => Err(self.expected("a number, rank, ranks, root, a variable, min, max or '('")),
            name if name.starts_with('i') => variable(name).map(Expr::Variable),
            number => {
                number.parse().map(Expr::Constant).map_err(|_| format!("{number:?} is neither a number nor a name"))
            }
        }
    }

    fn call(&mut self, operator: Operator, depth: usize) -> Result<Expr, String> {
        self.expect("(")?;
        let left = self.sum(depth + 1)?;
        self.expect(",")?;
        let right = self.sum(depth + 1)?;
        self.expect(")")?;
        Ok(Expr::Binary(operator, Box::new(left), Box::new(right)))
    }

    fn comparison(&mut self) -> Result<Comparison, String> {
        let all = [Comparison::Is, Comparison::IsNot, Comparison::AtLeast, Comparison::Below];
        let found = all.into_iter().find(|comparison| self.take(comparison.sign()));
        found.ok_or_else(|| self.expected("==, !=, < or >="))
    }

    /// Go past `token`, and the blanks behind it, if it comes next.
    fn take(&mut self, token: &str) -> bool {
        let rest = self.rest.strip_prefix(token);
        self.rest = rest.unwrap_or(self.rest).trim_start();
        rest.is_some()
    }

    fn expect(&mut self, token: &str) -> Result<(), String> {
        if self.take(token) { Ok(()) } else { Err(self.expected(&format!("{token:?}"))) }
    }

    fn end(&self) -> Result<(), String> {
        if self.rest.is_empty() { Ok(()) } else { Err(self.expected("nothing more")) }
    }

    fn expected(&self, what: &str) -> String {
        format!("expected {what}, found {:?}", self.rest.chars().take(20).collect::<String>())
    }
}

/// Bytes of one expression.
const MAX_TEXT: usize = 1024;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_reads_back_as_written() {
        for text in [
            "0",
            "-9223372036854775808",
            "rank",
            "i4294967295",
            "(rank + 1 - (root - 2)) % ranks * min(i3, -4)",
            "rank - -1",
            "a".replace('a', "max(min(1, 2), 3 / (4 / 5))").as_str(),
        ] {
            assert_eq!(expr(text).unwrap().to_string(), text);
        }
        assert_eq!(expr(" (((rank)))+1 ").unwrap(), Expr::Rank + 1);
        assert_eq!(expr("rank-1").unwrap(), Expr::Rank - 1);
        for text in ["rank == 0", "rank != root", "i0 < ranks - 1", "rank + 1 >= 2"] {
            assert_eq!(condition(text).unwrap().to_string(), text);
        }
    }

    #[test]
    fn nonsense_is_refused() {
        let long = "1+".repeat(600) + "1";
        let deep = "(".repeat(100) + "1" + &")".repeat(100);
        for text in [
            "",
            " ",
            "-",
            "rank +",
            "rank rank",
            "i",
            "ix",
            "i4294967296",
            "9223372036854775808",
            "(1",
            "min(1)",
            "1)",
            "ä",
            "rank ä",
            &long,
            &deep,
        ] {
            assert!(expr(text).is_err(), "{text}");
        }
        for text in ["rank", "rank = 1", "rank > 1", "1 == ", "1 == 2 == 3"] {
            assert!(condition(text).is_err(), "{text}");
        }
    }
}
