//! Ranks that disagree: `Mismatch` on every rank, both values in the report, and no byte written outside of any buffer.

use std::sync::Barrier;
use std::time::{Duration, Instant};

use vervain_collectives::plan::Algorithm;
use vervain_collectives::{Call, Collective, Communicator, Config, DataType, Kind, Protocol, Rank, ReduceOp};
use vervain_transport::fabric::Backend;

use crate::support::{FABRICS, by, cluster, join_each, on, on_threads};

/// What a rank calls.
#[derive(Clone, Copy, Debug)]
struct Wish {
    collective: Collective,
    datatype: DataType,
    op: ReduceOp,
    root: u32,
    count: usize,
    registered: bool,
}

const fn all_reduce(count: usize) -> Wish {
    Wish {
        collective: Collective::AllReduce,
        datatype: DataType::F32,
        op: ReduceOp::Sum,
        root: 0,
        count,
        registered: false,
    }
}

const fn of(collective: Collective, count: usize) -> Wish {
    Wish { collective, ..all_reduce(count) }
}

const CANARY: u8 = 0xa5;
const GUARD: usize = 256;

/// Memory of a call between two guards.
struct Guarded<'a>(&'a mut [u8]);

impl<'a> Guarded<'a> {
    fn new(memory: &'a mut [u8]) -> Self {
        memory.fill(CANARY);
        Self(memory)
    }

    fn start(&mut self) -> *mut u8 {
        self.0[GUARD..].as_mut_ptr()
    }

    /// Whether everything but the `bytes` bytes that may be written is as it was.
    fn is_whole(&self, bytes: usize) -> bool {
        let (before, rest) = self.0.split_at(GUARD);
        before.iter().chain(&rest[bytes..]).all(|&byte| byte == CANARY)
    }
}

/// How a rank's call ended, at the latest with the barrier after it; and the report.
type Ending = (Result<(), vervain_collectives::Error>, Vec<String>);

fn run(c: &Communicator, warmed: &Barrier, warm: Wish, wish: Wish) -> Ending {
    let blocks = match wish.collective {
        Collective::AllGather | Collective::ReduceScatter | Collective::AllToAll => c.ranks() as usize,
        _ => 1,
    };
    let bytes = wish.count * wish.datatype.bytes() * blocks;
    let room = 2 * GUARD + bytes.max(4 * warm.count);
    let mut plain = (vec![0; room], vec![0; room]);
    // if any rank uses registered memory all have some
    let shared = 2 * GUARD + (1 << 20);
    let mut lent = warm.registered.then(|| (c.alloc::<u8>(shared).unwrap(), c.alloc::<u8>(shared).unwrap()));
    let (input, output): (&mut [u8], &mut [u8]) = match &mut lent {
        Some((input, output)) => (input, output),
        None => (&mut plain.0, &mut plain.1),
    };
    let (mut input, mut output) = (Guarded::new(input), Guarded::new(output));
    let call = |wish: Wish, input: &mut Guarded<'_>, output: &mut Guarded<'_>| Call {
        collective: wish.collective,
        datatype: wish.datatype,
        op: Some(wish.op),
        root: Some(Rank::new(wish.root)),
        count: wish.count,
        input: input.start(),
        output: output.start(),
        registered: wish.registered,
    };
    for _ in 0..2 {
        // SAFETY: both buffers have room for `warm`, and only this thread uses them.
        unsafe { c.call(&call(warm, &mut input, &mut output)) }.unwrap();
    }
    // a failure ends whatever runs, also the end of a call before
    warmed.wait();
    let mut output = Guarded::new(output.0);
    // SAFETY: both buffers have room for `wish`, and only this thread uses them.
    let result = unsafe { c.call(&call(wish, &mut input, &mut output)) };
    let result = result.and_then(|()| c.barrier());
    assert!(output.is_whole(bytes), "{wish:?} wrote outside of its buffer");
    assert!(input.is_whole(0), "{wish:?} wrote its input");
    (result, c.report().map(|report| report.lines.clone()).unwrap_or_default())
}

