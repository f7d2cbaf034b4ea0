//! The cluster and the world outside of it, by packets, in every direction.

use std::{collections::BTreeSet, net::SocketAddr, time::Duration};

use anyhow::{Context as _, Result, ensure};
use integration::{
    Datapath, Lab, Node, eventually, executable, lab::Blueprint, peer::Reply, traffic::End,
    world::Machine,
};

use crate::support::directions::{
    CLIENT, both_ways, each, every_direction, full_packets_pass, hosts_reach_services,
    in_fragments, nothing_else_answers, pods_learn_of_narrow_paths, pods_reach_nodes,
    pods_reach_the_world, the_world_keeps_its_address, the_world_reaches_services,
};
use crate::support::site;
use crate::support::site::{ANYWHERE, Gateway, KEPT, Says, Site, blueprint};
use serde_json::json;

/// An administrator's connection to a node outlives all that happens to the node's programs.
fn a_connection_lives_through_everything(lab: &Lab, gateway: Gateway) -> Result<()> {
    let node = &lab.nodes[0];
    let world = lab.world();
    let connections = site::world_to_node(lab)?;
    let site = Site::start(lab, gateway)?;
    for _ in 0..2 {
        node.server.kill()?;
        node.start_server()?;
    }
    node.vswitchd.kill()?;
    node.start_vswitchd()?;
    the_world_reaches_services(&site).context("after the restart of the switch")?;
    node.ovn_controller.kill()?;
    node.start_ovn_controller()?;
    node.server.stop()?;
    let ovnkube = executable::under_test(executable::SERVER)?;
    node.run([ovnkube.as_os_str(), "--cleanup-node".as_ref(), node.name.as_ref()])?;
    // The path is there again, or still, before its connections are looked at.
    lab.ping_from_node(node, world.addresses(Machine::Client)[0])?;
    connections.end()
}

/// The node's server starts with another mode each time, without a cleanup in between. What works,
/// works in each, and the last one, no gateway, has nothing of the others.
fn a_connection_lives_through_changes_of_mode(lab: &Lab, modes: [Gateway; 4]) -> Result<()> {
    let node = &lab.nodes[0];
    let site = Site::start(lab, Gateway::Local)?;
    let connections = site::world_to_node(lab)?;
    for gateway in modes {
        site.restart(node, gateway)?;
        eventually(&format!("the mode is {gateway:?}"), site::SOON, || {
            let seen = left_of_gateways(&site, node)?;
            match gateway {
                Gateway::Shared | Gateway::SharedNodePorts | Gateway::SharedEachPod => ensure!(
                    seen.contains("\"mode\":\"shared\"") && seen.contains("route 169.254.169.1 "),
                    "{seen}"
                ),
                Gateway::Local => {
                    ensure!(
                        seen.contains("\"mode\":\"local\"")
                            && !seen.contains("route ")
                            && !seen.contains("neighbour "),
                        "{seen}"
                    )
                }
                Gateway::None => ensure!(seen.trim().is_empty(), "{seen}"),
            }
            Ok(())
        })?;
        both_ways(&site).with_context(|| format!("in mode {gateway:?}"))?;
    }
    connections.end()
}

/// What there is of the node's gateway: the annotation, the rows, the flows, the ports, and the
/// host's side.
fn left_of_gateways(site: &Site<'_>, node: &Node) -> Result<String> {
    let annotation = site.api.annotation(&node.name, contract::node_annotation::GATEWAY_CONFIG);
    let rows = site.lab.central.nbctl(["list", "Logical_Router", &format!("GR_{}", node.name)]);
    let on_node = node.shell(
        "ovs-ofctl -O OpenFlow14 --no-stats dump-flows breth0 cookie=0xdeff105/-1
         ovs-vsctl --if-exists get Open_vSwitch . external_ids:ovn-bridge-mappings
         ovs-vsctl --if-exists get Bridge breth0 external_ids:ovnkube-gateway
         ovs-vsctl list-ports breth0 | grep patch- || true
         (ip route show dev breth0 proto 88; ip -6 route show dev breth0 proto 88) | sed 's/^/route /'
         ip neigh show dev breth0 nud permanent | sed -n 's/^169.254.169\\|^fd69/neighbour &/p'",
    )?;
    Ok([annotation.unwrap_or_default(), rows.unwrap_or_default(), on_node].join("\n"))
}

