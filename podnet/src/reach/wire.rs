//! The question whether addresses answer, over the socket of the node's server, for `ovnkube
//! status` and `ovnkube diagnose`. An older server, and upstream's, answers 404.

use std::net::IpAddr;

use serde::{Deserialize, Serialize};

use crate::pod_look::wire::InsideRequest;

/// Path of the question: `POST` with a [`ReachRequest`]; the answer is a [`ReachAnswer`].
pub const REACH_PATH: &str = "/reach";
/// Targets that are asked at once; what is beyond them has no reply.
pub const MOST_TARGETS: usize = 64;

/// Whom to ask, and from where.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReachRequest {
    /// A pod of this node; the node itself if it is left out.
    #[serde(default)]
    pub pod: Option<InsideRequest>,
    pub targets: Vec<ReachTarget>,
}

/// An address that may answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReachTarget {
    pub kind: ReachKind,
    pub address: IpAddr,
    /// 0 for an echo.
    #[serde(default)]
    pub port: u16,
}

/// What is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ReachKind {
    /// An echo request of ICMP.
    Echo,
    /// A connection of TCP, which is closed again.
    Connect,
    /// A question to a server of the DNS, over UDP.
    Dns,
}

/// The replies, in the order of the targets.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ReachAnswer {
    /// The node's name.
    pub node: String,
    pub replies: Vec<Reached>,
    /// Why nobody was asked.
    pub problem: Option<String>,
}

/// What became of a question.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Reached {
    Answered,
    /// Somebody says that it cannot be had, in these words of the kernel.
    Refused(String),
    Silent,
}
