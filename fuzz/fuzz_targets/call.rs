//! The property is in `fuzz/properties/src/call.rs`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| properties::call::check(data));
