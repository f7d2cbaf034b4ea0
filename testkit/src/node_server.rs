//! `ovnkube --init-node` on the node of a test.

use std::{
    fs::{self, File},
    os::unix::net::UnixStream,
    path::PathBuf,
    process::Stdio,
    time::Duration,
};

use contract::wire::REQUEST_PATH;
use serde_json::Value;

use crate::{
    database::Database,
    eventually, executable,
    http::{self, Message},
    node::Node,
    pod::Pod,
    process::Process,
    program,
};

/// Limit for a line to appear in the server's log.
const PATIENCE: Duration = Duration::from_secs(10);

/// A running server that listens.
#[derive(Debug)]
pub struct NodeServer {
    pub process: Process,
    pub socket: PathBuf,
    pub log: PathBuf,
    /// Directory of the configurations for runtimes.
    pub conf_dir: PathBuf,
    manifests: PathBuf,
    /// The server's own database, if the node has none.
    _database: Option<Database>,
}

impl Node {
    /// Starts the node's server, and waits until it is ready.
    #[track_caller]
    pub fn start_server(&self) -> NodeServer {
        NodeServer::start_with(self, &[])
    }
}

impl NodeServer {
    /// Starts the server with further options. If the node has no database of Open vSwitch, the
    /// server gets one of its own.
    #[track_caller]
    pub fn start_with(node: &Node, options: &[&str]) -> Self {
        let manifests = node.make_dir("manifests");
        let (socket, log, conf_dir) =
            (node.server_socket(), node.path("log/ovnkube.log"), node.path("net.d"));
        let database = (!node.ovsdb_socket().exists())
            .then(|| Database::start(&node.make_dir("ovs-of-the-server")));
        let endpoint = database.as_ref().map_or_else(
            || format!("unix:{}", node.ovsdb_socket().display()),
            |own| own.endpoint().to_owned(),
        );
        let mut command = program::unprivileged(executable::path(executable::SERVER));
        command
            .args(["--ovsdb-endpoint", &endpoint, "--encap-ip", "127.0.0.1"])
            .arg("--cni-bin-dir")
            .arg(node.make_dir("bin"));
        command
            .args(["--init-node", "node1", "--loglevel", "dbg"])
            .arg("--pod-manifests")
            .arg(&manifests);
        command.arg("--cni-socket").arg(&socket).arg("--cni-conf-dir").arg(&conf_dir);
        command.arg("--logfile").arg(&log).arg("--cnilogfile").arg(node.plugin_log()).args(options);
        let errors = File::create(node.make_dir("log").join("ovnkube.err"))
            .expect("a file in our directory can be made");
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(errors);
        let mut process = Process::start(&mut command);
        process.ready("the server is ready", || {
            let written = fs::read_dir(&conf_dir).map_err(|error| error.to_string())?.flatten();
            // The server listens before it writes the configuration.
            let loaded = written
                .filter(|entry| !entry.file_name().as_encoded_bytes().starts_with(b"."))
                .count();
            if loaded == 0 {
                Err("no CNI configuration".to_owned())
            } else {
                UnixStream::connect(&socket).map_err(|error| error.to_string())
            }
        });
        Self { process, socket, log, conf_dir, manifests, _database: database }
    }

    /// Writes a pod's manifest, and replaces an earlier one atomically.
    #[track_caller]
    pub fn put(&self, pod: &Pod) {
        pod.write_to(&self.manifests);
    }

    /// Deletes a pod's manifest.
    #[track_caller]
    pub fn delete(&self, pod: &Pod) {
        pod.delete_from(&self.manifests);
    }

    /// Waits for a line with this text in the log, and returns it.
    #[track_caller]
    pub fn wait_for_line(&self, text: &str) -> String {
        eventually(&format!("{text:?} in the server's log"), PATIENCE, || {
            let log = fs::read_to_string(&self.log).unwrap_or_default();
            log.lines().find(|line| line.contains(text)).map(str::to_owned).ok_or(log)
        })
    }

    /// Posts a request as a plugin does.
    #[track_caller]
    pub fn ask(&self, request: &Value) -> (Message, Duration) {
        http::post(&self.socket, REQUEST_PATH, request.to_string().as_bytes())
    }

    /// Stops the server and waits until it has ended.
    #[track_caller]
    pub fn stop(self) {
        let status = self.process.stop();
        assert!(status.success(), "the server ended with {status}");
    }
}
