//! `vervain p2p` as scripts see it: columns, files, exit status, and that nothing is left of it.

mod common;

use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};

use common::{Done, Scratch, run, vervain};

const SECRET: &str = "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff";

#[test]
fn every_test_runs_on_every_fabric_and_its_data_is_right() {
    for fabric in ["shm", "tcp"] {
        for (test, sizes) in
            [("write", "0,1,8,64,65,5000"), ("read", "0,1,8,64,65,5000"), ("send", "0,1,4088"), ("atomic", "8")]
        {
            let done = run(&format!("p2p {test} --fabric {fabric} --sizes {sizes} -n 20 -w 2"));
            assert_eq!(done.status, 0, "{test} {fabric}: {done:?}");
            let rows = done.rows();
            let count = sizes.split(',').count();
            assert_eq!(rows.len(), 2 * count, "{test} {fabric}: {done:?}");
            for (row, size) in rows.iter().zip(sizes.split(',').chain(sizes.split(','))) {
                assert_eq!((row[0], row[1]), (size, "20"), "{test} {fabric}: {row:?}");
            }
            assert!(rows[..count].iter().all(|row| row.len() == 9), "{done:?}");
            assert!(rows[count..].iter().all(|row| row.len() == 5), "{done:?}");
            assert!(done.out.contains(&format!("fabric {fabric}")), "{done:?}");
            assert!(done.out.contains("# Wrong bytes : 0 OK"), "{done:?}");
        }
    }
}

#[test]
fn every_shape_of_a_transfer_gives_right_data() {
    for fabric in ["shm", "tcp"] {
        for options in [
            "write --sizes 1,64 --batch 16 --depth 32",
            "write --sizes 0,8,4K --notify",
            "write --sizes 1,64,65 --inline",
            "write --sizes 512,4K --paged 512:1000",
            "write --sizes 6,30 --paged 3",
            "write --sizes 9,70K --bidirectional",
            "read --sizes 9,70K --bidirectional",
            "send --sizes 9 --bidirectional",
            "atomic --bidirectional --depth 7",
            "write -b 8 --huge --no-pin -c 0 --latency",
            "read -b 8 --depth 1 --bandwidth",
        ] {
            let done = run(&format!("p2p {options} --fabric {fabric} -n 20 -w 2"));
            assert_eq!(done.status, 0, "{options} {fabric}: {done:?}");
            assert!(done.out.contains("# Wrong bytes : 0 OK") || options.contains("-c 0"), "{options}: {done:?}");
        }
    }
}

#[test]
fn a_planted_error_is_found_once() {
    for fabric in ["shm", "tcp"] {
        for test in ["write", "read", "send", "atomic"] {
            let done = run(&format!("p2p {test} --fabric {fabric} -b 8 -n 5 --inject-error"));
            assert_eq!(done.status, 1, "{test} {fabric}: {done:?}");
            assert!(done.out.contains("# Wrong bytes : 1 FAILED"), "{test} {fabric}: {done:?}");
        }
    }
}

#[test]
fn options_that_make_no_sense_have_status_2_and_a_sentence() {
    for (line, part) in [
        ("p2p", "Usage"),
        ("p2p push", "push"),
        ("p2p write -b 64Q", "`64Q` is not a size"),
        ("p2p write -e 5G -b 8", "the largest transfer"),
        ("p2p send -b 8K", "a message of 8192 bytes"),
        ("p2p read --inline", "--inline is about writes"),
        ("p2p write --depth 0", "--depth 0"),
        ("p2p write --connect localhost:1", "VERVAIN_SECRET"),
        ("p2p write --node 1000 -b 8", "--node 1000"),
    ] {
        let done = run(line);
        assert_eq!(done.status, 2, "{line}: {done:?}");
        assert!(done.err.contains(part), "{line}: {done:?}");
    }
}

