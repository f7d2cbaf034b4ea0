//! The surroundings of a node change while its gateway works: next hop, MAC address, MTU, and the
//! NIC itself. The gateway follows, and connections of pods go on.

use std::{
    net::SocketAddr,
    process::Command,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, ensure};
use contract::node_annotation::GATEWAY_CONFIG;
use integration::{
    Datapath, Lab, Node, command, eventually, executable,
    traffic::{End, Lasting},
    world::{Machine, ROUTER, ROUTER_V6},
};

use crate::support::late_nic::{has_bridge, reaches_beyond, replug, start_with_nic};
use crate::support::managed;
use crate::support::site::{ANYWHERE, Gateway, Says, Site, blueprint};

/// Without an event the server looks at its gateway after five minutes.
const SOON: Duration = Duration::from_secs(10);
const CLIENT: End<'_> = End::World(Machine::Client);
/// The first node's second router.
const OTHER: [&str; 2] = ["172.30.0.253", "fd00:172:30::fd"];

/// Commands in the lab's own namespaces.
fn shell(script: &str) -> Result<String> {
    command::output(Command::new("sh").args(["-euc", script]))
}

/// The node's annotation, the router's rows and the bridge's flows have all of these texts.
fn follows(site: &Site<'_>, texts: &[&str]) -> Result<()> {
    let node = &site.lab.nodes[0];
    eventually(&format!("the gateway has {texts:?}"), SOON, || {
        let annotation = site.api.annotation(&node.name, GATEWAY_CONFIG).unwrap_or_default();
        let router = format!("GR_{}", node.name);
        let rows = site.lab.central.nbctl(["lr-route-list", &router, "--", "show", &router])?;
        for text in texts {
            ensure!(annotation.contains(text), "no {text} in {annotation}\n{}", node.server_log()?);
            ensure!(rows.contains(text), "no {text} in {rows}");
        }
        Ok(())
    })
}

/// New connections work, in each direction and family.
fn works(site: &Site<'_>) -> Result<()> {
    let (world, node) = (site.lab.world(), &site.lab.nodes[0]);
    for address in world.addresses(Machine::Web) {
        site.lab.ping(&site.here, address)?;
        site.lab.tcp_between(&End::Pod(&site.here), &End::World(Machine::Web), address, 1 << 20)?;
    }
    let to = world
        .of_node(node)
        .into_iter()
        .map(|ip| SocketAddr::new(ip, ANYWHERE.node_port(Says::Backend)));
    let expected: Vec<_> = to.zip(Site::of_pod(&site.there)).collect();
    site.answers("a node port answers the world", &CLIENT, &expected)?;
    for address in world.of_node(node) {
        site.lab.ping_from_world(Machine::Client, address)?;
    }
    Ok(())
}

/// A second link between the router and the wire, with addresses of its own.
fn second_router(lab: &Lab) -> Result<()> {
    let [v4, v6] = OTHER;
    shell(
        "ip link add router2 type veth peer name wire2 netns router
         ip link set router2 master fabric up
         ethtool -K router2 tx off",
    )?;
    // Each link answers for its own address alone.
    let script = format!(
        "echo 1 > /proc/sys/net/ipv4/conf/all/arp_ignore
         ip addr add {v4}/24 dev wire2
         ip addr add {v6}/64 dev wire2 nodad
         ip link set wire2 up"
    );
    lab.world().shell(Machine::Router, &script).map(drop)
}

#[test]
fn pods_connections_go_on_over_a_new_next_hop_of_each_family() {
    blueprint().test(|lab| {
        let site = Site::start(lab, Gateway::Shared)?;
        second_router(lab)?;
        let lasting = [site.pod_to_world()?, site.world_to_node()?];
        let [v4, v6] = OTHER;
        lab.nodes[0].shell(&format!(
            "ip route replace default via {v4} dev breth0; ip -6 route replace default via {v6} dev breth0"
        ))?;
        follows(&site, &OTHER)?;
        // The way before is no way any more.
        lab.world().shell(Machine::Router, "ip link set wire down")?;
        works(&site)?;
        lasting.into_iter().try_for_each(Lasting::end)
    });
}

