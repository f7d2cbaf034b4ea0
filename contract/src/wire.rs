//! What travels over the server's socket: HTTP/1.1, JSON bodies, in the field names and encodings of upstream's programs, so that
//! either side can be upstream's.
//!
//! | request | answer |
//! |---|---|
//! | `POST /` [`Request`] | 200 [`Response`], or a fitting status and a [`Refused`] |
//! | `POST /watch` [`WatchRequest`] | 200 [`WatchAnswer`] once the pod is no longer what the request says; upstream's server: 404 |
//! | `POST /port` [`PortRequest`] | 200 and a line for each [`PortNews`], as it comes; upstream's server: 404 |
//! | `POST /metrics` [`Metrics`] | 200 |
//!
//! Unknown fields are ignored in both directions; additions are optional fields.

use std::collections::BTreeMap;

use base64::{Engine, engine::general_purpose::STANDARD};
use serde::{Deserialize, Deserializer, Serialize, de::DeserializeOwned};

use crate::{
    error::CniError,
    names::PodKey,
    stage::{Stage, StageTime},
};

mod pod_if_info;

pub use pod_if_info::{PodInterface, PodInterfaceError};

/// Path of a plugin's request.
pub const REQUEST_PATH: &str = "/";
/// Path of a wait for the end of a pod as it is now.
pub const WATCH_PATH: &str = "/watch";
/// Path of a port that the server writes.
pub const PORT_PATH: &str = "/port";
/// Path of a plugin's report on itself.
pub const METRICS_PATH: &str = "/metrics";
/// The most bytes a body may have.
pub const MAX_BODY: usize = 1024 * 1024;

/// What the runtime asked of the plugin.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Request {
    /// The `CNI_*` variables. Upstream's plugin sends its whole environment.
    pub env: BTreeMap<String, String>,
    /// Standard input, in base64.
    #[serde(with = "base64_bytes", default)]
    pub config: Vec<u8>,
    /// How long the caller waits for an answer, in milliseconds; the server answers before. Upstream's plugin does not say.
    #[serde(rename = "timeoutMs", default, skip_serializing_if = "Option::is_none")]
    pub timeout_ms: Option<u64>,
}

/// The server's answer: what to configure, or (upstream's server in privileged mode) the finished result.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct Response {
    /// A CNI result to print as it is.
    pub result: Option<serde_json::Value>,
    /// What the plugin has to configure.
    #[serde(rename = "PodIFInfo")]
    pub pod_if_info: Option<PodInterface>,
    /// Upstream's plugin fails on `null` here; this project sends no credentials.
    pub kube_auth: Option<KubeAuth>,
    /// A second interface of the pod, on the user-defined network that is its primary one: upstream's server asks its plugin to attach that, too.
    #[serde(rename = "PrimaryUDNPodInfo", skip_serializing_if = "Option::is_none")]
    pub primary_network: Option<serde_json::Value>,
    /// If the server can write ports at this moment: the bridge that they go to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bridge: Option<BridgeFacts>,
}

/// What a plugin needs to know of the integration bridge that it does not look at itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct BridgeFacts {
    /// As in the Bridge row; empty for the kernel's.
    pub datapath_type: String,
}

/// A port of a pod, to be written into Open vSwitch's database. The server writes what comes at the same moment in one transaction, which costs
/// ovs-vswitchd and ovn-controller once what they would do for each.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PortRequest {
    /// Of port, interface and the host's link.
    pub name: String,
    /// First address of the pod on the network; empty for none.
    #[serde(default)]
    pub address: String,
    /// Of the Interface row.
    pub external_ids: BTreeMap<String, String>,
    /// Of the Interface row: kilobits per second and kilobits; 0 for no limit.
    #[serde(default)]
    pub ingress_policing: (i64, i64),
    /// Its QoS row.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub qos: Option<QosRow>,
}

/// Columns of a QoS row (ovs-vswitchd.conf.db(5)).
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct QosRow {
    #[serde(rename = "type")]
    pub kind: String,
    pub other_config: BTreeMap<String, String>,
    pub external_ids: BTreeMap<String, String>,
}

/// What became of a port, in this order. The server says good news only: whoever hears anything else, or nothing for a while, looks itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PortNews {
    /// It is in the database.
    Written,
    /// ovs-vswitchd has given it a number.
    Numbered,
    /// ovn-controller has installed its flows. The last line.
    Installed,
    /// The server has nothing more to say, and has written nothing if it has not said so.
    #[serde(other)]
    Unknown,
}

/// The body of a refusal: the CNI error that the runtime gets, and what only a plugin acts on. An older plugin, and upstream's, see the error alone.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Refused {
    #[serde(flatten)]
    pub error: CniError,
    /// Whether the same request has an answer elsewhere. What a later server may say is not read.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "if_it_is_known")]
    pub retry: Option<Retry>,
}

