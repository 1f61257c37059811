//! The options once they make sense. Everything after this file works on valid values.

use core::time::Duration;
use std::path::PathBuf;

use vervain_collectives::plan::{Algorithm, Needs, builders};
use vervain_collectives::{Config, DataType, Protocol, ReduceOp};

use super::benchmark::Benchmark;
use super::data::collective;
use super::options::{Options, Proto};
use super::people::Pinning;
use super::sizes::{self, Step};

/// Whose time a row shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Average {
    /// Rank 0's.
    Rank0,
    /// The mean over ranks.
    Mean,
    /// The least over ranks.
    Least,
    /// The greatest over ranks.
    Greatest,
}

/// How calls are timed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Timing {
    /// One clock around all iterations.
    BackToBack,
    /// One clock around all iterations, and one around each.
    EachBackToBack,
    /// A barrier before each iteration, and the slowest rank's time of each.
    EachAfterBarrier,
}

impl Timing {
    /// Whether each iteration has a time of its own.
    pub const fn has_samples(self) -> bool {
        !matches!(self, Timing::BackToBack)
    }
}

/// Which buffers are used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// Output apart from the input.
    Apart,
    /// Output over the input.
    InPlace,
}

/// Which roots are tried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Roots {
    /// This one.
    One(u32),
    /// Each rank in turn.
    All,
}

/// What to plant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Inject {
    /// Nothing.
    Nothing,
    /// One wrong element.
    OneError,
}

/// A measurement that makes sense.
#[derive(Clone, Debug)]
pub struct Settings {
    /// What is measured.
    pub benchmark: Benchmark,
    /// Smallest message in bytes.
    pub min: u64,
    /// Largest message in bytes.
    pub max: u64,
    /// From one size to the next.
    pub step: Step,
    /// Element types in turn.
    pub datatypes: Vec<DataType>,
    /// Operations in turn; one `None` where nothing is reduced.
    pub ops: Vec<Option<ReduceOp>>,
    /// Roots in turn, where there are any.
    pub roots: Roots,
    /// Kinds of buffers in turn.
    pub places: Vec<Place>,
    /// Bytes by which the buffers miss a page boundary.
    pub unalign: usize,
    /// Timed iterations.
    pub iterations: u64,
    /// Untimed iterations before them.
    pub warmup: u64,
    /// Operations in an iteration.
    pub aggregate: u64,
    /// Sweeps; `None` goes on for ever.
    pub cycles: Option<u64>,
    /// Checks of each row.
    pub checks: u64,
    /// Whose time is shown.
    pub average: Average,
    /// How it is taken.
    pub timing: Timing,
    /// What to plant.
    pub inject: Inject,
    /// Buffers that all ranks register together.
    pub registered: bool,
    /// A plan to run instead of a built-in one.
    pub plan: Option<PathBuf>,
    /// Where JSON goes.
    pub json: Option<PathBuf>,
    /// Where the drawing goes.
    pub plot: Option<PathBuf>,
    /// Whether rows end with the time of day.
    pub timestamps: bool,
    /// Whether each rank gets a core.
    pub pinning: Pinning,
    /// What the communicator is made with.
    pub config: Config,
}

/// The size of nccl-tests when none is given.
const DEFAULT_SIZE: u64 = 32 << 20;
/// Times of single iterations are kept; this many take 80 MB.
const MOST_SAMPLES: u64 = 10_000_000;

