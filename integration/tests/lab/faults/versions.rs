//! Plugin and server of different versions, as during the upgrade of a node; and the plugin's file
//! is replaced while runtimes call it.
//!
//! Messages of other versions are written here as bytes and field names, not with the types that
//! both sides share.

use std::{
    fs,
    io::{Read as _, Write as _},
    net::Shutdown,
    os::unix::net::UnixStream,
    path::Path,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::Duration,
};

use anyhow::{Context as _, Result, ensure};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use integration::{
    Pod, eventually, executable,
    faults::{SHORTLY, Site, failed_with, row},
    http::{self, Message},
    node::SERVER_SOCKET,
    runtime::cni_args,
    threads,
};
use serde_json::{Value, json};
use testkit::scripted_server::{Answer, serve};

use crate::support::attached::{hold_back, let_go};

/// The socket of the server of another version, on the node.
const OTHER_SOCKET: &str = "/run/other-version.sock";
/// How long the server may be silent. A server that hangs fails the test before the runner ends it.
const PATIENCE: Duration = Duration::from_secs(20);
/// The number of runtimes that call while the plugin is replaced.
const CALLERS: usize = 4;

// --- A plugin of another version
// ---------------------------------------------------------------------------

/// The request of upstream's plugin, and of this project's first versions: no deadline; the whole
/// environment.
fn old_request(verb: &str, pod: &Pod) -> Value {
    let config = r#"{"cniVersion":"0.4.0","name":"ovn-kubernetes","type":"ovn-k8s-cni-overlay","logLevel":"5","ipam":{},"dns":{}}"#;
    json!({
        "env": {
            "CNI_COMMAND": verb, "CNI_CONTAINERID": pod.sandbox, "CNI_NETNS": pod.netns, "CNI_IFNAME": "eth0", "CNI_ARGS": cni_args(pod),
            "CNI_PATH": "/opt/cni/bin", "PATH": "/usr/bin", "HOME": "/root", "LANG": "C.UTF-8",
        },
        "config": STANDARD.encode(config),
    })
}

/// The fields that such a plugin requires: it fails if `KubeAuth` is null, and configures the pod
/// from the others.
fn has_what_an_old_plugin_reads(answer: &str, pod: &Pod) -> Result<()> {
    let answer: Value = serde_json::from_str(answer).context("the answer")?;
    ensure!(answer["Result"].is_null() && answer["KubeAuth"].is_object(), "{answer}");
    let info = &answer["PodIFInfo"];
    let address = pod.address().to_string();
    ensure!(
        info["IPs"][0]["IP"] == address
            && info["IPs"][0]["Mask"] == STANDARD.encode(b"\xff\xff\xff\0"),
        "{info}"
    );
    let mac: Vec<u8> =
        pod.mac.split(':').map(|byte| u8::from_str_radix(byte, 16)).collect::<Result<_, _>>()?;
    ensure!(
        info["MAC"] == STANDARD.encode(&mac) && info["Gateways"][0] == pod.gateways[0].to_string(),
        "{info}"
    );
    ensure!(
        info["mtu"].as_u64() == Some(1400)
            && info["is-dpu-host-mode"] == false
            && info["pod-uid"] == pod.uid,
        "{info}"
    );
    ensure!(
        info["Routes"][0]["Dest"]["IP"] == "10.244.0.0"
            && info["netName"] == "default"
            && info["nadName"] == "default",
        "{info}"
    );
    Ok(())
}

