//! Routes of clients outside of the cluster to the addresses of a load balancer: by way of all
//! nodes, or of those whose health check says that they have an endpoint.

use std::{
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    process::Command,
    time::Duration,
};

use anyhow::Result;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
    task::{JoinHandle, spawn_blocking},
    time::{sleep, timeout},
};

use crate::{command, fabric};

/// How often each node is asked. Clouds ask every few seconds; specs wait for the answer.
const CHECK: Duration = Duration::from_millis(500);
/// A node that does not answer in this time is not healthy.
const PATIENCE: Duration = Duration::from_secs(1);

/// The clients' address of each family, from the ranges for documentation: outside of the nodes'
/// subnet, so that an endpoint that sees an address of that subnet has seen a node's. Nodes reach
/// it by their default route.
const CLIENT_V4: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);
const CLIENT_V6: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0x192, 0, 0, 0, 0, 1);

/// Gives the lab's root the clients' addresses, and lets each connection take a way of its own.
/// Returns the addresses.
pub(super) fn add_clients() -> Result<[IpAddr; 2]> {
    // Unless the kernel looks at ports, too, a client always takes the same node.
    let by_ports = ["net.ipv4.fib_multipath_hash_policy=1", "net.ipv6.fib_multipath_hash_policy=1"];
    command::output(Command::new("sysctl").arg("-qw").args(by_ports))?;
    let clients = [IpAddr::from(CLIENT_V4), CLIENT_V6.into()];
    for address in clients {
        // `nodad`: an IPv6 address would not be usable for about a second.
        let words = format!("addr add {address} dev lo nodad");
        command::output(Command::new("ip").args(words.split_whitespace()))?;
    }
    Ok(clients)
}

/// What a Service asks of a balancer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Balancing {
    /// The port at which a node says whether it has endpoints (`healthCheckNodePort`). All nodes
    /// are taken if there is none.
    pub(super) health_check: Option<u16>,
    pub(super) spread: Spread,
}

/// What is spread over the nodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Spread {
    Connections,
    /// A client's connections take one node (`sessionAffinity: ClientIP`). There is one client
    /// here.
    Clients,
}

/// The routes to the addresses of one Service; they go with this value.
#[derive(Debug)]
pub(super) struct Routes {
    addresses: Vec<IpAddr>,
    nodes: Vec<u32>,
    task: Option<(Balancing, JoinHandle<()>)>,
}

impl Routes {
    pub(super) fn new(addresses: Vec<IpAddr>, nodes: Vec<u32>) -> Self {
        Self { addresses, nodes, task: None }
    }

    /// Keeps the routes as `balancing` says. Needs a tokio runtime.
    pub(super) fn follow(&mut self, balancing: Balancing) {
        if matches!(self.task, Some((present, _)) if present == balancing) {
            return;
        }
        self.stop();
        let task = tokio::spawn(keep(self.addresses.clone(), self.nodes.clone(), balancing));
        self.task = Some((balancing, task));
    }

    fn stop(&mut self) {
        if let Some((_, task)) = self.task.take() {
            task.abort();
        }
    }
}

impl Drop for Routes {
    fn drop(&mut self) {
        self.stop();
        for address in self.addresses.clone() {
            tokio::spawn(async move {
                if let Err(error) = lead(address, &[]).await {
                    eprintln!("route to {address}: {error:#}");
                }
            });
        }
    }
}

async fn keep(addresses: Vec<IpAddr>, nodes: Vec<u32>, balancing: Balancing) {
    let mut present = None;
    loop {
        let mut healthy = match balancing.health_check {
            None => nodes.clone(),
            Some(port) => healthy(&nodes, port).await,
        };
        if balancing.spread == Spread::Clients {
            healthy.truncate(1);
        }
        if present.as_ref() != Some(&healthy) {
            for address in &addresses {
                if let Err(error) = lead(*address, &healthy).await {
                    eprintln!("route to {address}: {error:#}");
                }
            }
            present = Some(healthy);
        }
        if balancing.health_check.is_none() {
            return;
        }
        sleep(CHECK).await;
    }
}

/// The nodes that answer 200.
async fn healthy(nodes: &[u32], port: u16) -> Vec<u32> {
    let mut healthy = Vec::new();
    for node in nodes {
        let answer = timeout(PATIENCE, ask(*node, port)).await;
        if matches!(answer, Ok(Ok(true))) {
            healthy.push(*node);
        }
    }
    healthy
}

async fn ask(node: u32, port: u16) -> std::io::Result<bool> {
    let mut stream = TcpStream::connect((fabric::address(node), port)).await?;
    stream.write_all(b"GET /healthz HTTP/1.0\r\n\r\n").await?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await?;
    Ok(answer.split(' ').nth(1) == Some("200"))
}

/// Sets the next hops of the route to `address`; without a node, packets to it are lost.
async fn lead(address: IpAddr, nodes: &[u32]) -> Result<()> {
    let client = if address.is_ipv4() { IpAddr::from(CLIENT_V4) } else { CLIENT_V6.into() };
    let mut words = format!("route replace {address} src {client}");
    if nodes.is_empty() {
        // Not `unreachable`: no cloud tells its clients at once, and specs want silence or a
        // refusal.
        words = format!("route replace {address} dev lo src {client}");
    }
    for node in nodes {
        let via =
            if address.is_ipv4() { fabric::address(*node) } else { fabric::address_v6(*node) };
        words += &format!(" nexthop via {via}");
    }
    spawn_blocking(move || {
        command::output(Command::new("ip").args(words.split_whitespace())).map(drop)
    })
    .await?
}
