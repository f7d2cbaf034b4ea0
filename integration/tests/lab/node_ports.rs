//! Node ports while backends, the node's server and its rules come and go, and that nothing of them
//! stays on a node that is cleaned up.

use std::{
    net::{IpAddr, SocketAddr},
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, ensure};
use integration::{
    Lab, eventually, executable,
    traffic::{Echo, End, Flow},
    world::Machine,
};
use oracle::world::{self as model, Protocol, TrafficPolicy};

use crate::support::lasting::{CLUSTER_IP, NODE_PORT, TARGET, announce, serve};
use crate::support::site::{ANYWHERE, Gateway, KEPT, Says, Site, blueprint};
use crate::support::{api, managed, site};
use serde_json::json;

const CLIENT: End<'_> = End::World(Machine::Client);

/// A UDP Service whose backend is on the first node, and then another one on the second.
struct Moving<'l> {
    site: Site<'l>,
    /// Where the backends listen.
    ports: [u16; 2],
    /// The backends.
    first: Option<Echo>,
    _second: Echo,
}

impl<'l> Moving<'l> {
    /// The first backend answers the clients: one outside at a node port of the second node, and
    /// that node itself.
    fn start(lab: &'l Lab) -> Result<Self> {
        let site = Site::start(lab, Gateway::None)?;
        announce(&site, Protocol::Udp, TrafficPolicy::Cluster);
        let [here, there] =
            [&site.here, &site.there].map(|pod| lab.echo(&End::Pod(pod), Site::of_pod(pod)[0]));
        let (first, second) = (here?, there?);
        let ports = [&first, &second].map(|echo| echo.address.port());
        let moving = Self { site, ports, first: Some(first), _second: second };
        moving.serve(0);
        eventually("the first backend answers", site::SOON, || {
            let flows = moving.flows()?;
            lab.nodes[1].shell("sleep 0.2")?;
            for flow in flows {
                let echoes = flow.stop()?;
                ensure!(echoes.received > 0, "{echoes:?}");
            }
            Ok(())
        })?;
        Ok(moving)
    }

    /// Tells of that one of the backends, and of no other.
    fn serve(&self, which: usize) {
        let backends = [0, 1].map(|number: usize| {
            let port = (number == which).then(|| self.ports[number]);
            (model::Pod { node: u8::try_from(number + 1).expect("1 or 2"), host: 3 }, port)
        });
        serve(&self.site, Protocol::Udp, backends);
    }

    /// A client that never pauses, which keeps an entry of connection tracking alive for ever, of
    /// each kind.
    fn flows(&self) -> Result<[Flow; 2]> {
        let lab = self.site.lab;
        let node = &lab.nodes[1];
        let outside =
            lab.flow_to(&CLIENT, SocketAddr::new(lab.world().of_node(node)[0], NODE_PORT))?;
        Ok([outside, lab.flow_to(&End::Node(node), SocketAddr::new(CLUSTER_IP.parse()?, TARGET))?])
    }
}

#[test]
fn udp_clients_are_served_by_another_backend_when_their_own_is_gone() {
    blueprint().test(|lab| {
        let mut moving = Moving::start(lab)?;
        let flows = moving.flows()?;
        lab.nodes[1].shell("sleep 1")?;
        moving.first = None;
        moving.serve(1);
        lab.nodes[1].shell("sleep 4")?;
        for flow in flows {
            let echoes = flow.stop()?;
            let silent = echoes.silence();
            ensure!(silent < Duration::from_secs(1), "silent for {silent:?}: {echoes:?}");
            println!("silent for {silent:?}");
        }
        Ok(())
    });
}

