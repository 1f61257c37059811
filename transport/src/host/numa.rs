//! Memory of one NUMA node.

use core::ptr;

use crate::{Error, Kind, Result};

/// Pages that this thread makes come from one node, until this is dropped.
#[derive(Debug)]
pub struct Bound(());

const NODES: usize = 1024;

/// Let pages that this thread makes come from this node alone.
///
/// # Errors
/// `InvalidArgument` for a node that does not exist, `Os` where the kernel has no such policy.
pub fn bind_to(node: u32) -> Result<Bound> {
    let mut mask = [0u64; NODES / 64];
    let word = mask.get_mut(node as usize / 64).ok_or(Kind::InvalidArgument)?;
    *word |= 1 << (node % 64);
    // SAFETY: the mask is a live array of NODES bits; the kernel reads one bit less than it is told.
    let result = unsafe { libc::syscall(libc::SYS_set_mempolicy, libc::MPOL_BIND, mask.as_ptr(), NODES + 1) };
    if result == 0 {
        return Ok(Bound(()));
    }
    let error = std::io::Error::last_os_error();
    Err(if error.raw_os_error() == Some(libc::EINVAL) {
        Error::new(Kind::InvalidArgument).with_os(libc::EINVAL)
    } else {
        error.into()
    })
}

impl Drop for Bound {
    fn drop(&mut self) {
        // SAFETY: the default policy takes no mask.
        unsafe { libc::syscall(libc::SYS_set_mempolicy, libc::MPOL_DEFAULT, ptr::null::<u64>(), 0) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn node_that_does_not_exist_is_refused() {
        for node in [1000, u32::MAX] {
            assert_eq!(bind_to(node).unwrap_err().kind(), Kind::InvalidArgument, "{node}");
        }
    }
}
