//! Peers that know the secret and still write nonsense into shared memory (case B16).

mod ends;

use proptest::prelude::*;

use super::{Options, Shm, lanes};
use crate::{
    Kind, Rank, Time,
    auth::Secret,
    fabric::{Event, Fabric, Identity, LinkId, Op, Span},
};

fn pair(options: &Options) -> ([Shm; 2], [LinkId; 2]) {
    let mut fabrics = [0, 1].map(|rank| {
        let identity = Identity { rank: Rank::new(rank), incarnation: 1, secret: Secret::from_bytes([3; 32]) };
        Shm::new(identity, options.clone()).unwrap()
    });
    let address = fabrics[1].address();
    fabrics[0].dial(Rank::new(1), &address, Time::NEVER).unwrap();
    let mut ends = [None; 2];
    let mut events = Vec::with_capacity(8);
    while ends.contains(&None) {
        for (fabric, end) in fabrics.iter_mut().zip(&mut ends) {
            events.clear();
            fabric.poll(Time::from_nanos(1), &mut events);
            *end = end.or(events.iter().find_map(|event| match event {
                Event::Up { link, .. } => Some(*link),
                _ => None,
            }));
        }
    }
    (fabrics, ends.map(Option::unwrap))
}

/// What rank 0 reports after rank 1 wrote `words` into its inbox.
fn after(words: &[(usize, u64)], options: &Options) -> Vec<Event> {
    let ([mut victim, mut attacker], [near, far]) = pair(options);
    let region = victim.allocate(4096).unwrap();
    let local = Span { region, offset: 0, bytes: 64 };
    victim.post(near, &[Op::Receive { token: 1, local }, Op::Receive { token: 2, local }]).unwrap();
    let outbox = &attacker.links.find_mut(far.0).unwrap().outbox;
    for (word, value) in words {
        outbox.scribble(*word, *value);
    }
    let mut events = Vec::with_capacity(64);
    for _ in 0..4 {
        victim.poll(Time::from_nanos(2), &mut events);
        let _ = victim.post(near, &[Op::Send { token: 3, local }, Op::Flush { token: 4 }]);
    }
    events
}

fn is_corrupt(events: &[Event]) -> bool {
    events.iter().any(|event| matches!(event, Event::Down { error, .. } if error.kind() == Kind::Corrupt))
}

#[test]
fn impossible_index_and_record_fail_the_link() {
    let options = Options::default();
    // the tail beyond all records
    assert!(is_corrupt(&after(&[(0, u64::MAX)], &options)));
    assert!(is_corrupt(&after(&[(0, lanes::RECORDS as u64 + 1)], &options)));
    // a record of no kind
    assert!(is_corrupt(&after(&[(0, 1)], &options)));
    // a message longer than a slot
    assert!(is_corrupt(&after(&[(32, 2), (33, u64::MAX), (0, 1)], &options)));
    // a reply to nothing, a request for too much
    assert!(is_corrupt(&after(&[(32, 4), (0, 1)], &options)));
    assert!(is_corrupt(&after(&[(32, 3), (36, 1 << 40), (0, 1)], &options)));
}

#[test]
fn outstanding_receives_end_before_a_corrupt_link_goes_down() {
    let events = after(&[(0, u64::MAX)], &Options::default());
    let kinds: Vec<_> = events.iter().map(|event| matches!(event, Event::Done { result: Err(_), .. })).collect();
    assert_eq!(kinds, [true, true, false], "{events:?}");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]
    #[test]
    fn no_word_in_shared_memory_harms_more_than_its_link(
        words in prop::collection::vec((0..lanes::BOUNCE / 8, prop_oneof![any::<u64>(), 0..300_u64]), 1..20),
        tail in 0..300_u64,
        forbid_pull: bool,
    ) {
        let mut words = words;
        words.push((0, tail));
        let events = after(&words, &Options { forbid_pull, ..Options::default() });
        let downs = events.iter().filter(|event| matches!(event, Event::Down { .. })).count();
        prop_assert!(downs <= 1);
    }
}