#[test]
fn without_a_gateway_every_direction_works_over_the_hosts_own_routes() {
    blueprint().test(|lab| every_direction(&Site::start(lab, Gateway::None)?));
}

#[test]
fn without_a_gateway_a_connection_to_a_node_lives_through_everything() {
    blueprint().test(|lab| a_connection_lives_through_everything(lab, Gateway::None));
}

#[test]
fn a_local_gateway_serves_every_direction() {
    blueprint().test(|lab| every_direction(&Site::start(lab, Gateway::Local)?));
}

#[test]
fn a_shared_gateway_leads_pods_to_the_world_and_the_world_to_services() {
    blueprint().test(|lab| {
        let site = Site::start(lab, Gateway::Shared)?;
        both_ways(&site)?;
        hosts_reach_services(&site).context("hosts to Services")?;
        pods_reach_nodes(&site).context("pods to nodes")?;
        pods_learn_of_narrow_paths(&site).context("narrow paths")
    });
}

/// Answers larger than pods' network. The gateway router tells their sender what fits, about a
/// packet to the node's address: before 23.09.2 OVN leaves the pod's address in it, and Open
/// vSwitch in user space does not find the connection of a fragment, before 4.0 in neither family.
#[test]
fn the_world_learns_the_size_of_a_shared_gateways_pods_where_ovn_and_the_switch_can_tell() {
    blueprint().test(|lab| {
        let site = Site::start(lab, Gateway::Shared)?;
        let ovn_tells = lab.central.sbctl(["lflow-list", "GR_node1"])?.contains("icmp_snat");
        for address in lab.world().addresses(Machine::Web) {
            let switch_tells = match Datapath::of_lab() {
                Datapath::System => true,
                Datapath::Netdev => {
                    address.is_ipv4() && lab.nodes[0].switch_version()? >= [4, 0, 0]
                }
            };
            let echoes = in_fragments(&site, &site.here, address)?;
            let is_learnt = echoes.received + 1 >= echoes.sent;
            ensure!(
                is_learnt == (ovn_tells && switch_tells) && (is_learnt || echoes.received == 0),
                "{address}: {echoes:?}, OVN {ovn_tells}, Open vSwitch {switch_tells}"
            );
        }
        Ok(())
    });
}

/// `--disable-snat-multiple-gws`.
#[test]
fn with_a_translation_for_each_pod_the_world_sees_their_nodes_and_no_row_is_for_all() {
    blueprint().test(|lab| {
        let site = Site::start(lab, Gateway::SharedEachPod)?;
        both_ways(&site)?;
        hosts_reach_services(&site).context("hosts to Services")?;
        pods_reach_nodes(&site).context("pods to nodes")?;
        for (node, pod) in lab.nodes.iter().zip([&site.here, &site.there]) {
            let rows = lab.central.nbctl(["lr-nat-list", &format!("GR_{}", node.name)])?;
            let words: BTreeSet<&str> = rows.split_whitespace().collect();
            for address in Site::of_pod(pod) {
                ensure!(
                    words.contains(&*address.to_string()),
                    "no translation of {address}: {rows}"
                );
            }
            ensure!(!words.contains("10.244.0.0/16"), "{rows}");
        }
        Ok(())
    });
}

/// A wire for jumbo frames, and pods that use all of it but the tunnel's part.
fn wide() -> Blueprint {
    blueprint().wire_mtu(9000).mtu(8900)
}

