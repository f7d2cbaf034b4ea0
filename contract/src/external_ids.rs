//! Keys of `external_ids` in rows of Open vSwitch.
//!
//! On Interface rows they are the only record of what is attached; there is no second state file.
//! OVN defines `iface-id`, `iface-id-ver` and `ovn-installed` (ovn-controller(8), "Open vSwitch
//! Database Usage"); OVN-Kubernetes defines the others.

/// Name of the logical port that the interface belongs to.
pub const IFACE_ID: &str = "iface-id";
/// UID of the pod. ovn-controller binds the port only if the logical port has the same one.
pub const IFACE_ID_VER: &str = "iface-id-ver";
/// MAC address of the pod's end, in lower case.
pub const ATTACHED_MAC: &str = "attached_mac";
/// Container id of the sandbox that owns the interface; on QoS and Queue rows too.
pub const SANDBOX: &str = "sandbox";
/// Addresses with prefix lengths, separated by commas.
pub const IP_ADDRESSES: &str = "ip_addresses";
/// The older, single-stack spelling: the first address with its prefix length.
pub const IP_ADDRESS: &str = "ip_address";
/// Name of the interface inside the pod.
pub const POD_IF_NAME: &str = "pod-if-name";
/// On Bridge rows: `true` on the bridge of a gateway.
pub const GATEWAY_BRIDGE: &str = "ovnkube-gateway";
/// Name of the network, for networks other than the cluster's own.
pub const NETWORK: &str = "k8s.ovn.org/network";
/// Key of the network attachment definition, for networks other than the cluster's own.
pub const NAD: &str = "k8s.ovn.org/nad";
/// `true` if the pod's end has no addresses and routes: they belong to the guest of a virtual
/// machine. Absent otherwise, and in rows of older plugins.
pub const SKIP_IP_CONFIG: &str = "k8s.ovn.org/skip-ip-config";
/// `true` once ovn-controller has installed the port's flows.
pub const OVN_INSTALLED: &str = "ovn-installed";
/// On Port rows: the rate limits with which the port was created,
/// `BITS_PER_SECOND_TO_THE_POD/KILOBITS_PER_SECOND_FROM_IT`. Absent without limits.
pub const LIMITS: &str = "k8s.ovn.org/limits";
