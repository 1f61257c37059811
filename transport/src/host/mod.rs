//! What this machine is and allows: the safe face of the few system calls that describe it.
//!
//! Nothing here belongs to a fabric. Programs use it to place themselves ([`affinity`]), to say which addresses they have
//! ([`interfaces`]), and to find out before a run what the kernel permits ([`probe`])
//! and what the best latency can be ([`ping_pong`]).

pub mod affinity;
pub mod interfaces;
pub mod numa;
pub mod pages;
pub mod ping_pong;
pub mod probe;
