use core::time::Duration;

use super::{FakeFabric, Network, Options};
use crate::{
    Kind, Rank, Result, Time,
    auth::Secret,
    fabric::{Access, Event, Fabric, Identity, LinkId, Op, Outcome, RegionId, RemoteId, Span, Target},
    testing::random::Chance,
};

/// Two ranks, a link that rank 0 dialled, and a page of each.
struct Pair {
    network: Network,
    fabrics: [FakeFabric; 2],
    links: [LinkId; 2],
    regions: [RegionId; 2],
    /// Rank 1's page, as rank 0 knows it.
    remote: RemoteId,
}

fn identity(rank: u32) -> Identity {
    Identity { rank: Rank::new(rank), incarnation: 7, secret: Secret::from_bytes([1; 32]) }
}

fn events(fabric: &mut FakeFabric) -> Vec<Event> {
    let now = fabric.network().now();
    let mut events = Vec::with_capacity(64);
    fabric.poll(now, &mut events);
    events
}

impl Pair {
    fn new(options: Options) -> Self {
        let network = Network::with(options);
        let mut fabrics = [0, 1].map(|rank| network.fabric(identity(rank)).unwrap());
        let address = fabrics[1].address();
        let near = fabrics[0].dial(Rank::new(1), &address, Time::NEVER).unwrap();
        network.settle();
        let [_, far] = fabrics.each_mut().map(|fabric| match events(fabric)[..] {
            [Event::Up { link, .. }] => link,
            ref other => panic!("{other:?}"),
        });
        let regions = fabrics.each_mut().map(|fabric| fabric.allocate(4096).unwrap());
        let key = fabrics[1].advertise(far, regions[1], Access::ReadWrite).unwrap();
        let remote = fabrics[0].import(near, &key).unwrap();
        Self { network, fabrics, links: [near, far], regions, remote }
    }

    fn post(&mut self, rank: usize, ops: &[Op]) -> usize {
        self.fabrics[rank].post(self.links[rank], ops).unwrap()
    }

    fn cancel(&mut self, rank: usize, token: u64) {
        self.fabrics[rank].cancel(self.links[rank], token).unwrap();
    }

    /// What operations came to at one rank, by token.
    fn ends(&mut self, rank: usize) -> Vec<(u64, Result<Outcome, Kind>)> {
        let end = |event| match event {
            Event::Done { token, result, .. } => Some((token, result.map_err(|error| error.kind()))),
            _ => None,
        };
        events(&mut self.fabrics[rank]).into_iter().filter_map(end).collect()
    }

    fn span(&self, rank: usize, offset: u64, bytes: u64) -> Span {
        Span { region: self.regions[rank], offset, bytes }
    }

    fn write(&self, token: u64, immediate: Option<u32>) -> Op {
        let target = Target { remote: self.remote, offset: 0 };
        Op::Write { token, local: self.span(0, 0, 8), target, immediate }
    }

    fn receive(&self, token: u64) -> Op {
        Op::Receive { token, local: self.span(1, 64, 8) }
    }

    fn word(&self, rank: usize) -> u64 {
        let view = self.fabrics[rank].memory(self.regions[rank]).unwrap();
        // SAFETY: the first word of a region that lives as long as its fabric, on this thread alone.
        unsafe { view.start.cast().read() }
    }

    fn set_word(&self, rank: usize, value: u64) {
        let view = self.fabrics[rank].memory(self.regions[rank]).unwrap();
        // SAFETY: as above.
        unsafe { view.start.cast().write(value) }
    }
}

fn good() -> Pair {
    Pair::new(Options::default())
}

#[test]
fn nothing_moves_unless_somebody_polls_or_steps() {
    let mut pair = good();
    pair.set_word(0, 5);
    assert_eq!(pair.post(0, &[pair.write(1, None)]), 1);
    assert!(!pair.fabrics[0].is_drained());
    assert_eq!((pair.ends(1), pair.word(1)), (vec![], 0), "the sender has not polled");
    assert_eq!((pair.ends(0), pair.word(1)), (vec![], 0), "the target has not polled");
    assert!(pair.fabrics[0].is_drained());
    assert_eq!((pair.ends(1), pair.word(1)), (vec![], 5));
    assert_eq!(pair.ends(0), [(1, Ok(Outcome::Done))]);
}

