//! The endpoint over every fabric: two or more endpoints stepped by one thread.

mod world;

mod lifetimes;
mod memory;
mod transfers;
