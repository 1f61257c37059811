//! Buffers that end where the memory ends (case B10): not a byte beyond is read or written.

use vervain_collectives::{Config, Protocol, Rank, ReduceOp};
use vervain_transport::fabric::Backend;

use crate::support::{by, cluster, on};

const PAGE: usize = 4096;
const BYTES: usize = 64 * PAGE;

/// Memory whose last byte is followed by a page that nobody may touch.
struct Edge(*mut u8);

impl Edge {
    fn new() -> Self {
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        // SAFETY: a fresh mapping at an address of the kernel's choice.
        let start = unsafe { libc::mmap(core::ptr::null_mut(), BYTES + PAGE, protection, flags, -1, 0) };
        assert_ne!(start, libc::MAP_FAILED);
        let start: *mut u8 = start.cast();
        // SAFETY: the last page of the mapping above.
        assert_eq!(unsafe { libc::mprotect(start.add(BYTES).cast(), PAGE, libc::PROT_NONE) }, 0);
        Self(start)
    }

    /// The last `bytes` bytes but `gap`.
    fn tail(&mut self, bytes: usize, gap: usize) -> &mut [u8] {
        // SAFETY: inside of the mapping, which is ours alone and lives as long as `self`.
        unsafe { core::slice::from_raw_parts_mut(self.0.add(BYTES - gap - bytes), bytes) }
    }
}

impl Drop for Edge {
    fn drop(&mut self) {
        // SAFETY: the mapping of `new`, of which no slice is left.
        unsafe { libc::munmap(self.0.cast(), BYTES + PAGE) };
    }
}

fn up_to_the_edge(config: &Config) {
    cluster(2, config, |c| {
        let rank = c.rank().get() as u8;
        let peer = Rank::new(1 - c.rank().get());
        let (mut one, mut other) = (Edge::new(), Edge::new());
        for bytes in [1, 7, 8, 15, 16, 17, 119, 120, 121, 1000, 4097, 70_001, 200_003] {
            for gap in [0, 1, 8, 15] {
                let (input, output) = (one.tail(bytes, gap), other.tail(bytes, gap));
                input.fill(rank + 1);
                c.all_reduce(input, output, ReduceOp::Sum).unwrap();
                assert!(output.iter().all(|&byte| byte == 3));
                c.all_reduce_in_place(input, ReduceOp::Sum).unwrap();
                assert!(input.iter().all(|&byte| byte == 3));
                input.fill(rank + 1);
                c.group(|group| {
                    group.send(&*input, peer);
                    group.recv(&mut *output, peer);
                })
                .unwrap();
                assert!(output.iter().all(|&byte| byte == 2 - rank));
            }
        }
    });
}

#[test]
fn nothing_beyond_the_last_page_is_touched() {
    for protocol in [Protocol::Ll, Protocol::Ll128, Protocol::Simple] {
        up_to_the_edge(&by(Backend::Shm, protocol));
    }
    up_to_the_edge(&on(Backend::Shm));
    up_to_the_edge(&on(Backend::Tcp));
}
