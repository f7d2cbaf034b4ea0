//! What a node does for its pods and for itself beside OVN: pods reach hosts, and hosts reach
//! Services.

use std::{
    net::SocketAddr,
    time::{Duration, Instant},
};

use anyhow::{Result, bail, ensure};
use integration::{Families, Lab, Node, command, eventually, traffic::End};

use crate::support::attached::attach;
use crate::support::hosts::{VIPS, balance, give_second_family, lab_addresses, node_addresses};
use crate::support::managed;

const KIB_64: u64 = 1 << 16;

/// The API server is a host: the pod's own node, another one, or a machine that is no node at all.
#[test]
fn pods_reach_their_own_node_other_nodes_and_machines_beside_them_in_both_families() {
    Lab::of_nodes(2).families(Families::Dual).test(|lab| {
        let [here, there] = &lab.nodes[..] else { panic!("two nodes") };
        give_second_family(lab)?;
        lab.route_to_hosts()?;
        managed::start(here)?;
        managed::start(there)?;
        let pod = attach(here, lab.new_pod(here)?)?.pod;
        let from = End::Pod(&pod);
        let ends = [
            (End::Node(here), node_addresses(here)),
            (End::Node(there), node_addresses(there)),
            (End::Lab, lab_addresses()),
        ];
        for (to, addresses) in &ends {
            for address in addresses {
                lab.ping(&pod, *address)?;
                lab.tcp_between(&from, to, *address, KIB_64)?;
                let echoes = lab.udp_between(&from, to, *address, 20)?;
                ensure!(echoes.received == echoes.sent, "{address}: {echoes:?}");
            }
        }
        // Pods of other nodes are reached through the overlay, under their own addresses.
        let other = attach(there, lab.new_pod(there)?)?.pod;
        for address in &other.addresses {
            lab.tcp_to(&pod, &other, address.addr(), KIB_64)?;
        }
        Ok(())
    });
}

/// What OVN has no place for goes to the host, and would go back and forth between both.
#[test]
fn a_packet_for_an_address_that_nothing_has_is_refused_and_does_not_circle() {
    Lab::of_nodes(1).test(|lab| {
        let node = &lab.nodes[0];
        lab.route_to_hosts()?;
        managed::start(node)?;
        let pod = attach(node, lab.new_pod(node)?)?.pod;
        lab.ping_from_node(node, pod.address())?;
        eventually("the address is unreachable", managed::SOON, || {
            let said = node
                .run_in_pod(&pod, ["ping", "-n", "-c", "1", "-W", "1", "10.244.77.5"])
                .unwrap_err()
                .to_string();
            ensure!(said.contains("Destination Host Unreachable"), "{said}");
            Ok(())
        })
    });
}

#[test]
fn a_node_reaches_services_and_is_refused_at_once_where_none_serves() {
    Lab::of_nodes(2).families(Families::Dual).test(|lab| {
        let [here, there] = &lab.nodes[..] else { panic!("two nodes") };
        managed::serve(here, "10.96.0.0/16,fd00:10:96::/112")?;
        managed::start(there)?;
        let pods = [attach(here, lab.new_pod(here)?)?.pod, attach(there, lab.new_pod(there)?)?.pod];
        for pod in &pods {
            for (vip, address) in VIPS.iter().zip(&pod.addresses) {
                let by = |endpoint: SocketAddr| balance(lab, "tcp", vip, 80, &[endpoint]);
                lab.tcp_by(&End::Node(here), &End::Pod(pod), address.addr(), KIB_64, by)?;
            }
        }
        for vip in VIPS {
            let at = balance(lab, "tcp", vip, 80, &[])?;
            let begun = Instant::now();
            let refused =
                command::output(lab.at(&End::Node(here))?.args(["tcp-send", &at.to_string(), "1"]));
            let Err(error) = refused else { bail!("{at} answered") };
            let error = format!("{error:#}");
            ensure!(
                error.contains("refused") && begun.elapsed() < Duration::from_secs(1),
                "{:?}: {error}",
                begun.elapsed()
            );
        }
        Ok(())
    });
}

/// A gateway of upstream's has such a route, over its bridge, and serves the node with it.
#[test]
fn a_route_of_another_program_to_the_services_stays_until_that_program_removes_it() {
    Lab::of_nodes(1).test(|lab| {
        let node = &lab.nodes[0];
        node.shell("ip route add 10.96.0.0/16 via 172.30.0.1 dev breth0 mtu 1400")?;
        let route = || node.shell("ip route show 10.96.0.0/16");
        let before = route()?;
        managed::serve(node, "10.96.0.0/16")?;
        eventually("the server tells that it leaves the route alone", managed::SOON, || {
            let log = node.server_log()?;
            ensure!(log.contains("another program has a route to it, over breth0"), "{log}");
            Ok(())
        })?;
        ensure!(route()? == before, "{before} became {}", route()?);
        let is_served = || {
            ensure!(route()?.contains("via 10.244.1.1 dev ovn-k8s-mp0"), "{}", route()?);
            Ok(())
        };
        node.shell("ip route del 10.96.0.0/16")?;
        eventually("the server makes its own route", managed::SOON, is_served)?;
        // The kernel drops the routes of a link that goes down, and tells of the link alone.
        for command in [
            "ip link add uplink0 type veth peer name uplink1; ip link set uplink1 up; ip addr add 172.31.0.2/24 dev uplink0; ip link set uplink0 up",
            "ip route replace 10.96.0.0/16 via 172.31.0.1 dev uplink0",
        ] {
            node.shell(command)?;
        }
        eventually("the server gives way", managed::SOON, || {
            let log = node.server_log()?;
            ensure!(log.contains("another program has a route to it, over uplink0"), "{log}");
            Ok(())
        })?;
        node.shell("ip link set uplink0 down")?;
        eventually("the server makes its route again", managed::SOON, is_served)
    });
}

#[test]
fn what_forwards_for_pods_is_put_back() {
    Lab::of_nodes(1).families(Families::Dual).test(|lab| {
        let node = &lab.nodes[0];
        give_second_family(lab)?;
        lab.route_to_hosts()?;
        managed::start(node)?;
        let pod = attach(node, lab.new_pod(node)?)?.pod;
        let outside = || -> Result<()> {
            lab_addresses().iter().try_for_each(|address| {
                node.run_in_pod(&pod, ["ping", "-n", "-c", "1", "-W", "0.5", &address.to_string()]).map(drop)
            })
        };
        eventually("the pod reaches the machine", managed::SOON, outside)?;
        let state = |node: &Node| node.shell("cat /proc/sys/net/ipv4/conf/breth0/forwarding; cat /proc/sys/net/ipv6/conf/all/forwarding /proc/sys/net/ipv6/conf/breth0/force_forwarding 2>/dev/null || true");
        let before = state(node)?;
        for damage in [
            "echo 0 > /proc/sys/net/ipv4/conf/breth0/forwarding",
            "ip -6 addr add 2001:db8:77::1/64 nodad dev breth0; for file in all/forwarding breth0/force_forwarding ovn-k8s-mp0/force_forwarding; do test ! -e /proc/sys/net/ipv6/conf/$file || echo 0 > /proc/sys/net/ipv6/conf/$file; done; ip -6 addr del 2001:db8:77::1/64 dev breth0",
        ] {
            node.shell(damage)?;
            eventually(damage, managed::SOON, || {
                ensure!(state(node)? == before, "{}\n{}", state(node)?, node.server_log()?);
                outside()
            })?;
        }
        Ok(())
    });
}
