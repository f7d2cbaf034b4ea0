//! Default paths on a node, where an administrator expects them. Each one can be overridden.

/// The server's socket: mode 0600, in a directory of mode 0700.
pub const SERVER_SOCKET: &str = "/var/run/ovn-kubernetes/cni/ovn-cni-server.sock";
/// Directory of the lock files that show which control plane processes are alive on this host: mode
/// 0700.
pub const ELECTION_DIR: &str = "/var/run/ovn-kubernetes/election";
/// The endpoint of the node's Open vSwitch database.
pub const OVSDB_ENDPOINT: &str = "unix:/var/run/openvswitch/db.sock";
/// Directory of Open vSwitch's process ids and control sockets.
pub const OVS_RUN_DIR: &str = "/var/run/openvswitch";
/// Directory of OVN's process ids and control sockets.
pub const OVN_RUN_DIR: &str = "/var/run/ovn";
/// The integration bridge, which ovn-controller owns.
pub const INTEGRATION_BRIDGE: &str = "br-int";
/// The node's own port into the network, by which hosts reach pods.
pub const MANAGEMENT_PORT: &str = "ovn-k8s-mp0";
/// The plugin's log.
pub const PLUGIN_LOG: &str = "/var/log/openvswitch/ovn-k8s-cni-overlay.log";
/// How the line in [`PLUGIN_LOG`] about the end of a call begins, behind what the call is: that it
/// is done, and that it has failed.
pub const CALL_DONE: &str = "done";
pub const CALL_FAILED: &str = "failed";
/// The server's log.
pub const SERVER_LOG: &str = "/var/log/openvswitch/ovnkube.log";
/// Where runtimes look for CNI configurations.
pub const CNI_CONF_DIR: &str = "/etc/cni/net.d";
/// The configuration that the server writes there.
pub const CNI_CONF_FILE: &str = "10-ovn-kubernetes.conflist";
/// The configuration of the Go server, removed once ours is in place.
pub const UPSTREAM_CNI_CONF_FILE: &str = "10-ovn-kubernetes.conf";
/// Name of the cluster's own network in CNI configurations.
pub const NETWORK_NAME: &str = "ovn-kubernetes";
/// File name of the plugin, and `type` in CNI configurations.
pub const PLUGIN: &str = "ovn-k8s-cni-overlay";
/// The same in the configurations of the Python programs (`10-net.conf`).
pub const OLD_PLUGIN: &str = "ovn_cni";
/// Where `ip netns` looks for network namespaces (ip-netns(8)).
pub const NETNS_DIR: &str = "/var/run/netns";
