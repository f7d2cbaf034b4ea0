//! The one copy of Open vSwitch's rows on this node, and the task that keeps it up to date. The
//! task writes the ports that plugins ask for, and answers the reconciler's questions about rows.
//! It waits for nothing but the next event, because every ADD of the node waits for it.

use std::{collections::HashSet, sync::Arc};

use contract::names::PodKey;
use ovsdb::{Event, Updates, Uuid};
use tokio::sync::{Notify, mpsc, oneshot};

use super::{
    Environment,
    ignored_devices::IgnoredDevices,
    links::KnownLinks,
    plan::{AttachmentView, Doubt, Life, Plan, StaleAttachment},
    port_cache::{self, PortCache, RecordedPort, RowNews},
    restore::MissingPort,
    restored::RestoredPorts,
    writer::Writer,
};
use crate::{
    pods::{PodSource, Readiness},
    ports::WriteQueue,
};

/// The task.
pub(super) struct LocalRows {
    environment: Arc<Environment>,
    updates: Updates,
    cache: PortCache,
    ports: Writer,
    restored: RestoredPorts,
    /// Sandboxes that another plugin than this project's begins to detach.
    detaching: mpsc::UnboundedReceiver<String>,
    /// Sandboxes whose ports vanish because they are being detached.
    leaving: HashSet<String>,
    questions: mpsc::UnboundedReceiver<Question>,
    /// Told when rows have changed so that a repair may be needed.
    changed: Arc<Notify>,
}

/// The way to the task. Clones share it.
#[derive(Debug, Clone)]
pub(super) struct RowsHandle {
    questions: mpsc::UnboundedSender<Question>,
    changed: Arc<Notify>,
}

#[derive(Debug)]
enum Question {
    Look { links: Arc<KnownLinks>, answer: oneshot::Sender<Look> },
    Suspects { links: Arc<KnownLinks>, answer: oneshot::Sender<Vec<StaleAttachment>> },
    KnowsAny { names: Vec<String>, answer: oneshot::Sender<bool> },
    Restored(Vec<Uuid>),
}

/// What the rows call for, given the links of the host and the pods as known now.
#[derive(Debug)]
pub(super) struct Look {
    pub(super) missing: Vec<MissingPort>,
    pub(super) suspects: Vec<StaleAttachment>,
    pub(super) doubt: Option<Doubt>,
    pub(super) ignored: IgnoredDevices,
}

impl RowsHandle {
    /// Compares rows with these links and the pods, and forgets attachments of which nothing is
    /// left.
    pub(super) async fn look(&self, links: Arc<KnownLinks>) -> Option<Look> {
        self.ask(|answer| Question::Look { links, answer }).await
    }

    /// The attachments that are suspected now, given these links.
    pub(super) async fn suspects(&self, links: Arc<KnownLinks>) -> Vec<StaleAttachment> {
        self.ask(|answer| Question::Suspects { links, answer }).await.unwrap_or_default()
    }

    /// Whether any of these names is that of a recorded attachment.
    pub(super) async fn knows_any(&self, names: Vec<String>) -> bool {
        self.ask(|answer| Question::KnowsAny { names, answer }).await.unwrap_or_default()
    }

    /// These interfaces were restored: their installation is awaited and logged.
    pub(super) fn restored(&self, interfaces: Vec<Uuid>) {
        // Without the task the server is shutting down.
        let _ = self.questions.send(Question::Restored(interfaces));
    }

    /// Waits until rows change so that a repair may be needed. Cancellation-safe.
    pub(super) async fn changed(&self) {
        self.changed.notified().await;
    }

    /// `None` if the task has ended, because the server is shutting down.
    async fn ask<T>(&self, question: impl FnOnce(oneshot::Sender<T>) -> Question) -> Option<T> {
        let (answer, answered) = oneshot::channel();
        self.questions.send(question(answer)).ok()?;
        answered.await.ok()
    }
}

impl LocalRows {
    pub(super) fn new(environment: Arc<Environment>, queue: WriteQueue) -> (Self, RowsHandle) {
        let updates = environment.client.replicate(port_cache::monitor());
        let (asking, questions) = mpsc::unbounded_channel();
        let WriteQueue { requests, detaching, bridge, names } = queue;
        let ports = Writer::new(requests, bridge, names, Arc::clone(&environment.metrics));
        let changed = Arc::new(Notify::new());
        let handle = RowsHandle { questions: asking, changed: Arc::clone(&changed) };
        let task = Self {
            environment,
            updates,
            cache: PortCache::default(),
            ports,
            restored: RestoredPorts::default(),
            detaching,
            leaving: HashSet::new(),
            questions,
            changed,
        };
        (task, handle)
    }

