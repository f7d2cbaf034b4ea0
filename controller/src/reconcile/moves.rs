//! Nodes whose annotations suddenly name another chassis or zone. A garbled text may be a name, too, and the
//! node's server writes the right one again within a moment; so such a change counts once it has lasted for a
//! while. Knows no rows.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use tokio::time::Instant;

use crate::{config::Zone, key::NodeName, store::Node};

/// How long a node has to say that it has another chassis or is in another zone. The server of a node that
/// works writes its own within a tenth of a second. Ten times as long would only keep a node that really
/// moves without its routes.
pub const HOLD: Duration = Duration::from_secs(3);

/// The nodes whose change is held back, as they are now, and until when. A node that comes into the zone
/// needs no patience: nothing is removed for it.
#[derive(Debug, Default)]
pub(super) struct Moves(BTreeMap<NodeName, (Node, Instant)>);

impl Moves {
    /// The node as it counts now, given how it counted before: without another chassis, or a zone that takes
    /// it out of the zone `own`, so that the former value stays in force.
    pub(super) fn judge(&mut self, before: Option<&Node>, node: Node, own: &Zone, until: Instant) -> Node {
        let differs = |before: &Node| {
            let other_chassis = node.chassis.is_some() && before.chassis.is_some();
            let leaves = node.zone.as_ref().is_some_and(|zone| zone != own);
            other_chassis && node.chassis != before.chassis
                || leaves && before.zone.clone().unwrap_or_default() == *own
        };
        if !before.filter(|before| before.uid == node.uid).is_some_and(differs) {
            self.0.remove(&node.name);
            return node;
        }
        let held = Node { chassis: None, zone: None, ..node.clone() };
        // Another value begins anew; the same one goes on.
        let same = self.0.get(&node.name).filter(|(held, _)| {
            (&held.chassis, &held.zone, &held.uid) == (&node.chassis, &node.zone, &node.uid)
        });
        let until = same.map_or(until, |(_, until)| *until);
        self.0.insert(Arc::clone(&node.name), (node, until));
        held
    }

    pub(super) fn gone(&mut self, name: &str) {
        self.0.remove(name);
    }

    /// Removes and returns the nodes whose change has lasted long enough.
    pub(super) fn take_over(&mut self, now: Instant) -> Vec<Node> {
        let over: Vec<Node> =
            self.0.values().filter(|(_, until)| *until <= now).map(|(node, _)| node.clone()).collect();
        self.0.retain(|_, (_, until)| *until > now);
        over
    }

    /// The earliest deadline.
    pub(super) fn next(&self) -> Option<Instant> {
        self.0.values().map(|(_, until)| *until).min()
    }
}
