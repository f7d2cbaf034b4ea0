//! What the programs under test may do in the cluster: what their deployment gives them (`conf/kubernetes`), and nothing more.

use anyhow::{Context as _, Result};
use serde::Deserialize as _;
use serde_json::{Value, json};

use super::{api::Api, credentials::Credentials};

/// The deployment, as administrators apply it.
pub const MANIFEST: &str = include_str!("../../../conf/kubernetes/ovn-kubernetes-node.yaml");

const NAMESPACE: &str = "ovn-kubernetes";
const ACCOUNT: &str = "ovn-kubernetes-node";

/// Creates the deployment's namespace, account, role and binding; writes a token of that account.
pub(crate) fn grant(api: &Api, credentials: &Credentials) -> Result<()> {
    for object in serde_yaml_ng::Deserializer::from_str(MANIFEST) {
        let object = Value::deserialize(object).context("read the deployment's manifest")?;
        let collection = match object["kind"].as_str() {
            Some("Namespace") => "/api/v1/namespaces".to_owned(),
            Some("ServiceAccount") => format!("/api/v1/namespaces/{NAMESPACE}/serviceaccounts"),
            Some("ClusterRole") => "/apis/rbac.authorization.k8s.io/v1/clusterroles".to_owned(),
            Some("ClusterRoleBinding") => "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings".to_owned(),
            // The server runs beside the lab's other daemons, not in a pod.
            _ => continue,
        };
        api.create(&collection, &object)?;
    }
    let request = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"expirationSeconds": 86_400}});
    let answer = api.create(&format!("/api/v1/namespaces/{NAMESPACE}/serviceaccounts/{ACCOUNT}/token"), &request)?;
    credentials.write_server_token(answer["status"]["token"].as_str().context("the API server gave no token")?)
}
