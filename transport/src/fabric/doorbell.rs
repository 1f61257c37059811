//! Wakes a thread that sleeps in [`Fabric::sleep`](super::Fabric::sleep).
//!
//! A doorbell is one word, `armed`, and a way to wake whoever waits for it. The pattern is Dekker's:
//!
//! ```text
//! sleeper                          ringer
//!   armed = 1                        store the data
//!   heavy fence                      light fence
//!   look for data once more          if armed: armed = 0, wake
//!   sleep while armed == 1
//! ```
//! Either the sleeper's last look finds the data, or the ringer finds `armed`: the two fences forbid that both miss. The
//! sleeper pays for the pair (it is about to sleep anyway), so that a ring costs a load while nobody sleeps.
//!
//! The word lies in a page that peers map (a futex wakes across processes), or in this process beside an eventfd, for
//! fabrics whose sleeper waits on descriptors.

use core::time::Duration;
use std::{
    io,
    os::fd::{AsRawFd, FromRawFd, OwnedFd},
    sync::Arc,
};

use memmap2::MmapRaw;

use crate::sync::{
    AtomicU32, AtomicU64,
    Ordering::{Acquire, Relaxed, Release},
    full_fence, heavy_fence, light_fence, register_heavy_fence,
};

/// Wakes one sleeper; does nothing, cheaply, while it is awake.
#[derive(Clone, Debug)]
pub struct Doorbell {
    word: Place,
    ringing: Ringing,
}

/// Which fence a ring takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ringing {
    /// The sleeper's fence reaches into our processor, and ours costs nothing.
    Light,
    /// The sleeper's system has no such fence.
    Full,
}

/// Where the word lies, and so how its sleeper is woken.
#[derive(Clone, Debug)]
enum Place {
    /// At the start of a page that other processes map too.
    Page(Arc<MmapRaw>),
    /// In this process; the sleeper waits for the descriptor.
    Event(Arc<EventBell>),
}

#[derive(Debug)]
struct EventBell {
    armed: AtomicU32,
    event: Arc<OwnedFd>,
}

/// Why [`Doorbell::wait`] returned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Woken {
    /// Somebody rang, or a signal came.
    Rung,
    /// The time was up.
    TimedOut,
}

impl Doorbell {
    /// A doorbell whose sleeper waits until `event`, a non-blocking eventfd, can be read. The sleeper drains it.
    pub fn from_eventfd(event: Arc<OwnedFd>) -> Self {
        let word = Place::Event(Arc::new(EventBell { armed: AtomicU32::new(0), event }));
        // whatever it says: within one process both fences are of one kind, if it is settled before the first sleep
        register_heavy_fence();
        Self { word, ringing: Ringing::Light }
    }

    /// A doorbell in the first 128 bytes of a page that other processes map. The count of announcements follows it.
    ///
    /// # Panics
    /// If the mapping is smaller than [`PAGE`].
    pub(crate) fn from_page(page: Arc<MmapRaw>, ringing: Ringing) -> Self {
        assert!(page.len() >= PAGE, "a doorbell's page is mapped whole");
        Self { word: Place::Page(page), ringing }
    }

    /// Wake the sleeper if it sleeps. Everything stored before this call is visible to it.
    #[inline]
    pub fn ring(&self) {
        match self.ringing {
            Ringing::Light => light_fence(),
            Ringing::Full => full_fence(),
        }
        // SYNC doorbell.ring -> doorbell.arm: relaxed, because the fences order it; the swap decides who wakes.
        if self.armed().load(Relaxed) != 0 {
            self.wake();
        }
    }

    /// From here on a ring is not lost. Look once more for what is awaited, then sleep or [`Doorbell::disarm`].
    pub fn arm(&self) {
        // SYNC doorbell.arm -> doorbell.ring: relaxed, because the heavy fence orders it before the last look.
        self.armed().store(1, Relaxed);
        heavy_fence();
    }

    /// Not going to sleep, or awake again.
    pub fn disarm(&self) {
        // SYNC doorbell.disarm: relaxed, a ringer that still sees 1 only wakes in vain.
        self.armed().store(0, Relaxed);
    }

    /// Nobody has rung since [`Doorbell::arm`].
    pub fn is_armed(&self) -> bool {
        // SYNC doorbell.wake -> doorbell.arm: what was stored before the ring is visible.
        self.armed().load(Acquire) != 0
    }

    /// Whether its sleeper waits for a futex, and not for a descriptor.
    pub fn is_in_a_page(&self) -> bool {
        matches!(self.word, Place::Page(_))
    }

    /// Sleep until rung, at most `limit`. For doorbells in a page; those beside an eventfd are waited for by descriptor.
    pub(crate) fn wait(&self, limit: Duration) -> Woken {
        let limit = libc::timespec { tv_sec: limit.as_secs() as _, tv_nsec: limit.subsec_nanos() as _ };
        // SAFETY: the word is live as long as `self`, `limit` is a live timespec; the wait is shared between processes,
        // so not FUTEX_PRIVATE.
        let result =
            unsafe { libc::syscall(libc::SYS_futex, self.armed().as_ptr(), libc::FUTEX_WAIT, 1, &limit, 0, 0) };
        // errno is read only after a failure, before any other call
        if result != 0 && std::io::Error::last_os_error().raw_os_error() == Some(libc::ETIMEDOUT) {
            return Woken::TimedOut;
        }
        Woken::Rung
    }

