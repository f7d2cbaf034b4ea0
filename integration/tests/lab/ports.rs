//! The plugin writes the port of a pod that starts alone, the server those of a burst, and each pod
//! gets its port whatever happens to the server. Shared transactions are tested in
//! `tests/tests/written_ports.rs`, where the test decides which ports wait at the same moment.

use std::{collections::BTreeMap, time::Duration};

use anyhow::{Context as _, Result, ensure};
use contract::wire::{REQUEST_PATH, Request, Response};
use integration::{
    Invocation, Lab, Node, Pod, eventually,
    faults::failpoint,
    http,
    node::SERVER_SOCKET,
    runtime::{self, Running},
};
use serde_json::json;

/// Limit for daemons and plugins on a busy machine.
const BUSY: Duration = Duration::from_secs(30);

/// The transactions in which the server has written ports, as numbers of ports.
fn written(node: &Node) -> Result<Vec<usize>> {
    let log = node.run(["ovsdb-tool", "show-log", "/etc/openvswitch/conf.db"])?;
    let counts = log
        .lines()
        .filter_map(|line| line.split_once("ovnkube: write ")?.1.split_once(' '))
        .map(|(count, _)| count.parse());
    counts.collect::<Result<_, _>>().with_context(|| log.clone())
}

/// Starts the server and waits until it writes ports: it listens before it has read Open vSwitch's
/// database.
fn start_server(lab: &Lab, node: &Node) -> Result<()> {
    node.start_server()?;
    let pod = lab.new_pod(node)?;
    let env = [
        ("CNI_COMMAND", "ADD"),
        ("CNI_CONTAINERID", &pod.sandbox),
        ("CNI_IFNAME", "eth0"),
        ("CNI_NETNS", &pod.netns.to_string_lossy()),
    ];
    let mut env: BTreeMap<String, String> =
        env.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
    env.insert("CNI_ARGS".to_owned(), runtime::cni_args(&pod));
    let config = node.runtime().config.to_string().into_bytes();
    let body = serde_json::to_string(&Request { env, config, timeout_ms: None })?;
    eventually("the server writes ports", BUSY, || {
        let answer = http::try_post(&node.path(SERVER_SOCKET), REQUEST_PATH, body.as_bytes())?;
        ensure!(answer.status() == 200, "{answer:?}");
        let text = answer.text();
        ensure!(serde_json::from_str::<Response>(&text)?.bridge.is_some(), "not yet: {text}");
        Ok(())
    })
}

/// An ADD that leaves the port to the server however long the server takes.
fn patient_add(node: &Node, pod: &Pod) -> Invocation {
    node.runtime().call("ADD", Some(pod)).env(failpoint::VARIABLE, "patient")
}

/// Starts ADDs whose pods have their ports, while ovn-controller is paused and installs no flows.
fn waiting_for_ovn(
    lab: &Lab,
    node: &Node,
    count: usize,
    add: fn(&Node, &Pod) -> Invocation,
) -> Result<(Vec<Pod>, Vec<Running>)> {
    failpoint::install(node)?;
    start_server(lab, node)?;
    node.ovn_controller.pause()?;
    let pods = lab.new_pods(node, count)?;
    let adds = pods.iter().map(|pod| add(node, pod).start()).collect::<Result<Vec<_>>>()?;
    for pod in &pods {
        eventually("the port is there", BUSY, || {
            ensure!(
                !node.census()?.lines_with(&format!("sandbox={}", pod.sandbox)).is_empty(),
                "no row of {}",
                pod.name
            );
            Ok(())
        })?;
    }
    Ok((pods, adds))
}

fn all_work(lab: &Lab, pods: &[Pod], adds: Vec<Running>) -> Result<()> {
    adds.into_iter().try_for_each(|add| add.wait()?.success().map(drop))?;
    pods.iter().try_for_each(|pod| lab.reaches_gateway(pod))
}

#[test]
fn the_port_of_a_pod_that_starts_alone_is_written_by_its_plugin() {
    Lab::of_nodes(1).test(|lab| {
        let node = &lab.nodes[0];
        start_server(lab, node)?;
        let pod = lab.new_pod(node)?;
        node.runtime().call("ADD", Some(&pod)).run()?.success()?;
        ensure!(written(node)?.is_empty(), "the server has written {:?}", written(node)?);
        ensure!(
            !node.census()?.lines_with(&format!("iface-id={}", pod.port())).is_empty(),
            "no port"
        );
        lab.reaches_gateway(&pod)
    });
}

#[test]
fn ports_of_a_burst_are_written_by_the_server() {
    Lab::of_nodes(1).test(|lab| {
        let node = &lab.nodes[0];
        let (pods, adds) = waiting_for_ovn(lab, node, 20, patient_add)?;
        node.ovn_controller.resume()?;
        all_work(lab, &pods, adds)?;
        let written = written(node)?;
        ensure!(written.iter().sum::<usize>() == 20, "the server has written {written:?}");
        Ok(())
    });
}

#[test]
fn a_port_that_a_killed_server_has_written_is_found() {
    Lab::of_nodes(1).test(|lab| {
        let node = &lab.nodes[0];
        let (pods, adds) = waiting_for_ovn(lab, node, 3, patient_add)?;
        ensure!(written(node)?.iter().sum::<usize>() == 3, "{:?}", written(node)?);
        node.server.kill()?;
        node.ovn_controller.resume()?;
        all_work(lab, &pods, adds)
    });
}

#[test]
fn a_server_that_falls_silent_is_not_waited_for() {
    Lab::of_nodes(1).test(|lab| {
        let node = &lab.nodes[0];
        let add = |node: &Node, pod: &Pod| {
            let runtime = node.runtime().with("timeoutSeconds", json!(BUSY.as_secs()));
            runtime.call("ADD", Some(pod)).env(failpoint::VARIABLE, "burst")
        };
        let (pods, adds) = waiting_for_ovn(lab, node, 3, add)?;
        node.server.pause()?;
        node.ovn_controller.resume()?;
        // The server stays silent until the ADDs have ended.
        all_work(lab, &pods, adds)?;
        node.server.resume()
    });
}

#[test]
fn what_is_in_a_ports_way_is_for_the_plugin_to_word() {
    Lab::of_nodes(1).test(|lab| {
        let node = &lab.nodes[0];
        failpoint::install(node)?;
        start_server(lab, node)?;
        let pod = lab.new_pod(node)?;
        patient_add(node, &pod).run()?.success()?;
        // The next sandbox of the same pod: its older port must be removed first, which the server
        // leaves to the plugin.
        let next = pod.next_sandbox();
        node.add_namespaces(std::slice::from_ref(&next))?;
        patient_add(node, &next).run()?.success()?;
        lab.ping(&next, next.gateways[0])?;
        let census = node.census()?;
        ensure!(census.lines_with(&format!("iface-id={}", pod.port())).len() <= 1, "{census}");
        ensure!(written(node)? == [1], "{:?}", written(node)?);
        Ok(())
    });
}
