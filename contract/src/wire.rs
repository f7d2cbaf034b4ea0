//! The protocol of the server's socket: HTTP/1.1 with JSON bodies, in the field names and encodings
//! of upstream's programs, so that either side can be upstream's.
//!
//! | request | answer |
//! |---|---|
//! | `POST /` [`Request`] | 200 [`Response`], or a fitting status and a [`Refused`] |
//! | `POST /watch` [`WatchRequest`] | 200 [`WatchAnswer`] once the pod has changed; upstream's server: 404 |
//! | `POST /port` [`PortRequest`] | 200, and a line for each [`PortStatus`], or a [`Refused`]; upstream: 404 |
//! | `POST /metrics` [`Metrics`] | 200 |
//! | `POST /node` | 200 [`NodeAnswer`]; upstream's server: 404 |
//! | `POST /trace` [`TraceRequest`] | 200 [`TraceAnswer`]; upstream's server: 404 |
//!
//! Unknown fields are ignored in both directions; additions are optional fields.
//!
//! A port that is refused with 409 or 422 ends the ADD: the pod is no longer what the plugin was
//! told. After every other refusal the plugin writes the port itself. So a plugin and a server of
//! different versions need not understand each other's requests for ports.

use std::collections::BTreeMap;

use base64::{Engine, engine::general_purpose::STANDARD};
use serde::{Deserialize, Deserializer, Serialize, de::DeserializeOwned};

use crate::{
    error::CniError,
    names::PodKey,
    stage::{Stage, StageTime},
};

mod pod_if_info;
mod port_request;
mod trace;

pub use pod_if_info::{PodInterface, PodInterfaceError};
pub use port_request::{PortRequest, PortRequestError};
pub use trace::{HostAnswer, TraceAnswer, TraceEntry, TraceProtocol, TraceRequest};

/// Path of a runtime's request that the plugin passes on.
pub const REQUEST_PATH: &str = "/";
/// Path of the wait until a pod is deleted, replaced or changed.
pub const WATCH_PATH: &str = "/watch";
/// Path of a request to write a port.
pub const PORT_PATH: &str = "/port";
/// Path of a plugin's report on one call.
pub const METRICS_PATH: &str = "/metrics";
/// Path of the question what the server says about its node. The body is not read.
pub const NODE_PATH: &str = "/node";
/// Path of the question which way a packet takes through this node's switch.
pub const TRACE_PATH: &str = "/trace";
/// The largest body of a request, in bytes. Usual ones have a few KiB: the CNI configuration in
/// base64, and from upstream's plugin its whole environment. The limit keeps a client from filling
/// the server's memory; a tenth of it could refuse a large environment.
pub const MAX_BODY: usize = 1024 * 1024;

/// The runtime's request, as the plugin got it.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Request {
    /// The `CNI_*` variables. Upstream's plugin sends its whole environment.
    pub env: BTreeMap<String, String>,
    /// Standard input, in base64.
    #[serde(with = "base64_bytes", default)]
    pub config: Vec<u8>,
    /// How long the plugin waits for the answer, in milliseconds; the server answers earlier.
    /// Upstream's plugin does not send it.
    #[serde(rename = "timeoutMs", default, skip_serializing_if = "Option::is_none")]
    pub timeout_ms: Option<u64>,
}

/// The server's answer: the settings to configure, or (upstream's server in privileged mode) the
/// finished result.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct Response {
    /// A CNI result to print as it is.
    pub result: Option<serde_json::Value>,
    /// The settings that the plugin has to configure.
    #[serde(rename = "PodIFInfo")]
    pub pod_if_info: Option<PodInterface>,
    /// Upstream's plugin fails on `null` here; this project sends no credentials.
    pub kube_auth: Option<KubeAuth>,
    /// A second interface of the pod, on the user-defined network that is its primary one:
    /// upstream's server asks its plugin to attach it, too.
    #[serde(rename = "PrimaryUDNPodInfo", skip_serializing_if = "Option::is_none")]
    pub primary_network: Option<serde_json::Value>,
    /// The bridge for the port, if the server knows it and the name of the pod's link is free.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bridge: Option<BridgeFacts>,
}

