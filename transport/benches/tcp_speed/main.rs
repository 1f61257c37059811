//! What the tcp fabric reaches over loopback between two pinned threads, beside its peers, interleaved.
//!
//! ```text
//! cargo bench -p vervain-transport --bench tcp_speed -- [latency] [bandwidth] [sockets] [scale] [rounds=5] [most=67108864]
//! ```
//! Every round measures each size with ours and right after it with each peer; what is printed is the median over the rounds
//! and the median of the ratios of one round, time over time: below 1 ours is faster. The peers:
//!
//! - `bare`: the same ping-pong on a bare socket with `TCP_NODELAY`, once with non-blocking reads in a loop (`spin`: as our
//!   waiting does), once with blocking reads (`block`);
//! - `iperf3`, as many sockets, the kernel's own choice of congestion control;
//! - `ucx_perftest` with `UCX_TLS=tcp`: `tag_lat`, `tag_bw`, `ucp_put_lat`, `ucp_put_bw`.
//!
//! Peers that are not installed show as `-`. On a machine that others use too, start it with a negative `nice`.

mod bare;
mod pair;
mod peers;
mod scale;
mod table;

use pair::{Message, Options, Pair};
use table::{Column, Table};

/// Sizes that are measured, in bytes.
const SIZES: [usize; 11] =
    [8, 64, 1 << 10, 4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20, 4 << 20, 16 << 20, 64 << 20];

/// How often a message of `bytes` bytes is sent in one measurement: about a third of a second.
fn count(bytes: usize) -> usize {
    400_000_000 / (bytes + 10_000) + 5
}

/// What the command line asks for.
struct Settings {
    parts: Vec<String>,
    rounds: usize,
    most: usize,
}

impl Settings {
    fn parse() -> Self {
        let arguments: Vec<_> = std::env::args().skip(1).collect();
        let number = |name: &str| {
            let value = arguments.iter().find_map(|argument| argument.strip_prefix(name)?.strip_prefix('='));
            value.map(|value| value.parse().expect("a number"))
        };
        let known = ["latency", "bandwidth", "sockets", "scale"];
        let parts = arguments.iter().filter(|argument| known.contains(&argument.as_str())).cloned().collect();
        Self { parts, rounds: number("rounds").unwrap_or(5), most: number("most").unwrap_or(usize::MAX) }
    }

    fn wants(&self, part: &str) -> bool {
        self.parts.is_empty() || self.parts.iter().any(|wanted| wanted == part)
    }

    fn sizes(&self) -> impl Iterator<Item = usize> {
        SIZES.into_iter().filter(|size| *size <= self.most)
    }
}

/// Half round trips, in microseconds.
fn latency(settings: &Settings) {
    let mut table = Table::new("half round trip, us", &["send or write with immediate", "write"]);
    table.against(0, &["bare spin", "bare block", "ucx tag_lat"]);
    table.against(1, &["ucx put_lat"]);
    for round in 0..settings.rounds {
        for bytes in settings.sizes() {
            let rounds = count(bytes);
            let mut pair = Pair::new(Options::default(), bytes);
            let message = if bytes <= 4096 { Message::Send } else { Message::WriteImmediate };
            table.add(bytes, Column::Ours(0), Some(pair.half_round_trip(message, bytes, rounds)));
            table.add(bytes, Column::Ours(1), Some(pair.half_round_trip(Message::Write, bytes, rounds)));
            if bytes <= 4096 {
                table.add(
                    bytes,
                    Column::Peer("bare spin"),
                    Some(bare::half_round_trip(bytes, rounds, bare::Reads::Spin)),
                );
                let few = rounds / 8;
                table.add(
                    bytes,
                    Column::Peer("bare block"),
                    Some(bare::half_round_trip(bytes, few, bare::Reads::Block)),
                );
            }
            table.add(bytes, Column::Peer("ucx tag_lat"), peers::ucx("tag_lat", bytes, rounds));
            table.add(bytes, Column::Peer("ucx put_lat"), peers::ucx("ucp_put_lat", bytes, rounds));
        }
        eprintln!("# latency, round {} of {}", round + 1, settings.rounds);
    }
    table.print();
}

/// Microseconds per message, with many on their way.
fn bandwidth(settings: &Settings) {
    let mut table = Table::new("MB/s one way (writes, 32 on their way)", &["write"]).in_rates();
    table.against(0, &["ucx tag_bw", "ucx put_bw"]);
    for round in 0..settings.rounds {
        for bytes in settings.sizes() {
            let mut pair = Pair::new(Options::default(), bytes);
            table.add(bytes, Column::Ours(0), Some(pair.per_write(bytes, 4 * count(bytes))));
            table.add(bytes, Column::Peer("ucx tag_bw"), peers::ucx("tag_bw", bytes, count(bytes)));
            table.add(bytes, Column::Peer("ucx put_bw"), peers::ucx("ucp_put_bw", bytes, count(bytes)));
        }
        eprintln!("# bandwidth, round {} of {}", round + 1, settings.rounds);
    }
    table.print();
}

/// As many sockets as iperf3, writes of 1 MiB out of and into 16 MiB.
fn sockets(settings: &Settings) {
    const BYTES: usize = 1 << 20;
    let mut table = Table::new("MB/s by number of sockets (writes of 1 MiB)", &["write"]).in_rates_of(BYTES);
    table.against(0, &["iperf3", "iperf3 reno"]);
    for round in 0..settings.rounds {
        for sockets in [1, 2, 4] {
            let mut pair = Pair::new(Options { sockets, spread: 16 }, BYTES);
            table.add(sockets as usize, Column::Ours(0), Some(pair.per_write(BYTES, 5000)));
            table.add(sockets as usize, Column::Peer("iperf3"), peers::iperf3(sockets, BYTES, None));
            table.add(sockets as usize, Column::Peer("iperf3 reno"), peers::iperf3(sockets, BYTES, Some("reno")));
        }
        eprintln!("# sockets, round {} of {}", round + 1, settings.rounds);
    }
    table.print();
}

type Part = (&'static str, fn(&Settings));

const PARTS: [Part; 3] = [("latency", latency), ("bandwidth", bandwidth), ("sockets", sockets)];

fn main() {
    // `cargo test --benches` starts this too, without the flag.
    if !std::env::args().any(|argument| argument == "--bench") {
        return println!("tcp_speed measures only under `cargo bench`");
    }
    let settings = Settings::parse();
    for (name, part) in PARTS {
        if settings.wants(name) {
            part(&settings);
        }
    }
    if settings.wants("scale") {
        scale::run(settings.rounds);
    }
}
