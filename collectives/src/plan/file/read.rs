//! JSON to plan: every field is looked for, none may be left over. A defect's path is put together on the way out.

use serde_json::{Map, Value};

use super::super::expand::{MAX_LANES, MAX_NESTING};
use super::super::program::Buffer;
use super::super::{Condition, Expr, Instruction, Operand, Plan, Statement, name};
use super::{VERSION, Wrong, text};
use crate::Collective;

/// The plan that a document is.
pub(super) fn plan(document: &str) -> Result<Plan, Wrong> {
    if document.len() > MAX_DOCUMENT {
        return Err(Wrong::new(format!("the file has {} bytes; the limit is {MAX_DOCUMENT}", document.len())));
    }
    let value: Value = serde_json::from_str(document).map_err(|error| Wrong::new(format!("no JSON: {error}")))?;
    let mut fields = Fields::of(&value)?;
    fields.read("vervain_plan", version)?;
    let plan = Plan {
        name: fields.read("name", plan_name)?,
        collective: fields.read("collective", collective)?,
        chunks: fields.read("chunks", expr)?,
        scratch: fields.read("scratch", expr)?,
        lanes: fields.read("lanes", lanes)?,
    };
    fields.end()?;
    Ok(plan)
}

fn version(value: &Value) -> Result<(), Wrong> {
    match value.as_u64() {
        Some(VERSION) => Ok(()),
        _ => Err(Wrong::new(format!("version {} is not known; this release reads {VERSION}", brief(value)))),
    }
}

fn plan_name(value: &Value) -> Result<String, Wrong> {
    let name = string(value)?;
    if name.len() > MAX_NAME {
        return Err(Wrong::new(format!("the name has {} bytes; the limit is {MAX_NAME}", name.len())));
    }
    Ok(name.to_owned())
}

fn collective(value: &Value) -> Result<Collective, Wrong> {
    let name = string(value)?;
    let found = Collective::ALL.iter().find(|collective| collective.name() == name);
    found.copied().ok_or_else(|| Wrong::new(format!("{name:?} is no collective")))
}

fn lanes(value: &Value) -> Result<Vec<Vec<Statement>>, Wrong> {
    let lanes = list(value, |lane| body(lane, 0))?;
    if lanes.is_empty() || lanes.len() as i64 > MAX_LANES {
        return Err(Wrong::new(format!("there are {} lanes; 1 to {MAX_LANES} are possible", lanes.len())));
    }
    Ok(lanes)
}

fn body(value: &Value, depth: usize) -> Result<Vec<Statement>, Wrong> {
    if depth > MAX_NESTING {
        return Err(Wrong::new(format!("statements are nested more than {MAX_NESTING} deep")));
    }
    list(value, |value| statement(value, depth))
}

fn statement(value: &Value, depth: usize) -> Result<Statement, Wrong> {
    let mut fields = Fields::of(value)?;
    let inner = |value: &Value| body(value, depth + 1);
    let statement = if fields.has("for") {
        Statement::For {
            variable: fields.read("for", variable)?,
            count: fields.read("below", expr)?,
            body: fields.read("body", inner)?,
        }
    } else if fields.has("when") {
        Statement::When {
            condition: fields.read("when", condition)?,
            then: fields.read("then", inner)?,
            otherwise: if fields.has("else") { fields.read("else", inner)? } else { Vec::new() },
        }
    } else {
        Statement::Instruction(instruction(&mut fields)?)
    };
    fields.end()?;
    Ok(statement)
}

fn instruction(fields: &mut Fields<'_>) -> Result<Instruction, Wrong> {
    match fields.read("do", string)? {
        "enter" => Ok(Instruction::Enter),
        "leave" => Ok(Instruction::Leave),
        "signal" => Ok(Instruction::Signal { peer: fields.read("peer", expr)? }),
        "wait" => Ok(Instruction::Wait { peer: fields.read("peer", expr)? }),
        name => move_called(name, fields),
    }
}

fn move_called(given: &str, fields: &mut Fields<'_>) -> Result<Instruction, Wrong> {
    let sources = fields.read("from", operands)?;
    let destinations = fields.read("to", operands)?;
    let complete = if fields.has("complete") { fields.read("complete", boolean)? } else { false };
    let fitting = name::of_operands(&sources, &destinations);
    if given != fitting {
        return Err(Wrong::new(format!("{given:?} does not fit its operands, which make it {fitting:?}")).under("do"));
    }
    Ok(Instruction::Move { sources, destinations, complete })
}

fn operands(value: &Value) -> Result<Vec<Operand>, Wrong> {
    list(value, |value| operand(value, 0))
}