/// Facts about the integration bridge that a plugin needs and does not read itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct BridgeFacts {
    /// As in the Bridge row; empty for the kernel datapath.
    pub datapath_type: String,
    /// Absent from an older server, which writes every port that it can.
    #[serde(default)]
    pub writer: PortWriter,
}

/// The program that adds an ADD's port to the bridge.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PortWriter {
    /// The plugin, in a session of its own: few calls are under way.
    Plugin,
    /// The server, in one transaction with the ports of other ADDs. Also any value of a newer
    /// server.
    #[default]
    #[serde(other)]
    Server,
}

/// The progress of a port, in this order. The server reports progress only. After any other line,
/// or after some time without a line, the plugin reads the database itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PortStatus {
    /// The port is in the database.
    Written,
    /// ovs-vswitchd has assigned the OpenFlow port number.
    Numbered,
    /// ovn-controller has installed the port's flows. The last line.
    Installed,
    /// The server reports nothing more. Without an earlier line, it has written nothing.
    #[serde(other)]
    Unknown,
}

/// The body of a refusal: the CNI error for the runtime, and fields for the plugin alone. An older
/// plugin, and upstream's, read only the error.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Refused {
    #[serde(flatten)]
    /// For the runtime.
    pub error: CniError,
    /// Where the same request gets an answer. A value of a newer server that is unknown here is
    /// ignored.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "if_it_is_known")]
    pub retry: Option<Retry>,
}

/// The server that answers a request which this one refuses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Retry {
    /// The server that takes over the socket. This one is shutting down, and closes its connections
    /// when it ends.
    NextServer,
}

/// The server's answer to STATUS if it succeeds: the health of the other programs that an ADD
/// needs, as seen in the last seconds. An older server's, and upstream's, has no body at all.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct StatusAnswer {
    /// Health by address: an endpoint of OVSDB, or the pid file of a daemon. Always there: a body
    /// without it is another program's.
    #[serde(rename = "Partners")]
    pub daemons: BTreeMap<String, Health>,
    /// The server has never found ovn-controller's pid file, but OVN has installed ports of this
    /// node's pods: ovn-controller runs out of the server's sight.
    #[serde(default)]
    pub controller_elsewhere: bool,
}

/// What a server says about its node, for `ovnkube status`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct NodeAnswer {
    /// The node's name.
    pub node: String,
    /// The server's version.
    pub version: String,
    /// The version of the plugin that called last; empty if it did not say. `None`: no plugin has
    /// called since the server's start.
    pub plugin: Option<String>,
    /// The conditions of readiness that are not met, each with the reason.
    pub missing: BTreeMap<String, String>,
    /// What is degraded although its condition is met.
    pub remarks: BTreeMap<String, String>,
    /// How long the stages of ADDs took since the server's start, by the stage's name: how many
    /// took no longer than so many seconds, for rising bounds.
    pub stages: BTreeMap<String, Vec<StageCount>>,
}

/// How many ADDs had a stage that took no longer than this.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct StageCount {
    pub seconds: f64,
    pub count: u64,
}

/// Whether a program that runs also answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Health {
    /// It answers in time, with success or an error.
    Answers,
    /// It does not answer within the time in which an ADD needs an answer.
    Silent,
    /// Not known; also any value of a newer server.
    #[serde(other)]
    Unknown,
}

/// The API server's address, with which upstream's server also sends credentials. Never read, and
/// this project never sends credentials.
///
/// Upstream's plugin asks that API server whether the pod is still the same, each time it finds
/// that OVN has not installed the port yet. Without an address it crashes; if the address is not
/// reachable, it only logs a warning.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub struct KubeAuth {
    #[serde(rename = "kube-api-server", skip_deserializing, default = "nowhere")]
    server: &'static str,
}

/// No program listens on port 0: a connection to it fails at once.
fn nowhere() -> &'static str {
    "http://127.0.0.1:0"
}

impl Default for KubeAuth {
    fn default() -> Self {
        Self { server: nowhere() }
    }
}

