//! The system calls of launching that have no safe wrapper. The only file of this module with unsafe code.

use std::io;
use std::net::TcpListener;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::sync::OnceLock;

use vervain_transport::Time;

use crate::control::poll::{self, Watch};

/// SIGINT and SIGTERM of this thread, and of those that it starts later, as values instead of death. Undone when dropped, for the thread
/// that drops it.
#[derive(Debug)]
pub struct Signals {
    fd: OwnedFd,
    before: Mask,
}

/// A signal mask.
#[derive(Clone, Copy)]
pub(super) struct Mask(libc::sigset_t);

impl core::fmt::Debug for Mask {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("Mask(..)")
    }
}

impl Signals {
    /// From here on they do not end this process; call this before other threads exist, which would still take them.
    ///
    /// # Errors
    /// What the operating system says: no descriptor is left.
    pub fn hold() -> io::Result<Self> {
        let mut wanted = empty();
        // SAFETY: `wanted` is an initialised set, and both are signals.
        unsafe {
            libc::sigaddset(&mut wanted, libc::SIGINT);
            libc::sigaddset(&mut wanted, libc::SIGTERM);
        }
        // SAFETY: `wanted` is an initialised set; -1 asks for a new descriptor.
        let fd = unsafe { libc::signalfd(-1, &wanted, libc::SFD_CLOEXEC | libc::SFD_NONBLOCK) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the kernel has just given us this descriptor.
        let fd = unsafe { OwnedFd::from_raw_fd(fd) };
        let mut before = empty();
        // SAFETY: both sets are live and initialised.
        unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, &wanted, &mut before) };
        Ok(Self { fd, before: Mask(before) })
    }

    /// The mask before, for children.
    pub(super) fn before(&self) -> Mask {
        self.before
    }

    /// Sleep until a signal comes; its number.
    pub fn wait(&self) -> i32 {
        loop {
            if let Some(signal) = self.take() {
                return signal;
            }
            poll::wait(&[Watch::read(self.as_fd())], Time::now(), Time::NEVER);
        }
    }

    /// The next signal that came, if one did.
    pub(super) fn take(&self) -> Option<i32> {
        let mut info = [0u8; size_of::<libc::signalfd_siginfo>()];
        let count = rustix::io::read(&self.fd, &mut info).ok()?;
        // the number of the signal is the first field
        (count == info.len()).then(|| i32::from_ne_bytes([info[0], info[1], info[2], info[3]]))
    }
}

impl AsFd for Signals {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl Drop for Signals {
    fn drop(&mut self) {
        // what came since is ours: it must not kill the process when it is let in again
        while self.take().is_some() {}
        // SAFETY: the set is the one that the kernel gave us.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &self.before.0, core::ptr::null_mut()) };
    }
}

fn empty() -> libc::sigset_t {
    let mut set = core::mem::MaybeUninit::uninit();
    // SAFETY: the call initialises the set that it is given.
    unsafe {
        libc::sigemptyset(set.as_mut_ptr());
        set.assume_init()
    }
}

/// Let the child die with the thread that starts it, begin with this signal mask, and inherit this descriptor.
pub(super) fn tie_to_us(command: &mut Command, mask: Mask, inherited: Option<RawFd>) {
    let parent = std::process::id();
    let prepare = move || {
        // SAFETY: plain system calls on integers and on our own copy of the mask; all of them are async-signal-safe.
        unsafe {
            check(libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL))?;
            check(libc::sigprocmask(libc::SIG_SETMASK, &mask.0, core::ptr::null_mut()))?;
            if let Some(fd) = inherited {
                check(libc::fcntl(fd, libc::F_SETFD, 0))?;
            }
            // the parent may have ended before the first call
            if libc::getppid() as u32 != parent { Err(io::Error::from_raw_os_error(libc::ESRCH)) } else { Ok(()) }
        }
    };
    // SAFETY: `prepare` runs between fork and exec: it only makes async-signal-safe calls, allocates nothing and takes no lock.
    unsafe { command.pre_exec(prepare) };
}

fn check(result: i32) -> io::Result<()> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// The listening socket that our launcher passed as this descriptor, the first time this is asked. `None` if it is no such socket.
pub(super) fn adopt_listener(fd: RawFd) -> Option<TcpListener> {
    // a descriptor can be taken over once in the life of a process
    static ADOPTED: OnceLock<()> = OnceLock::new();
    if fd <= 2 || !is_listening(fd) || ADOPTED.set(()).is_err() {
        return None;
    }
    // SAFETY: the launcher passed it to this process for nothing else, it is open, and by `ADOPTED` nobody took it before.
    let listener = unsafe { TcpListener::from_raw_fd(fd) };
    // SAFETY: sets a flag of a descriptor that is ours.
    unsafe { libc::fcntl(listener.as_raw_fd(), libc::F_SETFD, libc::FD_CLOEXEC) };
    Some(listener)
}

fn is_listening(fd: RawFd) -> bool {
    let mut value: libc::c_int = 0;
    let mut size = size_of_val(&value) as libc::socklen_t;
    // SAFETY: `value` is a live integer of `size` bytes; a descriptor that is no socket is refused by the kernel.
    let result =
        unsafe { libc::getsockopt(fd, libc::SOL_SOCKET, libc::SO_ACCEPTCONN, (&raw mut value).cast(), &mut size) };
    result == 0 && value == 1
}

/// Send ourselves, this thread, a signal.
#[cfg(test)]
pub(super) fn raise(signal: i32) {
    // SAFETY: a plain system call.
    unsafe { libc::raise(signal) };
}
