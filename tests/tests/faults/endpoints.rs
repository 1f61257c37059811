//! Endpoints of real processes: a peer that is killed and comes back, a fork, and descriptors that run out.

use core::time::Duration;
use std::fs;
use std::path::{Path, PathBuf};

use vervain_transport::auth::Secret;
use vervain_transport::endpoint::{Access, End, Endpoint, Exposed, Limits, Notify, Pages, PeerEvent, PeerId, Posted};
use vervain_transport::fabric::{Backend, tcp};
use vervain_transport::{Error, Kind, Result, Time};

use crate::support::{
    Directory, FABRIC, FABRICS, PATIENCE, PLACE, await_file, fabric_asked_for, finish, job, open_files, place, signal,
    started, text,
};

const LARGE: usize = 16 << 20;

fn soon() -> Time {
    Time::now().after(PATIENCE)
}

fn endpoint(fabric: Backend) -> Result<Endpoint> {
    let tcp = tcp::Options { address: Some(std::net::Ipv4Addr::LOCALHOST.into()), ..Default::default() };
    let limits = Limits { transfers: 64, ..Limits::default() };
    Endpoint::builder().secret(Secret::from_bytes([8; 32])).only(fabric).tcp(tcp).limits(limits).build()
}

/// The fabric and the place of a process that a test started.
fn body() -> Option<(Backend, PathBuf)> {
    started()?;
    Some((fabric_asked_for(), place()))
}

/// A file that is there as a whole or not at all.
fn leave(path: &Path, bytes: &[u8]) {
    fs::write(path.with_extension("new"), bytes).unwrap();
    fs::rename(path.with_extension("new"), path).unwrap();
}

fn take(path: &Path) -> Vec<u8> {
    await_file(path);
    fs::read(path).unwrap()
}

/// Start a transfer and give its end, or why it did not start.
fn run(endpoint: &mut Endpoint, post: impl FnMut(&mut Endpoint) -> Result<Posted>) -> Result<End> {
    let transfer = endpoint.wait_start(soon(), post)?;
    Ok(endpoint.wait(transfer)?.end)
}

fn accept(endpoint: &mut Endpoint) -> PeerId {
    let up = |endpoint: &mut Endpoint| match endpoint.next_peer_event()? {
        PeerEvent::Up(peer) => Some(peer),
        PeerEvent::Down(_, error) => panic!("{error}"),
    };
    endpoint.wait_until(soon(), up).unwrap()
}

/// Several endpoints of one process, polled in turn.
fn together<T>(what: &str, ends: &mut [&mut Endpoint], mut ready: impl FnMut(&mut [&mut Endpoint]) -> Option<T>) -> T {
    let end = soon();
    loop {
        if let Some(value) = ready(ends) {
            return value;
        }
        assert!(Time::now() < end, "waited in vain for {what}");
        ends.iter_mut().for_each(|endpoint| endpoint.poll(Time::now()));
    }
}

#[test]
fn peer_killed_in_a_transfer_is_an_error_and_comes_back_as_another() {
    for fabric in FABRICS {
        let place = Directory::new(&format!("endpoint-killed-{fabric}"));
        let running = job(3, "endpoints::body_that_loses_its_target")
            .env(FABRIC, fabric.to_string())
            .env(PLACE, &place.0)
            .start()
            .unwrap();
        await_file(&place.0.join("busy"));
        signal(running.processes()[1], "KILL");
        for exit in finish(running).iter().filter(|exit| exit.rank.get() != 1) {
            assert!(exit.status.success() && !exit.killed, "{fabric}, process {}: {}", exit.rank, text(exit));
        }
    }
}

/// Process 0 writes to 1, which is killed, and then to 2, which starts when 1 has died.
#[test]
fn body_that_loses_its_target() {
    let Some((fabric, place)) = body() else { return };
    match started().unwrap().get() {
        0 => survivor(fabric, &place),
        1 => target(fabric, &place.join("first")),
        _ => {
            await_file(&place.join("died"));
            target(fabric, &place.join("second"));
        }
    }
}

fn target(fabric: Backend, address: &Path) {
    let mut endpoint = endpoint(fabric).unwrap();
    leave(address, &endpoint.address().unwrap());
    let peer = accept(&mut endpoint);
    let region = endpoint.register(Pages::new(LARGE)).unwrap();
    let (_exposed, advert) = endpoint.advertise(region, peer, Access::Write).unwrap();
    assert!(run(&mut endpoint, |endpoint| endpoint.send(peer, 0, &advert, soon())).unwrap().is_done());
    let down = |endpoint: &mut Endpoint| matches!(endpoint.next_peer_event()?, PeerEvent::Down(..)).then_some(());
    endpoint.wait_until(soon(), down).unwrap();
}

