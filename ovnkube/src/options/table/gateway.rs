//! The node's gateway: how packets of pods leave the node, and how those from outside come in.

use super::super::{
    gateway, kind,
    kind::Kind,
    spec::{Group, Spec},
};

const SECTION: &str = "gateway";
const MODE_KIND: Kind =
    Kind::Checked { value_name: "MODE", check: |text| gateway::mode(text).map(drop) };
const INTERFACE_KIND: Kind =
    Kind::Checked { value_name: "NAME", check: |text| gateway::interface(text).map(drop) };
const NEXT_HOPS: Kind =
    Kind::Checked { value_name: "IPS", check: |text| gateway::next_hops(text).map(drop) };
const VLAN: Kind = Kind::Checked { value_name: "ID", check: |text| gateway::vlan(text).map(drop) };
/// The zones after it are for translations: a number of 16 bits has to be left for them.
const ZONE: Kind =
    Kind::Checked { value_name: "NUMBER", check: |text| kind::number(text, 1, 65531).map(drop) };

options! { Group::Gateway;
    MODE = Spec::new("gateway-mode", MODE_KIND).key(SECTION, "mode")
        .help("How packets of pods leave the node: shared, through OVN and a bridge with the node's NIC; \
               local, through the host's own routes; disabled, or empty, without a gateway");
    INTERFACE = Spec::new("gateway-interface", INTERFACE_KIND).key(SECTION, "interface")
        .help("A NIC, a bridge of Open vSwitch, or a NIC in such a bridge, to the outside; unless given, \
               that of the default route. A NIC becomes the uplink of a bridge as by nics-to-bridge");
    MOVE_MANAGED = Spec::new("gateway-move-managed-interface", Kind::Switch)
        .key(SECTION, "move-managed-interface").default("false")
        .help("Make a NIC the uplink of a bridge although DHCP, systemd-networkd, NetworkManager or ifupdown \
               configures it: addresses that come back to it are moved again, and a reboot is the \
               administrator's to see to");
    NEXTHOP = Spec::new("gateway-nexthop", NEXT_HOPS).key(SECTION, "next-hop")
        .help("Next routers outside, one of each family; unless given, those of the default routes");
    VLANID = Spec::new("gateway-vlanid", VLAN).key(SECTION, "vlan-id").default("0")
        .help("VLAN of pods' packets outside, in shared mode; 0 for none");
    NODEPORT = Spec::new("nodeport", Kind::Switch).key(SECTION, "nodeport").default("false")
        .help("In shared mode, let the gateway router serve node ports and outer addresses for the world; \
               unless given, the host does");
    FORWARDING = Spec::new("disable-forwarding", Kind::Switch).key(SECTION, "disable-forwarding")
        .default("true")
        .help("Let the host forward to pods nothing but connections to Services, and answers; `false`, which \
               is upstream's default: what other machines route to pods over the node, too");
    CONNTRACK_ZONE = Spec::new("conntrack-zone", ZONE).key("default", "conntrack-zone").default("64000")
        .help("First of the five conntrack zones of the bridge's flows");
    SNAT_MULTIPLE_GWS = Spec::new("disable-snat-multiple-gws", Kind::Switch)
        .key(SECTION, "disable-snat-multiple-gws").default("false")
        .help("Translate the source of each pod for itself at its node's gateway router, instead of that of \
               all pods there; for the control plane and the nodes");
    INIT_GATEWAYS = Spec::new("init-gateways", Kind::Switch).help("Deprecated: --gateway-mode shared");
    GATEWAY_LOCAL = Spec::new("gateway-local", Kind::Switch).aliases(&["gateway-localnet"])
        .help("Deprecated: --gateway-mode local");
}
