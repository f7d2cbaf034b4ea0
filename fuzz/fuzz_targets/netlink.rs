//! The property is in `fuzz/properties/src/netlink.rs`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| properties::netlink::check(data));
