//! The property is in `fuzz/properties/src/allocation.rs`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| properties::allocation::check(data));
