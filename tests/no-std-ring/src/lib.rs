//! Rings in statics, between two contexts, without std and without a heap: a sampler, such as an interrupt, and a main loop.
//!
//! ```text
//! sampler:  reading -> READINGS                   looks whether the last one was handled: HANDLED
//! main:     READINGS -> sum                       HANDLED counts up
//! ```
//! What the machine must give is three functions: one that runs both contexts at once, one to idle, and one to stop. Here the C
//! program `host.c` gives them, with two threads; on a microcontroller they would be an interrupt, `wfi` and a reset.
#![no_std]

use core::{ffi::c_void, panic::PanicInfo};

use vervain_transport::{
    Kind,
    ring::{Full, counter, spsc},
    sync::Inline,
};

/// What the sampler sends.
type Readings = spsc::Ring<u32, 16>;

static READINGS: Readings = Readings::new();
static HANDLED: Inline<{ counter::WORDS }> = Inline::new();

/// What [`sum_in_two_contexts`] returns when somebody else has the ends, or when a counter is wrong.
const FAILED: u64 = u64::MAX;

unsafe extern "C" {
    /// Run both contexts at once, and return when both are done.
    fn host_run_both(
        first: extern "C" fn(*mut c_void),
        first_state: *mut c_void,
        second: extern "C" fn(*mut c_void),
        second_state: *mut c_void,
    );
    safe fn host_idle();
    safe fn host_stop() -> !;
}

struct Sampler {
    readings: spsc::Sender<u32, 16, &'static Readings>,
    handled: counter::Reader<&'static Inline<{ counter::WORDS }>>,
    count: u32,
    outcome: Result<u64, Kind>,
}

struct Main {
    readings: spsc::Receiver<u32, 16, &'static Readings>,
    handled: counter::Writer<&'static Inline<{ counter::WORDS }>>,
    count: u32,
    sum: u64,
}

/// Send `1..=count` from one context to the other, and return the sum there. Works once.
#[unsafe(no_mangle)]
pub extern "C" fn sum_in_two_contexts(count: u32) -> u64 {
    let Some((sender, receiver)) = READINGS.take_ends() else { return FAILED };
    let (Ok(writer), Ok(reader)) = (counter::Writer::attach(&HANDLED), counter::Reader::attach(&HANDLED)) else {
        return FAILED;
    };
    let mut sampler = Sampler { readings: sender, handled: reader, count, outcome: Ok(0) };
    let mut main = Main { readings: receiver, handled: writer, count, sum: 0 };
    // SAFETY: each function gets the state that it expects, which nobody else uses until both have returned.
    unsafe { host_run_both(sample, (&raw mut sampler).cast(), sum, (&raw mut main).cast()) };
    if sampler.outcome == Ok(u64::from(count)) { main.sum } else { FAILED }
}

extern "C" fn sample(state: *mut c_void) {
    // SAFETY: `sum_in_two_contexts` gives a `Sampler` that nobody else uses now.
    let sampler = unsafe { &mut *state.cast::<Sampler>() };
    for mut reading in 1..=sampler.count {
        while let Err(Full(back)) = sampler.readings.push(reading) {
            reading = back;
            host_idle();
        }
    }
    sampler.outcome = sampler.handled.wait_until(u64::from(sampler.count), || {
        host_idle();
        Ok(())
    });
}

extern "C" fn sum(state: *mut c_void) {
    // SAFETY: `sum_in_two_contexts` gives a `Main` that nobody else uses now.
    let main = unsafe { &mut *state.cast::<Main>() };
    for _ in 0..main.count {
        let reading = loop {
            match main.readings.pop() {
                Some(reading) => break reading,
                None => host_idle(),
            }
        };
        main.sum += u64::from(reading);
        main.handled.advance(1);
    }
}

#[panic_handler]
fn panic(_: &PanicInfo<'_>) -> ! {
    host_stop()
}
