//! The property is in `fuzz/properties/src/ovsdb_updates.rs`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| properties::ovsdb_updates::check(data));
