//! The CNI configuration on the plugin's standard input.
//!
//! Tolerant in form (unknown keys, a list of one plugin, numbers as text), strict in meaning.

use serde::Deserialize;
use serde_json::Value;

use crate::{
    annotation::shorten,
    error::Code,
    mtu::{BadMtu, Mtu},
    names::{BadName, IfName, Network, SandboxId},
    spec_version::{SpecVersion, UnknownVersion},
};

/// What the configuration asks for.
#[derive(Debug, Clone)]
pub struct NetConf {
    pub version: SpecVersion,
    /// Name of the network as the runtime knows it. GC removes only what belongs to it.
    pub name: String,
    pub network: Network,
    /// `None`: the server decides.
    pub mtu: Option<Mtu>,
    pub log: LogConf,
    pub places: Places,
    /// `netnsLink`: an attached pod's namespace gets a name for `ip netns`, the container's id.
    pub netns_link: bool,
    /// How long an ADD may take, in seconds; `None` for the default.
    pub timeout_seconds: Option<u64>,
    /// The result of the previous plugin, or of the ADD to check or delete; not parsed yet.
    pub prev_result: Option<Value>,
    /// The attachments that GC must keep; `None` if the runtime did not send any list.
    pub valid_attachments: Option<Vec<ValidAttachment>>,
}

/// Where the plugin logs, as the configuration says.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LogConf {
    /// `None` for the default file.
    pub file: Option<String>,
    /// The name of a level, or klog's number; `None` for the default.
    pub level: Option<String>,
}

/// Where the plugin finds the server, OVSDB and ovn-controller; `None` for the defaults of
/// [`paths`](crate::paths). For tests and unusual hosts.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Places {
    /// `serverSocket`: path of the node-local server's socket.
    pub server_socket: Option<String>,
    /// `ovsdbEndpoint`: `unix:PATH` or `tcp:HOST:PORT`. Open vSwitch's pid files are expected
    /// beside a socket.
    pub ovsdb_endpoint: Option<String>,
    /// `ovnRunDir`: directory of ovn-controller's pid file and control socket.
    pub ovn_run_dir: Option<String>,
}

/// An attachment that GC must keep (SPEC.md, "GC", `cni.dev/valid-attachments`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ValidAttachment {
    pub sandbox: SandboxId,
    pub if_name: IfName,
}

