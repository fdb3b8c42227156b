#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| nervure_fuzz_targets::definition::run(bytes));
