//! Node objects, their gateways, and their rows.

pub mod changes;
pub mod claims;
pub mod fanout;
pub mod gateway_rows;
pub mod multicast;
pub mod node_port_addresses;
pub mod object;
pub mod problem;
pub mod remote_chassis;
pub mod rows;
pub mod state;
pub mod transit_rows;
pub mod wire;