/// Why a configuration cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum NetConfError {
    #[error("not a JSON object with the keys of a CNI configuration")]
    Json(#[from] serde_json::Error),
    #[error(transparent)]
    Version(#[from] UnknownVersion),
    #[error(
        "network name {0:?} does not start with a letter or digit, \
         or has characters other than letters, digits, '_', '.' and '-'"
    )]
    Name(String),
    #[error("a list of {0} plugins where one is expected")]
    Chain(usize),
    #[error("no type")]
    NoType,
    #[error("deviceID {0:?}: devices passed to pods (SR-IOV) are not supported")]
    Device(String),
    #[error("topology {0:?} without netAttachDefName")]
    NoAttachmentName(String),
    #[error(transparent)]
    Mtu(#[from] BadMtu),
    #[error("cni.dev/valid-attachments")]
    Attachment(#[from] BadName),
}

impl NetConfError {
    /// The error code. Plugin and server both use it.
    pub fn code(&self) -> Code {
        match self {
            Self::Json(_) => Code::Decode,
            Self::Version(_) => Code::IncompatibleVersion,
            Self::Device(_) => Code::UnsupportedField,
            Self::Name(_)
            | Self::Chain(_)
            | Self::NoType
            | Self::NoAttachmentName(_)
            | Self::Mtu(_)
            | Self::Attachment(_) => Code::InvalidConfig,
        }
    }
}

/// The keys that a DEL needs: which interface it is, and where everything is.
const FOR_DEL: [&str; 11] = [
    "cniVersion",
    "name",
    "type",
    "topology",
    "netAttachDefName",
    "logFile",
    "logLevel",
    "serverSocket",
    "ovsdbEndpoint",
    "ovnRunDir",
    "netnsLink",
];

impl NetConf {
    /// Reads a configuration, or a list with a single plugin.
    ///
    /// # Errors
    /// The text is not a JSON object, or a key has a value that cannot be used; the first one is
    /// named.
    pub fn parse(bytes: &[u8]) -> Result<Self, NetConfError> {
        Self::read(serde_json::from_slice(bytes)?)
    }

    /// Reads a configuration for a DEL, which has to succeed even if the configuration was damaged
    /// after the ADD. Keys that say how to attach a pod are ignored, and an unknown version counts
    /// as the oldest one.
    ///
    /// # Errors
    /// The text is not a JSON object, or a key that says which interface it is, or where Open
    /// vSwitch is, cannot be used.
    pub fn parse_for_del(bytes: &[u8]) -> Result<Self, NetConfError> {
        let mut object = serde_json::from_slice(bytes)?;
        keep_for_del(&mut object);
        Self::read(object)
    }

    fn read(object: serde_json::Map<String, Value>) -> Result<Self, NetConfError> {
        // `object` is a JSON object by its type: serde would read a JSON array as the fields in
        // their order.
        let mut wire: NetConfJson = serde_json::from_value(object.into())?;
        if let Some(plugins) = wire.plugins.take() {
            let [plugin]: [Value; 1] =
                plugins.try_into().map_err(|list: Vec<_>| NetConfError::Chain(list.len()))?;
            let plugin: NetConfJson = serde_json::from_value(plugin)?;
            // Version and name belong to the list, all other keys to the plugin (SPEC.md,
            // "Configuration format").
            wire = NetConfJson { cni_version: wire.cni_version, name: wire.name, ..plugin };
        }
        wire.try_into()
    }
}

/// Removes all keys but those of [`FOR_DEL`] from a configuration, or from the plugins of a list.
fn keep_for_del(object: &mut serde_json::Map<String, Value>) {
    // A version that is not a string is kept, so that parsing refuses it.
    let is_known =
        |version: &Value| version.as_str().is_none_or(|text| text.parse::<SpecVersion>().is_ok());
    object.retain(|key, value| match key.as_str() {
        "cniVersion" => is_known(value),
        "plugins" => true,
        // Numbers are levels, too.
        "logLevel" => value.is_string() || value.is_number(),
        "logFile" | "netAttachDefName" => value.is_string(),
        "netnsLink" => value.is_boolean(),
        key => FOR_DEL.contains(&key),
    });
    // A DEL does not need to know which topology it is, but whether the interface is one of a
    // network attachment.
    if object.get("topology").is_some_and(|topology| !topology.is_string()) {
        match object.get("netAttachDefName").and_then(Value::as_str) {
            None | Some("") => object.remove("topology"),
            Some(_) => object.insert("topology".to_owned(), "unknown".into()),
        };
    }
    for plugin in object.get_mut("plugins").and_then(Value::as_array_mut).into_iter().flatten() {
        if let Value::Object(plugin) = plugin {
            keep_for_del(plugin);
        }
    }
}

/// The configuration as spelled in JSON (SPEC.md, "Configuration format", and the keys of
/// OVN-Kubernetes).
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct NetConfJson {
    cni_version: String,
    name: String,
    r#type: String,
    plugins: Option<Vec<Value>>,
    mtu: Option<u64>,
    topology: String,
    net_attach_def_name: String,
    #[serde(rename = "deviceID")]
    device_id: String,
    log_file: String,
    log_level: Option<Value>,
    server_socket: Option<String>,
    ovsdb_endpoint: Option<String>,
    ovn_run_dir: Option<String>,
    netns_link: bool,
    timeout_seconds: Option<u64>,
    prev_result: Option<Value>,
    #[serde(rename = "cni.dev/valid-attachments")]
    valid_attachments: Option<Vec<AttachmentJson>>,
    /// The Go library's name for the same list.
    #[serde(rename = "cni.dev/attachments")]
    attachments: Option<Vec<AttachmentJson>>,
}

#[derive(Deserialize)]
struct AttachmentJson {
    #[serde(rename = "containerID")]
    container_id: String,
    ifname: String,
}

impl TryFrom<NetConfJson> for NetConf {
    type Error = NetConfError;

    fn try_from(wire: NetConfJson) -> Result<Self, NetConfError> {
        let NetConfJson {
            cni_version,
            name,
            r#type,
            plugins: _, // taken apart by the caller
            mtu,
            topology,
            net_attach_def_name,
            device_id,
            log_file,
            log_level,
            server_socket,
            ovsdb_endpoint,
            ovn_run_dir,
            netns_link,
            timeout_seconds,
            prev_result,
            valid_attachments,
            attachments,
        } = wire;

        let version = cni_version.parse()?;
        check_network_name(&name)?;
        if r#type.is_empty() {
            return Err(NetConfError::NoType);
        }
        if !device_id.is_empty() {
            return Err(NetConfError::Device(shorten(&device_id)));
        }
        let network = match (topology.is_empty(), net_attach_def_name.is_empty()) {
            (true, _) => Network::Default,
            (false, true) => return Err(NetConfError::NoAttachmentName(shorten(&topology))),
            (false, false) => Network::Attachment { name: name.clone(), nad: net_attach_def_name },
        };
        let attachment = |AttachmentJson { container_id, ifname }| {
            Ok::<_, BadName>(ValidAttachment {
                sandbox: container_id.parse()?,
                if_name: ifname.parse()?,
            })
        };
        Ok(Self {
            version,
            name,
            network,
            // Upstream's configurations have 0 for "not set".
            mtu: mtu.filter(|mtu| *mtu != 0).map(Mtu::try_from).transpose()?,
            log: LogConf {
                file: Some(log_file).filter(|file| !file.is_empty()),
                level: log_level.and_then(|level| match level {
                    Value::String(text) if !text.is_empty() => Some(text),
                    Value::Number(number) => Some(number.to_string()),
                    _ => None,
                }),
            },
            places: Places { server_socket, ovsdb_endpoint, ovn_run_dir },
            netns_link,
            timeout_seconds,
            prev_result: prev_result.filter(|value| !value.is_null()),
            valid_attachments: valid_attachments
                .or(attachments)
                .map(|list| list.into_iter().map(attachment).collect())
                .transpose()?,
        })
    }
}

