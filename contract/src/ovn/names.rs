//! The names. One function for each kind of object.

/// The router that joins the nodes' switches.
pub const CLUSTER_ROUTER: &str = "ovn_cluster_router";
/// The switch between the cluster's router and the nodes' gateway routers.
pub const JOIN_SWITCH: &str = "join";
/// The switch between zones.
pub const TRANSIT_SWITCH: &str = "transit_switch";
/// Load balancers of all switches and routers; of node switches; of gateway routers.
pub const CLUSTER_LB_GROUP: &str = "clusterLBGroup";
pub const SWITCH_LB_GROUP: &str = "clusterSwitchLBGroup";
pub const ROUTER_LB_GROUP: &str = "clusterRouterLBGroup";
/// Base name of the port group of management ports; of node switches' router ports.
pub const CLUSTER_PORT_GROUP: &str = "clusterPortGroup";
pub const ROUTER_PORT_GROUP: &str = "clusterRtrPortGroup";
/// Rate limits of what ovn-controller has to look at.
pub const COPP: &str = "ovnkube-default";
/// Rate limit of log lines about ACLs.
pub const ACL_METER: &str = "acl-logging";

/// A node's switch has the node's name.
pub fn node_switch(node: &str) -> String {
    node.to_owned()
}

/// The switch's side of the link between a node's switch and the cluster's router.
pub fn switch_to_router(node: &str) -> String {
    format!("stor-{node}")
}

/// The router's side of that link.
pub fn router_to_switch(node: &str) -> String {
    format!("rtos-{node}")
}

/// The port that pins the router's port to the node's chassis.
pub fn gateway_chassis(router_port: &str, chassis: &str) -> String {
    format!("{router_port}-{chassis}")
}

/// The join switch's side of the link to a router.
pub fn join_to_router(router: &str) -> String {
    format!("jtor-{router}")
}

/// The router's side of that link.
pub fn router_to_join(router: &str) -> String {
    format!("rtoj-{router}")
}

/// The port of the node itself on its switch.
pub fn management_port(node: &str) -> String {
    format!("k8s-{node}")
}

/// A node's gateway router.
pub fn gateway_router(node: &str) -> String {
    format!("GR_{node}")
}

/// The switch between a node's gateway router and its physical network.
pub fn external_switch(node: &str) -> String {
    format!("ext_{node}")
}

/// The transit switch's side of the link to the cluster's router; in another zone the port that stands for the node.
pub fn transit_to_router(node: &str) -> String {
    format!("tstor-{node}")
}

/// The cluster router's side of that link.
pub fn router_to_transit(node: &str) -> String {
    format!("rtots-{node}")
}

/// The meter of one of [`COPP`]'s protocols.
pub fn protocol_meter(protocol: &str) -> String {
    format!("{protocol}-rate-limiter")
}