/// Who answers a request that this server does not.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Retry {
    /// The server that takes this one's place on the socket. This one ends, and closes its connections then.
    NextServer,
}

/// What the server answers to STATUS besides success: how those are whom an ADD needs, too, as it has seen them in the last seconds.
/// Nothing from an older server, or upstream's.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct StatusAnswer {
    /// By the place at which each is asked: an endpoint of OVSDB, or the file with a daemon's process id.
    pub partners: BTreeMap<String, Pulse>,
    /// The server has never seen ovn-controller's process id, and OVN has installed ports of this node's pods: it works, out of sight.
    pub controller_elsewhere: bool,
}

/// Whether somebody who is there says something.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Pulse {
    /// Good or bad, but in time.
    Answers,
    /// Not within the time in which an ADD needs an answer.
    Silent,
    /// Neither is known; also what a later server may say.
    #[serde(other)]
    Unknown,
}

/// The way to the API server that upstream's server sends, with credentials. Never read; credentials are never sent.
///
/// Upstream's plugin asks there whether the pod is still the same, each time it finds that OVN has not installed the port yet. Without any server it
/// crashes then; of one that it cannot reach it only writes a warning.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub struct KubeAuth {
    #[serde(rename = "kube-api-server", skip_deserializing, default = "nowhere")]
    server: &'static str,
}

/// Port 0 is nobody's: connecting to it fails at once.
fn nowhere() -> &'static str {
    "http://127.0.0.1:0"
}

impl Default for KubeAuth {
    fn default() -> Self {
        Self { server: nowhere() }
    }
}

impl Response {
    /// The answer to an ADD that the plugin carries out.
    pub fn to_plugin(pod: PodInterface) -> Self {
        Self { pod_if_info: Some(pod), kube_auth: Some(KubeAuth::default()), ..Self::default() }
    }
}

/// A wait for the moment when a pod is deleted or replaced, or its port changes its address.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WatchRequest {
    pub namespace: String,
    pub name: String,
    /// Empty if it is not known.
    #[serde(default)]
    pub uid: String,
    /// MAC address on the network `nad`.
    pub mac: String,
    /// Key of the network in the annotation.
    pub nad: String,
}

/// Why the wait ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WatchAnswer {
    pub change: PodChange,
}

/// What happened to a pod while its port was waited for.
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

/// A plugin's report on itself, sent without waiting for an answer.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Metrics {
    /// The verb.
    pub command: String,
    /// Seconds.
    pub elapsed_time: f64,
    pub has_err: bool,
    /// Of a failure: the code of the CNI error.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<u32>,
    /// Of a failure: the message of the CNI error.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// `namespace/name`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pod: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sandbox: Option<String>,
    /// Only of an ADD. A plugin of another version may have other stages: those are not read.
    #[serde(default, skip_serializing_if = "Vec::is_empty", deserialize_with = "what_is_known")]
    pub stages: Vec<StageTime>,
    /// Of an ADD that failed in a stage.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "if_it_is_known")]
    pub failed_stage: Option<Stage>,
    /// Of an ADD that failed after it had made something.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "if_it_is_known")]
    pub rollback: Option<Rollback>,
}

/// How the rollback of an ADD ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Rollback {
    /// Everything that was made is gone.
    Clean,
    /// Something is left, for DEL.
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
    /// The pod that is waited for, if its name can be one.
    ///
    /// # Errors
    /// Namespace or name could not be that of a pod.
    pub fn pod(&self) -> Result<PodKey, crate::names::BadName> {
        PodKey::new(&self.namespace, &self.name)
    }
}

fn what_is_known<'de, D: Deserializer<'de>, T: DeserializeOwned>(deserializer: D) -> Result<Vec<T>, D::Error> {
    let values = Vec::<serde_json::Value>::deserialize(deserializer)?;
    Ok(values.into_iter().filter_map(|value| serde_json::from_value(value).ok()).collect())
}

fn if_it_is_known<'de, D: Deserializer<'de>, T: DeserializeOwned>(deserializer: D) -> Result<Option<T>, D::Error> {
    Ok(serde_json::from_value(serde_json::Value::deserialize(deserializer)?).ok())
}

/// Bytes as Go's `encoding/json` writes a `[]byte`: base64 with padding; null for none.
mod base64_bytes {
    use serde::{Deserializer, Serializer, de::Error};

    use super::{Deserialize, Engine, STANDARD};

    pub(super) fn serialize<S: Serializer>(bytes: &[u8], serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&STANDARD.encode(bytes))
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<u8>, D::Error> {
        let text = Option::<String>::deserialize(deserializer)?.unwrap_or_default();
        STANDARD.decode(text).map_err(D::Error::custom)
    }
}

#[cfg(test)]
mod tests;
