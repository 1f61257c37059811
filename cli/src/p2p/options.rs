//! The options as they are typed. [`super::settings`] turns them into values that make sense.

use std::net::SocketAddr;

use clap::{Args, ValueEnum};
use serde::{Deserialize, Serialize};

use super::job::Paging;
use crate::perf::{Fabric, OutputFile, sizes};

/// `vervain p2p`.
#[derive(Args, Clone, Debug)]
#[command(after_help = EXAMPLES, arg_required_else_help = true)]
pub struct Options {
    /// What to measure
    #[arg(value_enum)]
    pub test: Test,

    #[command(flatten)]
    pub sweep: Sweep,
    #[command(flatten)]
    pub shape: Shape,
    #[command(flatten)]
    pub method: Method,
    #[command(flatten)]
    pub place: Place,
    #[command(flatten)]
    pub results: Results,
}

/// What is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
pub enum Test {
    /// Write to the peer's memory
    Write,
    /// Read the peer's memory
    Read,
    /// Messages, which the peer takes from its queue
    Send,
    /// Fetch-add on the peer's 8-byte word
    Atomic,
}

impl Test {
    /// As it is typed.
    pub const fn name(self) -> &'static str {
        match self {
            Test::Write => "write",
            Test::Read => "read",
            Test::Send => "send",
            Test::Atomic => "atomic",
        }
    }
}

/// Which sizes.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Sizes")]
pub struct Sweep {
    /// Smallest transfer in bytes; K, M, G are binary [default: 8, or -e]
    #[arg(short = 'b', long = "minbytes", value_name = "SIZE", value_parser = sizes::parse)]
    pub min: Option<u64>,
    /// Largest transfer in bytes, up to 4G [default: 8M (4088 for send), or -b]
    #[arg(short = 'e', long = "maxbytes", value_name = "SIZE", value_parser = sizes::parse)]
    pub max: Option<u64>,
    /// Factor between one size and the next
    #[arg(short = 'f', long = "stepfactor", value_name = "N", default_value_t = 4)]
    pub factor: u64,
    /// These sizes instead, separated by commas
    #[arg(long, value_name = "SIZES", value_delimiter = ',', value_parser = sizes::parse, conflicts_with_all = ["min", "max", "factor"])]
    pub sizes: Vec<u64>,
}

/// What a transfer looks like.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Transfers")]
pub struct Shape {
    /// Transfers in flight, for bandwidth and rate
    #[arg(long, value_name = "N", default_value_t = 64, conflicts_with = "latency")]
    pub depth: u32,
    /// Writes started by one call, for bandwidth and rate; each ends by itself
    #[arg(long, value_name = "N", default_value_t = 1, conflicts_with = "latency")]
    pub batch: u32,
    /// Cut each write into pages that lie STRIDE bytes apart in the peer's memory [default: no gaps]
    #[arg(long, value_name = "PAGE[:STRIDE]")]
    pub paged: Option<Paging>,
    /// Bandwidth and rate in both directions at once; the table shows the sum
    #[arg(long, conflicts_with = "latency")]
    pub bidirectional: bool,
    /// Write with an immediate, and learn of a write by it instead of by the memory
    #[arg(long)]
    pub notify: bool,
    /// Pass writes of up to 64 bytes by value
    #[arg(long)]
    pub inline: bool,
}

/// How it is measured and checked.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Method")]
pub struct Method {
    /// Timed iterations [default: 10000 for latency and 100000 for bandwidth, fewer of large ones]
    #[arg(short = 'n', long = "iters", value_name = "N")]
    pub iterations: Option<u64>,
    /// Iterations before the timed ones, for each size [default: 100, fewer of large ones]
    #[arg(short = 'w', long = "warmup_iters", value_name = "N")]
    pub warmup: Option<u64>,
    /// Measure each line for so many seconds instead of a number of iterations
    #[arg(long, value_name = "SECONDS", conflicts_with = "iterations")]
    pub duration: Option<f64>,
    /// Only the table of latencies
    #[arg(long, conflicts_with = "bandwidth")]
    pub latency: bool,
    /// Only the table of bandwidths and rates
    #[arg(long)]
    pub bandwidth: bool,
    /// Check the data of one transfer after each line, outside the timed part; 0 does not
    #[arg(short = 'c', long = "check", value_name = "0|1", default_value_t = 1, value_parser = clap::value_parser!(u8).range(0..=1))]
    pub check: u8,
    /// Plant one wrong byte before the first check, to see that the check finds it
    #[arg(long)]
    pub inject_error: bool,
    /// Measure a cache line's way between the same two cores and one core's memcpy first, and append the ratios to them
    #[arg(long)]
    pub limits: bool,
    /// Seconds that a transfer, and the start, may take
    #[arg(short = 'T', long = "timeout", value_name = "SECONDS", default_value_t = 60)]
    pub timeout: u64,
}

/// Who takes part and how they talk.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Place")]
pub struct Place {
    /// Be the target, and wait for the other side here [default: any address, port 18515]
    #[arg(long, value_name = "ADDR:PORT", num_args = 0..=1, default_missing_value = "0.0.0.0:18515", conflicts_with = "connect")]
    pub listen: Option<SocketAddr>,
    /// Be the initiator of the target that listens there
    #[arg(long, value_name = "HOST:PORT")]
    pub connect: Option<String>,
    /// With --listen or --connect: go on without VERVAIN_SECRET, for whoever reaches the ports
    #[arg(long)]
    pub insecure: bool,
    /// How the two reach each other
    #[arg(long, value_enum, default_value_t = Fabric::Auto)]
    pub fabric: Fabric,
    /// Sockets of the tcp fabric
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub sockets: u32,
    /// Ask for memory in huge pages
    #[arg(long)]
    pub huge: bool,
    /// Take memory of this NUMA node
    #[arg(long, value_name = "NODE")]
    pub node: Option<u32>,
    /// Let the processes move between cores, instead of giving each its own
    #[arg(long)]
    pub no_pin: bool,
}

/// Where results go besides the table.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Results")]
pub struct Results {
    #[command(flatten)]
    pub file: OutputFile,
    /// Say which fabric is used, and why no other
    #[arg(long)]
    pub explain: bool,
}

const EXAMPLES: &str = "\
Examples:
  vervain p2p write                                two local processes, 8 B .. 8 MiB
  vervain p2p write -b 8 --latency --limits        one size, beside what a cache line takes
  vervain p2p write -b 64 --bandwidth --batch 16   message rate
  vervain p2p write --paged 4K:64K --sizes 64K,1M  blocks of a cache
  vervain p2p send --fabric tcp --sockets 2 -J out.json

Two machines, with the same secret on both; the options of the side that connects count for both,
but for --fabric, --huge, --node and --no-pin, which are each side's own:
  export VERVAIN_SECRET=$(openssl rand -hex 32)
  vervain p2p read --listen
  vervain p2p read --connect first:18515 -e 1G

The initiator prints. Latency of write and send is half a round trip between both; that of read and
atomic is until the data is here. A peer learns of a write by looking at its last byte, of one of
0 bytes (or with --notify) by its immediate. BW peak is the best twentieth of a line, BW average
the whole of it.

Units: sizes in bytes (K, M, G binary); time in microseconds; bandwidth in 10^6 bytes per second;
rate in 10^6 per second.
Exit status: 0 all well, 1 wrong data, 2 bad options, 3 the peer failed.";
