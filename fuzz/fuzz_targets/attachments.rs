//! The property is in `fuzz/properties/src/attachments.rs`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| properties::attachments::check(data));
