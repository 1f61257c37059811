//! What the tcp fabric reaches between two threads over loopback: MB/s one way and both ways, half round trip of 8 bytes.
//!
//! `cargo bench -p vervain-transport --bench tcp_speed [-- BUFFER_KIB]`

use std::{
    net::{IpAddr, Ipv4Addr},
    sync::{Arc, Barrier, Mutex},
    time::Instant,
};

use vervain_transport::{
    Rank, Result, Time,
    auth::Secret,
    fabric::{
        Access, Event, Fabric, INLINE, Identity, Key, LinkId, Op, RegionId, RemoteId, Span, Target,
        tcp::{Options, Tcp},
    },
};

const SIZE: u64 = 256 << 20;
const ROUNDS: u64 = 20_000;
const CHUNKS: [u64; 4] = [64 << 10, 256 << 10, 1 << 20, 16 << 20];

/// What two threads pass each other besides the fabric.
#[derive(Default)]
struct Board {
    addresses: [Mutex<Vec<u8>>; 2],
    keys: [Mutex<Option<Key>>; 2],
}

struct Side {
    fabric: Tcp,
    link: LinkId,
    local: RegionId,
    remote: RemoteId,
    events: Vec<Event>,
}

impl Side {
    fn new(me: usize, sockets: u32, buffer: Option<usize>, board: &Board, barrier: &Barrier) -> Result<Self> {
        let secret = Secret::from_bytes([7; 32]);
        let identity = Identity { rank: Rank::new(me as u32), incarnation: me as u64, secret };
        let address = Some(IpAddr::V4(Ipv4Addr::LOCALHOST));
        let mut fabric = Tcp::new(identity, Options { address, sockets, buffer, ..Options::default() })?;
        let mut events = Vec::with_capacity(1024);
        *board.addresses[me].lock().expect("no panic") = fabric.address();
        barrier.wait();
        if me == 0 {
            let address = board.addresses[1].lock().expect("no panic").clone();
            fabric.dial(Rank::new(1), &address, Time::NEVER)?;
        }
        let link = loop {
            fabric.poll(Time::now(), &mut events);
            if let Some(Event::Up { link, .. }) = events.pop() {
                break link;
            }
        };
        let local = fabric.allocate(2 * SIZE as usize + 4096)?;
        *board.keys[me].lock().expect("no panic") = Some(fabric.advertise(link, local, Access::ReadWrite)?);
        barrier.wait();
        let key = board.keys[1 - me].lock().expect("no panic").expect("advertised before the barrier");
        let remote = fabric.import(link, &key)?;
        Ok(Self { fabric, link, local, remote, events })
    }

    fn poll(&mut self) -> usize {
        self.events.clear();
        self.fabric.poll(Time::now(), &mut self.events);
        self.events.len()
    }

    fn counter(&self) -> u64 {
        let view = self.fabric.memory(self.local).expect("allocated");
        // SAFETY: an aligned word of our region, which only `poll`, on this thread, writes.
        unsafe { view.start.as_ptr().add(2 * SIZE as usize).cast::<u64>().read_volatile() }
    }

    fn tell(&mut self, value: u64) {
        let mut data = [0; INLINE];
        data[..8].copy_from_slice(&value.to_le_bytes());
        let target = Target { remote: self.remote, offset: 2 * SIZE };
        let op = Op::WriteInline { token: 0, data, bytes: 8, target, immediate: None };
        while self.fabric.post(self.link, &[op]).expect("the link is up") == 0 {
            self.poll();
        }
    }

    fn wait(&mut self, value: u64) {
        while self.counter() != value {
            self.poll();
        }
    }

    /// Write `SIZE` bytes in pieces of `chunk`, then the counter.
    fn stream(&mut self, chunk: u64, counter: u64) {
        let (mut posted, mut done) = (0, 0);
        let all = SIZE / chunk;
        while done < all {
            let next = |index: u64| Op::Write {
                token: 1,
                local: Span { region: self.local, offset: index * chunk, bytes: chunk },
                target: Target { remote: self.remote, offset: SIZE + index * chunk },
                immediate: None,
            };
            while posted < all && posted - done < 8 {
                let op = next(posted);
                posted += self.fabric.post(self.link, &[op]).expect("the link is up") as u64;
            }
            self.poll();
            let written = |event: &&Event| matches!(event, Event::Done { token: 1, .. });
            done += self.events.iter().filter(written).count() as u64;
        }
        self.tell(counter);
    }
}

fn run(me: usize, sockets: u32, buffer: Option<usize>, board: &Board, barrier: &Barrier) -> Result<()> {
    let mut side = Side::new(me, sockets, buffer, board, barrier)?;
    let say = |what: &str, value: f64| {
        if me == 0 {
            println!("{sockets} sockets  {what:<28} {value:>9.1}");
        }
    };
    let started = Instant::now();
    for round in 1..=ROUNDS {
        if me == 0 {
            side.tell(round);
            side.wait(round);
        } else {
            side.wait(round);
            side.tell(round);
        }
    }
    say("half round trip, us", started.elapsed().as_secs_f64() * 1e6 / (2 * ROUNDS) as f64);
    let mut counter = ROUNDS;
    for chunk in CHUNKS {
        for ways in [1, 2] {
            for pass in 0..2 {
                barrier.wait();
                counter += 1;
                let started = Instant::now();
                if me == 0 || ways == 2 {
                    side.stream(chunk, counter);
                }
                if me == 1 || ways == 2 {
                    side.wait(counter);
                }
                if ways == 1 && me == 1 {
                    side.tell(counter);
                } else if ways == 1 {
                    side.wait(counter);
                }
                // The first pass touches the pages.
                if pass == 1 {
                    let rate = SIZE as f64 / started.elapsed().as_secs_f64() / 1e6;
                    say(&format!("{ways} way, {} KiB, MB/s", chunk >> 10), rate);
                }
            }
        }
    }
    barrier.wait();
    Ok(())
}

fn main() {
    // `cargo test --benches` starts this too, without the flag.
    if !std::env::args().any(|argument| argument == "--bench") {
        return println!("tcp_speed measures only under `cargo bench`");
    }
    let buffer = std::env::args().find_map(|kib| kib.parse::<usize>().ok()).map(|kib| kib << 10);
    for sockets in [1, 2, 4] {
        let (board, barrier) = (Arc::new(Board::default()), Arc::new(Barrier::new(2)));
        let start = |me| {
            let (board, barrier) = (board.clone(), barrier.clone());
            std::thread::spawn(move || run(me, sockets, buffer, &board, &barrier).expect("loopback works"))
        };
        [0, 1].map(start).into_iter().for_each(|thread| thread.join().expect("no panic"));
    }
}
