//! Transfers that were made before allocate nothing. Alone in its process, because it counts.

use core::time::Duration;
use std::alloc::{GlobalAlloc, Layout, System};

use vervain_transport::Time;
use vervain_transport::auth::Secret;
use vervain_transport::endpoint::{Access, Endpoint, Notify, PageList, PeerEvent, PeerId, Terms, Write};
use vervain_transport::fabric::{Backend, tcp};
use vervain_transport::sync::{AtomicU64, Ordering};

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

fn soon() -> Time {
    Time::now().after(Duration::from_secs(20))
}

fn until<T>(ends: &mut [Endpoint; 2], mut ready: impl FnMut(&mut [Endpoint; 2]) -> Option<T>) -> T {
    let end = soon();
    loop {
        if let Some(value) = ready(ends) {
            return value;
        }
        let now = Time::now();
        assert!(now < end, "nothing comes");
        ends.iter_mut().for_each(|end| end.poll(now));
    }
}

fn pair(backend: Backend) -> ([Endpoint; 2], PeerId, PeerId) {
    let options = tcp::Options { address: Some(std::net::Ipv4Addr::LOCALHOST.into()), ..tcp::Options::default() };
    let make =
        || Endpoint::builder().secret(Secret::from_bytes([1; 32])).only(backend).tcp(options.clone()).build().unwrap();
    let mut ends = [make(), make()];
    let address = ends[1].address().unwrap();
    let peer = ends[0].dial(&address, soon()).unwrap();
    until(&mut ends, |ends| ends[0].is_up(peer).unwrap().then_some(()));
    let back = until(&mut ends, |ends| match ends[1].next_peer_event() {
        Some(PeerEvent::Up(back)) => Some(back),
        _ => None,
    });
    (ends, peer, back)
}

#[test]
fn transfers_that_were_made_before_allocate_nothing() {
    for backend in [Backend::Shm, Backend::Tcp] {
        let (mut ends, peer, back) = pair(backend);
        let region = ends[1].allocate(1 << 16).unwrap();
        let (_exposed, advert) = ends[1].advertise(region, back, Access::ReadWrite).unwrap();
        let remote = until(&mut ends, |ends| ends[0].open_region(peer, &advert).ok());
        let local = ends[0].allocate(1 << 16).unwrap();
        let told = ends[1].counter(9);
        let numbers: Vec<u32> = (0..100).collect();
        let pages = PageList::listed(&numbers, 64);
        let writes: Vec<Write> = (0..32)
            .map(|index| Write {
                local: local.span(index * 64, 64),
                remote: remote.at(index * 64),
                notify: Notify::No,
                context: index,
            })
            .collect();
        let round = |ends: &mut [Endpoint; 2]| {
            let terms = Terms::by(soon());
            let target = told.get() + 2;
            let mut next = 0;
            // each step again until there is room for it
            until(ends, |ends| {
                let end = &mut ends[0];
                let started = match next {
                    0 => end.write(local.all(), remote.at(0), Notify::Immediate(9), terms),
                    1 => end.write_inline(&[1; 8], remote.at(8), Notify::No, terms),
                    2 => end.read(local.span(0, 4096), remote.at(0), terms),
                    3 => end.fetch_add(remote.at(0), 1, terms),
                    4 => end.send(peer, 1, &[2; 100], terms),
                    5 => {
                        end.write_paged(64, local.all().pages(pages), remote.pages(pages), Notify::Immediate(9), terms)
                    }
                    6 => end.flush(peer, terms),
                    _ => return Some(()),
                };
                next += usize::from(started.unwrap().started().is_some());
                None
            });
            let (mut posted, mut ended, mut messages) = (0, 0, 0);
            until(ends, |ends| {
                posted += ends[0].write_many(peer, &writes[posted..], terms).unwrap();
                while let Some(done) = ends[0].next_completion() {
                    assert!(done.end.is_done(), "{done:?}");
                    ended += 1;
                }
                messages += usize::from(ends[1].next_message().is_some());
                (ended == 7 + 32 && messages == 1 && told.get() == target).then_some(())
            });
        };
        (0..200).for_each(|_| round(&mut ends));
        let before = CALLS.load(Ordering::Relaxed);
        (0..200).for_each(|_| round(&mut ends));
        let calls = CALLS.load(Ordering::Relaxed) - before;
        assert_eq!(calls, 0, "{backend}");
    }
}
