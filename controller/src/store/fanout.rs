//! Which keys a change of an object concerns: the one table of the fan-out.
//!
//! | change | keys |
//! |---|---|
//! | node: what its rows derive from | the node |
//! | node: what the rows of its gateway derive from | its gateway |
//! | node: zone, chassis or subnets | the node and its pods |
//! | node: has a switch in this zone from now on, or no longer | the Services whose load balancers depend on the nodes |
//! | such a node: addresses | the Services with NodePorts; if it has a gateway router, those of which a changed address is an endpoint |
//! | such a node: zone of the data centre | the Services with hints for zones |
//! | the same three, if NodePorts are templates | the Services whose NodePorts are templates only if there are more or fewer addresses |
//! | such a node: chassis or addresses, with templates | the variables of its chassis |
//! | Service: the first with a NodePort that is a template | the variables of each chassis |
//! | Service, slice, such a node's addresses: NodePorts that are templates have, or had, hosts as backends | the variables of each chassis |
//! | the last node whose chassis was not known: known, or gone | the variables of each chassis that no node has any longer |
//! | gateway router of a node: came or went | the node, and the Services whose load balancers depend on the nodes |
//! | Service, slice: came, went, or any field that is kept | the Service; others that serve an address and port of it from now on, or no longer; others of its namespace that fit into the namespace's bounds from now on, or no longer |
//! | node, API server, range of Services: came, went, or addresses | the Services with these in `externalIPs` |
//! | node: what the rows of its gateway derive from, where each pod is translated | the translation of each of its pods' addresses |
//! | pod: has an address on a node, or has it no longer, where each pod is translated | the translation of that address |
//! | pod: came, went, or what its row derives from, its network and its policies included | the pod |
//! | pod: an address came into a set, or left it | that address of the set |
//! | pod: the first or last of its namespace with this number for a named port | policies that name the port, the set |
//! | namespace: labels | policies with such namespaces as peers, the set of it; its pods' addresses in sets by both labels |
//! | namespace: how its policies are logged | the isolation of the namespace, its policies, its EgressFirewall |
//! | policy: came, went, or any field | the policy; the sets that it names from now on; the pods that it isolates from now on, or no longer, or in other directions |
//! | node: came or went, labels, addresses | the sets of such nodes |
//! | policy of the whole cluster: came, went, or any field | the policy; the sets that it names from now on; the pods that it is about from now on, or no longer; those behind it in the last tier, if it needs more or fewer levels |
//! | namespace: labels | also: its pods that such policies are about from now on, or no longer |
//! | EgressFirewall: came, went, or any field but the status | the EgressFirewall |
//! | namespace: has multicast from now on, or no longer | the namespace, the set of it |
//! | namespace: its pods have a group from now on, or no longer, for an EgressFirewall with rules or for multicast | the namespace and its pods |
//! | EgressFirewall: has a name from now on, or no longer | the addresses of the name |
//! | answer of the DNS: others than the last one | the addresses of the name |
//! | node: came or went, labels, addresses | the EgressFirewalls with rules about such nodes |
//! | policy: the first or last of a namespace | the isolation of the namespace |
//!
//! A change of what no row derives from, such as the arrival of a pod's own annotation, concerns no key.
//! Knows objects before and after a change; neither rows nor the database.

use std::{collections::BTreeSet, net::IpAddr, sync::Arc};

use contract::names::{ClusterPolicyKey, PodKey, PolicyKey, ServiceKey};

use super::{
    EgressFirewall, Node, Phase, Pod,
    pods::{Known, Pods},
    services::Services,
};
use crate::{
    allocate::pod_network::Assigned,
    key::{Dirty, Key, NodeName, Scope, SetId},
};

/// What the rows of a pod derive from.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct PodFacts {
    uid: Arc<str>,
    node: Option<NodeName>,
    host_network: bool,
    phase: Phase,
    is_static: bool,
    network: Option<Arc<Assigned>>,
    /// Those that isolate it.
    policies: Vec<PolicyKey>,
    /// Those of the whole cluster that are about it.
    cluster_policies: Vec<ClusterPolicyKey>,
}

