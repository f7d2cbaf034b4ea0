//! The property is in `fuzz/properties/src/ovsdb_texts.rs`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| properties::ovsdb_texts::check(data));