fn survivor(fabric: Backend, place: &Path) {
    let mut endpoint = endpoint(fabric).unwrap();
    let source = endpoint.register(Pages::new(LARGE)).unwrap();
    let all = source.all();
    let old_address = take(&place.join("first"));
    let first = endpoint.connect(&old_address, soon()).unwrap();
    let old_advert = message(&mut endpoint);
    let remote = endpoint.open_region(first, &old_advert).unwrap();
    let error = loop {
        match run(&mut endpoint, |endpoint| endpoint.write(all, remote.at(0), Notify::Immediate(1), soon())) {
            Ok(End::Done) => leave(&place.join("busy"), b""),
            Ok(End::Failed { error, .. }) | Err(error) => break error,
            Ok(other) => panic!("{other:?}"),
        }
    };
    assert_gone(error);
    let down = |endpoint: &mut Endpoint| match endpoint.next_peer_event()? {
        PeerEvent::Down(peer, error) => Some((peer, error)),
        PeerEvent::Up(_) => None,
    };
    let (peer, why) = endpoint.wait_until(soon(), down).unwrap();
    assert_eq!(peer, first);
    assert_gone(why);
    assert_eq!(endpoint.open(), 0);

    leave(&place.join("died"), b"");
    let second = endpoint.connect(&take(&place.join("second")), soon()).unwrap();
    assert_ne!(second, first);
    assert_eq!(endpoint.open_region(second, &old_advert).unwrap_err().kind(), Kind::Stale);
    let advert = message(&mut endpoint);
    let again = endpoint.open_region(second, &advert).unwrap();
    assert!(run(&mut endpoint, |endpoint| endpoint.write(all, again.at(0), Notify::No, soon())).unwrap().is_done());
    assert!(endpoint.write(all, remote.at(0), Notify::No, soon()).is_err(), "the old region is that of the dead");
    assert!(endpoint.connect(&old_address, Time::now().after(Duration::from_secs(1))).is_err());
}

fn message(endpoint: &mut Endpoint) -> Vec<u8> {
    endpoint.wait_until(soon(), |endpoint| endpoint.next_message().map(|message| message.bytes.to_vec())).unwrap()
}

fn assert_gone(error: Error) {
    assert!(matches!(error.kind(), Kind::PeerDied | Kind::PeerLeft | Kind::LinkFailed), "{error}");
}

/// Run a body in a process of its own, over every fabric.
fn in_a_process(body: &str) {
    for fabric in FABRICS {
        let place = Directory::new(&format!("endpoint-{fabric}-{}", body.rsplit(':').next().unwrap()));
        let job = job(1, body).env(FABRIC, fabric.to_string()).env(PLACE, &place.0);
        for exit in finish(job.start().unwrap()) {
            assert!(exit.status.success() && !exit.killed, "{fabric}: {}", text(&exit));
        }
    }
}

/// Two endpoints of this process that are connected; the first may write what the second has exposed.
struct Pair {
    here: Endpoint,
    there: Endpoint,
    peer: PeerId,
    exposed: Exposed,
    advert: Vec<u8>,
}

impl Pair {
    fn new(fabric: Backend) -> Self {
        let (mut here, mut there) = (endpoint(fabric).unwrap(), endpoint(fabric).unwrap());
        let peer = here.dial(&there.address().unwrap(), soon()).unwrap();
        let back = together("a peer", &mut [&mut here, &mut there], |ends| match ends[1].next_peer_event()? {
            PeerEvent::Up(back) => Some(back),
            PeerEvent::Down(_, error) => panic!("{error}"),
        });
        let region = there.register(Pages::new(1 << 20)).unwrap();
        let (exposed, advert) = there.advertise(region, back, Access::Write).unwrap();
        let advert = advert.to_vec();
        Self { here, there, peer, exposed, advert }
    }

    /// A write of this value arrives, and its immediate is counted.
    fn write(&mut self, value: u8) {
        let Self { here, there, peer, exposed, advert } = self;
        let remote = together("the region", &mut [here, there], |ends| ends[0].open_region(*peer, advert).ok());
        let told = there.expect(u32::from(value), 1);
        let post = |ends: &mut [&mut Endpoint]| {
            let posted = ends[0].write_inline(&[value; 64], remote.at(64), Notify::Immediate(u32::from(value)), soon());
            posted.unwrap().started()
        };
        let transfer = together("room", &mut [here, there], post);
        let over = |ends: &mut [&mut Endpoint]| {
            if told.is_complete() { ends[0].end_of(transfer).unwrap() } else { None }
        };
        let done = together("the write", &mut [here, there], over);
        let mut copy = [0; 64];
        exposed.copy_out(64, &mut copy).unwrap();
        assert_eq!((done.end, copy), (End::Done, [value; 64]));
    }
}

