//! How a rank comes to be: started by us, by a launcher, or alone.

use std::ffi::OsString;
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;

use vervain_collectives::bootstrap::UniqueId;
use vervain_collectives::launch::{Environment, Exit, Local, expected_ranks};
use vervain_collectives::{Communicator, Rank};

use super::options::Options;
use super::settings::Settings;
use crate::exit::{Failure, Status, conclude};

/// What this process is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// It starts so many ranks.
    Parent(u32),
    /// It is a rank.
    Rank(Join),
}

/// How a rank joins its job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Join {
    /// As the launcher's environment says.
    Launcher,
    /// Alone, because that was asked for.
    Alone,
    /// Alone, because nothing was said.
    AloneByDefault,
}

/// A variable of this process.
pub fn lookup(name: &str) -> Option<String> {
    std::env::var(name).ok()
}

/// What this process is.
pub fn role(options: &Options) -> Result<Role, Failure> {
    decide(options.job.ranks, &lookup).map_err(Failure::usage)
}

fn decide(ranks: Option<u32>, lookup: &dyn Fn(&str) -> Option<String>) -> Result<Role, String> {
    match (ranks, expected_ranks(lookup)) {
        (Some(_), Some((launcher, started))) if started > 1 => Err(format!(
            "--ranks starts processes of its own, but {launcher} has started {started} already; leave --ranks out"
        )),
        (Some(1), _) => Ok(Role::Rank(Join::Alone)),
        (Some(ranks), _) => Ok(Role::Parent(ranks)),
        (None, Some(_)) => Ok(Role::Rank(Join::Launcher)),
        (None, None) => Ok(Role::Rank(Join::AloneByDefault)),
    }
}

/// Start the ranks, which are this program again, and wait for them.
pub fn processes(ranks: u32) -> Result<Status, Failure> {
    let program =
        std::env::current_exe().map_err(|error| Failure::failed(format!("this program has no path: {error}")))?;
    let arguments = without_ranks(std::env::args_os().skip(1));
    let mut running = Local::new(ranks, program).args(arguments).start()?;
    let exits = running.wait();
    if let Some(signal) = running.interrupted() {
        eprintln!("error: interrupted by signal {signal}; all ranks were ended");
    } else {
        deaths(&exits).iter().for_each(|sentence| eprintln!("error: {sentence}"));
    }
    Ok(exits.iter().map(|exit| status(exit.status)).fold(Status::Fine, worse))
}

/// Our own arguments, for a rank: without `--ranks`.
fn without_ranks(mut arguments: impl Iterator<Item = OsString>) -> Vec<OsString> {
    let mut kept = Vec::new();
    while let Some(argument) = arguments.next() {
        let text = argument.to_string_lossy();
        if text == "--ranks" {
            arguments.next();
        } else if !text.starts_with("--ranks=") {
            kept.push(argument);
        }
    }
    kept
}

/// A sentence for each rank that a signal ended, except those that we ended ourselves.
fn deaths(exits: &[Exit]) -> Vec<String> {
    let died = exits.iter().filter(|exit| !exit.killed);
    died.filter_map(|exit| Some(format!("rank {} was killed by signal {}", exit.rank, exit.status.signal()?))).collect()
}

fn status(exit: ExitStatus) -> Status {
    match exit.code() {
        Some(0) => Status::Fine,
        Some(1) => Status::Wrong,
        Some(2) => Status::Usage,
        _ => Status::Failed,
    }
}

/// Statuses are numbered by how much they say: a failure explains everything else.
fn worse(one: Status, other: Status) -> Status {
    if one as u8 >= other as u8 { one } else { other }
}

/// Be a rank.
pub fn as_rank(
    settings: &Settings,
    join: Join,
    measure: impl FnOnce(&Communicator, &Settings) -> Result<Status, Failure>,
) -> Status {
    let communicator = match communicator(settings, join) {
        Ok(communicator) => communicator,
        Err(failure) => return report(launched_rank(), failure),
    };
    if communicator.ranks() == 1 {
        warn_alone(join);
    }
    let rank = communicator.rank().get();
    measure(&communicator, settings).unwrap_or_else(|failure| report(rank, failure))
}

fn communicator(settings: &Settings, join: Join) -> Result<Communicator, Failure> {
    Ok(match join {
        Join::Launcher => Communicator::from_env(&settings.config)?,
        Join::Alone | Join::AloneByDefault => {
            Communicator::init_rank(&UniqueId::generate(None)?, Rank::new(0), 1, &settings.config)?
        }
    })
}

/// Our rank as the launcher says; 0 without one.
fn launched_rank() -> u32 {
    Environment::parse(&lookup).ok().flatten().map_or(0, |environment| environment.rank.get())
}

