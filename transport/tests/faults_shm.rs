//! Strangers, dead peers, full file systems and endless registration: none hangs, leaks or leaves anything behind.
#![cfg(all(feature = "std", target_os = "linux"))]

mod common;

use std::{
    io::{BufRead, BufReader, Write},
    os::{
        fd::AsRawFd,
        linux::net::SocketAddrExt,
        unix::net::{SocketAddr, UnixStream},
    },
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::Duration,
};

use vervain_transport::{
    Kind, Rank, Time,
    auth::Secret,
    fabric::{
        Access, Event, Fabric, Identity,
        shm::{Options, Shm},
    },
};

use common::{PATIENCE, connect, wait};

fn fabric(rank: u32, options: Options) -> Shm {
    let secret = Secret::from_bytes([9; 32]);
    Shm::new(Identity { rank: Rank::new(rank), incarnation: 1, secret }, options).unwrap()
}

fn open_files() -> usize {
    std::fs::read_dir("/proc/self/fd").unwrap().count()
}

fn mappings() -> usize {
    std::fs::read_to_string("/proc/self/maps").unwrap().lines().count()
}

#[test]
fn endless_registration_keeps_files_and_mappings_constant() {
    let (mut one, mut other) = (fabric(0, Options::default()), fabric(1, Options::default()));
    let (near, far) = connect(&mut one, &mut other);
    let mut memory = [0_u8; 64];
    let mut round = |one: &mut Shm, other: &mut Shm| {
        let ours = other.allocate(4096).unwrap();
        // SAFETY: `memory` outlives the release below, and nothing is posted on it.
        let theirs = unsafe { other.register(core::ptr::NonNull::from(&mut memory).cast(), 64) }.unwrap();
        for region in [ours, theirs] {
            let key = other.advertise(far, region, Access::ReadWrite).unwrap();
            let remote = one.import(near, &key).unwrap();
            one.forget(remote).unwrap();
            other.release(region).unwrap();
        }
        // imports that never come must not pile up either
        let unused = other.allocate(4096).unwrap();
        other.advertise(far, unused, Access::ReadWrite).unwrap();
        other.release(unused).unwrap();
        let mut events = Vec::with_capacity(4);
        for _ in 0..64 {
            one.poll(Time::now(), &mut events);
        }
        assert!(events.is_empty(), "{events:?}");
    };
    round(&mut one, &mut other);
    let before = (open_files(), mappings());
    for _ in 0..10_000 {
        round(&mut one, &mut other);
    }
    // other tests of this process come and go meanwhile
    assert!(open_files() < before.0 + 100, "{before:?} -> {}", open_files());
    assert!(mappings() < before.1 + 500, "{before:?} -> {}", mappings());
}

/// A stream to the fabric's socket name, of the wrong type; and packets of the right one.
#[test]
fn strangers_are_dropped_and_do_not_keep_peers_out() {
    let (mut one, mut other) = (fabric(0, Options::default()), fabric(1, Options::default()));
    let name: String = other.address()[56..72].iter().map(|byte| format!("{byte:02x}")).collect();
    let name = format!("vervain-{name}");
    let address = SocketAddr::from_abstract_name(&name).unwrap();
    assert!(UnixStream::connect_addr(&address).is_err(), "streams are not accepted");
    let before = open_files();
    let strangers: Vec<_> = (0..200).map(|number| stranger(&name, number)).collect();
    connect(&mut one, &mut other);
    let later = Time::now().after(Duration::from_secs(6));
    let mut events = Vec::with_capacity(4);
    for _ in 0..200 {
        other.poll(later, &mut events);
    }
    assert!(events.is_empty(), "{events:?}");
    drop(strangers);
    assert!(open_files() < before + 50, "strangers left files open");
}