impl Settings {
    /// The settings that these options ask for, or the sentence that says why they make no sense.
    pub fn new(options: &Options) -> Result<Self, String> {
        options.foreign.check()?;
        let benchmark = options.collective.ok_or("say what to measure, such as all_reduce")?;
        let (min, max, step) = range(options)?;
        let method = &options.method;
        let timing = timing(options)?;
        let config = config(options)?;
        let registered = options.job.registered || options.job.local_register != 0;
        check_algorithm(benchmark, &config, registered)?;
        Ok(Self {
            benchmark,
            min,
            max,
            step,
            datatypes: one_or_all(&options.sweep.datatype, "-d/--datatype", DataType::ALL)?,
            ops: ops(benchmark, &options.sweep.op)?,
            roots: roots(&options.sweep.root)?,
            places: places(options)?,
            unalign: usize::from(options.sweep.unalign),
            iterations: at_least_one(method.iterations, "-n/--iters")?,
            warmup: method.warmup,
            aggregate: at_least_one(method.aggregate, "-m/--agg_iters")?,
            cycles: (method.cycles != 0).then_some(method.cycles),
            checks: method.check,
            average: average(method.average),
            timing,
            inject: inject(options)?,
            registered,
            plan: plan(benchmark, options)?,
            json: options.results.file.json.clone(),
            plot: options.results.plot.clone(),
            timestamps: options.results.timestamps != 0,
            pinning: if options.job.no_pin { Pinning::Free } else { Pinning::OwnCore },
            config,
        })
    }

    /// The sizes of one sweep.
    pub fn sizes(&self) -> Vec<u64> {
        if self.benchmark == Benchmark::Barrier {
            return vec![0];
        }
        sizes::sweep(self.min, self.max, self.step).collect()
    }
}

fn range(options: &Options) -> Result<(u64, u64, Step), String> {
    let sweep = &options.sweep;
    let (min, max) = match (sweep.min, sweep.max) {
        (Some(min), Some(max)) => (min, max),
        (Some(min), None) => (min, min.max(DEFAULT_SIZE)),
        (None, Some(max)) => (max.min(DEFAULT_SIZE), max),
        (None, None) => (DEFAULT_SIZE, DEFAULT_SIZE),
    };
    if min > max {
        return Err(format!("-b {min} is more than -e {max}: the smallest message cannot be above the largest"));
    }
    let step = match sweep.step_factor {
        Some(0 | 1) => return Err("-f/--stepfactor must be 2 or more, or the sizes would never grow".into()),
        Some(_) if min == 0 && max > 0 => return Err("-f/--stepfactor never leaves -b 0; begin at 1 or use -i".into()),
        Some(factor) => Step::Factor(factor),
        None if sweep.step_bytes == 0 => {
            return Err("-i/--stepbytes must be 1 or more, or the sizes would never grow".into());
        }
        None => Step::Bytes(sweep.step_bytes),
    };
    Ok((min, max, step))
}

/// One value by name, or all of them.
fn one_or_all<T: Copy + core::str::FromStr + core::fmt::Display>(
    text: &str,
    option: &str,
    all: &[T],
) -> Result<Vec<T>, String> {
    if text == "all" {
        return Ok(all.to_vec());
    }
    let names = || all.iter().map(T::to_string).collect::<Vec<_>>().join(", ");
    text.parse()
        .map(|one| vec![one])
        .map_err(|_| format!("{option} {text} is not built; there are {} and all", names()))
}

fn ops(benchmark: Benchmark, text: &str) -> Result<Vec<Option<ReduceOp>>, String> {
    let ops = one_or_all(text, "-o/--op", ReduceOp::ALL)?;
    Ok(if benchmark.reduces() { ops.into_iter().map(Some).collect() } else { vec![None] })
}

fn roots(text: &str) -> Result<Roots, String> {
    match text {
        "all" | "-1" => Ok(Roots::All),
        _ => text.parse().map(Roots::One).map_err(|_| format!("-r/--root {text} is neither a rank nor all")),
    }
}

fn places(options: &Options) -> Result<Vec<Place>, String> {
    let benchmark = options.collective.is_some_and(Benchmark::can_be_in_place);
    match (options.sweep.out_of_place, options.sweep.in_place) {
        (true, _) => Ok(vec![Place::Apart]),
        (_, true) if benchmark => Ok(vec![Place::InPlace]),
        (_, true) => Err("--in-place: this collective needs separate buffers".into()),
        _ if benchmark => Ok(vec![Place::Apart, Place::InPlace]),
        _ => Ok(vec![Place::Apart]),
    }
}

fn at_least_one(number: u64, option: &str) -> Result<u64, String> {
    if number == 0 { Err(format!("{option} must be 1 or more")) } else { Ok(number) }
}

fn average(number: u8) -> Average {
    match number {
        0 => Average::Rank0,
        2 => Average::Least,
        3 => Average::Greatest,
        _ => Average::Mean,
    }
}

