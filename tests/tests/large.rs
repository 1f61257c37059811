//! Buffers beyond 2^31 and 2^32 bytes (case B05). Needs 10 GiB of memory, so only in release and where these are free.

use std::thread;

use vervain_collectives::{Communicator, Config, ReduceOp};
use vervain_transport::fabric::Backend;

/// Whether so much memory is available.
fn has_memory(test: &str, gigabytes: u64) -> bool {
    let text = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:")).unwrap_or_default();
    let kilobytes: u64 = line.trim().trim_end_matches("kB").trim().parse().unwrap_or(0);
    if kilobytes >> 20 < gigabytes {
        println!("skipped: {test} (needs {gigabytes} GiB of free memory)");
    }
    kilobytes >> 20 >= gigabytes
}

fn two_ranks(body: impl Fn(&Communicator) + Sync) {
    let config = Config { fabric: Some(Backend::Shm), ..Config::default() };
    let communicators = Communicator::init_all(2, &config).unwrap();
    thread::scope(|scope| {
        for c in communicators {
            let body = &body;
            scope.spawn(move || body(&c));
        }
    });
}

/// First, last, and those around each border of 2^31 and 2^32 bytes.
fn places(elements: usize, element: usize) -> Vec<usize> {
    let mut places = vec![0, 1, elements - 2, elements - 1];
    for border in [1usize << 31, 1 << 32] {
        places.extend((border / element).saturating_sub(40)..(border / element + 40).min(elements));
    }
    places.into_iter().filter(|&place| place < elements).collect()
}

#[test]
#[cfg_attr(debug_assertions, ignore = "moves gigabytes: only in release")]
fn all_gather_beyond_four_gigabytes_is_right() {
    if !has_memory("all_gather_beyond_four_gigabytes_is_right", 11) {
        return;
    }
    let count = (1usize << 31) + 1;
    let value = |rank: usize, place: usize| (place % 251) as u8 ^ (rank as u8 * 0x80);
    two_ranks(|c| {
        let rank = c.rank().index();
        let mut data = vec![0u8; 2 * count];
        let own = places(2 * count, 1).into_iter().filter(|place| place / count == rank);
        own.for_each(|place| data[place] = value(rank, place));
        c.all_gather_in_place(&mut data).unwrap();
        for place in places(2 * count, 1).into_iter().chain(count - 3..count + 3) {
            let known = places(2 * count, 1).contains(&place);
            let expected = if known { value(place / count, place) } else { 0 };
            assert_eq!(data[place], expected, "byte {place}");
        }
    });
}

#[test]
#[cfg_attr(debug_assertions, ignore = "moves gigabytes: only in release")]
fn all_reduce_beyond_four_gigabytes_is_right() {
    if !has_memory("all_reduce_beyond_four_gigabytes_is_right", 11) {
        return;
    }
    let count = (1usize << 30) + 3;
    two_ranks(|c| {
        let mut data = vec![0f32; count];
        places(count, 4).into_iter().for_each(|place| data[place] = (place % 1000) as f32 + c.rank().get() as f32);
        c.all_reduce_in_place(&mut data, ReduceOp::Sum).unwrap();
        for place in places(count, 4) {
            assert_eq!(data[place], 2.0 * (place % 1000) as f32 + 1.0, "element {place}");
        }
        let known: std::collections::BTreeSet<_> = places(count, 4).into_iter().collect();
        assert!(data.iter().enumerate().all(|(place, &value)| value == 0.0 || known.contains(&place)));
    });
}