#[test]
fn connections_go_on_when_the_bridge_has_another_mac_address() {
    blueprint().test(|lab| {
        let site = Site::start(lab, Gateway::Shared)?;
        let lasting = [site.pod_to_world()?, site.world_to_node()?];
        let mac = "0a:00:00:01:00:77";
        lab.nodes[0].vsctl(["set", "Bridge", "breth0", &format!("other_config:hwaddr={mac}")])?;
        // In user space Open vSwitch takes the bridge's link down for that.
        eventually("the link has it", SOON, || {
            let link = lab.nodes[0].run(["ip", "link", "show", "breth0"])?;
            ensure!(link.contains(mac), "{link}");
            Ok(())
        })?;
        if Datapath::of_lab() == Datapath::Netdev {
            lab.nodes[0].restore_uplink()?;
            // A host asks for its routers now and then, and tells its own address with it.
            for router in [ROUTER, ROUTER_V6] {
                lab.ping_from_node(&lab.nodes[0], router.parse()?)?;
            }
        }
        follows(&site, &[mac])?;
        works(&site)?;
        lasting.into_iter().try_for_each(Lasting::end)
    });
}

/// Whether the controller is told of an address.
fn is_told(site: &Site<'_>, address: &str) -> bool {
    let annotation = site.api.annotation(&site.lab.nodes[0].name, GATEWAY_CONFIG);
    annotation.is_some_and(|annotation| annotation.contains(address))
}

#[test]
fn a_family_that_the_bridge_lacks_for_a_moment_is_still_the_gateways_and_is_not_after_that() {
    blueprint().test(|lab| {
        let (site, node) = (Site::start(lab, Gateway::Shared)?, &lab.nodes[0]);
        let lasting = [site.pod_to_world()?, site.world_to_node()?];
        let address = "fd00:172:30::11";
        let flows = || -> Result<String> {
            let flows =
                node.run(["ovs-ofctl", "-O", "OpenFlow14", "dump-flows", "breth0", "--no-stats"])?;
            Ok(flows.lines().filter(|flow| flow.contains("ipv6")).collect::<Vec<_>>().join("\n"))
        };
        let before = flows()?;
        ensure!(!before.is_empty() && is_told(&site, address));
        let lose = || node.run(["ip", "-6", "addr", "flush", "dev", "breth0", "scope", "global"]);
        lose()?;
        let begin = Instant::now();
        while begin.elapsed() < Duration::from_secs(1) {
            ensure!(
                is_told(&site, address),
                "the controller is told of a moment's loss\n{}",
                node.server_log()?
            );
            let now = flows()?;
            ensure!(now == before, "flows during a moment's loss:\n{now}\nbefore:\n{before}");
        }
        node.restore_uplink()?;
        works(&site)?;
        lasting.into_iter().try_for_each(Lasting::end)?;
        lose()?;
        eventually("the controller is told of a lasting loss", SOON, || {
            ensure!(!is_told(&site, address), "{}", node.server_log()?);
            Ok(())
        })?;
        node.restore_uplink()?;
        follows(&site, &[address])?;
        works(&site)
    });
}

#[test]
fn connections_go_on_when_the_nic_of_the_bridge_has_another_name() {
    blueprint().test(|lab| {
        let (site, node) = (Site::start(lab, Gateway::Shared)?, &lab.nodes[0]);
        let lasting = [site.pod_to_world()?, site.world_to_node()?];
        node.shell("ip link set eth0 down; ip link set eth0 name ens3")?;
        eventually("the bridge has the NIC under its new name", SOON, || {
            let ports = node.vsctl(["list-ports", "breth0"])?;
            let has = |name: &str| ports.lines().any(|port| port == name);
            ensure!(has("ens3") && !has("eth0"), "{ports}\n{}", node.server_log()?);
            Ok(())
        })?;
        // Not before: in user space the host itself would answer what it receives under a name that
        // is new.
        node.shell("ip link set ens3 up")?;
        works(&site)?;
        lasting.into_iter().try_for_each(Lasting::end)
    });
}