#[test]
fn local_memory_is_read_when_its_operation_leaves() {
    let mut pair = good();
    pair.set_word(0, 5);
    pair.post(0, &[pair.write(1, None)]);
    pair.set_word(0, 6);
    pair.network.settle();
    assert_eq!(pair.word(1), 6);
}

#[test]
fn frames_take_their_time() {
    let delay = Duration::from_millis(3);
    let mut pair = Pair::new(Options { latency: delay..=delay, ..Options::default() });
    pair.post(0, &[pair.write(1, None)]);
    let start = pair.network.now();
    assert_eq!(pair.ends(0), []);
    pair.network.advance(delay - Duration::from_nanos(1));
    assert_eq!(pair.ends(1), []);
    assert_eq!(pair.ends(0), []);
    pair.network.settle();
    assert_eq!(pair.network.now().since(start), 2 * delay);
    assert_eq!(pair.ends(0), [(1, Ok(Outcome::Done))]);
}

#[test]
fn sleep_skips_to_what_comes_next_and_at_most_to_its_deadline() {
    let delay = Duration::from_secs(3);
    let mut pair = Pair::new(Options { latency: delay..=delay, ..Options::default() });
    pair.post(0, &[Op::Flush { token: 1 }]);
    pair.ends(0);
    let start = pair.network.now();
    let deadline = start.after(delay * 9);
    for elapsed in [1, 2, 9] {
        let fabric = &mut pair.fabrics[0];
        fabric.arm();
        fabric.sleep(deadline);
        assert_eq!(pair.network.now().since(start), delay * elapsed);
        pair.ends(1);
        pair.ends(0);
    }
}

/// A rough run: what each rank saw, and when.
fn trace(seed: u64) -> Vec<(Time, Event)> {
    let mut pair = Pair::new(Options::rough(seed));
    let mut seen = Vec::new();
    let mut posted = 0;
    pair.post(1, &[1, 2, 3].map(|token| pair.receive(token)));
    while seen.len() < 43 {
        let immediate = (posted % 10 == 0 && posted < 30).then_some(posted as u32);
        posted += pair.fabrics[0].post(pair.links[0], &[pair.write(posted, immediate)]).unwrap() as u64;
        pair.network.step();
        for fabric in &mut pair.fabrics {
            let now = fabric.network().now();
            seen.extend(events(fabric).into_iter().map(|event| (now, event)));
        }
    }
    seen
}

#[test]
fn same_seed_gives_the_same_run() {
    assert_eq!(trace(11), trace(11));
    assert_ne!(trace(11), trace(12));
}

#[test]
fn revoked_region_is_not_written_by_what_was_under_way() {
    let mut pair = good();
    pair.set_word(0, 5);
    pair.network.hold(Rank::new(0), Rank::new(1));
    pair.post(0, &[pair.write(1, None)]);
    pair.network.settle();
    let region = pair.regions[1];
    pair.fabrics[1].revoke(region, Time::NEVER).unwrap();
    assert_eq!(pair.fabrics[1].revoke(region, Time::NEVER).unwrap_err().kind(), Kind::InvalidUsage);
    assert_eq!(events(&mut pair.fabrics[1]), [Event::Revoked { region, result: Ok(()) }]);
    pair.network.resume(Rank::new(0), Rank::new(1));
    pair.network.settle();
    assert_eq!((pair.ends(0), pair.word(1)), (vec![(1, Err(Kind::AccessDenied))], 0));
    // the region is there, and can be granted anew
    let key = pair.fabrics[1].advertise(pair.links[1], region, Access::Write).unwrap();
    pair.remote = pair.fabrics[0].import(pair.links[0], &key).unwrap();
    pair.post(0, &[pair.write(2, None)]);
    pair.network.settle();
    assert_eq!((pair.ends(0), pair.word(1)), (vec![(2, Ok(Outcome::Done))], 5));
}

