//! Operations that are cancelled (CA-2, CA-3), and regions that are revoked (FE-4, FE-5), at every step of the streams.

use super::*;

const SLOT: usize = 190_000;
const GARBAGE: u8 = 0xee;

impl End {
    fn cancel(&mut self, token: u64) {
        let mut context = Context { regions: &mut self.regions, events: &mut self.events };
        self.link.as_mut().unwrap().cancel(token, &mut context).unwrap();
    }

    fn slot(&mut self, slot: u64) -> &mut [u8] {
        &mut self.bytes()[slot as usize * SLOT..][..SLOT]
    }

    fn link(&mut self) -> &mut Link<Pipe> {
        self.link.as_mut().unwrap()
    }

    /// Receives that the peer may use.
    fn owed(&mut self) -> usize {
        let inbound = &self.link().inbound;
        inbound.receives.len() + inbound.debt - inbound.parked.len()
    }
}

fn start(slot: u64) -> u64 {
    slot * SLOT as u64
}

/// Draws from the same generator as the cuts.
fn draw(random: &mut Random, below: usize) -> usize {
    random.next();
    (random.0 >> 33) as usize % below
}

/// One operation of side 0 that uses only slot `token`, on both sides.
fn operation(random: &mut Random, ends: &[End; 2], token: u64) -> Op {
    let bytes = [0, 1, 39, 40, 41, 4095, 4096, 4097, SLOT][draw(random, 9)] as u64;
    let (local, target) = (ends[0].span(start(token), bytes), at(start(token)));
    let immediate = (draw(random, 3) == 0).then_some(token as u32);
    match draw(random, 7) {
        0 => Op::WriteInline { token, data: [token as u8 + 1; INLINE], bytes: INLINE as u8, target, immediate },
        1 => Op::Read { token, local, target },
        2 => Op::FetchAdd { token, target, add: 0 },
        3 => Op::Send { token, local: Span { bytes: bytes.min(4096), ..local } },
        4 => Op::Flush { token },
        _ => Op::Write { token, local, target, immediate },
    }
}

/// What side 1 has after a write of slot `token` that ended like this, of which `bytes` bytes were to be written.
fn assert_landed(result: Result<Outcome>, slot: &[u8], bytes: usize, token: u64) {
    let (written, rest) = slot.split_at(bytes);
    assert!(rest.iter().all(|byte| *byte == 0), "{token} wrote beyond its end");
    let fits: fn(u8, u64) -> bool = match result.map_err(|error| error.kind()) {
        Ok(_) => |byte, token| byte == token as u8 + 1,
        Err(Kind::Cancelled) => |byte, _| byte == 0,
        Err(Kind::OutcomeUnknown) => |byte, token| byte == 0 || byte == token as u8 + 1,
        Err(kind) => panic!("{token}: {kind:?}"),
    };
    assert!(written.iter().all(|byte| fits(*byte, token)), "{token}: {result:?}");
}

/// Post 14 operations, cancel some at random moments, and put garbage into their memory at once.
fn cancel_at_random(seed: u64, lanes: usize) {
    let mut random = Random(seed ^ 0x5eed);
    let mut ends = pair(lanes, u64::MAX - 7, Random(seed));
    let receives: Vec<_> = (0..14).map(|token| Op::Receive { token, local: ends[1].span(start(15), 5000) }).collect();
    assert_eq!(ends[1].post(&receives), Ok(14));
    (0..14).for_each(|slot| ends[0].slot(slot).fill(slot as u8 + 1));
    let ops: Vec<Op> = (0..14).map(|token| operation(&mut random, &ends, token)).collect();
    let (mut posted, mut done) = (0, std::collections::BTreeMap::new());
    let mut cancelled = [false; 14];
    settle(&mut ends, |ends| {
        if posted < ops.len() {
            posted += ends[0].post(&ops[posted..][..1 + draw(&mut random, ops.len() - posted)]).unwrap();
        }
        let token = draw(&mut random, 40);
        if token < posted && !done.contains_key(&(token as u64)) && !cancelled[token] {
            ends[0].cancel(token as u64);
            ends[0].cancel(token as u64);
            cancelled[token] = true;
            ends[0].slot(token as u64).fill(GARBAGE);
        }
        for (token, result) in ends[0].done() {
            assert_eq!(done.insert(token, result), None, "{token} ended twice");
        }
        ends[1].done();
        done.len() == ops.len()
    });
    assert!(run(&mut ends, 0, &[Op::Flush { token: 20 }])[0].1.is_ok(), "the link goes on");
    for op in &ops {
        match *op {
            Op::Write { token, local, .. } => {
                assert_landed(done[&token], ends[1].slot(token), local.bytes as usize, token);
            }
            Op::WriteInline { token, .. } => assert_landed(done[&token], ends[1].slot(token), INLINE, token),
            Op::Read { token, .. } if done[&token].is_err() => {
                assert!(ends[0].slot(token).iter().all(|byte| *byte == GARBAGE), "{token} was touched after its end");
            }
            _ => {}
        }
    }
    // no credit is lost or made, and nothing is held any more
    settle(&mut ends, |ends| ends[0].link().credits == ends[1].owed());
    let local = ends[0].local;
    ends[0].regions.release(local).unwrap();
}

