//! A server in a directory of its own, and its callers.

use std::{
    fmt::Debug,
    fs,
    io::Write,
    os::unix::net::UnixStream,
    path::{Path, PathBuf},
    process::{Command, ExitStatus, Stdio},
    time::{Duration, Instant},
};

use nix::sys::signal::Signal;
use serde_json::{Value, json};
use testkit::{
    Database, Scratch,
    http::{self, Message},
    process::Process,
};

/// Limit for every wait of a test: longer than any step takes on a busy machine.
pub(crate) const SOON: Duration = Duration::from_secs(10);

/// A running server. Killed when dropped; its directory stays if the test failed.
pub(crate) struct Server {
    /// Where systemd would listen.
    pub(crate) notify: Option<PathBuf>,
    /// Additional environment variables of the process.
    pub(crate) environment: Vec<(&'static str, PathBuf)>,
    /// What a shell does first in a network namespace of the server's own. Without it, the server
    /// is in the test's.
    pub(crate) inside: Option<String>,
    // In this order: the processes end before their directory is removed.
    process: Option<Process>,
    database: Option<Database>,
    pub(crate) directory: Scratch,
}

impl Server {
    pub(crate) fn start() -> Self {
        Self::start_with(&[])
    }

    pub(crate) fn start_with(options: &[&str]) -> Self {
        let mut server = Self::spawn(options);
        server.ready();
        server
    }

    /// A server that starts after `prepare` has changed the database.
    pub(crate) fn start_after(prepare: impl FnOnce(&Database)) -> Self {
        let mut server = Self::prepare();
        server.start_database();
        prepare(server.database());
        server.respawn(&[]);
        server.ready();
        server
    }

    pub(crate) fn start_with_pidfile() -> Self {
        let mut server = Self::prepare();
        server.start_database();
        let pidfile = server.directory.join("ovnkube.pid");
        server.respawn(&["--pidfile", pidfile.to_str().unwrap()]);
        server.ready();
        server
    }

    /// A server that may not be ready yet.
    pub(crate) fn spawn(options: &[&str]) -> Self {
        let mut server = Self::prepare();
        server.start_database();
        server.respawn(options);
        server
    }

    /// A server without a database.
    pub(crate) fn spawn_without_database(options: &[&str]) -> Self {
        let mut server = Self::prepare();
        server.respawn(options);
        server
    }

    /// Only the directory, without a server.
    pub(crate) fn prepare() -> Self {
        let directory = Scratch::new();
        directory.make_dir("pods");
        Self {
            notify: None,
            environment: Vec::new(),
            inside: None,
            process: None,
            database: None,
            directory,
        }
    }

    /// Starts the process (again).
    pub(crate) fn respawn(&mut self, options: &[&str]) {
        let mut command = init_node(self.directory.path());
        if let Some(first) = &self.inside {
            command = inside(first, &command);
        }
        if let Some(socket) = &self.notify {
            command.env("NOTIFY_SOCKET", socket);
        }
        command.envs(self.environment.iter().cloned()).args(options);
        self.process = Some(Process::start(command.stderr(Stdio::piped())));
    }

    /// Waits for the CNI configuration.
    pub(crate) fn ready(&mut self) {
        let conf = self.conf_dir().join("10-ovn-kubernetes.conflist");
        let written =
            || conf.exists().then_some(()).ok_or_else(|| "no CNI configuration".to_owned());
        self.process_mut().ready("the CNI configuration is there", written);
    }

    /// Waits for the socket only: a server that knows no subnet writes no CNI configuration.
    pub(crate) fn listening(&mut self) {
        eventually("the socket is served", || UnixStream::connect(self.socket()).map(drop));
    }

    fn process(&self) -> &Process {
        self.process.as_ref().expect("the server was started")
    }

    fn process_mut(&mut self) -> &mut Process {
        self.process.as_mut().expect("the server was started")
    }

    pub(crate) fn database(&self) -> &Database {
        self.database.as_ref().expect("the database was started")
    }

    pub(crate) fn start_database(&mut self) {
        self.database = Some(Database::start(self.directory.path()));
    }

    /// A database without the row that `ovs-vsctl init` makes.
    pub(crate) fn start_empty_database(&mut self) {
        self.database = Some(Database::start_empty(self.directory.path()));
    }