#[test]
fn row_59_the_server_understands_plugins_that_are_older_and_newer() {
    row(59).test(|site| {
        let (socket, pod) = (site.node.path(SERVER_SOCKET), site.new_pod()?);
        let post = |path: &str, body: String| http::try_post(&socket, path, body.as_bytes());
        let answer = post("/", old_request("ADD", &pod).to_string())?;
        ensure!(answer.status() == 200, "{answer:?}");
        has_what_an_old_plugin_reads(&answer.text(), &pod)?;
        for verb in ["DEL", "CHECK"] {
            let answer = post("/", old_request(verb, &pod).to_string())?;
            ensure!(answer.status() == 200, "{verb}: {answer:?}");
        }
        let report = r#"{"command":"ADD","elapsedTime":0.25,"hasErr":false}"#;
        let answer = post("/metrics", report.to_owned())?;
        ensure!(answer.status() == 200, "its report: {answer:?}");

        // A newer plugin sends fields that this server does not know, and requests a path that it
        // does not have.
        let mut request = old_request("ADD", &pod);
        request["timeoutMs"] = json!(5000);
        request["batch"] = json!({"of": [1, 2, 3]});
        request["env"]["CNI_OF_TOMORROW"] = json!("x");
        let answer = post("/", request.to_string())?;
        ensure!(answer.status() == 200, "{answer:?}");
        has_what_an_old_plugin_reads(&answer.text(), &pod)?;
        let report = json!({
            "command": "ADD", "elapsedTime": 0.25, "hasErr": true, "failedStage": "teleport", "rollback": "perhaps",
            "stages": [{"stage": "teleport", "seconds": 1.0}], "moonPhase": 3,
        });
        let answer = post("/metrics", report.to_string())?;
        ensure!(answer.status() == 200, "the report of a newer plugin: {answer:?}");
        let answer = post("/of-tomorrow", "{}".to_owned())?;
        ensure!(answer.status() == 404, "a path of tomorrow: {answer:?}");
        site.add(&pod)?.success()?;
        site.has_network(&pod)
    });
}

// --- A server of another version
// ---------------------------------------------------------------------------

/// A proxy between the plugin and the node's server that speaks as another version would.
struct OtherVersion {
    seen: Arc<Mutex<Seen>>,
}

#[derive(Debug, Default)]
struct Seen {
    /// Every requested path.
    asked: Vec<String>,
    /// Connections to the node's server, some for requests of plugins that have ended.
    connections: Vec<UnixStream>,
}

/// How another version differs.
#[derive(Debug, Clone, Copy)]
struct Dialect {
    /// Whether it knows a path.
    knows: fn(&str) -> bool,
    /// Its changes to the plugin's request and to the server's answer.
    request: fn(&mut Value),
    answer: fn(&mut Value),
}

/// The first versions: they neither understand nor send what was added later.
const OLDER: Dialect = Dialect {
    knows: |path| path == "/",
    request: |request| keep(request, &["env", "config"]),
    answer: |answer| {
        keep(answer, &["Result", "PodIFInfo", "KubeAuth"]);
        let known = [
            "IPs",
            "MAC",
            "Gateways",
            "Routes",
            "mtu",
            "ingress",
            "egress",
            "is-dpu-host-mode",
            "pod-uid",
            "netName",
            "nadName",
        ];
        keep(&mut answer["PodIFInfo"], &known);
    },
};

/// Sends more than this plugin knows.
const NEWER: Dialect = Dialect {
    knows: |_| true,
    request: |_| (),
    answer: |answer| {
        answer["Attachments"] = json!([{"id": 1}]);
        answer["KubeAuth"] = json!({"kube-api-token": "a secret of tomorrow"});
        answer["PodIFInfo"]["qos-class"] = json!({"name": "gold", "weights": [1, 2]});
        answer["PodIFInfo"]["IPs"][0]["Lifetime"] = json!(3600);
        answer["PodIFInfo"]["Routes"][0]["Metric"] = json!(7);
    },
};

fn keep(object: &mut Value, keys: &[&str]) {
    if let Value::Object(fields) = object {
        fields.retain(|key, _| keys.contains(&key.as_str()));
    }
}

impl OtherVersion {
    fn start(site: &Site<'_>, dialect: Dialect) -> Result<Self> {
        let server = site.node.path(SERVER_SOCKET);
        let all = Arc::new(Mutex::new(Seen::default()));
        let seen = Arc::clone(&all);
        let answer = move |request: &Message| {
            // Without an answer of the node's server, the connection ends.
            answer(request, &server, dialect, &seen).unwrap_or(Answer::Bytes(Vec::new()))
        };
        serve(site.node.path(OTHER_SOCKET), answer)?;
        Ok(Self { seen: all })
    }

