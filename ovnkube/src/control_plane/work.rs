//! The running roles: which parts of the package `controller` run, and how they are connected.
//!
//! ```text
//! API server ─▶ ClusterWatch ─nodes─▶ ClusterManager ─▶ API server: annotations of nodes
//!                      │                    ▲ the database is this cluster's
//!                      └─nodes, pods─▶ Controller ─▶ northbound database
//!                      └─nodes─▶ DeadChassis ─▶ southbound database: chassis of deleted nodes
//!         Controller ─▶ RemoteChassisWriter ─▶ southbound database: chassis of other zones
//!  southbound database ─▶ FragmentPorts ─▶ northbound database: an option of ACLs
//!  southbound database ─▶ Unidling           └─▶ AnnotationWriter ─▶ API server: annotations of pods,
//!                                                                             status of policies
//! CertificateSigningRequests ─▶ CsrApprover ─▶ API server: their approval
//! Leases ─▶ LeaderElector ─▶ Leadership: whether this process may write
//! ```
//!
//! A process stands for the Leases once it has a copy of the database: one that does not reach it
//! would hold up those that do. A leader that has lost it for minutes ends, and another one takes
//! over. Nodes and pods are listed only when it does: the lists have to contain the last writes of
//! the former leader, or an address could be assigned twice.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use controller::{
    Controller,
    annotate::{AnnotationWriter, Wish},
    cluster_id::ClusterId,
    cluster_manager::{ClusterManager, ClusterManagerInputs},
    cluster_watch::{ClusterWatch, Subscriber},
    csr_approver::CsrApprover,
    dead_chassis::DeadChassis,
    engine::{
        northbound,
        reconcile::{HOLD, Progress, Stopped, UNREAD},
    },
    fragment_ports::{self, FragmentPorts},
    node_assignments::{NodeAssignments, NodeRules},
    policy_reader,
    remote_chassis::{self, RemoteChassisWriter},
    remove_node::SOUTHBOUND,
    safety_brake::HeldLists,
    select::resolver::{self, Resolver},
    tunnels::RemoteChassis,
    unidling::{self, Unidling},
    world::Store,
};
use kubeapi::{
    Connection,
    election::{
        Durations, ElectionConfig, ElectionConfigs, LeaderElector, Leadership, Lost, OwnLease,
    },
    events::{Recorder, Reporter},
};
use ovsdb::{Client, Monitor};
use server::conditions::Conditions;
use tokio::{
    sync::{
        mpsc::{UnboundedReceiver, channel, unbounded_channel},
        watch,
    },
    task::JoinSet,
    time::{sleep, timeout},
};

use super::{
    ControlPlaneConfig, Database, Election, adoption,
    applied_reporter::{self, AppliedReporter},
    listeners, readiness,
    reports::{self, Outlets},
};
use crate::{metrics::ControlPlaneMetrics, process::host_lock};

/// The `reportingController` of events.
const REPORTER: &str = "ovn-kubernetes/ovnkube-controller";

/// Limit for the election to report why the leadership was lost: it may notice a moment after the
/// roles. The text is for the log only, and a restart should not wait long for it. Nothing is
/// written meanwhile.
const REASON: Duration = Duration::from_secs(1);

/// Limit for requests in flight before the Lease is released. An answer takes milliseconds on a
/// healthy cluster. Ten times shorter, and a busy API server would be cut off; ten times longer
/// would use up the 30 s that Kubernetes gives a pod to stop by default, and the Lease would have
/// to run out.
const FINISH: Duration = Duration::from_secs(3);

/// How long a leader goes on without the northbound database. Restarts of the database, and
/// elections of its cluster, take seconds; a tenth of this would change leaders at each. Ten times
/// as long, and pods would get no network for half an hour while another process reaches the
/// database.
const WITHOUT_DATABASE: Duration = Duration::from_secs(180);

/// The running roles. When dropped, they end at once, and the Lease has to run out.
#[derive(Debug)]
pub(super) struct Work {
    elector: Option<LeaderElector>,
    leadership: Leadership,
    at_work: RunningTasks,
}

