//! EgressFirewalls (`k8s.ovn.org/v1`).

pub mod changes;
pub mod object;
pub mod price;
pub mod problem;
pub mod rows;