impl PodFacts {
    pub(super) fn new<'a>(
        Known { pod, network, announced: _ }: &Known,
        policies: impl IntoIterator<Item = &'a PolicyKey>,
        cluster_policies: impl IntoIterator<Item = &'a ClusterPolicyKey>,
    ) -> Self {
        let Pod {
            uid,
            node,
            host_network,
            phase,
            config_hash,
            created: _,
            annotated: _,
            reported: _,
            other_networks: _,
            texts: _,
            ports: _,
            labels: _,
        } = pod;
        Self {
            uid: Arc::clone(uid),
            node: node.clone(),
            host_network: *host_network,
            phase: *phase,
            is_static: config_hash.is_some(),
            network: network.clone(),
            policies: policies.into_iter().cloned().collect(),
            cluster_policies: cluster_policies.into_iter().cloned().collect(),
        }
    }
}

/// What NodePorts depend on.
#[derive(Debug, Clone, Copy)]
pub(super) enum NodePorts {
    ByNode,
    /// The largest number of addresses of a node, which is another one now, or not.
    Templates {
        more_or_fewer: bool,
    },
}

/// A node before and after a change; none while it does not exist.
#[derive(Debug, Clone, Copy)]
pub(super) struct Change<'a> {
    pub(super) before: Option<&'a Node>,
    pub(super) after: Option<&'a Node>,
    /// Whether its switch was in this zone's database before, and is now.
    pub(super) is_local: [bool; 2],
    pub(super) has_gateway_router: bool,
    /// Whether each pod's address is translated for itself.
    pub(super) snat_per_pod: bool,
}

impl<'a> Change<'a> {
    /// The node as Services see it: none while its switch is not in this zone's database.
    fn local(&self) -> [Option<&'a Node>; 2] {
        let [was, is] = self.is_local;
        [self.before.filter(|_| was), self.after.filter(|_| is)]
    }
}

/// Follows a change of the node `name`.
pub(super) fn node(
    name: &NodeName,
    change: Change<'_>,
    pods: &Pods,
    services: &Services,
    node_ports: NodePorts,
    dirty: &mut Dirty<'_>,
) {
    load_balancers(change, services, node_ports, dirty);
    if matches!(node_ports, NodePorts::Templates { .. }) {
        variables(change, dirty);
    }
    let both = change.before.zip(change.after);
    if gateway_differs(change.before, change.after) {
        gateway(name, pods, change.snat_per_pod, dirty);
    }
    if both.is_some_and(|(before, after)| before.same_rows(after)) {
        return;
    }
    dirty(Key::Node(Arc::clone(name)), Scope::Whole);
    if both.is_some_and(|(before, after)| before.same_for_pods(after)) {
        return;
    }
    for pod in pods.of_node(name) {
        dirty(Key::Pod(pod.clone()), Scope::Whole);
    }
}

/// The rows of the node's gateway may have changed.
pub(super) fn gateway(name: &NodeName, pods: &Pods, snat_per_pod: bool, dirty: &mut Dirty<'_>) {
    dirty(Key::Gateway(Arc::clone(name)), Scope::Whole);
    let known = pods.of_node(name).filter(|_| snat_per_pod).filter_map(|pod| pods.get(pod));
    for address in known.filter_map(|known| known.network.as_ref()).flat_map(|network| &network.addresses) {
        dirty(Key::source_nat(Arc::clone(name), address.addr()), Scope::Whole);
    }
}

/// Whether the rows of the node's gateway may have changed. Without a mode, those that exist stay, and there
/// are no others.
fn gateway_differs(before: Option<&Node>, after: Option<&Node>) -> bool {
    match (before, after) {
        (Some(before), Some(after)) => {
            let without_mode =
                before.gateway.is_none() && after.gateway.is_none() && before.zone == after.zone;
            !without_mode && !before.same_gateway(after)
        }
        (None, Some(after)) => after.gateway.is_some(),
        (_, None) => true,
    }
}

