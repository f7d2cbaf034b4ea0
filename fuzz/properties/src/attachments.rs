//! The list of attachments that GC must keep: it is read completely or refused. If an entry got
//! lost, GC would remove a running pod's network.

use contract::{
    names::{IfName, SandboxId},
    net_conf::{NetConf, ValidAttachment},
};
use serde_json::{Value, json};

/// `data` is the list: one line per entry, with an ID and an interface name.
pub fn check(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let pairs: Vec<(&str, &str)> =
        text.lines().map(|line| line.split_once(' ').unwrap_or((line, ""))).collect();
    let list: Vec<Value> = pairs
        .iter()
        .map(|(id, name)| json!({"containerID": id, "ifname": name, "of": "no interest"}))
        .collect();
    let expected: Option<Vec<ValidAttachment>> = pairs
        .iter()
        .map(|(id, name)| {
            Some(ValidAttachment {
                sandbox: id.parse::<SandboxId>().ok()?,
                if_name: name.parse::<IfName>().ok()?,
            })
        })
        .collect();

    let parse = |conf: Value| NetConf::parse(conf.to_string().as_bytes());
    for key in ["cni.dev/valid-attachments", "cni.dev/attachments"] {
        let conf = parse(json!({"cniVersion": "1.1.0", "name": "n", "type": "t", key: list}));
        match (conf, &expected) {
            (Ok(conf), Some(_)) => assert_eq!(conf.valid_attachments, expected, "{key}"),
            (Err(error), None) => assert_eq!(error.code().number(), 7, "{key}: {error}"),
            (Ok(_), None) => panic!("{key}: a name that is none was passed over"),
            (Err(error), Some(_)) => panic!("{key}: {error}"),
        }
    }
    // If both keys are there, the one of the specification counts.
    let both = json!({"cniVersion": "1.1.0", "name": "n", "type": "t", "cni.dev/valid-attachments": [], "cni.dev/attachments": list});
    if let Ok(conf) = parse(both) {
        assert_eq!(conf.valid_attachments, Some(Vec::new()));
    }
}
