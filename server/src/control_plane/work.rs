//! The roles at work: which parts of the package `controller` there are, and how they are joined.
//!
//! ```text
//! API server ─▶ ClusterWatch ─nodes─▶ ClusterManager ─▶ API server: annotations of nodes
//!                      │                    ▲ the database is this cluster's
//!                      └─nodes, pods─▶ Controller ─▶ northbound database
//!                                          └─▶ Writing ─▶ API server: annotations of pods
//! Leases ─▶ Campaign ─▶ Leadership: who may write
//! ```
//!
//! The database is copied before this process leads. Nodes and pods are read once it does: what the leader before wrote at last has to be
//! among what is read, or an address that it gave could be given twice.

use std::{sync::Arc, time::Duration};

use controller::{
    Controller,
    allocate::node_assignments::{NodeAssignments, NodeRules},
    annotate::Writing,
    cluster_manager::{ClusterManager, Told},
    cluster_watch::{ClusterWatch, Party, Wants},
    northbound,
    reconcile::{Progress, Stopped},
    store::Store,
};
use kubeapi::{
    Connection,
    election::{Campaign, Candidate, Candidates, Durations, Leadership, Lost, OwnLease},
    events::{Reporter, Teller},
};
use tokio::{
    sync::{mpsc::unbounded_channel, watch},
    task::JoinSet,
    time::timeout,
};

use super::{ControlPlaneConfig, Database, Election, readiness, reports};
use crate::{conditions::Conditions, metrics::ControlPlaneMetrics, process::host_lock};

/// Who tells the owners of nodes and pods.
const REPORTER: &str = "ovn-kubernetes/ovnkube-controller";

/// How long the reason for a lost leadership is waited for; nothing is written meanwhile.
const REASON: Duration = Duration::from_secs(1);

/// How long what is under way may take to end before the Lease is let go. An answer takes milliseconds where anything works.
const FINISH: Duration = Duration::from_secs(3);

/// Roles at work. Dropped, they end at once; the Lease then runs out.
#[derive(Debug)]
pub(super) struct Work {
    campaign: Option<Campaign>,
    leadership: Leadership,
    at_work: AtWork,
}

/// What ends before the Lease is let go.
#[derive(Debug)]
struct AtWork {
    cluster_manager: Option<ClusterManager>,
    /// Kept, for it ends when it is dropped.
    watch: Option<ClusterWatch>,
    writing: Option<Writing>,
    tasks: JoinSet<Task>,
}

/// Why the roles ended without having been told to.
#[derive(Debug, thiserror::Error)]
pub enum Ended {
    #[error("this process leads no longer")]
    Lost(#[from] Lost),
    #[error("a part of the control plane has ended, which is a defect of this program: {0}")]
    Defect(String),
}

/// How a task ended.
#[derive(Debug)]
enum Task {
    /// It tells of something else that has ended, which says so itself.
    Silent,
    Controller(Stopped),
}

/// What all parts share.
struct Shared<'a> {
    config: &'a ControlPlaneConfig,
    api: Connection,
    leadership: Leadership,
    teller: Teller,
    conditions: &'a Conditions,
    metrics: &'a Arc<ControlPlaneMetrics>,
}

impl Work {
    /// Begins; returns at once, whatever is there and whatever is not. Needs a tokio runtime.
    pub(super) fn start(
        config: &ControlPlaneConfig,
        connection: &Connection,
        conditions: &Conditions,
        metrics: &Arc<ControlPlaneMetrics>,
    ) -> Self {
        let api = connection.clone();
        let (leadership, campaign) = match &config.election {
            None => (Leadership::always(), None),
            Some(election) => {
                let candidates = election.candidates(&config.identity, config.pidfile.is_some());
                let (leadership, campaign) = Campaign::start(api.clone(), candidates, metrics.api_server.clone());
                (leadership, Some(campaign))
            }
        };
        let teller = Teller::start(api.clone(), Reporter { controller: REPORTER, instance: config.identity.clone() });
        let shared = Shared { config, api, leadership, teller, conditions, metrics };
        let at_work = AtWork::start(&shared);
        Self { campaign, leadership: shared.leadership, at_work }
    }

