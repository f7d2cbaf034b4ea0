//! The paths of one node in a directory of the test: sockets, manifests, configurations, logs.

use std::{fs, path::PathBuf};

use serde_json::{Value, json};

use crate::{
    database::Database,
    namespace::Namespace,
    plugin::{Plugin, new_sandbox},
    scratch::Scratch,
};

/// A node without running programs.
#[derive(Debug)]
pub struct Node {
    /// ID of the sandbox of the node's calls.
    pub sandbox: String,
    scratch: Scratch,
}

impl Node {
    pub fn new() -> Self {
        Self { sandbox: new_sandbox(), scratch: Scratch::new() }
    }

    /// A path in the node's directory; the file need not exist.
    pub fn path(&self, name: &str) -> PathBuf {
        self.scratch.join(name)
    }

    /// Creates a directory of the node.
    pub fn make_dir(&self, name: &str) -> PathBuf {
        self.scratch.make_dir(name)
    }

    /// The server's socket, as the plugin is configured to find it.
    pub fn server_socket(&self) -> PathBuf {
        self.path("cni/server.sock")
    }

    /// The file in which the server records when it was last able to answer.
    pub fn stamp(&self) -> PathBuf {
        self.path("cni/server.synced")
    }

    /// Directory of Open vSwitch's sockets and PID files.
    pub fn ovs_run_dir(&self) -> PathBuf {
        self.path("ovs")
    }

    /// The database's socket, as the plugin is configured to find it.
    pub fn ovsdb_socket(&self) -> PathBuf {
        self.ovs_run_dir().join("db.sock")
    }

    /// Directory of ovn-controller's socket and PID file.
    pub fn ovn_run_dir(&self) -> PathBuf {
        self.path("ovn")
    }

    pub fn plugin_log(&self) -> PathBuf {
        self.path("log/plugin.log")
    }

    /// The lines of a log; empty if there is no log.
    pub fn log_lines(&self, path: &str) -> Vec<String> {
        fs::read_to_string(self.path(path)).unwrap_or_default().lines().map(str::to_owned).collect()
    }

    /// A configuration of version 1.1.0 with the node's paths. Its deadline of 3 s is short,
    /// because some tests wait for it.
    pub fn conf(&self) -> Value {
        json!({
            "cniVersion": "1.1.0",
            "name": "ovn-kubernetes",
            "type": "ovn-k8s-cni-overlay",
            "serverSocket": self.server_socket(),
            "ovsdbEndpoint": format!("unix:{}", self.ovsdb_socket().display()),
            "ovnRunDir": self.ovn_run_dir(),
            "logFile": self.plugin_log(),
            "logLevel": "dbg",
            "timeoutSeconds": 3,
        })
    }

    /// The configuration with changed keys; null removes a key.
    pub fn conf_with(&self, changes: Value) -> Value {
        let mut conf = self.conf();
        let (Value::Object(keys), Value::Object(changes)) = (&mut conf, changes) else {
            panic!("changes are an object")
        };
        for (key, value) in changes {
            match value {
                Value::Null => keys.remove(&key),
                value => keys.insert(key, value),
            };
        }
        conf
    }

    /// A call with all variables, and with the node's configuration.
    pub fn call(&self, verb: &str) -> Plugin<'static> {
        Plugin::new(verb).with("CNI_CONTAINERID", &self.sandbox).conf(&self.conf())
    }

    /// An ADD of pod `shop/cart-0`. Its privileges suffice up to the annotation, and no further.
    pub fn add<'a>(&self, namespace: &'a Namespace) -> Plugin<'a> {
        Plugin::new("ADD")
            .with("CNI_CONTAINERID", &self.sandbox)
            .in_namespace(namespace)
            .conf(&self.conf())
    }

    /// Open vSwitch's database, without a bridge.
    #[track_caller]
    pub fn start_database(&self) -> Database {
        Database::start(&self.make_dir("ovs"))
    }

    /// Open vSwitch's database, with `br-int`.
    #[track_caller]
    pub fn start_database_with_bridge(&self) -> Database {
        let database = self.start_database();
        database.vsctl(&["add-br", "br-int"]);
        database.say_all_done();
        database
    }
}

impl Default for Node {
    fn default() -> Self {
        Self::new()
    }
}
