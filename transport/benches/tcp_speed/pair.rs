//! Two fabrics on two pinned threads, and what they do together.

use std::{
    net::{IpAddr, Ipv4Addr},
    sync::{
        Arc, Barrier, Mutex,
        mpsc::{Receiver, Sender, channel},
    },
    thread::JoinHandle,
    time::Instant,
};

use vervain_transport::{
    Rank, Time,
    auth::Secret,
    fabric::{
        Access, Event, Fabric, Identity, Key, LinkId, Op, Outcome, RegionId, RemoteId, Span, Target,
        tcp::{self, Tcp},
    },
    host::affinity::pin_to,
};

/// Writes on their way at once.
const DEPTH: usize = 32;

/// How a message travels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Message {
    /// Send and receive.
    Send,
    /// A write that completes a receive.
    WriteImmediate,
    /// A write; the target looks at its last byte.
    Write,
}

/// How the fabrics are made.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    pub sockets: u32,
    /// Consecutive writes go to so many places in turn.
    pub spread: usize,
}

impl Default for Options {
    fn default() -> Self {
        Self { sockets: 1, spread: 1 }
    }
}

#[derive(Clone, Copy, Debug)]
enum Task {
    RoundTrips(Message, usize, usize),
    Writes(usize, usize),
}

/// What the two threads pass each other besides the fabric.
struct Board {
    addresses: [Mutex<Vec<u8>>; 2],
    keys: [Mutex<Option<Key>>; 2],
    barrier: Barrier,
}

/// Two threads with a link between them.
pub struct Pair {
    tasks: [Sender<Task>; 2],
    results: Receiver<f64>,
    threads: Vec<JoinHandle<()>>,
}

impl Pair {
    /// Fabrics for messages of up to `bytes` bytes.
    pub fn new(options: Options, bytes: usize) -> Self {
        let board =
            Arc::new(Board { addresses: Default::default(), keys: Default::default(), barrier: Barrier::new(2) });
        let (sender, results) = channel();
        let mut threads = Vec::new();
        let tasks = [0, 1].map(|me| {
            let (tasks, todo) = channel();
            let (board, results) = (board.clone(), sender.clone());
            threads.push(std::thread::spawn(move || {
                let _ = pin_to(me);
                let mut side = Side::new(me, options, bytes, &board);
                for task in todo {
                    board.barrier.wait();
                    let time = side.run(task);
                    if me == 0 {
                        results.send(time).expect("somebody asked");
                    }
                }
                board.barrier.wait();
            }));
            tasks
        });
        Self { tasks, results, threads }
    }

    fn run(&self, task: Task) -> f64 {
        self.tasks.iter().for_each(|side| side.send(task).expect("the thread runs"));
        self.results.recv().expect("the thread runs")
    }

    /// Microseconds.
    pub fn half_round_trip(&mut self, message: Message, bytes: usize, rounds: usize) -> f64 {
        self.run(Task::RoundTrips(message, bytes, rounds.div_ceil(10)));
        self.run(Task::RoundTrips(message, bytes, rounds)) / (2 * rounds) as f64
    }

    /// Microseconds per write.
    pub fn per_write(&mut self, bytes: usize, count: usize) -> f64 {
        self.run(Task::Writes(bytes, count.div_ceil(10)));
        self.run(Task::Writes(bytes, count)) / count as f64
    }
}

impl Drop for Pair {
    fn drop(&mut self) {
        self.tasks = [channel().0, channel().0];
        for thread in self.threads.drain(..) {
            thread.join().expect("no panic");
        }
    }
}

struct Side {
    me: usize,
    spread: usize,
    bytes: usize,
    fabric: Box<dyn Fabric>,
    link: LinkId,
    local: RegionId,
    remote: RemoteId,
    events: Vec<Event>,
    /// Writes and sends of ours that are done, and receives.
    done: usize,
    received: usize,
    /// Value of the last byte that was awaited last.
    mark: u8,
}

/// Tokens.
const OURS: u64 = 1;
const RECEIVE: u64 = 2;

impl Side {
    fn new(me: usize, options: Options, bytes: usize, board: &Board) -> Self {
        let secret = Secret::from_bytes([7; 32]);
        let identity = Identity { rank: Rank::new(me as u32), incarnation: me as u64, secret };
        let address = Some(IpAddr::V4(Ipv4Addr::LOCALHOST));
        let options_of_tcp = tcp::Options { address, sockets: options.sockets, ..tcp::Options::default() };
        let mut fabric: Box<dyn Fabric> = Box::new(Tcp::new(identity, options_of_tcp).expect("loopback works"));
        let mut events = Vec::with_capacity(1024);
        *board.addresses[me].lock().expect("no panic") = fabric.address();
        board.barrier.wait();
        if me == 0 {
            let address = board.addresses[1].lock().expect("no panic").clone();
            fabric.dial(Rank::new(1), &address, Time::NEVER).expect("it listens");
        }
        let link = loop {
            fabric.poll(Time::now(), &mut events);
            if let Some(Event::Up { link, .. }) = events.pop() {
                break link;
            }
        };
        // Ours first, then what the peer writes.
        let local = fabric.allocate(2 * options.spread * bytes + 4096).expect("memory");
        let key = fabric.advertise(link, local, Access::ReadWrite).expect("it is up");
        *board.keys[me].lock().expect("no panic") = Some(key);
        board.barrier.wait();
        let key = board.keys[1 - me].lock().expect("no panic").expect("advertised before the barrier");
        let remote = fabric.import(link, &key).expect("a good key");
        let spread = options.spread;
        let side = Self { me, spread, bytes, fabric, link, local, remote, events, done: 0, received: 0, mark: 0 };
        side.touch();
        side
    }

