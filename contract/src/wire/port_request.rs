//! `POST /port`: which port of which pod the server should write. Knows nothing of the rows.

use ipnet::IpNet;
use serde::{Deserialize, Serialize};

use crate::{
    annotation::shorten,
    mac::Mac,
    names::{BadName, IfName, Network, PodKey, SandboxId},
};

/// Bytes of the longest UID, name or key of a network that is accepted: as much as
/// `<namespace>/<name>` of a definition can have, 317. This bounds what a caller can put into the
/// database and the logs.
const LONGEST_TEXT: usize = 317;

/// A pod's port that the server should write into Open vSwitch's database. The server plans its
/// rows from the pod's annotations. It writes all ports that arrive at the same moment in one
/// transaction, so that ovs-vswitchd and ovn-controller handle them in one iteration.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "PortRequestJson", into = "PortRequestJson")]
pub struct PortRequest {
    pub pod: PodKey,
    /// UID of the pod as the server has answered it; empty if not known.
    pub uid: String,
    pub network: Network,
    pub sandbox: SandboxId,
    /// Name of the interface inside the pod.
    pub if_name: IfName,
    /// Name of the host's link, and of the port.
    pub host_link: IfName,
    /// What the server has answered, and the plugin configures. The server refuses the port if the
    /// annotation has another address by now.
    pub mac: Mac,
    /// The same of the IP addresses.
    pub addresses: Vec<IpNet>,
}

/// Why a request does not name a port.
#[derive(Debug, thiserror::Error)]
pub enum PortRequestError {
    #[error(transparent)]
    Name(#[from] BadName),
    #[error("{field} {value:?} is not {expected}")]
    Value { field: &'static str, value: String, expected: &'static str },
}

/// The request as spelled in JSON. Pod, UID and network as in
/// [`WatchRequest`](super::WatchRequest).
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct PortRequestJson {
    namespace: String,
    name: String,
    #[serde(default)]
    uid: String,
    nad: String,
    /// Empty for the cluster's own network.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    net_name: String,
    sandbox: String,
    if_name: String,
    host_link: String,
    mac: String,
    addresses: Vec<String>,
}

impl TryFrom<PortRequestJson> for PortRequest {
    type Error = PortRequestError;

    fn try_from(wire: PortRequestJson) -> Result<Self, PortRequestError> {
        let PortRequestJson {
            namespace,
            name,
            uid,
            nad,
            net_name,
            sandbox,
            if_name,
            host_link,
            mac,
            addresses,
        } = wire;
        let address = |text: &String| {
            text.parse().map_err(|_| bad("address", text, "one with its prefix length"))
        };
        Ok(Self {
            pod: PodKey::new(&namespace, &name)?,
            uid: short("uid", uid)?,
            network: Network::of_key(short("nad", nad)?, short("netName", net_name)?),
            sandbox: sandbox.parse()?,
            if_name: if_name.parse()?,
            host_link: host_link.parse()?,
            mac: mac.parse().map_err(|_| bad("mac", &mac, "a unicast MAC address"))?,
            addresses: addresses.iter().map(address).collect::<Result<_, _>>()?,
        })
    }
}

impl From<PortRequest> for PortRequestJson {
    fn from(request: PortRequest) -> Self {
        let PortRequest { pod, uid, network, sandbox, if_name, host_link, mac, addresses } =
            request;
        Self {
            namespace: pod.namespace().to_owned(),
            name: pod.name().to_owned(),
            uid,
            nad: network.annotation_key().to_owned(),
            net_name: match network {
                Network::Default => String::new(),
                Network::Attachment { name, .. } => name,
            },
            sandbox: sandbox.to_string(),
            if_name: if_name.to_string(),
            host_link: host_link.to_string(),
            mac: mac.to_string(),
            addresses: addresses.iter().map(IpNet::to_string).collect(),
        }
    }
}

fn short(field: &'static str, text: String) -> Result<String, PortRequestError> {
    if text.len() > LONGEST_TEXT {
        Err(bad(field, &text, "at most 317 bytes long"))
    } else {
        Ok(text)
    }
}

fn bad(field: &'static str, value: &str, expected: &'static str) -> PortRequestError {
    PortRequestError::Value { field, value: shorten(value), expected }
}

#[cfg(test)]
mod tests;