/// Revoke side 1's region at a random moment of side 0's operations, and use its memory for something else at once.
fn revoke_at_random(seed: u64, lanes: usize) {
    let mut random = Random(seed ^ 0xfe_ce);
    let mut ends = pair(lanes, u64::MAX - 7, Random(seed));
    let sink = ends[1].regions.allocate(5000).unwrap();
    let receive = |token| Op::Receive { token, local: Span { region: sink, offset: 0, bytes: 5000 } };
    assert_eq!(ends[1].post(&(0..14).map(receive).collect::<Vec<_>>()), Ok(14));
    (0..14).for_each(|slot| ends[0].slot(slot).fill(slot as u8 + 1));
    (0..14).for_each(|slot| ends[1].slot(slot).fill(slot as u8 + 101));
    let ops: Vec<Op> = (0..14).map(|token| operation(&mut random, &ends, token)).collect();
    let gone = ends[1].local;
    let (mut posted, mut done, mut after) = (0, 0, None);
    settle(&mut ends, |ends| {
        if posted < ops.len() {
            posted += ends[0].post(&ops[posted..][..1 + draw(&mut random, ops.len() - posted)]).unwrap();
        }
        if after.is_none() && posted > 0 && draw(&mut random, 8) == 0 {
            ends[1].revoke(gone);
            ends[1].bytes().fill(GARBAGE);
            after = Some(posted);
        }
        for (token, result) in ends[0].done() {
            let kind = result.err().map(|error| error.kind());
            assert!(kind.is_none() || kind == Some(Kind::AccessDenied), "{token}: {result:?}");
            let is_late = after.is_some_and(|after| token as usize >= after);
            let uses_key = !matches!(ops[token as usize], Op::Send { .. } | Op::Flush { .. });
            assert!(!(is_late && uses_key) || kind.is_some(), "{token} was posted after the end and was done");
            done += 1;
        }
        ends[1].done();
        done == ops.len() && after.is_some()
    });
    assert!(ends[1].bytes().iter().all(|byte| *byte == GARBAGE), "written after the end");
    for op in &ops {
        if let Op::Read { token, .. } = *op {
            assert!(ends[0].slot(token).iter().all(|byte| *byte != GARBAGE), "{token} read after the end");
        }
    }
    ends[1].regions.release(gone).unwrap();
    assert!(run(&mut ends, 0, &[Op::Flush { token: 20 }])[0].1.is_ok(), "the link goes on");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    #[test]
    fn cancelled_operations_end_once_and_their_memory_is_left_alone(seed in any::<u64>(), lanes in 1_usize..4) {
        cancel_at_random(seed, lanes);
    }

    #[test]
    fn revoked_memory_is_neither_written_nor_read_by_what_was_under_way(seed in any::<u64>(), lanes in 1_usize..4) {
        revoke_at_random(seed, lanes);
    }
}

/// A pair whose side 0 takes `first` bytes of what it sends and then nothing, until `tap` is opened.
fn with_tap(lanes: usize, first: usize) -> ([End; 2], Rc<RefCell<usize>>) {
    #[derive(Debug)]
    struct Tap(Rc<RefCell<usize>>);
    impl Cuts for Tap {
        fn next(&mut self) -> usize {
            *self.0.borrow()
        }
    }
    let tap = Rc::new(RefCell::new(first));
    (pair(lanes, 0, Tap(tap.clone())), tap)
}

