//! Namespaces: the group of their pods, and multicast.

pub mod changes;
pub mod fanout;
pub mod multicast_rows;
pub mod object;
pub mod rows;
pub mod state;
pub mod wire;
