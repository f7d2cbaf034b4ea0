//! The property is in `fuzz/properties/src/pod_network.rs`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| properties::pod_network::check(data));
