//! The known pods, each with its own notification. Knows neither requests nor sources.

use std::{
    collections::{BTreeMap, HashMap},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use contract::{
    annotation::{AnnotationError, CONFIG_SOURCE, PodNetwork},
    names::{Network, PodKey},
};
use tokio::{sync::watch, time::Instant};

/// A pod as a source reports it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PodFacts {
    /// Empty if the source has none.
    pub uid: String,
    /// At least those of [`KEPT_ANNOTATIONS`](super::KEPT_ANNOTATIONS) that the pod has.
    pub annotations: BTreeMap<String, String>,
}

impl PodFacts {
    /// Whether the pod is a static one, from a file on the node. Its UID is that of its mirror in
    /// the API server, and changes each time that the mirror is deleted and made again.
    pub fn is_mirror(&self) -> bool {
        // "file" or "http" on a mirror.
        self.annotations.get(CONFIG_SOURCE).is_some_and(|source| source != "api")
    }
}

/// A known pod.
#[derive(Debug)]
pub struct Pod {
    pub facts: PodFacts,
    /// A number that differs between a pod and its successor of the same name, even if neither has
    /// a UID, and no watch saw the time in between.
    pub incarnation: u64,
    /// The networks that were asked for, by their keys in the annotation.
    networks: Mutex<Vec<(String, Arc<PodNetwork>)>>,
}

impl Pod {
    pub(crate) fn new(facts: PodFacts, incarnation: u64) -> Self {
        Self { facts, incarnation, networks: Mutex::default() }
    }

    /// The pod's settings on `network`; `None` until the control plane has written them. An
    /// annotation is parsed once for ADD, the port and the waits for changes.
    pub(crate) fn network(
        &self,
        network: &Network,
    ) -> Result<Option<Arc<PodNetwork>>, AnnotationError> {
        // After a panic of another task the list is used as it is: entries are only ever added
        // whole.
        let mut networks = self.networks.lock().unwrap_or_else(PoisonError::into_inner);
        let key = network.annotation_key();
        if let Some((_, parsed)) = networks.iter().find(|(other, _)| other == key) {
            return Ok(Some(Arc::clone(parsed)));
        }
        let parsed = PodNetwork::from_annotations(&self.facts.annotations, network)?.map(Arc::new);
        networks.extend(parsed.iter().map(|parsed| (key.to_owned(), Arc::clone(parsed))));
        Ok(parsed)
    }
}

/// The parsed networks follow from the annotations.
impl PartialEq for Pod {
    fn eq(&self, other: &Self) -> bool {
        let Self { facts, incarnation, networks: _ } = self;
        (facts, incarnation) == (&other.facts, &other.incarnation)
    }
}

impl Eq for Pod {}

/// All known pods of a source. Clones share them.
#[derive(Debug, Clone, Default)]
pub struct Pods {
    content: Arc<Mutex<Content>>,
}

/// A channel for each pod that is known or watched.
#[derive(Debug, Default)]
struct Content {
    pods: HashMap<PodKey, watch::Sender<Option<Arc<Pod>>>>,
    incarnations: u64,
    /// Static pods without a mirror, each with the time when it was deleted.
    without_mirror: HashMap<PodKey, Instant>,
}

/// How long a static pod counts as running without its mirror. The kubelet makes a deleted mirror
/// anew at once, or when it looks at the pod next, after 60 to 90 s (`syncFrequency`, with jitter).
/// Shorter, and a pod that runs would lose its network; a pod that is really gone keeps its port
/// for this long.
const WITHOUT_MIRROR: Duration = Duration::from_secs(120);

/// A watch on one pod, known or not, until it is dropped.
#[derive(Debug)]
pub struct PodWatch {
    // Fields are dropped in this order: `Watched` counts the receivers that are left.
    receiver: watch::Receiver<Option<Arc<Pod>>>,
    _watched: Watched,
}

