//! The Internet, as far as the suite asks for it: names, and addresses that accept connections,
//! beyond the router of the nodes.

use std::net::{IpAddr, SocketAddr};

use anyhow::{Context as _, Result};
use integration::{
    Cluster,
    cluster::Name,
    connections::Server,
    traffic::End,
    world::{Machine, World},
};

/// Google's name server, of whose port 53 and name specs ask (test/e2e/network/networking.go,
/// dns_configmap.go). Here it is the world's.
const NAME_SERVER: (&str, [&str; 2]) = ("dns.google", ["8.8.8.8", "2001:4860:4860::8888"]);
/// Specs connect to its port 80 (test/e2e/network/networking.go).
const WEB_SERVER: (&str, [&str; 2]) = ("google.com", ["142.250.0.1", "2a00:1450::1"]);
const WEB_PORT: u16 = 80;

/// What the world's name server has to know.
pub(super) fn names() -> Result<[Name; 2]> {
    Ok([name(NAME_SERVER)?, name(WEB_SERVER)?])
}

/// Makes machines of the world the owners of the addresses. They answer until the value is dropped.
pub(super) fn begin(cluster: &Cluster) -> Result<Server> {
    let [name_server, web_server] = names()?;
    give(cluster.lab.world(), Machine::Resolver, &name_server)?;
    give(cluster.lab.world(), Machine::Web, &web_server)?;
    let listening: Vec<SocketAddr> =
        web_server.addresses.iter().map(|address| SocketAddr::new(*address, WEB_PORT)).collect();
    cluster.lab.answering_at(&End::World(Machine::Web), &listening)
}

fn give(world: &World, machine: Machine, name: &Name) -> Result<()> {
    name.addresses.iter().try_for_each(|address| world.give(machine, *address))
}

fn name((name, addresses): (&str, [&str; 2])) -> Result<Name> {
    let addresses: Result<Vec<IpAddr>> =
        addresses.iter().map(|text| text.parse().context("a constant address")).collect();
    Ok(Name { name: name.to_owned(), addresses: addresses? })
}