#[test]
fn denied_immediate_leaves_its_receive_to_the_next() {
    let mut pair = good();
    pair.post(1, &[pair.receive(1)]);
    pair.network.settle();
    pair.fabrics[1].revoke(pair.regions[1], Time::NEVER).unwrap();
    assert_eq!(pair.post(0, &[pair.write(2, Some(9)), Op::Send { token: 3, local: pair.span(0, 0, 8) }]), 1);
    pair.network.settle();
    assert_eq!(pair.ends(0), [(2, Err(Kind::AccessDenied))]);
    assert_eq!(pair.post(0, &[Op::Send { token: 3, local: pair.span(0, 0, 8) }]), 1);
    pair.network.settle();
    assert_eq!(pair.ends(1), [(1, Ok(Outcome::Received { bytes: 8, immediate: None }))]);
}

#[test]
fn rights_are_kept() {
    let mut pair = good();
    for (access, reads, writes) in [(Access::Read, 1, 0), (Access::Write, 0, 1), (Access::ReadWrite, 1, 1)] {
        let key = pair.fabrics[1].advertise(pair.links[1], pair.regions[1], access).unwrap();
        pair.remote = pair.fabrics[0].import(pair.links[0], &key).unwrap();
        let target = Target { remote: pair.remote, offset: 0 };
        let read = Op::Read { token: 1, local: pair.span(0, 0, 8), target };
        let add = Op::FetchAdd { token: 1, target, add: 1 };
        for (op, allowed) in [(read, reads), (pair.write(1, None), writes), (add, reads * writes)] {
            let posted = pair.fabrics[0].post(pair.links[0], &[op]).map_err(|error| error.kind());
            assert_eq!(posted, if allowed == 1 { Ok(1) } else { Err(Kind::AccessDenied) }, "{access:?} {op:?}");
        }
    }
}

#[test]
fn cancelled_before_it_left_never_lands() {
    let mut pair = good();
    pair.set_word(0, 5);
    pair.post(1, &[pair.receive(1)]);
    pair.network.settle();
    pair.post(0, &[pair.write(2, Some(1)), pair.write(2, None)]);
    pair.cancel(0, 2);
    assert_eq!(pair.ends(0), [(2, Err(Kind::Cancelled))]);
    pair.network.settle();
    assert_eq!(pair.ends(0), [(2, Ok(Outcome::Done))]);
    // its receive is there for another
    assert_eq!(pair.post(0, &[pair.write(3, Some(4))]), 1);
    pair.network.settle();
    assert_eq!(pair.ends(1), [(1, Ok(Outcome::Received { bytes: 8, immediate: Some(4) }))]);
}

#[test]
fn cancelled_on_its_way_may_land_and_is_reported_once() {
    let mut pair = good();
    let target = Target { remote: pair.remote, offset: 0 };
    pair.set_word(0, 5);
    pair.set_word(1, 6);
    pair.post(0, &[Op::Read { token: 1, local: pair.span(0, 0, 8), target }]);
    pair.ends(0);
    pair.cancel(0, 1);
    pair.cancel(0, 1);
    assert_eq!(pair.ends(0), [(1, Err(Kind::OutcomeUnknown))]);
    assert_eq!(pair.fabrics[0].release(pair.regions[0]), Ok(()), "its memory is free");
    pair.network.settle();
    assert_eq!(pair.ends(0), []);
}

#[test]
fn message_for_a_cancelled_receive_waits_for_the_next() {
    let mut pair = good();
    pair.post(1, &[pair.receive(1), pair.receive(2)]);
    pair.network.settle();
    pair.cancel(1, 1);
    pair.cancel(1, 2);
    assert_eq!(pair.ends(1), [(1, Err(Kind::Cancelled)), (2, Err(Kind::Cancelled))]);
    let send = |token| Op::Send { token, local: pair.span(0, 0, token) };
    let sends = [send(3), send(4), send(5)];
    assert_eq!(pair.post(0, &sends), 2);
    pair.network.settle();
    assert_eq!(pair.ends(1), []);
    pair.post(1, &[6, 7, 8].map(|token| pair.receive(token)));
    let received = |bytes| Ok(Outcome::Received { bytes, immediate: None });
    assert_eq!(pair.ends(1), [(6, received(3)), (7, received(4))]);
    assert_eq!(pair.post(0, &sends[2..]), 0, "the third receive is not known yet");
    pair.network.settle();
    assert_eq!(pair.post(0, &sends[2..]), 1);
    pair.network.settle();
    assert_eq!(pair.ends(1), [(8, received(5))]);
}

