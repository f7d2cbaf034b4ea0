//! The role of a process, and the source of its options.

use super::super::{
    kind::Kind,
    spec::{Group, Spec},
    values,
};

pub(in crate::options) const NODE_NAME: Kind =
    Kind::Checked { value_name: "NODE", check: |text| values::node_name(text).map(drop) };

options! { Group::Roles;
    INIT_NODE = Spec::new("init-node", NODE_NAME)
        .help("Serve the pods of this node: answer the CNI plugin and write its configuration");
    INIT_MASTER = Spec::new("init-master", NODE_NAME)
        .help("Be the control plane: give subnets to nodes, and write what pods and nodes need into OVN's \
               northbound database. NODE is this machine's name, which tells it from others that stand by");
    INIT_CLUSTER_MANAGER = Spec::new("init-cluster-manager", NODE_NAME)
        .help("Be only the half of it that gives subnets to nodes");
    INIT_OVNKUBE_CONTROLLER = Spec::new("init-ovnkube-controller", NODE_NAME)
        .aliases(&["init-network-controller-manager"])
        .help("Be only the half of it that writes OVN's northbound database");
    REMOVE_NODE = Spec::new("remove-node", NODE_NAME)
        .help("Remove what OVN's databases have of this node, which has left the cluster, say what that was, \
               and exit");
    ADOPT = Spec::new("adopt", Kind::Switch)
        .help("Take over a northbound database of the programs of 2016 to 2018, as --init-master \
               does at its start, say what changes, and exit");
    DRY_RUN = Spec::new("dry-run", Kind::Switch).default("false")
        .help("With --adopt: only print the rows and nodes that would change");
    CLEANUP_NODE = Spec::new("cleanup-node", NODE_NAME)
        .help("Remove what --init-node made on this machine, and exit; no pod's network is touched");
    EVERYTHING = Spec::new("all", Kind::Switch).default("false")
        .help("With --cleanup-node: remove the interfaces of all pods, br-int and the bridges of nics-to-bridge, too. \
               Stop ovn-controller first");
    HAND_BACK_NODE = Spec::new("hand-back-node", NODE_NAME)
        .help("Remove from this machine the rules that only this program has, and exit: upstream's programs run the \
               node from now on, and change none of them");
    PRINT_CONFIG = Spec::new("print-config", Kind::Switch)
        .help("Print every option with its value and with the place that it comes from, and exit");
    CONFIG_FILE = Spec::new("config-file", Kind::Path).default("/etc/openvswitch/ovn_k8s.conf")
        .help("Read further options from this file; it has to be there if it is given here");
    PIDFILE = Spec::new("pidfile", Kind::Path).help("Write the process id to this file");
    NET_CONTROLLER = Spec::new("net-controller", Kind::Switch).default("false")
        .help("Open the databases of this host that have a tcp: address in --nb-address and \
               --sb-address, as --open-databases does: the command lines of 2018 rely on it. What \
               else it did, a controller does without it");
    HA = Spec::new("ha", Kind::Switch).help("Rebuild OVN's databases after a failover")
        .never("was an experiment of 2018");
}
