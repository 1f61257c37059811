//! The identity of a plan: 64 bits over its canonical bytes, equal on every machine.

use super::{Condition, Expr, Instruction, Operand, Plan, Statement};

impl Plan {
    /// 64 bits that are equal for equal plans, in every run and on every machine, and differ, but for luck, for different ones.
    pub fn hash(&self) -> u64 {
        let mut bytes = Bytes(FNV_START);
        bytes.number(VERSION);
        bytes.text(&self.name);
        bytes.text(self.collective.name());
        bytes.expr(&self.chunks);
        bytes.expr(&self.scratch);
        bytes.list(&self.lanes, |bytes, lane| bytes.statements(lane));
        bytes.finish()
    }
}

/// The running hash (FNV-1a) of the bytes so far. Every item begins with a tag and every list with its length, so that no two plans have the same bytes.
struct Bytes(u64);

impl Bytes {
    fn byte(&mut self, byte: u8) {
        self.0 = (self.0 ^ u64::from(byte)).wrapping_mul(FNV_PRIME);
    }

    fn number(&mut self, number: u64) {
        number.to_le_bytes().into_iter().for_each(|byte| self.byte(byte));
    }

    fn text(&mut self, text: &str) {
        self.number(text.len() as u64);
        text.bytes().for_each(|byte| self.byte(byte));
    }

    fn list<T>(&mut self, items: &[T], each: impl Fn(&mut Self, &T)) {
        self.number(items.len() as u64);
        items.iter().for_each(|item| each(self, item));
    }

    fn statements(&mut self, body: &[Statement]) {
        self.list(body, Self::statement);
    }

    fn statement(&mut self, statement: &Statement) {
        match statement {
            Statement::Instruction(instruction) => self.instruction(instruction),
            Statement::For { variable, count, body } => {
                self.byte(10);
                self.number((*variable).into());
                self.expr(count);
                self.statements(body);
            }
            Statement::When { condition, then, otherwise } => {
                self.byte(11);
                self.condition(condition);
                self.statements(then);
                self.statements(otherwise);
            }
        }
    }

    fn instruction(&mut self, instruction: &Instruction) {
        match instruction {
            Instruction::Move { sources, destinations, complete } => {
                self.byte(if *complete { 21 } else { 20 });
                self.list(sources, Self::operand);
                self.list(destinations, Self::operand);
            }
            Instruction::Enter => self.byte(22),
            Instruction::Leave => self.byte(23),
            Instruction::Signal { peer } => {
                self.byte(24);
                self.expr(peer);
            }
            Instruction::Wait { peer } => {
                self.byte(25);
                self.expr(peer);
            }
        }
    }

    fn operand(&mut self, operand: &Operand) {
        match operand {
            Operand::Local { buffer, chunk } => {
                self.byte(30);
                self.byte(*buffer as u8);
                self.expr(chunk);
            }
            Operand::Direct { rank, buffer, chunk } => {
                self.byte(31);
                self.expr(rank);
                self.byte(*buffer as u8);
                self.expr(chunk);
            }
            Operand::Connection { peer } => {
                self.byte(32);
                self.expr(peer);
            }
            Operand::Each { variable, count, operand } => {
                self.byte(33);
                self.number((*variable).into());
                self.expr(count);
                self.operand(operand);
            }
        }
    }

    fn condition(&mut self, condition: &Condition) {
        self.byte(condition.comparison as u8);
        self.expr(&condition.left);
        self.expr(&condition.right);
    }

    fn expr(&mut self, expr: &Expr) {
        match expr {
            Expr::Constant(value) => {
                self.byte(40);
                self.number(value.cast_unsigned());
            }
            Expr::Rank => self.byte(41),
            Expr::Ranks => self.byte(42),
            Expr::Root => self.byte(43),
            Expr::Variable(variable) => {
                self.byte(44);
                self.number((*variable).into());
            }
            Expr::Binary(operator, left, right) => {
                self.byte(45);
                self.byte(*operator as u8);
                self.expr(left);
                self.expr(right);
            }
        }
    }

    /// FNV's low bits are good, its high bits less so: fold them.
    fn finish(self) -> u64 {
        let mixed = (self.0 ^ (self.0 >> 33)).wrapping_mul(0xff51_afd7_ed55_8ccd);
        mixed ^ (mixed >> 33)
    }
}

/// Of the canonical bytes; another layout is another number.
const VERSION: u64 = 1;
const FNV_START: u64 = 0xcbf2_9ce4_8422_2325;
const FNV_PRIME: u64 = 0x0100_0000_01b3;
