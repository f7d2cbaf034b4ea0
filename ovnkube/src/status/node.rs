//! This machine's part: what the node's server says over its socket, and whether the daemons
//! answer.

use std::{io::ErrorKind, path::Path};

use contract::wire::{NODE_PATH, NodeAnswer};
use podnet::control_socket::ControlSocket;
use tokio::time::sleep;

use super::{Machine, PATIENCE, PAUSE, host, switch};
use crate::{
    findings::{Finding, State},
    node_server::{self, Silence},
};

pub(crate) const THIS_MACHINE: &str = "this machine";
/// The finding about the node's server, and its detail with the node's name.
pub(super) const SERVER: &str = "server";
pub(super) const NODE: &str = "node";
const CONTROLLER: &str = "ovn-controller";
const NORTHD: &str = "ovn-northd";
/// Computations of everything within [`PAUSE`] from which on they are a loop: a burst of pods makes
/// one or two, for what comes meanwhile waits for the next one.
const MOST_RECOMPUTES: u64 = 3;

/// Whether it is about what only a node has.
pub(super) fn is_of_node(finding: &Finding) -> bool {
    [SERVER, CONTROLLER].contains(&finding.name.as_str())
}

pub(crate) async fn findings(machine: &Machine, node: Option<&str>) -> Vec<Finding> {
    if let Some(recorded) = &machine.recorded {
        let is_asked = node.is_none_or(|node| recorded.node.as_deref() == Some(node));
        return if is_asked { recorded.findings.clone() } else { Vec::new() };
    }
    let (server, switch, controller, northd) = tokio::join!(
        node_server::ask::<NodeAnswer>(&machine.socket, NODE_PATH, Vec::new()),
        switch::findings(machine),
        controller(machine),
        northd(machine),
    );
    let name = server.as_ref().ok().map(|answer| answer.node.clone());
    // Asked about another node, this machine says nothing.
    if node.is_some_and(|node| name.as_deref().is_none_or(|name| name != node)) {
        return Vec::new();
    }
    let is_node = !matches!(server, Err(Silence::NoServer)) || !switch.is_empty();
    let mut findings = Vec::new();
    if is_node {
        findings.extend(of_server(&machine.socket, server));
        findings.extend(switch);
        findings.extend(controller);
    }
    findings.extend(northd);
    if is_node || machine.ovn_run_dir.exists() {
        findings.extend(host::disks());
    }
    findings
}

fn of_server(socket: &Path, answer: Result<NodeAnswer, Silence>) -> Vec<Finding> {
    let found = |state, said: &str| Finding::new(THIS_MACHINE, SERVER, state, said);
    let start = "systemctl status ovnkube-node, or the pod of ovnkube-node on this node";
    let answer = match answer {
        Ok(answer) => answer,
        Err(silence) => {
            let state = match silence {
                Silence::NoServer | Silence::Gone | Silence::Broken(_) => State::Failed,
                Silence::Forbidden | Silence::Unknowing => State::Unknown,
            };
            return vec![found(state, &silence.why(socket)).next(start)];
        }
    };
    let NodeAnswer { node, version, plugin, missing, remarks, stages: _ } = answer;
    let name = format!("node {node}, version {version}");
    let mut findings = vec![match missing.is_empty() {
        true => found(State::Ok, &format!("{name}, ready")),
        false => found(State::Failed, &format!("{name}, not ready"))
            .next("the log /var/log/openvswitch/ovnkube.log"),
    }];
    let plugin = of_plugin(plugin.as_deref(), &version);
    findings[0] = findings[0].clone().with(NODE, node).with("version", version);
    findings.push(plugin);
    for (part, why) in missing {
        findings.push(Finding::new(THIS_MACHINE, &part, State::Failed, &why));
    }
    for (part, remark) in remarks {
        findings.push(Finding::new(THIS_MACHINE, &part, State::Warning, &remark));
    }
    findings
}

/// The plugin that the runtime calls: an update replaces it beside the server.
fn of_plugin(plugin: Option<&str>, server: &str) -> Finding {
    let found = |state, said: &str| Finding::new(THIS_MACHINE, "plugin", state, said);
    let Some(version) = plugin else {
        return found(State::Skipped, "it has not been called since the server's start");
    };
    let another = |said: &str| {
        found(State::Warning, &format!("{said}, the server is version {server}"))
            .next("ls -l /opt/cni/bin; a start of the server installs its own")
    };
    let finding = match version {
        "" => another("of another release, which does not say its version"),
        _ if version == server => found(State::Ok, &format!("version {version}")),
        _ => another(&format!("version {version}")),
    };
    finding.with("version", version)
}

