//! ADD and DEL: the state of an interface in the pod, on the node and in Open vSwitch, and the ADDs
//! that are refused.

use std::{collections::BTreeMap, time::Duration};

use anyhow::{Context as _, Result, ensure};
use integration::{Datapath, Families, Lab, Outcome};
use serde_json::json;

use crate::support::attached;
use crate::support::attached::{attach, detach, manifest_with, place, with_pods};
use crate::support::view::{
    addresses, external_ids, gateway_routes, link_in_pod, link_on_node, offload_is_on,
};

#[test]
fn the_pods_end_is_what_the_annotation_says() {
    Lab::of_nodes(1).families(Families::Dual).test(|lab| {
        let node = &lab.nodes[0];
        let mut pod = lab.plan_pod(node);
        pod.routes =
            vec![("172.20.0.0/14".parse()?, pod.gateways[0]), ("fd00:20::/32".parse()?, pod.gateways[1])];
        place(lab, node, &pod, &pod.manifest(Some(&pod.annotation())))?;
        node.start_server()?;
        let (before, lo) = (node.census()?, link_in_pod(node, &pod, "lo")?);
        attach(node, pod.clone())?;

        let link = link_in_pod(node, &pod, "eth0")?;
        ensure!(
            link["operstate"] == "UP" && link["address"] == pod.mac.as_str() && link["mtu"] == 1400,
            "{link:#}"
        );
        ensure!(addresses(&link) == pod.addresses.iter().map(ToString::to_string).collect(), "{link:#}");
        let expected = [
            "default via 10.244.1.1",
            "default via fd00:10:244:1::1",
            "172.20.0.0/14 via 10.244.1.1",
            "fd00:20::/32 via fd00:10:244:1::1",
        ];
        let routes = gateway_routes(node, &pod)?;
        ensure!(routes == expected.map(str::to_owned).into(), "{routes:?}");
        ensure!(link_in_pod(node, &pod, "lo")? == lo, "the loopback interface was touched");
        let accept_ra = node.run_in_pod(&pod, ["cat", "/proc/sys/net/ipv6/conf/eth0/accept_ra"])?;
        ensure!(accept_ra.trim() == "0", "the pod believes router advertisements: accept_ra is {accept_ra}");
        ensure!(
            offload_is_on(node, &pod, "eth0", "tx-checksumming")? == Datapath::of_lab().leaves_checksums(),
            "checksums are left to a NIC, which a userspace bridge does not have (or the other way round)"
        );

        detach(node, &pod)?;
        before.must_equal(&node.census()?)
    });
}

/// Who asks what became of a pod's network has nothing but the log.
#[test]
fn the_log_at_its_lowest_level_tells_what_an_add_did() {
    Lab::of_nodes(1).test(|lab| {
        let node = lab.node_with_server()?;
        let pods = lab.new_pods(node, 1)?;
        let pod = &pods[0];
        let result = node.runtime().with("logLevel", json!("5")).add(pod)?;
        let log = node.shell("cat /var/log/openvswitch/ovn-k8s-cni-overlay.log")?;
        result.success()?;
        let result = result.stdout.trim();
        let [address, gateway] = [pod.addresses[0].to_string(), pod.gateways[0].to_string()];
        let host = format!("name={}", &pod.sandbox[..15]);
        let told = [
            ("DBG", "called", &[&*pod.sandbox, " eth0]", "netns=", "K8S_POD_NAME", &pod.name][..]),
            ("DBG", "the pod's annotation", &[&*pod.mac, &*address, "via", &*gateway, "mtu=1400"]),
            ("DBG", "made the veth", &[&*host, "index=", "pod_index=", "mac="]),
            ("DBG", "the port is in Open vSwitch", &[&*host, "iface_id=", "by=\"this plugin\""]),
            ("DBG", "addresses and routes are in the pod", &[]),
            ("DBG", "the result", &[&*result.replace('"', "\\\"")]),
            (
                "INFO",
                "attached",
                &[&*pod.mac, &*address, &*gateway, "mtu=1400", &pod.sandbox[..15]],
            ),
            ("INFO", "done", &["ms=", "stages="]),
        ];
        let mut lines = log.lines();
        for (level, message, values) in told {
            // In this order.
            let line =
                lines.find(|line| line.contains(&format!("|{level}|")) && line.contains(message));
            let line =
                line.with_context(|| format!("{message:?} is missing, or comes too early: {log}"))?;
            for value in values {
                ensure!(line.contains(value), "{value:?} is missing: {line}");
            }
        }
        Ok(())
    });
}

#[test]
fn a_migratable_virtual_machine_has_its_addresses_in_result_and_row_and_none_inside() {
    Lab::of_nodes(1).families(Families::Dual).test(|lab| {
        let node = &lab.nodes[0];
        node.start_server()?;
        let pod = lab.plan_pod(node);
        let annotation = ("kubevirt.io/allow-pod-bridge-network-live-migration", "true");
        place(lab, node, &pod, &manifest_with(&pod, &[annotation]))?;
        let before = node.census()?;
        let attached = attach(node, pod.clone())?;

        // containerd refuses a sandbox whose result has no address, and the kubelet a pod without
        // one.
        let ips: Vec<_> = attached.result["ips"]
            .as_array()
            .into_iter()
            .flatten()
            .map(|ip| ip["address"].clone())
            .collect();
        ensure!(
            ips == pod
                .addresses
                .iter()
                .map(|address| json!(address.to_string()))
                .collect::<Vec<_>>(),
            "{:#}",
            attached.result
        );
        let ids = external_ids(node, &pod.host_interface())?;
        ensure!(
            ids.get("ip_addresses").is_some_and(|list| list == "10.244.1.3/24,fd00:10:244:1::3/64"),
            "{ids:#?}"
        );
        let link = link_in_pod(node, &pod, "eth0")?;
        ensure!(
            link["operstate"] == "UP" && addresses(&link).is_empty(),
            "the guest's address is on this end, too: {link:#}"
        );
        ensure!(gateway_routes(node, &pod)?.is_empty(), "{:?}", gateway_routes(node, &pod)?);
        node.runtime().check(&pod, &attached.result)?.success()?;

        detach(node, &pod)?;
        before.must_equal(&node.census()?)
    });
}