fn operand(value: &Value, depth: usize) -> Result<Operand, Wrong> {
    if depth > MAX_NESTING {
        return Err(Wrong::new(format!("operands are nested more than {MAX_NESTING} deep")));
    }
    let mut fields = Fields::of(value)?;
    let operand = if fields.has("each") {
        Operand::Each {
            variable: fields.read("each", variable)?,
            count: fields.read("below", expr)?,
            operand: fields.read("operand", |value| operand(value, depth + 1).map(Box::new))?,
        }
    } else if fields.has("peer") {
        Operand::Connection { peer: fields.read("peer", expr)? }
    } else {
        place(&mut fields)?
    };
    fields.end()?;
    Ok(operand)
}

fn place(fields: &mut Fields<'_>) -> Result<Operand, Wrong> {
    let buffer = fields.read("buffer", buffer)?;
    let chunk = fields.read("chunk", expr)?;
    if fields.has("rank") {
        return Ok(Operand::Direct { rank: fields.read("rank", expr)?, buffer, chunk });
    }
    Ok(Operand::Local { buffer, chunk })
}

fn buffer(value: &Value) -> Result<Buffer, Wrong> {
    match string(value)? {
        "input" => Ok(Buffer::Input),
        "output" => Ok(Buffer::Output),
        "scratch" => Ok(Buffer::Scratch),
        name => Err(Wrong::new(format!("{name:?} is no buffer; they are input, output, scratch"))),
    }
}

/// An expression; a plain number is one too.
fn expr(value: &Value) -> Result<Expr, Wrong> {
    match value.as_i64() {
        Some(number) => Ok(Expr::Constant(number)),
        None => text::expr(string(value)?).map_err(Wrong::new),
    }
}

fn condition(value: &Value) -> Result<Condition, Wrong> {
    text::condition(string(value)?).map_err(Wrong::new)
}

fn variable(value: &Value) -> Result<u32, Wrong> {
    text::variable(string(value)?).map_err(Wrong::new)
}

fn string(value: &Value) -> Result<&str, Wrong> {
    value.as_str().ok_or_else(|| Wrong::new(format!("expected a string, found {}", brief(value))))
}

fn boolean(value: &Value) -> Result<bool, Wrong> {
    value.as_bool().ok_or_else(|| Wrong::new(format!("expected true or false, found {}", brief(value))))
}

fn list<T>(value: &Value, mut each: impl FnMut(&Value) -> Result<T, Wrong>) -> Result<Vec<T>, Wrong> {
    let items = value.as_array().ok_or_else(|| Wrong::new(format!("expected a list, found {}", brief(value))))?;
    let read = |(index, item)| each(item).map_err(|wrong| wrong.under(&format!("[{index}]")));
    items.iter().enumerate().map(read).collect()
}

/// The beginning of a value's text.
fn brief(value: &Value) -> String {
    value.to_string().chars().take(40).collect()
}

/// The fields of an object, and which of them have been read.
struct Fields<'a> {
    map: &'a Map<String, Value>,
    read: Vec<&'static str>,
}

impl<'a> Fields<'a> {
    fn of(value: &'a Value) -> Result<Self, Wrong> {
        let map = value.as_object().ok_or_else(|| Wrong::new(format!("expected an object, found {}", brief(value))))?;
        Ok(Self { map, read: Vec::new() })
    }

    fn has(&self, key: &str) -> bool {
        self.map.contains_key(key)
    }

    fn read<T>(&mut self, key: &'static str, read: impl FnOnce(&'a Value) -> Result<T, Wrong>) -> Result<T, Wrong> {
        let value = self.map.get(key).ok_or_else(|| Wrong::new(format!("{key:?} is missing")))?;
        self.read.push(key);
        read(value).map_err(|wrong| wrong.under(key))
    }

    fn end(&self) -> Result<(), Wrong> {
        match self.map.keys().find(|key| !self.read.contains(&key.as_str())) {
            Some(key) => {
                Err(Wrong::new("is not known here".to_owned()).under(&key.chars().take(40).collect::<String>()))
            }
            None => Ok(()),
        }
    }
}

impl Wrong {
    fn new(problem: String) -> Self {
        Self { path: String::new(), problem }
    }

    /// The same, seen from one level further out.
    fn under(self, key: &str) -> Self {
        let dot = if self.path.is_empty() || self.path.starts_with('[') { "" } else { "." };
        Self { path: format!("{key}{dot}{}", self.path), ..self }
    }
}

/// Bytes of a plan file.
const MAX_DOCUMENT: usize = 1 << 20;
/// Bytes of a plan's name.
const MAX_NAME: usize = 128;
