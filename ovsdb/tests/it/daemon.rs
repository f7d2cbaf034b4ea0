//! A private `ovsdb-server` in a temporary directory.

use std::{
    ffi::OsStr,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
};

use ovsdb::{Connection, Endpoint, Options};
use tempfile::TempDir;

pub(crate) const SWITCH_SCHEMA: &str = "/usr/share/openvswitch/vswitch.ovsschema";
pub(crate) const NORTHBOUND_SCHEMA: &str = "/usr/share/ovn/ovn-nb.ovsschema";

/// A server, its directory, and its database files. Dropping it kills the process.
pub(crate) struct Daemon {
    directory: Option<TempDir>,
    server: Option<Child>,
}

impl Daemon {
    pub(crate) fn new() -> Self {
        let directory =
            tempfile::Builder::new().prefix("ovsdb-test").tempdir().expect("a temporary directory");
        Self { directory: Some(directory), server: None }
    }

    /// A server with one new database of this schema.
    pub(crate) async fn with_schema(schema: &str) -> Self {
        let mut daemon = Self::new();
        daemon.create("conf.db", schema);
        daemon.start("conf.db").await;
        daemon
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.directory.as_ref().expect("until dropped").path().join(name)
    }

    /// The server's endpoint, also while the server does not run.
    pub(crate) fn endpoint(&self) -> Endpoint {
        Endpoint::Unix(self.path("db.sock"))
    }

    pub(crate) async fn open(&self, database: &str) -> Connection {
        Connection::open(&self.endpoint(), database, Options::default())
            .await
            .expect("the server runs")
    }

    /// Creates a database file.
    pub(crate) fn create(&self, file: &str, schema: &str) {
        run("ovsdb-tool", [OsStr::new("create"), self.path(file).as_os_str(), OsStr::new(schema)]);
    }

    /// Creates the file of a clustered database, whose server numbers its transactions. This server
    /// is the only member.
    pub(crate) fn create_cluster(&self, file: &str, schema: &str) {
        let member = format!("unix:{}", self.path("raft.sock").display());
        run(
            "ovsdb-tool",
            [
                OsStr::new("create-cluster"),
                self.path(file).as_os_str(),
                OsStr::new(schema),
                OsStr::new(&member),
            ],
        );
    }

    /// Creates the file of another member of a running cluster.
    pub(crate) fn join_cluster(&self, file: &str, database: &str, other: &Self) {
        let member = |daemon: &Self| format!("unix:{}", daemon.path("raft.sock").display());
        let path = self.path(file);
        run(
            "ovsdb-tool",
            [
                OsStr::new("join-cluster"),
                path.as_os_str(),
                database.as_ref(),
                member(self).as_ref(),
                member(other).as_ref(),
            ],
        );
    }

    /// Starts the server on a database file, and waits until it accepts connections.
    pub(crate) async fn start(&mut self, file: &str) {
        self.start_with(file, []).await;
    }

    /// As [`start`](Self::start), with more options.
    pub(crate) async fn start_with(
        &mut self,
        file: &str,
        options: impl IntoIterator<Item = String>,
    ) {
        assert!(self.server.is_none(), "one server at a time");
        let mut command = Command::new("ovsdb-server");
        command
            .arg("--no-chdir")
            .arg(format!("--remote=punix:{}", self.path("db.sock").display()))
            .arg(format!("--unixctl={}", self.path("server.ctl").display()))
            .arg(format!("--log-file={}", self.path("server.log").display()))
            .args(options)
            .arg(self.path(file))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        self.server = Some(command.spawn().unwrap_or_else(|error| missing("ovsdb-server", &error)));
        for socket in ["db.sock", "server.ctl"] {
            let socket = self.path(socket);
            crate::eventually::eventually("ovsdb-server listens", async || {
                tokio::net::UnixStream::connect(&socket).await
            })
            .await;
        }
    }

    /// Makes the server listen on a port that the kernel chooses on 127.0.0.1, with `tcp` or `ssl`.
    pub(crate) async fn listen(&self, method: &str) -> Endpoint {
        // The server reports the port only in its log, which also has the earlier ports.
        let log =
            || std::fs::read_to_string(self.path("server.log")).expect("the server has opened it");
        let ports = |log: &str| -> Vec<String> {
            let said =
                log.lines().filter_map(|line| line.split_once("0:127.0.0.1: listening on port "));
            said.map(|(_, port)| port.to_owned()).collect()
        };
        let before = ports(&log()).len();
        self.control(&["ovsdb-server/add-remote", &format!("p{method}:0:127.0.0.1")]);
        let port = crate::eventually::eventually("the server names its port", async || {
            let log = log();
            ports(&log).get(before).cloned().ok_or(log)
        });
        format!("{method}:127.0.0.1:{}", port.await).parse().expect("an endpoint")
    }

    /// Kills the server with SIGKILL, as a crash would.
    pub(crate) fn kill(&mut self) {
        if let Some(mut server) = self.server.take() {
            server.kill().expect("the process is ours");
            server.wait().expect("the process is ours");
        }
    }

    /// Sends a command to the running server's control socket (ovs-appctl(8)), and returns the
    /// answer.
    pub(crate) fn control(&self, arguments: &[&str]) -> String {
        let target = format!("--target={}", self.path("server.ctl").display());
        run("ovs-appctl", std::iter::once(target.as_str()).chain(arguments.iter().copied()))
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        self.kill();
        if let Some(directory) = self.directory.take().filter(|_| std::thread::panicking()) {
            eprintln!("kept for inspection: {}", directory.keep().display());
        }
    }
}

/// Runs a tool until it exits, and returns its standard output.
pub(crate) fn run(tool: &str, arguments: impl IntoIterator<Item = impl AsRef<OsStr>>) -> String {
    let output =
        Command::new(tool).args(arguments).output().unwrap_or_else(|error| missing(tool, &error));
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{tool}: {}: {said}", output.status);
    String::from_utf8(output.stdout).expect("the tool prints text")
}

fn missing(tool: &str, error: &std::io::Error) -> ! {
    panic!("{tool}: {error}; to install it: apt-get install openvswitch-switch ovn-common")
}

/// The path itself. If the schema is missing, panics with the command that installs it.
pub(crate) fn schema(path: &str) -> &str {
    assert!(
        Path::new(path).exists(),
        "{path} is missing; to install it: apt-get install openvswitch-switch ovn-common"
    );
    path
}
