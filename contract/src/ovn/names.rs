//! Names of OVN objects, one function or constant for each kind.

use std::collections::BTreeMap;

/// The router that connects the nodes' switches.
pub const CLUSTER_ROUTER: &str = "ovn_cluster_router";
/// The switch between the cluster router and the nodes' gateway routers.
pub const JOIN_SWITCH: &str = "join";
/// The load balancer group of all switches and routers.
pub const CLUSTER_LB_GROUP: &str = "clusterLBGroup";
/// The load balancer group of node switches.
pub const SWITCH_LB_GROUP: &str = "clusterSwitchLBGroup";
/// The load balancer group of gateway routers.
pub const ROUTER_LB_GROUP: &str = "clusterRouterLBGroup";
/// The base name of the port group of management ports.
pub const CLUSTER_PORT_GROUP: &str = "clusterPortGroup";
/// The base name of the port group of the router ports on node switches.
pub const ROUTER_PORT_GROUP: &str = "clusterRtrPortGroup";
/// The rate limits for packets to ovn-controller (control plane protection).
pub const COPP: &str = "ovnkube-default";
/// The meter that limits log lines about ACLs, of each by itself.
pub const ACL_METER: &str = "acl-logging";
/// The meter that limits log lines about dry runs, of all together: nobody but the author of the
/// policy asks for them.
pub const DRY_RUN_METER: &str = "acl-logging-dry-runs";
/// Characters of an ACL's name, as the database limits it (ovn-nb(5)).
pub const LONGEST_ACL_NAME: usize = 63;

/// The switch between zones.
pub const TRANSIT_SWITCH: &str = "transit_switch";
/// The tunnel key of [`TRANSIT_SWITCH`], which is equal in all zones. OVN gives no other switch a
/// key from 16711681 on: these are for switches that several databases have.
pub const TRANSIT_SWITCH_KEY: u32 = 16_711_683;

/// The port on the cluster router that connects a node's zone to the switch between zones.
pub fn router_to_transit(node: &str) -> String {
    format!("rtots-{node}")
}

/// What begins the name of a node's port on the switch between zones.
const TRANSIT_TO_ROUTER: &str = "tstor-";
/// The type of such a port if the node is in another zone (ovn-nb(5)).
pub const REMOTE_PORT: &str = "remote";

/// The port of a node on the switch between zones.
pub fn transit_to_router(node: &str) -> String {
    format!("{TRANSIT_TO_ROUTER}{node}")
}

/// The node whose port on the switch between zones has this name.
pub fn node_of_transit_port(port: &str) -> Option<&str> {
    port.strip_prefix(TRANSIT_TO_ROUTER)
}

/// A node's switch has the node's name.
pub fn node_switch(node: &str) -> String {
    node.to_owned()
}

/// The port on a node's switch that connects it to the cluster router.
pub fn switch_to_router(node: &str) -> String {
    format!("stor-{node}")
}

/// The port on the cluster router that connects it to a node's switch.
pub fn router_to_switch(node: &str) -> String {
    format!("rtos-{node}")
}

/// The gateway chassis, which binds the router's port to the node's chassis.
pub fn gateway_chassis(router_port: &str, chassis: &str) -> String {
    format!("{router_port}-{chassis}")
}

/// The port on the join switch that connects it to a router.
pub fn join_to_router(router: &str) -> String {
    format!("jtor-{router}")
}

/// The port on a router that connects it to the join switch.
pub fn router_to_join(router: &str) -> String {
    format!("rtoj-{router}")
}

/// The port of the node itself on its switch.
pub fn management_port(node: &str) -> String {
    format!("k8s-{node}")
}

/// The beginning of the name of a node's gateway router. The node's name follows.
pub const GATEWAY_ROUTER_PREFIX: &str = "GR_";

/// A node's gateway router.
pub fn gateway_router(node: &str) -> String {
    format!("{GATEWAY_ROUTER_PREFIX}{node}")
}

/// The beginning of the name of a node's external switch. The node's name follows.
pub const EXTERNAL_SWITCH_PREFIX: &str = "ext_";

/// The switch that stands for the physical network of a node: between its gateway router and its
/// bridge.
pub fn external_switch(node: &str) -> String {
    format!("{EXTERNAL_SWITCH_PREFIX}{node}")
}

/// The port on a router that connects it to the external switch.
pub fn router_to_external(router: &str) -> String {
    format!("rtoe-{router}")
}

/// The port on the external switch that connects it to a router.
pub fn external_to_router(router: &str) -> String {
    format!("etor-{router}")
}

/// The name of the physical network in `ovn-bridge-mappings`.
pub const PHYSICAL_NETWORK: &str = "physnet";

/// A load balancer of a Service; `protocol` in capitals. `part`: `cluster` for that of all nodes,
/// otherwise what it serves on which node, such as `node_switch_<node>`.
pub fn load_balancer(service: &crate::names::ServiceKey, protocol: &str, part: &str) -> String {
    format!("{SERVICE_PREFIX}{service}_{protocol}_{part}")
}

/// The beginning of the name of each Service's load balancers. The Service and an underscore
/// follow.
pub const SERVICE_PREFIX: &str = "Service_";

/// The meter for one protocol of [`COPP`].
pub fn protocol_meter(protocol: &str) -> String {
    format!("{protocol}-rate-limiter")
}

/// Key of `other_config` in rows of Chassis: `true` on that of a node of another zone (ovn-sb(5)).
pub const IS_REMOTE: &str = "is-remote";

/// Whether a chassis with this `other_config` is that of a node of another zone.
pub fn is_remote(other_config: &BTreeMap<String, String>) -> bool {
    other_config.get(IS_REMOTE).is_some_and(|value| value == "true")
}
