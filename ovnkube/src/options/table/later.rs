//! Options of parts that do not exist yet. They are parsed and checked, so that a command line or a
//! file of OVN-Kubernetes works as it is. Those that are given are reported once as without effect.

use super::super::{
    kind::Kind,
    spec::{Group, Part, Spec},
};

const DEFAULT: &str = "default";
const FEATURES: &str = "ovnkubernetesfeature";
const GATEWAY: &str = "gateway";
const NODE: &str = "ovnkubenode";

const fn text(
    name: &'static str,
    section: &'static str,
    key: &'static str,
    part: Part,
    help: &'static str,
) -> Spec {
    Spec::new(name, Kind::Text).key(section, key).later(part).help(help)
}

const fn number(
    name: &'static str,
    section: &'static str,
    key: &'static str,
    part: Part,
    help: &'static str,
) -> Spec {
    Spec::new(name, Kind::NUMBER).key(section, key).later(part).help(help)
}

const fn switch(
    name: &'static str,
    section: &'static str,
    key: &'static str,
    part: Part,
    help: &'static str,
) -> Spec {
    Spec::new(name, Kind::Switch).key(section, key).default("false").later(part).help(help)
}

const fn feature(name: &'static str, part: Part, help: &'static str) -> Spec {
    switch(name, FEATURES, name, part, help)
}