    fn asked(&self) -> Vec<String> {
        lock(&self.seen).asked.clone()
    }

    /// Closes the connections of plugins that have ended.
    fn hang_up(&self) {
        for connection in &lock(&self.seen).connections {
            // A connection whose answer has come is closed already.
            let _ = connection.shutdown(Shutdown::Both);
        }
        lock(&self.seen).connections.clear();
    }
}

fn lock(seen: &Mutex<Seen>) -> MutexGuard<'_, Seen> {
    seen.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The answer to a request in the other version's words.
fn answer(
    request: &Message,
    server: &Path,
    dialect: Dialect,
    seen: &Mutex<Seen>,
) -> Result<Answer> {
    let path = request.path();
    lock(seen).asked.push(path.to_owned());
    let (status, body) = if (dialect.knows)(path) {
        let mut changed: Value = serde_json::from_slice(&request.body)?;
        (dialect.request)(&mut changed);
        let connection = UnixStream::connect(server)?;
        lock(seen).connections.push(connection.try_clone()?);
        let (status, body) = pass_on(connection, path, &changed.to_string())?;
        let body = match serde_json::from_str::<Value>(&body) {
            Ok(mut answer) if path == "/" && answer["PodIFInfo"].is_object() => {
                (dialect.answer)(&mut answer);
                answer.to_string()
            }
            Ok(_) | Err(_) => body,
        };
        (status, body)
    } else {
        ("404 Not Found".to_owned(), "404 page not found\n".to_owned())
    };
    Ok(Answer::Bytes(http::answer(&status, "application/json", &body)))
}

/// The node's server's answer, to the end of the connection: status and body.
fn pass_on(mut connection: UnixStream, path: &str, body: &str) -> Result<(String, String)> {
    connection.set_read_timeout(Some(PATIENCE))?;
    let length = body.len();
    write!(
        connection,
        "POST {path} HTTP/1.1\r\nHost: dummy\r\nContent-Length: {length}\r\n\
         Content-Type: application/json\r\nConnection: close\r\n\r\n{body}"
    )?;
    let mut answer = String::new();
    connection.read_to_string(&mut answer).context("the answer")?;
    let (head, body) =
        answer.split_once("\r\n\r\n").with_context(|| format!("not HTTP: {answer:?}"))?;
    let (_, status) =
        head.lines().next().and_then(|line| line.split_once(' ')).context("a status line")?;
    Ok((status.to_owned(), body.to_owned()))
}

/// ADD, CHECK, STATUS and DEL of a pod, through a server of another version.
fn all_verbs_work(site: &Site<'_>, dialect: Dialect) -> Result<()> {
    let other = OtherVersion::start(site, dialect)?;
    let runtime = site.node.runtime().with("serverSocket", json!(OTHER_SOCKET));
    let pod = site.new_pod()?;
    hold_back(site.lab, &pod)?;
    let adding = runtime.call("ADD", Some(&pod)).start()?;
    for path in ["/", "/watch"] {
        eventually(&format!("the plugin asks for {path}"), SHORTLY, || {
            let asked = other.asked();
            ensure!(asked.iter().any(|asked| asked == path), "{asked:?}");
            Ok(())
        })?;
    }
    let_go(site.lab, &pod)?;
    let result = adding.wait()?.success()?;
    site.one_port_of(&pod)?;
    site.has_network(&pod)?;
    ensure!(!result.to_string().contains("tomorrow"), "{result}");
    runtime.check(&pod, &result)?.success()?;
    runtime.status()?.success()?;
    runtime.del(&pod)?.success()?;
    site.nothing_of(&pod)?;
    // Refused calls keep their code and message, too.
    let late = site.new_pod_without_annotation()?;
    let outcome = runtime.with("timeoutSeconds", json!(2)).add(&late)?;
    site.failed(&late, &outcome, 11, &["stage annotation"])?;
    other.hang_up();
    fs::remove_file(site.node.path(OTHER_SOCKET)).context("take the other version away")
}

#[test]
fn row_59_the_plugin_works_with_an_older_server() {
    row(59).test(|site| all_verbs_work(site, OLDER));
}

