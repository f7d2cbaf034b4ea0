//! What comes from the API server, on its way to the store: kept until the store may decide, and without what
//! a node says of itself only for a moment. And what time alone decides.

use tokio::time::Instant;

use super::Reconciler;
use crate::{
    observation::{Observation, Seen},
    store::Node,
};

impl Reconciler {
    pub(super) fn observed(&mut self, observation: Observation) {
        if let Observation::Cluster(id) = &observation {
            self.cluster.told(id.clone());
        }
        // Until `begin`, the store must not decide on anything: it does not know the addresses in use.
        if let Some(early) = &mut self.early {
            // The wait for the right cluster may see many lists.
            early.retain(|seen| !observation.replaces(seen));
            early.push(observation);
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

    /// Treats static pods as gone whose mirror pods have not come back in time, and Services as awake. Goes on
    /// without kinds of objects that cannot be read.
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
