//! Rows that a cluster has once.

pub mod multicast_rows;
pub mod rows;
pub mod tiers;