/// The middle of a header, its end, the middle of the payload, its last byte: the frame is completed out of a copy.
#[test]
fn write_cancelled_in_the_middle_of_its_frame_ends_unknown_and_the_link_goes_on() {
    for cut in [1, 39, 40, 41, 5000, 40 + 9999] {
        let (mut ends, tap) = with_tap(1, cut);
        let local = ends[0].span(0, 10_000);
        ends[0].bytes()[..10_000].fill(7);
        ends[0]
            .post(&[Op::Write { token: 1, local, target: at(0), immediate: None }, inline(2, 20_000, 5, None)])
            .unwrap();
        *tap.borrow_mut() = 0;
        ends[0].cancel(1);
        ends[0].bytes()[..10_000].fill(GARBAGE);
        let done = ends[0].done();
        assert_eq!(done.len(), 1);
        assert_eq!((done[0].0, done[0].1.unwrap_err().kind()), (1, Kind::OutcomeUnknown), "{cut}");
        let region = ends[0].local;
        ends[0].regions.release(region).unwrap();
        *tap.borrow_mut() = usize::MAX;
        settle(&mut ends, |ends| ends[0].done() == [(2, Ok(Outcome::Done))]);
        assert!(ends[1].bytes()[..10_000].iter().all(|byte| *byte == 7));
        assert_eq!(ends[1].bytes()[20_000], 5);
    }
}

/// Of a write of three fragments one is under way, or has just been sent: it is completed out of a copy, and the rest is not sent.
#[test]
fn long_write_is_cut_off_after_the_fragment_that_has_begun() {
    const FRAGMENT: usize = frame::FRAGMENT as usize;
    for (cuts, whole) in [(&[5000][..], 1), (&[usize::MAX], 1), (&[usize::MAX, 5000], 2)] {
        let (mut ends, tap) = with_tap(1, 0);
        for end in &mut ends {
            end.local = end.regions.allocate(3 * FRAGMENT).unwrap();
        }
        let (target, bytes) = (ends[1].local, 3 * FRAGMENT as u64);
        let key = ends[1].link().advertise(target, bytes, Access::Write, Rank::new(1)).unwrap();
        let remote = ends[0].link().import(&key).unwrap();
        ends[0].remotes.insert(0, remote);
        ends[0].bytes().fill(7);
        let receive = ends[1].span(0, 8);
        *tap.borrow_mut() = usize::MAX;
        ends[1].post(&[Op::Receive { token: 1, local: receive }]).unwrap();
        ends[0].poll().unwrap();
        *tap.borrow_mut() = cuts[0];
        let local = ends[0].span(0, bytes);
        ends[0].post(&[Op::Write { token: 1, local, target: at(0), immediate: Some(1) }]).unwrap();
        for cut in &cuts[1..] {
            *tap.borrow_mut() = *cut;
            ends[0].poll().unwrap();
        }
        *tap.borrow_mut() = 0;
        ends[0].cancel(1);
        assert_eq!(ends[0].done()[0].1.unwrap_err().kind(), Kind::OutcomeUnknown);
        ends[0].bytes().fill(GARBAGE);
        *tap.borrow_mut() = usize::MAX;
        run(&mut ends, 0, &[Op::Flush { token: 2 }]);
        assert_eq!(ends[1].done(), [], "the immediate was not sent");
        assert_eq!(ends[0].link().credits, 1, "its credit is free again");
        let written = ends[1].bytes().iter().take_while(|byte| **byte == 7).count();
        assert_eq!(written, whole * FRAGMENT);
        assert!(ends[1].bytes()[written..].iter().all(|byte| *byte == 0));
    }
}