/// Unplugs the node's NIC, and plugs in another one of the same name.
fn replace_nic(node: &Node) -> Result<()> {
    let (index, pid) = (node.index, node.pid());
    shell(&format!("ip link del fabric{index}"))?;
    eventually("the server says what is missing", SOON, || {
        let log = node.server_log()?;
        ensure!(log.contains("eth0, the NIC of bridge breth0, does not exist"), "{log}");
        Ok(())
    })?;
    shell(&format!(
        "ip link add fabric{index} type veth peer name eth0 netns {pid}
         ip link set fabric{index} master fabric up"
    ))?;
    if !Datapath::of_lab().leaves_checksums() {
        shell(&format!("ethtool -K fabric{index} tx off"))?;
        node.shell("ethtool -K eth0 tx off")?;
    }
    // In user space Open vSwitch would go on with the device that is gone. And before the server
    // has seen the new one, the host itself would answer what it receives.
    if Datapath::of_lab() == Datapath::Netdev {
        eventually("the bridge has the new device", SOON, || {
            let log = node.server_log()?;
            ensure!(log.contains("the NIC of the gateway's bridge is another one"), "{log}");
            Ok(())
        })?;
    }
    node.shell("ip link set eth0 up").map(drop)
}

#[test]
fn connections_go_on_when_the_nic_of_the_bridge_is_another_one_of_its_name() {
    blueprint().test(|lab| {
        let (site, node) = (Site::start(lab, Gateway::Shared)?, &lab.nodes[0]);
        let lasting = [site.pod_to_world()?, site.world_to_node()?];
        replace_nic(node)?;
        works(&site)?;
        lasting.into_iter().try_for_each(Lasting::end)
    });
}

/// A property of the bridge's own link.
fn is_on_bridge(node: &Node, what: &str) -> Result<()> {
    eventually(&format!("the bridge has {what}"), SOON, || {
        let link = node.run(["ip", "link", "show", "brlate0"])?;
        ensure!(link.contains(what), "{link}\n{}", node.server_log()?);
        Ok(())
    })
}

#[test]
fn a_bridge_made_for_a_nic_has_its_mtu_and_its_mac_address_whatever_they_become() {
    Lab::of_nodes(1).test(|lab| {
        let node = &lab.nodes[0];
        start_with_nic(node)?;
        for mtu in [1400, 9000] {
            node.shell(&format!(
                "ip -n beyond link set far mtu {mtu}; ip link set late0 mtu {mtu}"
            ))?;
            is_on_bridge(node, &format!("mtu {mtu}"))?;
            // The largest packet passes.
            let size = (mtu - 28).to_string();
            node.run(["ping", "-n", "-M", "do", "-c", "1", "-W", "1", "-s", &size, "172.31.0.1"])
                .with_context(|| format!("{mtu} bytes"))?;
        }
        // In user space the bridge keeps its address, with which the NIC goes on.
        let mac = "0a:00:00:01:00:88";
        let before = node.shell("cat /sys/class/net/brlate0/address")?;
        node.shell(&format!("ip link set late0 address {mac}; ip link set late0 mtu 1450"))?;
        is_on_bridge(node, "mtu 1450")?;
        is_on_bridge(
            node,
            if Datapath::of_lab() == Datapath::System { mac } else { before.trim() },
        )?;
        has_bridge(node)
    });
}

