use std::{collections::BTreeMap, path::PathBuf};

use contract::mtu::Mtu;
use ovslog::Level;
use server::{cni_conf::ConfFile, node::NodeConfig};

use super::*;

mod certificates;
mod cluster;
mod command_lines;
mod control_plane;
mod effect;
mod precedence;
mod print;
mod problems;
mod roles;
mod table;

/// The sources of options of one test, in a directory of its own.
pub(super) struct Place {
    directory: tempfile::TempDir,
    environment: Environment,
}

impl Place {
    pub(super) fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let environment = Environment {
            conf_file: Some(directory.path().join("ovn_k8s.conf")),
            ..Environment::none()
        };
        Self { directory, environment }
    }

    /// Adds a pod's credentials.
    fn service_account(mut self) -> Self {
        self.environment.service_account = self.directory.path().to_owned();
        self.file("token", "x");
        self.file("ca.crt", "x");
        self
    }

    fn variable(&mut self, name: &str, value: &str) {
        self.environment.variables.insert(name.to_owned(), value.to_owned());
    }

    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    pub(super) fn file(&self, name: &str, text: &str) -> PathBuf {
        std::fs::write(self.path(name), text).unwrap();
        self.path(name)
    }

    fn options(&self, line: &str) -> Options {
        Options::read_in(
            std::iter::once("ovnkube").chain(line.split_whitespace()).map(OsString::from),
            &self.environment,
        )
    }

    pub(super) fn node(&self, line: &str) -> Result<NodeOptions, String> {
        match self.options(line).program() {
            Ok(Program::Node(node)) => Ok(node),
            Ok(other) => Err(format!("{other:?}")),
            Err(problems) => Err(problems.to_string()),
        }
    }
}

fn options(line: &str) -> Result<NodeOptions, String> {
    let program = line.parse::<Options>().unwrap().program().map_err(|error| error.to_string())?;
    let Program::Node(options) = program else { return Err(format!("{program:?}")) };
    Ok(options)
}

fn node(line: &str) -> Result<NodeConfig, String> {
    options(line)?.config(&BTreeMap::new()).map_err(|error| error.to_string())
}

#[test]
fn every_spelling_of_an_option_means_the_same() {
    for line in [
        "--init-node n1 --pod-manifests /m --mtu 1300 --cni-conf-file=x.conf",
        "-init-node n1 -pod-manifests /m -mtu 1300 -cni-conf-file=x.conf",
        "-init-node=n1 --pod-manifests=/m -mtu=1300 --cni-conf-file x.conf",
        "--mtu 900 --init-node n0 --init-node n1 --pod-manifests /m --mtu 1300 --cni-conf-file x.conf",
    ] {
        let node = node(line).expect(line);
        assert_eq!((node.name.as_str(), node.add.mtu.bytes()), ("n1", 1300), "{line}");
        assert_eq!(node.cni_conf.file, ConfFile::Single("x.conf".to_owned()), "{line}");
    }
}

#[test]
fn defaults_are_the_places_that_an_administrator_expects() {
    let line = "--init-node n1 --pod-manifests /m";
    let (node, log) = (node(line).unwrap(), options(line).unwrap().early().log.clone());
    assert_eq!(node.socket, PathBuf::from("/var/run/ovn-kubernetes/cni/ovn-cni-server.sock"));
    assert_eq!(log.file, PathBuf::from("/var/log/openvswitch/ovnkube.log"));
    assert_eq!(node.cni_conf.directory, PathBuf::from("/etc/cni/net.d"));
    assert_eq!(node.cni_conf.file, ConfFile::List("10-ovn-kubernetes.conflist".to_owned()));
    assert_eq!(node.cni_conf.log_file, "/var/log/openvswitch/ovn-k8s-cni-overlay.log");
    assert_eq!((node.add.mtu, node.add.routable_mtu, log.level), (Mtu::DEFAULT, None, Level::Info));
    assert_eq!(node.cni_conf.log_level, "4");
}

#[test]
fn what_is_missing_or_wrong_is_named_with_what_to_do() {
    for (line, text) in [
        ("", "say what to be: --init-node NODE"),
        ("--init-node n1", "say where pods are known from: --pod-manifests DIR"),
        ("--init-node --pod-manifests /m", "a value is required for '--init-node <NODE>'"),
        ("--init-node N1 --pod-manifests /m", "--init-node \"N1\" is no node's name"),
        (
            "--init-node n1 --pod-manifests /m --mtu 70000",
            "--mtu: MTU 70000 is not between 576 and 65535",
        ),
        (
            "--init-node n1 --pod-manifests /m --routable-mtu 1500",
            "--routable-mtu 1500 is more than --mtu 1400",
        ),
        (
            "--init-node n1 --pod-manifests /m --cni-conf-file a.json",
            "is not a file name that ends with .conflist or .conf",
        ),
        ("--init-node n1 --pod-manifests /m --cni-socket s", "give the whole path"),
        (
            "--init-node n1 --pod-manifests /m --loglevel loud",
            "is none of emer, err, warn, info, dbg",
        ),
        ("--init-node n1 --pod-manifests /m --unknown", "unexpected argument '--unknown'"),
    ] {
        let error = node(line).expect_err(line);
        assert!(error.contains(text), "{line}: {error}");
    }
}

#[test]
fn a_value_that_looks_like_no_option_stays_as_it_is() {
    let command = command();
    let arguments = ["ovnkube", "-unknown", "-x=1", "-help", "--", "-mtu"].map(OsString::from);
    assert_eq!(
        with_two_dashes(&command, arguments),
        ["ovnkube", "-unknown", "-x=1", "--help", "--", "-mtu"]
    );
}
