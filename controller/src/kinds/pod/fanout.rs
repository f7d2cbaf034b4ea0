//! Which keys a change of a pod concerns.

use std::{collections::BTreeSet, net::IpAddr, sync::Arc};

use contract::names::{ClusterPolicyKey, PodKey, PolicyKey};

use crate::{
    allocate::pod_network::Assigned,
    key::{Dirty, Key, NodeName, Scope},
    kinds::pod::{
        object::{Phase, Pod},
        state::Known,
    },
};

/// What the rows of a pod derive from.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct PodFacts {
    uid: Arc<str>,
    node: Option<NodeName>,
    host_network: bool,
    phase: Phase,
    is_static: bool,
    has_unmarked_port: bool,
    network: Option<Arc<Assigned>>,
    /// Those that isolate it.
    policies: Vec<PolicyKey>,
    /// Those of the whole cluster that are about it.
    cluster_policies: Vec<ClusterPolicyKey>,
}

impl PodFacts {
    pub(crate) fn new<'a>(
        Known { pod, network, announced: _, has_unmarked_port }: &Known,
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
            reports_applied: _,
        } = pod;
        Self {
            uid: Arc::clone(uid),
            node: node.clone(),
            host_network: *host_network,
            phase: *phase,
            is_static: config_hash.is_some(),
            has_unmarked_port: *has_unmarked_port,
            network: network.clone(),
            policies: policies.into_iter().cloned().collect(),
            cluster_policies: cluster_policies.into_iter().cloned().collect(),
        }
    }
}

/// Follows a change of a pod; none while it does not exist.
pub(crate) fn pod(
    key: &PodKey,
    before: Option<&PodFacts>,
    after: Option<&PodFacts>,
    dirty: &mut Dirty<'_>,
) {
    if before != after {
        dirty(Key::Pod(key.clone()), Scope::Whole);
    }
    // The node's router port is pinned once the last pod of 2018 is gone.
    if let Some(before) = before.filter(|pod| pod.has_unmarked_port)
        && after.is_none_or(|pod| !pod.has_unmarked_port)
    {
        before.node.iter().for_each(|node| dirty(Key::Node(Arc::clone(node)), Scope::Whole));
    }
}

/// Follows a change of a pod's addresses on its node.
pub(crate) fn translations(
    before: &BTreeSet<(NodeName, IpAddr)>,
    after: &BTreeSet<(NodeName, IpAddr)>,
    dirty: &mut Dirty<'_>,
) {
    for (node, address) in before.symmetric_difference(after) {
        dirty(Key::source_nat(Arc::clone(node), *address), Scope::Whole);
    }
}