/// Everything that ends before the Lease is released.
#[derive(Debug)]
struct RunningTasks {
    cluster_manager: Option<ClusterManager>,
    /// Only kept: the watch ends when this is dropped.
    watch: Option<ClusterWatch>,
    /// Of annotations of pods, and of the status of policies and EgressFirewalls.
    writing: Vec<AnnotationWriter>,
    tasks: JoinSet<Task>,
}

/// Why the roles ended by themselves.
#[derive(Debug, thiserror::Error)]
pub enum Ended {
    #[error("this process leads no longer")]
    Lost(#[from] Lost),
    #[error(
        "this process leads no longer: another process has taken the lock on the northbound database: \
         is a second control plane running for it?"
    )]
    LockTaken,
    #[error(
        "this process resigns: it has had no connection to the northbound database for {:?}, and another one \
         may have; it stands for the lease again once it has a copy of the database",
        WITHOUT_DATABASE
    )]
    WithoutDatabase,
    #[error("a part of the control plane has ended, which is a defect of this program: {0}")]
    Defect(String),
}

/// How a task ended.
#[derive(Debug)]
enum Task {
    /// A task that reports on another part. Its end is no error: that part reports its own.
    Silent,
    Controller(Stopped),
    WithoutDatabase,
}

/// The chassis of nodes of other zones; none before all nodes are known.
type OfOtherZones = watch::Receiver<Option<Arc<RemoteChassis>>>;

/// What the parts share.
struct Shared<'a> {
    config: &'a ControlPlaneConfig,
    api: Connection,
    leadership: Leadership,
    recorder: Recorder,
    conditions: &'a Conditions,
    metrics: &'a Arc<ControlPlaneMetrics>,
}

impl Work {
    /// Starts the roles. Returns at once: API server and databases need not be reachable. Needs a
    /// tokio runtime.
    pub(super) fn start(
        config: &ControlPlaneConfig,
        connection: &Connection,
        conditions: &Conditions,
        metrics: &Arc<ControlPlaneMetrics>,
    ) -> Self {
        let api = connection.clone();
        let (progress, progressed) = watch::channel(Progress::default());
        if config.election.is_none() {
            metrics.api_server.leads();
        }
        let (leadership, elector) = match &config.election {
            None if config.northbound.is_some() => (with_copy(progressed.clone()), None),
            None => (Leadership::always(), None),
            Some(election) => {
                let alone =
                    if config.pidfile.is_some() { Alone::ByPidfile } else { Alone::Unknown };
                let candidates = election.candidates(&config.identity, alone);
                let ready = match &config.northbound {
                    None => Leadership::always(),
                    Some(_) => with_copy(progressed.clone()),
                };
                let metrics = metrics.api_server.clone();
                let (leadership, elector) =
                    LeaderElector::start_after(&ready, api.clone(), candidates, metrics);
                (leadership, Some(elector))
            }
        };
        let recorder = Recorder::start(
            api.clone(),
            Reporter { controller: REPORTER, instance: config.identity.clone() },
        );
        let shared = Shared { config, api, leadership, recorder, conditions, metrics };
        let at_work = RunningTasks::start(&shared, progress, progressed);
        Self { elector, leadership: shared.leadership, at_work }
    }

    /// Waits until the roles have ended by themselves. Cancellation-safe.
    pub(super) async fn ended(&mut self) -> Ended {
        let Self { elector, at_work, leadership: _ } = self;
        match elector {
            None => at_work.ended().await,
            Some(elector) => {
                let ended = tokio::select! {
                    // Biased: the election has the better reason if both have ended.
                    biased;
                    lost = elector.lost() => return lost.into(),
                    ended = at_work.ended() => ended,
                };
                match ended {
                    // The election knows the reason, and may notice a moment later than the roles.
                    Ended::Lost(_) | Ended::LockTaken => {
                        timeout(REASON, elector.lost()).await.map_or(ended, Ended::from)
                    }
                    Ended::WithoutDatabase | Ended::Defect(_) => ended,
                }
            }
        }
    }

