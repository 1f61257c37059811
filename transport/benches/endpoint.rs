//! What the endpoint costs between two pinned threads, beside what the two cores allow: `cargo bench -p vervain-transport --bench endpoint`.
//!
//! Prints medians of interleaved rounds, and their ratios. Figures belong into docs/performance.md, with the device.

use core::time::Duration;
use std::hint::black_box;
use std::time::Instant;

use vervain_transport::Time;
use vervain_transport::auth::Secret;
use vervain_transport::endpoint::{
    Access, Counter, Endpoint, Exposed, Notify, PeerEvent, PeerId, Posted, RemoteRegion, Terms, Write,
};
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
    counter: Counter,
    polls: u32,
    now: Time,
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
    let side = |mut end: Endpoint, peer, mine, theirs| {
        let counter = end.counter(VALUE);
        Side { end, peer, mine, theirs, counter, polls: 0, now: Time::now() }
    };
    [side(a, peer, mine_a, theirs_a), side(b, back, mine_b, theirs_b)]
}

/// Nanoseconds per half round trip of a game that both sides play.
fn half_round_trip(sides: [Side; 2], count: u64, game: &'static Game) -> f64 {
    let [mut a, mut b] = sides;
    std::thread::scope(|scope| {
        scope.spawn(move || {
            pin_to(1).unwrap();
            (0..count).for_each(|round| game.play(&mut b, false, round));
            // the last message is on its way
            let end = Instant::now() + Duration::from_millis(50);
            while Instant::now() < end {
                b.end.poll(Time::now());
            }
        });
        pin_to(0).unwrap();
        let warm = count / 10;
        (0..warm).for_each(|round| game.play(&mut a, true, round));
        let begin = Instant::now();
        (warm..count).for_each(|round| game.play(&mut a, true, round));
        begin.elapsed().as_nanos() as f64 / (2 * (count - warm)) as f64
    })
}

impl Side {
    /// Poll as a busy loop does, which looks at the clock now and then.
    fn poll(&mut self) {
        if self.polls.is_multiple_of(64) {
            self.now = Time::now();
        }
        self.polls = self.polls.wrapping_add(1);
        self.end.poll(self.now);
    }

    /// Start a transfer of which only the effect counts.
    fn start(&mut self, post: impl Fn(&mut Self) -> vervain_transport::Result<Posted>) {
        while post(self).unwrap().started().is_none() {
            self.poll();
        }
    }
}

/// How a ball is passed in some round, and how the other side sees that it has come.
struct Game {
    name: &'static str,
    pass: fn(&mut Side, u64),
    has_come: fn(&mut Side, u64) -> bool,
}

const GAMES: [Game; 3] = [
    Game {
        name: "send 8 B",
        pass: |side, _| side.start(|side| side.end.send(side.peer, 0, &[7; 8], never().detached())),
        has_come: |side, _| side.end.next_message().is_some(),
    },
    Game {
        name: "write 8 B, seen in memory",
        pass: |side, round| {
            let word = (round + 1).to_le_bytes();
            side.start(|side| side.end.write_inline(&word, side.theirs.at(0), Notify::No, never().detached()));
        },
        // several looks for each poll, as a program does that waits for memory
        has_come: |side, round| (0..16).any(|_| side.mine.load(0).unwrap() == round + 1),
    },
    Game {
        name: "write 8 B + immediate",
        pass: |side, _| {
            let notify = Notify::Immediate(VALUE);
            side.start(|side| side.end.write_inline(&[1; 8], side.theirs.at(64), notify, never().detached()));
        },
        has_come: |side, round| side.counter.get() == round + 1,
    },
];

/// The value of immediates.
const VALUE: u32 = 5;

impl Game {
    fn play(&self, side: &mut Side, begins: bool, round: u64) {
        if begins {
            (self.pass)(side, round);
        }
        while !(self.has_come)(side, round) {
            side.poll();
        }
        if !begins {
            (self.pass)(side, round);
        }
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
    let (mut started, mut ended) = (0u64, 0u64);
    let begin = Instant::now();
    while ended < count {
        if started < count {
            started += a.end.write_many(a.peer, &writes, never()).unwrap() as u64;
        }
        a.poll();
        if backend == Backend::Tcp {
            b.poll();
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
            a.poll();
            if backend == Backend::Tcp {
                b.poll();
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
    for backend in [Backend::Shm, Backend::Tcp] {
        let count = if backend == Backend::Shm { 200_000 } else { 10_000 };
        let (mut raw, mut times) = (Vec::new(), vec![Vec::new(); GAMES.len()]);
        for _ in 0..ROUNDS {
            raw.push(ping_pong::one_way_nanoseconds(0, 1, 40).unwrap());
            for (game, times) in GAMES.iter().zip(&mut times) {
                times.push(half_round_trip(pair(backend), count, game));
            }
        }
        let raw = median(&mut raw);
        println!("{backend}: raw half round trip of a cache line {raw:.0} ns");
        for (Game { name, .. }, times) in GAMES.iter().zip(&mut times) {
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
