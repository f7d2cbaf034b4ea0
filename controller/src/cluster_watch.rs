//! The watches of the control plane: one per kind of object, shared by all parties.
//!
//! ```text
//! uid of kube-system ─▶ every party
//! watch of a kind ────▶ parties that want this kind
//!      ▲ list again                      │
//!      └──── second look ◀── a party doubts a list
//! ```
//!
//! A party is a role that receives observations: the cluster manager or the controller. This module
//! does not know what a party does with them.

use std::sync::Arc;

use contract::names::ClusterPolicyKind;
use kubeapi::{
    Connection,
    election::Leadership,
    metrics::Metrics,
    services::{RangeObject, ServiceObject, SliceObject},
    watch::{Seen, SyncStatus, Watch, Watched},
};
use tokio::{
    sync::{Mutex, mpsc::UnboundedSender, watch},
    task::JoinHandle,
};

use crate::{
    cluster_id,
    config::ClusterConfig,
    custom::{CustomWire, registry::of_kind},
    kinds::{
        cluster_policy::wire::{ClusterPolicyObject, OfAdmin, OfBaseline, OfCluster},
        namespace::wire::NamespaceObject,
        network_policy::{ledger::Ledger, wire::PolicyObject},
        node::wire::NodeObject,
        pod::wire::PodObject,
    },
    safety_brake::HeldLists,
    watch_event::{Kind, WatchEvent},
};

/// The watches; they end when this is dropped.
#[derive(Debug)]
pub struct ClusterWatch {
    watches: Vec<(&'static str, Watch)>,
    looking_again: JoinHandle<()>,
}

/// A subscriber of the watches: the cluster manager or the controller.
#[derive(Debug, Clone)]
pub struct Subscriber {
    pub observations: UnboundedSender<WatchEvent>,
    /// The kinds of objects that it subscribes to.
    pub wants: &'static [Kind],
    /// The lists that the party doubts; none if it believes all.
    pub doubted: watch::Receiver<Option<HeldLists>>,
}

/// What all watches need.
struct Shared<'a> {
    api: &'a Connection,
    leadership: &'a Leadership,
    metrics: &'a Metrics,
    parties: &'a [Subscriber],
    cluster: &'a Arc<ClusterConfig>,
    /// URL of the API server whose cluster's identity the parties know.
    identified: Arc<Mutex<Option<String>>>,
}

impl ClusterWatch {
    /// Starts the watches that at least one party wants; they begin when this process leads. Each
    /// party receives the identity of the cluster before anything else, and again with each second
    /// look. Returns at once. Needs a tokio runtime.
    pub fn start(
        api: &Connection,
        leadership: &Leadership,
        metrics: &Metrics,
        cluster: &ClusterConfig,
        parties: &[Subscriber],
    ) -> Self {
        let cluster = &Arc::new(cluster.clone());
        let shared =
            Shared { api, leadership, metrics, parties, cluster, identified: Arc::default() };
        let watches: Vec<_> = Kind::ALL
            .iter()
            .filter_map(|kind| match kind {
                Kind::Node => shared.watch::<NodeObject>(*kind, WatchEvent::Nodes),
                Kind::Namespace => shared.watch::<NamespaceObject>(*kind, WatchEvent::Namespaces),
                Kind::Policy => {
                    let mut ledger = Ledger::default();
                    shared.watch_short::<PolicyObject>(
                        *kind,
                        move |(key, policy)| ledger.enter(key.namespace(), policy),
                        WatchEvent::Policies,
                    )
                }
                Kind::ClusterPolicy(of) => match of {
                    ClusterPolicyKind::ClusterNetworkPolicy => shared
                        .watch::<ClusterPolicyObject<OfCluster>>(*kind, |seen| {
                            WatchEvent::ClusterPolicies(
                                ClusterPolicyKind::ClusterNetworkPolicy,
                                seen,
                            )
                        }),
                    ClusterPolicyKind::AdminNetworkPolicy => shared
                        .watch::<ClusterPolicyObject<OfAdmin>>(*kind, |seen| {
                            WatchEvent::ClusterPolicies(ClusterPolicyKind::AdminNetworkPolicy, seen)
                        }),
                    ClusterPolicyKind::BaselineAdminNetworkPolicy => shared
                        .watch::<ClusterPolicyObject<OfBaseline>>(*kind, |seen| {
                            WatchEvent::ClusterPolicies(
                                ClusterPolicyKind::BaselineAdminNetworkPolicy,
                                seen,
                            )
                        }),
                },
                Kind::Custom(of) => of_kind!(*of, K => {
                    shared.watch::<CustomWire<K>>(*kind, WatchEvent::custom)
                }),
                Kind::Pod => {
                    let cluster = Arc::clone(shared.cluster);
                    shared.watch_short::<PodObject>(
                        *kind,
                        move |(_, pod)| pod.shorten(&cluster),
                        WatchEvent::Pods,
                    )
                }
                Kind::Service => shared.watch::<ServiceObject>(*kind, WatchEvent::Services),
                Kind::Slice => shared.watch::<SliceObject>(*kind, WatchEvent::Slices),
                Kind::Range => shared.watch::<RangeObject>(*kind, WatchEvent::Ranges),
            })
            .collect();
        // One second look for all kinds: a list of pods is judged against the nodes, and the
        // identity concerns both.
        let doubts = parties.iter().map(|party| party.doubted.clone()).collect();
        let again = watches.iter().map(|(_, watch)| watch.prompt()).collect();
        let all = observers(parties);
        let looking_again = cluster_id::look_again(api.clone(), doubts, again, move |id| {
            tell(&all, WatchEvent::Cluster(id))
        });
        Self { watches, looking_again: tokio::spawn(looking_again) }
    }

