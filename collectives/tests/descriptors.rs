//! Nothing is left open after meetings, good or bad. Alone in its process, because it counts descriptors.

use core::time::Duration;

use vervain_collectives::bootstrap::{InitError, Join, Joined, UniqueId};
use vervain_collectives::{Error, Kind, Rank};
use vervain_transport::Time;

fn join(id: &UniqueId, rank: u32, ready: Result<(), Error>) -> Result<Joined, Box<InitError>> {
    let now = Time::now();
    Join::start(id, Rank::new(rank), 2, Ok(vec![1]), now, now.after(Duration::from_secs(60)))?.wait(|_| ready)
}

/// Two ranks meet; whether that went well.
fn meet(ready: Result<(), Error>) -> bool {
    let id = UniqueId::generate(None).unwrap();
    std::thread::scope(|scope| {
        let other = scope.spawn(|| join(&id, 1, ready));
        let ours = join(&id, 0, Ok(()));
        let threads = [ours, other.join().unwrap()].map(|joined| joined.map(|joined| joined.mesh.spawn().unwrap()));
        threads.iter().all(Result::is_ok)
    })
}

fn open_descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").unwrap().count()
}

#[test]
fn two_hundred_joins_leave_no_descriptor() {
    assert!(meet(Ok(())));
    let before = open_descriptors();
    for round in 0..200 {
        let ready = if round % 2 == 0 { Ok(()) } else { Err(Error::new(Kind::NoSpace)) };
        assert_eq!(meet(ready), ready.is_ok());
    }
    assert_eq!(open_descriptors(), before);
}
