//! The options as they are typed. [`super::settings`] turns them into values that make sense.

use std::path::PathBuf;

use clap::{ArgAction, Args, ValueEnum};
use vervain_transport::fabric::Backend;

use super::benchmark::Benchmark;
use super::foreign::Foreign;
use super::sizes;

/// `vervain perf`.
#[derive(Args, Clone, Debug)]
#[command(after_help = EXAMPLES, arg_required_else_help = true)]
pub struct Options {
    /// What to measure: all_reduce, all_gather, reduce_scatter, broadcast, reduce, all_to_all, sendrecv or barrier
    #[arg(required_unless_present = "limits", value_name = "COLLECTIVE")]
    pub collective: Option<Benchmark>,

    #[command(flatten)]
    pub sweep: Sweep,
    #[command(flatten)]
    pub method: Method,
    #[command(flatten)]
    pub job: Job,
    #[command(flatten)]
    pub results: Results,
    #[command(flatten)]
    pub foreign: Foreign,
}

/// Which messages.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Messages")]
pub struct Sweep {
    /// Smallest message in bytes; K, M, G, T are binary [default: 32M, or the largest if that is less]
    #[arg(short = 'b', long = "minbytes", value_name = "SIZE", value_parser = sizes::parse)]
    pub min: Option<u64>,
    /// Largest message in bytes [default: 32M, or the smallest if that is more]
    #[arg(short = 'e', long = "maxbytes", value_name = "SIZE", value_parser = sizes::parse)]
    pub max: Option<u64>,
    /// Bytes between one size and the next
    #[arg(short = 'i', long = "stepbytes", value_name = "SIZE", value_parser = sizes::parse, default_value = "1M")]
    pub step_bytes: u64,
    /// Factor between one size and the next; takes precedence over -i
    #[arg(short = 'f', long = "stepfactor", value_name = "N")]
    pub step_factor: Option<u64>,
    /// Element type: uint8, int32, int64, half, bfloat16, float, double, or all
    #[arg(short = 'd', long = "datatype", value_name = "TYPE", default_value = "float")]
    pub datatype: String,
    /// Reduction: sum, prod, min, max, avg, or all
    #[arg(short = 'o', long = "op", value_name = "OP", default_value = "sum")]
    pub op: String,
    /// Root rank of broadcast and reduce, or all
    #[arg(short = 'r', long = "root", value_name = "RANK", default_value = "0", allow_hyphen_values = true)]
    pub root: String,
    /// Measure with separate input and output only
    #[arg(long, conflicts_with = "in_place")]
    pub out_of_place: bool,
    /// Measure with the output over the input only
    #[arg(long)]
    pub in_place: bool,
    /// Let the buffers begin so many bytes after a multiple of 4096
    #[arg(short = 'u', long = "unalign", value_name = "BYTES", default_value_t = 0)]
    pub unalign: u16,
}

/// How it is measured and checked.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Method")]
pub struct Method {
    /// Timed iterations
    #[arg(short = 'n', long = "iters", value_name = "N", default_value_t = 20)]
    pub iterations: u64,
    /// Iterations before the timed ones, for each size
    #[arg(short = 'w', long = "warmup_iters", value_name = "N", default_value_t = 1)]
    pub warmup: u64,
    /// Operations in each iteration
    #[arg(short = 'm', long = "agg_iters", value_name = "N", default_value_t = 1)]
    pub aggregate: u64,
    /// How often to run the whole sweep; 0 repeats it until interrupted
    #[arg(short = 'N', long = "run_cycles", value_name = "N", default_value_t = 1)]
    pub cycles: u64,
    /// How often to check the data of each size; 0 does not check
    #[arg(short = 'c', long = "check", value_name = "N", default_value_t = 1)]
    pub check: u64,
    /// Whose time is shown: 0 rank 0's, 1 the mean, 2 the least, 3 the greatest over ranks
    #[arg(short = 'a', long = "average", value_name = "0..3", default_value_t = 1, value_parser = clap::value_parser!(u8).range(0..=3))]
    pub average: u8,
    /// Time each iteration too, back to back, and append columns with the slowest rank's min, max and p99
    #[arg(short = 'I', long = "iter_stats", value_name = "0|1", num_args = 0..=1, default_value = "0", default_missing_value = "1")]
    pub iteration_statistics: u8,
    /// Barrier before each operation, time of the slowest rank: shows the median, and appends columns as -I does
    #[arg(long)]
    pub per_iteration: bool,
    /// Plant one wrong element in one output before the check, to see that the check finds it
    #[arg(long)]
    pub inject_error: bool,
    /// Measure what this machine allows instead: cache line, copy rate, system call, wake
    #[arg(long, conflicts_with = "collective")]
    pub limits: bool,
}

