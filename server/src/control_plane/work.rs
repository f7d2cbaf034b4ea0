//! The roles at work: which parts of the package `controller` there are, and how they are joined.
//!
//! ```text
//! API server ─nodes─▶ ClusterManager ─▶ API server: annotations of nodes
//!            ─nodes, pods─▶ Controller ─▶ northbound database
//!                               └─▶ Writing ─▶ API server: annotations of pods
//! Lease ─▶ Campaign ─▶ Leadership: who may write
//! ```
//!
//! The database is copied before this process leads. Nodes and pods are read once it does: what the leader before wrote at last has to be
//! among what is read, or an address that it gave could be given twice.

use std::{sync::Arc, time::Duration};

use controller::{
    Controller,
    allocate::node_assignments::{NodeAssignments, NodeRules},
    annotate::Writing,
    api_server::ApiServer,
    cluster_manager::ClusterManager,
    lead::{Campaign, Candidate, Durations, Leadership, Lost, OwnLease},
    northbound,
    observation::Observation,
    reconcile::{Progress, Stopped},
    store::{
        Store,
        wire::{NodeObject, PodObject},
    },
    tell::{Reporter, Teller},
    watch::{Standing, Watch},
};
use tokio::{
    sync::{mpsc::unbounded_channel, watch},
    task::JoinSet,
    time::timeout,
};

use super::{ControlPlaneConfig, Database, Election, readiness, reports};
use crate::{api_server::Connection, conditions::Conditions, metrics::ControlPlaneMetrics};

/// What is followed, in words.
const NODES: &str = "nodes";
const PODS: &str = "pods";
/// Who tells the owners of nodes and pods.
const REPORTER: &str = "ovn-kubernetes/ovnkube-controller";

/// How long the reason for a lost leadership is waited for; nothing is written meanwhile.
const REASON: Duration = Duration::from_secs(1);

/// Roles at work. Dropped, they end at once; the Lease then runs out.
#[derive(Debug)]
pub(super) struct Work {
    campaign: Option<Campaign>,
    at_work: AtWork,
}

/// What ends before the Lease is let go.
#[derive(Debug)]
struct AtWork {
    cluster_manager: Option<ClusterManager>,
    watches: Vec<Watch>,
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
    api: ApiServer,
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
        let api = connection.share();
        let (leadership, campaign) = match &config.election {
            None => (Leadership::always(), None),
            Some(election) => {
                let candidate = election.candidate(&config.identity, config.pidfile.is_some());
                let (leadership, campaign) = Campaign::start(api.clone(), candidate, metrics.api_server.clone());
                (leadership, Some(campaign))
            }
        };
        let teller = Teller::start(api.clone(), Reporter { controller: REPORTER, instance: config.identity.clone() });
        let shared = Shared { config, api, leadership, teller, conditions, metrics };
        Self { campaign, at_work: AtWork::start(&shared) }
    }

    /// Waits until the roles have ended by themselves. Cancellation-safe.
    pub(super) async fn ended(&mut self) -> Ended {
        let Self { campaign, at_work } = self;
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

    /// Ends the roles, and then lets go of the Lease. Takes some seconds at most.
    pub(super) async fn stop(self) {
        let Self { campaign, mut at_work } = self;
        at_work.tasks.shutdown().await;
        drop(at_work);
        if let Some(campaign) = campaign {
            campaign.release().await;
        }
    }
}

impl AtWork {
    fn start(shared: &Shared<'_>) -> Self {
        let Shared { config, leadership, conditions, metrics, .. } = shared;
        let mut at_work = Self { cluster_manager: None, watches: Vec::new(), writing: None, tasks: JoinSet::new() };
        let mut standings = Vec::new();
        if config.roles.has_cluster_manager() {
            standings.push(at_work.manage_cluster(shared));
        }
        if let Some(database) = &config.northbound {
            standings.extend(at_work.control(shared, database));
        }
        let conditions = (*conditions).clone();
        at_work.tell(readiness::cluster(standings, leadership.clone(), conditions.clone()));
        if config.election.is_some() {
            at_work.tell(readiness::election(leadership.clone(), conditions, Arc::clone(metrics)));
        }
        at_work
    }

    fn manage_cluster(&mut self, shared: &Shared<'_>) -> (&'static str, watch::Receiver<Standing>) {
        let Shared { config, api, leadership, teller, conditions: _, metrics } = shared;
        let assignments = NodeAssignments::new(config.cluster.clone(), NodeRules { without_subnet: config.foreign_nodes.clone() });
        let manager = ClusterManager::start(
            api.clone(),
            assignments,
            leadership.clone(),
            teller.clone(),
            metrics.api_server.clone(),
            metrics.cluster_manager.clone(),
        );
        let standing = manager.standing();
        self.cluster_manager = Some(manager);
        (NODES, standing)
    }

    fn control(&mut self, shared: &Shared<'_>, database: &Database) -> [(&'static str, watch::Receiver<Standing>); 2] {
        let Shared { config, api, leadership, teller, conditions, metrics } = shared;
        let (observed, observations) = unbounded_channel();
        let (annotations, wishes) = unbounded_channel();
        let (reports, reported) = unbounded_channel();
        let (progress, progressed) = watch::channel(Progress::default());
        let (client, updates) = northbound::connect(database.endpoints.clone(), database.options());

        let (of_nodes, of_pods) = (observed.clone(), observed);
        let nodes = Watch::start_leading::<NodeObject>(api.clone(), leadership.clone(), metrics.api_server.clone(), move |seen| {
            // Nobody listens any more: the role has ended.
            let _ = of_nodes.send(Observation::Nodes(seen));
        });
        let pods = Watch::start_leading::<PodObject>(api.clone(), leadership.clone(), metrics.api_server.clone(), move |seen| {
            let _ = of_pods.send(Observation::Pods(seen));
        });
        let standings = [(NODES, nodes.standing()), (PODS, pods.standing())];
        self.watches.extend([nodes, pods]);
        self.writing = Some(Writing::start(api.clone(), leadership.clone(), metrics.api_server.clone(), wishes));
        self.tell(reports::tell(reported, teller.clone()));
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
        standings
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
                Some(Ok(Task::Controller(Stopped::ObservationsEnded))) => {
                    return Ended::Defect("nobody watches the API server any more".to_owned());
                }
                Some(Err(error)) => return Ended::Defect(error.to_string()),
                None => std::future::pending().await,
            }
        }
    }
}

impl Election {
    fn candidate(&self, identity: &str, has_pidfile: bool) -> Candidate {
        let durations = Durations::new(self.duration, self.renew_deadline, self.retry_period);
        Candidate {
            identity: identity.to_owned(),
            namespace: self.namespace.clone(),
            lease: self.lease.clone(),
            durations: durations.expect("the options' own check is the same"),
            // The lock on the pidfile says that no other process of this name lives.
            own_lease: if has_pidfile { OwnLease::Resume } else { OwnLease::Wait },
        }
    }
}

impl Database {
    /// The controller writes, so of a clustered database it wants the leader.
    pub(super) fn options(&self) -> ovsdb::Options {
        ovsdb::Options { leader_only: true, ssl: self.ssl.clone(), ..ovsdb::Options::default() }
    }
}
