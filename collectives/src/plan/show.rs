//! Plans and programs as text, for people.

use core::fmt::{self, Write};

use vervain_transport::Rank;

use super::program::{Buffer, Place, Program, Step};
use super::{Defect, Instruction, Operand, Plan, Statement, name};

/// A plan as text: the symbolic form, every rank's steps, and a table of who moves what from where to where at each step.
pub fn show(plan: &Plan, ranks: u32, root: Option<Rank>) -> Result<String, Defect> {
    let programs: Vec<_> =
        (0..ranks).map(|rank| plan.expand(Rank::new(rank), ranks, root)).collect::<Result<_, _>>()?;
    let mut text = format!("{plan}\n");
    for program in programs.iter().take(MOST_SHOWN) {
        let _ = writeln!(text, "{program}");
    }
    text.push_str(&table(&programs));
    Ok(text)
}

/// One row per step, one column per rank.
fn table(programs: &[Program]) -> String {
    let shown = &programs[..programs.len().min(MOST_SHOWN)];
    let lanes = shown.iter().map(|program| program.lanes.len()).max().unwrap_or(0);
    let mut text = String::new();
    for lane in 0..lanes {
        let columns: Vec<Vec<String>> = shown.iter().map(|program| column(program, lane)).collect();
        let rows = columns.iter().map(Vec::len).max().unwrap_or(0);
        let width = columns.iter().flatten().map(String::len).max().unwrap_or(0).max(7);
        let _ = write!(text, "lane {lane}, step");
        for program in shown {
            let _ = write!(text, "  {:width$}", format!("rank {}", program.rank));
        }
        for row in 0..rows {
            let _ = write!(text, "\n{row:>12}");
            for column in &columns {
                let _ = write!(text, "  {:width$}", column.get(row).map_or("", String::as_str));
            }
        }
        text.push('\n');
    }
    if shown.len() < programs.len() {
        let _ = writeln!(text, "({} more ranks are not shown)", programs.len() - shown.len());
    }
    text.lines().map(|line| format!("{}\n", line.trim_end())).collect()
}

fn column(program: &Program, lane: usize) -> Vec<String> {
    program.lanes.get(lane).into_iter().flatten().map(cell).collect()
}

fn cell(step: &Step) -> String {
    match step {
        Step::Move { sources, destinations, .. } => format!("{}>{}", brief(sources), brief(destinations)),
        Step::Signal { peer } => format!("signal r{peer}"),
        Step::Wait { peer } => format!("wait r{peer}"),
        Step::Enter | Step::Leave => name::of_step(step).to_owned(),
    }
}

fn brief(places: &[Place]) -> String {
    let one = |place: &Place| match place {
        Place::Local { buffer, chunk } => format!("{}{chunk}", letters(*buffer)),
        Place::Direct { rank, buffer, chunk } => format!("{}{chunk}@r{rank}", letters(*buffer)),
        Place::Connection { peer } => format!("r{peer}"),
    };
    match places {
        [first, .., last] if places.len() > 3 => format!("{}..{}", one(first), one(last)),
        places => places.iter().map(one).collect::<Vec<_>>().join("+"),
    }
}

const fn letters(buffer: Buffer) -> &'static str {
    match buffer {
        Buffer::Input => "in",
        Buffer::Output => "out",
        Buffer::Scratch => "tmp",
    }
}

impl fmt::Display for Program {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Program { collective, rank, ranks, chunks, scratch, .. } = self;
        writeln!(f, "rank {rank} of {ranks}: {collective}, {chunks} chunks a block, {scratch} of scratch")?;
        for (lane, steps) in self.lanes.iter().enumerate() {
            writeln!(f, "  lane {lane}")?;
            for (index, step) in steps.iter().enumerate() {
                writeln!(f, "{index:>6}  {step}")?;
            }
        }
        Ok(())
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = name::of_step(self);
        match self {
            Step::Move { sources, destinations, complete } => {
                write!(f, "{name:<22}{} -> {}", Commas(sources), Commas(destinations))?;
                f.write_str(if *complete { "  (complete)" } else { "" })
            }
            Step::Signal { peer } | Step::Wait { peer } => write!(f, "{name:<22}rank {peer}"),
            Step::Enter | Step::Leave => f.write_str(name),
        }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Place::Local { buffer, chunk } => write!(f, "{buffer}[{chunk}]"),
            Place::Direct { rank, buffer, chunk } => write!(f, "{buffer}[{chunk}] of rank {rank}"),
            Place::Connection { peer } => write!(f, "rank {peer}"),
        }
    }
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Plan { name, collective, chunks, scratch, lanes } = self;
        writeln!(f, "plan {name:?} ({:016x}): {collective}", self.hash())?;
        writeln!(f, "chunks a block: {chunks}; scratch: {scratch}")?;
        for (index, lane) in lanes.iter().enumerate() {
            writeln!(f, "lane {index}")?;
            body(f, lane, 1)?;
        }
        Ok(())
    }
}

