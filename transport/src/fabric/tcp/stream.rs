//! What the machines need of a socket, and the socket.

use core::mem::MaybeUninit;
use std::{
    io,
    net::SocketAddr,
    os::fd::{AsRawFd, OwnedFd, RawFd},
};

use libc::iovec;

/// A stream that never blocks. Tests replace it by pipes that cut at every byte.
pub(super) trait Stream {
    /// Fill the ranges in order. 0 is the end of the stream.
    ///
    /// # Safety
    /// Every range is valid for writes.
    unsafe fn receive(&mut self, into: &[iovec]) -> io::Result<usize>;

    /// Send the ranges in order; returns how much was taken.
    ///
    /// # Safety
    /// Every range is valid for reads.
    unsafe fn send(&mut self, from: &[iovec]) -> io::Result<usize>;

    /// Send nothing more.
    fn finish(&mut self) {}
}

/// A connected, non-blocking TCP socket.
#[derive(Debug)]
pub(super) struct Socket(OwnedFd);

impl Socket {
    pub(super) fn fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }

    /// Local and remote address, once a connection that was started is there.
    pub(super) fn connected(&self) -> io::Result<Option<(SocketAddr, SocketAddr)>> {
        let socket = socket2::SockRef::from(&self.0);
        if let Some(error) = socket.take_error()? {
            return Err(error);
        }
        let Ok(remote) = socket.peer_addr() else { return Ok(None) };
        Ok(socket.local_addr()?.as_socket().zip(remote.as_socket()))
    }

    /// [`Stream::receive`] into a slice.
    pub(super) fn receive_bytes(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let range = iovec { iov_base: into.as_mut_ptr().cast(), iov_len: into.len() };
        // SAFETY: the range is the exclusively borrowed slice.
        unsafe { self.receive(&[range]) }
    }

    /// [`Stream::send`] from a slice.
    pub(super) fn send_bytes(&mut self, from: &[u8]) -> io::Result<usize> {
        let range = iovec { iov_base: from.as_ptr().cast_mut().cast(), iov_len: from.len() };
        // SAFETY: the range is the borrowed slice, which is only read.
        unsafe { self.send(&[range]) }
    }
}

impl From<socket2::Socket> for Socket {
    fn from(socket: socket2::Socket) -> Self {
        Self(socket.into())
    }
}

impl Stream for Socket {
    unsafe fn receive(&mut self, into: &[iovec]) -> io::Result<usize> {
        let mut message = message(into);
        // SAFETY: the message points to ranges that the caller promises to be valid for writes.
        let got = unsafe { libc::recvmsg(self.fd(), &mut message, libc::MSG_DONTWAIT) };
        usize::try_from(got).map_err(|_| io::Error::last_os_error())
    }

    unsafe fn send(&mut self, from: &[iovec]) -> io::Result<usize> {
        let message = message(from);
        // SAFETY: the message points to ranges that the caller promises to be valid for reads.
        let sent = unsafe { libc::sendmsg(self.fd(), &message, libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL) };
        usize::try_from(sent).map_err(|_| io::Error::last_os_error())
    }

    fn finish(&mut self) {
        // SAFETY: shutdown takes any descriptor; this one is ours.
        unsafe { libc::shutdown(self.fd(), libc::SHUT_WR) };
    }
}

fn message(ranges: &[iovec]) -> libc::msghdr {
    // SAFETY: a msghdr of zeros is a valid one: no name, no ranges, no control data.
    let mut message: libc::msghdr = unsafe { MaybeUninit::zeroed().assume_init() };
    message.msg_iov = ranges.as_ptr().cast_mut();
    message.msg_iovlen = ranges.len();
    message
}
