//! `vervain perf` as scripts see it: columns, files, exit status.

mod common;

use common::{Scratch, run, vervain};

const COLLECTIVES: [&str; 8] =
    ["all_reduce", "all_gather", "reduce_scatter", "broadcast", "reduce", "all_to_all", "sendrecv", "barrier"];

#[test]
fn every_collective_runs_among_processes_and_its_data_is_right() {
    for collective in COLLECTIVES {
        let done = run(&format!("perf {collective} --ranks 2 -b 64 -e 1K -f 4 -n 2"));
        assert_eq!(done.status, 0, "{collective}: {done:?}");
        let rows = done.rows();
        assert_eq!(rows.len(), if collective == "barrier" { 1 } else { 3 }, "{collective}: {done:?}");
        for row in rows {
            assert_eq!(row.len(), 13, "{collective}: {row:?}");
            assert!(["0", "N/A"].contains(&row[8]) && ["0", "N/A"].contains(&row[12]), "{collective}: {row:?}");
        }
        assert!(done.out.contains("# Out of bounds values : 0 OK"), "{collective}: {done:?}");
        assert!(done.out.contains("# Avg bus bandwidth    : "), "{collective}: {done:?}");
    }
}

#[test]
fn sizes_and_counts_are_those_of_nccl_tests() {
    let done = run("perf all_gather --ranks 3 -b 100 -e 100 -n 1");
    let row = &done.rows()[0];
    assert_eq!((row[0], row[1], row[3], row[4]), ("96", "8", "none", "-1"), "{done:?}");
    let done = run("perf broadcast --ranks 2 -b 7 -e 7 -n 1 -r 1");
    let row = &done.rows()[0];
    assert_eq!((row[0], row[1], row[3], row[4]), ("4", "1", "none", "1"), "{done:?}");
}

#[test]
fn a_planted_error_is_found_once() {
    for collective in ["all_reduce", "reduce", "sendrecv"] {
        let done = run(&format!("perf {collective} --ranks 2 -b 64 -e 64 -n 1 --inject-error"));
        assert_eq!(done.status, 1, "{collective}: {done:?}");
        assert!(done.out.contains("# Out of bounds values : 1 FAILED"), "{collective}: {done:?}");
        assert_eq!(done.rows()[0][8], "1");
    }
}

#[test]
fn one_rank_has_no_bus_bandwidth_and_is_warned_about() {
    let done = run("perf all_reduce -b 64 -e 64 -n 1");
    assert_eq!(done.status, 0, "{done:?}");
    let rows = done.rows();
    assert_eq!((rows[0][7], rows[0][11]), ("n/a", "n/a"));
    assert!(done.out.contains("# Avg bus bandwidth    : n/a") && done.out.contains("1 rank "), "{done:?}");
    assert!(done.err.contains("--ranks N"), "{done:?}");
    assert!(!run("perf all_reduce --ranks 1 -b 64 -e 64 -n 1").err.contains("warning"));
}

#[test]
fn a_job_that_fell_apart_into_single_ranks_is_noticed() {
    let output = vervain("perf all_reduce -b 64 -e 64 -n 1").env("OMPI_COMM_WORLD_SIZE", "4").output().unwrap();
    let done = common::Done::from(output);
    assert!(done.err.contains("OMPI_COMM_WORLD_SIZE says 4 ranks"), "{done:?}");
    assert!(done.out.contains("1 rank "), "{done:?}");
}

#[test]
fn options_that_make_no_sense_have_status_2_and_a_sentence() {
    for (line, part) in [
        ("perf hypercube", "all_reduce"),
        ("perf all_reduce -b 64Q", "`64Q` is not a size"),
        ("perf all_reduce -e 99999999999999999999", "64 bits"),
        ("perf all_reduce -b 2K -e 1K", "-b 2048 is more than -e 1024"),
        ("perf all_reduce -g 8", "-g/--ngpus 8"),
        ("perf all_reduce --algo magic", "ring"),
        ("perf all_reduce --ranks 0", "0"),
        ("perf broadcast --ranks 2 -r 2 -b 8 -e 8", "-r/--root 2"),
        ("perf all_reduce --ranks 2 -b 4T -e 4T", "lower -e"),
        ("perf", "Usage"),
        ("no-such-command", "no-such-command"),
    ] {
        let done = run(line);
        assert_eq!(done.status, 2, "{line}: {done:?}");
        assert!(done.err.contains(part), "{line}: {done:?}");
    }
}