/// Sends nothing, too little, garbage, or something huge.
fn stranger(name: &str, number: usize) -> socket2::Socket {
    let socket = socket2::Socket::new(socket2::Domain::UNIX, socket2::Type::SEQPACKET, None).unwrap();
    socket.connect(&socket2::SockAddr::unix(format!("\0{name}")).unwrap()).unwrap();
    let bytes = match number % 4 {
        0 => vec![],
        1 => vec![1; 3],
        2 => vec![number as u8; 72],
        _ => vec![0xff; 60_000],
    };
    if !bytes.is_empty() {
        // the fabric may have dropped us already
        let _ = socket.send_with_flags(&bytes, libc::MSG_NOSIGNAL);
    }
    assert!(socket.as_raw_fd() >= 0);
    socket
}

#[test]
fn address_of_another_start_of_the_machine_is_refused_by_name() {
    let (mut one, other) = (fabric(0, Options::default()), fabric(1, Options::default()));
    let mut address = other.address();
    address[8] ^= 1;
    let error = one.dial(Rank::new(1), &address, Time::NEVER).unwrap_err();
    assert_eq!((error.kind(), error.rank()), (Kind::Unsupported, Some(Rank::new(1))));
    assert!(!vervain_transport::fabric::shm::same_host(&address, &one.address()));
}

/// Set for the process that plays rank 1.
const CHILD: &str = "VERVAIN_TEST_SHM_CHILD";

/// Set if that process leaves a child behind.
const ORPHAN: &str = "VERVAIN_TEST_SHM_ORPHAN";

/// A child that holds all our descriptors, until whoever started us closes our standard input.
fn leave_a_child() {
    // SAFETY: the child only reads into its own memory and exits, by system calls.
    unsafe {
        if libc::fork() == 0 {
            let mut byte = 0u8;
            while libc::read(0, (&raw mut byte).cast(), 1) > 0 {}
            libc::_exit(0);
        }
    }
}

/// Not a test of its own: what the second process does.
#[test]
fn second_process() {
    let Ok(directory) = std::env::var(CHILD) else { return };
    let mut fabric = fabric(1, Options { directory: Some(directory.into()), ..Options::default() });
    fabric.allocate(1 << 20).unwrap();
    let address: String = fabric.address().iter().map(|byte| format!("{byte:02x}")).collect();
    println!("address {address}");
    std::io::stdout().flush().unwrap();
    let mut events = Vec::with_capacity(64);
    loop {
        events.clear();
        fabric.poll(Time::now(), &mut events);
        if events.iter().any(|event| matches!(event, Event::Up { .. })) && std::env::var_os(ORPHAN).is_some() {
            leave_a_child();
            println!("forked");
            std::io::stdout().flush().unwrap();
        }
        fabric.arm();
        fabric.sleep(Time::now().after(Duration::from_millis(5)));
    }
}

fn start_child(directory: &Path) -> (Child, Vec<u8>) {
    let (child, _, address) = start(Command::new(std::env::current_exe().unwrap()).env(CHILD, directory));
    (child, address)
}

