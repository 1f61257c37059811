//! Strangers on every port of a job, while it starts and while it runs: it does both all the same (cases B31, B52).

use core::time::Duration;
use std::fs;
use std::io::Write;
use std::net::{SocketAddr, TcpStream};
use std::sync::{Arc, Weak};
use std::thread::{self, Scope};

use vervain_collectives::bootstrap::UniqueId;
use vervain_collectives::{Communicator, Rank, ReduceOp};
use vervain_transport::auth::{Dialer, HELLO, Purpose, Secret};
use vervain_transport::fabric::Identity;
use vervain_transport::sync::thread as pause;

use crate::support::{
    Directory, FABRIC, FABRICS, PATIENCE, PLACE, await_file, finish, job, listening, member, on, place, reach, started,
    text, wait_until,
};

/// Connections that say nothing, too little, garbage, or something huge; they stay open.
fn crowd(to: SocketAddr) -> Vec<TcpStream> {
    let words: [&[u8]; 5] = [&[], &[1], &[0x55; 40], &[0xff; 8], &[0xff; 60_000]];
    let strangers = words.iter().cycle().take(20).map(|words| {
        let mut stranger = TcpStream::connect_timeout(&to, PATIENCE).unwrap();
        // we may have been thrown out already
        let _ = stranger.write_all(words);
        stranger
    });
    strangers.collect()
}

#[test]
fn job_starts_and_works_among_strangers() {
    for fabric in FABRICS {
        let id = UniqueId::generate(None).unwrap();
        let early = crowd(id.address());
        std::thread::scope(|scope| {
            for rank in 0..3 {
                let id = &id;
                scope.spawn(move || {
                    let late = if rank == 2 { crowd(id.address()) } else { Vec::new() };
                    let c = Communicator::init_rank(id, Rank::new(rank), 3, &on(fabric)).unwrap();
                    let mut data = vec![1i32; 10_000];
                    c.all_reduce_in_place(&mut data, ReduceOp::Sum).unwrap();
                    assert_eq!(data, vec![3; 10_000]);
                    drop(late);
                    c.barrier().unwrap();
                });
            }
        });
        drop(early);
    }
}

/// Ports of a whole job: rank 0 meets the others, each but the last waits for neighbours, and each listens for links.
#[test]
fn job_starts_and_runs_with_strangers_on_every_port() {
    let place = Directory::new("strangers");
    let body = "strangers::body_of_which_rank_2_comes_late";
    let running = job(3, body).env(FABRIC, "tcp").env(PLACE, &place.0).start().unwrap();
    let pids = running.processes();
    let ports = |rank: usize| listening(pids[rank]);
    wait_until(|| ports(0).len() == 3 && ports(1).len() == 2);
    let [meeting, _, control] = ports(0)[..] else { unreachable!("three ports") };
    let exits = thread::scope(|scope| {
        let goes_on = GoesOn::default();
        let early = [ports(0), ports(1)].concat();
        early.iter().for_each(|&port| pester(scope, port, &goes_on));
        let guests: Vec<_> = early.iter().flat_map(|&port| crowd(port)).collect();
        let crowds = [many(meeting), many(control)];
        assert!(crowds.iter().all(|crowd| crowd.len() == MANY), "nobody lets in who wants to prove himself");
        fs::write(place.0.join("go"), "").unwrap();
        (0..3).for_each(|rank| await_file(&place.0.join(format!("running.{rank}"))));
        // all have met: what is open is for links alone
        let late: Vec<_> = (0..3).flat_map(ports).collect();
        assert_eq!(late.len(), 3, "{late:?}");
        late.iter().for_each(|&port| pester(scope, port, &goes_on));
        let more: Vec<_> = late.iter().flat_map(|&port| crowd(port)).chain(many(late[1])).collect();
        (0..3).for_each(|rank| fs::write(place.0.join(format!("enough.{rank}")), "").unwrap());
        let exits = finish(running);
        drop((guests, crowds, more));
        exits
    });
    for exit in exits {
        assert!(exit.status.success() && !exit.killed, "rank {}: {}", exit.rank, text(&exit));
    }
}