    /// Waits until the roles have ended by themselves. Cancellation-safe.
    pub(super) async fn ended(&mut self) -> Ended {
        let Self { campaign, at_work, leadership: _ } = self;
        match campaign {
            None => at_work.ended().await,
            Some(campaign) => {
                let ended = tokio::select! {
                    biased;
                    lost = campaign.lost() => return lost.into(),
                    ended = at_work.ended() => ended,
                };
                match ended {
                    // The campaign knows why; it may notice a moment later.
                    Ended::Lost(lost) => timeout(REASON, campaign.lost()).await.unwrap_or(lost).into(),
                    Ended::Defect(_) => ended,
                }
            }
        }
    }

    /// Ends the roles, and then lets go of the Lease: nothing is begun any more, what is under way is answered, and only then can another
    /// process lead. Takes some seconds at most.
    pub(super) async fn stop(self) {
        let Self { campaign, leadership, mut at_work } = self;
        leadership.resign();
        if timeout(FINISH, at_work.finish()).await.is_err() {
            tracing::warn!(patience = ?FINISH, "API server or database have not answered: what was asked of them may still be done");
        }
        at_work.tasks.shutdown().await;
        drop(at_work);
        if let Some(campaign) = campaign {
            campaign.release().await;
        }
    }
}

impl AtWork {
    fn start(shared: &Shared<'_>) -> Self {
        let Shared { config, api, leadership, conditions, metrics, .. } = shared;
        let mut at_work = Self { cluster_manager: None, watch: None, writing: None, tasks: JoinSet::new() };
        let mut parties = Vec::new();
        let (progress, progressed) = watch::channel(Progress::default());
        if let Some(database) = &config.northbound {
            parties.push(at_work.control(shared, database, progress));
        }
        if config.roles.has_cluster_manager() {
            let of_controller = config.northbound.as_ref().map(|_| progressed);
            parties.push(at_work.manage_cluster(shared, of_controller));
        }
        let watch = ClusterWatch::start(api, leadership, &metrics.api_server, &parties);
        let doubts = parties.into_iter().map(|party| party.doubted).collect();
        at_work.tell(readiness::cluster(watch.standings(), doubts, leadership.clone(), (*conditions).clone()));
        at_work.watch = Some(watch);
        if config.election.is_some() {
            at_work.tell(readiness::election(leadership.clone(), (*conditions).clone(), Arc::clone(metrics)));
        }
        at_work
    }

    /// `of_controller`: of the one in this process, which knows whose the database is.
    fn manage_cluster(&mut self, shared: &Shared<'_>, of_controller: Option<watch::Receiver<Progress>>) -> Party {
        let Shared { config, api, leadership, teller, conditions: _, metrics } = shared;
        let (observed, observations) = unbounded_channel();
        let assignments = NodeAssignments::new(config.cluster.clone(), NodeRules { without_subnet: config.foreign_nodes.clone() });
        let told = Told { api: api.clone(), leadership: leadership.clone(), teller: teller.clone(), observations };
        let believed = is_own_cluster(of_controller);
        let manager = ClusterManager::start(told, assignments, believed, metrics.annotations.clone(), metrics.cluster_manager.clone());
        let doubted = manager.doubted();
        self.cluster_manager = Some(manager);
        Party { observations: observed, wants: Wants::Nodes, doubted }
    }

    fn control(&mut self, shared: &Shared<'_>, database: &Database, progress: watch::Sender<Progress>) -> Party {
        let Shared { config, api, leadership, teller, conditions, metrics } = shared;
        let (observed, observations) = unbounded_channel();
        let (annotations, wishes) = unbounded_channel();
        let (reports, reported) = unbounded_channel();
        let (doubts, doubted) = watch::channel(None);
        let progressed = progress.subscribe();
        let (client, updates) = northbound::connect(database.endpoints.clone(), database.options());
        self.writing = Some(Writing::start(api.clone(), leadership.clone(), teller.clone(), metrics.annotations.clone(), wishes));
        self.tell(reports::tell(reported, teller.clone(), doubts));
        self.tell(readiness::northbound(client.state(), (*conditions).clone()));
        self.tell(readiness::rows(leadership.clone(), progressed, (*conditions).clone()));
        let controller = Controller {
            store: Store::new(config.cluster.clone()),
            observations,
            annotations,
            northbound: updates,
            leadership: leadership.clone(),
            reports,
            progress,
            metrics: metrics.rows.clone(),
        };
        self.tasks.spawn(async move { Task::Controller(controller.run().await) });
        Party { observations: observed, wants: Wants::NodesAndPods, doubted }
    }

