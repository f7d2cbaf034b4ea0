//! The question what a pod's own network namespace has, over the socket of the node's server, for
//! `ovnkube diagnose`: as it is, beside what ADD has configured. An older server, and upstream's,
//! answers 404.

use std::net::IpAddr;

use ipnet::IpNet;
use serde::{Deserialize, Serialize};

/// Path of the question: `POST` with an [`InsideRequest`]; the answer is an [`InsideAnswer`].
pub const INSIDE_PATH: &str = "/inside";

/// A pod of this node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct InsideRequest {
    pub namespace: String,
    pub name: String,
}

/// The interfaces of the pod that are ports of the integration bridge.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct InsideAnswer {
    /// The node's name.
    pub node: String,
    pub interfaces: Vec<InsideInterface>,
    /// Why nothing is known.
    pub problem: Option<String>,
}

/// One interface of the pod.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct InsideInterface {
    /// The host's end.
    pub host_link: String,
    /// The name that ADD gave the pod's end.
    pub if_name: String,
    /// As ADD has configured it; the MTU is the one that this server gives to new pods.
    pub committed: InsideLink,
    /// As it is; `None` if the pod's end is gone.
    pub found: Option<InsideLink>,
    /// The pod's end is up.
    pub is_up: bool,
    /// Open vSwitch forwards in user space.
    pub is_userspace: bool,
    /// What the kernel tells only inside of the namespace.
    pub inside: Option<InsideTables>,
    /// What could not be looked at, and why.
    pub unseen: Option<String>,
}

/// What a link has.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct InsideLink {
    /// In lower case.
    pub mac: String,
    /// Bytes.
    pub mtu: u32,
    /// Without those that the kernel makes for the link alone.
    pub addresses: Vec<IpNet>,
}

/// Routes, neighbours and driver.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct InsideTables {
    /// Destinations over this link, with their gateways.
    pub routes: Vec<(IpNet, Option<IpAddr>)>,
    /// Those that do not answer.
    pub silent_neighbours: Vec<IpAddr>,
    /// Transmit checksum offload; `None` if the driver does not tell.
    pub tx_checksum: Option<bool>,
}
