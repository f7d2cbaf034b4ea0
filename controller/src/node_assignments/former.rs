//! The subnets of nodes that are gone, kept for the same names. Knows neither pods nor the API
//! server.

use std::{collections::BTreeMap, sync::Arc};

use ipnet::IpNet;
use serde::{Deserialize, Serialize};

use crate::key::NodeName;

/// How long a subnet is kept at least, in seconds: a machine that is deleted and registered again,
/// by hand or by a cloud's controller, is back within some minutes. A tenth would miss a reboot;
/// ten times as much keeps subnets from a cluster whose nodes come and go.
pub(super) const KEPT: i64 = 600;
/// The largest number of nodes that are remembered; the one whose time ends first is forgotten.
/// Their record is an annotation, and fits into the 256 KiB that Kubernetes allows even with names
/// of 253 characters.
pub(super) const MOST: usize = 500;
/// While a node lacks a subnet, the same name is not looked at again sooner, in seconds.
const AGAIN: i64 = 30;

/// Nodes that are gone, and what they had.
#[derive(Debug, Default)]
pub(super) struct FormerSubnets {
    nodes: BTreeMap<NodeName, FormerNode>,
    /// Whether the record differs from the one that was taken last.
    changed: bool,
}

/// The record of nodes that are gone, by name.
pub type FormerNodes = BTreeMap<String, FormerNode>;

/// What a node had that is gone.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FormerNode {
    pub subnets: Vec<IpNet>,
    /// Seconds since 1970: its pods are looked for then.
    pub until: i64,
    #[serde(skip)]
    looked: Option<i64>,
}

impl FormerNode {
    /// A node whose pods have to be looked for at once.
    pub(super) fn due(subnets: Vec<IpNet>, now: i64) -> Self {
        Self { subnets, until: now, looked: None }
    }
}

impl FormerSubnets {
    /// Whether one of these networks is in a subnet that is kept for the node.
    pub(super) fn has(&self, node: &NodeName, networks: &[IpNet]) -> bool {
        let kept = self.nodes.get(node).into_iter().flat_map(|former| &former.subnets);
        kept.into_iter().any(|subnet| networks.iter().any(|network| subnet.contains(network)))
    }

    /// Keeps the subnets until then. Returns the node that is forgotten for it, if there are too
    /// many.
    pub(super) fn keep(
        &mut self,
        node: NodeName,
        subnets: Vec<IpNet>,
        until: i64,
    ) -> Option<(NodeName, FormerNode)> {
        self.changed = true;
        self.nodes.insert(node, FormerNode { subnets, until, looked: None });
        if self.nodes.len() <= MOST {
            return None;
        }
        let first = self
            .nodes
            .iter()
            .min_by_key(|(_, former)| former.until)
            .map(|(name, _)| Arc::clone(name));
        self.nodes.remove_entry(&first?)
    }

    /// Pods still have addresses of the subnets.
    pub(super) fn extend(&mut self, node: &NodeName, now: i64) {
        if let Some(former) = self.nodes.get_mut(node) {
            former.looked = Some(now);
            if former.until < now + KEPT {
                former.until = now + KEPT;
                self.changed = true;
            }
        }
    }

    /// The subnets are no longer kept.
    pub(super) fn take(&mut self, node: &NodeName) -> Option<FormerNode> {
        let former = self.nodes.remove(node)?;
        self.changed = true;
        Some(former)
    }

    /// The nodes whose pods should be looked for, the oldest first: their time is over, or another
    /// node `lacks` a subnet.
    pub(super) fn due(&self, now: i64, lacks: Lack) -> Vec<NodeName> {
        let is_due = |former: &FormerNode| {
            let may_look = former.looked.is_none_or(|looked| looked + AGAIN <= now);
            former.until <= now || lacks == Lack::OfSubnets && may_look
        };
        let mut due: Vec<_> = self.nodes.iter().filter(|(_, former)| is_due(former)).collect();
        due.sort_by_key(|(_, former)| former.until);
        due.into_iter().map(|(name, _)| Arc::clone(name)).collect()
    }

    /// The former leader has recorded these already.
    pub(super) fn is_recorded(&mut self, recorded: &BTreeMap<NodeName, FormerNode>) {
        self.changed = self.nodes != *recorded;
    }

    /// The record, if it has changed since the last call.
    pub(super) fn take_record(&mut self) -> Option<FormerNodes> {
        let record =
            || self.nodes.iter().map(|(name, former)| (name.to_string(), former.clone())).collect();
        std::mem::take(&mut self.changed).then(record)
    }
}

/// Whether a node of the cluster waits for a subnet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Lack {
    Nothing,
    OfSubnets,
}