    /// Ends what is left of roles that have ended by themselves. A leader that has merely lost its
    /// database releases the Lease; in all other cases another process may write already, and all
    /// ends at once.
    pub(super) async fn end(self, why: &Ended) {
        match why {
            Ended::WithoutDatabase => self.stop().await,
            Ended::Lost(_) | Ended::LockTaken | Ended::Defect(_) => drop(self),
        }
    }

    /// Ends the roles, and then releases the Lease: no request is started any more, those in flight
    /// are answered, and only then can another process lead. Takes some seconds at most.
    pub(super) async fn stop(self) {
        let Self { elector, leadership, mut at_work } = self;
        // First: from here on no part begins a write.
        leadership.resign();
        if timeout(FINISH, at_work.finish()).await.is_err() {
            tracing::warn!(
                patience = ?FINISH,
                "API server or database have not answered; requests in flight may still take effect"
            );
        }
        // The Lease is free after this: no task may be left that could write.
        at_work.tasks.shutdown().await;
        drop(at_work);
        if let Some(elector) = elector {
            elector.release().await;
        }
    }
}

impl RunningTasks {
    fn start(
        shared: &Shared<'_>,
        progress: watch::Sender<Progress>,
        progressed: watch::Receiver<Progress>,
    ) -> Self {
        let Shared { config, api, leadership, recorder, conditions, metrics } = shared;
        let mut at_work =
            Self { cluster_manager: None, watch: None, writing: Vec::new(), tasks: JoinSet::new() };
        let mut parties = Vec::new();
        for listener in &config.opened {
            at_work.tell(listeners::open(listener.clone()));
        }
        if let Some(database) = &config.northbound {
            let (party, northbound, chassis) = at_work.control(shared, database, progress);
            let doubted = party.doubted.clone();
            parties.push(party);
            if let Some(southbound) = &config.southbound {
                let progress = progressed.clone();
                let databases = (northbound, southbound);
                parties.push(at_work.follow_chassis(shared, databases, progress, doubted, chassis));
            }
            if config.election.is_some() {
                let lost = without_database(leadership.clone(), progressed.clone());
                at_work.tasks.spawn(async move {
                    lost.await;
                    Task::WithoutDatabase
                });
            }
        }
        if config.roles.has_cluster_manager() {
            let of_controller = config.northbound.as_ref().map(|_| progressed);
            parties.push(at_work.manage_cluster(shared, of_controller));
        }
        if let Some(bootstrap_users) = &config.bootstrap_users {
            let approver = CsrApprover {
                api: api.clone(),
                leadership: leadership.clone(),
                recorder: recorder.clone(),
                metrics: metrics.api_server.clone(),
                bootstrap_users: bootstrap_users.clone(),
            };
            at_work.tell(approver.run());
        }
        // Last: it sends to the roles that were started above. One watch for both, so nodes are
        // listed and kept once.
        let watch =
            ClusterWatch::start(api, leadership, &metrics.api_server, &config.cluster, &parties);
        let doubts = parties.into_iter().map(|party| party.doubted).collect();
        at_work.tell(readiness::cluster(
            watch.sync_statuses(),
            doubts,
            leadership.clone(),
            (*conditions).clone(),
        ));
        at_work.watch = Some(watch);
        if config.election.is_some() {
            at_work.tell(readiness::election(
                leadership.clone(),
                (*conditions).clone(),
                Arc::clone(metrics),
            ));
        }
        at_work
    }

