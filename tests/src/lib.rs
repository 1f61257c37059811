//! Tests that span the crates.
#![forbid(unsafe_code)]
#![warn(missing_docs)]

pub mod source;
