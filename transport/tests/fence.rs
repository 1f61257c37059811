//! A writer that is stopped in the middle of a write, while its target revokes the memory and uses it for something else: what it
//! does when it goes on harms nobody (FE-2, FE-3, FE-4). With the fence taken out it would: each test shows that as well.
#![cfg(all(feature = "std", target_os = "linux"))]

use std::{
    io::{BufRead, BufReader, Lines, Write},
    process::{Child, ChildStdout, Command, Stdio},
    time::Duration,
};

use vervain_transport::{
    Kind, Rank, Result, Time,
    auth::Secret,
    fabric::{
        Access, Event, Fabric, Identity, Key, LinkId, Op, Outcome, RegionId, Span, Target,
        shm::{self, Shm},
        tcp::{self, Tcp},
    },
};

const PATIENCE: Duration = Duration::from_secs(60);
/// Long enough that a stop falls into the middle of it.
const BYTES: usize = 32 << 20;
/// What the target uses its memory for after the revocation.
const PATTERN: u8 = 0x77;

/// Set for the second process: how memory is reached, and the address to dial.
const WAY: &str = "VERVAIN_TEST_FENCE_WAY";
const ADDRESS: &str = "VERVAIN_TEST_FENCE_ADDRESS";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    Memory,
    Directory,
    Tcp,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fence {
    Whole,
    TakenOut,
}

impl Way {
    fn of(name: &str) -> Self {
        match name {
            "Memory" => Way::Memory,
            "Directory" => Way::Directory,
            _ => Way::Tcp,
        }
    }

    fn fabric(self, rank: u32, fence: Fence) -> Box<dyn Fabric> {
        let secret = Secret::from_bytes([9; 32]);
        let identity = Identity { rank: Rank::new(rank), incarnation: 1, secret };
        let unfenced = fence == Fence::TakenOut;
        match self {
            Way::Tcp => {
                let address = Some(std::net::Ipv4Addr::LOCALHOST.into());
                Box::new(Tcp::new(identity, tcp::Options { address, unfenced, ..tcp::Options::default() }).unwrap())
            }
            way => {
                let directory = (way == Way::Directory).then(std::env::temp_dir);
                Box::new(Shm::new(identity, shm::Options { directory, unfenced, ..shm::Options::default() }).unwrap())
            }
        }
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn bytes(hex: &str) -> Vec<u8> {
    (0..hex.len()).step_by(2).map(|at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap()).collect()
}

/// Poll until `pick` finds what it wants.
fn wait<T>(fabric: &mut dyn Fabric, mut pick: impl FnMut(&Event) -> Option<T>) -> T {
    let end = Time::now().after(PATIENCE);
    let mut events = Vec::with_capacity(64);
    while Time::now() < end {
        events.clear();
        fabric.poll(Time::now(), &mut events);
        if let Some(value) = events.iter().find_map(&mut pick) {
            return value;
        }
        vervain_transport::sync::thread::yield_now();
    }
    panic!("waited in vain");
}

fn up(event: &Event) -> Option<LinkId> {
    if let Event::Up { link, .. } = event { Some(*link) } else { None }
}

/// Post one operation and wait for its end.
fn run(fabric: &mut dyn Fabric, link: LinkId, op: Op) -> Result<Outcome> {
    while fabric.post(link, &[op])? == 0 {
        fabric.poll(Time::now(), &mut Vec::with_capacity(8));
    }
    wait(fabric, |event| if let Event::Done { result, .. } = event { Some(*result) } else { None })
}

/// Not a test of its own: what the second process does. It writes its memory, or reads, without end, until that is refused;
/// says so; and tries again.
#[test]
fn second_process() {
    let Ok(way) = std::env::var(WAY) else { return };
    let mut fabric = Way::of(&way).fabric(1, Fence::Whole);
    let address = bytes(&std::env::var(ADDRESS).unwrap());
    fabric.dial(Rank::new(0), &address, Time::now().after(PATIENCE)).unwrap();
    let link = wait(&mut *fabric, up);
    let mut lines = std::io::stdin().lines();
    let mut next = || lines.next().unwrap().unwrap();
    let (key, verb) = (Key(bytes(&next()).try_into().unwrap()), next());
    let remote = fabric.import(link, &key).unwrap();
    let region = fabric.allocate(BYTES).unwrap();
    let view = fabric.memory(region).unwrap();
    let (local, target) = (Span { region, offset: 0, bytes: BYTES as u64 }, Target { remote, offset: 0 });
    let op = match verb.as_str() {
        "read" => Op::Read { token: 1, local, target },
        _ => Op::Write { token: 1, local, target, immediate: None },
    };
    let mut round = 0_u8;
    let refusal = loop {
        round = round % 100 + 1;
        // SAFETY: the memory is this process's own, and no operation is under way.
        unsafe { view.start.as_ptr().write_bytes(round, BYTES) };
        if let Err(error) = run(&mut *fabric, link, op) {
            break error.kind();
        }
        if round == 1 {
            println!("begun");
        }
    };
    let again = run(&mut *fabric, link, op).unwrap_err().kind();
    println!("refused {refusal:?} {again:?}");
    std::io::stdout().flush().unwrap();
    // the end of the input is the end
    let _ = std::io::stdin().lines().next();
}

/// The second process, its link, and a region that it may use.
struct Stage {
    fabric: Box<dyn Fabric>,
    child: Child,
    output: Option<Lines<BufReader<ChildStdout>>>,
    region: RegionId,
    memory: *mut u8,
}

impl Stage {
    fn new(way: Way, fence: Fence, region: impl FnOnce(&mut dyn Fabric) -> RegionId, verb: &str) -> Self {
        let mut fabric = way.fabric(0, fence);
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "second_process", "--nocapture"])
            .env(WAY, format!("{way:?}"))
            .env(ADDRESS, hex(&fabric.address()))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let output = Some(BufReader::new(child.stdout.take().unwrap()).lines());
        let link = wait(&mut *fabric, up);
        let region = region(&mut *fabric);
        let access = if verb == "read" { Access::Read } else { Access::Write };
        let key = fabric.advertise(link, region, access).unwrap();
        writeln!(child.stdin.as_mut().unwrap(), "{}\n{verb}", hex(&key.0)).unwrap();
        let memory = fabric.memory(region).unwrap().start.as_ptr();
        Self { fabric, child, output, region, memory }
    }

