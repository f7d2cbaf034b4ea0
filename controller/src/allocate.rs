//! Who gets which subnet, number and address. Pure: knows neither the API nor OVN.
//!
//! | module | noun |
//! |---|---|
//! | [`addresses`] | [`Addresses`](addresses::Addresses): which pod has which address, and which comes next |
//! | [`subnets`] | [`Subnets`](subnets::Subnets): which node has which subnet, and which is free |
//! | [`pod_network`](mod@pod_network) | what follows from a pod's addresses: gateways, routes, MAC |
//! | [`node_assignments`] | [`NodeAssignments`](node_assignments::NodeAssignments): what the cluster manager gives to nodes |

pub mod addresses;
pub mod node_assignments;
pub mod pod_network;
pub mod subnets;