    /// Starts the cluster manager. `of_controller`: the progress of the controller in this process,
    /// if any. It knows which cluster the database belongs to.
    fn manage_cluster(
        &mut self,
        shared: &Shared<'_>,
        of_controller: Option<watch::Receiver<Progress>>,
    ) -> Subscriber {
        let Shared { config, api, leadership, recorder, conditions: _, metrics } = shared;
        let (observed, observations) = unbounded_channel();
        let assignments = NodeAssignments::new(
            config.cluster.clone(),
            NodeRules { without_subnet: config.foreign_nodes.clone() },
        );
        let told = ClusterManagerInputs {
            api: api.clone(),
            leadership: leadership.clone(),
            recorder: recorder.clone(),
            namespace: config.election.as_ref().map(|election| election.namespace.clone()),
            observations,
        };
        let believed = own_cluster(of_controller);
        let manager = ClusterManager::start(
            told,
            assignments,
            believed,
            metrics.annotations.clone(),
            metrics.cluster_manager.clone(),
        );
        let doubted = manager.doubted();
        self.cluster_manager = Some(manager);
        Subscriber { observations: observed, wants: ClusterManager::KINDS, doubted }
    }

    /// Starts the controller, and the parts that only it needs. Returns its connection to the
    /// northbound database, too, and the chassis of nodes of other zones.
    fn control(
        &mut self,
        shared: &Shared<'_>,
        database: &Database,
        progress: watch::Sender<Progress>,
    ) -> (Subscriber, Client, OfOtherZones) {
        let Shared { config, api, leadership, recorder, conditions, metrics, .. } = shared;
        let (observed, observations) = unbounded_channel();
        let (annotations, wishes) = unbounded_channel();
        let (of_conditions, of_policies) = unbounded_channel();
        let (statuses, of_firewalls) = unbounded_channel();
        let (reports, reported) = unbounded_channel();
        let (doubts, doubted) = watch::channel(None);
        let progressed = progress.subscribe();
        // Before this process leads: the copy of a large database should be complete by then.
        let (client, updates) = northbound::connect(database.endpoints.clone(), database.options());
        self.write(shared, wishes);
        self.write(shared, of_policies);
        self.write(shared, of_firewalls);
        let (names, wanted) = watch::channel(BTreeMap::new());
        let (rereads, of_policies_to_read) = unbounded_channel();
        let (chassis, of_other_zones) = watch::channel(None);
        let (changes, changed) = channel(applied_reporter::WAITING);
        if let Some(southbound) = &config.southbound {
            let reporter = AppliedReporter {
                changes: changed,
                northbound: database.clone(),
                southbound: southbound.clone(),
                recorder: recorder.clone(),
                histogram: metrics.applied.clone(),
            };
            self.tell(reporter.run());
        }
        let outlets = Outlets { doubts, names, chassis, rereads, changes };
        self.tell(reports::tell(reported, recorder.clone(), outlets));
        let to_controller = observed.downgrade();
        self.tell(policy_reader::run((*api).clone(), of_policies_to_read, to_controller.clone()));
        let resolver = Resolver {
            families: config.cluster.families().collect(),
            names: wanted,
            observations: to_controller.clone(),
            lookup: resolver::lookup,
        };
        self.tell(resolver.run());
        self.tell(readiness::northbound(client.state(), (*conditions).clone()));
        self.tell(readiness::rows(leadership.clone(), progressed.clone(), (*conditions).clone()));
        if let Some(southbound) =
            config.southbound.as_ref().filter(|_| config.cluster.empty_lb_events)
        {
            let (southbound, events) =
                unidling::connect(southbound.endpoints.clone(), southbound.options());
            let unidling = Unidling {
                events,
                southbound,
                northbound: client.clone(),
                leadership: leadership.clone(),
                progress: progressed.clone(),
                observations: to_controller,
            };
            self.tell(unidling.run());
        }
        let controller = Controller {
            store: Store::new(config.cluster.clone()),
            observations,
            annotations,
            conditions: of_conditions,
            statuses,
            northbound: updates,
            leadership: leadership.clone(),
            reports,
            progress,
            metrics: metrics.rows.clone(),
            hold: HOLD,
            patience: UNREAD,
        };
        let adopted = adoption::take_over(
            client.clone(),
            (*api).clone(),
            config.cluster.clone(),
            (*conditions).clone(),
        );
        self.tell(adoption::finish(client.clone(), leadership.clone(), progressed));
        self.tasks.spawn(async move {
            // Before the election, and so before the first lists: they have to contain what it
            // writes on nodes.
            adopted.await;
            Task::Controller(controller.run().await)
        });
        let party = Subscriber { observations: observed, wants: Store::KINDS, doubted };
        (party, client, of_other_zones)
    }