    /// The sync status of each watch, by kind of object (`nodes`, `pods` and so on).
    pub fn sync_statuses(&self) -> Vec<(&'static str, watch::Receiver<SyncStatus>)> {
        self.watches.iter().map(|(kind, watch)| (*kind, watch.standing())).collect()
    }
}

impl Shared<'_> {
    /// Starts the watch of a kind, if a party wants it.
    fn watch<O: Watched>(
        &self,
        kind: Kind,
        observation: fn(Seen<O::Key, O::Value>) -> WatchEvent,
    ) -> Option<(&'static str, Watch)> {
        self.watch_short::<O>(kind, |_| (), observation)
    }

    /// The same for a kind with many objects: each is shortened as soon as it is read.
    fn watch_short<O: Watched>(
        &self,
        kind: Kind,
        shorten: impl FnMut(&mut O::Value) + Send + 'static,
        observation: fn(Seen<O::Key, O::Value>) -> WatchEvent,
    ) -> Option<(&'static str, Watch)> {
        let to = observers(self.parties.iter().filter(|party| party.wants.contains(&kind)));
        if to.is_empty() {
            return None;
        }
        // Every watch waits for the identity: a party has to know it before it judges a list. One
        // request for all of them.
        let (api, all, identified) =
            (self.api.clone(), observers(self.parties), Arc::clone(&self.identified));
        let identify = move || {
            let (api, all, identified) = (api.clone(), all.clone(), Arc::clone(&identified));
            async move {
                let mut identified = identified.lock().await;
                let url = api.url();
                if identified.as_ref() != Some(&url) {
                    tell(&all, WatchEvent::Cluster(cluster_id::first(&api).await));
                    *identified = Some(url);
                }
            }
        };
        let watch = Watch::start_leading::<O, _>(
            self.api.clone(),
            self.leadership.clone(),
            self.metrics.clone(),
            identify,
            shorten,
            move |seen| tell(&to, observation(seen)),
        );
        Some((O::KIND, watch))
    }
}

fn observers<'a>(
    parties: impl IntoIterator<Item = &'a Subscriber>,
) -> Vec<UnboundedSender<WatchEvent>> {
    parties.into_iter().map(|party| party.observations.clone()).collect()
}

impl Drop for ClusterWatch {
    fn drop(&mut self) {
        // Each `Watch` ends by its own `Drop`.
        self.looking_again.abort();
    }
}

/// Sends an observation to each party. A party whose channel is closed has ended, and is skipped.
fn tell(parties: &[UnboundedSender<WatchEvent>], observation: WatchEvent) {
    // A list of all pods is large: it is cloned for all parties but the last.
    let Some((last, others)) = parties.split_last() else { return };
    for party in others {
        let _ = party.send(observation.clone());
    }
    let _ = last.send(observation);
}
