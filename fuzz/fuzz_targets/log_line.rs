//! The property is in `fuzz/properties/src/log_line.rs`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| properties::log_line::check(data));