    /// Starts the parts that follow the chassis of nodes: one removes those of deleted nodes, one
    /// writes those of other zones, one has ACLs see fragments.
    fn follow_chassis(
        &mut self,
        shared: &Shared<'_>,
        (northbound, southbound): (Client, &Database),
        progress: watch::Receiver<Progress>,
        doubted: watch::Receiver<Option<HeldLists>>,
        of_other_zones: OfOtherZones,
    ) -> Subscriber {
        let (observed, observations) = unbounded_channel();
        let (endpoints, options) = (southbound.endpoints.clone(), southbound.options());
        // Without a copy of its own: the southbound database may be large.
        let (southbound, updates) = Client::start(endpoints, SOUTHBOUND, Monitor::new(), options);
        self.tell(
            FragmentPorts {
                chassis: southbound.replicate(fragment_ports::monitor()),
                northbound,
                leadership: shared.leadership.clone(),
                progress: progress.clone(),
            }
            .run(),
        );
        if shared.config.cluster.is_connected() {
            let writer = RemoteChassisWriter {
                chassis: southbound.replicate(remote_chassis::monitor()),
                zone: shared.config.cluster.zone.clone(),
                wanted: of_other_zones,
                leadership: shared.leadership.clone(),
                progress: progress.clone(),
            };
            self.tell(writer.run());
        }
        let leadership = shared.leadership.clone();
        let dead = DeadChassis {
            observations,
            southbound,
            leadership,
            progress,
            doubted: doubted.clone(),
        };
        self.tell(async move {
            let _connected = updates;
            dead.run().await;
        });
        // It judges no list: the controller does.
        Subscriber { observations: observed, wants: DeadChassis::KINDS, doubted }
    }

    /// Waits until no write of the roles is in flight. Cancellation-safe.
    async fn finish(&mut self) {
        let Self { cluster_manager, writing, tasks, watch: _ } = self;
        if let Some(manager) = cluster_manager {
            manager.ended().await;
        }
        if !writing.is_empty() {
            // With a writer there is a controller, which may hand it more requests until it has
            // ended.
            while !matches!(tasks.join_next().await, None | Some(Ok(Task::Controller(_)) | Err(_)))
            {
            }
            for writer in writing {
                writer.ended().await;
            }
        }
    }

    /// Starts to write what comes out of the channel.
    fn write<W: Wish>(&mut self, shared: &Shared<'_>, wishes: UnboundedReceiver<W>) {
        let Shared { api, leadership, recorder, metrics, .. } = shared;
        let metrics = metrics.annotations.clone();
        let (api, leadership, recorder) = ((*api).clone(), (*leadership).clone(), recorder.clone());
        self.writing.push(AnnotationWriter::start(api, leadership, recorder, metrics, wishes));
    }

    /// Spawns a task that reports on another part, and may end at any time.
    fn tell(&mut self, telling: impl Future<Output = ()> + Send + 'static) {
        self.tasks.spawn(async move {
            telling.await;
            Task::Silent
        });
    }

    /// Waits until a part has ended that must not. Cancellation-safe.
    async fn ended(&mut self) -> Ended {
        loop {
            match self.tasks.join_next().await {
                Some(Ok(Task::Silent)) => {}
                Some(Ok(Task::Controller(Stopped::LeadershipLost))) => return Lost::Stopped.into(),
                Some(Ok(Task::Controller(Stopped::LockTaken))) => return Ended::LockTaken,
                Some(Ok(Task::WithoutDatabase)) => return Ended::WithoutDatabase,
                Some(Ok(Task::Controller(Stopped::ObservationsEnded))) => {
                    return Ended::Defect("the watch of the API server has ended".to_owned());
                }
                Some(Err(error)) => return Ended::Defect(error.to_string()),
                // All tasks were silent ones: a cluster manager is no task of this set.
                None => std::future::pending().await,
            }
        }
    }
}