async fn controller(machine: &Machine) -> Vec<Finding> {
    let socket = ControlSocket::of(&machine.ovn_run_dir, CONTROLLER);
    let found = |state, said: &str| vec![Finding::new(THIS_MACHINE, CONTROLLER, state, said)];
    let failed = |why: &str| {
        let next = "systemctl status ovn-controller, and /var/log/ovn/ovn-controller.log";
        vec![Finding::new(THIS_MACHINE, CONTROLLER, State::Failed, why).next(next)]
    };
    let (status, version) = tokio::join!(
        socket.ask("connection-status", &[], PATIENCE),
        socket.ask("version", &[], PATIENCE)
    );
    match status {
        Ok(status) if status.trim() == "connected" => {
            let version = version.unwrap_or_default();
            let version = version.lines().next().unwrap_or_default().to_owned();
            found(State::Ok, &format!("connected to the southbound database, {version}"))
        }
        Ok(status) => failed(&format!(
            "is {:?} to the southbound database: running pods go on, new ones wait",
            status.trim()
        )),
        Err(error) if error.kind() == ErrorKind::NotFound => failed(&format!(
            "does not run, or has its directory elsewhere (--ovn-run-dir): {error}"
        )),
        Err(error) => failed(&format!("does not answer: {error}")),
    }
}

/// ovn-northd, on the machine of the databases.
async fn northd(machine: &Machine) -> Option<Finding> {
    let socket = ControlSocket::of(&machine.ovn_run_dir, NORTHD);
    match socket.ask("status", &[], PATIENCE).await {
        Ok(status) => {
            let status = status.trim().trim_start_matches("Status: ").to_owned();
            let again = recomputed(&socket).await;
            Some(of_northd(&status, again))
        }
        // No pid file: another machine has it, and the databases say whether it works.
        Err(error) if error.kind() == ErrorKind::NotFound => None,
        Err(error) => {
            let finding = Finding::new(
                THIS_MACHINE,
                NORTHD,
                State::Failed,
                &format!("does not answer: {error}"),
            );
            Some(finding.next("systemctl status ovn-central"))
        }
    }
}

/// How often it has computed everything anew within [`PAUSE`]; `None` if it does not tell.
async fn recomputed(socket: &ControlSocket) -> Option<u64> {
    let count = async || {
        let text = socket.ask("inc-engine/show-stats", &[], PATIENCE).await.ok()?;
        recomputes(&text)
    };
    let before = count().await?;
    sleep(PAUSE).await;
    count().await?.checked_sub(before)
}

/// The counter of the engine's node `northd`, as ovn-northd(8) shows it.
fn recomputes(text: &str) -> Option<u64> {
    let mut lines = text.lines().skip_while(|line| line.trim() != "Node: northd");
    let line = lines.find_map(|line| line.trim().strip_prefix("- recompute:"))?;
    line.trim().parse().ok()
}

fn of_northd(status: &str, again: Option<u64>) -> Finding {
    let found = |state, said: &str| Finding::new(THIS_MACHINE, NORTHD, state, said);
    match again {
        Some(times) if times > MOST_RECOMPUTES => {
            let why = format!(
                "{status}; it has computed everything anew {times} times within {} s: a program \
                 changes the northbound database all the time, or its changes need it",
                PAUSE.as_secs()
            );
            found(State::Warning, &why)
                .next("ovn-appctl -t ovn-northd inc-engine/show-stats, and its log")
                .with("recomputes", times)
        }
        _ => found(State::Ok, status),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_northd_that_computes_everything_again_and_again_needs_attention() {
        let stats = "Node: sync_to_sb\n- recompute:            1\n- compute:            5\n\
                     Node: northd\n- recompute:           42\n- compute:            7\n";
        assert_eq!(recomputes(stats), Some(42));
        assert_eq!(recomputes("Node: lflow\n- recompute: 1\n"), None);
        assert_eq!(of_northd("active", Some(2)).state, State::Ok);
        assert_eq!(of_northd("active", None).state, State::Ok);
        assert_eq!(of_northd("active", Some(40)).state, State::Warning);
    }

    #[test]
    fn a_server_that_is_not_ready_is_shown_with_each_reason() {
        let answer = NodeAnswer {
            node: "n1".to_owned(),
            version: "1".to_owned(),
            missing: [("pods".to_owned(), "the API server does not answer".to_owned())].into(),
            remarks: [("gateway".to_owned(), "no default route".to_owned())].into(),
            ..NodeAnswer::default()
        };
        let findings = of_server(Path::new("/s"), Ok(answer));
        let states: Vec<(&str, State)> =
            findings.iter().map(|finding| (finding.name.as_str(), finding.state)).collect();
        assert_eq!(
            states,
            [
                ("server", State::Failed),
                ("plugin", State::Skipped),
                ("pods", State::Failed),
                ("gateway", State::Warning)
            ]
        );
    }

    #[test]
    fn a_plugin_of_another_release_than_the_server_needs_attention() {
        for (plugin, state) in [
            (None, State::Skipped),
            (Some("2"), State::Ok),
            (Some("1"), State::Warning),
            (Some(""), State::Warning),
        ] {
            assert_eq!(of_plugin(plugin, "2").state, state, "{plugin:?}");
        }
    }
}
