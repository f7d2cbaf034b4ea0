//! A NetworkPolicy of the API, reduced to the fields in use while it is parsed.

use contract::names::{BadName, PolicyKey};
use kube::api::ObjectMeta;
use kubeapi::watched;
use serde::Deserialize;

use crate::{kinds::network_policy::object::Policy, object::specification::Specification};

/// A NetworkPolicy of the API. Its specification is read later, so that one that cannot be read is
/// a policy, too: it must not open the pods that it closes.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct PolicyObject {
    #[serde(deserialize_with = "crate::object::metadata::of_policy")]
    pub metadata: ObjectMeta,
    pub spec: Specification,
}

impl PolicyObject {
    /// The policy that the object describes.
    ///
    /// # Errors
    /// The namespace or the name is one that no API server accepts.
    pub fn into_policy(self) -> Result<(PolicyKey, Policy), BadName> {
        let ObjectMeta {
            name,
            namespace,
            uid,
            annotations,
            creation_timestamp,
            resource_version,
            ..
        } = self.metadata;
        let key = PolicyKey::new(&namespace.unwrap_or_default(), &name.unwrap_or_default())?;
        let policy = Policy::new(&key, &uid.unwrap_or_default(), self.spec);
        let mut policy = policy.annotated(&annotations.unwrap_or_default());
        policy.created = creation_timestamp.map_or(0, |time| time.0.as_second());
        policy.version = resource_version.unwrap_or_default().into();
        Ok((key, policy))
    }
}

watched! {
    PolicyObject, "networkpolicies" at "/apis/networking.k8s.io/v1/networkpolicies",
        PolicyKey = policy, (PolicyKey, Policy) =
        |object: PolicyObject| object.into_policy().map_err(|error| error.to_string());
}

fn policy(metadata: &ObjectMeta) -> Result<PolicyKey, String> {
    let ObjectMeta { namespace, name, .. } = metadata;
    PolicyKey::new(namespace.as_deref().unwrap_or_default(), name.as_deref().unwrap_or_default())
        .map_err(|error| error.to_string())
}