/// The answer to a read is half sent when its region is revoked: the frame is completed with what was there, then refused.
#[test]
fn answer_under_way_is_completed_out_of_a_copy_and_the_rest_is_refused() {
    const FRAGMENT: usize = frame::FRAGMENT as usize;
    let (mut ends, tap) = with_tap(1, usize::MAX);
    for end in &mut ends {
        end.local = end.regions.allocate(2 * FRAGMENT).unwrap();
    }
    let (source, bytes) = (ends[1].local, 2 * FRAGMENT as u64);
    let key = ends[1].link().advertise(source, bytes, Access::Read, Rank::new(1)).unwrap();
    let remote = ends[0].link().import(&key).unwrap();
    ends[0].remotes.insert(0, remote);
    ends[1].bytes().fill(7);
    let local = ends[0].span(0, bytes);
    let short = ends[0].span(0, 8);
    ends[0]
        .post(&[Op::Read { token: 1, local, target: at(0) }, Op::Read { token: 2, local: short, target: at(0) }])
        .unwrap();
    *tap.borrow_mut() = 5000;
    ends[1].poll().unwrap();
    ends[1].revoke(source);
    ends[1].bytes().fill(GARBAGE);
    ends[1].regions.release(source).unwrap();
    *tap.borrow_mut() = usize::MAX;
    let mut done = Vec::new();
    settle(&mut ends, |ends| {
        done.extend(ends[0].done());
        done.len() == 2
    });
    for (_, result) in done {
        assert_eq!(result.unwrap_err().kind(), Kind::AccessDenied);
    }
    assert!(ends[0].bytes().iter().all(|byte| *byte == 7 || *byte == 0));
    assert!(run(&mut ends, 0, &[Op::Flush { token: 3 }])[0].1.is_ok());
}

/// Rights are checked by the target: these frames are of a peer that does not check its own.
#[test]
fn frames_beyond_their_rights_are_refused_by_the_target() {
    for access in [Access::Read, Access::Write, Access::ReadWrite] {
        let mut ends = pair(1, 0, Always(usize::MAX));
        let local = ends[1].regions.allocate(64).unwrap();
        let key = ends[1].link().advertise(local, 4096, access, Rank::new(1)).unwrap();
        let mut remote = ends[0].link().import(&key).unwrap();
        remote.claim.access = Access::ReadWrite;
        ends[0].remotes.insert(0, remote);
        let sink = ends[0].span(0, 8);
        let add = Op::FetchAdd { token: 3, target: at(0), add: 1 };
        let done = run(&mut ends, 0, &[inline(1, 0, 5, None), Op::Read { token: 2, local: sink, target: at(0) }, add]);
        for (token, result) in done {
            let may = match token {
                1 => access.writes(),
                2 => access.reads(),
                _ => access == Access::ReadWrite,
            };
            let kind = result.err().map(|error| error.kind());
            assert_eq!(kind, (!may).then_some(Kind::AccessDenied), "{access:?} {token}");
        }
    }
}

#[test]
fn message_for_a_cancelled_receive_waits_for_the_next_one() {
    let mut ends = pair(1, 0, Always(usize::MAX));
    let (to, from) = (ends[1].span(0, 8), ends[0].span(0, 8));
    ends[0].bytes()[..8].fill(9);
    ends[1].post(&[Op::Receive { token: 1, local: to }, Op::Receive { token: 2, local: to }]).unwrap();
    ends[1].cancel(2);
    ends[1].cancel(1);
    let kinds: Vec<_> = ends[1].done().into_iter().map(|(token, result)| (token, result.unwrap_err().kind())).collect();
    assert_eq!(kinds, [(2, Kind::Cancelled), (1, Kind::Cancelled)]);
    run(&mut ends, 0, &[Op::Send { token: 1, local: from }, inline(2, 100, 5, Some(3)), Op::Flush { token: 3 }]);
    assert_eq!(ends[1].bytes()[..8], [0; 8]);
    assert_eq!(ends[0].post(&[Op::Send { token: 1, local: from }]), Ok(0), "both credits are used");
    let short = ends[1].span(0, 7);
    ends[1].post(&[Op::Receive { token: 4, local: to }, Op::Receive { token: 5, local: short }]).unwrap();
    assert_eq!(ends[1].bytes()[..8], [9; 8]);
    assert_eq!(
        ends[1].done(),
        [
            (4, Ok(Outcome::Received { bytes: 8, immediate: None })),
            (5, Ok(Outcome::Received { bytes: 8, immediate: Some(3) }))
        ]
    );
    let another = ends[1].post(&[Op::Receive { token: 6, local: to }]);
    assert_eq!(another, Ok(1));
    run(&mut ends, 0, &[Op::Send { token: 1, local: from }]);
}
