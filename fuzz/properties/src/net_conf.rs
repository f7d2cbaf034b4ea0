//! The CNI configuration on standard input: an accepted configuration can be written in one
//! canonical form and means the same when it is read again, also inside a list with one plugin.
//! Knows the keys that the product reads, not their effects.

use cni::result::PrevResult;
use contract::{
    names::Network,
    net_conf::{LogConf, NetConf, Places, ValidAttachment},
};
use serde_json::{Value, json};

use crate::LONGEST_ERROR;

/// `data` is the standard input.
pub fn check(data: &[u8]) {
    let conf = match NetConf::parse(data) {
        Ok(conf) => conf,
        Err(error) => {
            let text = error.to_string();
            assert!(text.len() <= LONGEST_ERROR, "an error of {} bytes", text.len());
            return assert_ne!(
                error.code().number(),
                999,
                "{error}: a caller's mistake is no internal error"
            );
        }
    };
    let written = write(&conf);
    let again = read(&written);
    assert_eq!(write(&again), written, "a second writing differs");

    // A runtime passes the plugin's configuration, cnitool may pass the whole list.
    let mut plugin = written.clone();
    let fields = plugin.as_object_mut().expect("an object is written");
    let shared =
        ["cniVersion", "name"].map(|key| (key, fields.remove(key).expect("both are written")));
    let mut list = json!({"plugins": [plugin]});
    shared.into_iter().for_each(|(key, value)| list[key] = value);
    assert_eq!(write(&read(&list)), written, "the same as a list of one");

    // CHECK and DEL read `prevResult`, whatever the runtime passes.
    if let Some(previous) =
        conf.prev_result.and_then(|value| serde_json::from_value::<PrevResult>(value).ok())
    {
        for interface in &previous.interfaces {
            assert!(previous.addresses_of(&interface.name).count() <= previous.ips.len());
        }
    }
}

fn read(written: &Value) -> NetConf {
    NetConf::parse(written.to_string().as_bytes())
        .unwrap_or_else(|error| panic!("{written} is refused: {error}"))
}

/// Writes every field in its canonical form, without the previous result, which is passed on
/// unchanged.
fn write(conf: &NetConf) -> Value {
    let NetConf {
        version,
        name,
        network,
        mtu,
        log,
        places,
        netns_link,
        timeout_seconds,
        prev_result: _,
        valid_attachments,
    } = conf;
    let LogConf { file, level } = log;
    let Places { server_socket, ovsdb_endpoint, ovn_run_dir } = places;
    let attachment = |ValidAttachment { sandbox, if_name }: &ValidAttachment| json!({"containerID": sandbox.as_str(), "ifname": if_name.as_str()});
    let attachments: Option<Vec<Value>> =
        valid_attachments.as_ref().map(|list| list.iter().map(attachment).collect());
    let mut written = json!({
        "cniVersion": version.as_str(),
        "name": name,
        "type": "ovn-k8s-cni-overlay",
        "mtu": mtu.map(|mtu| mtu.bytes()),
        "logFile": file.as_deref().unwrap_or_default(),
        "logLevel": level,
        "serverSocket": server_socket,
        "ovsdbEndpoint": ovsdb_endpoint,
        "ovnRunDir": ovn_run_dir,
        "netnsLink": netns_link,
        "timeoutSeconds": timeout_seconds,
        "cni.dev/valid-attachments": attachments,
    });
    if let Network::Attachment { name, nad } = network {
        assert_eq!(name, &conf.name, "the network of a definition has the configuration's name");
        written["topology"] = json!("layer3");
        written["netAttachDefName"] = json!(nad);
    }
    written
}