    /// How often a peer has announced something for us.
    ///
    /// # Panics
    /// If the doorbell is not in a page.
    pub(crate) fn announcements(&self) -> &AtomicU64 {
        let Place::Page(page) = &self.word else { panic!("announcements are counted in a page") };
        // SAFETY: the page is mapped as long as `self`, holds the word at this offset (`from_page`), aligned to 8; all
        // access to it, in any process, is atomic.
        unsafe { AtomicU64::from_ptr(page.as_mut_ptr().add(ANNOUNCEMENTS).cast()) }
    }

    #[cold]
    fn wake(&self) {
        // SYNC doorbell.wake -> doorbell.arm: what was stored before the ring is visible to the woken one.
        if self.armed().swap(0, Release) == 0 {
            return;
        }
        match &self.word {
            Place::Page(_) => self.wake_futex(),
            Place::Event(bell) => wake_event(&bell.event),
        }
    }

    fn wake_futex(&self) {
        // SAFETY: the word is live as long as `self`; waking touches nothing but the kernel's queue for it.
        unsafe { libc::syscall(libc::SYS_futex, self.armed().as_ptr(), libc::FUTEX_WAKE, i32::MAX, 0, 0, 0) };
    }

    #[inline]
    fn armed(&self) -> &AtomicU32 {
        match &self.word {
            // SAFETY: the page is mapped as long as `self`, holds the word at its start (`from_page`), aligned to a page;
            // all access to it, in any process, is atomic.
            Place::Page(page) => unsafe { AtomicU32::from_ptr(page.as_mut_ptr().cast()) },
            Place::Event(bell) => &bell.armed,
        }
    }
}

/// An eventfd: a counter that epoll can wait for.
pub(crate) fn eventfd() -> io::Result<OwnedFd> {
    // SAFETY: no pointers.
    let fd = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the call succeeded: `fd` is a fresh descriptor that nobody else owns.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Let whoever waits for an eventfd go on.
pub(crate) fn wake_event(event: &OwnedFd) {
    let one = 1_u64;
    // SAFETY: `one` is 8 live bytes and the descriptor is open. A full counter (EAGAIN) wakes as well.
    unsafe { libc::write(event.as_raw_fd(), (&raw const one).cast(), size_of::<u64>()) };
}

/// Bytes of the shared page that holds a doorbell.
pub(crate) const PAGE: usize = 4096;
/// Where the announcements are counted: not on the line of `armed`, which the sleeper writes.
const ANNOUNCEMENTS: usize = 128;

#[cfg(test)]
mod tests {
    use super::*;

    fn page() -> Doorbell {
        Doorbell::from_page(Arc::new(memmap2::MmapOptions::new().len(PAGE).map_anon().unwrap().into()), Ringing::Full)
    }

    fn event() -> (Doorbell, Arc<OwnedFd>) {
        let event = Arc::new(eventfd().unwrap());
        (Doorbell::from_eventfd(event.clone()), event)
    }

    #[test]
    fn ring_without_sleeper_leaves_no_trace() {
        let bell = page();
        bell.ring();
        bell.arm();
        assert_eq!(bell.wait(Duration::from_millis(1)), Woken::TimedOut);
        assert!(bell.is_armed());
    }

    #[test]
    fn ring_between_arm_and_wait_is_not_lost() {
        let bell = page();
        bell.arm();
        bell.clone().ring();
        assert_eq!(bell.wait(Duration::from_secs(60)), Woken::Rung);
        assert!(!bell.is_armed());
    }

    #[test]
    fn event_is_written_once_per_arming() {
        let (bell, event) = event();
        let mut count = 0_u64;
        bell.ring();
        bell.arm();
        bell.ring();
        bell.ring();
        // SAFETY: `count` is 8 live bytes.
        let read = unsafe { libc::read(event.as_raw_fd(), (&raw mut count).cast(), 8) };
        assert_eq!((read, count), (8, 1));
    }

    #[test]
    fn no_wake_up_is_lost_between_two_threads() {
        let (ball, bells) = (AtomicU64::new(0), [page(), page()]);
        let play = |me: usize| {
            for round in 0..10_000_u64 {
                let mine = 2 * round + me as u64;
                // SYNC doorbell.test.pass -> doorbell.test.catch: only the counter itself is passed.
                while ball.load(Acquire) != mine {
                    bells[me].arm();
                    if ball.load(Acquire) != mine {
                        assert_eq!(bells[me].wait(Duration::from_secs(60)), Woken::Rung, "round {round}");
                    }
                    bells[me].disarm();
                }
                ball.store(mine + 1, Release);
                bells[1 - me].ring();
            }
        };
        std::thread::scope(|scope| {
            scope.spawn(|| play(0));
            scope.spawn(|| play(1));
        });
    }
}
