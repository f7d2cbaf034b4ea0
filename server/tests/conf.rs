//! Every file that an administrator installs is loaded, by what it is for.
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
use server::{
    node::PodsFrom,
    options::{Options, Program},
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
    let files: BTreeSet<String> = fs::read_dir(conf()).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    assert_eq!(files, ["ovn_k8s.conf", "ovnkube-node.service", "pod.yaml"].map(str::to_owned).into());
}

#[tokio::test]
async fn the_example_of_a_pod_can_be_used_as_it_is() {
    let directory = tempfile::tempdir().unwrap();
    fs::copy(conf().join("pod.yaml"), directory.path().join("pod.yaml")).unwrap();
    let manifests = Manifests::start(directory.path()).unwrap();
    let pod = manifests.watch(&PodKey::new("shop", "cart-0").unwrap()).now().expect("the pod is known");
    let network = PodNetwork::from_annotations(&pod.facts.annotations, &Network::Default).unwrap().expect("an annotation");
    assert_eq!(network.addresses, ["10.244.1.5/24".parse().unwrap()]);
}

#[test]
fn every_key_of_the_options_file_names_an_option_and_its_default() {
    let command = server::options::command();
    let mut prefix = String::new();
    let mut option = String::new();
    let mut keys = 0;
    for line in text("ovn_k8s.conf").lines() {
        if let Some(section) = line.strip_prefix('[').and_then(|line| line.strip_suffix(']')) {
            prefix = if section == "cni" { "cni-".to_owned() } else { String::new() };
        } else if let Some((key, value)) =
            line.strip_prefix('#').filter(|line| !line.starts_with(' ')).and_then(|line| line.split_once('='))
        {
            let name = format!("{prefix}{key}");
            assert_eq!(option, format!("--{name}"), "the option that stands behind {key}");
            assert!(command.get_arguments().any(|argument| argument.get_long() == Some(&name)), "{name}");
            let spec = server::options::all().find(|spec| spec.name == name).expect(&name);
            assert_eq!(spec.default, value, "{name}");
            keys += 1;
        } else if let Some((_, last)) = line.rsplit_once(' ').filter(|(_, last)| last.starts_with("--")) {
            option = last.to_owned();
        } else {
            assert!(line.is_empty() || line.starts_with('#'), "nothing is set by default: {line}");
        }
    }
    assert_eq!(keys, 9);
}

#[test]
fn the_units_command_line_is_one_that_ovnkube_takes() {
    let unit = text("ovnkube-node.service");
    let line = unit.lines().find_map(|line| line.strip_prefix("ExecStart=/usr/bin/ovnkube ")).expect("ExecStart");
    let options: Options = line.replace("%H", "node1").parse().unwrap();
    let Program::Node(node) = options.program().unwrap() else { panic!("it is a node's") };
    let node = node.config(&BTreeMap::new()).unwrap();
    assert_eq!(node.name, "node1");
    assert!(matches!(node.pods, PodsFrom::Manifests(directory) if directory == Path::new("/etc/ovn-kubernetes/pods")));
}