#[test]
fn a_local_gateway_carries_jumbo_frames() {
    wide().test(|lab| full_packets_pass(&Site::start(lab, Gateway::Local)?));
}

#[test]
fn a_shared_gateway_carries_jumbo_frames() {
    wide().test(|lab| full_packets_pass(&Site::start(lab, Gateway::Shared)?));
}

/// The userspace datapath of Open vSwitch before 3.3 drops a packet that is recirculated more than
/// six times, which OVN 23.03 does to a new connection to a node port of a gateway router. Where
/// that is not the reason, all has to work but fragments, on the kernel's datapath too.
#[test]
fn a_shared_gateway_serves_node_ports_where_the_switch_recirculates_often_enough() {
    blueprint().test(|lab| {
        let site = Site::start(lab, Gateway::SharedNodePorts)?;
        pods_reach_the_world(&site).context("pods to the world")?;
        let is_warned = lab.nodes[0]
            .server_log()?
            .contains("--nodeport: the userspace datapath of this Open vSwitch drops");
        if let Err(error) = the_world_reaches_services(&site) {
            let dropped = lab.nodes.iter().map(recirculation_drops).sum::<Result<u64>>()?;
            ensure!(
                dropped > 0,
                "{error:#}; no packet was dropped for being recirculated too often"
            );
            ensure!(is_warned, "the server does not say that node ports are dropped");
            return Ok(());
        }
        ensure!(!is_warned, "the server says that node ports are dropped, and they are not");
        the_world_keeps_its_address(&site).context("the client's address")?;
        hosts_reach_services(&site).context("hosts to Services")?;
        pods_reach_nodes(&site).context("pods to nodes")?;
        pods_learn_of_narrow_paths(&site).context("narrow paths")?;
        nothing_else_answers(&site).context("what else answers")
    });
}

/// The gateway router serves these without `--nodeport`, too, and the same limit of the switch
/// holds.
#[test]
fn a_shared_gateway_without_node_ports_keeps_clients_addresses_where_the_switch_recirculates_often_enough()
 {
    blueprint().test(|lab| {
        let site = Site::start(lab, Gateway::Shared)?;
        if let Err(error) = the_world_keeps_its_address(&site) {
            let dropped = lab.nodes.iter().map(recirculation_drops).sum::<Result<u64>>()?;
            ensure!(
                dropped > 0,
                "{error:#}; no packet was dropped for being recirculated too often"
            );
        }
        // Those of the other policy are the host's all the same.
        the_world_reaches_services(&site).context("world to Services")
    });
}

/// Routers have a variable for the backends then: each takes its own host from the masquerade
/// address.
#[test]
fn node_ports_whose_endpoint_is_a_host_are_answered_at_every_node_where_the_switch_recirculates_often_enough()
 {
    blueprint().test(|lab| {
        let (site, world) = (Site::start(lab, Gateway::SharedNodePorts)?, lab.world());
        let own = &lab.nodes[1];
        let hosts = world.of_node(own);
        let at: Vec<SocketAddr> = hosts.iter().map(|host| SocketAddr::new(*host, 8080)).collect();
        let _answering = lab.answering_at(&End::Node(own), &at)?;
        for (family, host) in ["v4", "v6"].iter().zip(&hosts) {
            site.api.edit("EndpointSlice", &format!("{}-{family}", ANYWHERE.name()), |slice| {
                let endpoint =
                    json!({"addresses": [host], "conditions": {"ready": true}, "nodeName": own.name});
                slice["endpoints"] = json!([endpoint]);
            })?;
        }
        eventually("each chassis has the backends of its router", site::SOON, || {
            let variables =
                lab.central.nbctl(["--bare", "--columns=variables", "list", "Chassis_Template_Var"])?;
            let own = variables.matches("__node__router__template__IPv4=169.254.").count();
            let all = variables.matches("__node__router__template__IPv4=").count();
            // Two ports of two protocols.
            ensure!((own, all) == (4, 8), "{variables}");
            Ok(())
        })?;
        for node in &lab.nodes {
            let to = each(world.of_node(node), ANYWHERE.node_port(Says::Backend), &hosts);
            if let Err(error) = site.answers("the host answers the world", &CLIENT, &to) {
                let dropped = lab.nodes.iter().map(recirculation_drops).sum::<Result<u64>>()?;
                ensure!(dropped > 0, "{error:#}; no packet was dropped for being recirculated too often");
            }
        }
        let to = each(world.of_node(&lab.nodes[0]), ANYWHERE.node_port(Says::Backend), &hosts);
        site.answers("the host answers a pod", &End::Pod(&site.here), &to)
    });
}

