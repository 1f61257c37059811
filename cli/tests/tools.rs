//! `vervain launch`, `plan` and `doctor` as scripts see them.

mod common;

use common::{Scratch, run, vervain};

#[test]
fn launched_programs_know_who_they_are() {
    let output = vervain("launch -n 3 --raw -- printenv VERVAIN_RANK VERVAIN_RANKS").output().unwrap();
    let done = common::Done::from(output);
    assert_eq!(done.status, 0, "{done:?}");
    let mut lines: Vec<&str> = done.out.lines().collect();
    lines.sort_unstable();
    assert_eq!(lines, ["0", "1", "2", "3", "3", "3"], "{done:?}");
}

#[test]
fn launch_ends_as_the_first_failing_rank_does() {
    let command = |script: &str| {
        let output = vervain("launch -n 2 --grace 0 -- sh -c").arg(script).output().unwrap();
        common::Done::from(output)
    };
    let done = command("exit $((VERVAIN_RANK * 7))");
    assert_eq!(done.status, 7, "{done:?}");
    assert!(done.err.contains("rank 1 exited with status 7"), "{done:?}");
    let done = command("kill -TERM $$");
    assert_eq!(done.status, 143, "{done:?}");
    assert!(done.err.contains("killed by signal 15"), "{done:?}");
    let done = run("launch -n 2 -- /no/such/program");
    assert_eq!(done.status, 3, "{done:?}");
    assert!(done.err.contains("/no/such/program cannot be started"), "{done:?}");
}

#[test]
fn perf_runs_below_our_own_launcher() {
    let program = env!("CARGO_BIN_EXE_vervain");
    let done = run(&format!("launch -n 2 -- {program} perf all_reduce -b 64 -e 64 -n 1"));
    assert_eq!(done.status, 0, "{done:?}");
    assert_eq!(done.rows().len(), 1, "{done:?}");
    let done = run(&format!("launch -n 2 -- {program} perf all_reduce --ranks 2"));
    assert_eq!(done.status, 2, "{done:?}");
    assert!(done.err.contains("leave --ranks out"), "{done:?}");
}

#[test]
fn built_in_plans_verify_and_survive_the_trip_through_a_file() {
    let done = run("plan verify --collective all_reduce --algo ring --ranks 1..5");
    assert_eq!(done.status, 0, "{done:?}");
    assert!(done.out.contains("right for all_reduce with 1 to 5 ranks"), "{done:?}");
    let exported = run("plan export --collective all_reduce --algo two_shot");
    assert_eq!(exported.status, 0, "{exported:?}");
    let file = Scratch::new("plan.json");
    std::fs::write(&file.0, &exported.out).unwrap();
    let done = run(&format!("plan verify {} --ranks 4", file.name()));
    assert_eq!(done.status, 0, "{done:?}");
    let shown = run(&format!("plan show {} --ranks 3", file.name()));
    assert!(shown.status == 0 && shown.out.contains("rank 2"), "{shown:?}");
}

#[test]
fn bad_plans_are_refused_in_a_sentence() {
    let file = Scratch::new("broken.json");
    std::fs::write(&file.0, "{ \"name\": 3 }").unwrap();
    for (line, status, part) in [
        (format!("plan verify {}", file.name()), 2, "is not a plan"),
        ("plan verify /no/such/file".to_owned(), 2, "cannot be read"),
        ("plan verify --collective all_reduce".to_owned(), 2, "--algo"),
        ("plan verify --collective sendrecv --algo ring".to_owned(), 2, "no such collective"),
        ("plan verify --collective barrier --algo pull".to_owned(), 2, "no pull plan for barrier"),
        ("plan show --collective broadcast --algo ring --ranks 2 --root 2".to_owned(), 2, "--root 2"),
        ("plan verify --collective all_reduce --algo ring --ranks 0".to_owned(), 2, "1..16"),
    ] {
        let done = run(&line);
        assert_eq!(done.status, status, "{line}: {done:?}");
        assert!(done.err.contains(part), "{line}: {done:?}");
    }
}

#[test]
fn the_doctor_has_a_line_and_an_entry_for_everything() {
    let done = run("doctor");
    assert_eq!(done.status, 0, "{done:?}");
    for line in done.out.lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        assert!(["ok", "warn", "absent"].contains(&words[1]), "{line}");
    }
    let json = run("doctor --json");
    let value: serde_json::Value = serde_json::from_str(&json.out).unwrap();
    assert_eq!(value.as_array().unwrap().len(), done.out.lines().count());
}
