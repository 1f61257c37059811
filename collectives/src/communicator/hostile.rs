//! Peers that know the secret and write anything, anywhere, into the memory that they share with us.
//!
//! One thread steps a whole job on a virtual clock and, between two steps, writes words where a peer could. Whatever they are,
//! every rank ends in time, with its result or an error, and without a panic: all accesses are bounded by assertions. Where
//! words are checked, counters, flags and records, a result that comes is the right one.

use core::task::Poll;
use core::time::Duration;
use std::thread;

use vervain_transport::fabric::Backend;
use vervain_transport::testing::random::Random;
use vervain_transport::{Kind, Rank, Result, Time};

use super::{Call, Communicator, Config, Progress, Protocol};
use crate::buffer::Buffer;
use crate::executor::exposed::{Content, Exposed};
use crate::plan::Algorithm;
use crate::{Collective, DataType, ReduceOp};

/// How long a call may take, and how long a failure may be looked into besides.
const TIMEOUT: Duration = Duration::from_secs(60);
const SLACK: Duration = Duration::from_secs(3);
/// What passes between two steps.
const TICK: Duration = Duration::from_millis(250);
/// Calls in a row: what was written during one may matter in a later one only.
const CALLS: usize = 12;
/// Words written during each.
const WRITES: usize = 12;

/// What is attacked.
#[derive(Clone, Copy, Debug)]
struct Scenario {
    ranks: u32,
    collective: Collective,
    algorithm: Option<Algorithm>,
    protocol: Option<Protocol>,
    count: usize,
    registered: bool,
}

const fn all_reduce(ranks: u32, algorithm: Algorithm, protocol: Protocol, count: usize) -> Scenario {
    let (algorithm, protocol) = (Some(algorithm), Some(protocol));
    Scenario { ranks, collective: Collective::AllReduce, algorithm, protocol, count, registered: false }
}

const fn direct(algorithm: Algorithm, registered: bool) -> Scenario {
    let algorithm = Some(algorithm);
    Scenario { ranks: 3, collective: Collective::AllReduce, algorithm, protocol: None, count: 5000, registered }
}

const fn plain(ranks: u32, collective: Collective, count: usize) -> Scenario {
    Scenario { ranks, collective, algorithm: None, protocol: None, count, registered: false }
}

/// Every protocol and way of moving data: slots once and several times around, boards, buffers touched directly and pulled,
/// messages between two ranks, and no data at all.
const SCENARIOS: [Scenario; 15] = [
    all_reduce(2, Algorithm::OneShot, Protocol::Ll, 5),
    all_reduce(2, Algorithm::TwoShot, Protocol::Ll, 30_000),
    all_reduce(3, Algorithm::OneShot, Protocol::Ll, 30_000),
    all_reduce(2, Algorithm::OneShot, Protocol::Ll128, 300),
    all_reduce(3, Algorithm::OneShot, Protocol::Ll128, 60_000),
    all_reduce(3, Algorithm::Ring, Protocol::Ll128, 60_000),
    all_reduce(2, Algorithm::OneShot, Protocol::Simple, 500),
    all_reduce(2, Algorithm::TwoShot, Protocol::Simple, 900_000),
    all_reduce(3, Algorithm::Ring, Protocol::Simple, 9_000),
    direct(Algorithm::Direct, true),
    direct(Algorithm::DirectOneShot, true),
    direct(Algorithm::Pull, false),
    plain(2, Collective::Send, 10_000),
    plain(3, Collective::AllToAll, 2_000),
    plain(3, Collective::Barrier, 0),
];

fn below(random: &mut Random, limit: usize) -> usize {
    random.below(limit as u64) as usize
}

/// Rather a small number: what lies in front is used most.
fn low(random: &mut Random, limit: usize) -> usize {
    let most = below(random, limit);
    below(random, most + 1)
}

/// Which words are written, and what.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Attack {
    /// Counters and lines; values that no peer would choose.
    Nonsense,
    /// Any word; values that might be taken for right.
    Anything,
}

