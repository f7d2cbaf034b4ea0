//! Nodes whose annotations suddenly name another chassis or zone. A garbled text may be a name,
//! too, and the node's server writes the right one again within a moment; so such a change counts
//! once it has lasted for a while. A node that comes into the zone needs no such patience, for
//! nothing is removed for it; one that comes again and again waits longer each time, because its
//! rows are written and removed each time. Knows no rows.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use tokio::time::Instant;

use crate::{edit_pauses::EditPauses, key::NodeName, kinds::node::object::Node, world::Store};

/// How long a node has to say that it has another chassis or is in another zone. The server of a
/// node that works writes its own within a tenth of a second. Ten times as long would only keep a
/// node that really moves without its routes.
pub const HOLD: Duration = Duration::from_secs(3);

/// How often a node may come into this zone without a pause. A move is one time, and one more for
/// each time that the node's server is killed meanwhile.
const FREE: u32 = 5;

/// The nodes whose change is held back, as they are now, and until when.
#[derive(Debug)]
pub(crate) struct HeldChanges {
    held: BTreeMap<NodeName, (Node, Instant)>,
    /// Between the arrivals of a node in this zone.
    arrivals: EditPauses,
}

/// A node as it counts now.
#[derive(Debug)]
pub(crate) struct CountedNode {
    pub(crate) node: Node,
    /// Whether it waits because it has come too often, and has not been told.
    pub(crate) comes_often: bool,
}

impl Default for HeldChanges {
    fn default() -> Self {
        Self { held: BTreeMap::new(), arrivals: EditPauses::after(FREE) }
    }
}

impl HeldChanges {
    /// The node as it counts now, given how it counted before: without another chassis, or a zone
    /// that takes it out of this one, so that the former value stays in force; and where it was,
    /// if it comes too often. `hold`: how long the former two have to last.
    pub(crate) fn judge(
        &mut self,
        store: &Store,
        node: Node,
        hold: Duration,
        now: Instant,
    ) -> CountedNode {
        let as_it_is = |node| CountedNode { node, comes_often: false };
        let before = store.node(&node.name).filter(|before| before.uid == node.uid);
        let held = self.held.remove(&node.name);
        let Some(before) = before else { return as_it_is(node) };
        let own = &store.config.zone;
        let other_chassis =
            node.chassis.is_some() && before.chassis.is_some() && node.chassis != before.chassis;
        // A node that has said where it goes to is expected there.
        let leaves =
            node.zone.as_ref().is_some_and(|zone| zone != own) && before.next_zone != node.zone;
        let is_held = other_chassis || leaves && before.zone.clone().unwrap_or_default() == *own;
        if !is_held && !store.arrives(before, &node) {
            return as_it_is(node);
        }
        let mut counted = node.clone();
        let mut until = None;
        if is_held {
            let is_leaving = node.zone.as_ref().is_some_and(|zone| zone != own);
            (counted.chassis, counted.zone, counted.is_leaving) = (None, None, is_leaving);
            // Another value begins anew; the same one goes on.
            let same = held.filter(|(held, _)| {
                (&held.chassis, &held.zone, &held.uid) == (&node.chassis, &node.zone, &node.uid)
            });
            until = Some(same.map_or(now + hold, |(_, until)| until));
        }
        let mut comes_often = false;
        if store.arrives(before, &counted) {
            match self.arrivals.until(&node.name, now) {
                Some(rest) => {
                    counted.zone.clone_from(&before.zone);
                    counted.next_zone.clone_from(&before.next_zone);
                    counted.is_leaving = before.is_leaving;
                    until = until.max(Some(rest));
                    comes_often = self.arrivals.is_to_be_told(&node.name);
                }
                None => self.arrived(&node.name, now),
            }
        }
        if let Some(until) = until {
            self.held.insert(Arc::clone(&node.name), (node, until));
        }
        CountedNode { node: counted, comes_often }
    }

    /// The node's rows come into this zone's database.
    pub(crate) fn arrived(&mut self, name: &NodeName, now: Instant) {
        self.arrivals.forget(now);
        self.arrivals.edited(name, now);
    }

    pub(crate) fn gone(&mut self, name: &str) {
        self.held.remove(name);
    }

