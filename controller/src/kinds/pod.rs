//! Pods: their addresses, annotations and ports.

pub mod annotation;
pub mod announce;
pub mod assign;
pub mod changes;
pub mod fanout;
pub mod foreign;
pub mod foreign_changes;
pub mod found;
pub mod object;
pub mod problem;
pub mod rows;
pub mod state;
pub mod waiting;
pub mod wakeups;
pub mod wire;