impl Attack {
    fn write(self, random: &mut Random, places: &[Exposed]) {
        let content = match (random.below(4), self) {
            (0 | 1, _) => Content::Counter,
            (3, Attack::Anything) => Content::Bytes,
            _ => Content::Line,
        };
        let places: Vec<&Exposed> = places.iter().filter(|place| place.content == content).collect();
        let Some(place) = places.get(low(random, places.len())) else { return };
        let memory = place.memory;
        let at = 8 * low(random, memory.bytes() / 8);
        let before = memory.load(at);
        let any = random.bits();
        let value = match (self, any % 8) {
            (Attack::Nonsense, _) | (_, 0) => random.bits(),
            (_, 1) => 0,
            (_, 2) => u64::MAX - random.bits() % 3,
            (_, 3) => before.wrapping_add(random.bits() % 10),
            (_, 4) => before.wrapping_sub(random.bits() % 10),
            (_, 5) => before ^ 1 << (random.bits() % 64),
            (_, 6) => memory.load(8 * below(random, memory.bytes() / 8)),
            _ => random.bits() % 300,
        };
        memory.store(at, value);
    }
}

/// A job whose ranks have all called each other once, with the buffers of one call.
struct Job {
    scenario: Scenario,
    communicators: Vec<Communicator>,
    buffers: Vec<Buffers>,
}

enum Buffers {
    Registered(Buffer<i32>, Buffer<i32>),
    Plain(Vec<i32>, Vec<i32>),
}

impl Buffers {
    fn slices(&mut self) -> (&mut [i32], &mut [i32]) {
        match self {
            Buffers::Registered(input, output) => (input, output),
            Buffers::Plain(input, output) => (input, output),
        }
    }
}

