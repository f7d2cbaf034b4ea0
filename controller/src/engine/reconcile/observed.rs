//! What comes from the API server, on its way to the store: kept until the store may decide, and
//! without what a node says of itself only for a moment. And what time alone decides.

use std::collections::{BTreeMap, HashMap};

use tokio::time::Instant;

use crate::{
    cluster_id::ClusterId,
    engine::reconcile::{Reconciler, moves::CountedNode},
    kinds::node::object::Node,
    watch_event::{Seen, Subject, WatchEvent},
};

/// Observations from before this process may decide on anything, which can be hours: of each object
/// the last one.
#[derive(Debug, Default)]
pub(crate) struct EarlyEvents {
    /// By the order in which they came.
    all: BTreeMap<u64, WatchEvent>,
    next: u64,
    /// Where the last event of an object is.
    events: HashMap<Subject, u64>,
    /// The cluster that was told last.
    cluster: Option<ClusterId>,
}

impl EarlyEvents {
    pub(crate) fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    fn add(&mut self, observation: WatchEvent) {
        // The cluster that the lists are of is told before them, and again later. Another one is
        // news, and so is the first one again.
        if let WatchEvent::Cluster(id) = &observation {
            if self.cluster.as_ref() == Some(id) {
                return;
            }
            self.cluster = Some(id.clone());
        }
        let before = match observation.subject() {
            Some(Subject::Cluster) => None,
            Some(subject) => self.events.insert(subject, self.next),
            // A list replaces all that came before it. The wait for the right cluster may see many.
            None => {
                self.all.retain(|_, seen| !observation.replaces(seen));
                let all = &self.all;
                self.events.retain(|_, place| all.contains_key(place));
                None
            }
        };
        before.into_iter().for_each(|place| drop(self.all.remove(&place)));
        self.all.insert(self.next, observation);
        self.next += 1;
    }

    /// In the order in which they came.
    pub(crate) fn into_iter(self) -> impl Iterator<Item = WatchEvent> {
        self.all.into_values()
    }
}

impl Reconciler {
    pub(crate) fn observed(&mut self, observation: WatchEvent) {
        if let WatchEvent::Cluster(id) = &observation {
            self.cluster.told(id.clone());
        }
        // Until `begin`, the store must not decide on anything: it does not know the addresses in
        // use.
        if let Some(early) = &mut self.early {
            early.add(observation);
            return;
        }
        self.note_requests(&observation);
        let observation = self.hold_moves(observation);
        self.follow(|store, dirty| store.observe(observation, dirty));
        self.set_deadlines();
    }

    /// Sets the deadlines of what is in a state that must not last.
    pub(crate) fn set_deadlines(&mut self) {
        let now = Instant::now();
        self.absences.set_active(self.store.absent(), now);
        self.graces.set_active(self.store.in_grace(), now);
        self.unread.set_active(&self.store.unread(), now);
    }

    /// Takes another chassis or zone of a node out of the observation, until it has lasted.
    fn hold_moves(&mut self, observation: WatchEvent) -> WatchEvent {
        let (now, hold) = (Instant::now(), self.hold);
        let Self { store, moves, .. } = self;
        let mut judge = |node: Node| {
            let CountedNode { node, comes_often } = moves.judge(store, node, hold, now);
            if comes_often {
                store.report_zone_changes(&node);
            }
            node
        };
        match observation {
            WatchEvent::Nodes(Seen::All(nodes)) => {
                WatchEvent::Nodes(Seen::All(nodes.into_iter().map(judge).collect()))
            }
            WatchEvent::Nodes(Seen::Applied(node)) => WatchEvent::Nodes(Seen::Applied(judge(node))),
            WatchEvent::Nodes(Seen::Deleted(name)) => {
                moves.gone(&name);
                WatchEvent::Nodes(Seen::Deleted(name))
            }
            other => other,
        }
    }

