//! What the cluster manager gives to nodes: a subnet of each family, a number, and the addresses that follow from the number.
//!
//! A node's annotations are the record; this reads them all before it gives anything.

use std::{collections::BTreeMap, sync::Arc};

use crate::{
    config::ClusterConfig,
    key::NodeName,
    observation::Seen,
    selector::LabelSelector,
    store::Node,
    trouble::{NodeTrouble, Trouble},
};

/// How nodes get what they get, beside the cluster's settings.
#[derive(Debug, Clone, Default)]
pub struct NodeRules {
    /// Nodes that get no subnet: `--no-hostsubnet-nodes`.
    pub without_subnet: Option<LabelSelector>,
}

/// All nodes and what they have.
#[derive(Debug)]
pub struct NodeAssignments {
    config: ClusterConfig,
    rules: NodeRules,
}

/// Annotations that a node is to have. They go to the node with this uid or to none.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeAnnotation {
    pub node: NodeName,
    pub uid: Arc<str>,
    pub annotations: BTreeMap<&'static str, String>,
}

impl NodeAssignments {
    pub fn new(config: ClusterConfig, rules: NodeRules) -> Self {
        Self { config, rules }
    }

    /// Takes what a watch of nodes saw. Nothing is given before the first complete list.
    pub fn observe(&mut self, _seen: Seen<NodeName, Node>) {
        let _ = (&self.config, &self.rules);
    }

    /// Annotations to be written, each once. The writer repeats what fails until the node is gone or has another uid; they are given
    /// out again if they were there once and are there no more.
    pub fn take_annotations(&mut self) -> Vec<NodeAnnotation> {
        Vec::new()
    }

    /// Troubles that arose since the last call, for events.
    pub fn take_troubles(&mut self) -> Vec<Trouble<NodeName, NodeTrouble>> {
        Vec::new()
    }

    /// Nodes that lack something and why, for metrics.
    pub fn troubles(&self) -> impl Iterator<Item = (&NodeName, &NodeTrouble)> {
        std::iter::empty()
    }
}
