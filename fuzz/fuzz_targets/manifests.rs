//! The property is in `fuzz/properties/src/manifests.rs`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| properties::manifests::check(data));
