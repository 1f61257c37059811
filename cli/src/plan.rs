//! `vervain plan`: look at the program that a collective runs, and have it verified.

use std::io::Write;
use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};
use vervain_collectives::plan::{self, Algorithm, Plan, Ranks};
use vervain_collectives::{Collective, Rank};

use crate::exit::{Failure, Status, conclude};
use crate::perf;

/// `vervain plan`.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  vervain plan show --collective all_reduce --algo ring --ranks 4
  vervain plan verify --collective broadcast --algo ring --ranks 1..16
  vervain plan export --collective all_reduce --algo two_shot > plan.json
  vervain plan verify plan.json --ranks 8

Exit status: 0 all well, 1 the plan has a defect, 2 bad options or no such plan.")]
pub struct Options {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Print a plan: its symbolic form, and each rank's steps
    Show(Show),
    /// Prove that a plan does what its collective promises, or say what is wrong
    Verify(Verify),
    /// Print a plan as JSON
    Export(Source),
}

/// Which plan.
#[derive(Args, Debug)]
struct Source {
    /// A plan as JSON
    #[arg(value_name = "FILE", required_unless_present_all = ["collective", "algo"], conflicts_with_all = ["collective", "algo"])]
    file: Option<PathBuf>,
    /// A built-in plan: for this collective
    #[arg(long, value_name = "NAME", value_parser = collective, requires = "algo")]
    collective: Option<Collective>,
    /// A built-in plan: by this algorithm
    #[arg(long, value_name = "NAME", value_parser = perf::algorithm, requires = "collective")]
    algo: Option<Algorithm>,
}

#[derive(Args, Debug)]
struct Show {
    #[command(flatten)]
    source: Source,
    /// How many ranks
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=4096))]
    ranks: u32,
    /// The root, for collectives that have one
    #[arg(long, value_name = "RANK", default_value_t = 0)]
    root: u32,
}

#[derive(Args, Debug)]
struct Verify {
    #[command(flatten)]
    source: Source,
    /// How many ranks: N, or FIRST..LAST to verify for each number from first to last
    #[arg(long, value_name = "N|A..B", default_value = "1..8", value_parser = ranks)]
    ranks: (u32, u32),
}

/// More ranks than this take too long.
const MOST_RANKS: u32 = 4096;

/// Do what the options ask for.
pub fn run(options: Options) -> Status {
    conclude(match options.command {
        Command::Show(show) => print_plan(&show),
        Command::Verify(verify) => print_verdict(&verify),
        Command::Export(source) => source.plan().and_then(|plan| print(&(plan.to_json() + "\n"))),
    })
}

fn print_plan(options: &Show) -> Result<Status, Failure> {
    let plan = options.source.plan()?;
    let root = has_root(plan.collective).then(|| Rank::new(options.root));
    if root.is_some() && options.root >= options.ranks {
        return Err(Failure::usage(format!("--root {} is not one of {} ranks", options.root, options.ranks)));
    }
    let text = plan::show(&plan, options.ranks, root).map_err(|defect| Failure::wrong(defect.to_string()))?;
    print(&text)
}

fn print_verdict(options: &Verify) -> Result<Status, Failure> {
    let plan = options.source.plan()?;
    let (first, last) = options.ranks;
    let verified = plan.verify(Ranks::range(first..=last)).map_err(|defect| Failure::wrong(defect.to_string()))?;
    let ranks = if first == last { format!("{first} ranks") } else { format!("{first} to {last} ranks") };
    let mut text = format!(
        "plan {:?} is right for {} with {ranks}: every output holds what it should, nobody waits for ever, no access races\n",
        plan.name, plan.collective
    );
    match verified.in_place() {
        Ok(()) => text.push_str("input and output may be one buffer\n"),
        Err(defect) => text += &format!("input and output must be separate: {defect}\n"),
    }
    print(&text)
}

fn print(text: &str) -> Result<Status, Failure> {
    std::io::stdout()
        .write_all(text.as_bytes())
        .map_err(|error| Failure::failed(format!("standard output: {error}")))?;
    Ok(Status::Fine)
}

const fn has_root(collective: Collective) -> bool {
    matches!(collective, Collective::Broadcast | Collective::Reduce)
}

impl Source {
    fn plan(&self) -> Result<Plan, Failure> {
        match (&self.file, self.collective, self.algo) {
            (Some(file), ..) => read(file),
            (None, Some(collective), Some(algorithm)) => plan::builders::plan(collective, algorithm)
                .ok_or_else(|| Failure::usage(format!("there is no {algorithm} plan for {collective}"))),
            _ => Err(Failure::usage("name a FILE, or --collective and --algo")),
        }
    }
}

/// The plan in a JSON file.
pub fn read(file: &Path) -> Result<Plan, Failure> {
    let text = std::fs::read_to_string(file)
        .map_err(|error| Failure::usage(format!("{} cannot be read: {error}", file.display())))?;
    Plan::from_json(&text).map_err(|problem| Failure::usage(format!("{} is not a plan: {problem}", file.display())))
}

fn collective(text: &str) -> Result<Collective, String> {
    text.parse().map_err(|_| {
        let names: Vec<_> = Collective::ALL.iter().map(|collective| collective.name()).collect();
        format!("there is no such collective; there are {}", names.join(", "))
    })
}

fn ranks(text: &str) -> Result<(u32, u32), String> {
    let number = |text: &str| text.parse::<u32>().ok().filter(|ranks| (1..=MOST_RANKS).contains(ranks));
    let (first, last) = text.split_once("..").unwrap_or((text, text));
    match (number(first), number(last.trim_start_matches('='))) {
        (Some(first), Some(last)) if first <= last => Ok((first, last)),
        _ => Err(format!("write a number of ranks from 1 to {MOST_RANKS}, or a range such as 1..16")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_are_a_number_or_a_range() {
        assert_eq!(ranks("8"), Ok((8, 8)));
        assert_eq!(ranks("1..16"), Ok((1, 16)));
        assert_eq!(ranks("2..=3"), Ok((2, 3)));
        for text in ["", "0", "3..2", "1..5000", "x", "1..", "..4", "-1"] {
            assert!(ranks(text).unwrap_err().contains("1..16"), "{text}");
        }
    }

    #[test]
    fn collectives_are_known_by_name() {
        assert_eq!(collective("all_reduce"), Ok(Collective::AllReduce));
        assert!(collective("hypercube").unwrap_err().contains("broadcast"));
    }
}
