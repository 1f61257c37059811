//! Bodies of the fuzz targets. The same functions run as property tests, on generated and on recorded inputs.

pub use crate::{
    ring::fuzzing::{
        completion_operations, counter_values, fifo_operations, mpsc_operations, record_ring, spsc_operations,
    },
    wire::fuzzing::{endpoint_bytes, frame_header, ll_unpack, ll128_unpack},
};

use crate::{
    Rank,
    auth::{Acceptor, CHALLENGE, Dialer, HELLO, PROOF, Purpose, Secret},
    fabric::Identity,
};

/// Any bytes as each of the three messages of a handshake: refused, never believed, and no panic.
pub fn auth_messages(input: &[u8]) {
    let identity = |rank| Identity { rank: Rank::new(rank), incarnation: 1, secret: Secret::from_bytes([7; 32]) };
    let mut acceptor = Acceptor::new(&identity(0), Purpose::Control);
    let _ = acceptor.on_hello(&message::<HELLO>(input));
    assert!(acceptor.on_proof(&message::<PROOF>(input)).is_err(), "nobody guesses an HMAC");
    if let Ok(dialer) = Dialer::new(&identity(1), Purpose::Control, Rank::new(0)) {
        assert!(dialer.on_challenge(&message::<CHALLENGE>(input)).is_err(), "nobody guesses an HMAC");
    }
}

/// The input as a message of fixed length, filled up with zeros.
fn message<const N: usize>(input: &[u8]) -> [u8; N] {
    core::array::from_fn(|at| input.get(at).copied().unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn bytes(most: usize) -> impl Strategy<Value = std::vec::Vec<u8>> {
        proptest::collection::vec(any::<u8>(), 0..most)
    }

    proptest! {
        #[test]
        fn spsc_is_a_bounded_queue(input in bytes(200)) { spsc_operations(&input) }

        #[test]
        fn mpsc_is_a_bounded_queue(input in bytes(200)) { mpsc_operations(&input) }

        #[test]
        fn record_ring_is_a_queue_and_survives_a_hostile_peer(input in bytes(200)) { record_ring(&input) }

        #[test]
        fn endpoint_bytes_are_repeated_or_refused(
            head in 0..3_usize, version in 0..3_u16, count in 0..3_u32, rest in bytes(200)
        ) {
            let magic: &[u8] = [b"VVADVERT", b"VVENDPNT", b"VERVAIN\0"][head];
            let tail = [&version.to_le_bytes()[..], &[0; 18], &count.to_le_bytes(), &rest].concat();
            endpoint_bytes(&[magic, &tail].concat());
            endpoint_bytes(&[magic, &tail[..24], &rest[..rest.len().min(40)]].concat());
        }

        #[test]
        fn completions_are_a_bounded_queue(input in bytes(200)) { completion_operations(&input) }

        #[test]
        fn counters_move_forward_or_are_corrupt(input in bytes(200)) { counter_values(&input) }

        #[test]
        fn counters_move_forward_by_little_too(steps in proptest::collection::vec(-3_i64..1000, 0..40)) {
            let values = steps.iter().scan(0_i64, |sum, step| { *sum = sum.wrapping_add(*step); Some(*sum as u64) });
            counter_values(&values.flat_map(u64::to_le_bytes).collect::<std::vec::Vec<_>>());
        }

        #[test]
        fn fifo_survives_a_hostile_peer(input in bytes(200)) { fifo_operations(&input) }

        // without a forged word, which random bytes soon hold
        #[test]
        fn fifo_is_a_bounded_queue(input in proptest::collection::vec(0_u8..220, 0..200)) { fifo_operations(&input) }

        #[test]
        fn ll_unpacks_what_carries_the_flag(input in bytes(600)) { ll_unpack(&input) }

        // flags that match are rare among random bytes
        #[test]
        fn ll_unpacks_what_carries_the_flag_often(bytes in 0_u8..40, from in 0_u8..6, words in proptest::collection::vec((any::<u32>(), 0_u32..12), 0..14)) {
            let slot = words.iter().flat_map(|(data, flag)| [*data, (*flag).min(1)]).flat_map(u32::to_le_bytes);
            ll_unpack(&[bytes, from, 1].into_iter().chain(slot).collect::<std::vec::Vec<_>>());
        }

        #[test]
        fn ll128_unpacks_what_carries_the_flag(bytes in any::<u8>(), from in 0_u8..6, lines in proptest::collection::vec((any::<u64>(), 0_u64..6), 0..6)) {
            let slot = lines.iter().flat_map(|(data, flag)| (0..15).map(|at| data.wrapping_mul(at | 1)).chain([(*flag).min(1)]));
            ll128_unpack(&[bytes, from, 1].into_iter().chain(slot.flat_map(u64::to_le_bytes)).collect::<std::vec::Vec<_>>());
        }

        #[test]
        fn handshakes_refuse_any_bytes(input in bytes(100)) { auth_messages(&input) }

        #[test]
        fn frames_survive_being_emitted(input in bytes(48)) { frame_header(&input) }
    }
}
