//! The endpoint over every fabric: two or more endpoints stepped by one thread.

mod world;

mod driven;
mod lifetimes;
mod memory;
mod transfers;
