//! Every file that an administrator installs is loaded by the program that it is for.
#![expect(clippy::unwrap_used, reason = "what fails here fails the test")]

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
};

use contract::{
    annotation::PodNetwork,
    names::{Network, PodKey},
};
use ovnkube::options::{Options, Program};
use server::{
    node::PodsFrom,
    pods::{Manifests, PodSource},
};

fn conf() -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../conf"))
}

fn text(name: &str) -> String {
    fs::read_to_string(conf().join(name)).unwrap()
}

#[test]
fn every_file_has_a_test_here() {
    let files: BTreeSet<String> = fs::read_dir(conf())
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    let here = ["ovn_k8s.conf", "ovnkube-master.service", "ovnkube-node.service", "pod.yaml"];
    // `deployment.rs` tests the files for clusters.
    let there = ["Containerfile", "helm", "image", "kubernetes", "logrotate.d", "monitoring"];
    let tested: BTreeSet<String> = here.into_iter().chain(there).map(str::to_owned).collect();
    assert!(files.is_subset(&tested), "{files:?}");
}

#[test]
fn reference_pages_are_what_the_tables_in_the_code_say() {
    let docs = conf().join("../docs");
    for (name, expected) in ovnkube::options::documents::reference_pages() {
        let text = fs::read_to_string(docs.join(name))
            .unwrap_or_else(|error| panic!("docs/{name}: {error}; `make docs` writes it"));
        assert!(text == expected, "docs/{name} is not what the code says: `make docs` writes it");
    }
}

#[tokio::test]
async fn the_example_of_a_pod_can_be_used_as_it_is() {
    let directory = tempfile::tempdir().unwrap();
    fs::copy(conf().join("pod.yaml"), directory.path().join("pod.yaml")).unwrap();
    let manifests = Manifests::start(directory.path()).unwrap();
    let pod =
        manifests.watch(&PodKey::new("shop", "cart-0").unwrap()).now().expect("the pod is known");
    let network = PodNetwork::from_annotations(&pod.facts.annotations, &Network::Default)
        .unwrap()
        .expect("an annotation");
    assert_eq!(network.addresses, ["10.244.1.5/24".parse().unwrap()]);
}

#[test]
fn the_options_file_documents_every_option_with_its_default() {
    let (text, expected) = (text("ovn_k8s.conf"), ovnkube::options::documents::conf_file());
    let different = text.lines().zip(expected.lines()).find(|(line, expected)| line != expected);
    assert!(
        text == expected,
        "`make docs` writes it anew into target/documents; the first difference: {different:?}"
    );
}

#[test]
fn the_units_command_line_is_one_that_ovnkube_takes() {
    let unit = text("ovnkube-node.service");
    let line = unit
        .lines()
        .find_map(|line| line.strip_prefix("ExecStart=/usr/bin/ovnkube "))
        .expect("ExecStart");
    // `OVNKUBE_OPTIONS` comes from a file of the administrator.
    let line = line
        .replace("%H", "node1")
        .replace("$OVNKUBE_OPTIONS", "--pod-manifests /etc/ovn-kubernetes/pods");
    let options: Options = line.parse().unwrap();
    let Program::Node(node) = options.program().unwrap() else { panic!("it is a node's") };
    let node = node.config(&BTreeMap::new()).unwrap();
    assert_eq!(node.name, "node1");
    assert!(
        matches!(node.pods, PodsFrom::Manifests(directory) if directory == Path::new("/etc/ovn-kubernetes/pods"))
    );
}

#[test]
fn the_units_command_line_of_the_control_plane_is_one_that_ovnkube_takes() {
    let unit = text("ovnkube-master.service");
    let line = unit
        .lines()
        .find_map(|line| line.strip_prefix("ExecStart=/usr/bin/ovnkube "))
        .expect("ExecStart");
    let line = line
        .replace("%H", "host1")
        .replace("$OVNKUBE_OPTIONS", "--k8s-apiserver https://192.0.2.1:6443");
    let options: Options = line.parse().unwrap();
    let Program::ControlPlane(config, _) = options.program().unwrap() else {
        panic!("it is the control plane's")
    };
    assert_eq!(config.identity, "host1");
    assert!(config.election.is_some() && config.northbound.is_some(), "{config:?}");
}

/// Without the directory, or if it goes with the unit, a leader that crashed waits for its own
/// Lease for 137 s.
#[test]
fn the_lock_of_the_leader_outlives_the_process_in_the_unit() {
    let unit = text("ovnkube-master.service");
    let value = |key: &str| unit.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix('='));
    let directory = format!("/var/run/{}", value("RuntimeDirectory").expect("RuntimeDirectory"));
    assert_eq!(directory, contract::paths::ELECTION_DIR, "the default of --ha-election-lock-dir");
    assert_eq!(
        (value("RuntimeDirectoryPreserve"), value("RuntimeDirectoryMode")),
        (Some("yes"), Some("0700"))
    );
    assert!(!unit.contains("ha-election-lock-dir"));
}

/// What a unit waits for may be the work of what would wait for the unit.
#[test]
fn the_units_hold_up_no_other_and_are_never_given_up() {
    for name in ["ovnkube-node.service", "ovnkube-master.service"] {
        let unit = text(name);
        let value =
            |key: &str| unit.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix('='));
        assert_eq!((value("Before"), value("RequiredBy")), (None, None), "{name}");
        assert_eq!(
            (value("Restart"), value("StartLimitIntervalSec")),
            (Some("always"), Some("0")),
            "{name}"
        );
        assert!(
            value("TimeoutStartSec").is_some_and(|seconds| seconds.parse::<u32>().is_ok()),
            "{name}"
        );
        assert!(
            value("ReadWritePaths").is_some_and(|paths| paths.contains("/var/run/openvswitch")),
            "{name}"
        );
    }
}
