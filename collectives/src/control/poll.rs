//! Sleeping until a socket has something, or a time has come.

use core::time::Duration;
use std::os::fd::{AsFd, BorrowedFd};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use vervain_transport::Time;

use crate::bootstrap::channel::Channel;

/// A descriptor to wait for.
#[derive(Clone, Copy, Debug)]
pub struct Watch<'a> {
    /// The descriptor.
    pub fd: BorrowedFd<'a>,
    /// Whether to wait until it can be written, besides until it can be read.
    pub writing: bool,
}

impl<'a> Watch<'a> {
    /// Until it can be read.
    pub fn read(fd: BorrowedFd<'a>) -> Self {
        Self { fd, writing: false }
    }

    pub(crate) fn channel(channel: &'a Channel) -> Self {
        Self { fd: channel.as_fd(), writing: channel.is_writing() }
    }
}

/// Sleep until one of the descriptors is ready, or until `wake`.
pub fn wait(watches: &[Watch<'_>], now: Time, wake: Time) {
    let mut fds: Vec<_> = watches.iter().map(|watch| PollFd::from_borrowed_fd(watch.fd, flags(watch))).collect();
    let timeout = (wake != Time::NEVER).then(|| timespec(wake.since(now)));
    // an interruption or a failure is a wake-up for nothing: the caller steps and comes back
    let _ = poll(&mut fds, timeout.as_ref());
}

fn flags(watch: &Watch<'_>) -> PollFlags {
    if watch.writing { PollFlags::IN | PollFlags::OUT } else { PollFlags::IN }
}

fn timespec(duration: Duration) -> Timespec {
    Timespec { tv_sec: i64::try_from(duration.as_secs()).unwrap_or(i64::MAX), tv_nsec: duration.subsec_nanos().into() }
}
