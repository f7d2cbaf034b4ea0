//! What the programs under test may do in the cluster: exactly what their deployment grants
//! (`conf/kubernetes`).

use anyhow::{Context as _, Result};
use serde::Deserialize as _;
use serde_json::{Value, json};

use super::{api::Api, credentials::Credentials};

/// The deployment on nodes, as administrators apply it.
pub const MANIFEST: &str = include_str!("../../../conf/kubernetes/ovn-kubernetes-node.yaml");

/// The deployment of the control plane.
const CONTROL_PLANE: &str =
    include_str!("../../../conf/kubernetes/ovn-kubernetes-control-plane.yaml");

const NAMESPACE: &str = "ovn-kubernetes";
/// Service account of the server on a node.
pub const NODE: &str = "ovn-kubernetes-node";
/// Service account of the control plane.
pub const MASTER: &str = "ovn-kubernetes-control-plane";

/// Creates the deployments' namespace, accounts, roles and bindings; writes a token of each
/// account.
pub fn grant(api: &Api, credentials: &Credentials) -> Result<()> {
    let rbac = "/apis/rbac.authorization.k8s.io/v1";
    for (account, manifest) in [(NODE, MANIFEST), (MASTER, CONTROL_PLANE)] {
        for object in objects(manifest) {
            let object = object?;
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
            api.create(&collection, &object)?;
        }
        credentials.write_token(account, &token(api, account, None)?)?;
    }
    Ok(())
}

/// User name of a service account of the deployment.
pub fn user(account: &str) -> String {
    format!("system:serviceaccount:{NAMESPACE}:{account}")
}

/// A token of the servers' account, as a pod on this node has it.
pub fn token_of_node(api: &Api, node: &str) -> Result<String> {
    token(api, NODE, Some(node))
}

/// From now on, the token of the servers on nodes is that of this node's pod, and the API server
/// lets it annotate its own node only. The other nodes' servers are refused, and annotate nothing
/// any more.
pub fn own_node_only(api: &Api, credentials: &Credentials, node: &str) -> Result<()> {
    create_own_node_only(api)?;
    credentials.write_token(NODE, &token(api, NODE, Some(node))?)
}

/// Creates the policy of admission: a server annotates its own node only.
pub fn create_own_node_only(api: &Api) -> Result<()> {
    for object in objects(MANIFEST) {
        let object = object?;
        let plural = match object["kind"].as_str() {
            Some("ValidatingAdmissionPolicy") => "validatingadmissionpolicies",
            Some("ValidatingAdmissionPolicyBinding") => "validatingadmissionpolicybindings",
            _ => continue,
        };
        api.create(&format!("/apis/admissionregistration.k8s.io/v1/{plural}"), &object)?;
    }
    Ok(())
}

fn objects(manifest: &str) -> impl Iterator<Item = Result<Value>> {
    let documents = serde_yaml_ng::Deserializer::from_str(manifest);
    documents.map(|object| Value::deserialize(object).context("read the deployment's manifest"))
}

/// A token of a service account, for a program on this node; valid for a day, which is longer than
/// any test.
fn token(api: &Api, account: &str, node: Option<&str>) -> Result<String> {
    let node = node.map(|node| json!({"apiVersion": "v1", "kind": "Node", "name": node}));
    let spec = json!({"expirationSeconds": 86_400, "boundObjectRef": node});
    let request =
        json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec});
    let path = format!("/api/v1/namespaces/{NAMESPACE}/serviceaccounts/{account}/token");
    let answer = api.create(&path, &request)?;
    Ok(answer["status"]["token"].as_str().context("the API server gave no token")?.to_owned())
}