impl Response {
    /// The answer to an ADD whose work the plugin does.
    pub fn to_plugin(pod: PodInterface) -> Self {
        Self { pod_if_info: Some(pod), kube_auth: Some(KubeAuth::default()), ..Self::default() }
    }
}

/// A wait until a pod is deleted or replaced, or the address of its port changes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WatchRequest {
    pub namespace: String,
    pub name: String,
    /// Empty if not known.
    #[serde(default)]
    pub uid: String,
    /// The pod's MAC address on the network `nad`.
    pub mac: String,
    /// Key of the network in the annotation.
    pub nad: String,
}

/// Why the wait ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WatchAnswer {
    pub change: PodChange,
}

/// How a pod changed while the plugin waited for its port.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[serde(rename_all = "snake_case")]
pub enum PodChange {
    #[error("the pod was deleted")]
    Deleted,
    #[error("the pod was replaced by another one of its name (its UID changed)")]
    Replaced,
    #[error("the pod lost its network annotation")]
    AnnotationGone,
    #[error("the pod's network annotation changed")]
    AnnotationChanged,
}

/// A plugin's report on one call. The plugin does not wait for the answer.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Metrics {
    /// The CNI verb: `ADD`, `DEL` and so on.
    pub command: String,
    /// The plugin's version; empty if it is one that does not say.
    #[serde(default)]
    pub version: String,
    /// Duration of the call, in seconds.
    pub elapsed_time: f64,
    /// Whether the call failed.
    pub has_err: bool,
    /// The code of the CNI error, after a failure.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<u32>,
    /// The message of the CNI error, after a failure.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// `namespace/name`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pod: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    /// `CNI_CONTAINERID`.
    pub sandbox: Option<String>,
    /// The stages of an ADD. Stages that only another version of the plugin has are ignored.
    #[serde(default, skip_serializing_if = "Vec::is_empty", deserialize_with = "what_is_known")]
    pub stages: Vec<StageTime>,
    /// The stage in which an ADD failed.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "if_it_is_known")]
    pub failed_stage: Option<Stage>,
    /// How the rollback ended, if an ADD failed after it had created something.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "if_it_is_known")]
    pub rollback: Option<Rollback>,
}

/// How the rollback of an ADD ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Rollback {
    /// Everything that the ADD created is removed.
    Clean,
    /// Something is left for DEL to remove.
    Leftover,
}

impl Rollback {
    /// The name used in messages and metrics.
    pub fn name(self) -> &'static str {
        match self {
            Self::Clean => "clean",
            Self::Leftover => "leftover",
        }
    }
}

impl WatchRequest {
    /// The pod to wait for.
    ///
    /// # Errors
    /// The namespace or the name is not valid for a pod.
    pub fn pod(&self) -> Result<PodKey, crate::names::BadName> {
        PodKey::new(&self.namespace, &self.name)
    }
}

/// The elements that this version can read.
fn what_is_known<'de, D: Deserializer<'de>, T: DeserializeOwned>(
    deserializer: D,
) -> Result<Vec<T>, D::Error> {
    let values = Vec::<serde_json::Value>::deserialize(deserializer)?;
    Ok(values.into_iter().filter_map(|value| serde_json::from_value(value).ok()).collect())
}

/// The value, if this version can read it. `default` covers a missing field only, so an unknown
/// value would fail the whole message.
fn if_it_is_known<'de, D: Deserializer<'de>, T: DeserializeOwned>(
    deserializer: D,
) -> Result<Option<T>, D::Error> {
    Ok(serde_json::from_value(serde_json::Value::deserialize(deserializer)?).ok())
}

/// Bytes as Go's `encoding/json` writes a `[]byte`: base64 with padding; `null` for none.
mod base64_bytes {
    use serde::{Deserializer, Serializer, de::Error};

    use super::{Deserialize, Engine, STANDARD};

    pub(super) fn serialize<S: Serializer>(bytes: &[u8], serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&STANDARD.encode(bytes))
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Vec<u8>, D::Error> {
        let text = Option::<String>::deserialize(deserializer)?.unwrap_or_default();
        STANDARD.decode(text).map_err(D::Error::custom)
    }
}

#[cfg(test)]
mod tests;