/// The rule of the Go library's `utils.ValidateNetworkName`.
fn check_network_name(name: &str) -> Result<(), NetConfError> {
    let good = name.starts_with(|c: char| c.is_ascii_alphanumeric())
        && name.bytes().all(|b| b.is_ascii_alphanumeric() || b"_.-".contains(&b));
    if good { Ok(()) } else { Err(NetConfError::Name(shorten(name))) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<NetConf, NetConfError> {
        NetConf::parse(text.as_bytes())
    }

    #[test]
    fn upstreams_configuration_is_accepted_as_it_is() {
        let conf = parse(
            r#"{"cniVersion":"0.4.0","name":"ovn-kubernetes","type":"ovn-k8s-cni-overlay","ipam":{},"dns":{},"logFile":"/l","logLevel":"4",
                "logfile-maxsize":100,"logfile-maxbackups":5,"logfile-maxage":5,"runtimeConfig":{}}"#,
        )
        .unwrap();
        assert_eq!((conf.version, conf.network), (SpecVersion::V0_4_0, Network::Default));
        assert_eq!(conf.log, LogConf { file: Some("/l".to_owned()), level: Some("4".to_owned()) });
    }

    #[test]
    fn a_list_of_one_plugin_means_that_plugin() {
        let conf = parse(
            r#"{"cniVersion":"1.0.0","name":"n","plugins":[{"type":"ovn-k8s-cni-overlay","mtu":1300}]}"#,
        )
        .unwrap();
        assert_eq!(
            (conf.version, conf.name.as_str(), conf.mtu),
            (SpecVersion::V1_0_0, "n", Some(Mtu::try_from(1300).unwrap()))
        );
    }

    #[test]
    fn the_configuration_of_2016_means_the_oldest_version() {
        let text = r#"{"name":"net","type":"ovn_cni","bridge":"br-int","isGateway":"true","ipMasq":"false","ipam":{"type":"host-local"}}"#;
        assert_eq!(parse(text).unwrap().version, SpecVersion::V0_1_0);
    }

    #[test]
    fn another_network_is_one_of_an_attachment_definition() {
        let conf = parse(
            r#"{"name":"blue","type":"t","topology":"layer2","netAttachDefName":"shop/blue"}"#,
        )
        .unwrap();
        assert_eq!(
            conf.network,
            Network::Attachment { name: "blue".to_owned(), nad: "shop/blue".to_owned() }
        );
    }

    #[test]
    fn a_configuration_that_was_spoilt_after_the_add_is_enough_for_del() {
        let spoilt = r#"{"cniVersion":"9.9","name":"blue","plugins":[{"type":"t","topology":"layer2","netAttachDefName":"shop/blue",
            "mtu":"much","deviceID":"0000:03:02.3","timeoutSeconds":-1,"ovsdbEndpoint":"tcp:127.0.0.1:1","prevResult":7,
            "cni.dev/valid-attachments":[{}]}]}"#;
        assert!(parse(spoilt).is_err());
        let conf = NetConf::parse_for_del(spoilt.as_bytes()).unwrap();
        assert_eq!(
            conf.network,
            Network::Attachment { name: "blue".to_owned(), nad: "shop/blue".to_owned() }
        );
        assert_eq!(
            (conf.version, conf.places.ovsdb_endpoint.as_deref()),
            (SpecVersion::V0_1_0, Some("tcp:127.0.0.1:1"))
        );
        assert_eq!((conf.mtu, conf.timeout_seconds, conf.prev_result), (None, None, None));
        // Neither the log nor a topology that cannot be read keeps an interface from being removed.
        for (spoilt, network) in [
            (r#""topology":7,"logLevel":{},"logFile":[7]"#, Network::Default),
            (
                r#""topology":null,"logLevel":null,"logFile":null,"netAttachDefName":null"#,
                Network::Default,
            ),
            (
                r#""topology":7,"netAttachDefName":"shop/blue""#,
                Network::Attachment { name: "blue".to_owned(), nad: "shop/blue".to_owned() },
            ),
        ] {
            for text in [
                format!(r#"{{"name":"blue","type":"t",{spoilt}}}"#),
                format!(r#"{{"name":"blue","plugins":[{{"type":"t",{spoilt}}}]}}"#),
            ] {
                assert!(matches!(parse(&text), Err(NetConfError::Json(_))), "{text}");
                let conf = NetConf::parse_for_del(text.as_bytes()).expect(&text);
                assert_eq!(
                    (conf.network, conf.log),
                    (network.clone(), LogConf::default()),
                    "{text}"
                );
            }
        }
        // The network cannot be guessed: the interface could belong to another one.
        let unnamed = br#"{"name":"blue","type":"t","topology":"layer2"}"#;
        assert!(matches!(NetConf::parse_for_del(unnamed), Err(NetConfError::NoAttachmentName(_))));
        assert!(matches!(NetConf::parse_for_del(b"7"), Err(NetConfError::Json(_))));
    }

    #[test]
    fn what_cannot_be_used_is_named() {
        for (text, message) in [
            ("7", "not a JSON object with the keys of a CNI configuration"),
            (r#"{"name":"n"}"#, "no type"),
            (
                r#"{"cniVersion":"2.0.0","name":"n","type":"t"}"#,
                "CNI version \"2.0.0\" is not one of 0.1.0, 0.2.0, 0.3.0, 0.3.1, 0.4.0, 1.0.0, 1.1.0",
            ),
            (r#"{"name":"n","type":"t","mtu":9}"#, "MTU 9 is not between 576 and 65535"),
            (
                r#"{"name":"n","type":"t","topology":"layer2"}"#,
                "topology \"layer2\" without netAttachDefName",
            ),
            (
                r#"{"name":"n","plugins":[{"type":"a"},{"type":"b"}]}"#,
                "a list of 2 plugins where one is expected",
            ),
            (
                r#"{"name":"n","type":"t","deviceID":"0000:03:02.3"}"#,
                "deviceID \"0000:03:02.3\": devices passed to pods (SR-IOV) are not supported",
            ),
        ] {
            assert_eq!(parse(text).expect_err(text).to_string(), message);
        }
        assert!(matches!(parse(r#"{"name":"a b","type":"t"}"#), Err(NetConfError::Name(_))));
    }
}
