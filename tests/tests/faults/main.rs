//! Bad input and faults, against whole jobs of threads and of processes: an error on every rank, in time, and nothing left.
//!
//! Processes are this program again: a test starts ranks whose only test is a `body_…`, which does nothing unless a launcher
//! started it.

mod abort;
mod alone;
mod bits;
mod death;
mod endpoints;
mod hostile;
mod init;
mod mismatch;
mod namespaces;
mod pages;
mod room;
mod several;
mod strangers;
mod support;