fn timing(options: &Options) -> Result<Timing, String> {
    let method = &options.method;
    let timing = match (method.per_iteration, method.iteration_statistics) {
        (true, _) => Timing::EachAfterBarrier,
        (false, 0) => Timing::BackToBack,
        (false, _) => Timing::EachBackToBack,
    };
    if timing.has_samples() && method.iterations > MOST_SAMPLES {
        return Err(format!(
            "-n/--iters {}: times of single iterations are kept for {MOST_SAMPLES} at most",
            method.iterations
        ));
    }
    if method.iterations.checked_mul(method.aggregate).is_none() {
        return Err("-n times -m is more operations than 64 bits can count".into());
    }
    Ok(timing)
}

fn plan(benchmark: Benchmark, options: &Options) -> Result<Option<PathBuf>, String> {
    match &options.job.plan {
        Some(_) if matches!(benchmark, Benchmark::SendRecv | Benchmark::Barrier) => {
            Err(format!("--plan: {benchmark} is not run by a plan"))
        }
        plan => Ok(plan.clone()),
    }
}

/// Whether the algorithm exists for the collective, and can have the buffers that it needs.
fn check_algorithm(benchmark: Benchmark, config: &Config, registered: bool) -> Result<(), String> {
    let Some(algorithm) = config.algorithm else { return Ok(()) };
    if matches!(benchmark, Benchmark::SendRecv | Benchmark::Barrier) {
        return Err(format!("--algo: {benchmark} has no algorithms to choose from"));
    }
    let collective = collective(benchmark);
    let exists = |algorithm: &Algorithm| builders::plan(collective, *algorithm).is_some();
    if !exists(&algorithm) {
        let there: Vec<_> = Algorithm::ALL.iter().copied().filter(exists).map(Algorithm::name).collect();
        return Err(format!("--algo {algorithm} does not exist for {benchmark}; there are {}", there.join(", ")));
    }
    if algorithm.needs() == Needs::MappedPeers && !registered {
        return Err(format!(
            "--algo {algorithm} touches peers' buffers, which all ranks must register: add --registered"
        ));
    }
    Ok(())
}

fn inject(options: &Options) -> Result<Inject, String> {
    match (options.method.inject_error, options.method.check) {
        (false, _) => Ok(Inject::Nothing),
        (true, 0) => Err("--inject-error tries the check, which -c 0 turns off".into()),
        (true, _) if options.collective == Some(Benchmark::Barrier) => {
            Err("--inject-error: a barrier has no data".into())
        }
        (true, _) => Ok(Inject::OneError),
    }
}

fn config(options: &Options) -> Result<Config, String> {
    let job = &options.job;
    let mut config = Config {
        fabric: job.fabric.backend(),
        algorithm: job.algo.as_deref().map(algorithm).transpose()?,
        protocol: job.proto.map(|proto| match proto {
            Proto::Ll => Protocol::Ll,
            Proto::Ll128 => Protocol::Ll128,
            Proto::Simple => Protocol::Simple,
        }),
        ..Config::default()
    };
    if job.timeout != 0 {
        config.timeout = Duration::from_secs(job.timeout);
        config.init_timeout = config.timeout;
    }
    Ok(config)
}

