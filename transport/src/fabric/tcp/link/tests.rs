//! Two links joined by pipes that cut wherever the test wants.

use core::ptr::NonNull;
use std::{cell::RefCell, collections::VecDeque, io, rc::Rc};

use libc::iovec;
use proptest::prelude::*;

use super::*;
use crate::fabric::{INLINE, Op, RegionId, Target};

mod fence;

/// Bytes under way in one direction.
#[derive(Debug, Default)]
struct Wire {
    bytes: VecDeque<u8>,
    ended: bool,
}

/// One end of a pair of wires that takes and gives at most `most` bytes at once.
#[derive(Debug)]
struct Pipe {
    incoming: Rc<RefCell<Wire>>,
    outgoing: Rc<RefCell<Wire>>,
    most: Rc<RefCell<Box<dyn Cuts>>>,
}

/// Decides how much moves in each call.
trait Cuts: core::fmt::Debug {
    fn next(&mut self) -> usize;
}

#[derive(Debug)]
struct Always(usize);

impl Cuts for Always {
    fn next(&mut self) -> usize {
        self.0
    }
}

/// A small generator: 0 (would block), a few bytes, or a lot.
#[derive(Debug)]
struct Random(u64);

impl Cuts for Random {
    fn next(&mut self) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let draw = (self.0 >> 33) as usize;
        match draw % 4 {
            0 => 0,
            1 => draw / 4 % 50,
            2 => draw / 4 % 5_000,
            _ => draw / 4 % 400_000,
        }
    }
}