/// The second process, the rest of what it says, and its address.
fn start(command: &mut Command) -> (Child, impl Iterator<Item = String>, Vec<u8>) {
    let mut child = command
        .args(["--exact", "second_process", "--nocapture"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
    let line = lines.find_map(|line| line.split_once("address ").map(|(_, hex)| hex.to_string()));
    let hex = line.expect("the second process says its address");
    let address = (0..hex.len()).step_by(2).map(|at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap()).collect();
    (child, lines, address)
}

struct Directory(PathBuf);

impl Directory {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("vervain-{name}-{}", std::process::id()));
        std::fs::create_dir(&path).unwrap();
        Self(path)
    }

    fn files(&self) -> usize {
        std::fs::read_dir(&self.0).unwrap().count()
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[test]
fn killed_peer_is_reported_dead_and_leaves_nothing() {
    let directory = Directory::new("killed");
    let before = std::fs::read_dir("/dev/shm").map_or(0, Iterator::count);
    let (mut child, address) = start_child(&directory.0);
    let mut one = fabric(0, Options { directory: Some(directory.0.clone()), ..Options::default() });
    let link = one.dial(Rank::new(1), &address, Time::now().after(PATIENCE)).unwrap();
    wait(&mut [&mut one], |_, event| matches!(event, Event::Up { .. }).then_some(()));
    child.kill().unwrap();
    child.wait().unwrap();
    let error = wait(&mut [&mut one], |_, event| match *event {
        Event::Down { link: down, error } if down == link => Some(error),
        _ => None,
    });
    assert_eq!((error.kind(), error.rank()), (Kind::PeerDied, Some(Rank::new(1))));
    assert_eq!(directory.files(), 0);
    assert!(std::fs::read_dir("/dev/shm").map_or(0, Iterator::count) <= before);
}

/// A forked child has all descriptors of its parent; while it lives, the socket of the link stays open.
#[test]
fn killed_peer_whose_child_holds_its_socket_is_reported_dead() {
    let directory = Directory::new("orphan");
    let mut command = Command::new(std::env::current_exe().unwrap());
    let (mut child, mut lines, address) = start(command.env(CHILD, &directory.0).env(ORPHAN, "1"));
    let mut one = fabric(0, Options { directory: Some(directory.0.clone()), ..Options::default() });
    let link = one.dial(Rank::new(1), &address, Time::now().after(PATIENCE)).unwrap();
    wait(&mut [&mut one], |_, event| matches!(event, Event::Up { .. }).then_some(()));
    assert!(lines.any(|line| line.ends_with("forked")));
    let mut memory = 0_u64;
    // SAFETY: `memory` outlives the fabric, and is not used but through it.
    let region = unsafe { one.register(core::ptr::NonNull::from(&mut memory).cast(), 8) }.unwrap();
    one.advertise(link, region, Access::Read).unwrap();
    // ends the child's child, when this test ends
    let input = child.stdin.take();
    child.kill().unwrap();
    child.wait().unwrap();
    let error = wait(&mut [&mut one], |_, event| match *event {
        Event::Down { link: down, error } if down == link => Some(error),
        _ => None,
    });
    assert_eq!((error.kind(), error.rank()), (Kind::PeerDied, Some(Rank::new(1))));
    // its reads have ended with it, which nothing but its end can tell
    one.revoke(region, Time::now().after(PATIENCE)).unwrap();
    let revoked = wait(&mut [&mut one], |_, event| match *event {
        Event::Revoked { region: known, result } if known == region => Some(result),
        _ => None,
    });
    assert_eq!(revoked, Ok(()));
    drop((one, input));
}

/// Case B70: a tiny file system is an error with numbers, not SIGBUS.
#[test]
fn full_file_system_is_an_error_with_path_and_bytes() {
    let directory = Directory::new("full");
    let mounted = Command::new("mount").args(["-t", "tmpfs", "-o", "size=1m", "tmpfs"]).arg(&directory.0).status();
    if !mounted.is_ok_and(|status| status.success()) {
        eprintln!("SKIPPED full_file_system_is_an_error_with_path_and_bytes: mounting a tmpfs is not allowed here");
        return;
    }
    let result = std::panic::catch_unwind(|| {
        let mut one = fabric(0, Options { directory: Some(directory.0.clone()), ..Options::default() });
        one.allocate(256 << 10).unwrap();
        assert_eq!(one.allocate(1 << 20).unwrap_err().kind(), Kind::NoSpace);
        let shortage = one.shortage().expect("the numbers").clone();
        assert_eq!((shortage.path.as_path(), shortage.needed), (directory.0.as_path(), 1 << 20));
        assert!(shortage.free < 1 << 20);
        assert!(shortage.to_string().contains(directory.0.to_str().unwrap()));
        // what fits is still given
        one.allocate(64 << 10).unwrap();
    });
    let _ = Command::new("umount").arg(&directory.0).status();
    result.unwrap();
}
