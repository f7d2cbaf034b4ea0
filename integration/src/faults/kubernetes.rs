//! A real API server with etcd for the lab's first node, and the proxy through which the server on
//! that node reaches it.
//!
//! Pods are written to etcd, in a form in which the API server itself may store them
//! (`--storage-media-type=application/json`). The API server would give a pod that is created
//! through it a UID of its own, and the lab has already told its UIDs to OVN.

use std::{
    fs,
    io::{Read as _, Write as _},
    net::TcpStream,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::ByteString;
use serde_json::{Value, json};

use crate::{
    Families, Lab, Pod,
    api_proxy::ApiProxy,
    cluster::{Api, ControlPlane, Credentials, access, programs},
    mounts,
    node::PodSink,
};

/// Address of etcd's HTTP gateway, which takes JSON.
const ETCD: &str = "127.0.0.1:2379";

/// The API server and the proxy in front of it.
#[derive(Debug)]
pub struct Kubernetes {
    /// The proxy between the node's server and the API server.
    pub proxy: ApiProxy,
    /// A client of the administrator, which does not use the proxy.
    pub api: Api,
    /// The daemons of etcd and the API server.
    pub control_plane: ControlPlane,
    /// File with the token of the node's server. The server reads it through a link in another
    /// directory, where no event tells of a new token.
    pub token: PathBuf,
}

impl Kubernetes {
    /// Starts everything. From its next start, the server of the lab's first node learns its pods
    /// from this API server.
    pub fn start(lab: &Lab) -> Result<Self> {
        programs::bin_dir()?;
        let node = lab.nodes.first().context("a lab has a node")?;
        let credentials = Credentials::create(&[])?;
        let api = Api::new(&credentials)?;
        let control_plane =
            ControlPlane::without_service_accounts(&credentials, &api, Families::V4)?;
        access::grant(&api, &credentials)?;
        api.create(
            "/api/v1/namespaces",
            &json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "lab"}}),
        )?;
        api.create(
            "/api/v1/nodes",
            &json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": node.name}}),
        )?;
        let proxy = ApiProxy::start(&api, &credentials)?;

        // The server gets a link into another directory; see `token`.
        let directory = Path::new(mounts::LAB).join("token");
        fs::create_dir_all(directory.join("behind"))?;
        let (token, link) = (directory.join("behind/token"), directory.join("token"));
        fs::copy(credentials.token(access::NODE), &token)?;
        symlink(&token, &link)?;

        node.keep_pods_in(Box::new(EtcdPods))?;
        node.server.set_arguments([
            format!("--init-node={}", node.name),
            format!("--k8s-apiserver={}", proxy.url()),
            format!("--k8s-cacert={}", credentials.authority().display()),
            format!("--k8s-token-file={}", link.display()),
            "--cluster-subnets=10.244.0.0/16/24".to_owned(),
            "--k8s-service-cidrs=10.96.0.0/16".to_owned(),
        ]);
        Ok(Self { proxy, api, control_plane, token })
    }

    /// The current token of the node's server.
    pub fn token(&self) -> Result<String> {
        Ok(fs::read_to_string(&self.token)?.trim().to_owned())
    }

    /// Replaces the token and returns the new one. The API server accepts both; a test makes the
    /// proxy refuse the old one.
    pub fn rotate_token(&self) -> Result<String> {
        let request = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"expirationSeconds": 7200}});
        let answer = self.api.create(
            &format!("/api/v1/namespaces/ovn-kubernetes/serviceaccounts/{}/token", access::NODE),
            &request,
        )?;
        let token = answer["status"]["token"].as_str().context("the API server gave no token")?;
        fs::write(&self.token, format!("{token}\n"))?;
        Ok(token.to_owned())
    }
}

/// Writes pods as objects into etcd.
#[derive(Debug)]
struct EtcdPods;

impl PodSink for EtcdPods {
    fn put(&self, pod: &Pod, manifest: &str) -> Result<()> {
        let object: Value = serde_yaml_ng::from_str(manifest).context("a manifest")?;
        let value = ByteString(serde_json::to_vec(&object)?);
        ask("put", &json!({"key": key(pod), "value": value}))
    }

    fn remove(&self, pod: &Pod) -> Result<()> {
        ask("deleterange", &json!({"key": key(pod)}))
    }
}

/// The key under which the API server stores the pod.
fn key(Pod { namespace, name, .. }: &Pod) -> ByteString {
    ByteString(format!("/registry/pods/{namespace}/{name}").into_bytes())
}

/// Sends one request to etcd and checks the status of its answer.
fn ask(what: &str, request: &Value) -> Result<()> {
    let mut stream = TcpStream::connect(ETCD).context("connect to etcd")?;
    stream.set_read_timeout(Some(Duration::from_secs(10)))?;
    let body = request.to_string();
    let length = body.len();
    write!(
        stream,
        "POST /v3/kv/{what} HTTP/1.1\r\nHost: {ETCD}\r\nConnection: close\r\nContent-Length: {length}\r\n\r\n{body}"
    )?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).context("etcd's answer")?;
    ensure!(answer.starts_with("HTTP/1.1 200"), "etcd: {answer}");
    Ok(())
}