/// Who takes part and how they talk.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Job")]
pub struct Job {
    /// Start so many local processes; without it the launcher's environment is used (vervain launch, torchrun, mpirun, srun)
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=65_536))]
    pub ranks: Option<u32>,
    /// How ranks reach each other
    #[arg(long, value_enum, default_value_t = Fabric::Auto)]
    pub fabric: Fabric,
    /// Algorithm instead of the one chosen by size, such as ring, oneshot, twoshot, direct or pull
    #[arg(long, value_name = "NAME")]
    pub algo: Option<String>,
    /// Protocol instead of the one chosen by size
    #[arg(long, value_enum)]
    pub proto: Option<Proto>,
    /// Run the plan in this JSON file, after verifying it
    #[arg(long, value_name = "FILE", conflicts_with = "algo")]
    pub plan: Option<PathBuf>,
    /// Use buffers that all ranks register together (-R 1 of nccl-tests)
    #[arg(long)]
    pub registered: bool,
    /// The same as --registered if not 0
    #[arg(short = 'R', long = "local_register", value_name = "0..2", hide = true, default_value_t = 0)]
    pub local_register: u8,
    /// Seconds that an operation, and the start, may take; 0 keeps the library's limits
    #[arg(short = 'T', long = "timeout", value_name = "SECONDS", default_value_t = 0)]
    pub timeout: u64,
    /// Let ranks move between cores, instead of giving each its own where there are enough
    #[arg(long)]
    pub no_pin: bool,
}

/// Where results go besides the table.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Results")]
pub struct Results {
    #[command(flatten)]
    pub file: OutputFile,
    /// Draw time and bus bandwidth over size, with the alpha-beta fit
    #[arg(long, value_name = "FILE.svg")]
    pub plot: Option<PathBuf>,
    /// Append the time of day to each line
    #[arg(short = 'S', long = "report_timestamps", value_name = "0|1", num_args = 0..=1, default_value = "0", default_missing_value = "1", action = ArgAction::Set)]
    pub timestamps: u8,
}

/// Where results go as JSON.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Results")]
pub struct OutputFile {
    /// Write the results as JSON too
    #[arg(short = 'J', long = "output_file", value_name = "FILE")]
    pub json: Option<PathBuf>,
}

/// `--fabric`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Fabric {
    /// shm if all ranks are on one host, else tcp
    Auto,
    /// Shared memory
    Shm,
    /// Sockets
    Tcp,
}

impl Fabric {
    /// The only one, if one was asked for.
    pub const fn backend(self) -> Option<Backend> {
        match self {
            Fabric::Auto => None,
            Fabric::Shm => Some(Backend::Shm),
            Fabric::Tcp => Some(Backend::Tcp),
        }
    }
}

/// `--proto`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Proto {
    /// 8 bytes of data in a line of 16: least latency
    Ll,
    /// 120 bytes of data in a line of 128
    Ll128,
    /// Plain bytes and a counter: most bandwidth
    Simple,
}

const EXAMPLES: &str = "\
Examples:
  vervain perf all_reduce --ranks 4 -b 8 -e 64M -f 4     four local processes, 8 B .. 64 MiB
  vervain perf all_gather --ranks 2 -d all -e 1M         every element type, 1 MiB
  vervain perf all_reduce --ranks 2 -b 8 -e 1M -f 8 --per-iteration -n 500
                                                         barrier before each; median, p99
  mpirun -n 4 vervain perf broadcast -r all -J out.json  ranks from mpirun; every root; JSON
  vervain perf --limits --ranks 2                        what this machine allows

Units: sizes in bytes (K, M, G, T binary); time in microseconds; bandwidth in 10^9 bytes per second.
Exit status: 0 all well, 1 wrong data, 2 bad options, 3 a communicator failed.";
