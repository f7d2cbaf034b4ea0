//! A policy of the whole cluster of the API, in its three kinds, reduced to the fields in use while
//! it is parsed.

use contract::{
    applied_annotation,
    definition::{ADMIN_NETWORK_POLICY, BASELINE_ADMIN_NETWORK_POLICY, CLUSTER_NETWORK_POLICY},
    names::{BadName, ClusterPolicyKey, ClusterPolicyKind},
};
use kube::api::ObjectMeta;
use kubeapi::{watch::Presence, watched};
use serde::Deserialize;

use crate::{
    kinds::cluster_policy::{condition::Condition as ZoneCondition, object::ClusterPolicy},
    object::specification::Specification,
};

/// A policy of the whole cluster, of the kind that `K` names. Its specification is read later, as
/// that of a NetworkPolicy.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, bound = "K: Default")]
pub struct ClusterPolicyObject<K> {
    #[serde(deserialize_with = "crate::object::metadata::of_cluster_policy")]
    pub metadata: ObjectMeta,
    pub spec: Specification,
    pub status: Specification,
    #[serde(skip)]
    kind: std::marker::PhantomData<K>,
}

/// A [`ClusterPolicyKind`] as a type.
pub trait OfKind {
    const KIND: ClusterPolicyKind;
}

/// [`ClusterPolicyKind::ClusterNetworkPolicy`]
#[derive(Debug, Clone, Copy, Default)]
pub struct OfCluster;
/// [`ClusterPolicyKind::AdminNetworkPolicy`]
#[derive(Debug, Clone, Copy, Default)]
pub struct OfAdmin;
/// [`ClusterPolicyKind::BaselineAdminNetworkPolicy`]
#[derive(Debug, Clone, Copy, Default)]
pub struct OfBaseline;

impl OfKind for OfCluster {
    const KIND: ClusterPolicyKind = ClusterPolicyKind::ClusterNetworkPolicy;
}

impl OfKind for OfAdmin {
    const KIND: ClusterPolicyKind = ClusterPolicyKind::AdminNetworkPolicy;
}

impl OfKind for OfBaseline {
    const KIND: ClusterPolicyKind = ClusterPolicyKind::BaselineAdminNetworkPolicy;
}

impl<K: OfKind> ClusterPolicyObject<K> {
    /// The policy that the object describes.
    ///
    /// # Errors
    /// The name is one that no API server accepts.
    pub fn into_policy(self) -> Result<(ClusterPolicyKey, ClusterPolicy), BadName> {
        let ObjectMeta { name, uid, generation, annotations, .. } = self.metadata;
        let key = ClusterPolicyKey::new(K::KIND, &name.unwrap_or_default())?;
        let uid = uid.unwrap_or_default();
        let mut policy =
            ClusterPolicy::new(K::KIND, &uid, generation.unwrap_or_default(), self.spec);
        policy.reports_applied = applied_annotation::is_asked(&annotations.unwrap_or_default());
        Ok((key, policy.with_conditions(ZoneCondition::of_zones(&self.status))))
    }
}

watched! {
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
}

fn cluster_policy<K: OfKind>(metadata: &ObjectMeta) -> Result<ClusterPolicyKey, String> {
    ClusterPolicyKey::new(K::KIND, metadata.name.as_deref().unwrap_or_default())
        .map_err(|error| error.to_string())
}

fn of_cluster<K: OfKind>(
    object: ClusterPolicyObject<K>,
) -> Result<(ClusterPolicyKey, ClusterPolicy), String> {
    object.into_policy().map_err(|error| error.to_string())
}
