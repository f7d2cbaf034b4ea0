//! The property is in `fuzz/properties/src/services.rs`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| properties::services::check(data));