    fn signal(&self, signal: i32) {
        // SAFETY: the process is a child that has not been waited for.
        assert_eq!(unsafe { libc::kill(self.child.id() as i32, signal) }, 0);
    }

    /// Stop the child, and return when it does nothing any more.
    fn stop(&self) {
        self.signal(libc::SIGSTOP);
        let mut status = 0;
        // SAFETY: `status` is live; WUNTRACED reports the stop and leaves the child.
        let stopped = unsafe { libc::waitpid(self.child.id() as i32, &mut status, libc::WUNTRACED) };
        assert!(stopped == self.child.id() as i32 && libc::WIFSTOPPED(status), "the second process ended");
    }

    /// The region's bytes at both ends.
    fn ends(&self) -> (u8, u8) {
        // SAFETY: the memory is valid while the fabric has the region; single bytes that others write are read.
        unsafe { (self.memory.read_volatile(), self.memory.add(BYTES - 1).read_volatile()) }
    }

    /// Stop the child in the middle of a write: the region begins with what it writes now, and ends with what was before.
    fn stop_in_the_middle(&mut self) {
        let end = Time::now().after(PATIENCE);
        let mut events = Vec::with_capacity(64);
        while Time::now() < end {
            self.fabric.poll(Time::now(), &mut events);
            events.clear();
            let (first, last) = self.ends();
            if first == last {
                vervain_transport::sync::thread::yield_now();
                continue;
            }
            self.stop();
            let (first, last) = self.ends();
            if first != last {
                return;
            }
            self.signal(libc::SIGCONT);
        }
        panic!("the write was never seen in the middle");
    }

    fn revoke(&mut self, deadline: Duration) -> Result<()> {
        self.fabric.revoke(self.region, Time::now().after(deadline)).unwrap();
        let region = self.region;
        wait(&mut *self.fabric, |event| match event {
            Event::Revoked { region: known, result } if *known == region => Some(*result),
            _ => None,
        })
    }

    fn reuse(&mut self) {
        // SAFETY: the region is ours alone after its revocation.
        unsafe { self.memory.write_bytes(PATTERN, BYTES) };
    }