/// `loadBalancerSourceRanges`: only the host can look at them, so what has them is the host's in
/// this mode, too.
#[test]
fn a_shared_gateway_with_node_ports_leaves_load_balancers_with_source_ranges_to_the_host() {
    blueprint().test(|lab| {
        let (site, world) = (Site::start(lab, Gateway::SharedNodePorts)?, lab.world());
        let allow = |clients: &[String]| {
            site.api.edit("Service", ANYWHERE.name(), |service| {
                service["spec"]["loadBalancerSourceRanges"] = json!(clients);
            })
        };
        let client = world.addresses(Machine::Client);
        let own: Vec<String> = client
            .iter()
            .map(|ip| format!("{ip}/{}", if ip.is_ipv4() { 32 } else { 128 }))
            .collect();
        let to = each(ANYWHERE.ingress(), ANYWHERE.port(Says::Backend), &Site::of_pod(&site.there));
        for node in &lab.nodes {
            ANYWHERE.ingress().iter().try_for_each(|address| world.announce(*address, node))?;
            allow(&own)?;
            site.answers("the load balancer answers a client in the ranges", &CLIENT, &to)?;
            // Of no machine: the world's server and name server are in neither.
            allow(&["192.0.2.0/24".to_owned(), "2001:db8:2::/64".to_owned()])?;
            eventually("the load balancer answers no other client", site::SOON, || {
                site.nothing_answers(&CLIENT, &to.iter().map(|(to, _)| *to).collect::<Vec<_>>())
            })?;
        }
        Ok(())
    });
}

/// The usual pair of an ingress controller in a cloud. The host, which looks at the ranges, cannot
/// keep the client's address in this mode: pods' answers leave through the gateway router.
#[test]
fn a_shared_gateway_served_nobody_where_source_ranges_meet_a_local_policy() {
    blueprint().test(|lab| {
        let (site, world) = (Site::start(lab, Gateway::Shared)?, lab.world());
        let allow = |clients: &[String]| {
            site.api.edit("Service", KEPT.name(), |service| {
                service["spec"]["loadBalancerSourceRanges"] = json!(clients);
            })
        };
        let client = world.addresses(Machine::Client);
        let own: Vec<String> = client
            .iter()
            .map(|ip| format!("{ip}/{}", if ip.is_ipv4() { 32 } else { 128 }))
            .collect();
        let to = each(KEPT.ingress(), KEPT.port(Says::Client), &client);
        KEPT.ingress().iter().try_for_each(|address| world.announce(*address, &lab.nodes[1]))?;
        for _ in 0..2 {
            allow(&own)?;
            if let Err(error) =
                site.answers("a client in the ranges keeps its address", &CLIENT, &to)
            {
                let dropped = lab.nodes.iter().map(recirculation_drops).sum::<Result<u64>>()?;
                ensure!(
                    dropped > 0,
                    "{error:#}; no packet was dropped for being recirculated too often"
                );
                return Ok(());
            }
            allow(&["192.0.2.0/24".to_owned(), "2001:db8:2::/64".to_owned()])?;
            eventually("no other client is served", site::SOON, || {
                site.nothing_answers(&CLIENT, &to.iter().map(|(to, _)| *to).collect::<Vec<_>>())
            })?;
        }
        Ok(())
    });
}