/// An algorithm by name; dashes and underscores do not matter.
pub fn algorithm(text: &str) -> Result<Algorithm, String> {
    let plain = |name: &str| name.replace(['-', '_'], "").to_ascii_lowercase();
    Algorithm::ALL.iter().copied().find(|algorithm| plain(algorithm.name()) == plain(text)).ok_or_else(|| {
        let names: Vec<_> = Algorithm::ALL.iter().map(|algorithm| algorithm.name()).collect();
        format!("--algo {text} does not exist; there are {}", names.join(", "))
    })
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Perf {
        #[command(flatten)]
        options: Options,
    }

    fn settings(line: &str) -> Result<Settings, String> {
        let words = core::iter::once("perf").chain(line.split_whitespace());
        let parsed = Perf::try_parse_from(words).map_err(|error| error.to_string())?;
        Settings::new(&parsed.options)
    }

    #[test]
    fn readme_command_makes_sense() {
        let settings = settings("all_reduce --ranks 4 -b 8 -e 64M -f 4").unwrap();
        assert_eq!((settings.min, settings.max, settings.step), (8, 64 << 20, Step::Factor(4)));
        assert_eq!(settings.sizes().len(), 12);
        assert_eq!((settings.iterations, settings.warmup, settings.aggregate, settings.checks), (20, 1, 1, 1));
        assert_eq!(settings.cycles, Some(1));
        assert_eq!(settings.places, [Place::Apart, Place::InPlace]);
    }

    #[test]
    fn options_of_nccl_tests_are_understood() {
        let line = "alltoall_perf -g 1 -t 1 -b 1K -e 1M -i 1024 -n 5 -w 2 -m 3 -N 0 -c 0 -o all -d all -r all -T 9 -a 3 -I 1 -u 1 -S 1 -R 2 -z 0 -G 0";
        let settings = settings(line).unwrap();
        assert_eq!(settings.step, Step::Bytes(1024));
        assert_eq!((settings.cycles, settings.checks, settings.aggregate), (None, 0, 3));
        assert_eq!(settings.datatypes, DataType::ALL);
        assert_eq!(settings.ops, [None]);
        assert_eq!(settings.roots, Roots::All);
        assert_eq!(settings.config.timeout, Duration::from_secs(9));
        assert_eq!((settings.average, settings.timing), (Average::Greatest, Timing::EachBackToBack));
        assert!(settings.registered && settings.timestamps);
        assert_eq!(settings.places, [Place::Apart]);
    }

    #[test]
    fn a_single_bound_moves_the_default_of_the_other() {
        let range = |line| settings(line).map(|settings| (settings.min, settings.max)).unwrap();
        assert_eq!(range("barrier -e 1M"), (1 << 20, 1 << 20));
        assert_eq!(range("barrier -b 1G"), (1 << 30, 1 << 30));
        assert_eq!(range("barrier"), (32 << 20, 32 << 20));
    }

    #[test]
    fn impossible_options_are_refused_by_name() {
        for (line, part) in [
            ("hypercube", "no such benchmark"),
            ("all_reduce -b 2 -e 1", "-b 2 is more than -e 1"),
            ("all_reduce -f 1", "-f/--stepfactor"),
            ("all_reduce -b 0 -e 8 -f 2", "never leaves"),
            ("all_reduce -i 0", "-i/--stepbytes"),
            ("all_reduce -b 99999999999G", "64 bits"),
            ("all_reduce -b -1", "-1"),
            ("all_reduce -n 0", "-n/--iters"),
            ("all_reduce -m 0", "-m/--agg_iters"),
            ("all_reduce -d quad", "float, double"),
            ("all_reduce -o xor", "sum, prod"),
            ("broadcast -r first", "-r/--root first"),
            ("all_reduce --algo magic", "ring"),
            ("all_gather --algo two_shot", "does not exist for all_gather"),
            ("all_reduce --algo direct", "--registered"),
            ("barrier --algo ring", "no algorithms"),
            ("all_reduce --fabric carrier-pigeon", "shm"),
            ("all_reduce -a 4", "0..=3"),
            ("all_reduce --ranks 0", "0"),
            ("all_to_all --in-place", "separate buffers"),
            ("all_reduce --inject-error -c 0", "-c 0"),
            ("all_reduce -g 8", "-g/--ngpus 8"),
            ("all_reduce -n 99999999999 --per-iteration", "at most"),
            ("all_reduce -n 9223372036854775808 -m 3", "64 bits"),
            ("all_reduce --in-place --out-of-place", "cannot be used with"),
            ("all_reduce --no-such-option", "--no-such-option"),
        ] {
            let error = settings(line).unwrap_err();
            assert!(error.contains(part), "`{line}`: {error}");
        }
    }

    #[test]
    fn underscores_in_algorithm_names_do_not_matter() {
        assert_eq!(algorithm("two_shot"), algorithm("twoshot"));
        assert_eq!(algorithm("two-shot").unwrap(), Algorithm::TwoShot);
    }
}
