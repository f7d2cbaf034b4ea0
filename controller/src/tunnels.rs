//! Where the tunnels to nodes of other zones end, as the southbound database should have it. Knows
//! neither nodes nor rows.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
    sync::Arc,
};

use crate::key::NodeName;

/// What the southbound database should have of nodes of other zones.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RemoteChassis {
    /// The port of their tunnels, unless it is OVN's own.
    pub port: Option<u16>,
    /// By the name of the chassis.
    pub wanted: BTreeMap<Arc<str>, Tunnels>,
    /// The chassis of nodes of this zone, which are no remote ones.
    pub local: BTreeSet<Arc<str>>,
    /// Nodes of which a part is not known: what there is of them stays.
    pub kept: BTreeSet<NodeName>,
    /// Addresses that several of the wanted name, and the nodes that may have them. The first one
    /// has it, unless another one of them had it before.
    pub contested: BTreeMap<IpAddr, Vec<NodeName>>,
}

/// The ends of a node's tunnels.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tunnels {
    /// The node, which is the `hostname` of the chassis.
    pub node: NodeName,
    pub addresses: BTreeSet<IpAddr>,
}

/// What was handed out last, and whether a node has changed since.
#[derive(Debug, Default)]
pub(crate) struct ToldChassis {
    pub(crate) told: Option<Arc<RemoteChassis>>,
    pub(crate) is_old: bool,
}
