//! The property is in `fuzz/properties/src/requests.rs`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| properties::requests::check(data));
