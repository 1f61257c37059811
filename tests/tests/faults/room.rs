//! Shared memory that is full or tiny (case B70).

use std::path::{Path, PathBuf};
use std::process::Command;

use vervain_collectives::{Communicator, Config, Kind, ReduceOp};
use vervain_transport::fabric::Backend;

use crate::support::{Directory, PATIENCE, await_file, finish, job, started, text};

/// A file system of this size, unmounted at the end. `None`, said aloud, where that is not allowed.
struct Tiny(Directory);

impl Tiny {
    fn new(name: &str, size: &str) -> Option<Self> {
        let directory = Directory::new(name);
        let mount = |path: &Path| Command::new("mount").args(["-t", "tmpfs", "-o", size, "tmpfs"]).arg(path).status();
        if mount(&directory.0).is_ok_and(|status| status.success()) {
            return Some(Self(directory));
        }
        println!("skipped: {name} (mounting a tmpfs is not allowed here)");
        None
    }
}

impl Drop for Tiny {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(&self.0.0).status();
    }
}

#[test]
fn forced_shm_in_a_tiny_directory_is_an_error_with_numbers() {
    let Some(tiny) = Tiny::new("tiny_forced", "size=1m") else { return };
    for ranks in [2, 4] {
        let running = job(ranks, "room::body_that_insists_on_shm").env("VERVAIN_SHM_DIR", &tiny.0.0).start().unwrap();
        for exit in finish(running) {
            assert!(exit.status.success() && !exit.killed, "{}", text(&exit));
        }
        assert_eq!(tiny.0.files(), 0);
    }
}

#[test]
fn body_that_insists_on_shm() {
    if started().is_none() {
        return;
    }
    let config = Config { fabric: Some(Backend::Shm), init_timeout: PATIENCE, ..Config::default() };
    let error = Communicator::from_env(&config).unwrap_err();
    assert_eq!(error.error.kind(), Kind::NoSpace, "{error}");
    let lines = error.report.lines.join("\n");
    let path = std::env::var("VERVAIN_SHM_DIR").unwrap();
    for part in [path.as_str(), "bytes free", "are needed"] {
        assert!(lines.contains(part), "{lines}");
    }
}

#[test]
fn automatic_choice_in_a_tiny_directory_is_tcp_on_all_ranks() {
    let Some(tiny) = Tiny::new("tiny_auto", "size=1m") else { return };
    let running = job(3, "room::body_that_takes_what_works").env("VERVAIN_SHM_DIR", &tiny.0.0).start().unwrap();
    for exit in finish(running) {
        assert!(exit.status.success() && !exit.killed, "{}", text(&exit));
        assert!(text(&exit).contains("went over tcp"), "{}", text(&exit));
    }
    let unknown = tiny.0.0.join("no/such/directory");
    let running = job(2, "room::body_that_takes_what_works").env("VERVAIN_SHM_DIR", unknown).start().unwrap();
    for exit in finish(running) {
        assert!(exit.status.success() && text(&exit).contains("went over tcp"), "{}", text(&exit));
    }
}

#[test]
fn body_that_takes_what_works() {
    if started().is_none() {
        return;
    }
    let c = Communicator::from_env(&Config { timeout: PATIENCE, init_timeout: PATIENCE, ..Config::default() }).unwrap();
    let mut data = vec![1i32; 100_000];
    c.all_reduce_in_place(&mut data, ReduceOp::Sum).unwrap();
    assert!(data.iter().all(|&value| value == c.ranks() as i32));
    println!("went over {}", c.backend().unwrap());
}

#[test]
fn memory_that_is_filled_up_later_is_an_error_on_all_ranks_with_numbers() {
    let Some(tiny) = Tiny::new("tiny_later", "size=8m") else { return };
    let running = job(2, "room::body_that_asks_for_too_much").env("VERVAIN_SHM_DIR", &tiny.0.0).start().unwrap();
    for exit in finish(running) {
        assert!(exit.status.success() && !exit.killed, "{}", text(&exit));
    }
}

#[test]
fn body_that_asks_for_too_much() {
    if started().is_none() {
        return;
    }
    let config = Config { fabric: Some(Backend::Shm), timeout: PATIENCE, ..Config::default() };
    let c = Communicator::from_env(&config).unwrap();
    let mut data = c.alloc::<i32>(1000).unwrap();
    data.fill(1);
    c.all_reduce_in_place(&mut data, ReduceOp::Sum).unwrap();
    assert!(data.iter().all(|&value| value == 2));
    // a failure ends whatever runs, also the end of a call before
    let directory = PathBuf::from(std::env::var("VERVAIN_SHM_DIR").unwrap());
    std::fs::write(directory.join(format!("ready.{}", c.rank())), "").unwrap();
    (0..2).for_each(|rank| await_file(&directory.join(format!("ready.{rank}"))));
    let error = c.alloc::<u8>(64 << 20).unwrap_err();
    assert_eq!(error.kind(), Kind::NoSpace, "{:?}", c.report());
    let lines = c.report().unwrap().lines.join("\n");
    let path = directory.to_str().unwrap();
    assert!(lines.contains(path) && lines.contains("bytes free and 67108864 are needed"), "{lines}");
    assert_eq!(c.barrier().unwrap_err().kind(), Kind::NoSpace);
    // what was given before stays usable memory
    assert_eq!(data[999], 2);
}
