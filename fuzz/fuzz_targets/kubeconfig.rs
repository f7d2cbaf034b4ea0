//! The property is in `fuzz/properties/src/kubeconfig.rs`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| properties::kubeconfig::check(data));
