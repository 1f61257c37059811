//! What the endpoint costs between two pinned threads, beside what the two cores allow: `cargo bench -p vervain-transport --bench endpoint`.
//!
//! Prints medians of interleaved rounds, and their ratios. Figures belong into docs/performance.md, with the device.

use core::time::Duration;
use std::hint::black_box;
use std::time::Instant;

use vervain_transport::Time;
use vervain_transport::auth::Secret;
use vervain_transport::endpoint::{Access, Endpoint, Exposed, Notify, PeerEvent, PeerId, RemoteRegion, Terms, Write};
use vervain_transport::fabric::{Backend, tcp};
use vervain_transport::host::{affinity::pin_to, ping_pong};

const ROUNDS: usize = 7;

fn never() -> Terms {
    Terms::by(Time::NEVER)
}

fn make(backend: Backend) -> Endpoint {
    let options = tcp::Options { address: Some(std::net::Ipv4Addr::LOCALHOST.into()), ..tcp::Options::default() };
    Endpoint::builder().secret(Secret::from_bytes([1; 32])).only(backend).tcp(options).build().unwrap()
}

/// One side, with a region of its own that the other may write, and the other's.
struct Side {
    end: Endpoint,
    peer: PeerId,
    mine: Exposed,
    theirs: RemoteRegion,
}

const REGION: usize = 32 << 20;

fn pair(backend: Backend) -> [Side; 2] {
    let (mut a, mut b) = (make(backend), make(backend));
    let limit = || Time::now().after(Duration::from_secs(10));
    let peer = a.dial(&b.address().unwrap(), limit()).unwrap();
    let back = loop {
        a.poll(Time::now());
        b.poll(Time::now());
        if let Some(PeerEvent::Up(back)) = b.next_peer_event() {
            break back;
        }
    };
    while !a.is_up(peer).unwrap() {
        a.poll(Time::now());
        b.poll(Time::now());
    }
    let (here, there) = (a.allocate(REGION).unwrap(), b.allocate(REGION).unwrap());
    let (mine_a, advert_a) = a.advertise(here, peer, Access::ReadWrite).unwrap();
    let (mine_b, advert_b) = b.advertise(there, back, Access::ReadWrite).unwrap();
    let mut open = |at: usize| loop {
        a.poll(Time::now());
        b.poll(Time::now());
        let opened = if at == 0 { a.open_region(peer, &advert_b) } else { b.open_region(back, &advert_a) };
        if let Ok(region) = opened {
            return region;
        }
    };
    let (theirs_a, theirs_b) = (open(0), open(1));
    [Side { end: a, peer, mine: mine_a, theirs: theirs_a }, Side { end: b, peer: back, mine: mine_b, theirs: theirs_b }]
}

/// Nanoseconds per half round trip of a game that both sides play.
fn half_round_trip(sides: [Side; 2], count: u64, play: fn(&mut Side, u64, u64)) -> f64 {
    let [mut a, mut b] = sides;
    std::thread::scope(|scope| {
        scope.spawn(move || {
            pin_to(1).unwrap();
            (0..count).for_each(|round| play(&mut b, 1, round));
            // the last message is on its way
            let end = Instant::now() + Duration::from_millis(50);
            while Instant::now() < end {
                b.end.poll(Time::now());
            }
        });
        pin_to(0).unwrap();
        let warm = count / 10;
        (0..warm).for_each(|round| play(&mut a, 0, round));
        let begin = Instant::now();
        (warm..count).for_each(|round| play(&mut a, 0, round));
        begin.elapsed().as_nanos() as f64 / (2 * (count - warm)) as f64
    })
}

/// A time for polls: the clock is looked at now and then, as any busy loop does.
fn time(polls: &mut u32) -> Time {
    thread_local!(static NOW: core::cell::Cell<Time> = const { core::cell::Cell::new(Time::from_nanos(0)) });
    *polls = polls.wrapping_add(1);
    if *polls % 64 == 1 {
        NOW.set(Time::now());
    }
    NOW.get()
}

fn messages(side: &mut Side, who: u64, _round: u64) {
    let mut polls = 0;
    if who == 0 {
        while side.end.send(side.peer, 0, &[7; 8], never().detached()).unwrap().started().is_none() {
            side.end.poll(time(&mut polls));
        }
    }
    while side.end.next_message().is_none() {
        side.end.poll(time(&mut polls));
    }
    if who == 1 {
        while side.end.send(side.peer, 0, &[7; 8], never().detached()).unwrap().started().is_none() {
            side.end.poll(time(&mut polls));
        }
    }
}

fn write_to_memory(side: &mut Side, who: u64, round: u64) {
    let mut polls = 0;
    let mut pass = |side: &mut Side| {
        let word = (round + 1).to_le_bytes();
        while side
            .end
            .write_inline(&word, side.theirs.at(0), Notify::No, never().detached())
            .unwrap()
            .started()
            .is_none()
        {
            side.end.poll(time(&mut polls));
        }
    };
    if who == 0 {
        pass(side);
    }
    let mut looks = 0u32;
    while side.mine.load(0).unwrap() != round + 1 {
        looks += 1;
        if looks.is_multiple_of(16) {
            side.end.poll(time(&mut looks));
        }
    }
    if who == 1 {
        pass(side);
    }
    side.end.poll(time(&mut looks));
}