    /// Waits until nothing that the roles have begun to write is under way. Cancellation-safe.
    async fn finish(&mut self) {
        let Self { cluster_manager, writing, tasks, watch: _ } = self;
        if let Some(manager) = cluster_manager {
            manager.ended().await;
        }
        if let Some(writing) = writing {
            // There is a controller, too.
            while !matches!(tasks.join_next().await, None | Some(Ok(Task::Controller(_)) | Err(_))) {}
            writing.ended().await;
        }
    }

    /// Runs something that tells others, and is not missed when it ends.
    fn tell(&mut self, telling: impl Future<Output = ()> + Send + 'static) {
        self.tasks.spawn(async move {
            telling.await;
            Task::Silent
        });
    }

    async fn ended(&mut self) -> Ended {
        loop {
            match self.tasks.join_next().await {
                Some(Ok(Task::Silent)) => {}
                Some(Ok(Task::Controller(Stopped::LeadershipLost))) => return Lost::Stopped.into(),
                Some(Ok(Task::Controller(Stopped::LockTaken))) => return Lost::LockTaken.into(),
                Some(Ok(Task::Controller(Stopped::ObservationsEnded))) => {
                    return Ended::Defect("nobody watches the API server any more".to_owned());
                }
                Some(Err(error)) => return Ended::Defect(error.to_string()),
                None => std::future::pending().await,
            }
        }
    }
}

/// Waits until the controller has found that nothing speaks against the API server being this cluster's: a node of another cluster is given
/// nothing. Without a controller nobody can tell.
async fn is_own_cluster(of_controller: Option<watch::Receiver<Progress>>) {
    let Some(mut progress) = of_controller else { return };
    if !progress.borrow().own_cluster {
        tracing::debug!("nodes are given nothing before the northbound database is known to be this cluster's");
    }
    if progress.wait_for(|progress| progress.own_cluster).await.is_err() {
        std::future::pending().await
    }
}

impl Election {
    fn candidates(&self, identity: &str, has_pidfile: bool) -> Candidates {
        let durations = Durations::new(self.duration, self.renew_deadline, self.retry_period);
        let candidate = |lease: &String| Candidate {
            identity: identity.to_owned(),
            namespace: self.namespace.clone(),
            lease: lease.clone(),
            durations: durations.expect("the options' own check is the same"),
            own_lease: self.own_lease(lease, identity, has_pidfile),
        };
        Candidates { first: candidate(&self.lease), second: self.second_lease.as_ref().map(candidate) }
    }

    /// Without a lock all goes on, and takes longer after a crash.
    fn own_lease(&self, lease: &str, identity: &str, has_pidfile: bool) -> OwnLease {
        match host_lock::take(&self.lock_directory, &format!("{lease}_{identity}")) {
            // The lock on the pidfile says that no other process of this name lives, but for one with another pidfile.
            Ok(lock) if has_pidfile => OwnLease::Resume(Some(lock)),
            Ok(lock) => OwnLease::Lock(lock),
            Err(_) if has_pidfile => OwnLease::Resume(None),
            Err(error) => {
                let directory = self.lock_directory.display();
                tracing::warn!(
                    %directory,
                    %error,
                    lasts = ?self.duration,
                    "no lock shows that a former process of this name has ended: after a crash its lease has to run out"
                );
                OwnLease::Wait
            }
        }
    }
}

impl Database {
    /// The controller writes, so of a clustered database it wants the leader.
    pub(super) fn options(&self) -> ovsdb::Options {
        let large = ovsdb::Options::large();
        let probe_interval = match self.probe {
            None => large.probe_interval,
            Some(super::Probe::Never) => None,
            Some(super::Probe::After(interval)) => Some(interval),
        };
        ovsdb::Options { leader_only: true, ssl: self.ssl.clone(), probe_interval, ..large }
    }
}

#[cfg(test)]
mod tests;
