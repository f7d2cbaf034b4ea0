//! The directions of packets between pods, nodes and the world, each tried at a [`Site`].

use std::net::{IpAddr, SocketAddr};

use anyhow::{Context as _, Result, ensure};
use integration::{
    Node, Pod, fabric,
    peer::{Echoes, Reply},
    traffic::End,
    world::Machine,
};

use crate::support::site::{ANYWHERE, KEPT, Says, Served, Site};

const MIB: u64 = 1 << 20;
pub(crate) const CLIENT: End<'_> = End::World(Machine::Client);

/// Questions to one port of several addresses, and whose address each answer must have.
pub(crate) fn each(
    to: impl IntoIterator<Item = IpAddr>,
    port: u16,
    named: &[IpAddr],
) -> Vec<(SocketAddr, IpAddr)> {
    to.into_iter().map(|ip| SocketAddr::new(ip, port)).zip(named.iter().copied()).collect()
}

/// The addresses of a Service outside of the cluster: of its own, and of its load balancer.
fn outer(served: Served) -> [[IpAddr; 2]; 2] {
    [served.external_ips(), served.ingress()]
}

/// Node ports and outer addresses, on the node that has the backend and on the one that has it not.
pub(crate) fn the_world_reaches_services(site: &Site<'_>) -> Result<()> {
    let (world, backend) = (site.lab.world(), Site::of_pod(&site.there));
    for node in &site.lab.nodes {
        let to = each(world.of_node(node), ANYWHERE.node_port(Says::Backend), &backend);
        site.answers("a node port answers the world", &CLIENT, &to)?;
        for addresses in outer(ANYWHERE) {
            addresses.iter().try_for_each(|address| world.announce(*address, node))?;
            let to = each(addresses, ANYWHERE.port(Says::Backend), &backend);
            site.answers("an outer address answers the world", &CLIENT, &to)?;
        }
    }
    Ok(())
}

/// `externalTrafficPolicy: Local`: the backend sees the client's own address, and other nodes do
/// not deliver.
pub(crate) fn the_world_keeps_its_address(site: &Site<'_>) -> Result<()> {
    let (world, client) = (site.lab.world(), site.lab.world().addresses(Machine::Client));
    let [without, with] = &site.lab.nodes[..] else { panic!("two nodes") };
    let to = each(world.of_node(with), KEPT.node_port(Says::Client), &client);
    site.answers("the backend sees the client", &CLIENT, &to)?;
    for addresses in outer(KEPT) {
        addresses.iter().try_for_each(|address| world.announce(*address, with))?;
        let to = each(addresses, KEPT.port(Says::Client), &client);
        site.answers("the backend sees the client of an outer address", &CLIENT, &to)?;
        addresses.iter().try_for_each(|address| world.announce(*address, without))?;
        let to: Vec<SocketAddr> = to.iter().map(|(to, _)| *to).collect();
        site.nothing_answers(&CLIENT, &to)?;
    }
    let to = each(world.of_node(without), KEPT.node_port(Says::Client), &client);
    site.nothing_answers(&CLIENT, &to.iter().map(|(to, _)| *to).collect::<Vec<_>>())
}

/// Processes of the nodes themselves.
pub(crate) fn hosts_reach_services(site: &Site<'_>) -> Result<()> {
    let (world, backend) = (site.lab.world(), Site::of_pod(&site.there));
    for node in &site.lab.nodes {
        let from = End::Node(node);
        let to = each(ANYWHERE.cluster_ips(), ANYWHERE.port(Says::Backend), &backend);
        site.answers("a cluster address answers a node", &from, &to)?;
        for other in &site.lab.nodes {
            let to = each(world.of_node(other), ANYWHERE.node_port(Says::Backend), &backend);
            site.answers("a node port answers a node", &from, &to)?;
        }
    }
    Ok(())
}

/// Its own node, another one, and its own Service over its node.
pub(crate) fn pods_reach_nodes(site: &Site<'_>) -> Result<()> {
    let (world, backend) = (site.lab.world(), Site::of_pod(&site.there));
    for node in &site.lab.nodes {
        let ssh: Vec<SocketAddr> =
            world.of_node(node).into_iter().map(|ip| SocketAddr::new(ip, 22)).collect();
        let _ssh = site.lab.answering_at(&End::Node(node), &ssh)?;
        for pod in [&site.here, &site.there] {
            let from = End::Pod(pod);
            site.answers(
                "a node answers a pod",
                &from,
                &each(world.of_node(node), 22, &world.of_node(node)),
            )?;
            let to = each(world.of_node(node), ANYWHERE.node_port(Says::Backend), &backend);
            site.answers("a node port answers a pod", &from, &to)?;
        }
    }
    Ok(())
}

/// Pods' packets leave with the address of their node.
pub(crate) fn pods_reach_the_world(site: &Site<'_>) -> Result<()> {
    let world = site.lab.world();
    let servers = [(Machine::Web, 80), (Machine::Resolver, 53)];
    let running = servers.map(|(machine, port)| site.lab.mirroring_outside(machine, port));
    let [_web, _resolver] = [running[0].as_ref(), running[1].as_ref()];
    for pod in [&site.here, &site.there] {
        let node = world.of_node(site.lab.node_of(pod));
        for (machine, port) in servers {
            let to = each(world.addresses(machine), port, &node);
            site.answers("the world sees the node of a pod", &End::Pod(pod), &to)?;
        }
        for address in world.addresses(Machine::Web) {
            site.lab.ping(pod, address)?;
            site.lab.tcp_between(&End::Pod(pod), &End::World(Machine::Web), address, MIB)?;
        }
    }
    Ok(())
}

