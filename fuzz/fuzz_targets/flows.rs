//! The property is in `fuzz/properties/src/flows.rs`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| properties::flows::check(data));
