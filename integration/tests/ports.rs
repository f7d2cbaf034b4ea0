//! The server writes the ports of several pods in one transaction; and whatever becomes of it, each pod gets its port.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use integration::{Lab, Node, Pod, eventually, faults::AT_ONCE, runtime::Running};

/// A plugin that hears nothing from the server looks itself after this long.
const SILENCE: Duration = Duration::from_secs(2);

/// The transactions in which the server has written ports, with how many each.
fn written(node: &Node) -> Result<Vec<usize>> {
    let log = node.run(["ovsdb-tool", "show-log", "/etc/openvswitch/conf.db"])?;
    let counts = log.lines().filter_map(|line| line.split_once("ovnkube: write ")?.1.split_once(' ')).map(|(count, _)| count.parse());
    counts.collect::<Result<_, _>>().with_context(|| log.clone())
}

/// Pods whose ADDs have begun and have their ports, while OVN connects none of them.
fn waiting_for_ovn(lab: &Lab, node: &Node, count: usize) -> Result<(Vec<Pod>, Vec<Running>)> {
    node.start_server()?;
    node.ovn_controller.pause()?;
    let pods = lab.new_pods(node, count)?;
    let adds = pods.iter().map(|pod| node.runtime().call("ADD", Some(pod)).start()).collect::<Result<Vec<_>>>()?;
    for pod in &pods {
        eventually("the port is there", AT_ONCE, || {
            ensure!(!node.census()?.lines_with(&format!("sandbox={}", pod.sandbox)).is_empty(), "no row of {}", pod.name);
            Ok(())
        })?;
    }
    Ok((pods, adds))
}

fn all_work(lab: &Lab, pods: &[Pod], adds: Vec<Running>) -> Result<()> {
    adds.into_iter().try_for_each(|add| add.wait()?.success().map(drop))?;
    pods.iter().try_for_each(|pod| lab.ping(pod, pod.gateways[0]))
}

#[test]
fn ports_of_a_burst_share_transactions() {
    Lab::of_nodes(1).test(|lab| {
        let node = &lab.nodes[0];
        let (pods, adds) = waiting_for_ovn(lab, node, 20)?;
        node.ovn_controller.resume()?;
        all_work(lab, &pods, adds)?;
        let written = written(node)?;
        ensure!(written.iter().sum::<usize>() == 20, "the server has written {written:?}");
        ensure!(written.len() < 20, "each in a transaction of its own: {written:?}");
        Ok(())
    });
}

#[test]
fn a_port_that_a_killed_server_has_written_is_found() {
    Lab::of_nodes(1).test(|lab| {
        let node = &lab.nodes[0];
        let (pods, adds) = waiting_for_ovn(lab, node, 3)?;
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
        let (pods, adds) = waiting_for_ovn(lab, node, 3)?;
        node.server.pause()?;
        node.ovn_controller.resume()?;
        for (pod, add) in pods.iter().zip(adds) {
            let outcome = add.wait()?;
            outcome.success()?;
            ensure!(outcome.duration < SILENCE + AT_ONCE, "ADD of {} took {:?}", pod.name, outcome.duration);
            lab.ping(pod, pod.gateways[0])?;
        }
        node.server.resume()
    });
}

#[test]
fn what_is_in_a_ports_way_is_for_the_plugin_to_word() {
    Lab::of_nodes(1).test(|lab| {
        let node = &lab.nodes[0];
        node.start_server()?;
        let pod = lab.new_pod(node)?;
        node.runtime().add(&pod)?.success()?;
        // The next sandbox of the same pod: its older port has to go, which the server does not do.
        let next = pod.next_sandbox();
        node.add_namespaces(std::slice::from_ref(&next))?;
        node.runtime().add(&next)?.success()?;
        lab.ping(&next, next.gateways[0])?;
        let census = node.census()?;
        ensure!(census.lines_with(&format!("iface-id={}", pod.port())).len() <= 1, "{census}");
        ensure!(written(node)? == [1], "{:?}", written(node)?);
        Ok(())
    });
}
