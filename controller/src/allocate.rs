//! Allocation of subnets and addresses. Pure: knows neither objects of the API server nor OVN's
//! databases.
//!
//! | module | noun |
//! |---|---|
//! | [`addresses`] | [`Addresses`](addresses::Addresses): which pod has which address, and which is next |
//! | [`subnets`] | [`Subnets`](subnets::Subnets): which node has which subnet, and which is free |
//! | [`pod_network`](mod@pod_network) | gateways, routes and MAC of a pod, derived from its addresses |

pub mod addresses;
pub mod pod_network;
pub mod subnets;