/// Removes the channel of a pod with its last watch.
#[derive(Debug)]
struct Watched {
    key: PodKey,
    pods: Pods,
}

impl Pods {
    /// Follows a pod, whether it is known or not.
    pub fn watch(&self, key: &PodKey) -> PodWatch {
        let receiver = self
            .lock()
            .pods
            .entry(key.clone())
            .or_insert_with(|| watch::Sender::new(None))
            .subscribe();
        PodWatch { receiver, _watched: Watched { key: key.clone(), pods: self.clone() } }
    }

    /// A pod is new or has changed. With another UID it is another pod.
    pub fn put(&self, key: &PodKey, facts: PodFacts) {
        let mut content = self.lock();
        content.without_mirror.remove(key);
        let next = content.incarnations + 1;
        let sender = content.pods.entry(key.clone()).or_insert_with(|| watch::Sender::new(None));
        let known = sender.borrow().clone();
        // Kubelets change the status of a pod all the time: only other facts wake the watches.
        if known.as_ref().is_some_and(|pod| pod.facts == facts) {
            return;
        }
        let incarnation =
            known.filter(|pod| pod.facts.uid == facts.uid).map_or(next, |pod| pod.incarnation);
        sender.send_replace(Some(Arc::new(Pod::new(facts, incarnation))));
        content.incarnations = next;
    }

    /// A pod is gone.
    pub fn remove(&self, key: &PodKey) {
        let mut content = self.lock();
        if let Some(sender) = content.pods.get(key) {
            let was = sender.send_replace(None);
            content.forget_if_unused(key);
            if was.is_some_and(|pod| pod.facts.is_mirror()) {
                // Expired entries go here, so the map needs no timer.
                content.without_mirror.retain(|_, since| since.elapsed() < WITHOUT_MIRROR);
                content.without_mirror.insert(key.clone(), Instant::now());
            }
        }
    }

    /// Whether the pod is a static one whose mirror is gone and may come back. Its kubelet runs it
    /// without a mirror, too.
    pub fn awaits_mirror(&self, key: &PodKey) -> bool {
        self.lock().without_mirror.get(key).is_some_and(|since| since.elapsed() < WITHOUT_MIRROR)
    }

    /// The known pods, for a source that compares them with a complete list.
    pub fn known(&self) -> Vec<PodKey> {
        self.lock()
            .pods
            .iter()
            .filter(|(_, sender)| sender.borrow().is_some())
            .map(|(key, _)| key.clone())
            .collect()
    }

    /// The UIDs of the known pods.
    pub fn uids(&self) -> HashMap<PodKey, String> {
        let uid = |sender: &watch::Sender<Option<Arc<Pod>>>| {
            sender.borrow().as_ref().map(|pod| pod.facts.uid.clone())
        };
        self.lock()
            .pods
            .iter()
            .filter_map(|(key, sender)| Some((key.clone(), uid(sender)?)))
            .collect()
    }

    // After a panic of another task the content is used as it is: the node has to go on.
    fn lock(&self) -> MutexGuard<'_, Content> {
        self.content.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Content {
    /// Drops the channel of a pod that is neither known nor watched.
    fn forget_if_unused(&mut self, key: &PodKey) {
        if self
            .pods
            .get(key)
            .is_some_and(|sender| sender.receiver_count() == 0 && sender.borrow().is_none())
        {
            self.pods.remove(key);
        }
    }
}

impl PodWatch {
    /// The pod as it is now. `None` while it is not known.
    pub fn now(&mut self) -> Option<Arc<Pod>> {
        self.receiver.borrow_and_update().clone()
    }

    /// Waits until the pod differs from what [`PodWatch::now`] returned last. Cancellation-safe.
    pub async fn changed(&mut self) {
        if self.receiver.changed().await.is_err() {
            // Does not happen: the channel of a watched pod is not removed.
            std::future::pending().await
        }
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        self.pods.lock().forget_if_unused(&self.key);
    }
}

#[cfg(test)]
mod tests;