fn immediates(side: &mut Side, who: u64, round: u64) {
    let counter = side.end.counter(5);
    let mut polls = 0;
    let pass = |side: &mut Side| {
        let mut polls = 0;
        let remote = side.theirs.at(64);
        while side
            .end
            .write_inline(&[1; 8], remote, Notify::Immediate(5), never().detached())
            .unwrap()
            .started()
            .is_none()
        {
            side.end.poll(time(&mut polls));
        }
    };
    if who == 0 {
        pass(side);
    }
    while counter.get() != round + 1 {
        side.end.poll(time(&mut polls));
    }
    if who == 1 {
        pass(side);
    }
}

/// Writes of 64 bytes per second, each with its completion.
fn rate(backend: Backend) -> f64 {
    let [mut a, mut b] = pair(backend);
    pin_to(0).unwrap();
    let local = a.end.allocate(1 << 16).unwrap();
    let writes: Vec<Write> = (0..64)
        .map(|index| Write {
            local: local.span(index * 64, 64),
            remote: a.theirs.at(index * 64),
            notify: Notify::No,
            context: index,
        })
        .collect();
    let count = if backend == Backend::Shm { 4_000_000u64 } else { 100_000 };
    let (mut started, mut ended, mut polls) = (0u64, 0u64, 0);
    let begin = Instant::now();
    while ended < count {
        if started < count {
            started += a.end.write_many(a.peer, &writes, never()).unwrap() as u64;
        }
        a.end.poll(time(&mut polls));
        if backend == Backend::Tcp {
            b.end.poll(time(&mut polls));
        }
        while let Some(done) = a.end.next_completion() {
            black_box(done.context);
            ended += 1;
        }
    }
    ended as f64 / begin.elapsed().as_secs_f64()
}

/// Bytes per second of one write after another, and of copies by one core.
fn bandwidth(backend: Backend, bytes: u64) -> (f64, f64) {
    let [mut a, mut b] = pair(backend);
    pin_to(0).unwrap();
    let local = a.end.allocate(bytes as usize).unwrap();
    let (mut from, mut to) = (vec![1u8; bytes as usize], vec![2u8; bytes as usize]);
    let count = ((1 << 28) / bytes).max(4);
    let (mut ours, mut copies) = (Vec::new(), Vec::new());
    for _ in 0..count {
        let begin = Instant::now();
        let span = local.span(0, bytes);
        let transfer = a.end.write(span, a.theirs.at(0), Notify::No, never()).unwrap().started().unwrap();
        while a.end.end_of(transfer).unwrap().is_none() {
            a.end.poll(Time::now());
            if backend == Backend::Tcp {
                b.end.poll(Time::now());
            }
        }
        ours.push(begin.elapsed().as_secs_f64());
        let begin = Instant::now();
        to.copy_from_slice(&from);
        black_box((&mut from, &mut to));
        copies.push(begin.elapsed().as_secs_f64());
    }
    (bytes as f64 / median(&mut ours), bytes as f64 / median(&mut copies))
}

fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn main() {
    type Game = (&'static str, fn(&mut Side, u64, u64));
    let games: [Game; 3] =
        [("send 8 B", messages), ("write 8 B, seen in memory", write_to_memory), ("write 8 B + immediate", immediates)];
    for backend in [Backend::Shm, Backend::Tcp] {
        let count = if backend == Backend::Shm { 200_000 } else { 10_000 };
        let (mut raw, mut times) = (Vec::new(), vec![Vec::new(); games.len()]);
        for _ in 0..ROUNDS {
            raw.push(ping_pong::one_way_nanoseconds(0, 1, 40).unwrap());
            for ((_, play), times) in games.iter().zip(&mut times) {
                times.push(half_round_trip(pair(backend), count, *play));
            }
        }
        let raw = median(&mut raw);
        println!("{backend}: raw half round trip of a cache line {raw:.0} ns");
        for ((name, _), times) in games.iter().zip(&mut times) {
            let ours = median(times);
            println!("{backend}: {name:<28} {ours:>8.0} ns  {:>6.2} of it", ours / raw);
        }
        let mut rates: Vec<f64> = (0..ROUNDS).map(|_| rate(backend)).collect();
        println!("{backend}: 64-byte writes, each ended     {:.1} million/s", median(&mut rates) / 1e6);
        for bytes in [4096, 64 << 10, 1 << 20, 16 << 20] {
            let (ours, copy) = bandwidth(backend, bytes);
            println!(
                "{backend}: write of {bytes:>8} B {:>6.2} GB/s  {:.2} of one core's copy",
                ours / 1e9,
                ours / copy
            );
        }
    }
}
