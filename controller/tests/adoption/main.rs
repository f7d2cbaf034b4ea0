//! A cluster of upstream's becomes ours: our rows against those that it wrote, and our controller started on its database.
//!
//! The databases are in `upstream/`; what they are is said there.

#![allow(clippy::unwrap_used, reason = "a test ends where it cannot go on")]

mod compare;
mod database;
mod fixture;
mod others;
mod rows;
#[path = "../laws/running.rs"]
#[allow(dead_code, reason = "the laws need more of it")]
mod running;
mod start;
