#![no_main]

use vervain_collectives::bootstrap::fuzzing::messages;

libfuzzer_sys::fuzz_target!(|input: &[u8]| messages(input));
