//! Contract tests live in `tests/`.
//! To be written.