#[test]
fn json_holds_what_the_tables_show() {
    let json = Scratch::new("p2p.json");
    let done = run(&format!("p2p write --sizes 8,64K -n 30 --limits --explain -J {}", json.name()));
    assert_eq!(done.status, 0, "{done:?}");
    assert!(done.out.contains("shm was preferred"), "{done:?}");
    let value: serde_json::Value = serde_json::from_str(&json.text()).unwrap();
    let (latency, bandwidth) = (&value["latency"], &value["bandwidth"]);
    assert_eq!((latency.as_array().unwrap().len(), bandwidth.as_array().unwrap().len()), (2, 2));
    assert_eq!((&latency[0]["size"], &latency[0]["iterations"]), (&8.into(), &30.into()));
    let times: Vec<f64> = ["min_us", "p50_us", "p90_us", "p99_us", "p99_9_us", "max_us"]
        .map(|name| latency[0][name].as_f64().unwrap())
        .to_vec();
    assert!(times.is_sorted(), "{times:?}");
    assert_eq!(bandwidth[1]["size"], 65536);
    assert_eq!(value["fabric"], "shm");
    assert_eq!(value["check"]["okay"], true);
    assert!(value["limits"]["memcpy"][0]["mb_per_second"].as_f64().unwrap() > 0.0);
    assert_eq!(done.rows()[0].len(), 10, "{done:?}");
}

/// A process with what it prints; killed if the test ends before it.
struct Side {
    child: Child,
    out: BufReader<ChildStdout>,
}

impl Side {
    fn start(line: &str) -> Self {
        let mut command = vervain(line);
        command.env("VERVAIN_SECRET", SECRET).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let out = BufReader::new(child.stdout.take().unwrap());
        Self { child, out }
    }

    /// A side that listens, and where.
    fn listen(options: &str) -> (Self, String) {
        let mut side = Self::start(&format!("p2p {options} --listen 127.0.0.1:0"));
        let line = side.line_with("listening");
        let address = line.strip_prefix("# listening on ").unwrap_or_else(|| panic!("{line}")).to_owned();
        (side, address)
    }

    /// The next line that has this word.
    fn line_with(&mut self, word: &str) -> String {
        let mut lines = self.out.by_ref().lines().map(Result::unwrap);
        lines.find(|line| line.contains(word)).unwrap_or_else(|| panic!("no line with {word}"))
    }

    /// The status, and what it complained about.
    fn finish(mut self) -> (Option<i32>, String) {
        let mut err = String::new();
        self.child.stderr.take().unwrap().read_to_string(&mut err).unwrap();
        (self.child.wait().unwrap().code(), err)
    }

    fn kill(&self, signal: &str) {
        kill(signal, &self.child.id().to_string());
    }
}