/// A server sees changes, and it was not there for this one.
#[test]
fn udp_clients_find_the_backend_that_replaced_theirs_while_the_node_had_no_server() {
    blueprint().test(|lab| {
        let node = &lab.nodes[1];
        let mut moving = Moving::start(lab)?;
        let flows = moving.flows()?;
        node.shell("sleep 1")?;
        node.server.kill()?;
        moving.first = None;
        let without = Instant::now();
        moving.serve(1);
        node.shell("sleep 1")?;
        node.start_server()?;
        managed::ready(node)?;
        let without = without.elapsed();
        node.shell("sleep 4")?;
        for flow in flows {
            let echoes = flow.stop()?;
            let silent = echoes.silence();
            ensure!(
                silent < without + Duration::from_secs(1),
                "silent for {silent:?}, without a server for {without:?}: {echoes:?}"
            );
            println!("silent for {silent:?}, without a server for {without:?}");
        }
        Ok(())
    });
}

#[test]
fn restarts_end_no_connection_removed_rules_come_back_and_a_clean_node_serves_nothing() {
    blueprint().test(|lab| {
        let node = &lab.nodes[1];
        let (world, client) = (lab.world(), lab.world().addresses(Machine::Client));
        let site = Site::start(lab, Gateway::None)?;
        announce(&site, Protocol::Tcp, TrafficPolicy::Local);
        let [first, second] = [1, 2].map(|node| model::Pod { node, host: 3 });
        serve(&site, Protocol::Tcp, [(first, None), (second, Some(TARGET))]);
        let ports: Vec<(SocketAddr, IpAddr)> = world
            .of_node(node)
            .into_iter()
            .map(|ip| SocketAddr::new(ip, KEPT.node_port(Says::Client)))
            .zip(client.iter().copied())
            .collect();
        let keeps_clients = |when: &str| site.answers(when, &CLIENT, &ports);
        keeps_clients("node ports keep the client's address")?;

        let backend = Site::of_pod(&site.there)[0];
        let (at, by) =
            (SocketAddr::new(backend, TARGET), SocketAddr::new(world.of_node(node)[0], NODE_PORT));
        let connection = lab.lasting_by(CLIENT, End::Pod(&site.there), [(at, by)])?;
        let peers = || node.run_in_pod(&site.there, ["ss", "-Htn", "state", "established"]);
        let seen = peers()?;
        ensure!(seen.contains(&client[0].to_string()), "the backend sees another client: {seen}");

        node.server.kill()?;
        keeps_clients("node ports answer without a server")?;
        node.start_server()?;
        managed::ready(node)?;
        keeps_clients("node ports answer after the restart")?;
        connection.end().context("the connection that lasted")?;

        // What is under way then may end: the kernel translates nothing until the rules are back.
        node.run(["nft", "flush", "ruleset"])?;
        keeps_clients("node ports answer after another program removed all rules of the node")?;

        node.server.stop()?;
        let ovnkube = executable::under_test(executable::SERVER)?;
        let clean =
            || node.run([ovnkube.as_os_str(), "--cleanup-node".as_ref(), node.name.as_ref()]);
        let said = clean()?;
        ensure!(said.contains("removed the nftables table inet ovn-kubernetes"), "{said}");
        let said = clean()?;
        ensure!(said.contains("there is no nftables table"), "{said}");
        // It was the rules that led there.
        site.nothing_answers(&CLIENT, &ports.iter().map(|(to, _)| *to).collect::<Vec<_>>())
    });
}

