//! Calls that were made before allocate nothing that stays (case B68). Alone in its process, because it counts.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::Barrier;
use std::thread;

use vervain_collectives::{Communicator, Config, Rank, ReduceOp};
use vervain_transport::sync::{AtomicU64, Ordering};

struct Counting;

static LIVE: AtomicU64 = AtomicU64::new(0);
static CALLS: AtomicU64 = AtomicU64::new(0);

// SAFETY: everything is passed on to the system's allocator unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        LIVE.fetch_add(1, Ordering::Relaxed);
        CALLS.fetch_add(1, Ordering::Relaxed);
        // SAFETY: the caller's promise is passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, start: *mut u8, layout: Layout) {
        LIVE.fetch_sub(1, Ordering::Relaxed);
        // SAFETY: the caller's promise is passed on.
        unsafe { System.dealloc(start, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// What `call` leaves allocated, and how often it allocates, when it is repeated on all ranks of a job.
fn growth(ranks: u32, rounds: usize, call: impl Fn(&Communicator, &mut [f32]) + Sync) -> (i64, i64) {
    let communicators = Communicator::init_all(ranks, &Config::default()).unwrap();
    let meet = Barrier::new(ranks as usize + 1);
    thread::scope(|scope| {
        for c in communicators {
            let (call, meet) = (&call, &meet);
            scope.spawn(move || {
                let mut data = [1f32; 100];
                for rounds in [200, rounds] {
                    (0..rounds).for_each(|_| call(&c, &mut data));
                    meet.wait();
                    meet.wait();
                }
            });
        }
        meet.wait();
        let before = (LIVE.load(Ordering::Relaxed), CALLS.load(Ordering::Relaxed));
        meet.wait();
        meet.wait();
        let after = (LIVE.load(Ordering::Relaxed), CALLS.load(Ordering::Relaxed));
        meet.wait();
        (after.0.wrapping_sub(before.0) as i64, after.1.wrapping_sub(before.1) as i64)
    })
}

#[test]
fn repeated_calls_leave_nothing_allocated() {
    let rounds = if cfg!(debug_assertions) { 10_000 } else { 100_000 };
    for ranks in [1, 2] {
        let all_reduce = growth(ranks, rounds, |c, data| c.all_reduce_in_place(data, ReduceOp::Max).unwrap());
        println!("all_reduce, {ranks} ranks: {all_reduce:?}");
        assert_eq!(all_reduce, (0, 0), "all_reduce with {ranks} ranks never allocates");
        let (left, calls) = growth(ranks, rounds / 10, |c, data| {
            let peer = Rank::new((c.rank().get() + 1) % ranks);
            let mut back = [0f32; 100];
            c.group(|group| {
                group.send(data, peer);
                group.recv(&mut back, peer);
            })
            .unwrap();
        });
        println!("group, {ranks} ranks: {calls} allocations in {} groups", rounds / 10);
        assert_eq!(left, 0, "groups with {ranks} ranks leave nothing");
    }
}
