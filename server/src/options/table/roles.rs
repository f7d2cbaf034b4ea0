//! What a process is to be, and where its options come from.

use super::super::{
    kind::Kind,
    spec::{Group, Part, Spec},
    values,
};

pub(in crate::options) const NODE_NAME: Kind = Kind::Checked { value_name: "NODE", check: |text| values::node_name(text).map(drop) };

/// A role that is not part of this version.
const fn role(name: &'static str, help: &'static str) -> Spec {
    Spec::new(name, Kind::Text).value("NODE").help(help).later(Part::ControlPlane)
}

options! { Group::Roles;
    INIT_NODE = Spec::new("init-node", NODE_NAME).help("Serve the pods of this node: answer the CNI plugin and write its configuration");
    CLEANUP_NODE = Spec::new("cleanup-node", NODE_NAME)
        .help("Remove what --init-node made on this machine, and exit; no pod's network is touched");
    PRINT_CONFIG = Spec::new("print-config", Kind::Switch)
        .help("Print every option with its value and with the place that it comes from, and exit");
    CONFIG_FILE = Spec::new("config-file", Kind::Path).default("/etc/openvswitch/ovn_k8s.conf")
        .help("Read further options from this file; it has to be there if it is given here");
    PIDFILE = Spec::new("pidfile", Kind::Path).help("Write the process id to this file");
    INIT_MASTER = role("init-master", "Be the cluster manager and the controller of OVN's databases");
    INIT_CLUSTER_MANAGER = role("init-cluster-manager", "Be the cluster manager, which gives subnets to nodes");
    INIT_OVNKUBE_CONTROLLER = role("init-ovnkube-controller", "Be the controller of OVN's databases")
        .aliases(&["init-network-controller-manager"]);
    REMOVE_NODE = role("remove-node", "Remove a node from OVN's databases, and exit");
    NET_CONTROLLER = Spec::new("net-controller", Kind::Switch).help("Watch pods, services and policies")
        .never("is implied by the controller's role since 2019");
    HA = Spec::new("ha", Kind::Switch).help("Rebuild OVN's databases after a failover").never("was an experiment of 2018");
}

/// Roles that are not part of this version.
pub(in crate::options) const ABSENT: [&str; 4] = ["init-master", "init-cluster-manager", "init-ovnkube-controller", "remove-node"];
