#![no_main]

use vervain_collectives::control::fuzzing::control_frame;

libfuzzer_sys::fuzz_target!(|input: &[u8]| control_frame(input));
