//! What a credential of a node may write, as the API server with the project's manifests decides:
//! one kubelet's, and the service account of a node's server. Not in `make test`, which has no API
//! server.

use std::{fs, time::Duration};

use anyhow::{Context as _, Result, ensure};
use integration::{Cluster, cluster::GatewayMode, cluster::access, eventually, inside, tenants};
use serde_json::{Value, json};

use crate::tenants::{
    objects::Real,
    site::{Body, Site, cluster},
};

pub(crate) const ROWS: &[(u8, Body)] = &[
    (56, a_kubelet_writes_another_node),
    (57, a_kubelet_makes_a_node),
    (58, a_kubelet_writes_anothers_pods),
    (59, a_server_writes_another_node),
    (60, a_server_writes_pods),
    (61, a_server_reads_and_makes_what_it_needs_not),
];

#[test]
fn a_nodes_credentials_write_what_is_their_own() {
    inside(|| {
        let rows: Vec<(u8, Body)> =
            ROWS.iter().copied().filter(|(number, _)| tenants::is_to_run(*number)).collect();
        if rows.is_empty() {
            return Ok(());
        }
        let cluster: Cluster = cluster(GatewayMode::Shared)?;
        let objects = Box::new(Real { api: &cluster.api });
        let site = Site::new(&cluster.lab, objects, &cluster.master);
        let credentials = integration::cluster::Credentials::of_the_lab();
        access::own_node_only(&cluster.api, &credentials, &site.first().name)?;
        site.try_all(&rows)
    });
}

/// The credentials of a node's programs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Credential {
    Kubelet,
    Server,
}

/// What the API server answers to a request with the first node's credential: the status.
fn status(
    site: &Site<'_>,
    credential: Credential,
    method: &str,
    path: &str,
    body: Option<(&str, &Value)>,
) -> Result<u16> {
    let credentials = integration::cluster::Credentials::of_the_lab();
    let token = match credential {
        Credential::Server => fs::read_to_string(credentials.token(access::NODE))?,
        Credential::Kubelet => {
            let file = credentials.kubeconfig(&format!("system:node:{}", site.first().name));
            let config: Value = serde_json::from_slice(&fs::read(file)?)?;
            config["users"][0]["user"]["token"].as_str().context("a token")?.to_owned()
        }
    };
    let url = format!("{}{path}", integration::cluster::control_plane::URL);
    let mut words = vec![
        "curl".to_owned(),
        "-sS".to_owned(),
        "-o".to_owned(),
        "/dev/null".to_owned(),
        "-w".to_owned(),
        "%{http_code}".to_owned(),
        "--cacert".to_owned(),
        credentials.authority().display().to_string(),
        "-X".to_owned(),
        method.to_owned(),
        "-H".to_owned(),
        format!("Authorization: Bearer {}", token.trim()),
        url,
    ];
    if let Some((kind, value)) = body {
        words.extend([
            "-H".to_owned(),
            format!("Content-Type: {kind}"),
            "--data".to_owned(),
            value.to_string(),
        ]);
    }
    Ok(site.first().run(words)?.trim().parse()?)
}

const MERGE: &str = "application/merge-patch+json";
const JSON: &str = "application/json";

/// Refused: forbidden, or not valid for a policy of admission.
fn refused(what: &str, status: u16) -> Result<String> {
    ensure!(matches!(status, 401 | 403 | 404 | 422), "{what}: {status}");
    Ok(format!("{what} {status}"))
}

fn annotated() -> Value {
    json!({"metadata": {"annotations": {"k8s.ovn.org/host-cidrs": "[\"198.18.0.1/32\"]"}}})
}

fn a_kubelet_writes_another_node(site: &Site<'_>) -> Result<String> {
    let other = &site.second().name;
    let mut seen = Vec::new();
    for path in [format!("/api/v1/nodes/{other}"), format!("/api/v1/nodes/{other}/status")] {
        seen.push(refused(
            &path,
            status(site, Credential::Kubelet, "PATCH", &path, Some((MERGE, &annotated())))?,
        )?);
    }
    Ok(seen.join(", "))
}

