//! Which cores a thread may run on.
//!
//! Latency figures need a thread that stays where it is: a rank that migrates loses its cache, and two ranks that share a
//! core while another one idles measure the scheduler.

use core::mem::{size_of, zeroed};

use crate::{Kind, Result};

/// The cores on which the calling thread may run, in rising order.
pub fn allowed_cores() -> Result<Vec<usize>> {
    // SAFETY: `cpu_set_t` is a plain bit array; all zeros is the empty set.
    let mut set: libc::cpu_set_t = unsafe { zeroed() };
    // SAFETY: `set` is live, and its size is given; 0 means the calling thread.
    let status = unsafe { libc::sched_getaffinity(0, size_of::<libc::cpu_set_t>(), &raw mut set) };
    if status != 0 {
        return Err(std::io::Error::last_os_error().into());
    }
    // SAFETY: every index is below CPU_SETSIZE, the number of bits of the set.
    Ok((0..libc::CPU_SETSIZE as usize).filter(|&core| unsafe { libc::CPU_ISSET(core, &set) }).collect())
}

/// Keep the calling thread on this core. Threads that it starts later inherit that.
pub fn pin_to(core: usize) -> Result<()> {
    if core >= libc::CPU_SETSIZE as usize {
        return Err(Kind::InvalidArgument.into());
    }
    // SAFETY: `cpu_set_t` is a plain bit array; all zeros is the empty set.
    let mut set: libc::cpu_set_t = unsafe { zeroed() };
    // SAFETY: `core` is below CPU_SETSIZE, the number of bits of the set.
    unsafe { libc::CPU_SET(core, &mut set) };
    // SAFETY: `set` is live, and its size is given; 0 means the calling thread.
    let status = unsafe { libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &raw const set) };
    if status == 0 { Ok(()) } else { Err(std::io::Error::last_os_error().into()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pinned_thread_may_run_on_that_core_alone() {
        std::thread::spawn(|| {
            let last = *allowed_cores().unwrap().last().unwrap();
            pin_to(last).unwrap();
            assert_eq!(allowed_cores().unwrap(), [last]);
        })
        .join()
        .unwrap();
    }

    #[test]
    fn a_core_that_cannot_exist_is_refused() {
        assert_eq!(pin_to(usize::MAX).unwrap_err().kind(), Kind::InvalidArgument);
        assert_eq!(pin_to(libc::CPU_SETSIZE as usize).unwrap_err().kind(), Kind::InvalidArgument);
    }
}
