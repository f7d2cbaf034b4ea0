//! DEL in all its degraded forms. Whatever is missing, broken or foreign: DEL succeeds, leaves the
//! node as it was before the pod, and changes nothing of another sandbox.

use std::time::Duration;

use anyhow::{Result, ensure};
use integration::{Census, Lab, Node, Pod, Runtime, by_hand};
use serde_json::{Value, json};

/// Key of a second network in the pod's annotation.
const OTHER_NETWORK: &str = "lab/blue";

/// A pod of `node` whose ADD succeeded.
fn attached(lab: &Lab, node: &Node) -> Result<Pod> {
    let pod = lab.new_pod(node)?;
    attach(node, &pod)?;
    Ok(pod)
}

fn attach(node: &Node, pod: &Pod) -> Result<()> {
    node.runtime().add(pod)?.success()?;
    let census = node.census()?;
    ensure!(
        census.lines_with(&pod.sandbox).len() == 1,
        "ADD of {} has made no interface:\n{census}",
        pod.name
    );
    Ok(())
}

/// An attached pod, and the census of the node before its ADD.
fn attached_since(lab: &Lab, node: &Node) -> Result<(Pod, Census)> {
    let pod = lab.new_pod(node)?;
    let before = node.census()?;
    attach(node, &pod)?;
    Ok((pod, before))
}

/// Nothing on the node names the sandbox.
fn has_nothing_of(node: &Node, pod: &Pod) -> Result<()> {
    let census = node.census()?;
    let left = [census.lines_with(&pod.host_interface()), census.lines_with(&pod.port())].concat();
    ensure!(left.is_empty(), "left of {}:\n{}", pod.name, left.join("\n"));
    Ok(())
}

#[test]
fn del_needs_no_server() {
    Lab::of_nodes(1).test(|lab| {
        let node = lab.node_with_server()?;
        let (pod, before) = attached_since(lab, node)?;
        node.server.kill()?;
        let outcome = node.runtime().del(&pod)?;
        outcome.success()?;
        ensure!(
            outcome.duration < Duration::from_secs(1),
            "DEL took {:?}: does it wait for the server?",
            outcome.duration
        );
        before.must_equal(&node.census()?)
    });
}

#[test]
fn del_waits_for_no_ovs_vswitchd() {
    Lab::of_nodes(1).test(|lab| {
        let node = lab.node_with_server()?;
        let (paused, killed) = (attached(lab, node)?, attached(lab, node)?);
        node.vswitchd.pause()?;
        let outcome = node.runtime().del(&paused)?;
        node.vswitchd.resume()?;
        outcome.success()?;
        ensure!(
            outcome.duration < Duration::from_secs(1),
            "DEL took {:?}: does it wait for ovs-vswitchd?",
            outcome.duration
        );
        has_nothing_of(node, &paused)?;

        node.vswitchd.kill()?;
        let outcome = node.runtime().del(&killed)?;
        outcome.success()?;
        ensure!(
            outcome.duration < Duration::from_secs(1),
            "DEL took {:?}: does it wait for ovs-vswitchd?",
            outcome.duration
        );
        has_nothing_of(node, &killed)?;

        node.start_vswitchd()?;
        let next = attached(lab, node)?;
        lab.reaches_gateway(&next)
    });
}

/// On the kernel's datapath a link that goes before its port makes ovs-vswitchd complain. DEL does
/// not wait for long, and says so: as many complaints are its due.
#[test]
fn del_lets_the_switch_remove_a_port_before_its_link_goes() {
    Lab::of_nodes(1).test(|lab| {
        let node = lab.node_with_server()?;
        let pods = (0..6).map(|_| attached(lab, node)).collect::<Result<Vec<_>>>()?;
        let runtime = node.runtime().with("logLevel", json!("5"));
        for pod in &pods {
            runtime.del(pod)?.success()?;
            has_nothing_of(node, pod)?;
        }
        // A port that comes after them is there when those are done.
        attached(lab, node)?;
        let lines = |log: &str, words: &str| -> Result<Vec<String>> {
            let log = node.shell(&format!("cat /var/log/openvswitch/{log}.log"))?;
            Ok(log.lines().filter(|line| line.contains(words)).map(str::to_owned).collect())
        };
        let complaints = lines("ovs-vswitchd", "port_del failed")?;
        let impatient = lines("ovn-k8s-cni-overlay", "has not removed yet")?;
        ensure!(complaints.len() <= impatient.len(), "{complaints:#?}\n{impatient:#?}");
        Ok(())
    });
}

#[test]
fn del_without_the_database_asks_to_be_called_again_and_then_leaves_nothing() {
    Lab::of_nodes(1).test(|lab| {
        let node = lab.node_with_server()?;
        let (pod, before) = attached_since(lab, node)?;
        node.ovsdb_server.kill()?;
        let error = node.runtime().del(&pod)?.failure()?;
        ensure!(error.code == 11, "{error:?}");
        node.start_ovsdb_server()?;
        node.runtime().del(&pod)?.success()?;
        before.must_equal(&node.census()?)
    });
}

#[test]
fn del_finds_the_row_of_a_link_that_is_gone() {
    Lab::of_nodes(1).test(|lab| {
        let node = lab.node_with_server()?;
        let (pod, before) = attached_since(lab, node)?;
        node.run(["ip", "link", "del", &pod.host_interface()])?;
        node.runtime().del(&pod)?.success()?;
        before.must_equal(&node.census()?)
    });
}

