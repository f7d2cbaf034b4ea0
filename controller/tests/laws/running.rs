//! A running controller, with its inputs and outputs.

use std::{
    sync::atomic::{AtomicBool, Ordering},
    time::Duration,
};

use controller::{
    Controller,
    config::ClusterConfig,
    engine::{
        northbound::connect,
        reconcile::{Progress, Report, Stopped},
    },
    kinds::{
        cluster_policy::condition::PolicyCondition, namespace::object::Namespace,
        pod::annotation::PodAnnotation,
    },
    metrics::Metrics,
    safety_brake::HeldLists,
    watch_event::{Seen, WatchEvent},
    world::Store,
};
use kubeapi::election::Leadership;
use ovsdb::{Endpoint, Options};
use tokio::{
    sync::{mpsc, watch},
    task::JoinHandle,
    time::timeout,
};

static HURRY: AtomicBool = AtomicBool::new(false);

/// Longer than anything takes on a busy machine.
pub(crate) fn deadline() -> Duration {
    Duration::from_secs(if HURRY.load(Ordering::Relaxed) { 2 } else { 100 })
}

/// Shortens the deadline: a law is broken, and the shortest history that breaks it is searched for.
pub(crate) fn hurry() {
    HURRY.store(true, Ordering::Relaxed);
}

/// Options of a client that reconnects at once, so that tests do not wait for it.
pub(crate) fn at_once() -> Options {
    Options {
        backoff_min: Duration::from_millis(2),
        backoff_max: Duration::from_millis(20),
        ..Options::default()
    }
}

/// The namespaces of all pods.
pub(crate) fn all_namespaces() -> WatchEvent {
    let namespaces = (0..3).map(|number| (format!("ns{number}").into(), Namespace::default()));
    WatchEvent::Namespaces(Seen::All(namespaces.collect()))
}

pub(crate) struct Running {
    observations: mpsc::UnboundedSender<WatchEvent>,
    pub(crate) progress: watch::Receiver<Progress>,
    pub(crate) reports: mpsc::UnboundedReceiver<Report>,
    pub(crate) annotations: mpsc::UnboundedReceiver<PodAnnotation>,
    pub(crate) conditions: mpsc::UnboundedReceiver<PolicyCondition>,
    /// The doubts, which are not among `reports`.
    pub(crate) doubts: watch::Receiver<Option<HeldLists>>,
    metrics: prometheus::Registry,
    collectors: Metrics,
    task: JoinHandle<Stopped>,
}

impl Running {
    pub(crate) fn start(endpoint: Endpoint, config: ClusterConfig) -> Self {
        // No test waits for it.
        Self::with_patience(Duration::from_secs(3600), endpoint, config)
    }

    /// A controller that goes on without a kind of objects that cannot be read after this time.
    pub(crate) fn with_patience(
        patience: Duration,
        endpoint: Endpoint,
        config: ClusterConfig,
    ) -> Self {
        let (_client, northbound) = connect(endpoint.into(), at_once());
        let (observations, observed) = mpsc::unbounded_channel();
        let (annotate, annotations) = mpsc::unbounded_channel();
        let (condition, conditions) = mpsc::unbounded_channel();
        let (report, mut all_reports) = mpsc::unbounded_channel();
        let (other_reports, reports) = mpsc::unbounded_channel();
        let (doubt, doubts) = watch::channel(None);
        tokio::spawn(async move {
            while let Some(report) = all_reports.recv().await {
                match report {
                    Report::HeldLists(doubted) => drop(doubt.send_replace(doubted)),
                    other => drop(other_reports.send(other)),
                }
            }
        });
        let (tell, progress) = watch::channel(Progress::default());
        let metrics = prometheus::Registry::new();
        let collectors = Metrics::register(&metrics).unwrap();
        let controller = Controller {
            store: Store::new(config),
            observations: observed,
            annotations: annotate,
            conditions: condition,
            statuses: mpsc::unbounded_channel().0,
            northbound,
            leadership: Leadership::always(),
            reports: report,
            progress: tell,
            metrics: collectors.clone(),
            hold: Duration::ZERO,
            patience,
        };
        Self {
            observations,
            progress,
            reports,
            annotations,
            conditions,
            doubts,
            metrics,
            collectors,
            task: tokio::spawn(controller.run()),
        }
    }