impl Stream for Pipe {
    unsafe fn receive(&mut self, into: &[iovec]) -> io::Result<usize> {
        let mut wire = self.incoming.borrow_mut();
        if wire.bytes.is_empty() && wire.ended {
            return Ok(0);
        }
        let most = self.most.borrow_mut().next().min(wire.bytes.len());
        if most == 0 {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        let mut bytes = wire.bytes.drain(..most);
        let mut got = 0;
        for range in into {
            for at in 0..range.iov_len {
                let Some(byte) = bytes.next() else { return Ok(got) };
                // SAFETY: the caller promises that the range is valid for writes.
                unsafe { range.iov_base.cast::<u8>().add(at).write(byte) };
                got += 1;
            }
        }
        let rest: Vec<u8> = bytes.collect();
        rest.into_iter().rev().for_each(|byte| wire.bytes.push_front(byte));
        Ok(got)
    }

    unsafe fn send(&mut self, from: &[iovec]) -> io::Result<usize> {
        let mut wire = self.outgoing.borrow_mut();
        let most = self.most.borrow_mut().next();
        if most == 0 {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        if wire.ended {
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        let mut sent = 0;
        for range in from {
            let count = range.iov_len.min(most - sent);
            if count > 0 {
                // SAFETY: the caller promises that the range is valid for reads.
                wire.bytes.extend(unsafe { core::slice::from_raw_parts(range.iov_base.cast::<u8>(), count) });
            }
            sent += count;
        }
        Ok(sent)
    }

    fn finish(&mut self) {
        self.outgoing.borrow_mut().ended = true;
    }
}

/// One end: a link with its regions, memory and events.
struct End {
    link: Option<Link<Pipe>>,
    regions: Regions,
    events: VecDeque<Event>,
    remotes: Table<Remote>,
    local: RegionId,
}

const SIZE: usize = 3 << 20;

impl End {
    fn post(&mut self, ops: &[Op]) -> Result<usize> {
        let mut context = Context { regions: &mut self.regions, events: &mut self.events };
        self.link.as_mut().unwrap().post(ops, &self.remotes, &mut context)
    }

    fn poll(&mut self) -> Result<()> {
        let mut context = Context { regions: &mut self.regions, events: &mut self.events };
        let Some(link) = self.link.as_mut() else { return Ok(()) };
        link.poll(&mut context).map(drop).inspect_err(|error| {
            self.link.take().unwrap().fail(*error, &mut context);
        })
    }

    fn revoke(&mut self, region: RegionId) {
        self.link.as_mut().unwrap().revoke(region, &mut self.regions).unwrap();
    }

    fn bytes(&mut self) -> &mut [u8] {
        let view = self.regions.view(self.local).unwrap();
        // SAFETY: the region is this end's own, and nobody else touches it during the borrow.
        unsafe { core::slice::from_raw_parts_mut(view.start.as_ptr(), view.bytes) }
    }

    fn span(&self, offset: u64, bytes: u64) -> Span {
        Span { region: self.local, offset, bytes }
    }

    fn done(&mut self) -> Vec<(u64, Result<Outcome>)> {
        let drained = self.events.drain(..).collect::<Vec<_>>();
        let one = |event| if let Event::Done { token, result, .. } = event { Some((token, result)) } else { None };
        drained.into_iter().filter_map(one).collect()
    }
}

fn at(offset: u64) -> Target {
    Target { remote: RemoteId(0), offset }
}

fn end(rank: u32, origin: u64, streams: Vec<Pipe>) -> End {
    let peer = Peer { rank: Rank::new(1 - rank), incarnation: 9, nonce: 77, origin };
    let mut regions = Regions::default();
    let local = regions.allocate(SIZE).unwrap();
    let link = Some(Link::new(LinkId(0), peer, streams));
    End { link, regions, events: VecDeque::new(), remotes: Table::default(), local }
}

fn pair(lanes: usize, origin: u64, cuts: impl Cuts + 'static) -> [End; 2] {
    let most: Rc<RefCell<Box<dyn Cuts>>> = Rc::new(RefCell::new(Box::new(cuts)));
    let wires: Vec<[Rc<RefCell<Wire>>; 2]> = (0..lanes).map(|_| Default::default()).collect();
    let pipes = |side: usize| {
        let pipe = |wire: &[Rc<RefCell<Wire>>; 2]| Pipe {
            incoming: wire[side].clone(),
            outgoing: wire[1 - side].clone(),
            most: most.clone(),
        };
        wires.iter().map(pipe).collect()
    };
    let mut ends = [end(0, origin, pipes(0)), end(1, origin, pipes(1))];
    for side in 0..2 {
        let local = ends[side].local;
        let key = ends[side]
            .link
            .as_mut()
            .unwrap()
            .advertise(local, SIZE as u64, Access::ReadWrite, Rank::new(side as u32))
            .unwrap();
        let remote = ends[1 - side].link.as_ref().unwrap().import(&key).unwrap();
        ends[1 - side].remotes.insert(0, remote);
    }
    ends
}

fn settle(ends: &mut [End; 2], mut until: impl FnMut(&mut [End; 2]) -> bool) {
    for _ in 0..2_000_000 {
        ends.iter_mut().for_each(|end| end.poll().unwrap());
        if until(ends) {
            return;
        }
    }
    panic!("no progress: {:?}", ends.each_ref().map(|end| &end.events));
}

/// Post all of `ops` on one side and wait until all are done.
fn run(ends: &mut [End; 2], side: usize, ops: &[Op]) -> Vec<(u64, Result<Outcome>)> {
    let (mut posted, mut done) = (0, Vec::new());
    settle(ends, |ends| {
        if posted < ops.len() {
            posted += ends[side].post(&ops[posted..]).unwrap();
        }
        done.extend(ends[side].done());
        done.len() == ops.len()
    });
    done
}

fn inline(token: u64, offset: u64, value: u64, immediate: Option<u32>) -> Op {
    let mut data = [0; INLINE];
    data[..8].copy_from_slice(&value.to_le_bytes());
    Op::WriteInline { token, data, bytes: 8, target: at(offset), immediate }
}

#[test]
fn every_operation_works_when_the_stream_is_cut_at_every_byte() {
    for most in [1, 2, 3, 39, 40, 41, 104, 4136, usize::MAX] {
        let mut ends = pair(1, 0, Always(most));
        ends[0].bytes()[..9000].iter_mut().enumerate().for_each(|(at, byte)| *byte = at as u8);
        let (receive, local) = (ends[1].span(20_000, 100), ends[0].span(0, 50));
        let back = ends[0].span(10_000, 9000);
        ends[1].post(&[Op::Receive { token: 1, local: receive }, Op::Receive { token: 2, local: receive }]).unwrap();
        let write = Op::Write { token: 3, local: Span { bytes: 9000, ..local }, target: at(100), immediate: Some(7) };
        let done = run(
            &mut ends,
            0,
            &[
                write,
                Op::Send { token: 4, local },
                Op::Flush { token: 5 },
                Op::Read { token: 6, local: back, target: at(100) },
                inline(7, 40_000, 5, None),
                Op::FetchAdd { token: 8, target: at(40_000), add: 3 },
                Op::CompareSwap { token: 9, target: at(40_000), expected: 8, desired: 1 },
                Op::CompareSwap { token: 10, target: at(40_000), expected: 8, desired: 2 },
            ],
        );
        let atomics: Vec<_> = done.iter().filter(|(token, _)| *token >= 8).map(|(_, result)| *result).collect();
        assert_eq!(atomics, [5, 8, 1].map(|before| Ok(Outcome::Atomic { before })), "{most}");
        assert_eq!(
            ends[1].done(),
            [
                (1, Ok(Outcome::Received { bytes: 9000, immediate: Some(7) })),
                (2, Ok(Outcome::Received { bytes: 50, immediate: None })),
            ]
        );
        let expected = ends[0].bytes()[..9000].to_vec();
        assert_eq!(ends[0].bytes()[10_000..19_000], expected);
        assert_eq!(ends[1].bytes()[100..9100], expected);
        assert_eq!(ends[1].bytes()[20_000..20_050], expected[..50]);
        assert_eq!(ends[1].bytes()[40_000], 1);
    }
}

#[test]
fn counters_pass_their_edges() {
    for origin in [(1 << 31) - 4, (1 << 32) - 4, (1 << 63) - 4, u64::MAX - 4] {
        for lanes in [1, 3] {
            let mut ends = pair(lanes, origin, Always(300_000));
            for round in 0..16_u64 {
                let receive = ends[1].span(0, 8);
                ends[1].post(&[Op::Receive { token: round, local: receive }]).unwrap();
                let local = ends[0].span(1 << 20, 300_000);
                ends[0].bytes()[1 << 20..].fill(round as u8 + 1);
                run(
                    &mut ends,
                    0,
                    &[
                        Op::Write { token: 100, local, target: at(0), immediate: Some(round as u32) },
                        Op::FetchAdd { token: 101, target: at(2 << 20), add: 1 },
                        Op::Flush { token: 102 },
                    ],
                );
                let got = ends[1].done();
                assert_eq!(got, [(round, Ok(Outcome::Received { bytes: 300_000, immediate: Some(round as u32) }))]);
                assert!(ends[1].bytes()[..300_000].iter().all(|byte| *byte == round as u8 + 1));
            }
        }
    }
}

#[test]
fn keys_of_another_link_and_changed_keys_are_refused() {
    let mut ends = pair(1, 0, Always(1000));
    let local = ends[0].local;
    let key = ends[0].link.as_mut().unwrap().advertise(local, SIZE as u64, Access::ReadWrite, Rank::new(0)).unwrap();
    for byte in 0..32 {
        let mut bad = key;
        bad.0[byte] ^= 1;
        assert_eq!(ends[1].link.as_ref().unwrap().import(&bad).unwrap_err().kind(), Kind::Corrupt, "byte {byte}");
    }
    // its own maker is not its user
    assert_eq!(ends[0].link.as_ref().unwrap().import(&key).unwrap_err().kind(), Kind::Corrupt);
}

#[test]
fn access_after_release_is_refused_and_the_link_goes_on() {
    let mut ends = pair(2, 0, Always(100_000));
    let (gone, long, receive) = (ends[1].local, ends[0].span(0, 600_000), ends[0].span(0, 8));
    // a long write is under way when its target is released
    ends[0].post(&[Op::Write { token: 1, local: long, target: at(0), immediate: None }]).unwrap();
    ends[1].poll().unwrap();
    ends[1].revoke(gone);
    ends[1].regions.release(gone).unwrap();
    ends[1].local = ends[1].regions.allocate(8).unwrap();
    let local = ends[1].span(0, 8);
    ends[1].post(&[Op::Receive { token: 1, local }, Op::Receive { token: 2, local }]).unwrap();
    let ops = [
        inline(2, 0, 5, Some(1)),
        Op::Read { token: 3, local: receive, target: at(0) },
        Op::FetchAdd { token: 4, target: at(0), add: 1 },
        Op::Flush { token: 5 },
        Op::Send { token: 6, local: receive },
    ];
    let (mut posted, mut done) = (0, Vec::new());
    settle(&mut ends, |ends| {
        posted += ends[0].post(&ops[posted..]).unwrap();
        done.extend(ends[0].done());
        done.len() == 6
    });
    for (token, result) in done {
        assert_eq!(result.err().map(|error| error.kind()), (token < 5).then_some(Kind::AccessDenied), "{token}");
    }
    let received: Vec<_> = ends[1].done().iter().map(|(token, result)| (*token, result.is_ok())).collect();
    assert_eq!(received, [(1, false), (2, true)]);
}

#[test]
fn end_of_the_stream_ends_everything_once() {
    let mut ends = pair(2, 0, Always(usize::MAX));
    let local = ends[0].span(0, 300_000);
    let receive = Op::Receive { token: 3, local };
    ends[0]
        .post(&[inline(1, 0, 5, None), Op::Write { token: 2, local, target: at(0), immediate: None }, receive])
        .unwrap();
    ends[0].post(&[Op::Read { token: 4, local, target: at(0) }, Op::Flush { token: 5 }]).unwrap();
    ends[1].link.as_mut().unwrap().lanes.iter_mut().for_each(|lane| lane.stream.finish());
    assert_eq!(ends[0].poll().unwrap_err().kind(), Kind::PeerDied);
    let mut tokens: Vec<_> = ends[0].done().iter().map(|(token, _)| *token).collect();
    tokens.sort_unstable();
    assert_eq!(tokens, [1, 2, 3, 4, 5]);
    // nothing of ours holds the memory any more
    let local = ends[0].local;
    ends[0].regions.release(local).unwrap();
}

#[test]
fn sends_wait_for_receives_and_a_full_queue_refuses() {
    let mut ends = pair(1, 0, Always(usize::MAX));
    let local = ends[0].span(0, 8);
    assert_eq!(ends[0].post(&[Op::Send { token: 1, local }]), Ok(0));
    let receives: Vec<_> =
        (0..RECEIVES as u64 + 1).map(|token| Op::Receive { token, local: ends[1].span(0, 8) }).collect();
    assert_eq!(ends[1].post(&receives), Ok(RECEIVES));
    ends[0].poll().unwrap();
    let sends = vec![Op::Send { token: 1, local }; RECEIVES + 1];
    let mut posted = 0;
    settle(&mut ends, |ends| {
        posted += ends[0].post(&sends[posted..RECEIVES]).unwrap();
        posted == RECEIVES
    });
    assert_eq!(ends[0].post(&sends[..1]), Ok(0), "no credit is left");
}

#[test]
fn messages_longer_than_their_receive_are_reported_and_the_link_goes_on() {
    let mut ends = pair(1, 0, Always(usize::MAX));
    let (short, local) = (ends[1].span(0, 7), ends[0].span(0, 8));
    ends[1].post(&[Op::Receive { token: 1, local: short }, Op::Receive { token: 2, local }]).unwrap();
    run(&mut ends, 0, &[Op::Send { token: 1, local }, Op::Send { token: 2, local }, Op::Flush { token: 3 }]);
    let done = ends[1].done();
    assert_eq!(done[0].1.unwrap_err().kind(), Kind::AccessDenied);
    assert_eq!(done[1].1, Ok(Outcome::Received { bytes: 8, immediate: None }));
}

#[test]
fn malformed_operations_refuse_the_batch() {
    let mut ends = pair(1, 0, Always(usize::MAX));
    let local = ends[0].span(0, 8);
    let good = inline(1, 0, 5, None);
    for bad in [
        Op::Write { token: 2, local, target: at(SIZE as u64 - 7), immediate: None },
        Op::Write { token: 2, local, target: at(u64::MAX), immediate: None },
        Op::Write { token: 2, local: Span { bytes: u64::MAX, ..local }, target: at(0), immediate: None },
        Op::Write { token: 2, local: Span { offset: SIZE as u64, ..local }, target: at(0), immediate: None },
        Op::Write { token: 2, local: Span { region: RegionId(9), ..local }, target: at(0), immediate: None },
        Op::Write { token: 2, local, target: Target { remote: RemoteId(9), offset: 0 }, immediate: None },
        Op::WriteInline { token: 2, data: [0; INLINE], bytes: 65, target: at(0), immediate: None },
        Op::FetchAdd { token: 2, target: at(4), add: 1 },
        Op::CompareSwap { token: 2, target: at(SIZE as u64), expected: 0, desired: 0 },
        Op::Send { token: 2, local: Span { bytes: 4097, ..local } },
    ] {
        assert!(ends[0].post(&[good, bad]).is_err(), "{bad:?}");
    }
    assert!(ends[0].link.as_ref().unwrap().unacked.is_empty(), "nothing was accepted");
}

#[test]
fn acknowledgements_wait_for_company() {
    let mut ends = pair(1, 0, Always(usize::MAX));
    ends[0].post(&[inline(1, 0, 5, None)]).unwrap();
    ends[1].poll().unwrap();
    assert_eq!(ends[1].bytes()[0], 5);
    let sent = |ends: &[End; 2]| ends[1].link.as_ref().unwrap().lanes[0].stream.outgoing.borrow().bytes.len();
    assert_eq!(sent(&ends), 0, "the poll that brought the write sends nothing");
    ends[1].post(&[inline(2, 0, 6, None)]).unwrap();
    assert_eq!(sent(&ends), 40 + 48, "the reply takes the acknowledgement along");
    ends[0].poll().unwrap();
    assert_eq!(ends[0].done(), [(1, Ok(Outcome::Done))]);
    ends[0].poll().unwrap();
    ends[1].poll().unwrap();
    assert_eq!(ends[1].done(), [(2, Ok(Outcome::Done))], "an idle poll sends it alone");
}

#[test]
fn region_of_foreign_memory_is_bounded() {
    let mut regions = Regions::default();
    let start = NonNull::<u8>::dangling();
    // SAFETY: nothing is read or written through the region.
    assert!(unsafe { regions.register(start, usize::MAX) }.is_err());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// A tail counter after its payload, both ways at once, over streams that cut at random: whoever sees the counter sees the
    /// payload, at every poll.
    #[test]
    fn no_counter_overtakes_its_payload(seed in any::<u64>(), lanes in 1_usize..5, sizes in prop::collection::vec(0_u64..700_000, 1..12)) {
        let mut ends = pair(lanes, u64::MAX - 3, Random(seed));
        const TAIL: usize = 2 << 20;
        const SOURCE: u64 = 1 << 20;
        let mut next = [0_usize; 2];
        let mut open = [0_usize; 2];
        let mut seen = [0_usize; 2];
        settle(&mut ends, |ends| {
            for side in 0..2 {
                open[side] -= ends[side].done().len();
                let tail = u64::from_le_bytes(ends[side].bytes()[TAIL..TAIL + 8].try_into().unwrap()) as usize;
                if tail > seen[side] {
                    seen[side] = tail;
                    let size = sizes[tail - 1] as usize;
                    assert!(ends[side].bytes()[..size].iter().all(|byte| *byte == tail as u8), "{tail}");
                }
                if next[side] < sizes.len() && open[side] == 0 {
                    let (size, tail) = (sizes[next[side]], next[side] as u64 + 1);
                    let local = ends[side].span(SOURCE, size);
                    ends[side].bytes()[SOURCE as usize..][..size as usize].fill(tail as u8);
                    let write = Op::Write { token: 1, local, target: at(0), immediate: None };
                    if ends[side].post(&[write, inline(2, TAIL as u64, tail, None)]).unwrap() == 2 {
                        open[side] = 2;
                        next[side] += 1;
                    }
                }
            }
            next == [sizes.len(); 2] && open == [0; 2]
        });
    }
}
