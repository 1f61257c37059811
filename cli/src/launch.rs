//! `vervain launch`: any program as the ranks of one job on this host.

use std::ffi::OsString;
use std::os::unix::process::ExitStatusExt;
use std::process::{ExitCode, ExitStatus};
use std::time::Duration;

use clap::Args;
use vervain_collectives::launch::{Exit, Local, Output};

use crate::exit::{Failure, Status};

/// `vervain launch`.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  vervain launch -n 4 ./my_program --its-option
  vervain launch -n 2 --raw -- python3 train.py

Each process finds VERVAIN_RANK, VERVAIN_RANKS, VERVAIN_LOCAL_RANK, VERVAIN_BOOTSTRAP and
VERVAIN_SECRET in its environment, which is what Communicator::from_env reads.
Ctrl-C ends all of them.
Exit status: that of the lowest rank that failed by itself (128 + N for signal N), 0 if none did.")]
pub struct Options {
    /// How many processes
    #[arg(short = 'n', long = "ranks", value_name = "N", value_parser = clap::value_parser!(u32).range(1..=65_536))]
    ranks: u32,
    /// Print what ranks print as it comes, without `[rank 3]` before the lines of others than rank 0
    #[arg(long)]
    raw: bool,
    /// Seconds that the other ranks may go on after the first one failed
    #[arg(long, value_name = "SECONDS", default_value_t = 10)]
    grace: u64,
    /// The program and its arguments
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

/// Start the processes and wait for them.
pub fn run(options: Options) -> ExitCode {
    let Some((program, arguments)) = options.command.split_first() else {
        return Status::Usage.into();
    };
    let output = if options.raw { Output::Inherit } else { Output::Prefixed };
    let job =
        Local::new(options.ranks, program).args(arguments).output(output).grace(Duration::from_secs(options.grace));
    let mut running = match job.start() {
        Ok(running) => running,
        Err(error) => {
            let failure = Failure::failed(format!("{} cannot be started: {error}", program.to_string_lossy()));
            failure.print();
            return failure.status().into();
        }
    };
    let exits = running.wait();
    if running.interrupted().is_none() {
        exits.iter().filter_map(complaint).for_each(|sentence| eprintln!("{sentence}"));
    }
    ExitCode::from(overall(&exits))
}

/// The code of the lowest rank that failed by itself; of one that we ended, if none did.
fn overall(exits: &[Exit]) -> u8 {
    let failed = exits.iter().filter(|exit| !exit.status.success());
    failed.min_by_key(|exit| (exit.killed, exit.rank)).map_or(0, |exit| code(exit.status))
}

/// A sentence about a rank that failed by itself.
fn complaint(exit: &Exit) -> Option<String> {
    if exit.killed || exit.status.success() {
        return None;
    }
    Some(match (exit.status.signal(), exit.status.code()) {
        (Some(signal), _) => format!("rank {} was killed by signal {signal}", exit.rank),
        (None, Some(code)) => format!("rank {} exited with status {code}", exit.rank),
        (None, None) => format!("rank {} ended", exit.rank),
    })
}

/// As shells number them.
fn code(status: ExitStatus) -> u8 {
    let code = status.code().or(status.signal().map(|signal| 128 + signal)).unwrap_or(1);
    u8::try_from(code).unwrap_or(u8::MAX)
}

#[cfg(test)]
mod tests {
    use vervain_collectives::Rank;

    use super::*;

    #[test]
    fn exit_codes_are_those_of_shells() {
        for (raw, expected) in [(0, 0), (7 << 8, 7), (9, 137), (15, 143)] {
            assert_eq!(code(ExitStatus::from_raw(raw)), expected);
        }
    }

    fn exit(rank: u32, raw: i32, killed: bool) -> Exit {
        Exit { rank: Rank::new(rank), status: ExitStatus::from_raw(raw), killed, output: vec![] }
    }

    #[test]
    fn ranks_that_we_ended_do_not_hide_the_one_that_failed() {
        assert_eq!(overall(&[exit(0, 9, true), exit(1, 15, false), exit(2, 7 << 8, false)]), 143);
        assert_eq!(overall(&[exit(0, 0, false), exit(1, 9, true)]), 137);
        assert_eq!(overall(&[exit(0, 0, false)]), 0);
    }

    #[test]
    fn only_ranks_that_failed_by_themselves_are_named() {
        assert_eq!(complaint(&exit(5, 0, false)), None);
        assert_eq!(complaint(&exit(5, 9, true)), None);
        assert_eq!(complaint(&exit(5, 9, false)).unwrap(), "rank 5 was killed by signal 9");
        assert_eq!(complaint(&exit(5, 7 << 8, false)).unwrap(), "rank 5 exited with status 7");
    }
}
