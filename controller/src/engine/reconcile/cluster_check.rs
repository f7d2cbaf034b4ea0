//! Whether the northbound database is that of the API server's cluster. A controller that is
//! pointed at the database of another cluster would replace all of its rows.
//!
//! Both tell an identity: the API server the uid of a namespace, the database what a controller has
//! recorded. If the database has none, its rows are compared with the cluster's nodes and pods.
//! Decides nothing: the reconciler writes nothing as long as there is a reason against it.

use std::sync::Arc;

use crate::{
    cluster_id::ClusterId,
    engine::northbound::{CLUSTER_ID, Northbound},
    safety_brake::{Example, HeldLists, OtherCluster},
    world::Store,
};

/// What is known of the API server's cluster.
#[derive(Debug, Default)]
pub(crate) struct ClusterCheck {
    /// The identity that the API server tells; none before it was asked.
    api_server: Option<ClusterId>,
    /// Why the rows in the database, which does not say whose it is, cannot be this cluster's.
    unknown_rows: Option<String>,
}

impl ClusterCheck {
    /// The API server has told its identity.
    pub(crate) fn told(&mut self, id: ClusterId) {
        self.api_server = Some(id);
    }

    /// Whether the API server was asked.
    pub(crate) fn has_asked(&self) -> bool {
        self.api_server.is_some()
    }

    /// Whether the database belongs to the API server's cluster. True if one of the two does not
    /// tell its identity; false before the API server was asked.
    pub(crate) fn is_own(&self, northbound: &Northbound) -> bool {
        let Some(api_server) = &self.api_server else { return false };
        let recorded = recorded(northbound);
        recorded
            .zip(api_server.as_ref())
            .is_none_or(|(database, api_server)| database == *api_server)
    }

    /// Why the database is not this cluster's, once this process has written to it; none if it is,
    /// or if it cannot be known. The process knows its cluster then; not while the API server is
    /// another one's.
    pub(crate) fn another(&self, northbound: &Northbound, store: &Store) -> Option<String> {
        self.other_than(store.cluster_id()?, northbound)
    }

    /// The same before the first write, when the API server's word stands against the database's.
    pub(crate) fn another_at_first(&self, northbound: &Northbound) -> Option<String> {
        self.other_than(self.api_server.as_ref()?.as_ref()?, northbound)
    }

    fn other_than(&self, own: &Arc<str>, northbound: &Northbound) -> Option<String> {
        match recorded(northbound) {
            Some(recorded) if recorded != *own => Some(format!(
                "the northbound database was written for the cluster {recorded} (external_ids:{CLUSTER_ID} \
                 of ovn_cluster_router), and this is {own} (uid of the namespace kube-system): nothing in it \
                 is changed"
            )),
            Some(_) => None,
            None => self.unknown_rows.clone(),
        }
    }

    /// Compares the rows of a database that does not say whose it is with a store that is complete:
    /// they cannot be this cluster's if the API server knows none of all nodes and pods in it. A
    /// second list would say the same.
    pub(crate) fn compare_rows(&mut self, northbound: &Northbound, store: &Store) {
        self.unknown_rows = unknown_rows(northbound, store);
    }

    /// The doubt before the first write, while the store knows nothing: the API server and the
    /// database belong to different clusters. While it lasts, the identity is read again.
    pub(crate) fn other_api_server(&self, northbound: &Northbound) -> Option<HeldLists> {
        let own = recorded(northbound)?;
        let seen = self.api_server.as_ref()?.as_ref().filter(|seen| **seen != own)?;
        Some(HeldLists {
            other_cluster: Some(OtherCluster { own, seen: Arc::clone(seen) }),
            example: northbound
                .nodes()
                .next()
                .map(|name| Example { name: name.clone(), uid: None }),
            ..HeldLists::default()
        })
    }
}

/// The cluster that the database says that it was written for.
pub(crate) fn recorded(northbound: &Northbound) -> ClusterId {
    northbound.cluster_router().and_then(|router| northbound.cluster_id(router))
}

fn unknown_rows(northbound: &Northbound, store: &Store) -> Option<String> {
    let own = store.cluster_id().filter(|_| recorded(northbound).is_none())?;
    let (mut nodes, mut pods, mut is_known) = (0, 0, false);
    for (key, port) in northbound.pod_ports() {
        pods += 1;
        is_known |= store.pod(key).is_some_and(|pod| pod.is_of(port.uid.as_ref()));
    }
    for name in northbound.nodes() {
        nodes += 1;
        // Names of nodes are alike in many clusters, so they count only where there are hardly any
        // pods.
        is_known |= pods < 2 && store.node(name).is_some();
    }
    (nodes + pods > 0 && !is_known).then(|| {
        format!(
            "the northbound database has {nodes} nodes and {pods} ports of pods, none of which this cluster \
             has: nothing in it is changed; if it is this cluster's, run: ovn-nbctl --may-exist lr-add \
             ovn_cluster_router -- set Logical_Router ovn_cluster_router external_ids:{CLUSTER_ID}={own}"
        )
    })
}
