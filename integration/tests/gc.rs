//! GC: exactly the interfaces that the runtime no longer knows go, and of this network only.

#[path = "support/attached.rs"]
mod attached;
#[path = "support/second.rs"]
mod second;
#[path = "support/view.rs"]
mod view;

use anyhow::ensure;
use integration::{Lab, Pod};
use serde_json::json;

use attached::{attach, detach};
use second::Second;
use view::{is_on_node, ports_of};

#[test]
fn exactly_what_is_not_valid_goes() {
    Lab::of_nodes(1).test(|lab| {
        let node = &lab.nodes[0];
        node.start_server()?;
        let blue = Second::create(lab, "blue")?;
        let pods = blue.new_pods(lab, node, 10)?;
        let untouched = node.census()?;
        let (valid, invalid) = pods.split_at(6);
        let (killed, attached) = invalid.split_last().expect("four are invalid");
        for pod in valid.iter().chain(attached) {
            attach(node, pod.clone())?;
        }
        // An invalid sandbox and a valid one have an interface of another network, which is not asked about.
        let others = [&valid[0], &attached[0]];
        others.iter().try_for_each(|pod| blue.runtime(node).add(pod)?.success().map(drop))?;
        // One whose plugin died as soon as it had made the link.
        let outcome = node.runtime().call("ADD", Some(killed)).env("OVN_CNI_FAILPOINT", "after:veth=kill").run()?;
        ensure!(
            outcome.stdout.is_empty() && !outcome.status.success(),
            "no failpoints; build them with: cargo build -p cni --features failpoints: {outcome:?}"
        );
        ensure!(is_on_node(node, &killed.host_interface()) && ports_of(node, &killed.sandbox)?.is_empty(), "it left something else");
        // Somebody else's, with no mark of ours.
        node.shell(
            "ip link add stranger type veth peer name stranger-peer; ovs-vsctl add-port br-int stranger
             ovs-vsctl set Interface stranger external_ids:iface-id=stranger",
        )?;
        let theirs = node.census()?.lines_with("stranger").len();

        node.runtime().gc(&valid.iter().collect::<Vec<_>>())?.success()?;

        for pod in invalid {
            ensure!(!is_on_node(node, &pod.host_interface()), "the link of {} is still there", pod.name);
            let ports = ports_of(node, &pod.sandbox)?;
            ensure!(!ports.contains(&pod.host_interface()), "the port of {} is still there", pod.name);
        }
        for pod in &valid[1..] {
            lab.ping(pod, valid[0].address())?;
        }
        ensure!(ports_of(node, &attached[0].sandbox)?.len() == 1, "the other network's interface of an invalid sandbox is gone");
        lab.ping(others[0], blue.address(others[1]))?;
        ensure!(node.census()?.lines_with("stranger").len() == theirs, "what is not ours is gone");

        // The other network's own, of which none is valid any more.
        blue.runtime(node).gc(&[])?.success()?;
        for pod in others {
            ensure!(blue.host_interface(node, pod).is_err(), "{} still has its interface of the other network", pod.name);
        }
        lab.ping(&valid[1], valid[0].address())?;

        valid.iter().try_for_each(|pod| detach(node, pod))?;
        node.shell("ovs-vsctl del-port br-int stranger; ip link del stranger")?;
        untouched.must_equal(&node.census()?)
    });
}

#[test]
fn without_a_list_nothing_goes() {
    Lab::of_nodes(1).test(|lab| {
        let node = &lab.nodes[0];
        node.start_server()?;
        let pod: Pod = lab.new_pod(node)?;
        attach(node, pod.clone())?;
        let before = node.census()?;
        let outcome = node.runtime().with("cniVersion", json!("1.1.0")).call("GC", None).run()?;
        outcome.success()?;
        before.must_equal(&node.census()?)?;
        detach(node, &pod)
    });
}
