//! Adoption of an upstream cluster: our rows are compared with upstream's, and our controller is
//! started on upstream's database.
//!
//! The databases are in `upstream/`, with a description.

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
