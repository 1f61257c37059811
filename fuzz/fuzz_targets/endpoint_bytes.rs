#![no_main]

use vervain_transport::fuzzing;

libfuzzer_sys::fuzz_target!(|input: &[u8]| fuzzing::endpoint_bytes(input));
