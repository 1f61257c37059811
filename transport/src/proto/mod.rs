//! The protocols as pure state machines: who may touch which slot, and when.
//!
//! A machine has no clock, no memory and no thread. Its owner tells it what happened (`on_*`) and asks it what is allowed
//! (`slot`, `begin`); the bytes are moved by [`crate::wire`]. Each machine's states change in one table, [`ll::Transmit::on`]
//! and its siblings, whose rows cite the rules of docs/protocols.md. After an abort nothing is allowed any more (AB-2).
//!
//! ```text
//! sender                                          receiver
//!   begin -> Some(slot)       CR-1                  slot
//!   wire::ll::pack            LL-3                  wire::ll::header -> on_header
//!   on_filled                 LL-6                  wire::ll::unpack -> on_drained -> Some(head)   CR-2
//!   wire::credit::observe                           wire::credit::publish(head)                    CR-5
//!     -> on_credit            CR-3
//! ```
#![forbid(unsafe_code)]

pub mod abort;
mod lines;
pub mod ll;
pub mod ll128;
pub mod simple;
pub mod window;

pub use window::Slot;
