//! Which roles and commands go together.

use super::{super::Program, Place};
use crate::roles::Roles;

const API: &str = "--k8s-apiserver https://a:6443";

fn program(line: &str) -> Result<Program, String> {
    Place::new()
        .options(&format!("{line} {API}"))
        .program()
        .map_err(|problems| problems.to_string())
}

#[test]
fn roles_go_together_as_upstreams_do() {
    let kind = |line: &str| match program(line).expect(line) {
        Program::Node(_) => "node",
        Program::ControlPlane(config, _) => match config.roles {
            Roles::Both => "both",
            Roles::ClusterManager => "cluster manager",
            Roles::Controller => "controller",
        },
        Program::Both(config, _) => match config.roles {
            Roles::Both => "both and node",
            Roles::ClusterManager => "cluster manager and node",
            Roles::Controller => "controller and node",
        },
        Program::RemoveNode(..) => "remove",
        Program::CleanupNode(_) => "cleanup",
        Program::HandBackNode(_) => "hand back",
        other => panic!("{line}: {other:?}"),
    };
    for (line, expected) in [
        ("--init-node a", "node"),
        ("-init-master=a", "both"),
        ("--init-cluster-manager a", "cluster manager"),
        ("--init-ovnkube-controller a", "controller"),
        ("--init-network-controller-manager a", "controller"),
        ("--init-cluster-manager a --init-ovnkube-controller a", "both"),
        ("--init-master a --init-cluster-manager a", "both"),
        ("--init-master a --init-node a", "both and node"),
        ("--init-ovnkube-controller a --init-node a", "controller and node"),
        ("--init-cluster-manager a --init-ovnkube-controller a --init-node a", "both and node"),
        ("--remove-node a", "remove"),
        ("--cleanup-node a", "cleanup"),
        ("--hand-back-node a", "hand back"),
    ] {
        assert_eq!(kind(line), expected, "{line}");
    }
}

#[test]
fn roles_that_do_not_go_together_are_refused_with_both_names() {
    for (line, text) in [
        (
            "--init-cluster-manager a --init-node a",
            "--init-cluster-manager and --init-node: a cluster manager beside a node's server needs",
        ),
        (
            "--init-master a --init-node b",
            "--init-master \"a\" and --init-node \"b\": the roles of one process are those of one machine",
        ),
        ("--init-node a --cleanup-node a", "--init-node and --cleanup-node: give one of them"),
        ("--init-master a --remove-node b", "--init-master and --remove-node: give one of them"),
        ("--cleanup-node a --remove-node b", "--remove-node and --cleanup-node: give one of them"),
        (
            "--cleanup-node a --hand-back-node a",
            "--hand-back-node and --cleanup-node: give one of them",
        ),
        ("--init-node a --all", "--all belongs to --cleanup-node"),
        ("--init-master A", "--init-master \"A\" is no node's name"),
        ("--remove-node A", "--remove-node \"A\" is no node's name"),
        ("--init-master", "a value is required for '--init-master <NODE>'"),
        ("", "say what to be: --init-node NODE"),
    ] {
        let error = program(line).expect_err(line);
        assert!(error.contains(text), "{line}: {error}");
        assert!(line.is_empty() || !error.contains("say what to be"), "{line}: {error}");
    }
}

#[test]
fn a_process_of_both_kinds_needs_what_each_needs_and_says_it_once() {
    let problems = Place::new()
        .options("--init-master a --init-node a --mtu 1 --cluster-subnets x --sb-address ssl:1.2.3.4:6642")
        .program();
    let text = problems.expect_err("nothing of it can be used").to_string();
    for expected in [
        "--mtu: MTU 1",
        "--cluster-subnets \"x\" is no network",
        "--sb-address",
        "say how the control plane reaches the API server",
    ] {
        assert_eq!(
            text.matches(expected).count(),
            if expected == "--sb-address" { 3 } else { 1 },
            "{expected}\n{text}"
        );
    }
}
