//! Kinds of pages, and whether they are there.

use core::ptr::NonNull;

use crate::Result;

/// Ask for huge pages. A system without them refuses, and nothing is lost.
pub fn advise_huge(start: NonNull<u8>, bytes: usize) {
    // SAFETY: advice changes no contents; a range that is not mapped is refused.
    unsafe { libc::madvise(start.as_ptr().cast(), bytes, libc::MADV_HUGEPAGE) };
}

/// Make all pages of a mapping present and writable, keeping what they hold.
///
/// # Errors
/// `NoSpace` if there is not so much memory.
pub fn populate(start: NonNull<u8>, bytes: usize) -> Result<()> {
    // SAFETY: populating changes no contents; a range that is not mapped is refused.
    if unsafe { libc::madvise(start.as_ptr().cast(), bytes, libc::MADV_POPULATE_WRITE) } == 0 {
        return Ok(());
    }
    let error = std::io::Error::last_os_error();
    // before Linux 5.14 there is no such advice: pages then come with their first use
    if error.raw_os_error() == Some(libc::EINVAL) { Ok(()) } else { Err(error.into()) }
}
