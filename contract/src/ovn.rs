//! Names of OVN objects, ids of those without names, and the addresses that follow from a node's
//! subnet.
//!
//! Tools, manuals and ovn-controller's patch ports rely on these names, and an existing cluster is
//! recognised by them. Knows no database.

mod addresses;
mod dry_run;
mod ids;
mod masquerade;
mod names;

pub use addresses::{
    HIGHEST_NODE_ID, NODE_IDS, forwarded_source, forwarded_sources, gateway, gateways, management,
    managements, nth, numbered, port_mac, reserved,
};
pub use dry_run::{DryRun, NoDryRun};
pub use ids::{
    CONTROLLER, EGRESS_FIREWALL, HOST_NETWORK_NAMESPACE, ID, KIND, MULTICAST_CLUSTER,
    MULTICAST_NAMESPACE, NAME, NAME_SET, NAMED_PORT_SET, NAMESPACE_SET, NETPOL_NAMESPACE,
    NETWORK_POLICY, NEXT_TIER, NODE_SELECTOR_SET, OWN_KINDS, OWNER, OWNER_CONTROLLER, OWNER_TYPE,
    ObjectId, POD_SELECTOR_SET, PRIORITY, RULE_INDEX, SERVICE, SOURCE_RANGES, hash,
};
pub use masquerade::Masquerade;
pub use names::*;

#[cfg(test)]
mod tests;
