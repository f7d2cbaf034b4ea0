//! The plain manifests, strictly parsed.

use std::{
    fmt::Debug,
    fs,
    path::{Path, PathBuf},
};

use k8s_openapi::{
    api::{
        admissionregistration::v1::{ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding},
        apps::v1::DaemonSet,
        core::v1::{ConfigMap, Container, Namespace, ServiceAccount},
        rbac::v1::{ClusterRole, ClusterRoleBinding},
    },
    serde::{Serialize, de::DeserializeOwned},
};
use serde_json::Value;
use testkit::executable;

/// The objects of the manifests.
pub(crate) struct Manifests {
    pub(crate) namespace: Namespace,
    pub(crate) account: ServiceAccount,
    pub(crate) role: ClusterRole,
    pub(crate) binding: ClusterRoleBinding,
    pub(crate) policy: ValidatingAdmissionPolicy,
    pub(crate) policy_binding: ValidatingAdmissionPolicyBinding,
    pub(crate) config: ConfigMap,
    pub(crate) daemon_set: DaemonSet,
}

pub(crate) fn conf(file: &str) -> PathBuf {
    executable::workspace().join("conf").join(file)
}

pub(crate) fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The documents of a YAML text; empty ones do not count.
pub(crate) fn documents(text: &str) -> Vec<Value> {
    let parsed = serde_yaml_ng::Deserializer::from_str(text)
        .map(|document| serde::Deserialize::deserialize(document).unwrap());
    parsed.filter(|document: &Value| !document.is_null()).collect()
}

impl Manifests {
    pub(crate) fn plain() -> Self {
        Self::of(&documents(&read(&conf("kubernetes/ovn-kubernetes-node.yaml"))))
    }

    /// From exactly these objects in this order: each needs those before it.
    pub(crate) fn of(documents: &[Value]) -> Self {
        let [namespace, account, role, binding, policy, policy_binding, config, daemon_set] =
            documents
        else {
            panic!("other objects: {documents:#?}")
        };
        Self {
            namespace: strictly(namespace),
            account: strictly(account),
            role: strictly(role),
            binding: strictly(binding),
            policy: strictly(policy),
            policy_binding: strictly(policy_binding),
            config: strictly(config),
            daemon_set: strictly(daemon_set),
        }
    }

    /// The only container.
    pub(crate) fn container(&self) -> &Container {
        let pod = self.daemon_set.spec.as_ref().unwrap().template.spec.as_ref().unwrap();
        let [container] = &pod.containers[..] else { panic!("{:#?}", pod.containers) };
        container
    }
}

/// The object, if the API knows every field of the document: the type drops unknown ones, so the
/// copy would differ.
pub(crate) fn strictly<T: DeserializeOwned + Serialize + Debug>(document: &Value) -> T {
    let object: T = serde_json::from_value(document.clone())
        .unwrap_or_else(|error| panic!("{error}: {document:#}"));
    let understood = serde_json::to_value(&object).unwrap();
    assert_eq!(understood, *document, "a field that the API does not have");
    object
}
