//! The property is in `fuzz/properties/src/result.rs`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| properties::result::check(data));
