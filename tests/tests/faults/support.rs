//! Jobs of threads and of processes, and what they leave behind.

use core::time::Duration;
use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;

use vervain_collectives::bootstrap::{InitError, UniqueId};
use vervain_collectives::launch::{Exit, Local, Output, Running};
use vervain_collectives::{Communicator, Config, Kind, Protocol, Rank, Result};
use vervain_transport::fabric::Backend;
use vervain_transport::sync::thread as pause;

/// Longest time that an operation of a test may take; only what hangs gets there.
pub const PATIENCE: Duration = Duration::from_secs(30);

pub const FABRICS: [Backend; 2] = [Backend::Shm, Backend::Tcp];

pub fn on(fabric: Backend) -> Config {
    Config { fabric: Some(fabric), timeout: PATIENCE, init_timeout: PATIENCE, ..Config::default() }
}

pub fn by(fabric: Backend, protocol: Protocol) -> Config {
    Config { protocol: Some(protocol), ..on(fabric) }
}

/// Run `body` on every rank of a new job of threads. All communicators live until the last body has ended.
pub fn cluster<R: Send>(ranks: u32, config: &Config, body: impl Fn(&Communicator) -> R + Sync) -> Vec<R> {
    let communicators = Communicator::init_all(ranks, config).expect("a job of threads comes up");
    on_threads(&communicators.into_iter().map(|c| c.into()).collect::<Vec<_>>(), |c| body(c))
}

/// A communicator that may be lent to one thread.
pub struct Lent(std::sync::Mutex<Communicator>);

impl From<Communicator> for Lent {
    fn from(communicator: Communicator) -> Self {
        Self(std::sync::Mutex::new(communicator))
    }
}

pub fn on_threads<R: Send>(lent: &[Lent], body: impl Fn(&Communicator) -> R + Sync) -> Vec<R> {
    thread::scope(|scope| {
        let body = &body;
        let run = |lent: &Lent| body(&lent.0.lock().expect("one thread each"));
        let threads: Vec<_> = lent.iter().map(|lent| scope.spawn(move || run(lent))).collect();
        threads.into_iter().map(|thread| thread.join().expect("no rank panics")).collect()
    })
}

/// Join with a configuration for every rank; results in rank order.
pub fn join_each(configs: &[Config]) -> Vec<Result<Communicator, Box<InitError>>> {
    let id = UniqueId::generate(None).unwrap();
    let ranks = configs.len() as u32;
    thread::scope(|scope| {
        let id = &id;
        let join =
            |(config, rank): (_, u32)| scope.spawn(move || Communicator::init_rank(id, Rank::new(rank), ranks, config));
        let threads: Vec<_> = configs.iter().zip(0..).map(join).collect();
        threads.into_iter().map(|thread| thread.join().expect("no rank panics")).collect()
    })
}

/// `ranks` processes that run the test `body` alone, and whose output is kept.
pub fn job(ranks: u32, body: &str) -> Local {
    let program = std::env::current_exe().unwrap();
    Local::new(ranks, program)
        .args([body, "--exact", "--nocapture", "--test-threads=1"])
        .env("RUST_BACKTRACE", "0")
        .output(Output::Collect)
        .grace(PATIENCE)
}

/// Our rank if our launcher started this process.
pub fn started() -> Option<Rank> {
    std::env::var("VERVAIN_RANK").ok().map(|rank| Rank::new(rank.parse().unwrap()))
}

/// Join the job of our launcher; `None` if it did not start us. The fabric is in `VERVAIN_TEST_FABRIC`.
pub fn member(timeout: Duration) -> Option<Communicator> {
    started()?;
    Some(Communicator::from_env(&Config { timeout, ..on(fabric_asked_for()) }).unwrap())
}

pub const FABRIC: &str = "VERVAIN_TEST_FABRIC";

pub fn fabric_asked_for() -> Backend {
    if std::env::var(FABRIC).is_ok_and(|name| name == "tcp") { Backend::Tcp } else { Backend::Shm }
}

