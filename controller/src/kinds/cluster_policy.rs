//! Policies of the whole cluster: ClusterNetworkPolicy, AdminNetworkPolicy and
//! BaselineAdminNetworkPolicy.

pub mod changes;
pub mod condition;
pub mod condition_writeback;
pub mod object;
pub mod price;
pub mod problem;
pub mod rows;
pub mod state;
pub mod wire;
