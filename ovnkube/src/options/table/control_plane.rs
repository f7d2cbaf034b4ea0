//! The leader election of the control plane.

use contract::paths::ELECTION_DIR;

use super::super::{
    kind::Kind,
    spec::{Group, Spec},
    values,
};

/// At most a day: a longer Lease is a mistyped number, and no cluster waits that long for its next
/// leader.
const SECONDS: Kind = Kind::Number { least: 1, most: 86_400 };
const NAMESPACE: Kind =
    Kind::Checked { value_name: "NAMESPACE", check: |text| values::namespace(text).map(drop) };

const fn master(
    name: &'static str,
    key: &'static str,
    default: &'static str,
    help: &'static str,
) -> Spec {
    Spec::new(name, SECONDS).value("SECONDS").key("masterha", key).default(default).help(help)
}

const fn manager(
    name: &'static str,
    key: &'static str,
    default: &'static str,
    help: &'static str,
) -> Spec {
    Spec::new(name, SECONDS).value("SECONDS").key("clustermgrha", key).default(default).help(help)
}

// The defaults 137, 107 and 26 s are upstream's: processes of both programs stand for the same
// Lease with the same times.
options! { Group::ControlPlane;
    HA_ELECTION = Spec::new("ha-election", Kind::Switch).key("masterha", "election").default("true")
        .help("Stand for a Lease; false where an API server has none (before Kubernetes 1.14): \
               then this is the cluster's only control plane, and --pidfile keeps a second one of \
               this host from starting");
    ELECTION_LOCK_DIR = Spec::new("ha-election-lock-dir", Kind::Path).value("DIR")
        .key("masterha", "election-lock-dir").default(ELECTION_DIR)
        .help("Where a process locks a file while it lives: started again after a crash, it leads at once");
    OVN_CONFIG_NAMESPACE = Spec::new("ovn-config-namespace", NAMESPACE)
        .key("kubernetes", "ovn-config-namespace")
        .default("ovn-kubernetes")
        .help("Namespace of this project's own objects: the Lease of the one that leads");
    APPROVE_NODE_CERTIFICATES = Spec::new("approve-node-certificates", Kind::Switch)
        .key("kubernetes", "approve-node-certificates").default("false")
        .help("Approve the certificates that the servers of nodes request (--cert-dir), in a cluster manager \
               that leads");
    NODE_BOOTSTRAP_USERS = Spec::new("node-bootstrap-users", Kind::Text).value("USERS")
        .key("kubernetes", "node-bootstrap-users")
        .help("Users that may request the first certificate of a node besides its kubelet, with commas between \
               them. One whose token is no pod's gets that of any node");
    LEASE_DURATION = master("ha-election-lease-duration", "election-lease-duration", "137",
        "How long others wait for a leader that does not renew its Lease before one of them takes it");
    RENEW_DEADLINE = master("ha-election-renew-deadline", "election-renew-deadline", "107",
        "How long a leader goes on without having renewed it; less than the duration");
    RETRY_PERIOD = master("ha-election-retry-period", "election-retry-period", "26",
        "How often the leader renews it, and others look; less than the deadline");
    MANAGER_LEASE_DURATION = manager("cluster-manager-ha-election-lease-duration", "election-lease-duration",
        "137",
        "--ha-election-lease-duration of a cluster manager in a process of its own");
    MANAGER_RENEW_DEADLINE = manager("cluster-manager-ha-election-renew-deadline", "election-renew-deadline",
        "107",
        "--ha-election-renew-deadline of such a process");
    MANAGER_RETRY_PERIOD = manager("cluster-manager-ha-election-retry-period", "election-retry-period", "26",
        "--ha-election-retry-period of such a process");
}