#[test]
fn reads_overtake_writes_but_no_flush() {
    let mut pair = Pair::new(Options { overtaking: Chance::ALWAYS, ..Options::default() });
    let target = Target { remote: pair.remote, offset: 0 };
    let read = |token, offset| Op::Read { token, local: Span { region: pair.regions[0], offset, bytes: 8 }, target };
    pair.set_word(0, 5);
    let ops = [pair.write(1, None), read(2, 64), Op::Flush { token: 3 }, read(4, 0)];
    pair.post(0, &ops);
    pair.network.settle();
    let tokens: Vec<u64> = pair.ends(0).iter().map(|(token, _)| *token).collect();
    assert_eq!(tokens, [2, 1, 3, 4]);
    assert_eq!(pair.word(0), 5);
}

fn down(events: &[Event]) -> Option<Kind> {
    events.iter().find_map(|event| match event {
        Event::Down { error, .. } => Some(error.kind()),
        _ => None,
    })
}

#[test]
fn cut_link_loses_what_is_under_way_and_both_ends_know() {
    let mut pair = good();
    pair.set_word(0, 5);
    pair.post(0, &[pair.write(1, None)]);
    assert_eq!(events(&mut pair.fabrics[0]), []);
    pair.network.cut(Rank::new(1), Rank::new(0));
    let seen = events(&mut pair.fabrics[0]);
    assert_eq!((seen.len(), down(&seen)), (2, Some(Kind::LinkFailed)), "{seen:?}");
    assert_eq!(down(&events(&mut pair.fabrics[1])), Some(Kind::LinkFailed));
    assert!(!pair.network.step());
    assert_eq!(pair.word(1), 0);
}

#[test]
fn crashed_peer_died_after_what_it_had_sent() {
    let mut pair = good();
    pair.set_word(0, 5);
    pair.post(0, &[pair.write(1, None)]);
    events(&mut pair.fabrics[0]);
    pair.network.crash(Rank::new(0));
    assert_eq!(down(&events(&mut pair.fabrics[1])), Some(Kind::PeerDied));
    assert_eq!(pair.word(1), 5);
    assert_eq!(down(&events(&mut pair.fabrics[0])), Some(Kind::Aborted));
    let address = pair.fabrics[1].address();
    assert!(pair.fabrics[0].dial(Rank::new(1), &address, Time::NEVER).is_err());
    // and nobody reaches it any more
    let address = pair.fabrics[0].address();
    pair.fabrics[1].dial(Rank::new(0), &address, Time::NEVER).unwrap();
    assert_eq!(down(&events(&mut pair.fabrics[1])), Some(Kind::LinkFailed));
}

#[test]
fn addresses_of_others_are_refused() {
    let (mut pair, other) = (good(), good());
    let mut dial = |rank, address: &[u8]| pair.fabrics[0].dial(Rank::new(rank), address, Time::NEVER);
    assert_eq!(dial(1, &other.fabrics[1].address()).unwrap_err().kind(), Kind::Unsupported);
    let address = pair.fabrics[1].address();
    let mut dial = |rank, address: &[u8]| pair.fabrics[0].dial(Rank::new(rank), address, Time::NEVER);
    for wrong in [&address[..31], &[], &[0; 32], &[0xff; 32]] {
        assert_eq!(dial(1, wrong).unwrap_err().kind(), Kind::InvalidArgument);
    }
    assert_eq!(dial(2, &address).unwrap_err().kind(), Kind::InvalidArgument);
}
