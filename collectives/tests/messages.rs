//! Messages between two ranks, alone and in groups.

mod common;

use common::cluster;
use vervain_collectives::{Config, Kind, Rank};
use vervain_transport::fabric::Backend;

fn both() -> [Config; 2] {
    [Backend::Shm, Backend::Tcp].map(|fabric| Config { fabric: Some(fabric), ..Config::default() })
}

#[test]
fn messages_of_all_sizes_arrive_in_order() {
    for config in both() {
        cluster(2, &config, |c| {
            let peer = Rank::new(1 - c.rank().get());
            for count in [0usize, 1, 6, 7, 1023, 1024, 16384, 16385, 100_001] {
                let mut data: Vec<u32> = (0..count as u32).collect();
                let mut data: Vec<i32> = data.drain(..).map(|x| x as i32).collect();
                if c.rank().get() == 0 {
                    c.send(&data, peer).unwrap();
                    c.recv(&mut data, peer).unwrap();
                    assert!(data.iter().zip(0..).all(|(&got, i)| got == i + 1));
                } else {
                    c.recv(&mut data, peer).unwrap();
                    assert!(data.iter().zip(0..).all(|(&got, i)| got == i));
                    data.iter_mut().for_each(|x| *x += 1);
                    c.send(&data, peer).unwrap();
                }
            }
        });
    }
}

#[test]
fn a_ring_of_large_messages_in_a_group_does_not_deadlock() {
    for config in both() {
        for ranks in [1, 2, 3, 4] {
            cluster(ranks, &config, |c| {
                let (rank, n) = (c.rank().get(), c.ranks());
                let out = vec![rank as i32; 300_000];
                let mut back = vec![-1i32; 300_000];
                let mut again = vec![-1i32; 5];
                let few = [rank as i32 + 100; 5];
                c.group(|g| {
                    g.send(&out, Rank::new((rank + 1) % n));
                    g.send(&few, Rank::new((rank + 1) % n));
                    g.recv(&mut back, Rank::new((rank + n - 1) % n));
                    g.recv(&mut again, Rank::new((rank + n - 1) % n));
                })
                .unwrap();
                let before = ((rank + n - 1) % n) as i32;
                assert!(back.iter().all(|&got| got == before));
                assert_eq!(again, [before + 100; 5]);
            });
        }
    }
}

#[test]
fn a_message_to_nobody_or_without_its_other_half_is_refused() {
    cluster(2, &both()[0], |c| {
        assert_eq!(c.send(&[1u8], Rank::new(2)).unwrap_err().kind(), Kind::InvalidArgument);
        assert_eq!(c.send(&[1u8], c.rank()).unwrap_err().kind(), Kind::InvalidUsage);
        c.barrier().unwrap();
    });
}
