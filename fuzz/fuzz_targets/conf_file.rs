//! The property is in `fuzz/properties/src/conf_file.rs`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| properties::conf_file::check(data));
