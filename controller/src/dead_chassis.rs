//! The chassis of a node that is deleted leaves the southbound database: all other nodes keep a
//! tunnel to it otherwise. An ovn-controller that runs on there registers itself again.
//!
//! Knows nothing of rows in the northbound database. Nothing waits for this: without the southbound
//! database everything else goes on.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use kubeapi::election::Leadership;
use ovsdb::Client;
use tokio::{
    sync::{mpsc::UnboundedReceiver, watch},
    time::{Instant, sleep_until, timeout},
};

use crate::{
    engine::reconcile::Progress,
    key::NodeName,
    kinds::node::object::Node,
    remove_node::{ChassisOf, from_southbound},
    safety_brake::HeldLists,
    watch_event::{Kind, Seen, WatchEvent},
};

/// How long after its Node: one that is deleted and registered again at once keeps its tunnels. A
/// tenth is too short for a person at a keyboard; ten times as long and nodes that are gone are
/// tried for minutes.
const GRACE: Duration = Duration::from_secs(10);
/// Between two tries.
const AGAIN: Duration = Duration::from_secs(30);
/// Deadline of one try.
const PATIENCE: Duration = Duration::from_secs(10);
/// The largest number of nodes that wait for the database; the ones beyond are left to
/// `--remove-node`.
const MOST: usize = 1000;

/// Removes the chassis of deleted nodes.
#[derive(Debug)]
pub struct DeadChassis {
    /// Nodes, and the identity of their cluster.
    pub observations: UnboundedReceiver<WatchEvent>,
    pub southbound: Client,
    pub leadership: Leadership,
    /// Of the controller, which knows whose the databases are.
    pub progress: watch::Receiver<Progress>,
    /// The lists that the controller doubts.
    pub doubted: watch::Receiver<Option<HeldLists>>,
}

/// The nodes that are there, and those that are gone.
#[derive(Debug, Default)]
struct Nodes {
    /// With their chassis, as far as they are known.
    there: BTreeMap<NodeName, Option<Arc<str>>>,
    gone: BTreeMap<NodeName, Gone>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Gone {
    chassis: Option<Arc<str>>,
    due: Instant,
}

impl DeadChassis {
    /// The kinds of objects that it observes.
    pub const KINDS: &[Kind] = &[Kind::Node];

    /// Works until the channel of observations is closed.
    pub async fn run(mut self) {
        let mut nodes = Nodes::default();
        loop {
            let due = nodes.due();
            tokio::select! {
                observation = self.observations.recv() => match observation {
                    Some(WatchEvent::Nodes(seen)) => nodes.observe(seen, Instant::now()),
                    Some(_) => {}
                    None => return,
                },
                () = sleep_until(due.unwrap_or_else(Instant::now)), if due.is_some() => {
                    for node in nodes.take_due(Instant::now()) {
                        self.remove(&mut nodes, node).await;
                    }
                }
            }
        }
    }

    /// Removes the chassis of a node, or has it tried again.
    async fn remove(&self, nodes: &mut Nodes, (node, gone): (NodeName, Gone)) {
        // A list that is doubted is no evidence that the node is gone, and a database that is
        // another cluster's has other nodes of the same name.
        let may_remove = {
            let progress = self.progress.borrow();
            self.leadership.is_leader()
                && self.doubted.borrow().is_none()
                && progress.ever_converged
                && progress.blocked.is_none()
        };
        if may_remove {
            let of = nodes.chassis_of(&node, &gone);
            match timeout(PATIENCE, from_southbound(&self.southbound, &of)).await {
                Ok(Ok(removed)) => {
                    for row in removed.removed {
                        tracing::info!(%node, row, "removed a row of a deleted node from the southbound database");
                    }
                    return;
                }
                Ok(Err(error)) => {
                    tracing::warn!(%node, %error, "the chassis of a deleted node stays for now")
                }
                Err(_) => tracing::debug!(%node, "the southbound database does not answer"),
            }
        }
        nodes.again(node, gone, Instant::now());
    }
}

impl Nodes {
    fn observe(&mut self, seen: Seen<NodeName, Node>, now: Instant) {
        match seen {
            Seen::Applied(node) => self.put(node),
            Seen::Deleted(name) => self.remove(&name, now),
            // No evidence that a node is gone.
            Seen::Unlisted(_) => {}
            Seen::All(nodes) => {
                let listed: BTreeSet<NodeName> =
                    nodes.iter().map(|node| Arc::clone(&node.name)).collect();
                let missing: Vec<NodeName> =
                    self.there.keys().filter(|name| !listed.contains(*name)).cloned().collect();
                missing.iter().for_each(|name| self.remove(name, now));
                nodes.into_iter().for_each(|node| self.put(node));
            }
        }
    }