/// Leads once the copy of the northbound database has been complete.
fn with_copy(mut progress: watch::Receiver<Progress>) -> Leadership {
    let (ready, begin) = Leadership::once("the northbound database has not been read yet");
    tokio::spawn(async move {
        if progress.wait_for(|progress| progress.loaded).await.is_ok() {
            begin();
        }
    });
    ready
}

/// Waits until this process has led for [`WITHOUT_DATABASE`] without the database. For ever if the
/// controller ends.
async fn without_database(leadership: Leadership, mut progress: watch::Receiver<Progress>) {
    loop {
        leadership.won().await;
        let lost = progress.wait_for(|progress| !progress.loaded).await.is_ok();
        if !lost {
            return std::future::pending().await;
        }
        tokio::select! {
            () = sleep(WITHOUT_DATABASE) => return,
            _ = progress.wait_for(|progress| progress.loaded) => {}
            () = leadership.lost() => {}
        }
    }
}

/// Waits until the controller has compared the API server's cluster with the database's: nodes of
/// another cluster get no subnet. Returns the database's, if it tells. Without a controller there
/// is no database to compare with.
async fn own_cluster(of_controller: Option<watch::Receiver<Progress>>) -> ClusterId {
    let mut progress = of_controller?;
    if !progress.borrow().own_cluster {
        tracing::debug!(
            "nodes are given nothing before the northbound database is known to be this cluster's"
        );
    }
    let known =
        progress.wait_for(|progress| progress.own_cluster).await.map(|known| known.cluster.clone());
    match known {
        Ok(cluster) => cluster,
        // The controller has ended: then the roles end, and no node may get a subnet any more.
        Err(_) => std::future::pending().await,
    }
}

/// Whether it is known, beside what the host's lock says, that no other process of this name lives.
#[derive(Debug, Clone, Copy)]
enum Alone {
    /// The lock on the pidfile shows it, except for a process with another pidfile.
    ByPidfile,
    Unknown,
}

impl Election {
    fn candidates(&self, identity: &str, alone: Alone) -> ElectionConfigs {
        let durations = Durations::new(self.duration, self.renew_deadline, self.retry_period);
        let candidate = |lease: &String| ElectionConfig {
            identity: identity.to_owned(),
            namespace: self.namespace.clone(),
            lease: lease.clone(),
            durations: durations.expect("the options' own check is the same"),
            own_lease: self.own_lease(lease, identity, alone),
        };
        ElectionConfigs {
            first: candidate(&self.lease),
            second: self.second_lease.as_ref().map(candidate),
        }
    }

    /// How this process takes its own Lease again after a crash. A lock that cannot be taken is no
    /// error: it only takes longer then.
    fn own_lease(&self, lease: &str, identity: &str, alone: Alone) -> OwnLease {
        match (alone, host_lock::take(&self.lock_directory, &format!("{lease}_{identity}"))) {
            (Alone::ByPidfile, lock) => OwnLease::Resume(lock.ok()),
            (Alone::Unknown, Ok(lock)) => OwnLease::Lock(lock),
            (Alone::Unknown, Err(error)) => {
                let directory = self.lock_directory.display();
                tracing::warn!(
                    %directory,
                    %error,
                    lasts = ?self.duration,
                    "no lock shows that a former process of this name has ended: \
                     after a crash its lease has to run out"
                );
                OwnLease::Wait
            }
        }
    }
}

impl Database {
    /// The options of a connection that writes. In a cluster it is to the leader: followers forward
    /// transactions and may lag behind (ovsdb(7)).
    pub(crate) fn options(&self) -> ovsdb::Options {
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
