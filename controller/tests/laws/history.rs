//! What can happen to a cluster, as data: generated at random, shrunk when a law breaks, and
//! readable when printed.

use proptest::prelude::*;

/// Something that happens. Numbers name nodes and pods.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Step {
    Node(u32),
    /// The node has another chassis: its host was reinstalled.
    NodeReinstalled(u32),
    NodeGone(u32),
    /// The node's annotations are removed; the next `Node` or `Rest` brings them back.
    NodeAnnotationLost(u32),
    /// The node's annotations are overwritten with text that cannot be parsed.
    NodeAnnotationGarbled(u32),
    /// A pod's annotation is removed.
    PodAnnotationLost(u32),
    PodAnnotationGarbled(u32),
    Pod {
        pod: u32,
        node: u32,
    },
    PodEnded(u32),
    PodGone(u32),
    /// A Service comes or changes. `kind`: as `cluster::service` has them.
    Service {
        service: u32,
        kind: u32,
    },
    ServiceGone(u32),
    /// A slice of the Service, with an endpoint on the node.
    Slice {
        slice: u32,
        service: u32,
        node: u32,
    },
    SliceGone(u32),
    /// A policy comes or changes. `kind`: as `policies::objects::policy` has them.
    Policy {
        policy: u32,
        kind: u32,
    },
    PolicyGone(u32),
    /// The EgressFirewall of a namespace comes or changes. `kind`: as `policies::objects::firewall`
    /// has them.
    Firewall {
        namespace: u32,
        kind: u32,
    },
    FirewallGone(u32),
    /// The EgressQoS of a namespace comes or changes. `kind`: as `policies::objects::qos` has them.
    Qos {
        namespace: u32,
        kind: u32,
    },
    QosGone(u32),
    /// The name in rules has another address.
    Resolved(u8),
    NamespaceLabelled {
        namespace: u32,
        label: u32,
    },
    /// The annotation about multicast comes, or goes.
    Multicast {
        namespace: u32,
        is_on: bool,
    },
    NamespaceGone(u32),
    PodLabelled {
        pod: u32,
        label: u32,
    },
    /// The watches broke, and list everything again.
    Relist,
    /// The controller is killed at any point of its work, and started again.
    Restart {
        nodes_first: bool,
    },
    /// The database server is killed at any point of its work, and started again.
    Crash,
    /// Time passes until nothing is left to do.
    Rest,
    Drift(Drift),
    Foreign(Foreign),
}

/// Another writer changes rows of the controller.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Drift {
    PortLosesAddresses(u32),
    PortLosesIds(u32),
    PortGetsOption(u32),
    PortLeavesSwitch(u32),
    PortEntersSwitch {
        pod: u32,
        node: u32,
    },
    /// Adds the port of a pod that is long gone.
    StalePort {
        pod: u32,
        node: u32,
    },
    SwitchGone(u32),
    SwitchRenamed(u32),
    SwitchLosesConfig(u32),
    LinkGone(u32),
    ManagementPortGone(u32),
    RouterPortGone(u32),
    RouteGone(u32),
    ChassisGone(u32),
    AclGone(u32),
    AclTwice(u32),
    GroupsGone,
    GroupsEmptied,
    RouterGone,
    RateChanged,
    MetersGone,
    /// A Service's load balancers get other backends, and stale ones.
    BackendsChanged(u32),
    BalancersGone(u32),
    BalancersTwice(u32),
    /// They leave every group and switch.
    BalancersDetached(u32),
    BalancersLoseOptions(u32),
    /// A pod's port leaves all groups.
    PortLeavesGroups(u32),
    /// A pod's port enters all groups of policies.
    PortEntersGroups(u32),
    /// The groups of policies and of isolated pods.
    PolicyGroupsGone,
    PolicyAclsChanged,
    SetsGone,
    /// Sets lose their addresses, and get others.
    SetsChanged,
}