/// Every rank ends with the failure's status, but one tells the story: rank 0, or rank 1 if rank 0 is what failed.
fn report(rank: u32, failure: Failure) -> Status {
    let teller = if failure.culprit() == Some(0) { 1 } else { 0 };
    if rank == teller || failure.culprit() == Some(rank) {
        return conclude(Err(failure));
    }
    failure.status()
}

/// A job of one rank measures nothing; say so when nobody asked for it.
fn warn_alone(join: Join) {
    if let Some((variable, ranks)) = launched_more(&lookup) {
        eprintln!(
            "warning: {variable} says {ranks} ranks, but this communicator has 1: the processes did not find each other"
        );
        eprintln!(
            "         each of them measures alone; give them a launcher's rank variables, or VERVAIN_RANK and VERVAIN_RANKS"
        );
    } else if join == Join::AloneByDefault {
        eprintln!(
            "warning: one rank only; start several with --ranks N, or under vervain launch, torchrun, mpirun or srun"
        );
    }
}

/// A variable by which some launcher says that it started more than one rank.
fn launched_more(lookup: &dyn Fn(&str) -> Option<String>) -> Option<(&'static str, u32)> {
    const SIZES: [&str; 7] = [
        "OMPI_COMM_WORLD_SIZE",
        "PMI_SIZE",
        "PMIX_SIZE",
        "MV2_COMM_WORLD_SIZE",
        "SLURM_STEP_NUM_TASKS",
        "WORLD_SIZE",
        "VERVAIN_RANKS",
    ];
    let number = |name: &&'static str| Some((*name, lookup(name)?.trim().parse::<u32>().ok()?));
    SIZES.iter().filter_map(number).find(|(_, ranks)| *ranks > 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn variables<'a>(set: &'a [(&'a str, &'a str)]) -> impl Fn(&str) -> Option<String> + 'a {
        move |name| set.iter().find(|(key, _)| *key == name).map(|(_, value)| (*value).to_owned())
    }

    #[test]
    fn ranks_are_started_joined_or_alone() {
        let torchrun = variables(&[("RANK", "1"), ("WORLD_SIZE", "4")]);
        let nothing = variables(&[]);
        assert_eq!(decide(Some(4), &nothing), Ok(Role::Parent(4)));
        assert_eq!(decide(Some(1), &nothing), Ok(Role::Rank(Join::Alone)));
        assert_eq!(decide(None, &nothing), Ok(Role::Rank(Join::AloneByDefault)));
        assert_eq!(decide(None, &torchrun), Ok(Role::Rank(Join::Launcher)));
        assert!(decide(Some(2), &torchrun).unwrap_err().contains("leave --ranks out"));
    }

    #[test]
    fn the_ranks_get_our_arguments_without_their_number() {
        let kept = |line: &str| {
            let kept = without_ranks(line.split(' ').map(OsString::from));
            kept.join(&OsString::from(" ")).into_string().unwrap()
        };
        assert_eq!(kept("perf all_reduce --ranks 4 -b 8"), "perf all_reduce -b 8");
        assert_eq!(kept("perf --ranks=4 all_reduce"), "perf all_reduce");
        assert_eq!(kept("perf all_reduce --ranks"), "perf all_reduce");
    }

    #[test]
    fn a_launcher_that_started_more_ranks_is_noticed() {
        assert_eq!(launched_more(&variables(&[("OMPI_COMM_WORLD_SIZE", "2")])), Some(("OMPI_COMM_WORLD_SIZE", 2)));
        assert_eq!(
            launched_more(&variables(&[("PMI_SIZE", "1"), ("SLURM_STEP_NUM_TASKS", "8")])),
            Some(("SLURM_STEP_NUM_TASKS", 8))
        );
        assert_eq!(launched_more(&variables(&[("WORLD_SIZE", "1")])), None);
    }

    #[test]
    fn the_worst_status_of_all_ranks_counts() {
        let exits = [0, 1 << 8, 0, 9];
        let statuses = exits.map(|raw| status(ExitStatus::from_raw(raw)));
        assert_eq!(statuses, [Status::Fine, Status::Wrong, Status::Fine, Status::Failed]);
        assert_eq!(statuses.into_iter().fold(Status::Fine, worse), Status::Failed);
    }

    #[test]
    fn deaths_by_other_hands_are_named() {
        let exit = |rank, raw, killed| Exit {
            rank: Rank::new(rank),
            status: ExitStatus::from_raw(raw),
            killed,
            output: vec![],
        };
        let exits = [exit(0, 3 << 8, false), exit(1, 9, true), exit(2, 9, false)];
        assert_eq!(deaths(&exits), ["rank 2 was killed by signal 9"]);
    }
}
