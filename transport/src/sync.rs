//! The one place that names atomics, cells, fences, spin hints and threads; under `cfg(vervain_loom)` it gives loom's.
//!
//! # Labels
//! Every ordering that carries meaning is written `label("spsc.publish", Release)`. Natively this is the constant. Under
//! loom the environment variable `VERVAIN_MUTATE` weakens the one ordering whose label it names, so that a single build
//! proves for each label that the scenarios notice its loss. The labels and their stories stand in docs/ordering.md.
//!
//! # Storage
//! Loom's atomics cannot lie on mapped memory, so protocols and rings are generic over [`Words`]: [`Mapped`] for shared
//! memory, [`Owned`] for tests, loom and rings inside one process, [`Inline`] for statics and stacks.

#[cfg(not(vervain_loom))]
#[path = "sync/native.rs"]
mod engine;
#[cfg(vervain_loom)]
#[path = "sync/modelled.rs"]
mod engine;
#[cfg(not(vervain_loom))]
mod inline;
mod words;

pub use engine::*;
#[cfg(not(vervain_loom))]
pub use inline::Inline;
#[cfg(feature = "alloc")]
pub use words::Owned;
pub use words::{AtomicWords, Mapped, Words};

/// Every label that [`label`] and [`fence_at`] are called with in `wire` and `ring`, and the sleeper's two fences.
pub const LABELS: &[&str] = &[
    "completion.claim",
    "completion.observe",
    "completion.publish",
    "completion.reserve",
    "completion.return",
    "counter.observe",
    "counter.publish",
    "credit.observe",
    "credit.publish",
    "fifo.close",
    "fifo.closed",
    "fifo.free",
    "fifo.observe",
    "fifo.publish",
    "fifo.recall",
    "fifo.remember",
    "fifo.reuse",
    "ll.observe",
    "ll.publish",
    "ll128.observe",
    "ll128.publish",
    "mpsc.claim",
    "mpsc.free",
    "mpsc.observe",
    "mpsc.publish",
    "record.free",
    "record.observe",
    "record.publish",
    "record.reuse",
    "simple.observe",
    "simple.publish",
    "sleep.heavy",
    "sleep.light",
    "spsc.free",
    "spsc.observe",
    "spsc.publish",
    "spsc.reuse",
];
