//! Transfers that were made before allocate nothing. Alone in its process, because it counts.

use std::alloc::{GlobalAlloc, Layout, System};

use vervain_transport::endpoint::{Access, Endpoint, Notify, PageList, Posted, Terms, Write};
use vervain_transport::sync::{AtomicU64, Ordering};

#[allow(dead_code, reason = "shared with the tests of the endpoint")]
#[path = "endpoint/world.rs"]
mod world;

use world::{FABRICS, World, soon};

struct Counting;

static CALLS: AtomicU64 = AtomicU64::new(0);

// SAFETY: everything is passed on to the system's allocator unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        CALLS.fetch_add(1, Ordering::Relaxed);
        // SAFETY: the caller's promise is passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, start: *mut u8, layout: Layout) {
        // SAFETY: the caller's promise is passed on.
        unsafe { System.dealloc(start, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

#[test]
fn transfers_that_were_made_before_allocate_nothing() {
    for fabric in FABRICS {
        let mut world = World::of(fabric, 2);
        let peer = world.peers[1].unwrap();
        let (_exposed, remote) = world.share(1, &[0; 1 << 16], Access::ReadWrite);
        let local = world.region(0, &[0; 1 << 16]);
        let told = world.ends[1].counter(9);
        let numbers: Vec<u32> = (0..100).collect();
        let pages = PageList::listed(&numbers, 64);
        let writes: Vec<Write> = (0..32)
            .map(|index| (local.span(index * 64, 64), remote.at(index * 64)))
            .map(|(local, remote)| Write { local, remote, notify: Notify::No, context: 0 })
            .collect();
        let all = local.all();
        let terms = || Terms::by(soon());
        type Start<'a> = &'a dyn Fn(&mut Endpoint) -> vervain_transport::Result<Posted>;
        let starts: [Start<'_>; 7] = [
            &|end| end.write(all, remote.at(0), Notify::Immediate(9), terms()),
            &|end| end.write_inline(&[1; 8], remote.at(8), Notify::No, terms()),
            &|end| end.read(all.part(0, 4096), remote.at(0), terms()),
            &|end| end.fetch_add(remote.at(0), 1, terms()),
            &|end| end.send(peer, 1, &[2; 100], terms()),
            &|end| end.write_paged(64, all.pages(pages), remote.pages(pages), Notify::Immediate(9), terms()),
            &|end| end.flush(peer, terms()),
        ];
        let round = |world: &mut World| {
            let target = told.get() + 2;
            for start in starts {
                world.start(0, start);
            }
            let (mut posted, mut ended, mut messages) = (0, 0, 0);
            world.until("all ends", |ends| {
                posted += ends[0].write_many(peer, &writes[posted..], terms()).unwrap();
                while let Some(done) = ends[0].next_completion() {
                    assert!(done.end.is_done(), "{done:?}");
                    ended += 1;
                }
                messages += usize::from(ends[1].next_message().is_some());
                (ended == starts.len() + writes.len() && messages == 1 && told.get() == target).then_some(())
            });
        };
        (0..200).for_each(|_| round(&mut world));
        let before = CALLS.load(Ordering::Relaxed);
        (0..200).for_each(|_| round(&mut world));
        assert_eq!(CALLS.load(Ordering::Relaxed) - before, 0, "{fabric}");
    }
}