#[test]
fn row_59_the_plugin_works_with_a_newer_server() {
    row(59).test(|site| all_verbs_work(site, NEWER));
}

// --- A plugin that is replaced
// -----------------------------------------------------------------------------

/// Calls ADD and DEL of one pod until `over` is set; returns the number of ADDs. Each must succeed:
/// an executable that is busy, incomplete or missing cannot be started.
fn calls(site: &Site<'_>, server: Server, pod: &Pod, over: &AtomicBool) -> Result<usize> {
    let mut adds = 0;
    while !over.load(Ordering::Relaxed) {
        let outcome = site.add(pod)?;
        match server {
            Server::Restarts if !outcome.status.success() => {
                drop(failed_with(&outcome, 11, &["stage annotation"])?)
            }
            Server::Stays | Server::Restarts => {
                outcome.success()?;
                adds += 1;
            }
        }
        site.del(pod)?.success()?;
    }
    Ok(adds)
}

/// What happens to the server meanwhile.
#[derive(Debug, Clone, Copy)]
enum Server {
    Stays,
    /// An ADD may fail with code 11 ("try again").
    Restarts,
}

fn during_calls(
    site: &Site<'_>,
    server: Server,
    replace: impl FnOnce() -> Result<()>,
) -> Result<()> {
    let pods = site.new_pods(CALLERS)?;
    let over = AtomicBool::new(false);
    let adds: Vec<usize> = thread::scope(|scope| {
        let callers: Vec<_> =
            pods.iter().map(|pod| scope.spawn(|| calls(site, server, pod, &over))).collect();
        let replaced = replace();
        over.store(true, Ordering::Relaxed);
        let adds = callers.into_iter().map(threads::join).collect::<Result<_>>()?;
        replaced.map(|()| adds)
    })?;
    ensure!(adds.iter().all(|adds| *adds >= 2), "there was no burst: {adds:?}");
    Ok(())
}

/// Copies the installed plugin to a directory of the node, with some bytes appended, which the
/// kernel does not read.
fn another_build(site: &Site<'_>, number: usize) -> Result<String> {
    let file = format!("/run/build-{number}/{}", executable::PLUGIN);
    let own = executable::under_test(executable::PLUGIN)?;
    let script = format!(
        "mkdir -p /run/build-{number}; cp {} {file}; echo build {number} >>{file}",
        own.display()
    );
    site.node.shell(&script)?;
    Ok(file)
}

#[test]
fn row_59_a_plugin_replaced_by_rename_during_adds_fails_none() {
    row(59).within(Duration::from_secs(60)).test(|site| {
        let builds = [another_build(site, 1)?, another_build(site, 2)?];
        let place = format!("/opt/cni/bin/{}", executable::PLUGIN);
        during_calls(site, Server::Stays, || {
            // As packages and images do it: a copy beside it, then a rename.
            builds.iter().cycle().take(20).try_for_each(|build| {
                site.node
                    .shell(&format!(
                        "cp {build} {place}.new; mv {place}.new {place}; cmp {build} {place}; sleep 0.1"
                    ))
                    .map(drop)
            })
        })?;
        site.node.shell("rm -r /run/build-1 /run/build-2").map(drop)
    });
}

#[test]
fn row_59_a_plugin_that_the_server_replaces_when_it_starts_can_always_be_started() {
    row(59).within(Duration::from_secs(60)).test(|site| {
        let server = &site.node.server;
        let builds = [another_build(site, 1)?, another_build(site, 2)?];
        during_calls(site, Server::Restarts, || {
            for build in builds.iter().cycle().take(4) {
                let arguments = [
                    "--init-node",
                    &site.node.name,
                    "--pod-manifests",
                    integration::node::MANIFESTS,
                    "--cni-plugin-source",
                    build,
                ];
                server.set_arguments(arguments);
                server.stop()?;
                site.node.start_server()?;
                site.until_healthy()?;
                site.node.shell(&format!("cmp {build} /opt/cni/bin/{}", executable::PLUGIN))?;
            }
            Ok(())
        })?;
        site.node.shell("rm -r /run/build-1 /run/build-2").map(drop)
    });
}
