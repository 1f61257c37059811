//! The command line: measure, inspect and explain vervain.
//!
//! Exit status: 0 all well; 1 the data was wrong, a plan did not verify or something needed is missing; 2 the options make no
//! sense; 3 a communicator or a peer failed.
#![deny(unsafe_code)]
#![warn(missing_docs)]

mod doctor;
mod exit;
mod launch;
mod machine;
mod p2p;
mod perf;
mod plan;
mod progress;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Measure, inspect and explain vervain: its collectives, and its transport.
#[derive(Debug, Parser)]
#[command(name = "vervain", version, arg_required_else_help = true, after_help = EXAMPLES)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Measure a collective, with the options and columns of nccl-tests
    Perf(Box<perf::Options>),
    /// Measure transfers between two processes, with perftest's columns: latency, bandwidth, message rate
    P2p(Box<p2p::Options>),
    /// Start N processes of any program as the ranks of one job
    Launch(launch::Options),
    /// Show, verify or export a plan: the program that a collective runs
    Plan(plan::Options),
    /// Say what this machine has, what it lacks, and which command would bring it
    Doctor(doctor::Options),
}

const EXAMPLES: &str = "\
Examples:
  vervain perf all_reduce --ranks 4 -b 8 -e 64M -f 4
  vervain p2p write -b 8 -e 16M -f 4
  vervain launch -n 4 -- ./my_program --its-option
  vervain plan verify --collective all_reduce --algo ring --ranks 8
  vervain doctor

Exit status:
  0 all well
  1 wrong data, bad plan or something needed is missing
  2 bad options
  3 a communicator or a peer failed";

fn main() -> ExitCode {
    tracing_subscriber::fmt()
        .with_env_filter(filter())
        .with_writer(std::io::stderr)
        .with_target(false)
        .without_time()
        .init();
    match Arguments::parse().command {
        Command::Perf(options) => perf::run(*options).into(),
        Command::P2p(options) => p2p::run(&options).into(),
        Command::Launch(options) => launch::run(options),
        Command::Plan(options) => plan::run(options).into(),
        Command::Doctor(options) => doctor::run(&options).into(),
    }
}

/// Warnings, unless `VERVAIN_LOG` asks for something else.
fn filter() -> tracing_subscriber::EnvFilter {
    tracing_subscriber::EnvFilter::try_from_env("VERVAIN_LOG").unwrap_or_else(|_| "warn".into())
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    /// What clap takes when the terminal does not say how wide it is; longer lines are broken anywhere.
    const COLUMNS: usize = 100;

    #[test]
    fn examples_of_the_help_are_not_broken_into_two_lines() {
        let command = super::Arguments::command();
        for known in std::iter::once(&command).chain(command.get_subcommands()) {
            let text = known.get_after_help().expect("every command has examples").to_string();
            let long: Vec<_> = text.lines().filter(|line| line.chars().count() > COLUMNS).collect();
            assert!(long.is_empty(), "{}: {long:#?}", known.get_name());
        }
    }
}
