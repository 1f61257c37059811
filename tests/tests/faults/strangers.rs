//! Strangers on the bootstrap port and on the abstract sockets: the job starts and works all the same (cases B31, B52).

use std::io::Write;
use std::net::{SocketAddr, TcpStream};

use vervain_collectives::bootstrap::UniqueId;
use vervain_collectives::{Communicator, Rank, ReduceOp};

use crate::support::{FABRICS, on};

/// Connections that say nothing, too little, garbage, or something huge; they stay open.
fn crowd(to: SocketAddr) -> Vec<TcpStream> {
    let words: [&[u8]; 5] = [&[], &[1], &[0x55; 40], &[0xff; 8], &[0xff; 60_000]];
    let strangers = words.iter().cycle().take(20).map(|words| {
        let mut stranger = TcpStream::connect(to).unwrap();
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
