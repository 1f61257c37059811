//! What the kernel permits, asked directly instead of guessed from versions.

use core::mem::zeroed;
use std::ffi::CString;
use std::fs::File;
use std::os::fd::FromRawFd;
use std::path::Path;

use crate::{Kind, Result};

/// Space of a file system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Space {
    /// All of it, in bytes.
    pub total: u64,
    /// What an unprivileged process may still use, in bytes.
    pub free: u64,
}

/// The space of the file system that holds `path`.
pub fn space(path: &Path) -> Result<Space> {
    let path = CString::new(path.as_os_str().as_encoded_bytes()).map_err(|_| Kind::InvalidArgument)?;
    // SAFETY: `statvfs` is plain data; all zeros is a value of it.
    let mut answer: libc::statvfs = unsafe { zeroed() };
    // SAFETY: `path` is a terminated string and `answer` is live.
    if unsafe { libc::statvfs(path.as_ptr(), &raw mut answer) } != 0 {
        return Err(std::io::Error::last_os_error().into());
    }
    let bytes = |blocks: u64| blocks.saturating_mul(answer.f_frsize);
    Ok(Space { total: bytes(answer.f_blocks), free: bytes(answer.f_bavail) })
}

/// An unnamed file in memory, as shared segments are made of.
pub fn memory_file() -> Result<File> {
    // SAFETY: the name is a terminated string.
    let fd = unsafe { libc::memfd_create(c"vervain-probe".as_ptr(), libc::MFD_CLOEXEC) };
    if fd < 0 {
        return Err(std::io::Error::last_os_error().into());
    }
    // SAFETY: `fd` was just made and belongs to nobody else.
    Ok(unsafe { File::from_raw_fd(fd) })
}

/// Which `membarrier` commands the kernel offers, as its bit mask.
pub fn membarrier_commands() -> Result<u32> {
    const QUERY: libc::c_int = 0;
    // SAFETY: the query takes no pointer and changes nothing.
    let commands = unsafe { libc::syscall(libc::SYS_membarrier, QUERY, 0, 0) };
    if commands < 0 { Err(std::io::Error::last_os_error().into()) } else { Ok(commands as u32) }
}

/// Allow any process of the same user to read our memory, where a kernel of the Yama kind asks for that.
///
/// Without it a process may read only its own descendants. Kernels without Yama refuse the call; nothing is needed there.
pub fn allow_readers() {
    // SAFETY: this `prctl` takes numbers only.
    unsafe { libc::prctl(libc::PR_SET_PTRACER, libc::PR_SET_PTRACER_ANY, 0, 0, 0) };
}

/// Copy memory of another process of this machine into `to`, as much as the kernel gives. Returns the number of bytes.
pub fn read_process(pid: u32, address: u64, to: &mut [u8]) -> Result<usize> {
    let pid = libc::pid_t::try_from(pid).map_err(|_| Kind::InvalidArgument)?;
    let here = libc::iovec { iov_base: to.as_mut_ptr().cast(), iov_len: to.len() };
    let there = libc::iovec { iov_base: address as *mut libc::c_void, iov_len: to.len() };
    // SAFETY: `here` is exclusively borrowed memory of that length; `there` is only looked at by the kernel, which checks it.
    let read = unsafe { libc::process_vm_readv(pid, &raw const here, 1, &raw const there, 1, 0) };
    usize::try_from(read).map_err(|_| std::io::Error::last_os_error().into())
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Seek, Write};

    use super::*;

    #[test]
    fn free_space_is_part_of_the_total() {
        let space = space(Path::new("/")).unwrap();
        assert!(space.free <= space.total);
        assert!(super::space(Path::new("/no/such/path")).is_err());
    }

    #[test]
    fn memory_file_keeps_what_is_written() {
        let Ok(mut file) = memory_file() else {
            eprintln!("SKIPPED: no memfd here");
            return;
        };
        file.write_all(b"kept").unwrap();
        file.rewind().unwrap();
        let mut text = String::new();
        file.read_to_string(&mut text).unwrap();
        assert_eq!(text, "kept");
    }

    #[test]
    fn own_memory_is_read_or_refused_never_invented() {
        let source = [7u8; 33];
        let mut copy = [0u8; 33];
        match read_process(std::process::id(), source.as_ptr() as u64, &mut copy) {
            Ok(bytes) => assert_eq!(copy[..bytes], source[..bytes]),
            Err(error) => eprintln!("SKIPPED: {error}"),
        }
        assert!(read_process(std::process::id(), 8, &mut copy).is_err());
        assert!(read_process(u32::MAX, 8, &mut copy).is_err());
    }
}
