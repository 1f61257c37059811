//! To come.

pub mod frame;