impl Job {
    fn start(scenario: Scenario) -> Self {
        let config = Config {
            fabric: Some(Backend::Shm),
            algorithm: scenario.algorithm,
            protocol: scenario.protocol,
            progress: Progress::Manual,
            timeout: TIMEOUT,
            ..Config::default()
        };
        let communicators = Communicator::init_all(scenario.ranks, &config).unwrap();
        let blocks = if scenario.collective == Collective::AllToAll { scenario.ranks as usize } else { 1 };
        let length = scenario.count * blocks;
        let first = |c: Communicator| {
            let mut buffers = match scenario.registered {
                true => Buffers::Registered(c.alloc(length).unwrap(), c.alloc(length).unwrap()),
                false => Buffers::Plain(vec![0; length], vec![0; length]),
            };
            if scenario.is_direct() {
                let call = scenario.call(c.rank(), &mut buffers);
                // SAFETY: the buffers are as long as the call says, and only it uses them.
                unsafe { c.call(&call) }.unwrap();
            }
            (c, buffers)
        };
        let ready: Vec<_> = thread::scope(|scope| {
            let threads: Vec<_> = communicators.into_iter().map(|c| scope.spawn(|| first(c))).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        let (communicators, buffers) = ready.into_iter().unzip();
        let mut job = Self { scenario, communicators, buffers };
        if !scenario.is_direct() {
            job.begin(0);
            let mut turn = 0..;
            let results = job.run(&mut Time::now(), || turn.next().unwrap_or(0) % scenario.ranks as usize);
            assert!(results.iter().all(Result::is_ok), "{results:?}");
        }
        job
    }

    /// Where peers write, of one rank.
    fn exposed(&self, rank: usize) -> Vec<Exposed> {
        self.communicators[rank].inner.borrow_mut().engine.links().unwrap().exposed()
    }

    fn begin(&mut self, call: usize) {
        for (c, buffers) in self.communicators.iter().zip(&mut self.buffers) {
            let (input, output) = buffers.slices();
            input.fill(c.rank().get() as i32 + 1 + call as i32);
            output.fill(-1);
            let call = self.scenario.call(c.rank(), buffers);
            // SAFETY: the buffers are as long as the call says, and untouched until it has ended.
            unsafe { c.begin(&call) }.unwrap();
        }
    }

    /// Step ranks until each has ended, and hand over before each step.
    fn run(&self, now: &mut Time, mut before: impl FnMut() -> usize) -> Vec<Result<()>> {
        let end = now.after(TIMEOUT + SLACK);
        let mut results: Vec<Option<Result<()>>> = vec![None; self.communicators.len()];
        while results.contains(&None) {
            assert!(*now < end, "{:?} has not ended: {results:?}", self.scenario);
            for _ in 0..results.len() {
                let rank = before();
                if results[rank].is_some() {
                    self.communicators[rank].inner.borrow_mut().engine.step_mesh(*now);
                } else if let Poll::Ready(ended) = self.communicators[rank].step(*now) {
                    results[rank] = Some(ended);
                }
            }
            *now = now.after(TICK);
        }
        results.into_iter().flatten().collect()
    }

    fn is_right(&mut self, rank: usize, call: usize) -> bool {
        let Scenario { ranks, collective, count, .. } = self.scenario;
        let from = |rank: i32| rank + 1 + call as i32;
        let expected = |at: usize| match collective {
            Collective::Send => from(0),
            Collective::AllReduce => (0..ranks as i32).map(from).sum(),
            Collective::AllToAll => from((at / count) as i32),
            other => unreachable!("{other:?} has no data here"),
        };
        let receives = collective != Collective::Send || rank == 1;
        !receives || self.buffers[rank].slices().1.iter().enumerate().all(|(at, &value)| value == expected(at))
    }
}

impl Scenario {
    /// Peers touch the buffers: what ranks agree on before that blocks, so that each needs a thread.
    fn is_direct(&self) -> bool {
        self.registered || self.algorithm == Some(Algorithm::Pull)
    }

    fn call(&self, rank: Rank, buffers: &mut Buffers) -> Call {
        let (input, output) = buffers.slices();
        let message = self.collective == Collective::Send;
        let collective = if message && rank.get() == 1 { Collective::Recv } else { self.collective };
        Call {
            collective,
            datatype: DataType::I32,
            op: (collective == Collective::AllReduce).then_some(ReduceOp::Sum),
            root: message.then(|| Rank::new(1 - rank.get())),
            count: self.count,
            input: input.as_ptr().cast(),
            output: output.as_mut_ptr().cast(),
            registered: self.registered,
        }
    }
}

/// Whether an error says that a peer misbehaved, or did not come.
fn is_explained(kind: Kind) -> bool {
    !matches!(kind, Kind::Bug | Kind::InvalidArgument | Kind::InvalidUsage)
}

fn attack(scenario: Scenario, attack: Attack, seed: u64) {
    println!("{attack:?} {seed} on {scenario:?}");
    let mut random = Random::new(seed);
    let mut job = Job::start(scenario);
    let mut now = Time::now();
    let victim = below(&mut random, scenario.ranks as usize);
    let places = job.exposed(victim);
    for call in 0..CALLS {
        job.begin(call);
        let mut writes = WRITES;
        let results = job.run(&mut now, || {
            if writes > 0 && random.below(2) == 0 {
                writes -= 1;
                attack.write(&mut random, &places);
            }
            below(&mut random, scenario.ranks as usize)
        });
        for (rank, result) in results.iter().enumerate() {
            match result {
                Ok(()) => assert!(attack == Attack::Anything || job.is_right(rank, call), "rank {rank}, call {call}"),
                Err(error) => assert!(is_explained(error.kind()), "rank {rank}, call {call}: {error:?}"),
            }
        }
        if results.iter().any(Result::is_err) {
            let refused = |c: &Communicator| c.barrier().is_err();
            assert!(job.communicators.iter().zip(&results).all(|(c, result)| result.is_ok() || refused(c)));
            return;
        }
    }
}

fn campaign(seeds: core::ops::Range<u64>) {
    for seed in seeds {
        for scenario in SCENARIOS {
            attack(scenario, Attack::Nonsense, seed);
            attack(scenario, Attack::Anything, seed);
        }
    }
}

#[test]
fn whatever_a_peer_writes_ends_in_a_right_result_or_an_error() {
    campaign(0..3);
}

#[test]
#[ignore = "takes minutes: more of the same seeds"]
fn whatever_a_peer_writes_ends_in_a_right_result_or_an_error_at_length() {
    campaign(3..200);
}