/// Another writer has rows of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Foreign {
    Switch(u32),
    /// A switch with ports whose names begin like the controller's.
    LookAlike,
    PortOnSwitch(u32),
    AclOnSwitch(u32),
    QosOnSwitch(u32),
    /// A group that refers to the controller's ports.
    Group,
    /// A port with the name that a pod's should have.
    TakesName(u32),
    /// A port with the name that a node's link to the router should have.
    TakesLink(u32),
    ReleasesNames,
}

const NODES: std::ops::Range<u32> = 1..4;
const PODS: std::ops::Range<u32> = 1..7;
const POLICIES: std::ops::Range<u32> = 0..6;
const SERVICES: std::ops::Range<u32> = 1..4;

pub(crate) fn observed() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => NODES.prop_map(Step::Node),
        1 => NODES.prop_map(Step::NodeReinstalled),
        1 => NODES.prop_map(Step::NodeGone),
        1 => NODES.prop_map(Step::NodeAnnotationLost),
        1 => NODES.prop_map(Step::NodeAnnotationGarbled),
        1 => PODS.prop_map(Step::PodAnnotationLost),
        1 => PODS.prop_map(Step::PodAnnotationGarbled),
        8 => (PODS, NODES).prop_map(|(pod, node)| Step::Pod { pod, node }),
        1 => PODS.prop_map(Step::PodEnded),
        3 => PODS.prop_map(Step::PodGone),
        3 => (SERVICES, 0_u32..8).prop_map(|(service, kind)| Step::Service { service, kind }),
        1 => SERVICES.prop_map(Step::ServiceGone),
        3 => (1_u32..6, SERVICES, NODES).prop_map(|(slice, service, node)| Step::Slice { slice, service, node }),
        1 => (1_u32..6).prop_map(Step::SliceGone),
        4 => (POLICIES, 0_u32..8).prop_map(|(policy, kind)| Step::Policy { policy, kind }),
        2 => POLICIES.prop_map(Step::PolicyGone),
        3 => (0_u32..3, 0_u32..6).prop_map(|(namespace, kind)| Step::Firewall { namespace, kind }),
        1 => (0_u32..3).prop_map(Step::FirewallGone),
        2 => (0_u32..3, 0_u32..5).prop_map(|(namespace, kind)| Step::Qos { namespace, kind }),
        1 => (0_u32..3).prop_map(Step::QosGone),
        1 => (0_u8..3).prop_map(Step::Resolved),
        1 => (0_u32..3, 0_u32..2).prop_map(|(namespace, label)| Step::NamespaceLabelled { namespace, label }),
        2 => (0_u32..3, any::<bool>()).prop_map(|(namespace, is_on)| Step::Multicast { namespace, is_on }),
        1 => (0_u32..3).prop_map(Step::NamespaceGone),
        2 => (PODS, 0_u32..2).prop_map(|(pod, label)| Step::PodLabelled { pod, label }),
        1 => Just(Step::Relist),
        4 => Just(Step::Rest),
    ]
}

pub(crate) fn interrupted() -> impl Strategy<Value = Step> {
    prop_oneof![
        8 => observed(),
        1 => any::<bool>().prop_map(|nodes_first| Step::Restart { nodes_first }),
        1 => Just(Step::Crash),
    ]
}

