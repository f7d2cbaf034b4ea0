//! The property is in `fuzz/properties/src/addresses.rs`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| properties::addresses::check(data));