/// What a node of upstream has on its host: an address of its own for OVN, and routes to Services
/// over the bridge.
const HOST_OVER_BRIDGE: &str = "
    ip addr add 169.254.169.2/29 dev breth0
    ip addr add fd69::2/125 dev breth0 nodad
    ip neigh replace 169.254.169.4 lladdr 0a:58:a9:fe:a9:04 dev breth0 nud permanent
    ip neigh replace fd69::4 lladdr 0a:58:a9:fe:a9:04 dev breth0 nud permanent
    ip route replace 10.96.0.0/16 via 169.254.169.4 dev breth0 src 169.254.169.2
    ip -6 route add fd00:10:96::/112 via fd69::4 dev breth0 src fd69::2 metric 1";

/// This program's hosts take the management port, but the flows serve both ways. The limit of the
/// switch is met where the endpoint is on the node itself.
#[test]
fn a_hosts_connections_to_services_pass_over_the_bridge_where_the_switch_recirculates_often_enough()
{
    blueprint().test(|lab| {
        let site = Site::start(lab, Gateway::Shared)?;
        let [elsewhere, here] = &lab.nodes[..] else { panic!("two nodes") };
        let to =
            each(ANYWHERE.cluster_ips(), ANYWHERE.port(Says::Backend), &Site::of_pod(&site.there));
        for node in &lab.nodes {
            site.answers("over the management port", &End::Node(node), &to)?;
            node.shell(HOST_OVER_BRIDGE)?;
        }
        site.answers("over the bridge, to an endpoint elsewhere", &End::Node(elsewhere), &to)?;
        let routes = elsewhere.run(["ip", "route", "get", &to[0].0.ip().to_string()])?;
        ensure!(routes.contains("dev breth0"), "{routes}");
        // After a take-over this was refused: what another program routes was not translated.
        let why = "a route to it, over breth0";
        eventually("the server sees the routes", site::SOON, || {
            let log = elsewhere.server_log()?;
            ensure!(log.matches(why).count() > 0, "{log}");
            Ok(())
        })?;
        elsewhere.shell("sleep 1")?;
        let own = lab.world().of_node(elsewhere);
        let to_own = each(own, ANYWHERE.node_port(Says::Backend), &Site::of_pod(&site.there));
        site.answers("at its own node ports over the bridge", &End::Node(elsewhere), &to_own)?;
        let asked: Vec<SocketAddr> = to.iter().map(|(to, _)| *to).collect();
        let answers =
            eventually("over the bridge, to an endpoint here", Duration::from_secs(8), || {
                let replies = lab.ask(&End::Node(here), &asked, &asked)?.concat();
                let is_backend = |reply: &Reply| {
                    Site::of_pod(&site.there).iter().any(|ip| reply.address() == Some(*ip))
                };
                ensure!(replies.iter().all(is_backend), "{replies:?}");
                Ok(())
            });
        if let Err(error) = answers {
            ensure!(
                recirculation_drops(here)? > 0,
                "{error:#}; no packet was recirculated too often"
            );
        }
        Ok(())
    });
}

/// Packets that the datapath of the node has dropped because they were recirculated too often.
fn recirculation_drops(node: &Node) -> Result<u64> {
    node.coverage("datapath_drop_recirc_error")
}

#[test]
fn a_connection_to_a_node_lives_through_everything_with_a_local_gateway() {
    blueprint().test(|lab| a_connection_lives_through_everything(lab, Gateway::Local));
}

#[test]
fn a_connection_to_a_node_lives_through_everything_with_a_shared_gateway() {
    blueprint().test(|lab| a_connection_lives_through_everything(lab, Gateway::Shared));
}

#[test]
fn a_connection_to_a_node_lives_through_everything_that_changes_the_mode() {
    let modes = [Gateway::Shared, Gateway::Local, Gateway::Shared, Gateway::None];
    blueprint().test(|lab| a_connection_lives_through_changes_of_mode(lab, modes));
}