impl Drop for Side {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn connect(options: &str, address: &str, secret: &str) -> Done {
    vervain(&format!("p2p {options} --connect {address}")).env("VERVAIN_SECRET", secret).output().unwrap().into()
}

#[test]
fn two_sides_meet_over_a_socket_and_the_connecting_one_decides() {
    for fabric in ["shm", "tcp"] {
        let (there, address) = Side::listen("write");
        let done = connect(&format!("write --sizes 8,5000 -n 20 --fabric {fabric}"), &address, SECRET);
        assert_eq!(done.status, 0, "{fabric}: {done:?}");
        assert_eq!(done.rows().len(), 4, "{done:?}");
        assert!(done.out.contains(&format!("fabric {fabric}")), "{done:?}");
        assert_eq!(there.finish(), (Some(0), String::new()));
    }
}

#[test]
fn a_link_has_as_many_sockets_as_the_connecting_side_says() {
    let sockets = |side: &Side| {
        let files = std::fs::read_dir(format!("/proc/{}/fd", side.child.id())).unwrap();
        let names = files.filter_map(|file| std::fs::read_link(file.unwrap().path()).ok());
        names.filter(|name| name.to_string_lossy().starts_with("socket:")).count()
    };
    let [one, three] = [1, 3].map(|count| {
        let (there, address) = Side::listen("write");
        let options = format!("write -b 8 --duration 1000 --fabric tcp --sockets {count}");
        let mut here = Side::start(&format!("p2p {options} --connect {address}"));
        here.line_with("#bytes");
        [sockets(&here), sockets(&there)]
    });
    assert_eq!(three, one.map(|count| count + 2));
}

#[test]
fn strangers_and_other_tests_are_refused() {
    let (there, address) = Side::listen("write");
    let stranger = connect("write -b 8 -n 5", &address, &SECRET.replace('0', "1"));
    assert_eq!(stranger.status, 3, "{stranger:?}");
    assert!(stranger.err.contains("secret"), "{stranger:?}");
    let other = connect("read -b 8 -n 5", &address, SECRET);
    assert_eq!(other.status, 2, "{other:?}");
    assert!(other.err.contains("it measures read, and this side listens for write"), "{other:?}");
    let (status, err) = there.finish();
    assert_eq!(status, Some(2), "{err}");
    assert!(err.contains("a stranger at 127.0.0.1"), "{err}");
}

/// A run that goes on, and the numbers of its two processes.
fn endless(fabric: &str) -> (Child, Vec<String>) {
    let mut job = vervain(&format!("p2p write -b 8 --duration 1000 --fabric {fabric}"))
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = BufReader::new(job.stdout.as_mut().unwrap()).lines().map(Result::unwrap);
    let named = lines.filter(|line| line.starts_with("#  "));
    let pids = named.take(2).map(|line| line.split_whitespace().nth(3).unwrap().to_owned()).collect();
    (job, pids)
}

fn kill(signal: &str, pid: &str) {
    assert!(Command::new("kill").args([signal, pid]).status().unwrap().success());
}

fn ends_with_status_3(job: Child, pids: &[String]) -> String {
    let done = Done::from(job.wait_with_output().unwrap());
    assert_eq!(done.status, 3, "{done:?}");
    for pid in pids {
        assert!(!Path::new("/proc").join(pid).exists(), "process {pid} is left");
    }
    done.err
}

#[test]
fn a_side_that_dies_is_named_by_the_other() {
    for fabric in ["shm", "tcp"] {
        for (victim, name) in [(0, "error: the initiator (process"), (1, "error: the target (process")] {
            let (job, pids) = endless(fabric);
            kill("-KILL", &pids[victim]);
            let err = ends_with_status_3(job, &pids);
            assert!(err.contains(name), "{fabric}: {err}");
            assert!(err.contains(&format!("rank {victim} was killed by signal 9")), "{fabric}: {err}");
        }
    }
}

#[test]
fn an_interrupt_ends_both() {
    let (job, pids) = endless("shm");
    kill("-INT", &job.id().to_string());
    assert!(ends_with_status_3(job, &pids).contains("interrupted by signal 2"));
}

#[test]
fn an_interrupt_is_a_failure_of_whoever_waits_for_the_other_side() {
    for (signal, number) in [("-INT", 2), ("-TERM", 15)] {
        let (there, _address) = Side::listen("write");
        there.kill(signal);
        let (status, err) = there.finish();
        assert_eq!((status, err), (Some(3), format!("error: interrupted by signal {number}\n")));
    }
}

#[test]
fn an_interrupt_of_one_machine_is_a_failure_of_both() {
    for fabric in ["shm", "tcp"] {
        for interrupts_the_listener in [false, true] {
            let (there, address) = Side::listen("write");
            let mut here =
                Side::start(&format!("p2p write -b 8 --duration 1000 --fabric {fabric} --connect {address}"));
            here.line_with("#bytes");
            let (victim, other) = if interrupts_the_listener { (there, here) } else { (here, there) };
            victim.kill("-INT");
            assert_eq!(victim.finish(), (Some(3), "error: interrupted by signal 2\n".into()), "{fabric}");
            let (status, err) = other.finish();
            let name =
                if interrupts_the_listener { "error: the target (process" } else { "error: the initiator (process" };
            assert!(status == Some(3) && err.contains(name), "{fabric}: {status:?} {err}");
        }
    }
}