pub fn text(exit: &Exit) -> String {
    String::from_utf8_lossy(&exit.output).into_owned()
}

/// Send a signal to a process of ours.
pub fn signal(pid: u32, name: &str) {
    let status = Command::new("kill").args([&format!("-{name}"), &pid.to_string()]).status().unwrap();
    assert!(status.success(), "kill -{name} {pid}");
}

/// A fresh directory, gone at the end. Ranks tell each other's driver by files in it how far they are.
pub struct Directory(pub PathBuf);

impl Directory {
    pub fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("vervain-{name}-{}", std::process::id()));
        fs::create_dir(&path).unwrap();
        Self(path)
    }

    pub fn files(&self) -> usize {
        fs::read_dir(&self.0).unwrap().count()
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Where ranks say how far they are.
pub const PLACE: &str = "VERVAIN_TEST_PLACE";

pub fn place() -> PathBuf {
    PathBuf::from(std::env::var(PLACE).expect("the test gives a place"))
}

/// Say that this rank has come to `point`.
pub fn reach(rank: Rank, point: &str) {
    fs::write(place().join(format!("{point}.{rank}")), "").unwrap();
}

/// Wait until there is such a file.
#[track_caller]
pub fn await_file(path: &Path) {
    wait_until(|| path.exists());
}

/// Wait for something that another process does.
#[track_caller]
pub fn wait_until(happened: impl Fn() -> bool) {
    let begin = std::time::Instant::now();
    while !happened() {
        assert!(begin.elapsed() < PATIENCE, "it did not happen");
        pause::yield_now();
    }
}

pub fn open_files() -> usize {
    fs::read_dir("/proc/self/fd").unwrap().count()
}

pub fn threads() -> usize {
    fs::read_dir("/proc/self/task").unwrap().count()
}

pub fn mappings() -> usize {
    fs::read_to_string("/proc/self/maps").unwrap().lines().filter(|line| line.contains("memfd:")).count()
}

/// Entries of /dev/shm.
pub fn segments() -> usize {
    fs::read_dir("/dev/shm").map_or(0, Iterator::count)
}

/// Whether a process is there and not only waits to be reaped.
pub fn lives(pid: u32) -> bool {
    let status = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    status.rsplit_once(") ").is_some_and(|(_, rest)| !rest.starts_with('Z'))
}

pub fn finish(mut running: Running) -> Vec<Exit> {
    let exits = running.wait();
    assert!(running.processes().into_iter().all(|pid| !lives(pid)));
    exits
}

pub fn kind<T>(result: &Result<T>) -> Option<Kind> {
    result.as_ref().err().map(|error| error.kind())
}

/// Where a process listens on TCP over IPv4, oldest socket first.
pub fn listening(pid: u32) -> Vec<SocketAddr> {
    let number = |entry: fs::DirEntry| {
        let name = fs::read_link(entry.path()).ok()?;
        name.to_str()?.strip_prefix("socket:[")?.strip_suffix(']')?.parse().ok()
    };
    let ours: Vec<u64> =
        fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten().filter_map(number).collect();
    let sockets = fs::read_to_string(format!("/proc/{pid}/net/tcp")).unwrap_or_default();
    let mut found: Vec<_> = sockets.lines().filter_map(listener).filter(|(number, _)| ours.contains(number)).collect();
    found.sort_unstable();
    found.into_iter().map(|(_, address)| address).collect()
}

/// Number and address in a line of `/proc/net/tcp`, if that is a listener.
fn listener(line: &str) -> Option<(u64, SocketAddr)> {
    const LISTEN: &str = "0A";
    let fields: Vec<&str> = line.split_whitespace().collect();
    let (address, port) = fields.get(1)?.split_once(':')?;
    let address = u32::from_str_radix(address, 16).ok()?.to_ne_bytes();
    let address = SocketAddr::from((address, u16::from_str_radix(port, 16).ok()?));
    (*fields.get(3)? == LISTEN).then_some((fields.get(9)?.parse().ok()?, address))
}
