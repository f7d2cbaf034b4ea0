//! The installed files and the configuration that the server writes, loaded by the real
//! executables.
#![expect(clippy::unwrap_used, reason = "what fails here fails the test")]

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use contract::{
    annotation::PodNetwork,
    bandwidth::Bandwidth,
    names::{Network, PodKey},
    net_conf::NetConf,
    spec_version::SpecVersion,
};
use serde::Deserialize;
use serde_json::Value;
use testkit::{Node, NodeServer, executable, program};

fn files() -> Vec<PathBuf> {
    let directory = executable::workspace().join("conf");
    let entries = fs::read_dir(&directory).expect("there is a directory conf");
    // ovnkube/tests/deployment.rs loads the files in subdirectories.
    let files: Vec<PathBuf> =
        entries.map(|entry| entry.unwrap().path()).filter(|path| path.is_file()).collect();
    assert!(!files.is_empty(), "nothing in {}", directory.display());
    files
}

fn ending(path: &Path) -> &str {
    path.extension().and_then(|ending| ending.to_str()).unwrap_or_default()
}

/// Parses sections of `KEY=VALUE` lines, as systemd units and `ovn_k8s.conf` have them.
#[track_caller]
fn parse_ini(path: &Path) -> BTreeMap<String, Vec<(String, String)>> {
    let text = fs::read_to_string(path).unwrap();
    let mut sections: BTreeMap<String, Vec<(String, String)>> = BTreeMap::new();
    let mut section = None;
    for line in
        text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with(['#', ';']))
    {
        if let Some(name) = line.strip_prefix('[').and_then(|line| line.strip_suffix(']')) {
            section = Some(name.to_owned());
            sections.entry(name.to_owned()).or_default();
        } else {
            let (key, value) =
                line.split_once('=').unwrap_or_else(|| panic!("{}: {line}", path.display()));
            let section = section
                .clone()
                .unwrap_or_else(|| panic!("{}: no section before {line}", path.display()));
            sections
                .entry(section)
                .or_default()
                .push((key.trim().to_owned(), value.trim().to_owned()));
        }
    }
    sections
}

#[derive(Deserialize)]
struct Manifest {
    #[serde(rename = "apiVersion")]
    api_version: String,
    kind: String,
    metadata: Metadata,
}

#[derive(Deserialize)]
struct Metadata {
    namespace: String,
    name: String,
    annotations: BTreeMap<String, String>,
}

fn check_pod(path: &Path) {
    let Manifest { api_version, kind, metadata } =
        serde_yaml_ng::from_str(&fs::read_to_string(path).unwrap()).unwrap();
    assert_eq!((api_version.as_str(), kind.as_str()), ("v1", "Pod"), "{}", path.display());
    PodKey::new(&metadata.namespace, &metadata.name).unwrap();
    let network = PodNetwork::from_annotations(&metadata.annotations, &Network::Default)
        .unwrap()
        .expect("the example has a network");
    assert!(!network.addresses.is_empty());
    Bandwidth::from_annotations(&metadata.annotations).unwrap();
}

/// Checks that the unit starts the executable with valid options.
fn check_unit(path: &Path) {
    let sections = parse_ini(path);
    assert!(
        ["Unit", "Service", "Install"].iter().all(|name| sections.contains_key(*name)),
        "{}",
        path.display()
    );
    let values = |key: &str| {
        sections["Service"]
            .iter()
            .filter(|(name, _)| name == key)
            .map(|(_, value)| value.as_str())
            .collect::<Vec<_>>()
    };
    let [start] = values("ExecStart")[..] else { panic!("{}: one ExecStart", path.display()) };
    let mut words = start.split_whitespace();
    assert_eq!(
        words.next().map(Path::new).and_then(Path::file_name),
        Some(executable::SERVER.as_ref())
    );
    // A wrong option is an error even before `--help`; with valid options the help is printed.
    let arguments =
        words.filter(|word| !word.starts_with('$')).map(|word| word.replace("%H", "node1"));
    program::output(
        Command::new(executable::path(executable::SERVER)).args(arguments).arg("--help"),
    );
}

#[test]
fn every_file_that_is_installed_can_be_loaded() {
    for path in files() {
        match ending(&path) {
            "yaml" if path.ends_with("pod.yaml") => check_pod(&path),
            "service" => check_unit(&path),
            "conf" => drop(parse_ini(&path)),
            // ovnkube/tests/deployment.rs
            "" if path.ends_with("Containerfile") => {}
            _ => panic!("no test loads {}", path.display()),
        }
    }
}

/// The configuration for one version of the specification, as the Go library derives it from a file
/// (`libcni`, `buildOneConfig`).
fn as_a_runtime_passes_it(file: &Value, version: &str) -> Value {
    let mut conf = file.get("plugins").map_or_else(|| file.clone(), |plugins| plugins[0].clone());
    conf["name"] = file["name"].clone();
    conf["cniVersion"] = version.into();
    conf
}

#[test]
fn the_plugin_understands_the_configuration_that_the_server_writes() {
    for (name, versions) in [
        ("10-ovn-kubernetes.conflist", &["0.4.0", "1.0.0", "1.1.0"][..]),
        ("05-net.conf", &["0.4.0"]),
    ] {
        let node = Node::new();
        let _database = node.start_database_with_bridge();
        let server =
            NodeServer::start_with(&node, &["--cni-conf-file", name, "--loglevel", "info"]);
        let file: Value =
            serde_json::from_slice(&fs::read(server.conf_dir.join(name)).unwrap()).unwrap();
        assert_eq!(file["name"], "ovn-kubernetes");
        for version in versions {
            let mut conf = as_a_runtime_passes_it(&file, version);
            let parsed = NetConf::parse(conf.to_string().as_bytes()).unwrap();
            assert_eq!(
                (parsed.version, &parsed.network),
                (version.parse::<SpecVersion>().unwrap(), &Network::Default)
            );
            assert_eq!(parsed.log.file.as_deref(), node.plugin_log().to_str());
            // Point the plugin to the test's Open vSwitch and server instead of the machine's.
            conf["ovsdbEndpoint"] = node.conf()["ovsdbEndpoint"].clone();
            conf["serverSocket"] = node.conf()["serverSocket"].clone();
            node.call("DEL").conf(&conf).run().success();
        }
        assert!(!node.log_lines("log/plugin.log").is_empty());
    }
}

#[test]
fn the_configuration_is_there_before_the_server_is_asked_and_stays_when_it_stops() {
    let node = Node::new();
    let server = node.start_server();
    let path = server.conf_dir.join("10-ovn-kubernetes.conflist");
    let before = fs::read(&path).unwrap();
    let socket = server.socket.clone();
    server.stop();
    assert_eq!(fs::read(&path).unwrap(), before);
    assert!(!socket.exists());
}