    /// Takes over what nodes have said for long enough.
    pub(crate) fn accept_moves(&mut self) {
        let now = Instant::now();
        for node in self.moves.take_over(now) {
            // The node may have gone with a list.
            let known = self.store.node(&node.name).filter(|known| known.uid == node.uid);
            if let Some(known) = known {
                if self.store.arrives(known, &node) {
                    self.moves.arrived(&node.name, now);
                }
                tracing::warn!(
                    node = %node.name,
                    chassis = ?node.chassis,
                    zone = ?node.zone,
                    "a node has another chassis or is in another zone"
                );
                self.follow(|store, dirty| {
                    store.observe(WatchEvent::Nodes(Seen::Applied(node)), dirty);
                });
            }
        }
    }

    /// Treats static pods as gone whose mirror pods have not come back in time, and Services as
    /// awake. Goes on without kinds of objects that cannot be read.
    pub(crate) fn pass_deadlines(&mut self) {
        for pod in self.absences.take_over(Instant::now()) {
            self.follow(|store, dirty| store.is_gone(&pod, dirty));
        }
        for service in self.graces.take_over(Instant::now()) {
            self.follow(|store, dirty| store.is_awake(&service, dirty));
        }
        for kind in self.unread.take_over(Instant::now()) {
            tracing::warn!(
                %kind,
                "objects of this kind cannot be read: their rows in the northbound database stay as they are, and \
                 everything else goes on without them"
            );
            let sets: Vec<_> = self.northbound.sets().collect();
            self.follow(|store, dirty| store.go_on_without(kind, sets, dirty));
        }
    }
}

#[cfg(test)]
mod tests {
    use contract::names::PodKey;

    use super::*;
    use crate::kinds::pod::object::Pod;

    fn pod(name: &str, uid: usize) -> WatchEvent {
        let key = PodKey::new("shop", name).unwrap();
        WatchEvent::Pods(Seen::Applied((key, Pod::with_uid(&uid.to_string()))))
    }

    /// A leader that began without its database was killed after a night, for each event that it
    /// kept.
    #[test]
    fn of_a_thousand_events_of_an_object_the_last_one_is_kept_in_its_place() {
        let mut early = EarlyEvents::default();
        early.add(WatchEvent::Pods(Seen::All(Vec::new())));
        for uid in 0..1000 {
            early.add(pod("a", uid));
            early.add(WatchEvent::Nodes(Seen::Applied(Node::named("n1"))));
        }
        early.add(pod("b", 7));
        early.add(WatchEvent::Cluster(None));
        early.add(WatchEvent::Cluster(None));
        let kept: Vec<WatchEvent> = early.into_iter().collect();
        let last = |at: usize| match &kept[at] {
            WatchEvent::Pods(Seen::Applied((key, pod))) => format!("{key} {}", pod.uid),
            other => format!("{other:?}"),
        };
        assert_eq!(kept.len(), 5, "{kept:?}");
        assert!(
            matches!(&kept[0], WatchEvent::Pods(Seen::All(_)))
                && matches!(&kept[2], WatchEvent::Nodes(_))
        );
        assert_eq!([last(1), last(3)], ["shop/a 999", "shop/b 7"]);
    }

    #[test]
    fn a_list_takes_the_place_of_the_events_of_its_kind_before_it() {
        let mut early = EarlyEvents::default();
        early.add(pod("a", 1));
        early.add(WatchEvent::Nodes(Seen::Deleted("n1".into())));
        early.add(WatchEvent::Pods(Seen::All(Vec::new())));
        early.add(pod("a", 2));
        let kept: Vec<WatchEvent> = early.into_iter().collect();
        assert!(matches!(
            &kept[..],
            [
                WatchEvent::Nodes(Seen::Deleted(_)),
                WatchEvent::Pods(Seen::All(_)),
                WatchEvent::Pods(Seen::Applied(_))
            ]
        ));
    }
}
