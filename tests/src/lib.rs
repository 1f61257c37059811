//! Tests that span the crates.
#![forbid(unsafe_code)]
#![warn(missing_docs)]

pub mod source;

/// The examples of the README, tried like those of the documentation.
#[cfg(doctest)]
#[doc = include_str!("../../README.md")]
pub struct Readme;

/// Those of the guide for who embeds the transport.
#[cfg(doctest)]
#[doc = include_str!("../../docs/embedding.md")]
pub struct Embedding;