/// The Services that a change of a node concerns.
fn load_balancers(change: Change<'_>, services: &Services, node_ports: NodePorts, dirty: &mut Dirty<'_>) {
    let mut concerned: BTreeSet<&ServiceKey> = BTreeSet::new();
    let mut templates = matches!(node_ports, NodePorts::Templates { more_or_fewer: true });
    match change.local() {
        [None, None] => {}
        [Some(before), Some(after)] => {
            if !before.same_addresses(after) {
                concerned.extend(services.at_nodes());
                templates |= matches!(node_ports, NodePorts::ByNode);
                if change.has_gateway_router {
                    let [before, after] = [before, after].map(|node| &node.host_addresses);
                    let gone = before.iter().filter(|address| !after.contains(address));
                    let came = after.iter().filter(|address| !before.contains(address));
                    concerned.extend(gone.chain(came).flat_map(|address| services.with_endpoint(address)));
                }
            }
            if before.topology_zone != after.topology_zone {
                concerned.extend(services.of_zones());
            }
        }
        // Links of its switch, at the least.
        [Some(_), None] | [None, Some(_)] => {
            concerned.extend(services.per_node());
            templates |= matches!(node_ports, NodePorts::ByNode);
        }
    }
    if templates {
        concerned.extend(services.node_ports());
    }
    concerned.into_iter().for_each(|service| dirty(Key::Service(service.clone()), Scope::Whole));
}

/// The variables that a change of a node concerns.
fn variables(change: Change<'_>, dirty: &mut Dirty<'_>) {
    let [before, after] = change.local();
    let is_same =
        |(before, after): (&Node, &Node)| before.same_addresses(after) && before.chassis == after.chassis;
    if before.zip(after).is_some_and(is_same) {
        return;
    }
    let chassis = [before, after].into_iter().flatten().filter_map(|node| node.chassis.as_deref());
    chassis.for_each(|name| dirty(Key::Chassis(name.into()), Scope::Whole));
}

/// Whether variables may stand for backends one of which is an address that the node has from now on, or no
/// longer.
pub(super) fn has_variables(change: Change<'_>, services: &Services) -> bool {
    let [before, after] = change.local().map(|node| node.map_or(&[][..], |node| &node.host_addresses[..]));
    let gone = before.iter().filter(|address| !after.contains(address));
    let came = after.iter().filter(|address| !before.contains(address));
    gone.chain(came).any(|address| services.has_variables_with(address))
}

/// The variables of these chassis.
pub(super) fn chassis(chassis: BTreeSet<Arc<str>>, dirty: &mut Dirty<'_>) {
    chassis.into_iter().for_each(|name| dirty(Key::Chassis(name), Scope::Whole));
}

/// Follows a change of a pod; none while it does not exist.
pub(super) fn pod(key: &PodKey, before: Option<&PodFacts>, after: Option<&PodFacts>, dirty: &mut Dirty<'_>) {
    if before != after {
        dirty(Key::Pod(key.clone()), Scope::Whole);
    }
}

/// Follows a change of a pod's addresses on its node.
pub(super) fn translations(
    before: &BTreeSet<(NodeName, IpAddr)>,
    after: &BTreeSet<(NodeName, IpAddr)>,
    dirty: &mut Dirty<'_>,
) {
    for (node, address) in before.symmetric_difference(after) {
        dirty(Key::source_nat(Arc::clone(node), *address), Scope::Whole);
    }
}

/// Follows a change of a policy. `sets`: those that it names from now on. `pods`: those whose isolation may be
/// another one.
pub(super) fn policy<'a>(
    key: &PolicyKey,
    is_isolation_new: bool,
    sets: impl Iterator<Item = &'a SetId>,
    pods: impl IntoIterator<Item = &'a PodKey>,
    dirty: &mut Dirty<'_>,
) {
    dirty(Key::Policy(key.clone()), Scope::Whole);
    if is_isolation_new {
        dirty(Key::Isolation(key.namespace().into()), Scope::Whole);
    }
    sets.for_each(|set| dirty(Key::Set(set.clone()), Scope::Whole));
    pods.into_iter().for_each(|pod| dirty(Key::Pod(pod.clone()), Scope::Whole));
}

