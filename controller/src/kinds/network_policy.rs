//! NetworkPolicies.

pub mod changes;
pub mod fanout;
pub mod ledger;
pub mod ledger_entry;
pub mod namespace_sums;
pub mod object;
pub mod port_names;
pub mod price;
pub mod problem;
pub mod rows;
pub mod state;
pub mod wire;
