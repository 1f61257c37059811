//! Sockets.

pub mod interface;