    /// A controller that knows already that there are no Services.
    pub(crate) fn without_services(endpoint: Endpoint, config: ClusterConfig) -> Self {
        let running = Self::start(endpoint, config);
        running.observe(WatchEvent::Services(Seen::All(Vec::new())));
        running.observe(WatchEvent::Slices(Seen::All(Vec::new())));
        running.observe(all_namespaces());
        running.observe(WatchEvent::Policies(Seen::All(Vec::new())));
        WatchEvent::no_optional_kinds().into_iter().for_each(|list| running.observe(list));
        running
    }

    pub(crate) fn observe(&self, observation: WatchEvent) {
        self.observations.send(observation).unwrap();
    }

    /// The channel of observations, for another thread.
    pub(crate) fn sender(&self) -> mpsc::UnboundedSender<WatchEvent> {
        self.observations.clone()
    }

    /// Waits until the controller reports convergence.
    pub(crate) async fn converged(&mut self) {
        self.reaches("convergence", |progress| progress.converged).await;
    }

    pub(crate) async fn reaches(&mut self, what: &str, state: impl FnMut(&Progress) -> bool) {
        let reached = timeout(deadline(), self.progress.wait_for(state))
            .await
            .map(|progress| progress.unwrap().clone());
        reached.unwrap_or_else(|_| {
            panic!("{what}: not within {:?}; last seen: {:?}", deadline(), *self.progress.borrow())
        });
    }

    /// Waits until the controller doubts a list.
    pub(crate) async fn doubted(&mut self, mut what: impl FnMut(&HeldLists) -> bool) {
        let reached = timeout(
            deadline(),
            self.doubts.wait_for(|doubted| doubted.as_ref().is_some_and(&mut what)),
        )
        .await;
        let reached = reached.map(|doubted| doubted.unwrap().clone());
        reached.unwrap_or_else(|_| {
            panic!("not doubted within {:?}; last seen: {:?}", deadline(), *self.doubts.borrow())
        });
    }

    /// The counter of committed transactions.
    pub(crate) fn transactions(&self) -> prometheus::IntCounter {
        self.collectors.committed()
    }

    /// The sum of a counter over its labels.
    pub(crate) fn counted(&self, name: &str) -> f64 {
        let families = self.metrics.gather();
        let family = families.iter().find(|family| family.name() == name);
        family.map_or(0.0, |family| {
            family.get_metric().iter().map(|metric| metric.get_counter().get_value()).sum()
        })
    }

    /// Number of objects whose rows were found or made right, each change counted.
    pub(crate) fn settled(&self) -> u64 {
        let families = self.metrics.gather();
        let family =
            families.iter().find(|family| family.name() == "ovnkube_controller_settle_seconds");
        family.map_or(0, |family| {
            family.get_metric().iter().map(|metric| metric.get_histogram().get_sample_count()).sum()
        })
    }

    /// Waits until more objects have settled, and none is dirty. Some of their rows must change:
    /// progress that stays the same wakes nothing.
    pub(crate) async fn settles_after(&self, before: u64) {
        let mut progress = self.progress.clone();
        let over = progress.wait_for(|progress| progress.converged && self.settled() > before);
        timeout(deadline(), over).await.expect("objects settle").unwrap();
    }

    /// Observes these, and waits for the rows, none of which may be refused. Returns what was told
    /// meanwhile.
    pub(crate) async fn told_after(
        &mut self,
        observations: impl IntoIterator<Item = WatchEvent>,
    ) -> Vec<Report> {
        let settled = self.settled();
        // No await in between: the controller sees all of them before it compares any.
        observations.into_iter().for_each(|observation| self.observe(observation));
        self.settles_after(settled).await;
        assert_eq!(self.progress.borrow().failing, 0, "rows are refused");
        std::iter::from_fn(|| self.reports.try_recv().ok()).collect()
    }

    /// Ends the controller at any point of its work, as a crash would.
    pub(crate) async fn kill(self) {
        self.task.abort();
        let _ = self.task.await;
    }

    /// Ends the controller by closing its channel of observations.
    pub(crate) async fn stop(self) -> Stopped {
        drop(self.observations);
        timeout(deadline(), self.task).await.unwrap().unwrap()
    }
}