/// Follows a change of an EgressFirewall.
pub(super) fn egress_firewall(namespace: &Arc<str>, dirty: &mut Dirty<'_>) {
    dirty(Key::EgressFirewall(Arc::clone(namespace)), Scope::Whole);
}

/// The namespace is known from now on, and its pods have waited for it; or it is no longer, and their ports stay
/// as they are.
pub(super) fn namespace<'a>(pods: impl Iterator<Item = &'a PodKey>, dirty: &mut Dirty<'_>) {
    pods.for_each(|pod| dirty(Key::Pod(pod.clone()), Scope::Whole));
}

/// The lists of all that denies are accepted again: pods without a port have waited for them.
pub(super) fn denials<'a>(pods: impl Iterator<Item = &'a PodKey>, dirty: &mut Dirty<'_>) {
    pods.for_each(|pod| dirty(Key::Pod(pod.clone()), Scope::Whole));
}

/// The namespace has multicast from now on, or no longer.
pub(super) fn multicast(namespace: &Arc<str>, dirty: &mut Dirty<'_>) {
    dirty(Key::Set(SetId::Namespace(Arc::clone(namespace))), Scope::Whole);
    dirty(Key::Namespace(Arc::clone(namespace)), Scope::Whole);
}

/// The pods of the namespace have a group from now on, or no longer.
pub(super) fn namespace_group<'a>(
    namespace: &Arc<str>,
    pods: impl Iterator<Item = &'a PodKey>,
    dirty: &mut Dirty<'_>,
) {
    dirty(Key::Namespace(Arc::clone(namespace)), Scope::Whole);
    pods.for_each(|pod| dirty(Key::Pod(pod.clone()), Scope::Whole));
}

/// Policies and rules of the namespace are logged in another way.
pub(super) fn logging(
    namespace: &Arc<str>,
    policies: &[&PolicyKey],
    firewall: Option<&EgressFirewall>,
    dirty: &mut Dirty<'_>,
) {
    if firewall.is_some() {
        dirty(Key::EgressFirewall(Arc::clone(namespace)), Scope::Whole);
    }
    if !policies.is_empty() {
        dirty(Key::Isolation(Arc::clone(namespace)), Scope::Whole);
    }
    policies.iter().for_each(|policy| dirty(Key::Policy((*policy).clone()), Scope::Whole));
}

/// The gateway routers of these nodes came or went. A node's ways to hosts depend on it, if nothing else says
/// what gateway it has.
pub(super) fn gateway_routers<'a>(nodes: impl Iterator<Item = &'a NodeName>, dirty: &mut Dirty<'_>) {
    nodes.for_each(|name| dirty(Key::Node(Arc::clone(name)), Scope::Whole));
}

/// The nodes' load balancers of these Services may have changed.
pub(super) fn per_node<'a>(services: impl Iterator<Item = &'a ServiceKey>, dirty: &mut Dirty<'_>) {
    services.for_each(|service| dirty(Key::Service(service.clone()), Scope::Whole));
}

/// Rows that a Service does not want may have been kept, of any Service.
pub(super) fn services(services: &Services, dirty: &mut Dirty<'_>) {
    services.iter().for_each(|(service, _)| dirty(Key::Service(service.clone()), Scope::Whole));
}

/// Follows a change of a Service.
pub(super) fn service(key: &ServiceKey, dirty: &mut Dirty<'_>) {
    dirty(Key::Service(key.clone()), Scope::Whole);
}

/// Follows a change of a slice of this Service.
pub(super) fn slice(service: &ServiceKey, dirty: &mut Dirty<'_>) {
    dirty(Key::Service(service.clone()), Scope::Whole);
}
