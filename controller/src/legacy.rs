//! The rows that the command `ovn-k8s-overlay` of 2016 to 2018 made: its names and addresses, with
//! the row types and the comparison of today's control plane.
//!
//! ```text
//! kube-master (router) ── join 100.64.1.0/24 ── GR_<node> ── ext_<node> ── the node's bridge
//!   └─ rtos-<node> ── stor-<node> ── <node> (switch) ── k8s-<node>: the node itself
//! ```
//!
//! A command only adds: what exists stays, and a second run writes nothing. Knows neither
//! Kubernetes nor the node that the rows are for.

use std::net::Ipv4Addr;

use contract::mac::Mac;
use ipnet::Ipv4Net;
use ovsdb::{TransactError, Updates};

use crate::{
    config::ClusterConfig,
    engine::{
        diff::{NoOthers, diff, edit::Edit},
        northbound::Northbound,
        once,
    },
    key::Key,
    rows::RowName,
    world::Kept,
};

pub mod adopt;
mod facts;
mod rows;

use self::{facts::Facts, rows::Additions};

/// Marks the router that connects all nodes, whatever its name is.
const CLUSTER_ROUTER: &str = "k8s-cluster-router";
/// The cluster router's address on the join switch.
pub(crate) const JOIN: Ipv4Net = Ipv4Net::new_assert(Ipv4Addr::new(100, 64, 1, 1), 24);

/// What a command makes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Init {
    /// `master-init`: the cluster's rows, and those of the first node.
    Master(NodeNetwork),
    /// `minion-init`
    Minion(NodeNetwork),
    /// `gateway-init`
    Gateway(GatewayRouter),
}

/// A node's switch, and the node's own port on it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeNetwork {
    /// In lower case.
    pub node: String,
    /// Of all pods.
    pub cluster: Ipv4Net,
    /// Of the node's pods.
    pub subnet: Ipv4Net,
    /// The MAC address of the node's port.
    pub mac: Mac,
}

/// A node's gateway router, and the switch that stands for the physical network.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GatewayRouter {
    pub node: String,
    /// Of all pods.
    pub cluster: Ipv4Net,
    /// The chassis of the node: `external_ids:system-id`.
    pub chassis: String,
    /// The gateway router's address on the physical network.
    pub address: Ipv4Net,
    pub next_hop: Option<Ipv4Addr>,
    /// The `external_ids:iface-id` of the port on `br-int` that leads to the physical network.
    pub interface: String,
    /// The MAC address under which that network knows the gateway router.
    pub mac: Mac,
    /// Sources that leave through this gateway, whichever is the first.
    pub sources: Vec<Ipv4Net>,
    pub load_balancers: LoadBalancers,
}

/// Whether a gateway router gets load balancers for node ports.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LoadBalancers {
    With,
    Without,
}

/// Why nothing was written.
#[derive(Debug, thiserror::Error)]
pub enum InitError {
    #[error(
        "K8S_CLUSTER_ROUTER not set: no logical router has external_ids:k8s-cluster-router=yes; \
         run master-init first"
    )]
    NoRouter,
    #[error("{0} not set: no load balancer has external_ids:{1}=yes; run master-init first")]
    NoLoadBalancer(&'static str, &'static str),
    #[error("subnet {subnet} has no room for a router, a node and pods")]
    Small { subnet: Ipv4Net },
    #[error("subnet {subnet} is not in the cluster's subnet {cluster}")]
    Outside { subnet: Ipv4Net, cluster: Ipv4Net },
    #[error("subnet {subnet} overlaps {theirs}, which is the subnet of logical switch {switch}")]
    Taken { subnet: Ipv4Net, theirs: String, switch: String },
    #[error("logical switch {switch} has the subnet {now} already, not {subnet}")]
    OtherSubnet { switch: String, now: String, subnet: Ipv4Net },
    #[error(
        "logical router port {port} has no IPv4 network: there is no join switch; \
         run master-init first"
    )]
    NoJoin { port: String },
    #[error("all addresses of the join switch, {network}, are in use")]
    JoinFull { network: Ipv4Net },
    #[error("{address} is the address of gateway router {router} already")]
    AddressTaken { address: Ipv4Addr, router: String },
    #[error(
        "logical router port {port} has the address {now} already, not {address}; \
         remove the gateway first"
    )]
    OtherAddress { port: String, now: String, address: Ipv4Net },
    #[error(
        "logical router {router} has a default route via {now} already, not {next_hop}; \
         remove the gateway first"
    )]
    OtherNextHop { router: String, now: String, next_hop: Ipv4Addr },
    #[error("next hop {next_hop} is not in the network of {address}")]
    UnreachableNextHop { next_hop: Ipv4Addr, address: Ipv4Net },
    #[error("these rows are needed and are not there: {0}")]
    Missing(String),
    #[error("the northbound database refused the rows, and none was written")]
    Transact(#[from] TransactError),
}

/// Writes the rows that are missing, in one transaction. `northbound`: from
/// [`connect`](crate::engine::northbound::connect). Waits for a connection for as long as it takes.
/// If it is cancelled, all of the rows are written or none. Returns what was written, in words.
///
/// # Errors
///
/// The rows do not go together with those that are there, or the database refuses. Nothing is
/// written then. After a lost connection, or a race that another writer won, it tries again.
pub async fn write(northbound: Updates, init: &Init) -> Result<Vec<String>, InitError> {
    let mut northbound = Northbound::new(northbound, [], &ClusterConfig::default());
    let mut written = Vec::new();
    loop {
        let connection = once::up_to_date(&mut northbound).await;
        let edits = edits(&northbound, init)?;
        if edits.is_empty() {
            return Ok(written);
        }
        let subjects = edits.iter().filter_map(Edit::inserted).map(RowName::describe).collect();
        if once::write(&mut northbound, &connection, vec![edits]).await? {
            written = subjects;
        }
    }
}

fn edits(northbound: &Northbound, init: &Init) -> Result<Vec<Edit>, InitError> {
    let Additions { rows, links } = rows::plan(&Facts::of(northbound), init)?;
    // What exists stays, whatever program made it.
    let difference = diff(&Key::Cluster, rows, northbound, &NoOthers(Kept::ALL));
    let taken = difference.taken.into_iter().map(|taken| taken.row);
    let missing: Vec<String> =
        difference.missing.into_iter().chain(taken).map(|row| row.describe()).collect();
    if !missing.is_empty() {
        return Err(InitError::Missing(missing.join(", ")));
    }
    let mut edits = difference.edits;
    edits.extend(links);
    Ok(edits)
}
