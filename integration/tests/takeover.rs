//! A pod's port belongs to its newest sandbox: the one before gives it up, attached or not, and its DEL takes nothing with it.

#[path = "support/attached.rs"]
mod attached;
#[path = "support/view.rs"]
mod view;

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use integration::{Lab, Node, Pod};

use attached::{attach, detach, hold_back, let_go, start_waiting_add};
use view::{is_on_node, ports_of};

/// Another sandbox of the same pod, with its namespace.
fn next_sandbox(node: &Node, pod: &Pod) -> Result<Pod> {
    let newer = pod.next_sandbox();
    node.add_namespaces(std::slice::from_ref(&newer))?;
    Ok(newer)
}

#[test]
fn a_newer_sandbox_takes_the_port_over_and_the_end_of_the_older_one_leaves_it_alone() {
    Lab::of_nodes(1).test(|lab| {
        let node = &lab.nodes[0];
        node.start_server()?;
        let [older, other] = [lab.new_pod(node)?, lab.new_pod(node)?];
        let newer = next_sandbox(node, &older)?;
        let before = node.census()?;
        attach(node, other.clone())?;
        attach(node, older.clone())?;
        lab.ping(&other, older.address())?;

        let attached = attach(node, newer.clone())?;
        ensure!(ports_of(node, &older.sandbox)?.is_empty(), "the older port is still there");
        ensure!(ports_of(node, &newer.sandbox)?.len() == 1, "the newer port is missing");
        lab.ping(&other, newer.address())?;
        lab.ping(&newer, other.address())?;

        detach(node, &older)?;
        ensure!(!is_on_node(node, &older.host_interface()), "the older link is still there");
        lab.ping(&other, newer.address())?;
        node.runtime().check(&newer, &attached.result)?.success()?;
        detach(node, &newer)?;
        detach(node, &other)?;
        before.must_equal(&node.census()?)
    });
}

/// The two ways in which flows do not come: OVN wants the port elsewhere, or its agent does nothing.
#[test]
fn an_add_that_still_waits_gives_way_to_a_newer_sandbox_at_once() {
    Lab::of_nodes(1).test(|lab| {
        let node = &lab.nodes[0];
        node.start_server()?;
        for reason in ["the port is wanted elsewhere", "ovn-controller is paused"] {
            let older = lab.new_pod(node)?;
            let newer = next_sandbox(node, &older)?;
            let before = node.census()?;
            let elsewhere = reason.contains("elsewhere");
            if elsewhere {
                hold_back(lab, &older)?
            } else {
                node.ovn_controller.pause()?
            }

            let old = start_waiting_add(node, &older)?;
            let began = Instant::now();
            let mut new = start_waiting_add(node, &newer)?;
            let error = old.wait()?.failure().context(reason)?;
            ensure!(error.code == 106 && error.msg.contains(&older.host_interface()), "{reason}: {error:?}");
            ensure!(began.elapsed() < Duration::from_secs(3), "{reason}: the older ADD went on for {:?}", began.elapsed());
            ensure!(!is_on_node(node, &older.host_interface()), "{reason}: the older link is still there");
            ensure!(!new.has_ended()?, "{reason}: the newer ADD did not wait");

            if elsewhere {
                let_go(lab, &newer)?
            } else {
                node.ovn_controller.resume()?
            }
            new.wait()?.success().context(reason)?;
            lab.ping(&newer, newer.gateways[0])?;
            detach(node, &older)?;
            lab.ping(&newer, newer.gateways[0])?;
            detach(node, &newer)?;
            before.must_equal(&node.census()?).context(reason)?;
        }
        Ok(())
    });
}

#[test]
fn a_pod_that_was_created_anew_takes_the_port_of_its_predecessor() {
    Lab::of_nodes(1).test(|lab| {
        let node = &lab.nodes[0];
        node.start_server()?;
        let old = lab.new_pod(node)?;
        let new = old.recreated();
        node.add_namespaces(std::slice::from_ref(&new))?;
        let before = node.census()?;
        attach(node, old.clone())?;

        // As the control plane does it: the port and the manifest are the new pod's from now on.
        let version = format!("options:iface-id-ver={}", new.uid);
        lab.central.nbctl(["set", "Logical_Switch_Port", &new.port(), &version])?;
        node.write_manifest(&new)?;
        attach(node, new.clone())?;
        lab.ping(&new, new.gateways[0])?;
        detach(node, &old)?;
        lab.ping(&new, new.gateways[0])?;
        detach(node, &new)?;
        before.must_equal(&node.census()?)
    });
}