#[test]
fn a_nic_with_a_bridge_of_its_own_may_get_another_name_and_be_plugged_in_anew() {
    Lab::of_nodes(1).test(|lab| {
        let node = &lab.nodes[0];
        start_with_nic(node)?;
        let has_port = |name: &str| {
            eventually(&format!("{name} is the bridge's port"), SOON, || {
                let ports = node.vsctl(["list-ports", "brlate0"])?;
                ensure!(ports.lines().any(|port| port == name), "{ports}\n{}", node.server_log()?);
                Ok(())
            })
        };
        for (before, now) in [("late0", "ens9"), ("ens9", "late0")] {
            node.shell(&format!(
                "ip link set {before} down; ip link set {before} name {now}; ip link set {now} up"
            ))?;
            has_port(now)?;
            has_bridge(node)?;
            // Under another name than the configured one, too.
            node.server.stop()?;
            node.start_server()?;
            has_bridge(node)?;
        }
        node.shell("ip link del late0")?;
        eventually("the server says what is missing", SOON, || {
            let log = node.server_log()?;
            ensure!(log.contains("late0, the NIC of bridge brlate0, does not exist"), "{log}");
            Ok(())
        })?;
        replug(node)?;
        has_bridge(node)?;
        let nic = node.shell("cat /sys/class/net/late0/address")?;
        if Datapath::of_lab() == Datapath::System { is_on_bridge(node, nic.trim()) } else { Ok(()) }
    });
}

/// The server dies while the bridge names a NIC that is none of its ports. In user space Open
/// vSwitch has to see such a bridge between two devices of one name, and a server may die while it
/// waits for that.
fn die_while_the_nic_is_replaced(node: &Node) -> Result<()> {
    if Datapath::of_lab() == Datapath::Netdev {
        node.vswitchd.pause()?;
        node.shell("ip link del late0")?;
        replug(node)?;
        lacks_nic(node)?;
        node.server.kill()?;
        node.vswitchd.resume()
    } else {
        // Open vSwitch follows by itself there, so the server never does this.
        node.server.kill()?;
        node.vsctl(["del-port", "brlate0", "late0"])?;
        lacks_nic(node)
    }
}

fn lacks_nic(node: &Node) -> Result<()> {
    eventually("the bridge lacks its NIC", SOON, || {
        let ports = node.vsctl(["list-ports", "brlate0"])?;
        ensure!(!ports.lines().any(|port| port == "late0"), "{ports}\n{}", node.server_log()?);
        Ok(())
    })
}

#[test]
fn a_nic_that_was_being_replaced_when_the_server_died_is_put_back_by_a_start_and_by_a_cleanup() {
    Lab::of_nodes(1).test(|lab| {
        let node = &lab.nodes[0];
        start_with_nic(node)?;
        die_while_the_nic_is_replaced(node)?;
        node.start_server()?;
        has_bridge(node)?;

        die_while_the_nic_is_replaced(node)?;
        let ovnkube = executable::under_test(executable::SERVER)?;
        let clean =
            || node.run([ovnkube.as_os_str(), "--cleanup-node".as_ref(), node.name.as_ref()]);
        let said = clean()?;
        ensure!(said.contains("put late0 back into bridge brlate0"), "{said}");
        reaches_beyond(node).context("after --cleanup-node")?;
        ensure!(!clean()?.contains("put late0 back"), "it is put back twice");
        node.run([ovnkube.as_os_str(), "bridges-to-nic".as_ref(), "brlate0".as_ref()])?;
        reaches_beyond(node).context("after bridges-to-nic")
    });
}

/// The MTU of a node's wire and of its bridge.
fn set_mtu(node: &Node, mtu: u32) -> Result<()> {
    node.shell(&format!("ip link set eth0 mtu {mtu}"))?;
    node.vsctl(["set", "Interface", "breth0", &format!("mtu_request={mtu}")]).map(drop)
}