/// All ranks but the last call `ours`, it calls `odd`.
fn disagree(ranks: u32, configs: &[Config], warm: Wish, ours: Wish, odd: Wish) {
    let title = format!("{ours:?} and {odd:?} on {ranks} ranks, {configs:?}");
    let communicators = join_each(configs).into_iter().map(|joined| joined.expect(&title).into()).collect::<Vec<_>>();
    let begin = Instant::now();
    let warmed = Barrier::new(ranks as usize);
    let wish = |c: &Communicator| if c.rank().get() + 1 == ranks { odd } else { ours };
    let endings = on_threads(&communicators, |c| run(c, &warmed, warm, wish(c)));
    assert!(begin.elapsed() < Duration::from_secs(10), "{title}");
    for (rank, (result, lines)) in endings.iter().enumerate() {
        let error = result.expect_err(&title);
        assert_eq!(error.kind(), Kind::Mismatch, "{title}: {lines:?}");
        let peer = error.rank().expect("a peer").index();
        assert!(peer != rank || ranks > 2, "{title}: rank {rank} names itself");
        let number = error.operation().expect("the number");
        let last = ranks - 1;
        let told = |line: &String| {
            line.starts_with(&format!("operation {number}: rank ")) && line.contains(&format!("; rank {last} called "))
        };
        assert!(lines.iter().any(told), "{title}: {lines:?}");
        if ours.count != odd.count {
            let both = |line: &String| {
                line.contains(&format!("of {} ", ours.count)) && line.contains(&format!("of {} ", odd.count))
            };
            assert!(lines.iter().any(both), "{title}: {lines:?}");
        }
        // it stays so
        assert_eq!(error.operation(), endings[0].0.unwrap_err().operation(), "{title}");
    }
}

fn everywhere(ours: Wish, odd: Wish) {
    let small = ours.count.max(odd.count) < 1000;
    for fabric in FABRICS {
        for protocol in [Protocol::Ll, Protocol::Ll128, Protocol::Simple] {
            if fabric == Backend::Tcp && protocol == Protocol::Ll128 {
                continue;
            }
            let ranks = if small { 3 } else { 2 };
            disagree(ranks, &vec![by(fabric, protocol); ranks as usize], all_reduce(4), ours, odd);
        }
    }
}

#[test]
fn counts_that_differ_are_named() {
    for (ours, odd) in [(1, 2), (10, 11), (100_001, 100_000), (7, 70_000)] {
        everywhere(all_reduce(ours), all_reduce(odd));
    }
}

#[test]
fn nothing_against_something_is_named() {
    everywhere(all_reduce(0), all_reduce(8));
    everywhere(all_reduce(8), all_reduce(0));
    for fabric in FABRICS {
        let configs = vec![on(fabric); 3];
        disagree(3, &configs, all_reduce(4), of(Collective::Barrier, 0), all_reduce(8));
        disagree(3, &configs, all_reduce(4), all_reduce(8), of(Collective::Barrier, 0));
    }
}

#[test]
fn types_and_operations_that_differ_are_named() {
    everywhere(all_reduce(10), Wish { datatype: DataType::I32, ..all_reduce(10) });
    everywhere(all_reduce(10), Wish { datatype: DataType::F64, ..all_reduce(5) });
    everywhere(all_reduce(10), Wish { op: ReduceOp::Max, ..all_reduce(10) });
}

#[test]
fn roots_that_differ_are_named() {
    for collective in [Collective::Broadcast, Collective::Reduce] {
        everywhere(of(collective, 10), Wish { root: 1, ..of(collective, 10) });
    }
}

#[test]
fn collectives_that_differ_are_named() {
    everywhere(all_reduce(12), of(Collective::AllGather, 12));
    everywhere(of(Collective::AllToAll, 12), of(Collective::ReduceScatter, 12));
    everywhere(of(Collective::Broadcast, 12), all_reduce(12));
}

#[test]
fn every_collective_notices_another_count() {
    for fabric in FABRICS {
        for collective in [
            Collective::AllGather,
            Collective::ReduceScatter,
            Collective::AllToAll,
            Collective::Broadcast,
            Collective::Reduce,
        ] {
            disagree(3, &vec![on(fabric); 3], all_reduce(4), of(collective, 100), of(collective, 101));
        }
    }
}

