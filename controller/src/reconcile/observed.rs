//! What comes from the API server, on its way to the store: kept until the store may decide, and without what
//! a node says of itself only for a moment. And what time alone decides.

use std::collections::{BTreeMap, HashMap};

use tokio::time::Instant;

use super::Reconciler;
use crate::{
    cluster_id::ClusterId,
    observation::{Observation, Seen, Subject},
    store::Node,
};

/// Observations from before this process may decide on anything, which can be hours: of each object the last
/// one.
#[derive(Debug, Default)]
pub(super) struct EarlyObservations {
    /// By the order in which they came.
    all: BTreeMap<u64, Observation>,
    next: u64,
    /// Where the last event of an object is.
    events: HashMap<Subject, u64>,
    /// The cluster that was told last.
    cluster: Option<ClusterId>,
}

impl EarlyObservations {
    pub(super) fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    fn add(&mut self, observation: Observation) {
        // The cluster that the lists are of is told before them, and again later. Another one is news, and so is
        // the first one again.
        if let Observation::Cluster(id) = &observation {
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
    pub(super) fn into_iter(self) -> impl Iterator<Item = Observation> {
        self.all.into_values()
    }
}

impl Reconciler {
    pub(super) fn observed(&mut self, observation: Observation) {
        if let Observation::Cluster(id) = &observation {
            self.cluster.told(id.clone());
        }
        // Until `begin`, the store must not decide on anything: it does not know the addresses in use.
        if let Some(early) = &mut self.early {
            early.add(observation);
            return;
        }
        let observation = self.hold_moves(observation);
        self.follow(|store, dirty| store.observe(observation, dirty));
        self.set_deadlines();
    }

    /// Sets the deadlines of what is in a state that must not last.
    pub(super) fn set_deadlines(&mut self) {
        let now = Instant::now();
        self.absences.are(self.store.absent(), now);
        self.graces.are(self.store.in_grace(), now);
        self.unread.are(&self.store.unread(), now);
    }

    /// Takes another chassis or zone of a node out of the observation, until it has lasted.
    fn hold_moves(&mut self, observation: Observation) -> Observation {
        let until = Instant::now() + self.hold;
        let Self { store, moves, .. } = self;
        let mut judge = |node: Node| {
            let before = store.node(&node.name);
            moves.judge(before, node, &store.config.zone, until)
        };
        match observation {
            Observation::Nodes(Seen::All(nodes)) => {
                Observation::Nodes(Seen::All(nodes.into_iter().map(judge).collect()))
            }
            Observation::Nodes(Seen::Applied(node)) => Observation::Nodes(Seen::Applied(judge(node))),
            Observation::Nodes(Seen::Deleted(name)) => {
                moves.gone(&name);
                Observation::Nodes(Seen::Deleted(name))
            }
            other => other,
        }
    }

    /// Takes over what nodes have said for long enough.
    pub(super) fn accept_moves(&mut self) {
        for node in self.moves.take_over(Instant::now()) {
            // The node may have gone with a list.
            if self.store.node(&node.name).is_some_and(|known| known.uid == node.uid) {
                tracing::warn!(
                    node = %node.name,
                    chassis = ?node.chassis,
                    zone = ?node.zone,
                    "a node has another chassis or is in another zone"
                );
                self.follow(|store, dirty| {
                    store.observe(Observation::Nodes(Seen::Applied(node)), dirty);
                });
            }
        }
    }

    /// Treats static pods as gone whose mirror pods have not come back in time, and Services as awake. Goes
    /// on without kinds of objects that cannot be read.
    pub(super) fn pass_deadlines(&mut self) {
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
    use crate::store::Pod;

    fn pod(name: &str, uid: usize) -> Observation {
        let key = PodKey::new("shop", name).unwrap();
        Observation::Pods(Seen::Applied((key, Pod::with_uid(&uid.to_string()))))
    }

    /// A leader that began without its database was killed after a night, for each event that it kept.
    #[test]
    fn of_a_thousand_events_of_an_object_the_last_one_is_kept_in_its_place() {
        let mut early = EarlyObservations::default();
        early.add(Observation::Pods(Seen::All(Vec::new())));
        for uid in 0..1000 {
            early.add(pod("a", uid));
            early.add(Observation::Nodes(Seen::Applied(Node::named("n1"))));
        }
        early.add(pod("b", 7));
        early.add(Observation::Cluster(None));
        early.add(Observation::Cluster(None));
        let kept: Vec<Observation> = early.into_iter().collect();
        let last = |at: usize| match &kept[at] {
            Observation::Pods(Seen::Applied((key, pod))) => format!("{key} {}", pod.uid),
            other => format!("{other:?}"),
        };
        assert_eq!(kept.len(), 5, "{kept:?}");
        assert!(
            matches!(&kept[0], Observation::Pods(Seen::All(_))) && matches!(&kept[2], Observation::Nodes(_))
        );
        assert_eq!([last(1), last(3)], ["shop/a 999", "shop/b 7"]);
    }

    #[test]
    fn a_list_takes_the_place_of_the_events_of_its_kind_before_it() {
        let mut early = EarlyObservations::default();
        early.add(pod("a", 1));
        early.add(Observation::Nodes(Seen::Deleted("n1".into())));
        early.add(Observation::Pods(Seen::All(Vec::new())));
        early.add(pod("a", 2));
        let kept: Vec<Observation> = early.into_iter().collect();
        assert!(matches!(
            &kept[..],
            [
                Observation::Nodes(Seen::Deleted(_)),
                Observation::Pods(Seen::All(_)),
                Observation::Pods(Seen::Applied(_))
            ]
        ));
    }
}
