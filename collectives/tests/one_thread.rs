//! One thread runs a whole cluster: joining, calls and the control mesh are machines that it steps in turn.

use core::task::Poll;

use vervain_collectives::bootstrap::UniqueId;
use vervain_collectives::{Call, Collective, Communicator, Config, DataType, Joining, Progress, Rank, ReduceOp};
use vervain_transport::Time;
use vervain_transport::fabric::Backend;

fn join(ranks: u32, config: &Config) -> Vec<Communicator> {
    let id = UniqueId::generate(None).unwrap();
    let mut joining: Vec<Joining> =
        (0..ranks).map(|rank| Joining::start(&id, Rank::new(rank), ranks, config).unwrap()).collect();
    let mut ready: Vec<Option<Communicator>> = (0..ranks).map(|_| None).collect();
    while ready.iter().any(Option::is_none) {
        for (joining, ready) in joining.iter_mut().zip(&mut ready) {
            if ready.is_none()
                && let Poll::Ready(result) = joining.step(Time::now())
            {
                *ready = Some(result.unwrap());
            }
        }
    }
    ready.into_iter().flatten().collect()
}

#[test]
fn one_thread_runs_all_ranks() {
    for fabric in [Backend::Shm, Backend::Tcp] {
        for ranks in [1, 2, 5] {
            let config = Config { fabric: Some(fabric), progress: Progress::Manual, ..Config::default() };
            let communicators = join(ranks, &config);
            for count in [1usize, 1000, 300_000] {
                let mut data: Vec<Vec<i32>> = (0..ranks).map(|rank| vec![rank as i32 + 1; count]).collect();
                for (communicator, data) in communicators.iter().zip(&mut data) {
                    let call = Call {
                        collective: Collective::AllReduce,
                        datatype: DataType::I32,
                        op: Some(ReduceOp::Sum),
                        root: None,
                        count,
                        input: data.as_ptr().cast(),
                        output: data.as_mut_ptr().cast(),
                        registered: false,
                    };
                    // SAFETY: `data` has `count` elements and is not touched until all steps are done.
                    unsafe { communicator.begin(&call) }.unwrap();
                }
                let mut open: Vec<&Communicator> = communicators.iter().collect();
                while !open.is_empty() {
                    open.retain(|communicator| match communicator.step(Time::now()) {
                        Poll::Pending => true,
                        Poll::Ready(result) => {
                            result.unwrap();
                            false
                        }
                    });
                }
                let total = (1..=ranks as i32).sum::<i32>();
                assert!(data.iter().flatten().all(|&got| got == total));
            }
        }
    }
}
