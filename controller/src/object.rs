//! What objects of all kinds share while they are read: metadata, specifications as text, prices
//! and limits.

pub mod beyond;
pub mod metadata;
pub mod price;
pub mod specification;
