//! What tests of code above a fabric need (feature `testing`): a fabric that is only simulated, and faults on demand.
//!
//! - [`fake`]: fabrics of one process over a simulated network, with a clock that moves when the test says so. Everything
//!   that chance decides comes from one seed, so a run that failed is run again by its seed.
//! - [`random`]: that chance.
//!
//! The suite that every fabric passes is [`crate::fabric::conformance`]; the shim for loom and shuttle is [`crate::sync`].

pub mod fake;
pub mod random;
