//! The same sandbox, attached again: the new link has the name of the earlier one, which
//! ovs-vswitchd may still hold.

use anyhow::{Context as _, Result};
use integration::{Lab, Node, Pod, threads};

/// Rounds per pod: enough for ADDs to meet ovs-vswitchd at an unfortunate moment, if there is one.
const ROUNDS: usize = 30;

fn comes_and_goes(lab: &Lab, node: &Node, pod: &Pod) -> Result<()> {
    (1..=ROUNDS).try_for_each(|round| {
        node.runtime().add(pod)?.success()?;
        lab.reaches_gateway(pod).with_context(|| format!("round {round}"))?;
        node.runtime().del(pod)?.success().map(drop)
    })
}

#[test]
fn a_sandbox_has_its_network_again_however_soon() {
    Lab::of_nodes(1).test(|lab| {
        let node = &lab.nodes[0];
        node.start_server()?;
        let pods = lab.new_pods(node, 4)?;
        threads::at_once(&pods, |pod| comes_and_goes(lab, node, pod)).map(drop)
    });
}

#[test]
fn the_port_that_a_link_has_left_is_replaced() {
    Lab::of_nodes(1).test(|lab| {
        let node = &lab.nodes[0];
        node.start_server()?;
        let pod = lab.new_pod(node)?;
        for _ in 0..10 {
            node.runtime().add(&pod)?.success()?;
            lab.reaches_gateway(&pod)?;
            node.run(["ip", "link", "delete", &pod.host_interface()])?;
        }
        Ok(())
    });
}