#[test]
fn fork_after_registration_disturbs_nobody() {
    in_a_process("endpoints::body_that_forks");
}

#[test]
fn body_that_forks() {
    let Some((fabric, _)) = body() else { return };
    let mut pair = Pair::new(fabric);
    pair.write(1);
    // SAFETY: the child calls only what is allowed after a fork.
    let idle = unsafe { libc::fork() };
    if idle == 0 {
        // SAFETY: system calls without memory. It lives on with every descriptor and mapping, but not for ever.
        unsafe {
            libc::alarm(60);
            libc::pause();
            libc::_exit(0);
        }
    }
    // SAFETY: as above.
    let short = unsafe { libc::fork() };
    if short == 0 {
        // SAFETY: a system call without memory.
        unsafe { libc::_exit(0) };
    }
    // SAFETY: the child is ours and was not waited for.
    assert_eq!(unsafe { libc::waitpid(short, core::ptr::null_mut(), 0) }, short);
    pair.write(2);
    let Pair { mut here, mut there, exposed, .. } = pair;
    there.start_revoke(&exposed, soon()).unwrap();
    together("the revocation", &mut [&mut here, &mut there], |ends| ends[1].revoked(&exposed).then_some(()));
    let region = there.reclaim(exposed).unwrap();
    assert_eq!(there.bytes(&region).unwrap()[64..128], [2; 64]);
    drop(here);
    let down = |ends: &mut [&mut Endpoint]| matches!(ends[0].next_peer_event()?, PeerEvent::Down(..)).then_some(());
    together("the goodbye", &mut [&mut there], down);
    // SAFETY: the child is ours and was not waited for.
    unsafe {
        assert_eq!(libc::kill(idle, libc::SIGKILL), 0);
        assert_eq!(libc::waitpid(idle, core::ptr::null_mut(), 0), idle);
    }
}

#[test]
fn descriptors_that_run_out_are_an_error_and_harm_no_link() {
    in_a_process("endpoints::body_without_descriptors");
}

fn limit_files(limit: Option<u64>) {
    let mut both = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: `both` is a live rlimit.
    assert_eq!(unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &mut both) }, 0);
    both.rlim_cur = limit.unwrap_or(both.rlim_max);
    // SAFETY: as above.
    assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &both) }, 0);
}

#[test]
fn body_without_descriptors() {
    let Some((fabric, _)) = body() else { return };
    let mut pair = Pair::new(fabric);
    let mut idle = endpoint(fabric).unwrap();
    pair.write(1);
    // numbers of descriptors have no gaps here, and listing them takes one
    for spare in 0..12 {
        limit_files(Some(open_files() as u64 - 1 + spare));
        let mut kept = Vec::new();
        let refused = loop {
            match endpoint(fabric) {
                Ok(endpoint) => kept.push(endpoint),
                Err(error) => break error,
            }
        };
        assert!(matches!(refused.kind(), Kind::NoSpace | Kind::Os), "{fabric}, {spare}: {refused}");
        // a peer that would need more descriptors is refused, or does not come up
        let dialled = pair.here.dial(&idle.address().unwrap(), Time::now().after(Duration::from_millis(200)));
        if let Ok(peer) = dialled {
            let ends = &mut [&mut pair.here, &mut idle];
            together("an answer", ends, |ends| match ends[0].is_up(peer) {
                Ok(false) => None,
                Ok(true) => Some(()),
                Err(_) => Some(()),
            });
        }
        // who was connected does not notice
        pair.write(2 + spare as u8);
        drop(kept);
        limit_files(None);
    }
    let regions: Vec<_> = {
        limit_files(Some(open_files() as u64 + 20));
        (0..1000).map_while(|_| pair.there.allocate(4096).ok()).collect()
    };
    // only memory that others map is a file
    match (fabric, pair.there.allocate(4096).map(drop)) {
        (Backend::Shm, Err(error)) => assert!(matches!(error.kind(), Kind::NoSpace | Kind::Os), "{error}"),
        (Backend::Tcp, Ok(())) => {}
        (_, end) => panic!("{fabric}, after {}: {end:?}", regions.len()),
    }
    drop(regions);
    pair.write(100);
    limit_files(None);
    drop(Pair::new(fabric));
}
