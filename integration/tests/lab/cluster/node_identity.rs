//! The identity of a node's server, by a real API server and the signer of a real controller
//! manager: the certificate that it requests, its renewal, and what a stolen one is good for.

use std::{
    fs,
    io::Write as _,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::Duration,
};

use anyhow::{Context as _, Result, bail, ensure};
use integration::{
    Cluster, Node,
    cluster::{
        Api, access,
        control_plane::{SIGNED_FOR, URL},
        worker::CERTIFICATES,
    },
    eventually,
};
use serde_json::json;

use crate::cluster::support::{PODS, pod, start};

const REQUESTS: &str = "/apis/certificates.k8s.io/v1/certificatesigningrequests";

/// A node that is somebody else's by now has a certificate. It must be good for nothing that the
/// server of this node does not do itself.
#[test]
fn a_nodes_server_works_with_a_certificate_of_its_own_is_renewed_without_a_restart_and_a_stolen_one_reaches_no_other_node()
 {
    Cluster::of_nodes(2).node_certificates().test(|cluster| {
        let node = &cluster.lab.nodes[0];
        access::create_own_node_only(&cluster.api)?;
        // All nodes are ready: their servers have been told of pods and subnets over the API
        // server.
        let first = certificate(node)?;
        ensure!(
            first.contains("system:ovn-node:node1") && first.contains("system:ovn-nodes"),
            "{first}"
        );
        let mode = fs::metadata(file(node))?.permissions().mode() & 0o777;
        ensure!(mode == 0o600, "mode {mode:o}");
        start(cluster, &pod("of-node1", "node1"))?;
        start(cluster, &pod("of-node2", "node2"))?;
        bootstrap_by_token(cluster)?;

        let renewed = eventually("the certificate is renewed", 2 * SIGNED_FOR, || {
            let now = certificate(node)?;
            ensure!(now != first, "it is still the first one");
            Ok(now)
        })?;
        ensure!(renewed.contains("system:ovn-node:node1"), "{renewed}");
        steal(cluster, node)?;
        eventually("the first certificate has expired", 2 * SIGNED_FOR, || {
            if openssl(&["x509", "-noout", "-checkend", "0"], &first).is_ok() {
                bail!("it is valid");
            }
            Ok(())
        })?;
        // The plugin waits for the annotation of this pod, which the server sees by its new
        // certificate alone.
        start(cluster, &pod("after", "node1"))?;
        Ok(())
    });
}

