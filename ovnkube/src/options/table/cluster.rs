//! What all nodes of a cluster share: ranges of addresses, the zone, and rules for nodes and pods.

use super::super::{
    kind::Kind,
    networks,
    spec::{Group, OldKey, Spec},
};

const DEFAULT: &str = "default";
const KUBERNETES: &str = "kubernetes";
const GATEWAY: &str = "gateway";
const MANAGER: &str = "clustermanager";
const CLUSTER_SUBNETS_KIND: Kind =
    Kind::Checked { value_name: "CIDRS", check: |text| networks::cluster_subnets(text).map(drop) };
const SERVICE_CIDRS_KIND: Kind = Kind::Checked {
    value_name: "CIDRS",
    check: |text| networks::one_of_each_family(text).map(drop),
};
const V4: Kind = Kind::Checked { value_name: "CIDR", check: |text| networks::v4(text).map(drop) };
const V6: Kind = Kind::Checked { value_name: "CIDR", check: |text| networks::v6(text).map(drop) };
const SELECTOR: Kind =
    Kind::Checked { value_name: "SELECTOR", check: |text| networks::selector(text).map(drop) };
const ZONE_NAME: Kind =
    Kind::Checked { value_name: "NAME", check: |text| networks::zone(text).map(drop) };
const LINES: Kind = Kind::Number { least: 0, most: u32::MAX as u64 };

options! { Group::Cluster;
    CLUSTER_SUBNETS = Spec::new("cluster-subnets", CLUSTER_SUBNETS_KIND).aliases(&["cluster-subnet"])
        .key(DEFAULT, "cluster-subnets").environment("OVN_NET_CIDR")
        .default("10.128.0.0/14/23")
        .help("Addresses of pods, used up in this order: CIDR[/LENGTH],… with the prefix length of a node's \
               part of it; 24 for IPv4 and 64 for IPv6 unless given. Clusters \
               of 2018 that gave none have 11.11.0.0/16");
    SERVICE_CIDRS = Spec::new("k8s-service-cidrs", SERVICE_CIDRS_KIND)
        .aliases(&["k8s-service-cidr", "service-cluster-ip-range"])
        .key(KUBERNETES, "service-cidrs").environment("OVN_SVC_CIDR").old_keys(&[OldKey::same(KUBERNETES, "service-cidr")])
        .default("172.16.1.0/24")
        .help("Addresses of services, of each family one range, as the API server has them \
               (--service-cluster-ip-range)");
    V4_JOIN_SUBNET = Spec::new("gateway-v4-join-subnet", V4).key(GATEWAY, "v4-join-subnet")
        .default("100.64.0.0/16")
        .help("Addresses between OVN's routers");
    V6_JOIN_SUBNET = Spec::new("gateway-v6-join-subnet", V6).key(GATEWAY, "v6-join-subnet")
        .default("fd98::/64")
        .help("The same for IPv6");
    V4_MASQUERADE_SUBNET = Spec::new("gateway-v4-masquerade-subnet", V4).key(GATEWAY, "v4-masquerade-subnet")
        .default("169.254.169.0/29")
        .help("Addresses between a node and OVN, for the control plane and the nodes. The fifth is that of a \
               pod that reaches itself through a service");
    V6_MASQUERADE_SUBNET = Spec::new("gateway-v6-masquerade-subnet", V6).key(GATEWAY, "v6-masquerade-subnet")
        .default("fd69::/125")
        .help("The same for IPv6");
    V4_TRANSIT_SUBNET = Spec::new("cluster-manager-v4-transit-subnet", V4)
        .aliases(&["cluster-manager-v4-transit-switch-subnet"])
        .key(MANAGER, "v4-transit-subnet").old_keys(&[OldKey::same(MANAGER, "v4-transit-switch-subnet")])
        .default("100.88.0.0/16")
        .help("Addresses between zones");
    V6_TRANSIT_SUBNET = Spec::new("cluster-manager-v6-transit-subnet", V6)
        .aliases(&["cluster-manager-v6-transit-switch-subnet"])
        .key(MANAGER, "v6-transit-subnet").old_keys(&[OldKey::same(MANAGER, "v6-transit-switch-subnet")])
        .default("fd97::/64")
        .help("The same for IPv6");
    ZONE = Spec::new("zone", ZONE_NAME).key(DEFAULT, "zone").default("global")
        .help("Zone of this node, and the zone whose databases the controller writes: nodes of one zone \
               share a pair of OVN databases. Pods of two zones reach each other with \
               --enable-interconnect. A controller in one process with a node's server has the \
               node's name as zone then, unless this is given");
    INTERCONNECT = Spec::new("enable-interconnect", Kind::Switch)
        .key("ovnkubernetesfeature", "enable-interconnect").default("false")
        .help("Connect this zone with the others: their nodes get a port on the switch between \
               zones, a route and a chassis in this zone's databases. For all processes of the \
               cluster");
    NO_HOSTSUBNET_NODES = Spec::new("no-hostsubnet-nodes", SELECTOR).key(KUBERNETES, "no-hostsubnet-nodes")
        .help("Labels of nodes that another network plugin serves, as kubectl takes them: such nodes get no \
               subnet");
    DISABLE_REQUESTEDCHASSIS = Spec::new("disable-requestedchassis", Kind::Switch)
        .key(KUBERNETES, "disable-requestedchassis")
        .default("false").help("Let any node claim a pod's port");
    ACL_RATE_LIMIT = Spec::new("acl-logging-rate-limit", LINES).key("logging", "acl-logging-rate-limit")
        .default("20")
        .help("Most log lines about each policy rule, per second and node, in namespaces with the annotation \
               k8s.ovn.org/acl-logging");
    STATELESS_NETPOL = Spec::new("enable-stateless-netpol", Kind::Switch)
        .key("ovnkubernetesfeature", "enable-stateless-netpol").default("false")
        .help("Let the annotation k8s.ovn.org/acl-stateless of a NetworkPolicy turn off connection tracking \
               for what it allows");
    MULTICAST = Spec::new("enable-multicast", Kind::Switch).default("false")
        .help("Give pods multicast among those of their namespace, in namespaces with the annotation \
               k8s.ovn.org/multicast-enabled; all other multicast of pods is dropped");
    SVC_TEMPLATE = Spec::new("enable-svc-template-support", Kind::Switch)
        .key("ovnkubernetesfeature", "enable-svc-template-support")
        .help("One load balancer with variables (Chassis_Template_Var) for the node ports of a service on \
               all nodes, not one for each node, where OVN can do that (22.12). Unless it is given: yes, but \
               a database that has one for each node at the start keeps them");
    LEGACY_ANNOTATIONS = Spec::new("legacy-annotations", Kind::Switch).key(KUBERNETES, "legacy-annotations")
        .default("false")
        .help("Write the annotations of 2018, too (ovn on pods, ovn_host_subnet on nodes), for programs that \
               read only these");
}
