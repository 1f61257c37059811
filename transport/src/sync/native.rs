//! The processor's own atomics.

pub use core::sync::atomic::{AtomicBool, AtomicI32, AtomicU8, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence};
#[cfg(feature = "std")]
pub use std::thread;

#[cfg(feature = "alloc")]
pub use alloc::sync::Arc;

/// The ordering with this label: the constant itself.
#[inline(always)]
pub const fn label(_name: &'static str, ordering: Ordering) -> Ordering {
    ordering
}

/// A sequentially consistent fence with this label.
#[inline(always)]
pub fn fence_at(_name: &'static str) {
    fence(Ordering::SeqCst);
}

/// Tell the processor that this is a spin loop.
#[inline(always)]
pub fn spin_loop() {
    core::hint::spin_loop();
}

/// Run a scenario once. Under loom: in all interleavings.
#[cfg(feature = "std")]
pub fn model(scenario: impl Fn() + Sync + Send + 'static) {
    scenario();
}

/// A cell whose accesses are closures, as loom wants them.
#[derive(Debug)]
#[repr(transparent)]
pub struct UnsafeCell<T>(core::cell::UnsafeCell<T>);

impl<T> UnsafeCell<T> {
    /// A cell with this content.
    pub const fn new(value: T) -> Self {
        Self(core::cell::UnsafeCell::new(value))
    }

    /// Access for reading. Dereferencing the pointer needs that nobody writes meanwhile.
    #[inline(always)]
    pub fn with<R>(&self, access: impl FnOnce(*const T) -> R) -> R {
        access(self.0.get())
    }

    /// Access for writing. Dereferencing the pointer needs that nobody else accesses meanwhile.
    #[inline(always)]
    pub fn with_mut<R>(&self, access: impl FnOnce(*mut T) -> R) -> R {
        access(self.0.get())
    }
}

/// The model checks that this write races with nothing; the processor has nothing to check.
#[cfg(feature = "alloc")]
#[inline(always)]
pub(super) fn note_write<T>(_cell: &UnsafeCell<T>) {}

/// As above, for a read.
#[cfg(feature = "alloc")]
#[inline(always)]
pub(super) fn note_read<T>(_cell: &UnsafeCell<T>) {}

/// Whether [`heavy_fence`] reaches into other processors, so that [`light_fence`] may cost nothing. Set once, by
/// [`register_heavy_fence`].
static ASYMMETRIC: AtomicBool = AtomicBool::new(false);

/// Ask the kernel to let other processes' [`heavy_fence`] act on this process (membarrier), and say whether it will.
///
/// Afterwards [`light_fence`] is for the compiler alone. That is right only against peers whose own call returned true
/// as well: exchange the answers when connecting, and call [`full_fence`] instead of the light one for a peer that said no.
pub fn register_heavy_fence() -> bool {
    // Relaxed: the answer is the same for every caller, and a stale `false` only makes the fence stronger.
    if ASYMMETRIC.load(Ordering::Relaxed) {
        return true;
    }
    let registered = membarrier::register();
    ASYMMETRIC.store(registered, Ordering::Relaxed);
    registered
}

/// The frequent side of an asymmetric fence pair: free once [`register_heavy_fence`] succeeded, a real fence before.
///
/// ```text
/// waker                          sleeper
///   store work                     store sleeping
///   light_fence                    heavy_fence
///   load sleeping -> wake          load work -> do not sleep
/// ```
/// At least one of the two loads sees the other side's store.
#[inline(always)]
pub fn light_fence() {
    // Relaxed: see `register_heavy_fence`.
    if ASYMMETRIC.load(Ordering::Relaxed) {
        // SYNC sleep.light <-> sleep.heavy: the kernel makes every processor of ours execute the fence that we leave out.
        core::sync::atomic::compiler_fence(Ordering::SeqCst);
    } else {
        full_fence();
    }
}

/// The rare side of an asymmetric fence pair: microseconds, and it interrupts the processors that run registered processes.
pub fn heavy_fence() {
    // SYNC sleep.heavy <-> sleep.light: our earlier store is before, our later load after, any light fence.
    full_fence();
    // Relaxed: see `register_heavy_fence`.
    if ASYMMETRIC.load(Ordering::Relaxed) {
        membarrier::run();
        full_fence();
    }
}

/// A fence that orders everything, on this processor alone.
#[inline(always)]
pub fn full_fence() {
    fence(Ordering::SeqCst);
}

#[cfg(all(feature = "std", target_os = "linux"))]
mod membarrier {
    //! The system call that runs a fence on other processors; libc has no wrapper for it.

    use libc::{MEMBARRIER_CMD_GLOBAL_EXPEDITED, MEMBARRIER_CMD_REGISTER_GLOBAL_EXPEDITED};

    /// Let others' barriers act on us, and check that ours runs.
    pub fn register() -> bool {
        call(MEMBARRIER_CMD_REGISTER_GLOBAL_EXPEDITED) && call(MEMBARRIER_CMD_GLOBAL_EXPEDITED)
    }

    /// Run a fence on every processor that runs a registered process. Cannot fail after `register` succeeded.
    pub fn run() {
        let done = call(MEMBARRIER_CMD_GLOBAL_EXPEDITED);
        debug_assert!(done, "membarrier worked at registration");
    }

    fn call(command: libc::c_int) -> bool {
        // SAFETY: membarrier takes two integers and touches no memory of ours.
        unsafe { libc::syscall(libc::SYS_membarrier, command, 0) == 0 }
    }
}

#[cfg(not(all(feature = "std", target_os = "linux")))]
mod membarrier {
    //! No such system call here: both fences are real.

    pub fn register() -> bool {
        false
    }

    pub fn run() {}
}
