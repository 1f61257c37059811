//! Reading another process's memory through the kernel.
//!
//! Where Yama restricts that to descendants (`ptrace_scope` 1), ranks that one launcher started may not read each other, the probe
//! fails, and reads are staged. A process could allow a reader by `PR_SET_PTRACER`, but only one at a time, so that the second peer
//! would take it from the first and from a debugger or crash handler that the program set up; and `PR_SET_PTRACER_ANY` opens the
//! process to every other one of its user, for reading and writing, which is not ours to decide. Whoever wants it calls it before.

use core::ffi::c_void;
use std::{
    io,
    os::fd::{AsFd, OwnedFd},
};

use super::{handshake::Setup, link::Link, socket};
use crate::{Error, Kind, Result};

/// A process whose memory the kernel lets us read, as long as it is there.
#[derive(Clone, Copy, Debug)]
pub(super) struct Source(libc::pid_t);

impl Source {
    /// Try to read the word that the peer named. `None` if the kernel refuses, or shows another process.
    pub fn probe(socket: &OwnedFd, setup: &Setup) -> Option<Self> {
        let source = Self(socket::peer_process(socket.as_fd()));
        if source.0 <= 0 {
            return None;
        }
        let mut word = 0_u64;
        // SAFETY: `word` is 8 live bytes.
        let result = unsafe { source.read(setup.probe_at, (&raw mut word).cast(), size_of::<u64>()) };
        (result.is_ok() && word == setup.probe_value).then_some(source)
    }

    /// Copy `bytes` from its address space.
    ///
    /// A process number may be given to another process once its owner is dead. So the end of the owner is looked for after the
    /// copy, which is refused in this case.
    ///
    /// # Errors
    /// `AccessDenied` if the range is not readable there, `PeerDied` if the process is gone.
    ///
    /// # Safety
    /// `to` is valid for writes of `bytes` bytes.
    pub unsafe fn pull(self, link: &Link, from: u64, to: *mut u8, bytes: usize) -> Result<()> {
        // SAFETY: `to` by the caller's contract.
        unsafe { self.read(from, to, bytes)? };
        if link.is_peer_gone() { Err(Kind::PeerDied.into()) } else { Ok(()) }
    }

    /// # Safety
    /// `to` is valid for writes of `bytes` bytes.
    unsafe fn read(self, from: u64, to: *mut u8, bytes: usize) -> Result<()> {
        let mut done = 0;
        while done < bytes {
            // SAFETY: `done < bytes`, so the rest of `to` is valid by the caller's contract.
            let local = libc::iovec { iov_base: unsafe { to.add(done) }.cast(), iov_len: bytes - done };
            let remote = libc::iovec { iov_base: (from as usize + done) as *mut c_void, iov_len: bytes - done };
            // SAFETY: the kernel checks both ranges; it writes only to `local`.
            match unsafe { libc::process_vm_readv(self.0, &local, 1, &remote, 1, 0) } {
                0 => return Err(Kind::AccessDenied.into()),
                count if count > 0 => done += count as usize,
                _ => refuse(io::Error::last_os_error())?,
            }
        }
        Ok(())
    }
}

/// Errors that end the read; others are tried again.
fn refuse(error: io::Error) -> Result<()> {
    match error.raw_os_error() {
        Some(libc::EINTR | libc::EAGAIN) => Ok(()),
        Some(libc::ESRCH) => Err(Kind::PeerDied.into()),
        Some(libc::EFAULT | libc::EPERM | libc::EINVAL | libc::ENOSYS) => Err(Kind::AccessDenied.into()),
        code => Err(Error::new(Kind::Os).with_os(code.unwrap_or(0))),
    }
}
