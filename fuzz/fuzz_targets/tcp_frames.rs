#![no_main]

use vervain_transport::fabric::tcp::fuzzing;

libfuzzer_sys::fuzz_target!(|input: &[u8]| fuzzing::frames(input));