/// Datagrams of several fragments, both ways.
fn fragments_pass(site: &Site<'_>) -> Result<()> {
    for pod in [&site.here, &site.there] {
        for address in site.lab.world().addresses(Machine::Web) {
            let echoes = in_fragments(site, pod, address)?;
            ensure!(echoes.received + 1 >= echoes.sent, "{} to {address}: {echoes:?}", pod.name);
        }
    }
    Ok(())
}

/// The first answers of a family may be too large for the pod's network, of which their sender then
/// learns. How many they are is a matter of the machine's speed. What is returned is of those that
/// follow.
pub(crate) fn in_fragments(site: &Site<'_>, pod: &Pod, address: IpAddr) -> Result<Echoes> {
    let twenty =
        || site.lab.udp_of_size(&End::Pod(pod), &End::World(Machine::Web), address, 20, 4000);
    twenty()?;
    twenty()
}

/// A router on the way has a narrower link: pods learn of it, whoever began the connection.
pub(crate) fn pods_learn_of_narrow_paths(site: &Site<'_>) -> Result<()> {
    let world = site.lab.world();
    world.narrow(1300)?;
    for pod in [&site.here, &site.there] {
        for address in world.addresses(Machine::Web) {
            site.lab.tcp_between(&End::Pod(pod), &End::World(Machine::Web), address, MIB)?;
        }
    }
    world.narrow(fabric::MTU)
}

/// Of what a client can ask, only what is served answers; and nothing answers twice.
pub(crate) fn nothing_else_answers(site: &Site<'_>) -> Result<()> {
    let world = site.lab.world();
    let served = |node: &Node| {
        let has_backend = node.name == site.there.node;
        let of = |served: Served| [Says::Backend, Says::Client].map(|says| served.node_port(says));
        [of(ANYWHERE).to_vec(), if has_backend { of(KEPT).to_vec() } else { Vec::new() }].concat()
    };
    for node in &site.lab.nodes {
        let served = served(node);
        for address in world.of_node(node) {
            let at = |port| SocketAddr::new(address, port);
            // Those of servers, and those around the node ports.
            let tcp: Vec<SocketAddr> = (1..1100).chain(30_900..31_300).map(at).collect();
            // ICMP limits how fast a host refuses datagrams, so these are fewer.
            let udp: Vec<SocketAddr> =
                (31_050..31_200).chain([53, 67, 123, 161, 500, 6081]).map(at).collect();
            let mut open = 0;
            for (tcp, udp) in tcp.chunks(400).zip(udp.chunks(200).chain(std::iter::repeat(&[][..])))
            {
                let replies = site.lab.ask(&CLIENT, tcp, udp)?;
                for (to, reply) in [tcp, udp].concat().iter().zip(replies.concat()) {
                    let is_open = matches!(reply, Reply::By(_) | Reply::Silence);
                    open += usize::from(is_open);
                    ensure!(
                        !is_open || served.contains(&to.port()),
                        "{to} of {}: {reply:?}",
                        node.name
                    );
                }
            }
            // Not all of them: one of hundreds of packets at once may be lost.
            ensure!(open > 0, "nothing at all answers at {address}");
            site.lab.ping_from_world(Machine::Client, address)?;
        }
    }
    for address in outer(ANYWHERE).concat() {
        world.announce(address, &site.lab.nodes[0])?;
        let others: Vec<SocketAddr> =
            (1..80).chain(82..200).map(|port| SocketAddr::new(address, port)).collect();
        let replies = site.lab.ask(&CLIENT, &others, &[])?;
        for (to, reply) in others.iter().zip(&replies[0]) {
            ensure!(!matches!(reply, Reply::By(_) | Reply::Silence), "{to}: {reply:?}");
        }
    }
    Ok(())
}

/// Pods' packets of the full size pass, to the world and between nodes, and no larger ones.
pub(crate) fn full_packets_pass(site: &Site<'_>) -> Result<()> {
    let mtu = site.lab.nodes[0].mtu;
    pods_reach_the_world(site).context("pods to the world")?;
    the_world_reaches_services(site).context("world to Services")?;
    for (from, others) in [(&site.here, &site.there), (&site.there, &site.here)] {
        for to in site.lab.world().addresses(Machine::Web).into_iter().chain(Site::of_pod(others)) {
            let headers = if to.is_ipv4() { 28 } else { 48 };
            site.lab.ping(from, to)?;
            site.lab
                .ping_size(from, to, mtu - headers)
                .with_context(|| format!("{mtu} bytes to {to}"))?;
            ensure!(
                site.lab.ping_size(from, to, mtu - headers + 1).is_err(),
                "{mtu} bytes and one to {to}"
            );
        }
    }
    Ok(())
}

/// Pods to the world, and the world to Services that any node delivers.
pub(crate) fn both_ways(site: &Site<'_>) -> Result<()> {
    pods_reach_the_world(site).context("pods to the world")?;
    the_world_reaches_services(site).context("world to Services")
}

/// All directions.
pub(crate) fn every_direction(site: &Site<'_>) -> Result<()> {
    pods_reach_the_world(site).context("pods to the world")?;
    the_world_reaches_services(site).context("world to Services")?;
    the_world_keeps_its_address(site).context("the client's address")?;
    hosts_reach_services(site).context("hosts to Services")?;
    pods_reach_nodes(site).context("pods to nodes")?;
    fragments_pass(site).context("fragments")?;
    pods_learn_of_narrow_paths(site).context("narrow paths")?;
    nothing_else_answers(site).context("what else answers")
}
