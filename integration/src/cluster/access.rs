//! What the server under test may do in the cluster: as little as it needs.

use anyhow::Result;
use serde_json::json;

use super::{api::Api, credentials::OVNKUBE};

/// Tells the API server.
pub(crate) fn grant(api: &Api) -> Result<()> {
    let name = OVNKUBE;
    let role = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": name},
        "rules": [
            {"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list", "watch"]},
            {"apiGroups": ["events.k8s.io"], "resources": ["events"], "verbs": ["create", "patch"]},
        ],
    });
    let binding = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": {"name": name},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": name}],
    });
    api.create("/apis/rbac.authorization.k8s.io/v1/clusterroles", &role)?;
    api.create("/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", &binding).map(drop)
}
