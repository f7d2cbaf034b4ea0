//! Daemons that end and come back while ADDs are under way or pods are alive: calls end with success or "try again" and leave
//! nothing, pods keep their network.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use integration::{Census, Lab, Node, Outcome, Pod, Runtime, eventually, runtime::Running};
use serde_json::json;

/// Enough for what should be done at once on a busy machine, and less than any deadline of the plugin.
const AT_ONCE: Duration = Duration::from_secs(5);

/// The only node, with its server running.
fn node_of(lab: &Lab) -> Result<&Node> {
    let node = &lab.nodes[0];
    node.start_server()?;
    Ok(node)
}

fn attached(lab: &Lab, node: &Node) -> Result<Pod> {
    let pod = lab.new_pod(node)?;
    node.runtime().add(&pod)?.success()?;
    Ok(pod)
}

/// Pods whose annotation is not there yet.
fn pods_without_annotation(lab: &Lab, node: &Node, count: usize) -> Result<Vec<Pod>> {
    let pods: Vec<Pod> = (0..count).map(|_| lab.plan_pod(node)).collect();
    lab.add_ports(&pods)?;
    node.add_namespaces(&pods)?;
    pods.iter().try_for_each(|pod| node.write_manifest_text(pod, &pod.manifest(None)))?;
    Ok(pods)
}

fn start_adds(runtime: &Runtime<'_>, pods: &[Pod]) -> Result<Vec<Running>> {
    pods.iter().map(|pod| runtime.call("ADD", Some(pod)).start()).collect()
}

/// Waits until all these pods have a port with a number.
fn have_ofport(node: &Node, pods: &[Pod]) -> Result<()> {
    let words = pods.iter().flat_map(|pod| ["--".into(), "wait-until".into(), "Interface".into(), pod.host_interface(), "ofport>0".into()]);
    node.vsctl(words).map(drop)
}

/// Waits until all these pods have a port.
fn are_plugged(node: &Node, pods: &[Pod]) -> Result<()> {
    let words = pods.iter().flat_map(|pod| ["--".into(), "wait-until".into(), "Interface".into(), pod.host_interface(), "name!=x".into()]);
    node.vsctl(words).map(drop)
}

/// The pod reaches the gateway of its subnet, which OVN answers for.
fn has_network(lab: &Lab, pod: &Pod) -> Result<()> {
    lab.ping(pod, pod.gateways[0])
}

/// An ADD that a restart met: it succeeded, or it says "try again later" and, unless it says so, has left nothing of its sandbox.
fn ended_well(node: &Node, pod: &Pod, outcome: &Outcome) -> Result<()> {
    if outcome.status.success() {
        return outcome.success().map(drop);
    }
    let error = outcome.failure()?;
    ensure!(error.code == 11, "{error:?}");
    let census = node.census()?;
    let left = census.lines_with(&pod.host_interface());
    ensure!(left.is_empty() || error.msg.contains("left something behind"), "left, although nothing was said ({error:?}):\n{left:?}");
    Ok(())
}

/// What the runtime does in the end: DEL for every sandbox, whatever became of its ADD.
fn del_leaves(node: &Node, pods: &[Pod], before: &Census) -> Result<()> {
    pods.iter().try_for_each(|pod| node.runtime().del(pod)?.success().map(drop))?;
    before.must_equal(&node.census()?)
}

/// Every pod comes and goes in its next sandbox, as if nothing had happened.
fn next_sandboxes_work(lab: &Lab, node: &Node, pods: &[Pod]) -> Result<()> {
    let next: Vec<Pod> = pods.iter().map(Pod::next_sandbox).collect();
    node.add_namespaces(&next)?;
    for pod in &next {
        node.runtime().add(pod)?.success()?;
        has_network(lab, pod)?;
        node.runtime().del(pod)?.success()?;
    }
    node.remove_namespaces(&next)
}

#[test]
fn adds_that_wait_for_their_port_do_not_need_the_server_any_more() {
    Lab::of_nodes(1).test(|lab| {
        let node = node_of(lab)?;
        let pods = lab.new_pods(node, 5)?;
        let before = node.census()?;
        node.ovn_controller.pause()?;
        let waiting = start_adds(&node.runtime(), &pods)?;
        have_ofport(node, &pods)?;
        node.server.kill()?;
        node.ovn_controller.resume()?;
        for running in waiting {
            running.wait()?.success()?;
        }
        pods.iter().try_for_each(|pod| has_network(lab, pod))?;
        node.start_server()?;
        del_leaves(node, &pods, &before)
    });
}

#[test]
fn a_server_that_is_away_for_a_moment_is_waited_for() {
    Lab::of_nodes(1).test(|lab| {
        let node = node_of(lab)?;
        let pods = lab.new_pods(node, 5)?;
        node.server.kill()?;
        let waiting = start_adds(&node.runtime(), &pods)?;
        node.start_server()?;
        for running in waiting {
            running.wait()?.success()?;
        }
        pods.iter().try_for_each(|pod| has_network(lab, pod))
    });
}

/// The row of the pod's interface, as far as a restart must not change it.
fn row(node: &Node, pod: &Pod) -> Result<String> {
    node.vsctl(["--columns=_uuid,name,external_ids", "list", "Interface", &pod.host_interface()])
}

#[test]
fn pods_outlast_a_restart_of_ovs_vswitchd_without_a_call_of_the_plugin() {
    Lab::of_nodes(1).test(|lab| {
        let node = node_of(lab)?;
        let (first, second) = (attached(lab, node)?, attached(lab, node)?);
        lab.ping(&first, second.address())?;
        let ports = node.vsctl(["--columns=name,other_config", "list", "Port"])?;
        ensure!(!ports.contains("transient"), "ports of pods must outlast a restart: {ports}");
        let uuids = || Ok::<_, anyhow::Error>([uuid_of(node, &first)?, uuid_of(node, &second)?]);
        let before = uuids()?;
        node.vswitchd.kill()?;
        node.start_vswitchd()?;
        lab.ping(&first, second.address())?;
        lab.ping(&second, first.address())?;
        has_network(lab, &first)?;
        ensure!(before == uuids()?, "somebody has made the ports again: {}", row(node, &first)?);

        // And once more without a server, which could have put something right.
        node.server.kill()?;
        node.vswitchd.kill()?;
        node.start_vswitchd()?;
        lab.ping(&first, second.address())
    });
}

fn uuid_of(node: &Node, pod: &Pod) -> Result<String> {
    node.vsctl(["get", "Interface", &pod.host_interface(), "_uuid"])
}
