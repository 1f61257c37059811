//! Loom's atomics, with one ordering weakened on request.

use std::sync::OnceLock;

pub use loom::cell::UnsafeCell;
pub use loom::sync::Arc;
pub use loom::sync::atomic::{AtomicBool, AtomicI32, AtomicU8, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence};
pub use loom::thread;

/// The ordering with this label, or Relaxed if `VERVAIN_MUTATE` names it.
pub fn label(name: &'static str, ordering: Ordering) -> Ordering {
    if is_mutated(name) { Ordering::Relaxed } else { ordering }
}

/// A sequentially consistent fence with this label, or nothing if `VERVAIN_MUTATE` names it.
pub fn fence_at(name: &'static str) {
    if !is_mutated(name) {
        fence(Ordering::SeqCst);
    }
}

fn is_mutated(name: &'static str) -> bool {
    static MUTATED: OnceLock<Option<String>> = OnceLock::new();
    assert!(super::LABELS.contains(&name), "{name} is missing from sync::LABELS");
    MUTATED.get_or_init(|| std::env::var("VERVAIN_MUTATE").ok()).as_deref() == Some(name)
}

/// A write that races with nothing.
pub(super) fn note_write<T>(cell: &UnsafeCell<T>) {
    cell.with_mut(|_| ());
}

/// A read that races with no write.
pub(super) fn note_read<T>(cell: &UnsafeCell<T>) {
    cell.with(|_| ());
}

/// Tell the scheduler of the model that this is a spin loop.
pub fn spin_loop() {
    loom::thread::yield_now();
}

/// Run a scenario in all interleavings with at most three preemptions (`LOOM_MAX_PREEMPTIONS` changes that).
pub fn model(scenario: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = builder.preemption_bound.or(Some(3));
    builder.check(scenario);
}

/// Nothing to register with: both fences are real in the model.
pub fn register_heavy_fence() -> bool {
    true
}

/// The frequent side of the pair.
pub fn light_fence() {
    // SYNC sleep.light <-> sleep.heavy: as in the native engine.
    fence_at("sleep.light");
}

/// The rare side of the pair.
pub fn heavy_fence() {
    // SYNC sleep.heavy <-> sleep.light: as in the native engine.
    fence_at("sleep.heavy");
}

/// A fence that orders everything.
pub fn full_fence() {
    fence(Ordering::SeqCst);
}
