//! Jobs of real processes: this test program starts itself as the ranks.

use core::time::Duration;

use vervain_collectives::bootstrap::{Join, Joined};
use vervain_collectives::launch::{Environment, Exit, Launcher, Local, Output};
use vervain_collectives::{Kind, Rank};
use vervain_transport::Time;

/// Start `ranks` processes that run the test `body` alone.
fn run(ranks: u32, body: &str) -> Vec<Exit> {
    let program = std::env::current_exe().unwrap();
    let job = Local::new(ranks, program).args([body, "--exact", "--nocapture"]).output(Output::Collect);
    job.start().unwrap().wait()
}

fn text(exit: &Exit) -> String {
    String::from_utf8_lossy(&exit.output).into_owned()
}

/// Join the job of our launcher; `None` if it did not start us.
fn join() -> Option<Joined> {
    let found = Environment::from_process().unwrap().filter(|found| found.launcher == Launcher::Vervain)?;
    let now = Time::now();
    let join = Join::start(&found.id, found.rank, found.ranks, Ok(vec![]), now, now.after(Duration::from_secs(60)));
    Some(join.unwrap().wait(|_| Ok(())).unwrap())
}

#[test]
fn started_ranks_meet_over_the_inherited_socket() {
    for exit in run(3, "body_that_meets") {
        assert!(exit.status.success() && text(&exit).contains("met 3 on one host"), "{}", text(&exit));
    }
}

#[test]
fn body_that_meets() {
    let Some(joined) = join() else { return };
    let hosts = joined.members.windows(2).all(|pair| pair[0].host == pair[1].host && pair[0].pid != pair[1].pid);
    assert!(hosts);
    println!("met {} on one host", joined.ranks);
    drop(joined.mesh.spawn().unwrap());
}

#[test]
fn killed_rank_is_named_by_every_survivor() {
    let exits = run(4, "body_that_loses_rank_2");
    for exit in &exits {
        let is_dead = exit.rank == Rank::new(2);
        assert!(is_dead != exit.status.success() && !exit.killed, "{}", text(exit));
        assert_eq!(text(exit).contains("rank 2 died"), !is_dead);
    }
}

#[test]
fn body_that_loses_rank_2() {
    let Some(joined) = join() else { return };
    if joined.rank.get() == 2 {
        std::process::abort();
    }
    let thread = joined.mesh.spawn().unwrap();
    while thread.handle().failure().is_none() {
        vervain_transport::sync::thread::yield_now();
    }
    let error = thread.handle().failure().unwrap();
    assert_eq!((error.kind(), error.rank()), (Kind::PeerDied, Some(Rank::new(2))));
    println!("{}", thread.handle().report().unwrap().lines.join("\n"));
}
