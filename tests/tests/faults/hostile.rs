//! A rank that knows the secret and writes anything into all memory that it shares with others, while they use it.
//!
//! It finds that memory like any process could, in its list of mappings, and so reaches what no rule names too: doorbells,
//! rings of records, credits, pages of registered buffers.

use core::time::Duration;
use std::fs;
use std::os::unix::fs::FileExt;
use std::time::Instant;

use vervain_collectives::{Communicator, Kind, Rank, ReduceOp, Result};
use vervain_transport::sync::{AtomicU64, Ordering, thread as pause};

use crate::support::{finish, job, member, text};

const SEED: &str = "VERVAIN_TEST_SEED";
/// Deadline of a call.
const TIMEOUT: Duration = Duration::from_secs(1);
/// Rounds of calls, if nothing fails before.
const ROUNDS: u64 = 40;

#[test]
fn rank_that_writes_anywhere_breaks_nobody() {
    std::thread::scope(|scope| {
        for seed in 0..4 {
            scope.spawn(move || {
                let running = job(3, "hostile::body_of_which_rank_2_writes_anywhere").env(SEED, seed.to_string());
                for exit in finish(running.start().unwrap()) {
                    let text = text(&exit);
                    assert!(exit.status.success() && !exit.killed, "seed {seed}, rank {}: {text}", exit.rank);
                    assert!(text.contains("ended with "), "seed {seed}: {text}");
                }
            });
        }
    });
}

#[test]
fn body_of_which_rank_2_writes_anywhere() {
    let Some(c) = member(TIMEOUT) else { return };
    let seed: u64 = std::env::var(SEED).unwrap().parse().unwrap();
    let mut data = Data::new(&c);
    if data.calls(&c).is_err() {
        // a machine so busy that the deadline passed before anybody wrote anything
        println!("ended with nothing tried");
        return;
    }
    let enough = AtomicU64::new(0);
    let (result, slowest) = std::thread::scope(|scope| {
        if c.rank().get() == 2 {
            scope.spawn(|| write_anywhere(seed, &enough));
        }
        let mut slowest = Duration::ZERO;
        let mut round = || {
            let began = Instant::now();
            let result = data.calls(&c);
            slowest = slowest.max(began.elapsed());
            result
        };
        let result = (0..ROUNDS).try_for_each(|_| round());
        enough.store(1, Ordering::Relaxed);
        (result, slowest)
    });
    // seven calls, and each has its own deadline; a failure may be looked into for two seconds
    assert!(slowest < 8 * TIMEOUT + Duration::from_secs(20), "{slowest:?}");
    if let Err(error) = result {
        assert!(!matches!(error.kind(), Kind::Bug | Kind::InvalidArgument | Kind::InvalidUsage), "{error:?}");
        assert_eq!(c.barrier().map_err(|error| error.kind()), Err(error.kind()), "a failure stays");
    }
    println!("ended with {result:?}");
}

/// Buffers of every way in which data moves.
struct Data {
    small: Vec<i32>,
    middle: Vec<i32>,
    large: Vec<i32>,
    registered: Option<vervain_collectives::Buffer<i32>>,
}

impl Data {
    fn new(c: &Communicator) -> Self {
        let registered = c.alloc(5000).ok();
        Self { small: vec![1; 3], middle: vec![1; 1000], large: vec![1; 700_000], registered }
    }

    fn calls(&mut self, c: &Communicator) -> Result<()> {
        c.all_reduce_in_place(&mut self.small, ReduceOp::Min)?;
        c.all_reduce_in_place(&mut self.middle, ReduceOp::Min)?;
        c.all_reduce_in_place(&mut self.large, ReduceOp::Min)?;
        if let Some(registered) = &mut self.registered {
            c.all_reduce_in_place(registered, ReduceOp::Min)?;
        }
        let (before, after) = (c.ranks() + c.rank().get() - 1, c.rank().get() + 1);
        let (before, after) = (Rank::new(before % c.ranks()), Rank::new(after % c.ranks()));
        let mut received = vec![0; self.middle.len()];
        c.group(|group| {
            group.send(&self.middle, after);
            group.recv(&mut received, before);
        })?;
        c.broadcast(&mut self.large, Rank::new(1))?;
        c.barrier()
    }
}

/// Start and length of every mapping that other processes may share.
fn shared() -> Vec<(u64, u64)> {
    let maps = fs::read_to_string("/proc/self/maps").unwrap();
    let shared = maps.lines().filter(|line| line.contains("memfd:") && line.contains(" rw-s "));
    let range = |line: &str| {
        let (start, rest) = line.split_once('-')?;
        let (end, _) = rest.split_once(' ')?;
        let (start, end) = (u64::from_str_radix(start, 16).ok()?, u64::from_str_radix(end, 16).ok()?);
        Some((start, end - start))
    };
    shared.filter_map(range).collect()
}

fn write_anywhere(seed: u64, enough: &AtomicU64) {
    let mappings = shared();
    assert!(mappings.len() > 6, "{mappings:?}");
    let memory = fs::File::options().write(true).open("/proc/self/mem").unwrap();
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut random = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state >> 8
    };
    while enough.load(Ordering::Relaxed) == 0 {
        let (start, length) = mappings[random() as usize % mappings.len()];
        // counters and what is used most lie in front
        let most = (length - 1) >> (random() % 18);
        let at = random() % (1 + most) / 8 * 8;
        let value = match random() % 4 {
            0 => random() % 300,
            1 => 0,
            2 => u64::MAX - random() % 3,
            _ => random().wrapping_mul(0x2545_f491_4f6c_dd1d),
        };
        // a mapping may be gone already
        let _ = memory.write_at(&value.to_le_bytes(), start + at);
        pause::yield_now();
    }
}