fn a_kubelet_makes_a_node(site: &Site<'_>) -> Result<String> {
    let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "mallory"}});
    refused(
        "another node",
        status(site, Credential::Kubelet, "POST", "/api/v1/nodes", Some((JSON, &node)))?,
    )
}

fn a_kubelet_writes_anothers_pods(site: &Site<'_>) -> Result<String> {
    let path = "/api/v1/namespaces/bystander/pods/there";
    let patch = json!({"metadata": {"annotations": {"k8s.ovn.org/pod-networks": "{}"}}});
    let seen = [
        refused("a pod", status(site, Credential::Kubelet, "PATCH", path, Some((MERGE, &patch)))?)?,
        refused(
            "its status",
            status(
                site,
                Credential::Kubelet,
                "PATCH",
                &format!("{path}/status"),
                Some((MERGE, &patch)),
            )?,
        )?,
        refused("its end", status(site, Credential::Kubelet, "DELETE", path, None)?)?,
    ];
    Ok(seen.join(", "))
}

fn a_server_writes_another_node(site: &Site<'_>) -> Result<String> {
    let annotate = |node: &str, patch: &Value| {
        let path = format!("/api/v1/nodes/{node}/status");
        status(site, Credential::Server, "PATCH", &path, Some((MERGE, patch)))
    };
    // The API server learns of a policy of admission within a moment.
    let seen = eventually("another node is refused", Duration::from_secs(30), || {
        refused("another node", annotate(&site.second().name, &annotated())?)
    })?;
    let harmless = json!({"metadata": {"annotations": {"k8s.ovn.org/vteps": "own"}}});
    let own = annotate(&site.first().name, &harmless)?;
    ensure!(own == 200, "its own node: {own}");
    Ok(seen)
}

fn a_server_writes_pods(site: &Site<'_>) -> Result<String> {
    let patch = json!({"metadata": {"annotations": {"k8s.ovn.org/pod-networks": "{}"}}});
    let mut seen = Vec::new();
    for pod in ["here", "there"] {
        for path in ["", "/status"] {
            let path = format!("/api/v1/namespaces/bystander/pods/{pod}{path}");
            seen.push(refused(
                &path,
                status(site, Credential::Server, "PATCH", &path, Some((MERGE, &patch)))?,
            )?);
        }
    }
    Ok(seen.join(", "))
}

fn a_server_reads_and_makes_what_it_needs_not(site: &Site<'_>) -> Result<String> {
    let policy = crate::tenants::policies::policy("bystander", "x", &json!({"podSelector": {}}));
    let of_policies = "/apis/networking.k8s.io/v1/namespaces/bystander/networkpolicies";
    let seen = [
        refused("secrets", status(site, Credential::Server, "GET", "/api/v1/secrets", None)?)?,
        refused(
            "config maps",
            status(site, Credential::Server, "GET", "/api/v1/configmaps", None)?,
        )?,
        refused(
            "a policy",
            status(site, Credential::Server, "POST", of_policies, Some((JSON, &policy)))?,
        )?,
        refused(
            "a policy's end",
            status(site, Credential::Server, "DELETE", &format!("{of_policies}/closed"), None)?,
        )?,
        refused(
            "a node's end",
            status(
                site,
                Credential::Server,
                "DELETE",
                &format!("/api/v1/nodes/{}", site.second().name),
                None,
            )?,
        )?,
        refused(
            "a token",
            status(
                site,
                Credential::Server,
                "POST",
                "/api/v1/namespaces/ovn-kubernetes/serviceaccounts/ovn-kubernetes-control-plane/token",
                Some((
                    JSON,
                    &json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}),
                )),
            )?,
        )?,
    ];
    Ok(seen.join(", "))
}