/// The field is about the cluster's addresses alone.
#[test]
fn node_ports_of_a_service_with_an_internal_policy_were_refused_where_it_had_no_endpoint() {
    blueprint().test(|lab| {
        let (site, world) = (Site::start(lab, Gateway::None)?, lab.world());
        site.api.edit("Service", ANYWHERE.name(), |service| {
            service["spec"]["internalTrafficPolicy"] = json!("Local");
        })?;
        let backend = Site::of_pod(&site.there);
        let to = |addresses: Vec<IpAddr>, port: u16| -> Vec<(SocketAddr, IpAddr)> {
            addresses
                .into_iter()
                .map(|ip| SocketAddr::new(ip, port))
                .zip(backend.iter().copied())
                .collect()
        };
        let cluster = to(ANYWHERE.cluster_ips().into(), ANYWHERE.port(Says::Backend));
        let [without, with] = &lab.nodes[..] else { panic!("two nodes") };
        // It is in force: the cluster's address has no endpoint there.
        let asked: Vec<SocketAddr> = cluster.iter().map(|(to, _)| *to).collect();
        eventually("no endpoint for the other node", site::SOON, || {
            site.nothing_answers(&End::Node(without), &asked)
        })?;
        for node in [without, with] {
            let ports = to(world.of_node(node), ANYWHERE.node_port(Says::Backend));
            site.answers("a node port answers the world", &CLIENT, &ports)?;
            site.answers("a node port answers its node", &End::Node(node), &ports)?;
        }
        Ok(())
    });
}

/// Of both families; and with ranges of one family, no client of the other one is served.
#[test]
fn source_ranges_of_a_load_balancer_hold_for_clients_of_each_family() {
    blueprint().test(|lab| {
        let (site, world) = (Site::start(lab, Gateway::None)?, lab.world());
        let backend = Site::of_pod(&site.there);
        let load_balancer = ANYWHERE.ingress();
        // The one without a backend: packets go to another node after they were looked at.
        load_balancer.iter().try_for_each(|address| world.announce(*address, &lab.nodes[0]))?;
        // Whether the client is served by IPv4 and by IPv6. It is 203.0.113.100 and
        // 2001:db8:113::100.
        for (ranges, served) in [
            (json!(null), [true, true]),
            (json!(["203.0.113.100/32", "2001:db8:113::100/128"]), [true, true]),
            (json!(["2001:db8:113::100/120"]), [false, true]),
            (json!(["203.0.113.0/24", "2001:db8:113::/120"]), [true, false]),
            (json!(["192.0.2.0/24", "2001:db8:2::/64", "2001:db8:113::/64"]), [false, true]),
            (json!(["192.0.2.0/24", "2001:db8:2::/64"]), [false, false]),
            (json!(null), [true, true]),
        ] {
            site.api.edit("Service", ANYWHERE.name(), |service| {
                service["spec"]["loadBalancerSourceRanges"] = ranges.clone();
            })?;
            for ((address, backend), served) in load_balancer.iter().zip(&backend).zip(served) {
                let to = SocketAddr::new(*address, ANYWHERE.port(Says::Backend));
                let what = format!("with {ranges}, {to}");
                if served {
                    site.answers(&what, &CLIENT, &[(to, *backend)])?;
                } else {
                    eventually(&what, site::SOON, || site.nothing_answers(&CLIENT, &[to]))?;
                }
            }
        }
        Ok(())
    });
}

