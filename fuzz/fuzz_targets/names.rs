//! The property is in `fuzz/properties/src/names.rs`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| properties::names::check(data));
