//! epoll: which sockets have something, and sleep until one has.

use core::time::Duration;
use std::{
    io,
    os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd},
    sync::Arc,
};

use crate::{
    Result, Time,
    fabric::{Doorbell, doorbell::eventfd},
};

/// What a descriptor is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Token {
    /// The doorbell.
    Doorbell,
    /// The listening socket.
    Listener,
    /// A socket in its handshake.
    Greeting(u32),
    /// A socket of a link: the link and the socket's index.
    Link(u32, u8),
}

impl Token {
    const fn pack(self) -> u64 {
        match self {
            Token::Doorbell => 0,
            Token::Listener => 1 << 56,
            Token::Greeting(slot) => 2 << 56 | slot as u64,
            Token::Link(link, lane) => 3 << 56 | (lane as u64) << 32 | link as u64,
        }
    }

    const fn unpack(word: u64) -> Self {
        match word >> 56 {
            0 => Token::Doorbell,
            1 => Token::Listener,
            2 => Token::Greeting(word as u32),
            _ => Token::Link(word as u32, (word >> 32) as u8),
        }
    }
}

/// When a descriptor is reported.
#[derive(Clone, Copy, Debug)]
pub(super) enum Interest {
    /// As long as it can be read.
    Readable,
    /// Whenever something changes: data or room has come, or the end.
    Changes,
    /// Not now.
    Nothing,
}

impl Interest {
    const fn bits(self) -> u32 {
        (match self {
            Interest::Readable => libc::EPOLLIN,
            Interest::Changes => libc::EPOLLIN | libc::EPOLLOUT | libc::EPOLLRDHUP | libc::EPOLLET,
            Interest::Nothing => 0,
        }) as u32
    }
}

/// Descriptors reported by one call.
pub(super) const BATCH: usize = 64;

/// The epoll instance of a fabric, with its doorbell.
#[derive(Debug)]
pub(super) struct Poller {
    epoll: OwnedFd,
    event: Arc<OwnedFd>,
    doorbell: Doorbell,
}

impl Poller {
    pub(super) fn new() -> Result<Self> {
        // SAFETY: no pointers.
        let fd = unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) };
        if fd < 0 {
            return Err(io::Error::last_os_error().into());
        }
        // SAFETY: the call succeeded: `fd` is a fresh descriptor that nobody else owns.
        let epoll = unsafe { OwnedFd::from_raw_fd(fd) };
        let event = Arc::new(eventfd()?);
        let poller = Self { epoll, doorbell: Doorbell::from_eventfd(event.clone()), event };
        poller.add(poller.event.as_raw_fd(), Token::Doorbell, Interest::Readable)?;
        Ok(poller)
    }

    pub(super) fn descriptor(&self) -> BorrowedFd<'_> {
        self.epoll.as_fd()
    }

    pub(super) fn doorbell(&self) -> &Doorbell {
        &self.doorbell
    }

    pub(super) fn add(&self, fd: RawFd, token: Token, interest: Interest) -> Result<()> {
        self.control(libc::EPOLL_CTL_ADD, fd, token, interest)
    }

    pub(super) fn change(&self, fd: RawFd, token: Token, interest: Interest) -> Result<()> {
        self.control(libc::EPOLL_CTL_MOD, fd, token, interest)
    }

    fn control(&self, what: i32, fd: RawFd, token: Token, interest: Interest) -> Result<()> {
        let mut event = libc::epoll_event { events: interest.bits(), u64: token.pack() };
        // SAFETY: `event` is a live event that the call reads.
        if unsafe { libc::epoll_ctl(self.epoll.as_raw_fd(), what, fd, &mut event) } < 0 {
            return Err(io::Error::last_os_error().into());
        }
        Ok(())
    }

    /// What has changed; empties the doorbell.
    pub(super) fn look(&self, tokens: &mut [Token; BATCH]) -> usize {
        let mut events = [libc::epoll_event { events: 0, u64: 0 }; BATCH];
        // SAFETY: `events` has room for as many events as the call may store.
        let count = unsafe { libc::epoll_wait(self.epoll.as_raw_fd(), events.as_mut_ptr(), BATCH as i32, 0) };
        let count = usize::try_from(count).unwrap_or(0);
        for (token, event) in tokens.iter_mut().zip(&events[..count]) {
            *token = Token::unpack(event.u64);
            if *token == Token::Doorbell {
                self.empty();
            }
        }
        count
    }

    fn empty(&self) {
        let mut count = 0_u64;
        // SAFETY: `count` is the eight bytes that an eventfd gives.
        unsafe { libc::read(self.event.as_raw_fd(), (&raw mut count).cast(), 8) };
    }

    /// Sleep until something is there to look at, or until `deadline`.
    pub(super) fn sleep(&self, deadline: Time) {
        let limit = deadline.since(Time::now()).min(Duration::from_secs(3600));
        let limit = libc::timespec { tv_sec: limit.as_secs() as _, tv_nsec: limit.subsec_nanos() as _ };
        let mut wait = libc::pollfd { fd: self.epoll.as_raw_fd(), events: libc::POLLIN, revents: 0 };
        // SAFETY: one live pollfd, a live timespec, no signal mask.
        unsafe { libc::ppoll(&mut wait, 1, &limit, core::ptr::null()) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_survive_packing() {
        for token in
            [Token::Doorbell, Token::Listener, Token::Greeting(u32::MAX), Token::Link(u32::MAX, 15), Token::Link(0, 0)]
        {
            assert_eq!(Token::unpack(token.pack()), token);
        }
    }
}