#[test]
fn del_finds_the_link_of_a_row_that_is_gone() {
    Lab::of_nodes(1).test(|lab| {
        let node = lab.node_with_server()?;
        let (pod, before) = attached_since(lab, node)?;
        // A running server would put the port back.
        node.server.stop()?;
        node.vsctl(["del-port", "br-int", &pod.host_interface()])?;
        ensure!(
            node.census()?.lines_with(&pod.host_interface()).len() == 1,
            "the link should remain"
        );
        node.runtime().del(&pod)?.success()?;
        before.must_equal(&node.census()?)
    });
}

/// The same pod on a second network, with its own logical port and addresses.
fn on_other_network<'node>(lab: &Lab, node: &'node Node, pod: &Pod) -> Result<Runtime<'node>> {
    let second = lab.plan_pod(node);
    let mut annotation = pod.annotation();
    annotation[OTHER_NETWORK] = second.annotation()["default"].clone();
    annotation[OTHER_NETWORK]["gateway_ips"] = json!([]);
    annotation[OTHER_NETWORK]["routes"] = json!([]);
    annotation[OTHER_NETWORK]["role"] = json!("secondary");
    node.write_manifest_text(pod, &pod.manifest(Some(&annotation)))?;

    let port = format!("{}_{}", OTHER_NETWORK.replace('/', "."), pod.port());
    let words = format!(
        "lsp-add {} {port} -- set Logical_Switch_Port {port} options:iface-id-ver={}",
        pod.node, pod.uid
    );
    lab.central.nbctl(words.split_whitespace())?;
    lab.central.nbctl([
        "lsp-set-addresses",
        &port,
        &format!("{} {}", second.mac, second.address()),
    ])?;

    let mut runtime = node.runtime().with("name", json!("blue")).with("topology", json!("layer3"));
    runtime = runtime.with("netAttachDefName", json!(OTHER_NETWORK));
    "net1".clone_into(&mut runtime.ifname);
    Ok(runtime)
}

#[test]
fn del_takes_only_the_interface_that_it_names() {
    Lab::of_nodes(1).test(|lab| {
        let node = lab.node_with_server()?;
        let before = node.census()?;
        let pod = lab.new_pod(node)?;
        let (first, second) = (node.runtime(), on_other_network(lab, node, &pod)?);

        first.add(&pod)?.success()?;
        let with_first = node.census()?;
        second.add(&pod)?.success()?;
        second.del(&pod)?.success()?;
        with_first.must_equal(&node.census()?)?;
        lab.reaches_gateway(&pod)?;

        second.add(&pod)?.success()?;
        first.del(&pod)?.success()?;
        let links: Value =
            serde_json::from_str(&node.run_in_pod(&pod, ["ip", "-json", "link", "show", "net1"])?)?;
        ensure!(links[0]["operstate"] == "UP", "DEL of eth0 took net1 down: {links}");
        ensure!(
            node.run_in_pod(&pod, ["ip", "link", "show", "eth0"]).is_err(),
            "eth0 is still there"
        );

        // First without a namespace, then with nothing left at all.
        node.remove_namespaces(std::slice::from_ref(&pod))?;
        second.del(&pod)?.success()?;
        second.del(&pod)?.success()?;
        before.must_equal(&node.census()?)
    });
}

#[test]
fn del_takes_what_the_go_plugin_has_attached() {
    Lab::of_nodes(1).test(|lab| {
        let node = lab.node_with_server()?;
        let pod = lab.new_pod(node)?;
        let before = node.census()?;
        // A port as upstream's plugin makes it: no alias, no `pod-if-name`, and transient in its
        // newer versions.
        by_hand::attach(node, &pod)?;
        node.vsctl(["set", "Port", &pod.host_interface(), "other_config:transient=true"])?;
        let row = node.vsctl(["get", "Interface", &pod.host_interface(), "external_ids"])?;
        ensure!(
            !row.contains("pod-if-name") && row.contains("sandbox"),
            "not as the Go plugin writes it: {row}"
        );
        node.runtime().del(&pod)?.success()?;
        before.must_equal(&node.census()?)
    });
}

#[test]
fn del_takes_the_link_of_a_plugin_that_died_before_it_could_mark_it() {
    Lab::of_nodes(1).test(|lab| {
        let node = lab.node_with_server()?;
        let pod = lab.new_pod(node)?;
        let before = node.census()?;
        node.shell(&format!(
            "ip link add {} type veth peer name eth0 netns {}",
            pod.host_interface(),
            pod.netns_name()
        ))?;
        ensure!(before != node.census()?, "there is no link");
        node.runtime().del(&pod)?.success()?;
        before.must_equal(&node.census()?)
    });
}

#[test]
fn del_leaves_a_link_alone_that_only_has_its_name() {
    Lab::of_nodes(1).test(|lab| {
        let node = lab.node_with_server()?;
        for (kind, words) in
            [("bridge", "type bridge"), ("marked veth", "type veth peer name foreign")]
        {
            let pod = lab.new_pod(node)?;
            let link = pod.host_interface();
            node.shell(&format!(
                "ip link add {link} {words}; ip link set {link} alias somebody-elses"
            ))?;
            let before = node.census()?;
            node.runtime().del(&pod)?.success()?;
            before.must_equal(&node.census()?).map_err(|error| error.context(kind))?;
        }
        Ok(())
    });
}
