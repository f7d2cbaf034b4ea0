//! The rows of a pod: what OVN should know about it.
//!
//! Column values follow ovn-nb(5), "Logical_Switch_Port TABLE".

use std::collections::BTreeMap;

use contract::{
    names::{IfaceId, Network, PodKey, PolicyKey},
    ovn::{self, ObjectId},
};

use crate::{
    rows::{
        Pairs, RowName, RowSet, SwitchPort,
        port_group::{cluster_policy_groups, group_name},
        switch_port::{Kind, REQUESTED_CHASSIS, port_addresses},
    },
    select::peer::Direction,
    world::Store,
};

/// The rows of pod `key`: one logical switch port on its node's switch, in the groups of its
/// policies, or none.
///
/// None while the pod has no node in this zone, uses the host network, has ended, or has no address
/// yet. Rows from before are removed by the same rule, unless they are [kept](Store::kept): without
/// its namespace a pod gets no port, and one that exists stays.
pub fn pod(store: &Store, key: &PodKey) -> RowSet {
    let Some(pod) = store.pod(key).filter(|pod| pod.needs_network()) else { return Vec::new() };
    let (Some(node), Some(assigned)) = (&pod.node, store.assigned(key)) else { return Vec::new() };
    let Some(node) =
        store.node(node).filter(|node| store.is_local(&node.name) && !node.subnets.is_empty())
    else {
        return Vec::new();
    };
    // Which policies of the cluster are about the pod is not known without its namespace, which
    // always exists. The watch of pods may be ahead of that of namespaces by minutes.
    if !store.knows_namespace(key.namespace()) {
        return Vec::new();
    }
    let addresses = port_addresses(assigned.mac, &assigned.addresses);

    let uid = ("iface-id-ver", pod.uid.to_string());
    // A static pod's interface has the UID of the mirror pod that existed when its sandbox began,
    // and outlives that mirror. The present mirror's UID could unbind it. An interface of 2018 has
    // none.
    let is_of_2018 = store.has_unmarked_port(key);
    let is_unmarked = pod.config_hash.is_some() || is_of_2018;
    // ovn-controller binds only an interface with the same `iface-id-ver`: this pod's, not that of
    // a predecessor of the same name.
    let mut options = if is_unmarked {
        Pairs { without: &["iface-id-ver"], alike: [uid].into(), ..Pairs::default() }
    } else {
        Pairs::from([uid])
    };
    if is_of_2018 && node.chassis.is_none() {
        // No server has told OVN the node's name yet, and the hostname may be another one.
    } else if store.config.requested_chassis {
        // Only this chassis may bind the port, so a stale sandbox elsewhere cannot claim it. OVN
        // matches a chassis by its id or its hostname, which is the node's name. The hostname
        // outlives the id. An id that upstream of 2026 wrote means the same and stays.
        options.with.insert(REQUESTED_CHASSIS, node.name.to_string());
        options.alike.extend(node.chassis.clone().map(|chassis| (REQUESTED_CHASSIS, chassis)));
    } else {
        options.without =
            if is_unmarked { &["iface-id-ver", REQUESTED_CHASSIS] } else { &[REQUESTED_CHASSIS] };
    }
    let policies = store.policies_of(key);
    let isolating = isolating_groups(store, key.namespace(), policies.iter().copied());
    let of_cluster = cluster_policy_groups(store.cluster_policies_of(key));
    let of_namespace = group_of(store, key.namespace());
    // Port security drops what the pod sends with other addresses than these.
    let port = SwitchPort {
        port_security: Some(addresses.clone()),
        options,
        groups: isolating.into_iter().chain(of_cluster).chain(of_namespace).collect(),
        // What a policy of the namespace allows may come later. A policy whose rows cannot be
        // written keeps no pod from starting, or from being isolated by another one.
        allowing: policies.iter().map(|policy| group_name(&ObjectId::policy(policy))).collect(),
        external_ids: BTreeMap::from([
            ("namespace", key.namespace().to_owned()),
            ("pod", "true".to_owned()),
        ]),
        ..SwitchPort::new(
            ovn::node_switch(&node.name),
            IfaceId::new(key, &Network::Default).as_str(),
            Kind::Interface { addresses },
        )
    };
    vec![port.into()]
}

/// The groups of its namespace that isolate a pod, given the policies that select it.
pub(crate) fn isolating_groups<'a>(
    store: &Store,
    namespace: &str,
    policies: impl Iterator<Item = &'a PolicyKey> + Clone,
) -> Vec<RowName> {
    let isolates = |direction| {
        let mut policies = policies.clone().filter_map(|key| store.policy(key));
        policies.any(|policy| policy.isolates(direction))
    };
    let directions = Direction::ALL.into_iter().filter(|direction| isolates(*direction));
    directions
        .map(|direction| group_name(&ObjectId::isolated(namespace, direction.as_str())))
        .collect()
}

/// The group of the namespace's pods, if something is about them.
pub(crate) fn group_of(store: &Store, namespace: &str) -> Option<RowName> {
    store.has_namespace_group(namespace).then(|| group_name(&ObjectId::namespace_group(namespace)))
}