#[test]
fn a_check_of_a_migratable_machine_failed_while_the_server_restarted() {
    Lab::of_nodes(1).families(Families::Dual).test(|lab| {
        let node = &lab.nodes[0];
        node.start_server()?;
        let (pod, other) = (lab.plan_pod(node), lab.new_pod(node)?);
        let annotation = ("kubevirt.io/allow-pod-bridge-network-live-migration", "true");
        place(lab, node, &pod, &manifest_with(&pod, &[annotation]))?;
        let (machine, other) = (attach(node, pod)?, attach(node, other)?);
        let check =
            |attached: &attached::Attached| node.runtime().check(&attached.pod, &attached.result);

        node.server.stop()?;
        check(&machine)?.success()?;
        check(&other)?.success()?;
        // Of a pod that is no virtual machine, the addresses are compared all the same.
        node.run_in_pod(&other.pod, ["ip", "-4", "addr", "flush", "dev", "eth0"])?;
        let error = check(&other)?.failure()?;
        ensure!(error.code == 105 && error.msg.contains("addresses of eth0"), "{error:?}");

        // Rows of older plugins do not say whose the addresses are. The server does, once it is
        // there.
        let link = machine.pod.host_interface();
        node.vsctl(["remove", "Interface", &link, "external_ids", "k8s.ovn.org/skip-ip-config"])?;
        ensure!(check(&machine)?.failure()?.code == 105, "the row is not what told it");
        node.start_server()?;
        check(&machine)?.success()?;
        detach(node, &machine.pod)?;
        detach(node, &other.pod)
    });
}

#[test]
fn the_nodes_end_says_whose_it_is() {
    Lab::of_nodes(1).families(Families::Dual).test(|lab| {
        let node = &lab.nodes[0];
        node.start_server()?;
        // New links of the node would accept router advertisements, as on a machine with the
        // kernel's defaults.
        node.shell("echo 1 > /proc/sys/net/ipv6/conf/default/accept_ra")?;
        with_pods(lab, node, |[one]| {
            let pod = &one.pod;
            let name = &pod.sandbox[..15];
            let link = link_on_node(node, name)?;
            ensure!(link["operstate"] == "UP" && link["mtu"] == 1400, "{link:#}");
            let alias = link["ifalias"].as_str().unwrap_or_default();
            ensure!(alias.contains(&pod.sandbox) && alias.contains("eth0"), "alias {alias:?}");
            ensure!(
                addresses(&link).is_empty(),
                "the node has an address of the pod's link: {link:#}"
            );
            // 3 is NET_ADDR_SET: udev replaces an Ethernet address that the kernel chose, and
            // leaves one that was set.
            let origin = node.run(["cat", &format!("/sys/class/net/{name}/addr_assign_type")])?;
            ensure!(
                origin.trim() == "3",
                "the link's Ethernet address may change: addr_assign_type is {origin}"
            );
            let accept_ra =
                node.run(["cat", &format!("/proc/sys/net/ipv6/conf/{name}/accept_ra")])?;
            ensure!(
                accept_ra.trim() == "0",
                "the node believes the pod's router advertisements: accept_ra is {accept_ra}"
            );

            let ids = external_ids(node, name)?;
            let expected = [
                ("attached_mac", pod.mac.as_str()),
                ("iface-id", &pod.port()),
                ("iface-id-ver", &pod.uid),
                ("ip_address", "10.244.1.3/24"),
                ("ip_addresses", "10.244.1.3/24,fd00:10:244:1::3/64"),
                ("pod-if-name", "eth0"),
                ("sandbox", &pod.sandbox),
            ];
            let expected: BTreeMap<String, String> =
                expected.map(|(key, value)| (key.to_owned(), value.to_owned())).into();
            ensure!(ids == expected, "external_ids are {ids:#?}");
            Ok(())
        })
    });
}

#[test]
fn the_second_add_of_an_interface_fails_and_the_first_keeps_working() {
    Lab::of_nodes(1).test(|lab| {
        let node = &lab.nodes[0];
        node.start_server()?;
        with_pods(lab, node, |[one, other]| {
            let before = node.census()?;
            let error = node.runtime().add(&one.pod)?.failure()?;
            ensure!(error.code == 101 && error.msg.contains("eth0"), "{error:?}");
            before.must_equal(&node.census()?)?;
            lab.ping(&other.pod, one.pod.address())?;
            node.runtime().check(&one.pod, &one.result)?.success().map(drop)
        })
    });
}

#[test]
fn an_add_takes_less_than_half_a_second() {
    Lab::of_nodes(1).test(|lab| {
        let node = &lab.nodes[0];
        node.start_server()?;
        let pods = lab.new_pods(node, 9)?;
        let outcomes =
            pods.iter().map(|pod| node.runtime().add(pod)).collect::<Result<Vec<Outcome>>>()?;
        outcomes.iter().try_for_each(|outcome| outcome.success().map(drop))?;
        let mut times: Vec<Duration> = outcomes.iter().map(|outcome| outcome.duration).collect();
        times.sort();
        // The machine that runs this has other work: the median shows the plugin, the maximum the
        // other work.
        ensure!(times[4] < Duration::from_millis(500), "{times:?}");
        pods.iter().try_for_each(|pod| detach(node, pod))
    });
}