#[test]
fn json_and_drawing_hold_what_the_table_shows() {
    let (json, plot) = (Scratch::new("perf.json"), Scratch::new("perf.svg"));
    let line = format!(
        "perf all_reduce --ranks 2 -b 64 -e 4K -f 8 -n 3 --per-iteration -d double -J {} --plot {}",
        json.name(),
        plot.name()
    );
    let done = run(&line);
    assert_eq!(done.status, 0, "{done:?}");
    let value: serde_json::Value = serde_json::from_str(&json.text()).unwrap();
    let results = value["results"].as_array().unwrap();
    assert_eq!(results.len(), done.rows().len());
    assert_eq!(results[0]["size"], 64);
    assert_eq!(results[0]["type"], "double");
    assert_eq!(results[0]["out_of_place"]["nwrong"], 0);
    let each = &results[0]["out_of_place"]["per_iteration"];
    assert_eq!(each["median_us"], results[0]["out_of_place"]["time"]);
    assert!(each["min_us"].as_f64() <= each["p99_us"].as_f64());
    assert_eq!(value["config"]["ranks"], 2);
    assert_eq!(value["devices"].as_array().unwrap().len(), 2);
    assert_eq!(value["out_of_bounds"]["okay"], true);
    assert!(plot.text().contains("busbw"));
}

#[test]
fn every_kind_of_timing_and_buffer_gives_rows() {
    for (options, columns) in [
        ("-I 1", 17),
        ("--per-iteration", 17),
        ("-S 1", 15),
        ("-a 0", 13),
        ("-a 3 -m 2", 13),
        ("-c 0", 13),
        ("-u 3", 13),
        ("--registered", 13),
        ("--in-place", 13),
        ("--out-of-place", 13),
        ("-T 30 --no-pin", 13),
        ("--fabric tcp", 13),
        ("-w 0 -N 2 -o all -d half", 13),
    ] {
        let done = run(&format!("perf all_reduce --ranks 2 -b 60 -e 60 -n 2 {options}"));
        assert_eq!(done.status, 0, "{options}: {done:?}");
        assert!(done.rows().iter().all(|row| row.len() == columns), "{options}: {done:?}");
    }
}

#[test]
fn every_algorithm_and_a_plan_from_a_file_can_be_asked_for() {
    let file = Scratch::new("custom.json");
    let exported = run("plan export --collective all_reduce --algo ring");
    std::fs::write(&file.0, exported.out).unwrap();
    for options in [
        "--algo ring",
        "--algo one_shot",
        "--algo two_shot",
        "--algo direct --registered",
        "--algo direct_oneshot --registered",
        &format!("--plan {}", file.name()),
        &format!("--plan {} --registered -d double -o max", file.name()),
    ] {
        let done = run(&format!("perf all_reduce --ranks 2 -b 1K -e 1K -n 2 {options}"));
        assert_eq!(done.status, 0, "{options}: {done:?}");
        assert_eq!((done.rows()[0][8], done.rows()[0][12]), ("0", "0"), "{options}: {done:?}");
    }
    let done = run(&format!("perf all_gather --ranks 2 -b 64 -e 64 --plan {}", file.name()));
    assert!(done.status == 2 && done.err.contains("a plan for all_reduce, not for all_gather"), "{done:?}");
}

#[test]
fn limits_are_measured_without_ranks() {
    let json = Scratch::new("limits.json");
    let done = run(&format!("perf --limits --ranks 1 -J {}", json.name()));
    assert_eq!(done.status, 0, "{done:?}");
    let value: serde_json::Value = serde_json::from_str(&json.text()).unwrap();
    assert!(value["copy_rate"][0]["gigabytes_per_second"].as_f64().unwrap() > 0.0);
}
