#![no_main]

use vervain_collectives::plan::fuzzing;

libfuzzer_sys::fuzz_target!(|input: &[u8]| fuzzing::plan_json(input));
