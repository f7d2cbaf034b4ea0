//! The property is in `fuzz/properties/src/watch.rs`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| properties::watch::check(data));