/// What passes a policy that lets nothing in, however it comes to the nodes. The kubelet's probes
/// do.
fn only_the_node_itself_passes_policies(lab: &Lab, gateway: Gateway) -> Result<()> {
    let (site, world) = (Site::start(lab, gateway)?, lab.world());
    let pod = Site::of_pod(&site.there);
    let own = &lab.nodes[1];
    let each = |addresses: &[IpAddr], port: u16| -> Vec<SocketAddr> {
        addresses.iter().map(|ip| SocketAddr::new(*ip, port)).collect()
    };
    let mut served = Vec::new();
    for node in &lab.nodes {
        served.extend(each(&world.of_node(node), ANYWHERE.node_port(Says::Backend)));
    }
    for addresses in [ANYWHERE.external_ips(), ANYWHERE.ingress()] {
        addresses.iter().try_for_each(|address| world.announce(*address, own))?;
        served.extend(each(&addresses, ANYWHERE.port(Says::Backend)));
    }
    served.extend(each(&world.of_node(own), KEPT.node_port(Says::Backend)));
    let by = |to: &SocketAddr| pod[usize::from(to.is_ipv6())];
    let served: Vec<(SocketAddr, IpAddr)> = served.into_iter().map(|to| (to, by(&to))).collect();
    let of_kubelet = || -> Vec<(SocketAddr, IpAddr)> {
        each(&pod, 8080).iter().map(|to| (*to, to.ip())).collect()
    };
    let serves = |what: &str| {
        let answered = site.answers(what, &CLIENT, &served);
        // Where the switch cannot recirculate a packet that often: `gateways.rs`.
        if let (Gateway::SharedNodePorts, Err(error)) = (gateway, &answered) {
            let dropped = lab.nodes.iter().map(|node| node.coverage("datapath_drop_recirc_error"));
            ensure!(dropped.sum::<Result<u64>>()? > 0, "{error:#}");
            return Ok(());
        }
        answered
    };
    serves("Services answer the world")?;

    api::policy(&site.api, json!({"podSelector": {}, "policyTypes": ["Ingress"], "ingress": []}));
    let to_services: Vec<SocketAddr> = served.iter().map(|(to, _)| *to).collect();
    eventually("no Service answers the world", site::SOON, || {
        site.nothing_answers(&CLIENT, &to_services)
    })?;
    site.answers("the node's own connections pass", &End::Node(own), &of_kubelet())?;
    // A machine beside the node has a route to its pods.
    pod.iter().try_for_each(|address| world.announce(*address, own))?;
    site.nothing_answers(&CLIENT, &each(&pod, 8080))?;

    // It was the policy, which is about the addresses that pods see.
    let everybody =
        json!([{"from": [{"ipBlock": {"cidr": "0.0.0.0/0"}}, {"ipBlock": {"cidr": "::/0"}}]}]);
    api::policy(
        &site.api,
        json!({"podSelector": {}, "policyTypes": ["Ingress"], "ingress": everybody}),
    );
    serves("Services answer the world again")?;
    // Nobody's policy, but nobody's Service either.
    site.nothing_answers(&CLIENT, &each(&pod, 8080))
}

#[test]
fn without_a_gateway_a_policy_held_only_where_the_pod_was_on_another_node_than_its_node_port() {
    blueprint().test(|lab| only_the_node_itself_passes_policies(lab, Gateway::None));
}

#[test]
fn with_a_local_gateway_a_policy_held_only_where_the_pod_was_on_another_node_than_its_node_port() {
    blueprint().test(|lab| only_the_node_itself_passes_policies(lab, Gateway::Local));
}

#[test]
fn with_a_shared_gateway_a_policy_held_only_where_the_pod_was_on_another_node_than_its_node_port() {
    blueprint().test(|lab| only_the_node_itself_passes_policies(lab, Gateway::Shared));
}

#[test]
fn with_node_ports_of_a_shared_gateway_routes_to_pods_passed_policies() {
    blueprint().test(|lab| only_the_node_itself_passes_policies(lab, Gateway::SharedNodePorts));
}

/// `--disable-forwarding=false`: who routes pods over their node on purpose gets there, as far as
/// policies let.
#[test]
fn pods_that_are_routed_on_purpose_are_reached_where_policies_let() {
    blueprint().test(|lab| {
        let (site, world, node) = (Site::start(lab, Gateway::None)?, lab.world(), &lab.nodes[1]);
        site.restart_with(node, Gateway::None, &["--disable-forwarding=false"])?;
        let pod = Site::of_pod(&site.there);
        pod.iter().try_for_each(|address| world.announce(*address, node))?;
        let to: Vec<(SocketAddr, IpAddr)> =
            pod.iter().map(|ip| (SocketAddr::new(*ip, 8080), *ip)).collect();
        site.answers("the pod answers the world", &CLIENT, &to)?;
        api::policy(
            &site.api,
            json!({"podSelector": {}, "policyTypes": ["Ingress"], "ingress": []}),
        );
        let to: Vec<SocketAddr> = to.iter().map(|(to, _)| *to).collect();
        eventually("no pod answers the world", site::SOON, || site.nothing_answers(&CLIENT, &to))
    });
}
