//! Allocation of subnets, node ids and addresses. Pure: knows neither the API server nor OVN's databases.
//!
//! | module | noun |
//! |---|---|
//! | [`addresses`] | [`Addresses`](addresses::Addresses): which pod has which address, and which is next |
//! | [`subnets`] | [`Subnets`](subnets::Subnets): which node has which subnet, and which is free |
//! | [`pod_network`](mod@pod_network) | gateways, routes and MAC of a pod, derived from its addresses |
//! | [`node_assignments`] | [`NodeAssignments`](node_assignments::NodeAssignments): the cluster manager's |

pub mod addresses;
pub mod node_assignments;
pub mod pod_network;
pub mod subnets;
