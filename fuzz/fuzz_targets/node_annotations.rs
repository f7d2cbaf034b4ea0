//! The property is in `fuzz/properties/src/node_annotations.rs`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| properties::node_annotations::check(data));
