//! What the programs under test may do in the cluster: exactly what their deployment grants
//! (`conf/kubernetes`).

use std::collections::BTreeSet;

use anyhow::{Context as _, Result};
use serde::Deserialize as _;
use serde_json::{Value, json};

use super::{api::Api, credentials::Credentials};

/// The deployment on nodes, as administrators apply it.
pub const MANIFEST: &str = include_str!("../../../conf/kubernetes/ovn-kubernetes-node.yaml");

/// The deployment of the control plane.
const CONTROL_PLANE: &str = include_str!("../../../conf/kubernetes/ovn-kubernetes-control-plane.yaml");

const NAMESPACE: &str = "ovn-kubernetes";
/// Service account of the server on a node.
pub const NODE: &str = "ovn-kubernetes-node";
/// Service account of the control plane.
pub const MASTER: &str = "ovn-kubernetes-control-plane";

/// Creates the deployments' namespace, accounts, roles and bindings; writes a token of each account.
pub fn grant(api: &Api, credentials: &Credentials) -> Result<()> {
    let rbac = "/apis/rbac.authorization.k8s.io/v1";
    let mut created = BTreeSet::new();
    for (account, manifest) in [(NODE, MANIFEST), (MASTER, CONTROL_PLANE)] {
        for object in serde_yaml_ng::Deserializer::from_str(manifest) {
            let object = Value::deserialize(object).context("read the deployment's manifest")?;
            let collection = match object["kind"].as_str() {
                Some("Namespace") => "/api/v1/namespaces".to_owned(),
                Some("ServiceAccount") => format!("/api/v1/namespaces/{NAMESPACE}/serviceaccounts"),
                Some("ClusterRole") => format!("{rbac}/clusterroles"),
                Some("ClusterRoleBinding") => format!("{rbac}/clusterrolebindings"),
                Some("Role") => format!("{rbac}/namespaces/{NAMESPACE}/roles"),
                Some("RoleBinding") => format!("{rbac}/namespaces/{NAMESPACE}/rolebindings"),
                // The programs run beside the lab's other daemons, not in pods.
                _ => continue,
            };
            // Both manifests contain the namespace.
            if created.insert((collection.clone(), object["metadata"]["name"].to_string())) {
                api.create(&collection, &object)?;
            }
        }
        // Valid for a day, longer than any test.
        let request = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"expirationSeconds": 86_400}});
        let answer =
            api.create(&format!("/api/v1/namespaces/{NAMESPACE}/serviceaccounts/{account}/token"), &request)?;
        credentials.write_token(
            account,
            answer["status"]["token"].as_str().context("the API server gave no token")?,
        )?;
    }
    Ok(())
}
