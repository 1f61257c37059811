//! Sleeping in somebody else's loop: a descriptor that can be read when there may be something to poll.
//!
//! ```text
//! loop {
//!     endpoint.poll(Time::now());
//!     ... take what has come ...
//!     if endpoint.arm() { sleep until the descriptor can be read, or until endpoint.next_deadline() }
//! }
//! ```
//! Fabrics with sockets bring a descriptor of their own. Peers that share memory with us ring a futex, which no descriptor tells of: the first
//! [`Endpoint::arm`] starts a thread that waits for it, asleep but while armed, and passes it on.

use alloc::{boxed::Box, sync::Arc, vec::Vec};
use core::time::Duration;
use std::{
    io,
    os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd},
    sync::{Condvar, Mutex, MutexGuard, PoisonError},
};

use super::Endpoint;
use crate::{
    Result, Time,
    fabric::{
        Doorbell, Fabric,
        doorbell::{eventfd, wake_event},
    },
};

/// Longest wait of a bell's thread before it looks whether it is still wanted.
const SLICE: Duration = Duration::from_millis(50);

/// Pause between two looks at connections that are being made.
const DIALING: Duration = Duration::from_millis(1);

/// What wakes us.
#[derive(Debug)]
pub(super) struct Wakeup {
    epoll: OwnedFd,
    event: Arc<OwnedFd>,
    watchers: Vec<Watcher>,
    pub is_armed: bool,
}

/// A thread that waits for one bell.
#[derive(Debug)]
struct Watcher {
    shared: Arc<Shared>,
    thread: Option<std::thread::JoinHandle<()>>,
}

#[derive(Debug)]
struct Shared {
    wanted: Mutex<Wanted>,
    changed: Condvar,
    bell: Doorbell,
    event: Arc<OwnedFd>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wanted {
    Nothing,
    Ring,
    End,
}

impl Wakeup {
    pub fn new(backends: &[Box<dyn Fabric>]) -> Result<Self> {
        // SAFETY: no pointers.
        let epoll = unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) };
        if epoll < 0 {
            return Err(io::Error::last_os_error().into());
        }
        // SAFETY: the kernel has just given us this descriptor.
        let epoll = unsafe { OwnedFd::from_raw_fd(epoll) };
        let event = Arc::new(eventfd()?);
        let wakeup = Self { epoll, event, watchers: Vec::new(), is_armed: false };
        wakeup.add(wakeup.event.as_fd())?;
        for fabric in backends {
            fabric.descriptor().map_or(Ok(()), |fd| wakeup.add(fd))?;
        }
        Ok(wakeup)
    }

    fn add(&self, fd: BorrowedFd<'_>) -> io::Result<()> {
        let mut event = libc::epoll_event { events: libc::EPOLLIN as u32, u64: 0 };
        // SAFETY: `event` is a live event that the call reads; both descriptors are open.
        let result =
            unsafe { libc::epoll_ctl(self.epoll.as_raw_fd(), libc::EPOLL_CTL_ADD, fd.as_raw_fd(), &mut event) };
        if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }

    /// Wait for bells from here on.
    fn arm(&mut self, backends: &[Box<dyn Fabric>]) {
        if self.watchers.is_empty() {
            let bells = backends.iter().map(|fabric| fabric.doorbell()).filter(Doorbell::is_in_a_page);
            self.watchers = bells.map(|bell| Watcher::start(bell, self.event.clone())).collect();
        }
        self.watchers.iter().for_each(|watcher| watcher.want(Wanted::Ring));
        self.is_armed = true;
    }

    pub fn disarm(&mut self) {
        self.watchers.iter().for_each(|watcher| watcher.want(Wanted::Nothing));
        self.is_armed = false;
        let mut count = 0u64;
        // SAFETY: `count` is 8 live bytes, the descriptor is open and does not block.
        unsafe { libc::read(self.event.as_raw_fd(), (&raw mut count).cast(), size_of::<u64>()) };
    }
}

impl Watcher {
    fn start(bell: Doorbell, event: Arc<OwnedFd>) -> Self {
        let shared = Arc::new(Shared { wanted: Mutex::new(Wanted::Nothing), changed: Condvar::new(), bell, event });
        let run = {
            let shared = shared.clone();
            move || shared.run()
        };
        // without a thread nobody is woken by this bell, but by deadlines and sockets alone: said in the log, once
        let thread = std::thread::Builder::new().name("vervain-bell".into()).spawn(run);
        let thread =
            thread.inspect_err(|error| tracing::warn!(%error, "no thread to wait for peers that share memory")).ok();
        Self { shared, thread }
    }

    fn want(&self, wanted: Wanted) {
        *self.shared.lock() = wanted;
        self.shared.changed.notify_one();
    }
}

impl Drop for Watcher {
    fn drop(&mut self) {
        self.want(Wanted::End);
        self.shared.bell.ring();
        if let Some(thread) = self.thread.take() {
            // it cannot panic
            let _ = thread.join();
        }
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Wanted> {
        self.wanted.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn run(&self) {
        loop {
            let mut wanted = self.lock();
            while *wanted == Wanted::Nothing {
                wanted = self.changed.wait(wanted).unwrap_or_else(PoisonError::into_inner);
            }
            if *wanted == Wanted::End {
                return;
            }
            drop(wanted);
            if self.bell.is_armed() {
                self.bell.wait(SLICE);
            }
            if !self.bell.is_armed() {
                self.tell();
            }
        }
    }

    /// The bell was rung, or it is not wanted any more.
    fn tell(&self) {
        let mut wanted = self.lock();
        if *wanted == Wanted::Ring {
            *wanted = Wanted::Nothing;
            wake_event(&self.event);
        }
    }
}

impl Endpoint {
    /// First half of sleeping elsewhere: polls once more, and says whether to sleep until the descriptor ([`AsFd`]) can be read. If not, something has
    /// come: look, and poll again. The next [`Endpoint::poll`] ends it.
    #[must_use = "sleep only if this says so"]
    pub fn arm(&mut self) -> bool {
        self.disarm();
        if !self.backends.iter().all(|fabric| fabric.is_drained()) || !self.peers.waiting.is_empty() {
            return false;
        }
        self.backends.iter_mut().for_each(|fabric| fabric.arm());
        let heard = self.heard;
        for backend in 0..self.backends.len() {
            self.poll_backend(backend, self.now);
        }
        // what was granted before the bells were armed has rung nothing
        self.tidy(self.now);
        if self.heard != heard {
            self.backends.iter_mut().for_each(|fabric| fabric.disarm());
            return false;
        }
        self.wakeup.arm(&self.backends);
        true
    }

    #[inline]
    pub(super) fn disarm(&mut self) {
        if self.wakeup.is_armed {
            self.wakeup.disarm();
            self.backends.iter_mut().for_each(|fabric| fabric.disarm());
        }
    }

    /// When to poll again at the latest: a transfer may pass its deadline then, or a connection wants to go on.
    pub fn next_deadline(&self) -> Time {
        let soon = if self.peers.dialing > 0 { self.now.after(DIALING) } else { Time::NEVER };
        self.transfers.earliest().min(soon)
    }
}

impl AsFd for Endpoint {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.wakeup.epoll.as_fd()
    }
}

impl AsRawFd for Endpoint {
    fn as_raw_fd(&self) -> RawFd {
        self.as_fd().as_raw_fd()
    }
}