    pub(crate) fn stop_database(&mut self) {
        self.database.take().expect("the database was started").process.stop();
    }

    /// Starts the database again with its old content.
    pub(crate) fn restart_database(&mut self) {
        self.database = Some(Database::restart(self.directory.path()));
    }

    /// One of `external_ids` of table `Open_vSwitch`.
    pub(crate) fn external_id(&self, key: &str) -> Option<String> {
        let text = self.database().vsctl(&[
            "--if-exists",
            "get",
            "Open_vSwitch",
            ".",
            &format!("external_ids:{key}"),
        ]);
        (!text.is_empty()).then(|| text.trim_matches('"').to_owned())
    }

    pub(crate) fn socket(&self) -> PathBuf {
        self.directory.join("run/server.sock")
    }

    pub(crate) fn conf_dir(&self) -> PathBuf {
        self.directory.join("net.d")
    }

    pub(crate) fn log(&self) -> String {
        fs::read_to_string(self.directory.join("log")).unwrap_or_default()
    }

    pub(crate) fn log_says(&self, text: &str) {
        eventually(&format!("the log says {text:?}"), || {
            self.log().contains(text).then_some(()).ok_or_else(|| self.log())
        });
    }

    /// Writes a manifest atomically: with a rename.
    pub(crate) fn pod(&self, name: &str, uid: &str, annotation: Option<&str>) {
        self.timed_pod(name, uid, annotation);
    }

    /// The same; returns the time of the rename.
    pub(crate) fn timed_pod(&self, name: &str, uid: &str, annotation: Option<&str>) -> Instant {
        let annotations =
            annotation.map(|text| json!({"k8s.ovn.org/pod-networks": text})).unwrap_or(json!({}));
        let pod = json!({"kind": "Pod", "metadata": {"name": name, "namespace": "shop", "uid": uid, "annotations": annotations}});
        let manifests = self.directory.join("pods");
        let temporary = manifests.join(format!(".{name}"));
        fs::write(&temporary, pod.to_string()).unwrap();
        let now = Instant::now();
        fs::rename(temporary, manifests.join(format!("{name}.json"))).unwrap();
        now
    }

    pub(crate) fn delete_pod(&self, name: &str) {
        fs::remove_file(self.directory.join(format!("pods/{name}.json"))).unwrap();
    }

    pub(crate) fn connect(&self) -> UnixStream {
        UnixStream::connect(self.socket()).unwrap()
    }

    /// Sends a request without waiting for the answer.
    pub(crate) fn send(&self, path: &str, body: &Value) -> UnixStream {
        let mut stream = self.connect();
        stream.write_all(&http::request(path, body.to_string().as_bytes())).unwrap();
        stream
    }

    #[track_caller]
    pub(crate) fn ask(&self, path: &str, body: &Value) -> Message {
        http::post(&self.socket(), path, body.to_string().as_bytes()).0
    }

    pub(crate) fn pid(&self) -> u32 {
        self.process().pid()
    }

    pub(crate) fn signal(&self, signal: Signal) {
        self.process().signal(signal);
    }

    pub(crate) fn ended(&mut self) -> ExitStatus {
        self.process_mut().end()
    }

    /// Starts another server with the same options and waits for its end. Returns its exit status
    /// and standard error.
    pub(crate) fn second(&self) -> (ExitStatus, String) {
        self.second_with(&[])
    }

    /// The same with more options.
    pub(crate) fn second_with(&self, options: &[&str]) -> (ExitStatus, String) {
        let output = init_node(self.directory.path()).args(options).output().unwrap();
        (output.status, String::from_utf8(output.stderr).unwrap())
    }

    /// Runs `--cleanup-node` with the server's options. Returns its exit status and standard error.
    pub(crate) fn clean_up(&self) -> (ExitStatus, String) {
        let program = command(self.directory.path(), "--cleanup-node");
        // In a network namespace of its own: the cleanup also removes rules from the kernel.
        let mut command = Command::new("unshare");
        command
            .args(["--user", "--map-root-user", "--net", "--"])
            .arg(program.get_program())
            .args(program.get_args());
        let output = command.output().unwrap();
        (output.status, String::from_utf8(output.stderr).unwrap())
    }

