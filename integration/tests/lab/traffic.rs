//! Packets between pods that the plugin has attached.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use integration::{Families, Lab, Pod};
use serde_json::json;

use crate::support::attached::{attach, detach, with_pods};
use crate::support::view::link_in_pod;

const MIB: u64 = 1 << 20;

/// Ping, TCP and UDP, in every family and both directions.
fn talk(lab: &Lab, here: &Pod, there: &Pod, bytes: u64) -> Result<()> {
    for (from, to) in [(here, there), (there, here)] {
        for address in &to.addresses {
            lab.ping(from, address.addr())?;
            lab.tcp_to(from, to, address.addr(), bytes)?;
        }
        let echoes = lab.udp(from, to, 100, 1200)?;
        ensure!(echoes.received == echoes.sent, "{} to {}: {echoes:?}", from.name, to.name);
    }
    Ok(())
}

#[test]
fn pods_of_one_node_exchange_packets_in_both_families() {
    Lab::of_nodes(1).families(Families::Dual).test(|lab| {
        lab.nodes[0].start_server()?;
        with_pods(lab, &lab.nodes[0], |[one, other]| talk(lab, &one.pod, &other.pod, 2 * MIB))
    });
}

#[test]
fn pods_of_two_nodes_exchange_packets_in_both_families() {
    Lab::of_nodes(2).families(Families::Dual).test(|lab| {
        let [here, there] = &lab.nodes[..] else { panic!("two nodes") };
        here.start_server()?;
        there.start_server()?;
        with_pods(lab, here, |[one]| {
            with_pods(lab, there, |[other]| talk(lab, &one.pod, &other.pod, 4 * MIB))
        })
    });
}

#[test]
fn fifty_megabytes_arrive_as_they_were_sent() {
    Lab::of_nodes(1).test(|lab| {
        lab.nodes[0].start_server()?;
        with_pods(lab, &lab.nodes[0], |[one, other]| lab.tcp(&one.pod, &other.pod, 50 * MIB))
    });
}

/// Duplicate address detection would take a second or two, during which no packet leaves the pod.
#[test]
fn pods_with_ipv6_alone_are_reachable_as_soon_as_they_are_attached() {
    Lab::of_nodes(1).families(Families::V6).test(|lab| {
        let node = &lab.nodes[0];
        node.start_server()?;
        let pods = lab.new_pods(node, 8)?;
        let before = node.census()?;
        let (mut answers, mut later) = (Vec::new(), Vec::new());
        for pod in &pods {
            let result = attach(node, pod.clone())?.result;
            let ask = || {
                let asked = Instant::now();
                let answer = node.run_in_pod(
                    pod,
                    ["ping", "-n", "-c", "1", "-W", "1", &pod.gateways[0].to_string()],
                );
                answer.is_ok().then(|| asked.elapsed())
            };
            answers.extend(ask());
            later.extend(ask());
            ensure!(result["ips"][0]["address"] == pod.addresses[0].to_string(), "{result:#}");
            let link = link_in_pod(node, pod, "eth0")?;
            ensure!(
                !link.to_string().contains("\"tentative\":true"),
                "an address is still being tried out: {link:#}"
            );
        }
        // OVN may drop a packet while it still installs flows, most likely that of the first pod.
        ensure!(
            answers.len() > pods.len() / 2,
            "of the first packets of {} pods, {} were answered",
            pods.len(),
            answers.len()
        );
        // The time includes the start of two programs, on a machine that has other work or is
        // emulated.
        let limit = later.iter().min().map(|later| *later * 3 + Duration::from_millis(100));
        ensure!(
            answers.iter().min() < limit.as_ref(),
            "first packets were answered after {answers:?}, those that followed after {later:?}"
        );
        lab.ping(&pods[0], pods[1].address())?;
        pods.iter().try_for_each(|pod| detach(node, pod))?;
        before.must_equal(&node.census()?)
    });
}

#[test]
fn a_packet_of_the_mtu_goes_through_and_one_byte_more_does_not() {
    Lab::of_nodes(1).families(Families::Dual).test(|lab| {
        let node = &lab.nodes[0];
        // The server's MTU replaces the default of 1400, and the configuration's replaces both.
        for (server, configuration, expected) in
            [(None, None, 1400), (Some(1300), None, 1300), (Some(1300), Some(1280), 1280)]
        {
            let mtu = server.map(|mtu: u32| format!("--mtu={mtu}"));
            node.server.set_arguments(
                ["--init-node", &node.name, "--pod-manifests", "/run/pod-manifests"]
                    .map(str::to_owned)
                    .into_iter()
                    .chain(mtu),
            );
            node.start_server()?;
            let mut runtime = node.runtime();
            if let Some(mtu) = configuration {
                runtime = runtime.with("mtu", json!(mtu));
            }
            let pods = lab.new_pods(node, 2)?;
            for pod in &pods {
                runtime.add(pod)?.success()?;
                let link = link_in_pod(node, pod, "eth0")?;
                ensure!(link["mtu"] == expected, "expected {expected}: {link:#}");
            }
            for (address, headers) in pods[1].addresses.iter().zip([28, 48]) {
                let address = address.addr();
                lab.ping(&pods[0], address)?;
                lab.ping_size(&pods[0], address, expected - headers)?;
                let (size, address) = ((expected - headers + 1).to_string(), address.to_string());
                let larger = node.run_in_pod(
                    &pods[0],
                    ["ping", "-M", "do", "-c", "1", "-W", "0.2", "-s", &size, &address],
                );
                let refused = larger.err().with_context(|| {
                    format!("a packet of {} bytes went to {address}", expected + 1)
                })?;
                let refused = refused.to_string();
                ensure!(
                    refused.contains("message too long") && refused.contains(&expected.to_string()),
                    "{refused}"
                );
            }
            pods.iter().try_for_each(|pod| detach(node, pod))?;
            node.server.stop()?;
        }
        Ok(())
    });
}

#[test]
fn routes_may_have_a_smaller_mtu_than_the_link() {
    Lab::of_nodes(1).families(Families::Dual).test(|lab| {
        let node = &lab.nodes[0];
        let arguments = [
            "--init-node",
            &node.name,
            "--pod-manifests",
            "/run/pod-manifests",
            "--mtu=1400",
            "--routable-mtu=1300",
        ];
        node.server.set_arguments(arguments);
        node.start_server()?;
        with_pods(lab, node, |[one]| {
            let link = link_in_pod(node, &one.pod, "eth0")?;
            ensure!(link["mtu"] == 1400, "{link:#}");
            for family in ["-4", "-6"] {
                let route =
                    node.run_in_pod(&one.pod, ["ip", family, "route", "show", "default"])?;
                ensure!(route.contains("mtu 1300"), "{route}");
            }
            Ok(())
        })
    });
}
