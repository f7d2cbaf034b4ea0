//! The property is in `fuzz/properties/src/net_conf.rs`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| properties::net_conf::check(data));
