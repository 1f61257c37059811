//! The head line: how many messages the receiver has consumed, on a line of its own in the sender's memory.

use crate::sync::{
    Ordering::{Acquire, Release},
    Words, label,
};

/// Give all slots before step `head` back (CR-2). Everything that was read from them must be read by now (CR-5).
#[inline]
pub fn publish(line: &impl Words, head: u64) {
    // SYNC credit.publish -> credit.observe: our reads of the slots are over before the sender may overwrite them.
    line.store(0, head, label("credit.publish", Release));
}

/// How many messages were consumed. Hostile until [`crate::proto::window::Sender::on_credit`] has checked it (CR-3).
#[inline]
pub fn observe(line: &impl Words) -> u64 {
    // SYNC credit.observe <- credit.publish: the slots are overwritten after the receiver's reads.
    line.load(0, label("credit.observe", Acquire))
}