#[test]
fn direct_buffers_of_other_counts_are_not_touched() {
    let registered = |count| Wish { registered: true, ..all_reduce(count) };
    for ranks in [2, 3] {
        let configs = vec![on(Backend::Shm); ranks as usize];
        disagree(ranks, &configs, registered(4000), registered(4000), registered(4001));
        disagree(ranks, &configs, registered(4000), registered(4000), registered(0));
    }
}

#[test]
fn registered_against_plain_is_named() {
    let registered = Wish { registered: true, ..all_reduce(4000) };
    disagree(2, &vec![on(Backend::Shm); 2], registered, registered, all_reduce(4000));
    disagree(3, &vec![on(Backend::Shm); 3], registered, all_reduce(4000), registered);
}

#[test]
fn pulls_of_other_counts_are_named() {
    let config = Config { algorithm: Some(Algorithm::Pull), ..on(Backend::Shm) };
    // no barrier by pulls: what the last rank learns comes with its call
    let plain = |count| all_reduce(count);
    disagree(2, &vec![config.clone(); 2], plain(4000), plain(60_000), plain(60_001));
    disagree(3, &vec![config; 3], plain(4000), plain(60_000), plain(59_999));
    // where size decides
    disagree(2, &vec![on(Backend::Shm); 2], plain(4), plain(1 << 20), plain((1 << 20) + 1));
}

#[test]
fn algorithms_that_differ_are_named() {
    for fabric in FABRICS {
        let with = |algorithm| Config { algorithm: Some(algorithm), ..on(fabric) };
        let communicators: Vec<_> = join_each(&[with(Algorithm::Ring), with(Algorithm::OneShot)])
            .into_iter()
            .map(|joined| joined.unwrap().into())
            .collect();
        let endings = on_threads(&communicators, |c| {
            let result = c.all_reduce_in_place(&mut [1i32; 100], ReduceOp::Sum).and_then(|()| c.barrier());
            (result, c.report())
        });
        for (result, report) in endings {
            assert_eq!(result.unwrap_err().kind(), Kind::Mismatch);
            let lines = &report.unwrap().lines;
            assert!(lines.iter().any(|line| line.contains("plan ")), "{lines:?}");
        }
    }
}

#[test]
fn messages_of_other_lengths_are_named() {
    for fabric in FABRICS {
        for (sent, expected) in [(8usize, 9), (9, 8), (0, 8), (8, 0), (5, 70_000), (70_000, 5), (1 << 20, 1 << 19)] {
            let endings = cluster(2, &on(fabric), |c| {
                let result = if c.rank().get() == 0 {
                    c.send(&vec![1f32; sent], Rank::new(1))
                } else {
                    let mut memory = vec![0f32; expected + 2];
                    let [before, data @ .., after] = &mut memory[..] else { unreachable!("two more") };
                    (*before, *after) = (7.0, 7.0);
                    let mut vector = data.to_vec();
                    let result = c.recv(&mut vector, Rank::new(0));
                    assert!(*before == 7.0 && *after == 7.0);
                    result
                };
                (result.and_then(|()| c.barrier()), c.report())
            });
            for (result, report) in endings {
                let lines = report.map(|report| report.lines.clone()).unwrap_or_default();
                let error = result.expect_err("lengths differ");
                assert_eq!(error.kind(), Kind::Mismatch, "{sent} for {expected} over {fabric}: {lines:?}");
                let told = |line: &String| {
                    line.starts_with("message 0 from rank 0 to rank 1: ")
                        && line.contains(&format!("of {sent} "))
                        && line.contains(&format!("of {expected} "))
                };
                assert!(lines.iter().any(told), "{sent} for {expected} over {fabric}: {lines:?}");
            }
        }
    }
}

#[test]
fn allocations_of_other_sizes_are_named() {
    for ranks in [2, 3] {
        let endings = cluster(ranks, &on(Backend::Shm), |c| {
            let result = c.alloc::<u8>(if c.rank().get() + 1 == ranks { 4096 } else { 8192 }).map(|_| ());
            (result.and_then(|()| c.barrier()), c.report())
        });
        for (result, report) in endings {
            assert_eq!(result.unwrap_err().kind(), Kind::Mismatch);
            let lines = &report.unwrap().lines;
            assert!(lines.iter().any(|line| line.contains("8192") && line.contains("4096")), "{lines:?}");
        }
    }
}