#[test]
fn body_of_which_rank_2_comes_late() {
    let Some(rank) = started() else { return };
    if rank.get() == 2 {
        await_file(&place().join("go"));
    }
    let Some(c) = member(PATIENCE) else { return };
    let enough = place().join(format!("enough.{rank}"));
    let (mut all, mut round) = ([0], 0);
    while all[0] == 0 {
        let mut data = vec![rank.get() as i32 + round; 30_000];
        c.all_reduce_in_place(&mut data, ReduceOp::Sum).unwrap();
        assert!(data.iter().all(|&value| value == 3 + 3 * round), "round {round}");
        if round == 0 {
            reach(rank, "running");
        }
        c.all_reduce(&[i32::from(enough.exists())], &mut all, ReduceOp::Min).unwrap();
        round += 1;
    }
    c.finalize().unwrap();
}

#[test]
fn job_over_shared_memory_has_no_open_port() {
    let place = Directory::new("ports");
    let body = "strangers::body_of_which_rank_2_comes_late";
    let running = job(3, body).env(PLACE, &place.0).start().unwrap();
    fs::write(place.0.join("go"), "").unwrap();
    (0..3).for_each(|rank| await_file(&place.0.join(format!("running.{rank}"))));
    assert_eq!(running.processes().into_iter().flat_map(listening).collect::<Vec<_>>(), []);
    (0..3).for_each(|rank| fs::write(place.0.join(format!("enough.{rank}")), "").unwrap());
    assert!(finish(running).iter().all(|exit| exit.status.success()));
}

/// A large crowd.
const MANY: usize = 1000;

/// Connections that want nothing, as long as they are let in.
fn many(to: SocketAddr) -> Vec<TcpStream> {
    (0..MANY).map_while(|_| TcpStream::connect_timeout(&to, Duration::from_secs(5)).ok()).collect()
}

/// While this lives it goes on; also a test that fails ends it.
#[derive(Default)]
struct GoesOn(Arc<()>);

struct Watch(Weak<()>);

impl GoesOn {
    fn watch(&self) -> Watch {
        Watch(Arc::downgrade(&self.0))
    }
}

impl Watch {
    fn is_over(&self) -> bool {
        self.0.strong_count() == 0
    }
}

/// While it goes on, one stranger sends a greeting byte by byte, and another one bytes without end; each comes again when it is thrown out.
fn pester<'scope>(scope: &'scope Scope<'scope, '_>, to: SocketAddr, goes_on: &GoesOn) {
    let identity = Identity { rank: Rank::new(1), incarnation: 1, secret: Secret::from_bytes([1; 32]) };
    let hello = *Dialer::new(&identity, Purpose::Link, Rank::new(0)).unwrap().hello();
    let drip = move |stranger: &mut TcpStream, count: usize| stranger.write_all(&hello[count % HELLO..][..1]);
    let flood = |stranger: &mut TcpStream, _: usize| stranger.write_all(&[0xff; 1000]);
    let (one, other) = (goes_on.watch(), goes_on.watch());
    scope.spawn(move || repeat(to, &one, drip));
    scope.spawn(move || repeat(to, &other, flood));
}

fn repeat(to: SocketAddr, watch: &Watch, mut say: impl FnMut(&mut TcpStream, usize) -> std::io::Result<()>) {
    while !watch.is_over() {
        let Ok(mut stranger) = TcpStream::connect_timeout(&to, Duration::from_millis(100)) else {
            // closed, for good perhaps
            pause::yield_now();
            continue;
        };
        let _ = stranger.set_write_timeout(Some(Duration::from_millis(10)));
        let mut said = 0;
        while !watch.is_over() && say(&mut stranger, said).is_ok() {
            said += 1;
            pause::yield_now();
        }
    }
}