options! { Group::Later;
    // The cluster's network.
    TRANSPORT = text("transport", DEFAULT, "transport", Part::Routing,
        "How the cluster's own network travels; empty for OVN's tunnels");
    CLUSTER_DEFAULT_NAD = text("cluster-default-nad", DEFAULT, "cluster-default-nad", Part::Networks,
        "Definition of the cluster's own network")
        .value("NAMESPACE/NAME");
    ENABLE_UDP_AGGREGATION = switch("enable-udp-aggregation", DEFAULT, "enable-udp-aggregation",
        Part::ManagementPort, "Aggregate UDP packets");
    UDN_ALLOWED_DEFAULT_SERVICES = text("udn-allowed-default-services", DEFAULT,
        "udn-allowed-default-services", Part::Networks, "Services that pods of other networks reach")
        .value("NAMESPACE/NAME,…").default("default/kubernetes,kube-system/kube-dns");
    OVN_MODE = Spec::new("ovn-mode", Kind::Text).key(DEFAULT, "ovn-mode").help("overlay or underlay")
        .never("is for the Python programs: the network is an overlay");

    // Features.
    ADMIN_NETWORK_POLICY = Spec::new("enable-admin-network-policy", Kind::Switch)
        .key(FEATURES, "enable-admin-network-policy").default("false")
        .help("Policies of the cluster's administrators")
        .never("says what is always so: they count as soon as the API server has their kinds");
    EGRESS_IP = feature("enable-egress-ip", Part::Egress, "Addresses with which pods leave the cluster");
    EGRESS_IP_TIMEOUT = number("egressip-reachability-total-timeout", FEATURES,
        "egressip-reachability-total-timeout", Part::Egress,
        "How long a node with such an address may be silent").value("SECONDS").default("1");
    EGRESS_IP_PORT = number("egressip-node-healthcheck-port", FEATURES, "egressip-node-healthcheck-port",
        Part::Egress,
        "Port where such nodes are asked").value("PORT");
    EGRESS_FIREWALL = Spec::new("enable-egress-firewall", Kind::Switch)
        .key(FEATURES, "enable-egress-firewall").default("false")
        .help("What pods may reach outside of the cluster")
        .never("says what is always so: an EgressFirewall counts as soon as the API server has the kind");
    EGRESS_QOS = Spec::new("enable-egress-qos", Kind::Switch)
        .key(FEATURES, "enable-egress-qos").default("false")
        .help("Marks on what pods send")
        .never("says what is always so: an EgressQoS counts as soon as the API server has the kind");
    EGRESS_SERVICE = feature("enable-egress-service", Part::Egress,
        "Services whose pods leave the cluster with the service's address");
    MULTI_NETWORK = feature("enable-multi-network", Part::Networks, "Further networks of pods");
    MULTI_NETWORKPOLICY = feature("enable-multi-networkpolicy", Part::Networks,
        "Policies of further networks");
    NETWORK_SEGMENTATION = feature("enable-network-segmentation", Part::Networks,
        "Networks that users define");
    NETWORK_CONNECT = feature("enable-network-connect", Part::Networks, "Connections between such networks");
    UPLINK = feature("enable-uplink", Part::Gateway, "Further uplinks of nodes");
    PRECONFIGURED_UDN_ADDRESSES = feature("enable-preconfigured-udn-addresses", Part::Networks,
        "Addresses that pods bring into such networks");
    ROUTE_ADVERTISEMENTS = feature("enable-route-advertisements", Part::Routing,
        "Routes to pods, told to other routers");
    EVPN = feature("enable-evpn", Part::Routing, "Networks that extend into an EVPN");
    UDN_ISOLATION_MODE = text("advertised-udn-isolation-mode", FEATURES, "advertised-udn-isolation-mode",
        Part::Networks,
        "Whether advertised networks are isolated from each other").value("MODE").default("strict");
    ICMP_NETWORK_POLICY = feature("allow-icmp-network-policy", Part::Policies, "ICMP in spite of policies");
    MULTI_EXTERNAL_GATEWAY = feature("enable-multi-external-gateway", Part::Gateway,
        "Several gateways of pods");
    PERSISTENT_IPS = feature("enable-persistent-ips", Part::Networks, "Addresses that virtual machines keep");
    DNS_NAME_RESOLVER = feature("enable-dns-name-resolver", Part::Egress,
        "Names in what pods may reach by DNSNameResolver objects; names in rules work without them");
    OBSERVABILITY = feature("enable-observability", Part::Metrics,
        "Samples of packets and the policies that they met");
    NETWORK_QOS = feature("enable-network-qos", Part::Policies, "Bandwidth and marks by policy");
    DYNAMIC_UDN = feature("enable-dynamic-udn-allocation", Part::Networks,
        "Networks only on nodes that need them");
    UDN_GRACE_PERIOD = Spec::new("udn-deletion-grace-period", Kind::Span)
        .key(FEATURES, "udn-deletion-grace-period").default("120s")
        .later(Part::Networks).help("How long an unneeded network stays on a node");
    UDN_HOST_ISOLATION = feature("disable-udn-host-isolation", Part::Networks,
        "Let the host reach pods of other networks");
    IFACE_ID_VER = Spec::new("disable-ovn-iface-id-ver", Kind::Switch)
        .key("kubernetes", "disable-ovn-iface-id-ver").default("false")
        .help("Do without the UID of pods in Open vSwitch").never("is deprecated: the UID is always there");
    NBCTL_DAEMON_MODE = Spec::new("nbctl-daemon-mode", Kind::Switch).help("Run ovn-nbctl as a daemon")
        .never("is for programs that run ovn-nbctl");

    // The gateway.
    GATEWAY_ACCELERATED = text("gateway-accelerated-interface", GATEWAY, "gateway-accelerated-interface",
        Part::Offload, "Accelerated interface")
        .value("NAME");
    DPU_REPRESENTOR = text("dpu-host-gateway-representor-interface", GATEWAY,
        "dpu-host-gateway-representor-interface", Part::Offload,
        "The host's interface, seen from its DPU").value("NAME");
    EXGW_INTERFACE = text("exgw-interface", GATEWAY, "egw-interface", Part::Gateway,
        "Interface to further gateways").value("NAME");
    PKT_MTU_CHECK = switch("disable-pkt-mtu-check", GATEWAY, "disable-pkt-mtu-check", Part::Gateway,
        "Do not answer packets that are too large");
    ROUTER_SUBNET = text("gateway-router-subnet", GATEWAY, "router-subnet", Part::Gateway,
        "Addresses of gateways of nodes with a DPU").value("CIDR");
    SINGLE_NODE = switch("single-node", GATEWAY, "single-node", Part::Gateway, "The cluster has one node");
    ALLOW_NO_UPLINK = switch("allow-no-uplink", GATEWAY, "allow-no-uplink", Part::Gateway,
        "Do without an interface to the outside");
    EPHEMERAL_PORT_RANGE = text("ephemeral-port-range", GATEWAY, "ephemeral-port-range", Part::Gateway,
        "Ports for translated addresses")
        .value("LEAST-MOST").default("32768-60999");
    GATEWAY_SPARE = Spec::new("gateway-spare-interface", Kind::Switch)
        .help("The gateway's interface is for it alone").never("was removed in 2019");

    // Networks without an overlay.
    OUTBOUND_SNAT = text("no-overlay-outbound-snat", "no-overlay", "outbound-snat", Part::Routing,
        "Whether pods leave with their node's address, without an overlay");
    NO_OVERLAY_ROUTING = text("no-overlay-routing", "no-overlay", "routing", Part::Routing,
        "What configures routing without an overlay");
    BGP_AS_NUMBER = number("bgp-managed-as-number", "bgp-managed", "as-number", Part::Routing,
        "Autonomous system of the nodes").default("64512");
    BGP_TOPOLOGY = text("bgp-managed-topology", "bgp-managed", "topology", Part::Routing,
        "Which nodes are BGP neighbours");
    BGP_FRR_NAMESPACE = text("bgp-managed-frr-namespace", "bgp-managed", "frr-namespace", Part::Routing,
        "Namespace of routers' configurations")
        .value("NAMESPACE");

    // Flow records.
    NETFLOW_TARGETS = text("netflow-targets", "monitoring", "netflow-targets", Part::FlowExport,
        "NetFlow collectors").value("IP:PORT,…");
    SFLOW_TARGETS = text("sflow-targets", "monitoring", "sflow-targets", Part::FlowExport, "sFlow collectors")
        .value("IP:PORT,…");
    IPFIX_TARGETS = text("ipfix-targets", "monitoring", "ipfix-targets", Part::FlowExport, "IPFIX collectors")
        .value("IP:PORT,…");
    IPFIX_SAMPLING = number("ipfix-sampling", "ipfix", "sampling", Part::FlowExport,
        "One packet of so many is a sample").default("400");
    IPFIX_CACHE_MAX_FLOWS = number("ipfix-cache-max-flows", "ipfix", "cache-max-flows", Part::FlowExport,
        "Most flows that are gathered").default("0");
    IPFIX_CACHE_TIMEOUT = number("ipfix-cache-active-timeout", "ipfix", "cache-active-timeout",
        Part::FlowExport, "How long they are gathered")
        .value("SECONDS").default("60");

    // Hybrid overlay, DPUs, management port.
    HYBRID_OVERLAY = switch("enable-hybrid-overlay", "hybridoverlay", "enabled", Part::HybridOverlay,
        "Connect nodes of other kinds");
    HYBRID_SUBNETS = text("hybrid-overlay-cluster-subnets", "hybridoverlay", "cluster-subnets",
        Part::HybridOverlay, "Addresses of their pods")
        .value("CIDRS");
    HYBRID_VXLAN_PORT = number("hybrid-overlay-vxlan-port", "hybridoverlay", "hybrid-overlay-vxlan-port",
        Part::HybridOverlay, "UDP port to them")
        .value("PORT").default("4789");
    MGMT_PORT_NETDEV = text("ovnkube-node-mgmt-port-netdev", NODE, "mgmt-port-netdev", Part::ManagementPort,
        "Device of the management port")
        .value("NAME");
    MGMT_PORT_RESOURCE = text("ovnkube-node-mgmt-port-dp-resource-name", NODE, "mgmt-port-dp-resource-name",
        Part::ManagementPort,
        "Device plugin's resource for it").value("NAME");
    DPU_LEASE_RENEW = number("dpu-node-lease-renew-interval", NODE, "dpu-node-lease-renew-interval",
        Part::Offload, "How often a DPU reports")
        .value("SECONDS").default("10");
    DPU_LEASE_DURATION = number("dpu-node-lease-duration", NODE, "dpu-node-lease-duration", Part::Offload,
        "How long a DPU may be silent")
        .value("SECONDS").default("40");
    SIMULATE_DPU = switch("simulate-dpu", NODE, "simulate-dpu", Part::Offload, "Pretend that there is a DPU");
    ROUTING_TABLE_ID_START = number("ovnkube-node-routing-table-id-start", NODE, "routing-table-id-start",
        Part::Networks, "First routing table")
        .default("1000");
}