fn body(f: &mut fmt::Formatter<'_>, statements: &[Statement], depth: usize) -> fmt::Result {
    let indent = "  ".repeat(depth);
    for statement in statements {
        match statement {
            Statement::Instruction(instruction) => writeln!(f, "{indent}{instruction}")?,
            Statement::For { variable, count, body: inner } => {
                writeln!(f, "{indent}for i{variable} below {count}")?;
                body(f, inner, depth + 1)?;
            }
            Statement::When { condition, then, otherwise } => {
                writeln!(f, "{indent}when {condition}")?;
                body(f, then, depth + 1)?;
                if !otherwise.is_empty() {
                    writeln!(f, "{indent}else")?;
                    body(f, otherwise, depth + 1)?;
                }
            }
        }
    }
    Ok(())
}

impl fmt::Display for Instruction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Instruction::Move { sources, destinations, complete } => {
                let name = name::of_operands(sources, destinations);
                write!(f, "{name} {} -> {}", Commas(sources), Commas(destinations))?;
                f.write_str(if *complete { "  (complete)" } else { "" })
            }
            Instruction::Enter => f.write_str("enter"),
            Instruction::Leave => f.write_str("leave"),
            Instruction::Signal { peer } => write!(f, "signal rank {peer}"),
            Instruction::Wait { peer } => write!(f, "wait rank {peer}"),
        }
    }
}

impl fmt::Display for Operand {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Operand::Local { buffer, chunk } => write!(f, "{buffer}[{chunk}]"),
            Operand::Direct { rank, buffer, chunk } => write!(f, "{buffer}[{chunk}] of rank {rank}"),
            Operand::Connection { peer } => write!(f, "rank {peer}"),
            Operand::Each { variable, count, operand } => write!(f, "({operand} for each i{variable} below {count})"),
        }
    }
}

struct Commas<'a, T>(&'a [T]);

impl<T: fmt::Display> fmt::Display for Commas<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, item) in self.0.iter().enumerate() {
            write!(f, "{}{item}", if index == 0 { "" } else { ", " })?;
        }
        Ok(())
    }
}

/// Ranks whose steps are shown; more do not fit on a screen.
const MOST_SHOWN: usize = 16;

#[cfg(test)]
mod tests {
    use super::super::{Algorithm, builders};
    use super::*;
    use crate::Collective;

    #[test]
    fn a_ring_reads_like_a_ring() {
        let ring = builders::plan(Collective::AllReduce, Algorithm::Ring).unwrap();
        let text = show(&ring, 3, None).unwrap();
        for line in [
            "  when ranks == 1",
            "    send input[(rank - 1) % ranks] -> rank (rank + 1) % ranks",
            "    for i0 below ranks - 2",
            "rank 2 of 3: all_reduce, 3 chunks a block, 0 of scratch",
            "     2  recv_reduce_copy_send rank 1, input[2] -> output[2], rank 0  (complete)",
            "     4  recv                  rank 1 -> output[0]",
            "           2  r2+in0>out0+r1  r0+in1>out1+r2  r1+in2>out2+r0",
        ] {
            assert!(text.lines().any(|shown| shown == line), "{line:?} is not in\n{text}");
        }
    }

    #[test]
    fn long_lists_and_many_ranks_are_cut() {
        let direct = builders::plan(Collective::AllReduce, Algorithm::Direct).unwrap();
        let text = show(&direct, 20, None).unwrap();
        assert!(text.contains("in3@r0..in3@r19>out3..out3@r2"), "{text}");
        assert!(text.contains("(4 more ranks are not shown)"));
    }
}