#[test]
fn a_link_that_is_too_small_for_pods_packets_is_named_for_as_long_as_it_is() {
    blueprint().test(|lab| {
        let (site, node) = (Site::start(lab, Gateway::Shared)?, &lab.nodes[0]);
        let to = Site::of_pod(&site.there)[0];
        // IPv4 and ICMP have 28 bytes of headers, a tunnel has 58.
        let (largest, needed) = (node.mtu - 28, node.mtu + 58);
        lab.ping(&site.here, to)?;
        let passes = || lab.ping_size(&site.here, to, largest);
        eventually("pods' largest packets pass", SOON, passes)?;
        let says = |text: &str, from: usize| {
            eventually(&format!("the log says: {text}"), SOON, || {
                let log = node.server_log()?;
                ensure!(log[from..].contains(text), "{log}");
                Ok(())
            })
        };
        let began = node.server_log()?.len();
        ensure!(!node.server_log()?.contains("too small"), "{}", node.server_log()?);
        set_mtu(node, needed - 1)?;
        says(
            &format!(
                "MTU {} of breth0 is too small for pods' packets of {} bytes",
                needed - 1,
                node.mtu
            ),
            began,
        )?;
        ensure!(passes().is_err(), "a packet of {} bytes passes", node.mtu);
        lab.ping(&site.here, to).context("a small packet")?;

        let began = node.server_log()?.len();
        set_mtu(node, needed)?;
        says("the node's gateway: a remark is over", began)?;
        // With OVN since 23.09.2 and a kernel's datapath the pod was told, and would keep to it for
        // ten minutes.
        node.run_in_pod(&site.here, ["ip", "route", "flush", "cache"])?;
        eventually("pods' largest packets pass again", SOON, passes)?;
        ensure!(!node.server_log()?[began..].contains("too small"), "{}", node.server_log()?);
        Ok(())
    });
}

/// A lease that is renewed late, a tunnel, a router advertisement: the gateway moved to the other
/// NIC, and back.
#[test]
fn a_default_route_over_another_nic_moved_the_gateway_and_ended_the_pods_connections() {
    blueprint().test(|lab| {
        let (site, node) = (Site::start(lab, Gateway::Shared)?, &lab.nodes[0]);
        works(&site)?;
        let connections = site.pod_to_world()?;
        node.shell(
            "ip link add e1 type veth peer name e2; ip addr add 10.9.9.1/24 dev e1
             ip link set e1 up; ip link set e2 up
             ip route add default via 10.9.9.254 dev e1 metric 200",
        )?;
        let remark = "the default route is over e1, the gateway stays with breth0";
        for round in 1..=2 {
            let began = node.server_log()?.len();
            node.shell("ip route del default dev breth0")?;
            eventually("the server sees the other route", SOON, || {
                let log = node.server_log()?;
                ensure!(log[began..].contains(remark), "{log}");
                Ok(())
            })?;
            let bridges = node.vsctl(["list-br"])?;
            ensure!(!bridges.contains("bre1"), "{bridges}");
            // New connections of pods, which need the router behind the bridge, and a Service that
            // changes.
            for address in lab.world().addresses(Machine::Web) {
                lab.ping(&site.here, address)?;
            }
            if round == 2 {
                // A server that starts meanwhile knows the bridge by its mark.
                node.server.stop()?;
                let began = node.server_log()?.len();
                node.start_server()?;
                managed::ready(node)?;
                for address in lab.world().addresses(Machine::Web) {
                    lab.ping(&site.here, address)?;
                }
                // What it has not remarked cannot be over.
                eventually("the new server sees the other route", SOON, || {
                    let log = node.server_log()?;
                    ensure!(log[began..].contains(remark), "{log}");
                    Ok(())
                })?;
            }
            let began = node.server_log()?.len();
            node.shell(&format!("ip route add default via {ROUTER} dev breth0"))?;
            // Events that come together are one look: a route that is gone again at once would be
            // none.
            eventually("the server sees the route again", SOON, || {
                let log = node.server_log()?;
                ensure!(log[began..].contains("a remark is over"), "{log}");
                Ok(())
            })?;
        }
        ensure!(!node.vsctl(["list-br"])?.contains("bre1"), "{}", node.server_log()?);
        connections.end()?;
        works(&site)
    });
}