    /// Runs until all handles are gone.
    pub(super) async fn run(mut self) {
        loop {
            tokio::select! {
                event = self.updates.next() => self.database_says(event),
                step = self.ports.next() => self.ports.take(step, &self.environment.client, &self.updates),
                question = self.questions.recv() => match question {
                    Some(question) => self.answer(question),
                    None => return,
                },
                () = self.restored.late() => self.restored.say_late(&self.updates),
            }
        }
    }

    fn database_says(&mut self, event: Event) {
        // The writer first: plugins wait for it.
        self.ports.database_says(&event, &self.environment.client, &self.updates);
        match event {
            Event::Connected => self.changed.notify_one(),
            Event::Disconnected(_) => {}
            Event::Changed(changes) => {
                if self.cache.follow(&self.updates, &changes) == RowNews::Look {
                    self.changed.notify_one();
                }
                self.restored.changed(&self.updates);
            }
        }
    }

    fn answer(&mut self, question: Question) {
        // A task that asked may have ended with the runtime: then nothing receives the answer.
        match question {
            Question::Look { links, answer } => {
                let _ = answer.send(self.look(&links));
            }
            Question::Suspects { links, answer } => {
                let _ = answer.send(self.compare(&links).suspects);
            }
            Question::KnowsAny { names, answer } => {
                let _ = answer.send(names.iter().any(|name| self.cache.knows(name)));
            }
            Question::Restored(interfaces) => self.restored.add(interfaces, &self.updates),
        }
    }

    fn look(&mut self, links: &KnownLinks) -> Look {
        let Plan { mut missing, suspects, doubt } = self.compare(links);
        // Before anything is restored: this also learns which sandboxes are being detached.
        self.forget(links);
        missing.retain(|attached| !self.leaving.contains(attached.identity.sandbox.as_str()));
        let qos = |attached: &RecordedPort| {
            attached.qos.filter(|qos| port_cache::has_qos(&self.updates, *qos))
        };
        let missing = missing
            .into_iter()
            .map(|attached| MissingPort { qos: qos(&attached), attached })
            .collect();
        let ignored = self.ignored(links);
        Look { missing, suspects, doubt, ignored }
    }

    /// The devices that the host's own stack has to ignore: those of the bridge's ports, and those
    /// of pods' ports that are missing, which are about to be restored.
    fn ignored(&self, links: &KnownLinks) -> IgnoredDevices {
        let recorded = self.cache.iter().map(|attached| attached.name.as_str());
        let named: HashSet<&str> = port_cache::devices(&self.updates).chain(recorded).collect();
        IgnoredDevices::of(port_cache::datapath(&self.updates), &named, links)
    }

    /// Compares these links with rows and pods as known now.
    fn compare(&self, links: &KnownLinks) -> Plan {
        let names: HashSet<&str> = port_cache::names(&self.updates).collect();
        let recorded: Vec<Arc<RecordedPort>> = self.cache.iter().cloned().collect();
        let pods = |pod: &PodKey, uid: &str| life(&*self.environment.pods, pod, uid);
        AttachmentView {
            recorded: &recorded,
            present: &self.cache.present(&self.updates),
            names: &names,
            links: &links.veths,
            others: &links.other_names(),
            deviceless: &port_cache::deviceless(&self.updates).collect(),
            own_node: &self.environment.own_node.borrow(),
            pods: &pods,
        }
        .compare()
    }

    /// Forgets attachments that have neither row nor link any more, and sandboxes that are detached
    /// by now.
    fn forget(&mut self, links: &KnownLinks) {
        let linked: HashSet<&str> = links.veths.values().map(|link| link.name.as_str()).collect();
        let names: HashSet<&str> = port_cache::names(&self.updates).collect();
        self.cache.forget(|attached| {
            !linked.contains(attached.name.as_str()) && !names.contains(attached.name.as_str())
        });
        while let Ok(sandbox) = self.detaching.try_recv() {
            self.leaving.insert(sandbox);
        }
        // The DEL has ended once neither row nor link is left.
        self.leaving.retain(|sandbox| {
            self.cache.iter().any(|attached| attached.identity.sandbox.as_str() == sandbox)
        });
    }
}

/// What is known of a pod. `uid` is that of the requested one; empty if unknown.
fn life(pods: &dyn PodSource, pod: &PodKey, uid: &str) -> Life {
    let known = pods.watch(pod).now();
    match known {
        Some(known)
            if uid.is_empty()
                || known.facts.uid.is_empty()
                || known.facts.uid == uid
                || known.facts.is_mirror() =>
        {
            Life::Living(known.facts.clone())
        }
        // Gone only if the source is up to date, and not for a static pod whose mirror is being
        // replaced.
        Some(_) | None if pods.readiness() == Readiness::Synced && !pods.awaits_mirror(pod) => {
            Life::Gone
        }
        Some(_) | None => Life::Unknown,
    }
}
