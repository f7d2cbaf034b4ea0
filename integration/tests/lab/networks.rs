//! A pod on a secondary network besides the cluster's own: two interfaces of one sandbox that do
//! not disturb each other.

use std::collections::BTreeMap;

use anyhow::{Result, ensure};
use integration::{Datapath, Lab, Node, Pod};
use serde_json::Value;

use crate::support::attached::{attach, detach};
use crate::support::second::Second;
use crate::support::view::{
    addresses, external_ids, is_on_node, link_in_pod, link_on_node, offload_is_on, ports_of,
};

/// ADD of both interfaces. Returns both results.
fn attach_both(node: &Node, blue: &Second, pod: &Pod) -> Result<[Value; 2]> {
    Ok([attach(node, pod.clone())?.result, blue.runtime(node).add(pod)?.success()?])
}

#[test]
fn a_second_interface_has_its_own_names_and_packets() {
    Lab::of_nodes(1).test(|lab| {
        let node = &lab.nodes[0];
        node.start_server()?;
        let blue = Second::create(lab, "blue-net")?;
        let pods = blue.new_pods(lab, node, 2)?;
        let before = node.census()?;
        let [[_, result], _] = [attach_both(node, &blue, &pods[0])?, attach_both(node, &blue, &pods[1])?];
        let pod = &pods[0];

        let inside = link_in_pod(node, pod, "net1")?;
        ensure!(inside["address"] == blue.mac(pod).as_str() && inside["mtu"] == 1400, "{inside:#}");
        ensure!(addresses(&inside) == [format!("{}/24", blue.address(pod))].into(), "{inside:#}");
        ensure!(
            offload_is_on(node, pod, "net1", "tx-checksumming")? == Datapath::of_lab().leaves_checksums(),
            "checksums are left to a NIC, which a userspace bridge does not have (or the other way round)"
        );
        ensure!(result["ips"][0]["address"] == format!("{}/24", blue.address(pod)), "{result:#}");

        // The name is the beginning of the container ID, cut so that the index of the pod's end
        // fits.
        let suffix = format!("_{}", inside["ifindex"]);
        let name = format!("{}{suffix}", &pod.sandbox[..15 - suffix.len()]);
        ensure!(blue.host_interface(node, pod)? == name, "{} is not {name}", blue.host_interface(node, pod)?);
        let alias = link_on_node(node, &name)?["ifalias"].to_string();
        ensure!(
            alias.contains(&pod.sandbox) && alias.contains("net1") && alias.contains(&blue.nad()),
            "alias {alias}"
        );
        let address = format!("{}/24", blue.address(pod));
        let expected = [
            ("attached_mac", blue.mac(pod)),
            ("iface-id", format!("lab.blue.net_{}", pod.port())),
            ("iface-id-ver", pod.uid.clone()),
            ("ip_address", address.clone()),
            ("ip_addresses", address),
            ("k8s.ovn.org/nad", "lab/blue-net".to_owned()),
            ("k8s.ovn.org/network", "blue-net".to_owned()),
            ("pod-if-name", "net1".to_owned()),
            ("sandbox", pod.sandbox.clone()),
        ];
        let ids = external_ids(node, &name)?;
        ensure!(
            ids == BTreeMap::from(expected.map(|(key, value)| (key.to_owned(), value))),
            "external_ids are {ids:#?}"
        );

        lab.ping(pod, blue.address(&pods[1]))?;
        lab.ping(pod, pods[1].address())?;
        lab.tcp_to(pod, &pods[1], blue.address(&pods[1]), 1 << 20)?;
        for pod in &pods {
            blue.runtime(node).del(pod)?.success()?;
            detach(node, pod)?;
        }
        before.must_equal(&node.census()?)
    });
}

#[test]
fn the_end_of_one_interface_leaves_the_other() {
    Lab::of_nodes(1).test(|lab| {
        let node = &lab.nodes[0];
        node.start_server()?;
        let blue = Second::create(lab, "blue")?;
        let pods = blue.new_pods(lab, node, 2)?;
        let [pod, other] = &pods[..] else { panic!("two pods") };
        let before = node.census()?;
        attach_both(node, &blue, other)?;

        let [own, _] = attach_both(node, &blue, pod)?;
        blue.runtime(node).del(pod)?.success()?;
        lab.ping(other, pod.address())?;
        node.runtime().check(pod, &own)?.success()?;
        detach(node, pod)?;

        let [_, second] = attach_both(node, &blue, pod)?;
        detach(node, pod)?;
        lab.ping(other, blue.address(pod))?;
        blue.runtime(node).check(pod, &second)?.success()?;
        blue.runtime(node).del(pod)?.success()?;

        blue.runtime(node).del(other)?.success()?;
        detach(node, other)?;
        before.must_equal(&node.census()?)
    });
}

#[test]
fn an_interface_whose_link_has_vanished_is_removed_and_the_other_stays() {
    Lab::of_nodes(1).test(|lab| {
        let node = &lab.nodes[0];
        node.start_server()?;
        let blue = Second::create(lab, "blue")?;
        let pods = blue.new_pods(lab, node, 2)?;
        let [pod, other] = &pods[..] else { panic!("two pods") };
        let before = node.census()?;
        attach_both(node, &blue, pod)?;
        attach(node, other.clone())?;

        // Deleted inside the pod, by its own administrator: the node's end disappears with it, the
        // port stays.
        node.run_in_pod(pod, ["ip", "link", "del", "net1"])?;
        let port = blue.host_interface(node, pod)?;
        ensure!(!is_on_node(node, &port));
        blue.runtime(node).del(pod)?.success()?;
        ensure!(
            ports_of(node, &pod.sandbox)? == [pod.host_interface()].into(),
            "ports: {:?}",
            ports_of(node, &pod.sandbox)?
        );
        lab.ping(other, pod.address())?;

        // The same for the cluster's own network.
        blue.runtime(node).add(pod)?.success()?;
        node.run_in_pod(pod, ["ip", "link", "del", "eth0"])?;
        detach(node, pod)?;
        ensure!(
            ports_of(node, &pod.sandbox)? == [blue.host_interface(node, pod)?].into(),
            "ports: {:?}",
            ports_of(node, &pod.sandbox)?
        );
        blue.runtime(node).del(pod)?.success()?;
        detach(node, other)?;
        before.must_equal(&node.census()?)
    });
}

#[test]
fn the_second_add_of_a_second_interface_fails_and_leaves_nothing() {
    Lab::of_nodes(1).test(|lab| {
        let node = &lab.nodes[0];
        node.start_server()?;
        let blue = Second::create(lab, "blue")?;
        let pods = blue.new_pods(lab, node, 2)?;
        let before = node.census()?;
        for pod in &pods {
            attach_both(node, &blue, pod)?;
        }
        let attached = node.census()?;
        let error = blue.runtime(node).add(&pods[0])?.failure()?;
        ensure!(error.code == 101 && error.msg.contains("net1"), "{error:?}");
        attached.must_equal(&node.census()?)?;
        lab.ping(&pods[1], blue.address(&pods[0]))?;
        for pod in &pods {
            detach(node, pod)?;
            blue.runtime(node).del(pod)?.success()?;
        }
        before.must_equal(&node.census()?)
    });
}
