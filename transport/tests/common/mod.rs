//! Fabrics of one process, stepped together.

use core::{ops::DerefMut, time::Duration};

use vervain_transport::{
    Rank, Time,
    fabric::{Event, Fabric, LinkId},
};

/// How long a test waits for what must come.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// Poll all until `pick` finds what it wants among the events of one of them, by its place.
pub fn wait<F: Fabric + ?Sized, T>(
    fabrics: &mut [impl DerefMut<Target = F>],
    mut pick: impl FnMut(usize, &Event) -> Option<T>,
) -> T {
    let end = Time::now().after(PATIENCE);
    let mut events = Vec::with_capacity(64);
    while Time::now() < end {
        for (at, fabric) in fabrics.iter_mut().enumerate() {
            events.clear();
            fabric.poll(Time::now(), &mut events);
            if let Some(value) = events.iter().find_map(|event| pick(at, event)) {
                return value;
            }
        }
        vervain_transport::sync::thread::yield_now();
    }
    panic!("waited in vain");
}

/// Both ends of a link that `one` dials to `other`, which is rank 1.
pub fn connect<F: Fabric + ?Sized>(one: &mut F, other: &mut F) -> (LinkId, LinkId) {
    one.dial(Rank::new(1), &other.address(), Time::now().after(PATIENCE)).unwrap();
    let mut ends = [None; 2];
    wait(&mut [one, other], |at, event| {
        if let Event::Up { link, .. } = event {
            ends[at] = Some(*link);
        }
        Some((ends[0]?, ends[1]?))
    })
}