    fn is_intact(&self) -> bool {
        // SAFETY: as in `reuse`; where the fence is taken out, others write meanwhile, and single bytes are read.
        (0..BYTES).all(|at| unsafe { self.memory.add(at).read_volatile() } == PATTERN)
    }

    /// Poll until the child has said a line that begins with `word`: the rest of it.
    fn hear(&mut self, word: &'static str) -> String {
        let mut output = self.output.take().expect("one hears at a time");
        let reader = std::thread::spawn(move || {
            let rest = output.find_map(|line| line.ok()?.split_once(word).map(|(_, rest)| rest.to_owned()));
            (output, rest)
        });
        let end = Time::now().after(PATIENCE);
        let mut events = Vec::with_capacity(64);
        while !reader.is_finished() {
            assert!(Time::now() < end, "the second process never said `{word}`");
            self.fabric.poll(Time::now(), &mut events);
            events.clear();
            vervain_transport::sync::thread::yield_now();
        }
        let (output, rest) = reader.join().unwrap();
        self.output = Some(output);
        rest.expect("the second process says it before it ends")
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn allocate(fabric: &mut dyn Fabric) -> RegionId {
    fabric.allocate(BYTES).unwrap()
}

/// The writer stops, the target revokes and reuses its memory, the writer goes on.
fn stopped_writer(way: Way) {
    let mut stage = Stage::new(way, Fence::Whole, allocate, "write");
    stage.stop_in_the_middle();
    assert_eq!(stage.revoke(Duration::from_secs(30)), Ok(()));
    stage.reuse();
    stage.signal(libc::SIGCONT);
    let kinds = stage.hear("refused ");
    assert!(stage.is_intact(), "{way:?}: a write landed after its target was told that none would");
    let first = if way == Way::Tcp { "AccessDenied" } else { "OutcomeUnknown" };
    assert_eq!(kinds, format!("{first} AccessDenied"), "{way:?}: what the writer is told");
}

/// The same without the fence.
fn stopped_writer_without_fence(way: Way) {
    let mut stage = Stage::new(way, Fence::TakenOut, allocate, "write");
    stage.stop_in_the_middle();
    assert_eq!(stage.revoke(Duration::from_secs(30)), Ok(()));
    stage.reuse();
    stage.signal(libc::SIGCONT);
    let end = Time::now().after(PATIENCE);
    while stage.is_intact() {
        assert!(Time::now() < end, "{way:?}: the memory is safe without a fence, so the test shows nothing");
        stage.fabric.poll(Time::now(), &mut Vec::with_capacity(8));
    }
}

#[test]
fn writer_stopped_in_the_middle_harms_nobody_when_it_goes_on() {
    stopped_writer(Way::Memory);
    stopped_writer_without_fence(Way::Memory);
}

#[test]
fn writer_into_a_file_of_a_directory_harms_nobody_either() {
    stopped_writer(Way::Directory);
    stopped_writer_without_fence(Way::Directory);
}

#[test]
fn half_a_frame_in_flight_harms_nobody() {
    stopped_writer(Way::Tcp);
    stopped_writer_without_fence(Way::Tcp);
}

/// What is only registered cannot be replaced: of a stopped reader nothing is known, until it goes on or is dead.
#[test]
fn stopped_reader_of_registered_memory_is_waited_for() {
    let mut memory = vec![1_u8; BYTES];
    let start = core::ptr::NonNull::new(memory.as_mut_ptr()).unwrap();
    for goes_on in [true, false] {
        // SAFETY: `memory` outlives the fabric, and is not touched meanwhile.
        let register = |fabric: &mut dyn Fabric| unsafe { fabric.register(start, BYTES) }.unwrap();
        let mut stage = Stage::new(Way::Memory, Fence::Whole, register, "read");
        stage.hear("begun");
        stage.stop();
        let asked = Time::now();
        assert_eq!(stage.revoke(Duration::from_millis(50)).unwrap_err().kind(), Kind::TimedOut);
        assert!(Time::now().since(asked) >= Duration::from_millis(50));
        stage.signal(if goes_on { libc::SIGCONT } else { libc::SIGKILL });
        assert_eq!(stage.revoke(PATIENCE), Ok(()));
        if goes_on {
            assert_eq!(stage.hear("refused "), "AccessDenied AccessDenied");
        }
    }
    drop(memory);
}
