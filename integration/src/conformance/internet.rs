//! The Internet, as far as the suite asks for it: two addresses that accept connections, beyond the router of
//! the nodes.

use std::net::{IpAddr, SocketAddr};

use anyhow::{Context as _, Result};
use integration::{Cluster, connections::Server, traffic::End, world::Machine};

/// Name servers of Google, to which specs connect (test/e2e/network/networking.go).
const ADDRESSES: [&str; 2] = ["8.8.8.8", "2001:4860:4860::8888"];
const PORT: u16 = 53;

/// Makes a machine of the world the owner of the addresses. They answer until the value is dropped.
pub(super) fn begin(cluster: &Cluster) -> Result<Server> {
    let machine = Machine::Resolver;
    let addresses: Vec<IpAddr> =
        ADDRESSES.iter().map(|text| text.parse().context("a constant address")).collect::<Result<_>>()?;
    addresses.iter().try_for_each(|address| cluster.lab.world().give(machine, *address))?;
    let listening: Vec<SocketAddr> =
        addresses.iter().map(|address| SocketAddr::new(*address, PORT)).collect();
    cluster.lab.answering_at(&End::World(machine), &listening)
}
