//! What it costs to know many regions: registering, looking up, advertising, importing and releasing one, when 100,000 others are
//! known. Each must stay under a microsecond beyond the kernel's own cost; none of these asks the kernel for anything, except
//! for the clock of criterion.

use core::{hint::black_box, ptr::NonNull, time::Duration};
use std::time::Instant;

use criterion::{BenchmarkId, Criterion, criterion_group, criterion_main};
use vervain_transport::{
    Rank, Time,
    auth::Secret,
    fabric::{
        Access, Event, Fabric, Identity, LinkId, RegionId,
        shm::{self, Shm},
        tcp::{self, Tcp},
    },
};

const REGIONS: usize = 100_000;
/// Bytes of one region.
const BYTES: usize = 64;

struct Pair {
    fabrics: [Box<dyn Fabric>; 2],
    links: [LinkId; 2],
    memory: Vec<u8>,
    regions: Vec<RegionId>,
}

impl Pair {
    /// Two linked fabrics, of which the first knows all regions and has advertised them.
    fn new(make: impl Fn(Identity) -> Box<dyn Fabric>) -> Self {
        let identity = |rank| Identity { rank: Rank::new(rank), incarnation: 1, secret: Secret::from_bytes([5; 32]) };
        let mut fabrics = [0, 1].map(|rank| make(identity(rank)));
        let address = fabrics[1].address();
        fabrics[0].dial(Rank::new(1), &address, Time::NEVER).expect("dial");
        let mut links = [None; 2];
        while links.contains(&None) {
            for (fabric, link) in fabrics.iter_mut().zip(&mut links) {
                let mut events = Vec::with_capacity(8);
                fabric.poll(Time::now(), &mut events);
                let up = |event: &Event| if let Event::Up { link, .. } = event { Some(*link) } else { None };
                *link = link.or(events.iter().find_map(up));
            }
        }
        let links = links.map(|link| link.expect("both are up"));
        let memory = vec![0; (REGIONS + 1) * BYTES];
        let mut pair = Self { fabrics, links, memory, regions: Vec::new() };
        for index in 0..REGIONS {
            let region = pair.register(index);
            pair.fabrics[0].advertise(pair.links[0], region, Access::Read).expect("advertise");
            pair.regions.push(region);
        }
        pair
    }

    fn register(&mut self, index: usize) -> RegionId {
        let start = NonNull::from(&mut self.memory[index * BYTES..][..BYTES]).cast();
        // SAFETY: the vector is not touched while the fabrics are there, and nothing is posted on it.
        unsafe { self.fabrics[0].register(start, BYTES) }.expect("register")
    }

    /// Time `step` of one more region, again and again.
    fn time(&mut self, rounds: u64, step: impl Fn(&mut Self) -> Duration) -> Duration {
        (0..rounds).map(|_| step(self)).sum()
    }
}

/// A step and how long it takes.
type Step = (&'static str, fn(&mut Pair) -> Duration);

const STEPS: [Step; 5] = [
    ("register", |pair| {
        let began = Instant::now();
        let region = pair.register(REGIONS);
        let took = began.elapsed();
        pair.fabrics[0].release(region).expect("release");
        took
    }),
    ("look up", |pair| {
        let region = pair.regions[pair.regions.len() / 3];
        let began = Instant::now();
        black_box(pair.fabrics[0].memory(black_box(region)));
        began.elapsed()
    }),
    ("advertise", |pair| {
        let region = pair.register(REGIONS);
        let began = Instant::now();
        black_box(pair.fabrics[0].advertise(pair.links[0], region, Access::Read).expect("advertise"));
        let took = began.elapsed();
        settle(pair, region);
        took
    }),
    ("import", |pair| {
        let region = pair.regions[pair.regions.len() / 3];
        let key = pair.fabrics[0].advertise(pair.links[0], region, Access::Read).expect("advertise");
        let began = Instant::now();
        let remote = pair.fabrics[1].import(pair.links[1], &key).expect("import");
        let took = began.elapsed();
        pair.fabrics[1].forget(remote).expect("forget");
        took
    }),
    ("release", |pair| {
        let region = pair.register(REGIONS);
        let began = Instant::now();
        pair.fabrics[0].release(region).expect("release");
        began.elapsed()
    }),
];

/// Release a region that was advertised, and let both ends take note.
fn settle(pair: &mut Pair, region: RegionId) {
    pair.fabrics[0].release(region).expect("release");
    for at in [1, 0] {
        pair.fabrics[at].poll(Time::now(), &mut Vec::with_capacity(8));
    }
}

fn bench(criterion: &mut Criterion) {
    let shm = |identity| Box::new(Shm::new(identity, shm::Options::default()).expect("shm")) as Box<dyn Fabric>;
    let tcp = |identity| {
        let address = Some(std::net::Ipv4Addr::LOCALHOST.into());
        Box::new(Tcp::new(identity, tcp::Options { address, ..tcp::Options::default() }).expect("tcp"))
            as Box<dyn Fabric>
    };
    for (name, mut pair) in [("shm", Pair::new(shm)), ("tcp", Pair::new(tcp))] {
        let mut group = criterion.benchmark_group(format!("{REGIONS} regions"));
        group.sample_size(10).warm_up_time(Duration::from_millis(200)).measurement_time(Duration::from_secs(1));
        for (step, run) in STEPS {
            group.bench_function(BenchmarkId::new(step, name), |b| b.iter_custom(|rounds| pair.time(rounds, run)));
        }
        group.finish();
    }
}

criterion_group!(benches, bench);
criterion_main!(benches);
