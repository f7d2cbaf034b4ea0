//! The kinds of objects that only the control plane watches.

use std::sync::Arc;

use contract::{
    definition::{
        ADMIN_NETWORK_POLICY, BASELINE_ADMIN_NETWORK_POLICY, CLUSTER_NETWORK_POLICY, EGRESS_FIREWALL,
    },
    names::{ClusterPolicyKey, PodKey, PolicyKey, of_egress_firewall},
};
use kube::api::ObjectMeta;
use kubeapi::{watch::Presence, watched};

use super::{
    ClusterPolicyObject, EgressFirewallObject, NamespaceObject, NodeObject, OfAdmin, OfBaseline, OfCluster,
    OfKind, PodObject, PolicyObject,
};
use crate::{
    key::NodeName,
    store::{ClusterPolicy, EgressFirewall, Namespace, Node, Pod, Policy},
};

watched! {
    NodeObject, "nodes" at "/api/v1/nodes", NodeName = node, Node =
        |object: NodeObject| Ok(object.into_node());
    PodObject, "pods" at "/api/v1/pods", PodKey = pod, (PodKey, Pod) =
        |object: PodObject| object.into_pod().map_err(|error| error.to_string());
    NamespaceObject, "namespaces" at "/api/v1/namespaces", Arc<str> = node, (Arc<str>, Namespace) =
        |object: NamespaceObject| Ok(object.into_namespace());
    PolicyObject, "networkpolicies" at "/apis/networking.k8s.io/v1/networkpolicies",
        PolicyKey = policy, (PolicyKey, Policy) =
        |object: PolicyObject| object.into_policy().map_err(|error| error.to_string());
    ClusterPolicyObject<OfCluster>, "clusternetworkpolicies" at
        "/apis/policy.networking.k8s.io/v1beta1/clusternetworkpolicies",
        ClusterPolicyKey = cluster_policy::<OfCluster>, (ClusterPolicyKey, ClusterPolicy) = of_cluster,
        Presence::Defined(&CLUSTER_NETWORK_POLICY);
    ClusterPolicyObject<OfAdmin>, "adminnetworkpolicies" at
        "/apis/policy.networking.k8s.io/v1alpha1/adminnetworkpolicies",
        ClusterPolicyKey = cluster_policy::<OfAdmin>, (ClusterPolicyKey, ClusterPolicy) = of_cluster,
        Presence::Defined(&ADMIN_NETWORK_POLICY);
    ClusterPolicyObject<OfBaseline>, "baselineadminnetworkpolicies" at
        "/apis/policy.networking.k8s.io/v1alpha1/baselineadminnetworkpolicies",
        ClusterPolicyKey = cluster_policy::<OfBaseline>, (ClusterPolicyKey, ClusterPolicy) = of_cluster,
        Presence::Defined(&BASELINE_ADMIN_NETWORK_POLICY);
    EgressFirewallObject, "egressfirewalls" at "/apis/k8s.ovn.org/v1/egressfirewalls",
        Arc<str> = egress_firewall, (Arc<str>, EgressFirewall) =
        |object: EgressFirewallObject| object.into_firewall().map_err(|error| error.to_string()),
        Presence::Defined(&EGRESS_FIREWALL);
}

/// Of namespaces, too.
fn node(metadata: &ObjectMeta) -> Result<NodeName, String> {
    Ok(metadata.name.as_deref().filter(|name| !name.is_empty()).ok_or("it has no name")?.into())
}

fn pod(metadata: &ObjectMeta) -> Result<PodKey, String> {
    let ObjectMeta { namespace, name, .. } = metadata;
    PodKey::new(namespace.as_deref().unwrap_or_default(), name.as_deref().unwrap_or_default())
        .map_err(|error| error.to_string())
}

fn policy(metadata: &ObjectMeta) -> Result<PolicyKey, String> {
    let ObjectMeta { namespace, name, .. } = metadata;
    PolicyKey::new(namespace.as_deref().unwrap_or_default(), name.as_deref().unwrap_or_default())
        .map_err(|error| error.to_string())
}

fn cluster_policy<K: OfKind>(metadata: &ObjectMeta) -> Result<ClusterPolicyKey, String> {
    ClusterPolicyKey::new(K::KIND, metadata.name.as_deref().unwrap_or_default())
        .map_err(|error| error.to_string())
}

fn egress_firewall(metadata: &ObjectMeta) -> Result<Arc<str>, String> {
    let ObjectMeta { namespace, name, .. } = metadata;
    of_egress_firewall(namespace.as_deref().unwrap_or_default(), name.as_deref().unwrap_or_default())
        .map_err(|error| error.to_string())
}

fn of_cluster<K: OfKind>(
    object: ClusterPolicyObject<K>,
) -> Result<(ClusterPolicyKey, ClusterPolicy), String> {
    object.into_policy().map_err(|error| error.to_string())
}