    fn put(&mut self, node: Node) {
        self.gone.remove(&node.name);
        let known = self.there.entry(node.name).or_default();
        // An annotation that is missing for a moment says nothing.
        if let Some(chassis) = node.chassis {
            *known = Some(chassis.into());
        }
    }

    fn remove(&mut self, name: &NodeName, now: Instant) {
        if let Some(chassis) = self.there.remove(name)
            && self.gone.len() < MOST
        {
            self.gone.insert(Arc::clone(name), Gone { chassis, due: now + GRACE });
        }
    }

    fn again(&mut self, name: NodeName, gone: Gone, now: Instant) {
        self.gone.insert(name, Gone { due: now + AGAIN, ..gone });
    }

    fn due(&self) -> Option<Instant> {
        self.gone.values().map(|gone| gone.due).min()
    }

    fn take_due(&mut self, now: Instant) -> Vec<(NodeName, Gone)> {
        let due: Vec<NodeName> = self
            .gone
            .iter()
            .filter(|(_, gone)| gone.due <= now)
            .map(|(name, _)| Arc::clone(name))
            .collect();
        due.into_iter().filter_map(|name| self.gone.remove_entry(&name)).collect()
    }

    /// What is the node's in the southbound database. A node names its own chassis, so the name
    /// counts only if no other node has it.
    fn chassis_of(&self, node: &NodeName, gone: &Gone) -> ChassisOf {
        let names = gone
            .chassis
            .iter()
            .filter(|name| !self.there.values().flatten().any(|chassis| chassis == *name));
        ChassisOf {
            node: Arc::clone(node),
            names: names.map(|name| name.to_string()).collect(),
            others: self.there.keys().map(|name| name.to_string()).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(name: &str, chassis: &str) -> Node {
        Node { chassis: Some(chassis.to_owned()), ..Node::named(name) }
    }

    #[tokio::test(start_paused = true)]
    async fn a_node_that_comes_back_within_the_grace_keeps_its_chassis() {
        let (mut nodes, begun) = (Nodes::default(), Instant::now());
        nodes.observe(Seen::All(vec![node("a", "ca"), node("b", "cb")]), begun);
        nodes.observe(Seen::Deleted("a".into()), begun);
        // The list of a watch that was lost lacks the other one.
        nodes.observe(Seen::All(Vec::new()), begun);
        assert_eq!(nodes.due(), Some(begun + GRACE));
        nodes.observe(Seen::Applied(Node::named("a")), begun);
        let due = nodes.take_due(begun + GRACE);
        assert_eq!(due.iter().map(|(name, _)| &**name).collect::<Vec<_>>(), ["b"]);
        assert_eq!((nodes.due(), nodes.there["a"].clone()), (None, None));
    }

    /// A node writes the name of its chassis itself: with another node's, and its own end, that
    /// node would lose its tunnels.
    #[tokio::test(start_paused = true)]
    async fn the_chassis_of_another_node_is_not_taken_from_it() {
        let (mut nodes, begun) = (Nodes::default(), Instant::now());
        nodes.observe(Seen::All(vec![node("a", "cb"), node("b", "cb")]), begun);
        nodes.observe(Seen::Deleted("a".into()), begun);
        let [(name, gone)] = &nodes.take_due(begun + GRACE)[..] else { panic!("one") };
        let of = nodes.chassis_of(name, gone);
        assert_eq!((of.names.len(), of.others), (0, ["b".to_owned()].into()));
    }
}
