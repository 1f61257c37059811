//! Byte layouts of what travels: lines, counters, and where they lie in a connection's memory.
//!
//! A *message* occupies one *slot* at the receiver: an 8-byte header word that the caller gives, and a payload whose length
//! both sides know. Three protocols carry it, with the same four functions:
//!
//! | | line | payload in it | how the receiver knows |
//! |---|---|---|---|
//! | [`ll`] | 16 bytes | 8 | each 8-byte word carries half data, half flag |
//! | [`ll128`] | 128 bytes | 120 | the line's last word is its flag |
//! | [`simple`] | the slot | all | a counter on its own line |
//!
//! Everything here is stateless; which slot and which step is for [`crate::proto`]. Rules are numbered in docs/protocols.md.
//! What is read from shared memory is compared or copied, and never becomes an index.

pub mod advert;
pub mod connection;
pub mod credit;
pub mod fifo;
pub mod frame;
#[cfg(all(any(test, fuzzing), feature = "std", not(vervain_loom)))]
pub(crate) mod fuzzing;
pub mod ll;
pub mod ll128;
pub mod simple;

/// Size and alignment of everything that one side alone writes, in bytes: two cache lines, which prefetchers fetch together.
pub const LINE: usize = 128;

/// The same in words.
pub const LINE_WORDS: usize = LINE / 8;
