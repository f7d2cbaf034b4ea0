//! A port in Open vSwitch's database, with the rows that this plugin or upstream's writes.

use std::collections::BTreeMap;

use contract::external_ids::{
    ATTACHED_MAC, IFACE_ID, IP_ADDRESSES, NAD, NETWORK, POD_IF_NAME, SANDBOX,
};

use crate::database::Database;

/// A port of `br-int` that is not written yet.
#[derive(Debug, Clone)]
pub struct Port {
    name: String,
    ids: BTreeMap<&'static str, String>,
    qos: Option<BTreeMap<&'static str, String>>,
}

impl Port {
    /// A port without a sandbox: an administrator's, or the management port.
    pub fn unowned(name: &str) -> Self {
        Self { name: name.to_owned(), ids: BTreeMap::new(), qos: None }
    }

    /// A port as this plugin writes it.
    pub fn of(sandbox: &str, if_name: &str, name: &str) -> Self {
        Self::of_upstream(sandbox, name).id(POD_IF_NAME, if_name)
    }

    /// A port as upstream's plugin wrote it before 2026: without the name of the pod's interface.
    pub fn of_upstream(sandbox: &str, name: &str) -> Self {
        Self::unowned(name)
            .id(SANDBOX, sandbox)
            .id(IFACE_ID, &format!("shop_{name}"))
            .id(ATTACHED_MAC, "0a:58:0a:f4:01:05")
            .id(IP_ADDRESSES, "10.244.1.5/24,fd00:10:244:1::5/64")
    }

    /// Sets a network other than the cluster's own.
    pub fn on_network(self, network: &str, nad: &str) -> Self {
        self.id(NETWORK, network).id(NAD, nad)
    }

    /// Adds a rate limit as this plugin writes it.
    pub fn with_limit(mut self) -> Self {
        let owner = self.ids.iter().filter(|(key, _)| [SANDBOX, POD_IF_NAME].contains(key));
        self.qos = Some(owner.map(|(key, value)| (*key, value.clone())).collect());
        self
    }

    fn id(mut self, key: &'static str, value: &str) -> Self {
        self.ids.insert(key, value.to_owned());
        self
    }

    /// Adds the port to `br-int`.
    #[track_caller]
    pub fn put(&self, database: &Database) {
        let Self { name, ids, qos } = self;
        let pairs = |ids: &BTreeMap<&'static str, String>| -> Vec<String> {
            ids.iter().map(|(key, value)| format!("external_ids:\"{key}\"=\"{value}\"")).collect()
        };
        let words =
            |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>();
        let mut arguments = words(&["add-port", "br-int", name]);
        if !ids.is_empty() {
            arguments.extend([words(&["--", "set", "Interface", name]), pairs(ids)].concat());
        }
        if let Some(owner) = qos {
            arguments.extend(words(&["--", "set", "Port", name, "qos=@limit"]));
            arguments.extend(
                [
                    words(&[
                        "--",
                        "--id=@limit",
                        "create",
                        "QoS",
                        "type=linux-htb",
                        "other_config:max-rate=10000000",
                    ]),
                    pairs(owner),
                ]
                .concat(),
            );
        }
        database.vsctl(&arguments);
    }
}