/// Tries everything with the certificate of node1.
fn steal(cluster: &Cluster, node: &Node) -> Result<()> {
    // As upstream's role allows it, so that the policy of admission decides.
    allow_annotations_of_pods(&cluster.api)?;
    // Each time the newest one: certificates are short-lived here.
    let thief = || {
        let stolen = fs::read_to_string(file(node))?;
        Api::with(&cluster.credentials.write_certificate_kubeconfig("thief", &stolen)?, URL)
    };
    let annotated = |key: &str| json!({"metadata": {"annotations": {key: "x"}}});
    let own = annotated("k8s.ovn.org/vteps");
    let network = annotated("k8s.ovn.org/pod-networks");
    let (node1, node2) = ("/api/v1/nodes/node1/status", "/api/v1/nodes/node2/status");
    let (pod1, pod2) = (format!("{PODS}/of-node1/status"), format!("{PODS}/of-node2/status"));

    // What the server does itself; and rights and policy are in force once the last of these is
    // answered so.
    eventually(
        "the thief may annotate its own pod, and not another node's",
        Duration::from_secs(30),
        || {
            thief()?.patch(&pod1, &annotated("k8s.ovn.org/dpu.connection-status"))?;
            refused("its own pods' only", thief()?.patch(&pod2, &network), "own node's pods only")
        },
    )?;
    thief()?.patch(node1, &own)?;

    refused("another node", thief()?.patch(node2, &own), "own node only")?;
    refused("another node's object", thief()?.patch("/api/v1/nodes/node2", &own), "cannot patch")?;
    refused(
        "the subnet",
        thief()?.patch(node1, &annotated("k8s.ovn.org/node-subnets")),
        "own network",
    )?;
    refused("any annotation", thief()?.patch(node1, &annotated("example.org/x")), "own network")?;
    refused(
        "any annotation of a pod",
        thief()?.patch(&pod1, &annotated("example.org/x")),
        "own network",
    )?;
    let label = json!({"metadata": {"labels": {"node-role.kubernetes.io/control-plane": ""}}});
    refused("a label", thief()?.patch(node1, &label), "neither labels nor status")?;
    refused("a label of a pod", thief()?.patch(&pod1, &label), "neither labels nor status")?;
    let failed = json!({"status": {"phase": "Failed"}});
    refused("the status of its pod", thief()?.patch(&pod1, &failed), "neither labels nor status")?;
    refused("the status of its node", thief()?.patch(node1, &failed), "neither labels nor status")?;

    refused("secrets", thief()?.read("/api/v1/secrets"), "cannot list")?;
    refused("a pod", thief()?.create(PODS, &pod("stolen", "node2")), "cannot create")?;
    refused("the end of a pod", thief()?.delete(&format!("{PODS}/of-node2")), "cannot delete")?;
    refused("the end of a node", thief()?.delete("/api/v1/nodes/node2"), "cannot delete")?;
    let token =
        "/api/v1/namespaces/ovn-kubernetes/serviceaccounts/ovn-kubernetes-control-plane/token";
    let request =
        json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}});
    refused("a token", thief()?.create(token, &request), "cannot create")?;
    let bindings = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings";
    refused("roles", thief()?.read(bindings), "cannot list")?;

    // Two: with more, the server's own renewals would have to wait, which are this user's, too.
    for (what, subject, usages, why) in [
        (
            "another node's",
            "/O=system:ovn-nodes/CN=system:ovn-node:node2",
            "client auth",
            "may not request",
        ),
        ("a server's", "/O=system:ovn-nodes/CN=system:ovn-node:node1", "server auth", "usages"),
    ] {
        let name = requested(&thief()?, subject, "kube-apiserver-client", usages)?;
        let path = format!("{REQUESTS}/{name}");
        let approval = json!({"status": {"conditions": [{"type": "Approved", "status": "True", "reason": "X"}]}});
        refused(
            "its own approval",
            thief()?.patch(&format!("{path}/approval"), &approval),
            "cannot patch",
        )?;
        denied(cluster, &name, what, why)?;
    }
    // Nobody here approves these; elsewhere somebody might.
    let kubelets = "/O=system:nodes/CN=system:node:node2";
    refused(
        "a kubelet's",
        requested(&thief()?, kubelets, "kube-apiserver-client-kubelet", "client auth"),
        "client certificates only",
    )?;
    let masters = "/O=system:masters/CN=admin";
    refused(
        "an administrator's",
        requested(&thief()?, masters, "kube-apiserver-client", "client auth"),
        "system:masters",
    )
}

/// The token of a pod requests the certificate of the pod's node, as the chart has it, and of no
/// other.
fn bootstrap_by_token(cluster: &Cluster) -> Result<()> {
    let token = access::token_of_node(&cluster.api, "node1")?;
    let pod = Api::with(&cluster.credentials.write_token_kubeconfig("pod-of-node1", &token)?, URL)?;
    let of = |node: &str| format!("/O=system:ovn-nodes/CN=system:ovn-node:{node}");
    let own = requested(&pod, &of("node1"), "kube-apiserver-client", "client auth")?;
    let other = requested(&pod, &of("node2"), "kube-apiserver-client", "client auth")?;
    denied(cluster, &other, "another node's", "is that of a pod on node")?;
    eventually("the certificate of its own node is signed", Duration::from_secs(20), || {
        let request = cluster.api.read(&format!("{REQUESTS}/{own}"))?;
        ensure!(request["status"]["certificate"].is_string(), "{request}");
        Ok(())
    })
}

