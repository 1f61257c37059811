//! Plan to JSON, a statement per line.

use serde_json::{Value, json};

use super::super::program::Buffer;
use super::super::{Instruction, Operand, Plan, Statement, name};
use super::VERSION;

pub(super) fn plan(plan: &Plan) -> String {
    let lanes: Vec<String> = plan.lanes.iter().map(|lane| format!("    [\n{}    ]", body(lane, 3))).collect();
    format!(
        "{{\n  \"vervain_plan\": {VERSION},\n  \"name\": {},\n  \"collective\": {},\n  \"chunks\": {},\n  \"scratch\": {},\n  \"lanes\": [\n{}\n  ]\n}}\n",
        json!(plan.name),
        json!(plan.collective),
        json!(plan.chunks.to_string()),
        json!(plan.scratch.to_string()),
        lanes.join(",\n"),
    )
}

/// The statements, each on lines of its own.
fn body(statements: &[Statement], depth: usize) -> String {
    let lines: Vec<String> = statements.iter().map(|line| statement(line, depth)).collect();
    if lines.is_empty() { String::new() } else { lines.join(",\n") + "\n" }
}

fn statement(statement: &Statement, depth: usize) -> String {
    let indent = "  ".repeat(depth);
    let block = |statements| format!("[\n{}{indent}]", body(statements, depth + 1));
    match statement {
        Statement::Instruction(line) => format!("{indent}{}", instruction(line)),
        Statement::For { variable, count, body } => format!(
            "{indent}{{\"for\": \"i{variable}\", \"below\": {}, \"body\": {}}}",
            json!(count.to_string()),
            block(body)
        ),
        Statement::When { condition, then, otherwise } => format!(
            "{indent}{{\"when\": {}, \"then\": {}, \"else\": {}}}",
            json!(condition.to_string()),
            block(then),
            block(otherwise)
        ),
    }
}

fn instruction(instruction: &Instruction) -> String {
    match instruction {
        Instruction::Move { sources, destinations, complete } => {
            let name = name::of_operands(sources, destinations);
            let complete = if *complete { ", \"complete\": true" } else { "" };
            format!("{{\"do\": \"{name}\", \"from\": {}, \"to\": {}{complete}}}", list(sources), list(destinations))
        }
        Instruction::Enter => "{\"do\": \"enter\"}".to_owned(),
        Instruction::Leave => "{\"do\": \"leave\"}".to_owned(),
        Instruction::Signal { peer } => format!("{{\"do\": \"signal\", \"peer\": {}}}", json!(peer.to_string())),
        Instruction::Wait { peer } => format!("{{\"do\": \"wait\", \"peer\": {}}}", json!(peer.to_string())),
    }
}

fn list(operands: &[Operand]) -> Value {
    operands.iter().map(operand).collect()
}

fn operand(place: &Operand) -> Value {
    match place {
        Operand::Local { buffer, chunk } => json!({"buffer": named(*buffer), "chunk": chunk.to_string()}),
        Operand::Direct { rank, buffer, chunk } => {
            json!({"rank": rank.to_string(), "buffer": named(*buffer), "chunk": chunk.to_string()})
        }
        Operand::Connection { peer } => json!({"peer": peer.to_string()}),
        Operand::Each { variable, count, operand: inner } => {
            json!({"each": format!("i{variable}"), "below": count.to_string(), "operand": operand(inner)})
        }
    }
}

fn named(buffer: Buffer) -> String {
    buffer.to_string()
}