pub(crate) fn drift() -> impl Strategy<Value = Drift> {
    prop_oneof![
        PODS.prop_map(Drift::PortLosesAddresses),
        PODS.prop_map(Drift::PortLosesIds),
        PODS.prop_map(Drift::PortGetsOption),
        PODS.prop_map(Drift::PortLeavesSwitch),
        (PODS, NODES).prop_map(|(pod, node)| Drift::PortEntersSwitch { pod, node }),
        (PODS, NODES).prop_map(|(pod, node)| Drift::StalePort { pod: pod + 50, node }),
        NODES.prop_map(Drift::SwitchGone),
        NODES.prop_map(Drift::SwitchRenamed),
        NODES.prop_map(Drift::SwitchLosesConfig),
        NODES.prop_map(Drift::LinkGone),
        NODES.prop_map(Drift::ManagementPortGone),
        NODES.prop_map(Drift::RouterPortGone),
        NODES.prop_map(Drift::RouteGone),
        NODES.prop_map(Drift::ChassisGone),
        NODES.prop_map(Drift::AclGone),
        NODES.prop_map(Drift::AclTwice),
        Just(Drift::GroupsGone),
        Just(Drift::GroupsEmptied),
        Just(Drift::RouterGone),
        Just(Drift::RateChanged),
        Just(Drift::MetersGone),
        SERVICES.prop_map(Drift::BackendsChanged),
        SERVICES.prop_map(Drift::BalancersGone),
        SERVICES.prop_map(Drift::BalancersTwice),
        SERVICES.prop_map(Drift::BalancersDetached),
        SERVICES.prop_map(Drift::BalancersLoseOptions),
        PODS.prop_map(Drift::PortLeavesGroups),
        PODS.prop_map(Drift::PortEntersGroups),
        Just(Drift::PolicyGroupsGone),
        Just(Drift::PolicyAclsChanged),
        Just(Drift::SetsGone),
        Just(Drift::SetsChanged),
    ]
}

/// Every kind of drift, on different nodes and pods as far as possible.
pub(crate) fn one_of_each() -> Vec<Drift> {
    vec![
        Drift::PortLosesAddresses(1),
        Drift::PortLosesIds(2),
        Drift::PortGetsOption(3),
        Drift::PortLeavesSwitch(4),
        Drift::PortEntersSwitch { pod: 5, node: 1 },
        Drift::StalePort { pod: 51, node: 2 },
        Drift::SwitchGone(1),
        Drift::SwitchRenamed(2),
        Drift::SwitchLosesConfig(3),
        Drift::LinkGone(1),
        Drift::ManagementPortGone(2),
        Drift::RouterPortGone(3),
        Drift::RouteGone(1),
        Drift::ChassisGone(1),
        Drift::AclGone(2),
        Drift::AclTwice(3),
        Drift::GroupsGone,
        Drift::GroupsEmptied,
        Drift::RouterGone,
        Drift::RateChanged,
        Drift::MetersGone,
        Drift::BackendsChanged(1),
        Drift::BalancersGone(2),
        Drift::BalancersTwice(3),
        Drift::BalancersDetached(1),
        Drift::BalancersLoseOptions(2),
        Drift::PortLeavesGroups(1),
        Drift::PortEntersGroups(2),
        Drift::PolicyGroupsGone,
        Drift::PolicyAclsChanged,
        Drift::SetsGone,
        Drift::SetsChanged,
    ]
}

pub(crate) fn foreign() -> impl Strategy<Value = Foreign> {
    prop_oneof![
        NODES.prop_map(Foreign::Switch),
        Just(Foreign::LookAlike),
        NODES.prop_map(Foreign::PortOnSwitch),
        NODES.prop_map(Foreign::AclOnSwitch),
        NODES.prop_map(Foreign::QosOnSwitch),
        Just(Foreign::Group),
        PODS.prop_map(Foreign::TakesName),
        NODES.prop_map(Foreign::TakesLink),
        Just(Foreign::ReleasesNames),
    ]
}

pub(crate) fn anything() -> impl Strategy<Value = Step> {
    prop_oneof![6 => interrupted(), 2 => drift().prop_map(Step::Drift), 2 => foreign().prop_map(Step::Foreign)]
}

/// Histories with many foreign rows and many removals.
pub(crate) fn beside_others() -> impl Strategy<Value = Step> {
    prop_oneof![
        3 => NODES.prop_map(Step::Node),
        3 => NODES.prop_map(Step::NodeGone),
        3 => (PODS, NODES).prop_map(|(pod, node)| Step::Pod { pod, node }),
        1 => PODS.prop_map(Step::PodGone),
        3 => Just(Step::Rest),
        6 => foreign().prop_map(Step::Foreign),
        1 => anything(),
    ]
}