    /// Removes and returns the nodes whose change has lasted long enough.
    pub(crate) fn take_over(&mut self, now: Instant) -> Vec<Node> {
        let over = self.held.values().filter(|(_, until)| *until <= now);
        let over: Vec<Node> = over.map(|(node, _)| node.clone()).collect();
        self.held.retain(|_, (_, until)| *until > now);
        over
    }

    /// The earliest deadline.
    pub(crate) fn next(&self) -> Option<Instant> {
        self.held.values().map(|(_, until)| *until).min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        config::{ClusterConfig, Interconnect, Zone},
        watch_event::{Seen, WatchEvent},
    };

    fn zone(name: &str) -> Option<Zone> {
        Some(Zone(name.to_owned()))
    }

    /// A store of zone `b` with a node of zone `a`, and how the node is seen.
    struct Seer {
        store: Store,
        changes: HeldChanges,
        now: Instant,
        arrivals: usize,
        told: usize,
    }

    impl Seer {
        fn new() -> Self {
            let config = ClusterConfig {
                zone: Zone("b".to_owned()),
                interconnect: Interconnect::On,
                ..ClusterConfig::default()
            };
            let (store, changes) = (Store::new(config), HeldChanges::default());
            let mut seer = Self { store, changes, now: Instant::now(), arrivals: 0, told: 0 };
            seer.observe(node("a", None));
            seer
        }

        fn is_here(&self) -> bool {
            self.store.is_local("n1")
        }

        fn observe(&mut self, node: Node) {
            let comes = |store: &Store| store.node("n1").is_some_and(|node| store.is_coming(node));
            let (was_here, came) = (self.is_here(), comes(&self.store));
            self.store.observe(WatchEvent::Nodes(Seen::Applied(node)), &mut |_, _| {});
            let arrives = self.is_here() && !was_here || comes(&self.store) && !came;
            self.arrivals += usize::from(arrives);
        }

        /// The node says this after a while.
        fn says(&mut self, name: &str, next: Option<&str>, after: Duration) {
            let end = self.now + after;
            while let Some(until) = self.changes.next().filter(|until| *until <= end) {
                self.now = until.max(self.now);
                for node in self.changes.take_over(self.now) {
                    if self.store.node("n1").is_some_and(|now| self.store.arrives(now, &node)) {
                        self.changes.arrived(&node.name, self.now);
                    }
                    self.observe(node);
                }
            }
            self.now = end;
            let seen = self.changes.judge(&self.store, node(name, next), HOLD, self.now);
            self.told += usize::from(seen.comes_often);
            self.observe(seen.node);
        }
    }

    fn node(name: &str, next: Option<&str>) -> Node {
        Node { zone: zone(name), next_zone: next.and_then(zone), ..Node::named("n1") }
    }

    #[test]
    fn a_node_that_moves_there_and_back_is_never_held_up() {
        let mut seer = Seer::new();
        let step = Duration::from_secs(1);
        for round in 0..5 {
            seer.says("a", Some("b"), step);
            assert!(seer.is_here(), "round {round}");
            seer.says("b", Some("b"), step);
            seer.says("b", None, step);
            assert!(seer.is_here(), "round {round}");
            seer.says("b", Some("a"), step);
            seer.says("a", None, step);
            assert!(!seer.is_here(), "round {round}");
        }
        assert_eq!((seer.arrivals, seer.told), (5, 0));
    }

    /// Each change had the node's rows written or removed, for as long as the node liked.
    #[test]
    fn a_node_that_comes_and_goes_again_and_again_comes_more_and_more_slowly() {
        for (here, away) in [
            (("a", Some("b")), ("a", None)),
            (("b", Some("c")), ("c", None)),
            (("b", Some("a")), ("a", Some("b"))),
        ] {
            let mut seer = Seer::new();
            let step = Duration::from_millis(50);
            // Ten minutes.
            for _ in 0..6_000 {
                seer.says(here.0, here.1, step);
                seer.says(away.0, away.1, step);
            }
            // Some fifteen in the first minute and a half, then one or two a minute.
            assert!((15..=35).contains(&seer.arrivals), "{here:?}: {}", seer.arrivals);
            assert!((9..=30).contains(&seer.told), "{here:?}: {}", seer.told);
            // Left alone, it is where it says that it is.
            seer.says(here.0, here.1, step);
            seer.says(here.0, here.1, Duration::from_secs(61));
            assert!(seer.is_here(), "{here:?}");
        }
    }
}
