//! The network of this node's pods.

use super::super::{
    kind::Kind,
    networks,
    spec::{Group, Spec},
    values,
};

const SECTION: &str = "default";
const MTU_KIND: Kind =
    Kind::Checked { value_name: "BYTES", check: |text| values::mtu(text).map(drop) };
const MTU_OR_NONE: Kind =
    Kind::Checked { value_name: "BYTES", check: |text| values::mtu_or_none(text).map(drop) };
const NETWORKS: Kind = Kind::Checked {
    value_name: "CIDRS",
    check: |text| networks::one_of_each_family(text).map(drop),
};
const NODE_MODE: Kind = Kind::Checked { value_name: "MODE", check: values::node_mode };

options! { Group::Pods;
    MTU = Spec::new("mtu", MTU_KIND).key(SECTION, "mtu").default("1400")
        .help("MTU of pods: 1500 less what geneve adds");
    ROUTABLE_MTU = Spec::new("routable-mtu", MTU_OR_NONE).key(SECTION, "routable-mtu").default("0")
        .help("MTU of pods' default routes, where it is less than the link's; 0 for the same");
    NODE_MODE_OPTION = Spec::new("ovnkube-node-mode", NODE_MODE).key("ovnkubenode", "mode").default("full")
        .help("How the node's network is divided between host and DPU; this version knows full, where it is \
               not");
    NODE_SUBNETS = Spec::new("node-subnets", NETWORKS).key(SECTION, "node-subnets")
        .help("This node's subnets, one of each family, where pods come from --pod-manifests: for its \
               management port");
    STALE_AFTER = Spec::new("stale-after", Kind::NUMBER).value("SECONDS").key("ovnkubenode", "stale-after")
        .default("30")
        .help("Remove what is left of a pod's network this long after it was first found without its pod or \
               its interface, or 2 s where Open vSwitch misses the interface, too; 0 for never");
    UNPRIVILEGED_MODE = Spec::new("unprivileged-mode", Kind::Switch).default("false")
        .help("Need no privileges over the host's network")
        .never("says what is always so: the plugin configures the pods' network");
}
