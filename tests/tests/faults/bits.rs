//! Results are the same bits on all ranks and at every repetition (case B71).

use half::{bf16, f16};
use vervain_collectives::plan::{Algorithm, builders};
use vervain_collectives::{Collective, Config, Element, Kind, ReduceOp};
use vervain_transport::fabric::Backend;

use crate::support::{cluster, on};

trait Float: Element {
    /// Any number of any exponent, but no NaN and no infinity.
    fn wide(random: u64) -> Self;
    fn bits(self) -> u32;
}

impl Float for f32 {
    fn wide(random: u64) -> Self {
        // exponents in the middle half: sums of ten stay finite
        f32::from_bits((random as u32 & 0x807f_ffff) | (64 + (random >> 40) as u32 % 126) << 23)
    }
    fn bits(self) -> u32 {
        self.to_bits()
    }
}

impl Float for bf16 {
    fn wide(random: u64) -> Self {
        bf16::from_bits((random as u16 & 0x807f) | (64 + (random >> 40) as u16 % 126) << 7)
    }
    fn bits(self) -> u32 {
        self.to_bits().into()
    }
}

impl Float for f16 {
    fn wide(random: u64) -> Self {
        f16::from_bits((random as u16 & 0x83ff) | (1 + (random >> 40) as u16 % 25) << 10)
    }
    fn bits(self) -> u32 {
        self.to_bits().into()
    }
}

/// A fixed sequence for every rank.
fn random(seed: u64) -> impl FnMut() -> u64 {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    }
}

/// Every rank's result of one all-reduce, as bits.
fn results<T: Float>(ranks: u32, config: &Config, count: usize, op: ReduceOp) -> Vec<Vec<u32>> {
    cluster(ranks, config, |c| {
        let mut next = random(u64::from(c.rank().get()) + 1);
        let given: Vec<T> = (0..count).map(|_| T::wide(next())).collect();
        let direct = c.alloc::<T>(count).map(|mut input| {
            input.copy_from_slice(&given);
            (input, c.alloc::<T>(count).unwrap())
        });
        let run = || -> Option<Vec<u32>> {
            let mut plain = vec![T::default(); count];
            let result = c.all_reduce(&given, &mut plain, op);
            if !matches!(&result, Err(error) if error.kind() == Kind::Unsupported) {
                result.unwrap();
                return Some(plain.iter().map(|value| value.bits()).collect());
            }
            None
        };
        match run() {
            Some(first) => {
                (0..3).for_each(|_| assert_eq!(run().unwrap(), first, "the same bits again"));
                first
            }
            None => {
                let (input, mut output) = direct.unwrap();
                c.all_reduce(&input, &mut output, op).unwrap();
                let first: Vec<u32> = output.iter().map(|value| value.bits()).collect();
                c.all_reduce(&input, &mut output, op).unwrap();
                assert!(output.iter().zip(&first).all(|(value, &bits)| value.bits() == bits));
                first
            }
        }
    })
}

fn everywhere<T: Float>() {
    for &algorithm in Algorithm::ALL {
        if builders::plan(Collective::AllReduce, algorithm).is_none() {
            continue;
        }
        let config = Config { algorithm: Some(algorithm), ..on(Backend::Shm) };
        for ranks in [2, 3, 5, 6, 7, 10] {
            for count in [1usize, 257, 5000] {
                for op in [ReduceOp::Sum, ReduceOp::Prod, ReduceOp::Avg] {
                    let all = results::<T>(ranks, &config, count, op);
                    assert!(all.iter().all(|one| *one == all[0]), "{algorithm:?}, {ranks} ranks, {op} of {count}");
                }
            }
        }
    }
    for count in [5usize, 3000, 700_000] {
        let all = results::<T>(3, &on(Backend::Tcp), count, ReduceOp::Sum);
        assert!(all.iter().all(|one| *one == all[0]), "tcp, {count}");
    }
}

#[test]
fn all_ranks_get_the_same_bits_of_f32() {
    everywhere::<f32>();
}

#[test]
fn all_ranks_get_the_same_bits_of_bf16() {
    everywhere::<bf16>();
}

#[test]
fn all_ranks_get_the_same_bits_of_f16() {
    everywhere::<f16>();
}
