//! The property is in `fuzz/properties/src/wire.rs`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| properties::wire::check(data));