    /// Ends the server as a power failure would.
    pub(crate) fn kill(&mut self) {
        self.signal(Signal::SIGKILL);
        self.ended();
    }

    /// Ends the server as a power failure would, and starts another in its place.
    pub(crate) fn kill_and_restart(&mut self) {
        self.kill();
        self.respawn(&[]);
        eventually("the server answers again", || UnixStream::connect(self.socket()).map(drop));
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("{}", self.log());
        }
    }
}

fn init_node(directory: &Path) -> Command {
    let mut command = command(directory, "--init-node");
    command.env_remove("NOTIFY_SOCKET").stdin(Stdio::null());
    command
}

/// The command in a network namespace of its own, after `first`. It is the same process.
fn inside(first: &str, program: &Command) -> Command {
    let mut command = Command::new("unshare");
    command
        .args([
            "--user",
            "--map-root-user",
            "--net",
            "--",
            "sh",
            "-euc",
            &format!("{first}; exec \"$@\""),
            "sh",
        ])
        .arg(program.get_program())
        .args(program.get_args())
        .env_remove("NOTIFY_SOCKET")
        .stdin(Stdio::null());
    command
}

/// The program with this role for the node, and with all its paths in the directory.
fn command(directory: &Path, role: &str) -> Command {
    let path = |name: &str| directory.join(name).into_os_string();
    let mut command = Command::new(env!("CARGO_BIN_EXE_ovnkube"));
    command.args([role, "node1", "--encap-ip", "127.0.0.1", "--cni-plugin-source", "/bin/true"]);
    for (option, name) in [
        ("--pod-manifests", "pods"),
        ("--cni-conf-dir", "net.d"),
        ("--cni-bin-dir", "bin"),
        ("--cni-socket", "run/server.sock"),
        ("--logfile", "log"),
    ] {
        command.arg(option).arg(path(name));
    }
    command.arg("--ovsdb-endpoint").arg(format!("unix:{}", directory.join("db.sock").display()));
    command
}

/// An annotation of the cluster's own network.
pub(crate) fn annotation(last_octet: u8) -> String {
    format!(
        r#"{{"default":{{"mac_address":"0a:58:0a:f4:01:{last_octet:02x}","ip_addresses":["10.244.1.{last_octet}/24"]}}}}"#
    )
}

/// The request of a plugin for an ADD of a pod in namespace `shop`.
pub(crate) fn add(pod: &str, uid: &str) -> Value {
    verb("ADD", pod, uid)
}

pub(crate) fn verb(verb: &str, pod: &str, uid: &str) -> Value {
    // {"cniVersion":"1.0.0","name":"ovn-kubernetes","type":"ovn-k8s-cni-overlay"}
    let config = "eyJjbmlWZXJzaW9uIjoiMS4wLjAiLCJuYW1lIjoib3ZuLWt1YmVybmV0ZXMiLCJ0eXBlIjoib3ZuLWs4cy1jbmktb3ZlcmxheSJ9";
    let args =
        format!("IgnoreUnknown=1;K8S_POD_NAMESPACE=shop;K8S_POD_NAME={pod};K8S_POD_UID={uid}");
    json!({
        "env": {"CNI_COMMAND": verb, "CNI_CONTAINERID": "0123456789abcdef", "CNI_IFNAME": "eth0", "CNI_NETNS": "/n", "CNI_ARGS": args},
        "config": config,
    })
}

pub(crate) fn watch(pod: &str, uid: &str, last_octet: u8) -> Value {
    json!({"namespace": "shop", "name": pod, "uid": uid, "mac": format!("0a:58:0a:f4:01:{last_octet:02x}"), "nad": "default"})
}

/// Reads one answer. The connection stays open.
#[track_caller]
pub(crate) fn answer(stream: &mut UnixStream) -> Message {
    stream.set_read_timeout(Some(SOON)).unwrap();
    Message::read(stream).unwrap_or_else(|error| panic!("an answer within {SOON:?}: {error}"))
}

/// Waits for a state that no event announces.
#[track_caller]
pub(crate) fn eventually<T, E: Debug>(what: &str, mut probe: impl FnMut() -> Result<T, E>) -> T {
    testkit::eventually(what, SOON, || probe().map_err(|seen| format!("{seen:#?}")))
}