    fn memory(&self) -> *mut u8 {
        self.fabric.memory(self.local).expect("allocated").start.as_ptr()
    }

    /// Bring the pages.
    fn touch(&self) {
        for at in (0..2 * self.spread * self.bytes).step_by(4096) {
            // SAFETY: within the region; nothing is posted yet.
            unsafe { self.memory().add(at).write_volatile(0) };
        }
    }

    /// Microseconds of the whole task.
    fn run(&mut self, task: Task) -> f64 {
        let started = Instant::now();
        match task {
            Task::RoundTrips(message, bytes, rounds) => self.round_trips(message, bytes, rounds),
            Task::Writes(bytes, count) if self.me == 0 => self.write_all(bytes, count),
            Task::Writes(..) => self.serve(),
        }
        started.elapsed().as_secs_f64() * 1e6
    }

    fn poll(&mut self) {
        self.events.clear();
        self.fabric.poll(Time::now(), &mut self.events);
        for event in &self.events {
            match event {
                Event::Done { token: OURS, result: Ok(_), .. } => self.done += 1,
                Event::Done { token: RECEIVE, result: Ok(Outcome::Received { .. }), .. } => self.received += 1,
                event => panic!("{event:?}"),
            }
        }
    }

    fn post(&mut self, ops: &[Op]) {
        let mut posted = 0;
        loop {
            posted += self.fabric.post(self.link, &ops[posted..]).expect("the link is up");
            if posted == ops.len() {
                return;
            }
            self.poll();
        }
    }

    fn receive(&self) -> Op {
        let offset = (2 * self.spread * self.bytes) as u64;
        Op::Receive { token: RECEIVE, local: Span { region: self.local, offset, bytes: 4096 } }
    }

    fn message(&self, message: Message, bytes: usize) -> Op {
        let local = Span { region: self.local, offset: 0, bytes: bytes as u64 };
        let target = Target { remote: self.remote, offset: (self.spread * self.bytes) as u64 };
        match message {
            Message::Send => Op::Send { token: OURS, local },
            Message::WriteImmediate => Op::Write { token: OURS, local, target, immediate: Some(1) },
            Message::Write => Op::Write { token: OURS, local, target, immediate: None },
        }
    }

    fn round_trips(&mut self, message: Message, bytes: usize, rounds: usize) {
        let receives = message != Message::Write;
        if receives {
            self.post(&[self.receive(), self.receive()]);
        }
        let (done, received) = (self.done, self.received);
        let op = self.message(message, bytes);
        for round in 1..=rounds {
            self.mark = self.mark.wrapping_add(1);
            if self.me == 0 {
                self.stamp(bytes);
                self.post(&[op]);
            }
            if receives {
                while self.received < received + round {
                    self.poll();
                }
                // The answer carries the new receive along.
                if round + 2 <= rounds {
                    self.post(&[self.receive()]);
                }
            } else {
                self.await_mark(bytes);
            }
            if self.me == 1 {
                self.stamp(bytes);
                self.post(&[op]);
            }
        }
        while self.done < done + rounds {
            self.poll();
        }
        self.settle();
    }

    /// The acknowledgement of the last write leaves with an idle poll.
    fn settle(&mut self) {
        for _ in 0..100 {
            self.poll();
        }
    }

    /// Put the mark at the end of what is sent next.
    fn stamp(&self, bytes: usize) {
        // SAFETY: within the region; what was sent before from there has been answered.
        unsafe { self.memory().add(bytes - 1).write_volatile(self.mark) };
    }

    fn await_mark(&mut self, bytes: usize) {
        let at = self.spread * self.bytes + bytes - 1;
        // SAFETY: within the region, which only `poll`, on this thread, writes.
        while unsafe { self.memory().add(at).read_volatile() } != self.mark {
            self.poll();
        }
    }

    /// Write `count` times, then tell the peer.
    fn write_all(&mut self, bytes: usize, count: usize) {
        let before = self.done;
        let mut posted = 0;
        while self.done < before + count {
            let free = (DEPTH - (posted - (self.done - before))).min(count - posted);
            let ops: Vec<_> = (posted..posted + free).map(|index| self.write(bytes, index)).collect();
            if !ops.is_empty() {
                posted += self.fabric.post(self.link, &ops).expect("the link is up");
            }
            self.poll();
        }
        // The peer has posted its receive before the task began.
        let end = self.message(Message::WriteImmediate, 0);
        self.post(&[end]);
        while self.done < before + count + 1 {
            self.poll();
        }
    }

    fn write(&self, bytes: usize, index: usize) -> Op {
        let place = (index % self.spread * self.bytes) as u64;
        let local = Span { region: self.local, offset: place, bytes: bytes as u64 };
        let target = Target { remote: self.remote, offset: (self.spread * self.bytes) as u64 + place };
        Op::Write { token: OURS, local, target, immediate: None }
    }

    fn serve(&mut self) {
        let before = self.received;
        self.post(&[self.receive()]);
        while self.received == before {
            self.poll();
        }
        self.settle();
    }
}