/// The cluster manager denies the request, for this reason.
fn denied(cluster: &Cluster, name: &str, what: &str, why: &str) -> Result<()> {
    eventually(&format!("the certificate is denied: {what}"), Duration::from_secs(20), || {
        let request = cluster.api.read(&format!("{REQUESTS}/{name}"))?;
        let condition = &request["status"]["conditions"][0];
        let message = condition["message"].as_str().unwrap_or_default();
        ensure!(condition["type"] == "Denied" && message.contains(why), "{request}");
        ensure!(request["status"]["certificate"].is_null(), "{request}");
        Ok(())
    })
}

/// The request was refused, in these words.
fn refused<T: std::fmt::Debug>(what: &str, answer: Result<T>, words: &str) -> Result<()> {
    match answer {
        Ok(answer) => bail!("{what}: {answer:?}"),
        Err(error) => {
            let text = format!("{error:#}");
            ensure!(text.contains(words), "{what}: {text}");
            Ok(())
        }
    }
}

/// Creates a certificate signing request with a key of its own; its name.
fn requested(api: &Api, subject: &str, signer: &str, usage: &str) -> Result<String> {
    let key = "req -new -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -keyout /dev/null -subj";
    let words: Vec<&str> = key.split(' ').chain([subject]).collect();
    let pem = openssl(&words, "")?;
    let request = json!({
        "apiVersion": "certificates.k8s.io/v1", "kind": "CertificateSigningRequest",
        "metadata": {"generateName": "thief-"},
        "spec": {
            "request": k8s_openapi::ByteString(pem.into_bytes()),
            "signerName": format!("kubernetes.io/{signer}"),
            "usages": ["digital signature", usage],
            "expirationSeconds": 600,
        },
    });
    let created = api.create(REQUESTS, &request)?;
    Ok(created["metadata"]["name"].as_str().context("a name")?.to_owned())
}

fn allow_annotations_of_pods(api: &Api) -> Result<()> {
    let rbac = "/apis/rbac.authorization.k8s.io/v1";
    let object = |kind: &str| json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": kind, "metadata": {"name": "upstream"}});
    let mut role = object("ClusterRole");
    role["rules"] = json!([{"apiGroups": [""], "resources": ["pods/status"], "verbs": ["patch"]}]);
    api.create(&format!("{rbac}/clusterroles"), &role)?;
    let mut binding = object("ClusterRoleBinding");
    let group = "rbac.authorization.k8s.io";
    binding["roleRef"] = json!({"apiGroup": group, "kind": "ClusterRole", "name": "upstream"});
    binding["subjects"] = json!([{"apiGroup": group, "kind": "Group", "name": "system:ovn-nodes"}]);
    api.create(&format!("{rbac}/clusterrolebindings"), &binding).map(drop)
}

/// The file with the certificate of a node's server.
fn file(node: &Node) -> PathBuf {
    node.path(Path::new(CERTIFICATES).join("ovnkube-client-current.pem"))
}

/// Subject, validity and PEM of the certificate of a node's server.
fn certificate(node: &Node) -> Result<String> {
    let pem = fs::read_to_string(file(node)).context("read the certificate")?;
    openssl(&["x509", "-subject", "-dates"], &pem)
}

pub(crate) fn openssl(words: &[&str], stdin: &str) -> Result<String> {
    let mut openssl = Command::new("openssl");
    openssl.args(words).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut child = openssl.spawn().context("start openssl")?;
    child.stdin.take().context("a pipe")?.write_all(stdin.as_bytes())?;
    let output = child.wait_with_output()?;
    ensure!(output.status.success(), "openssl {words:?}: {}", output.status);
    Ok(String::from_utf8(output.stdout)?)
}
