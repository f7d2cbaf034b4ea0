//! The pods that are known, with one notification each. What a pod is to a request, and where it is known from, others know.

use std::{
    collections::{BTreeMap, HashMap},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use contract::{annotation::CONFIG_SOURCE, names::PodKey};
use tokio::{sync::watch, time::Instant};

/// What a source says of a pod.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PodFacts {
    /// Empty if the source has none.
    pub uid: String,
    pub annotations: BTreeMap<String, String>,
}

impl PodFacts {
    /// Whether the pod came from a file on the node. Its UID is that of the API server's mirror of it, and another after each time that
    /// somebody deletes the mirror.
    pub fn is_mirror(&self) -> bool {
        self.annotations.get(CONFIG_SOURCE).is_some_and(|source| source != "api")
    }
}

/// A pod as it is known now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pod {
    pub facts: PodFacts,
    /// Differs between a pod and its successor of the same name, even where neither has a UID and nobody looked in between.
    pub incarnation: u64,
}

/// All pods that a source knows. Clones share one content.
#[derive(Debug, Clone, Default)]
pub struct Pods {
    content: Arc<Mutex<Content>>,
}

/// A channel for every pod that is known or watched; a pod that is neither has none.
#[derive(Debug, Default)]
struct Content {
    pods: HashMap<PodKey, watch::Sender<Option<Arc<Pod>>>>,
    incarnations: u64,
    /// Static pods without a mirror, and since when.
    without_mirror: HashMap<PodKey, Instant>,
}

/// A kubelet makes a mirror anew that somebody has deleted: at once, or when it looks at the pod next, after 60 to 90 s (its
/// `syncFrequency`, with jitter).
const WITHOUT_MIRROR: Duration = Duration::from_secs(120);

/// A pod that is followed. Dropping it ends that.
#[derive(Debug)]
pub struct PodWatch {
    // In this order: the receiver is gone when `Watched` looks whether there are others.
    receiver: watch::Receiver<Option<Arc<Pod>>>,
    _watched: Watched,
}

#[derive(Debug)]
struct Watched {
    key: PodKey,
    pods: Pods,
}

impl Pods {
    /// Follows a pod, known or not.
    pub fn watch(&self, key: &PodKey) -> PodWatch {
        let receiver = self.lock().pods.entry(key.clone()).or_insert_with(|| watch::Sender::new(None)).subscribe();
        PodWatch { receiver, _watched: Watched { key: key.clone(), pods: self.clone() } }
    }

    /// A pod is there, new or changed. One with another UID is another pod.
    pub fn put(&self, key: &PodKey, facts: PodFacts) {
        let mut content = self.lock();
        content.without_mirror.remove(key);
        let next = content.incarnations + 1;
        let sender = content.pods.entry(key.clone()).or_insert_with(|| watch::Sender::new(None));
        let known = sender.borrow().clone();
        if known.as_ref().is_some_and(|pod| pod.facts == facts) {
            return;
        }
        let incarnation = known.filter(|pod| pod.facts.uid == facts.uid).map_or(next, |pod| pod.incarnation);
        sender.send_replace(Some(Arc::new(Pod { facts, incarnation })));
        content.incarnations = next;
    }

    /// A pod is no longer there.
    pub fn remove(&self, key: &PodKey) {
        let mut content = self.lock();
        if let Some(sender) = content.pods.get(key) {
            let was = sender.send_replace(None);
            content.forget_if_unused(key);
            if was.is_some_and(|pod| pod.facts.is_mirror()) {
                content.without_mirror.retain(|_, since| since.elapsed() < WITHOUT_MIRROR);
                content.without_mirror.insert(key.clone(), Instant::now());
            }
        }
    }

    /// Whether the pod is a static one whose mirror has gone and may come back: its kubelet runs it with or without a mirror.
    pub fn awaits_mirror(&self, key: &PodKey) -> bool {
        self.lock().without_mirror.get(key).is_some_and(|since| since.elapsed() < WITHOUT_MIRROR)
    }

    /// The pods that are known, for a source that has to find out which of them no longer exist.
    pub fn known(&self) -> Vec<PodKey> {
        self.lock().pods.iter().filter(|(_, sender)| sender.borrow().is_some()).map(|(key, _)| key.clone()).collect()
    }

    /// UIDs of the pods that are known.
    pub fn uids(&self) -> HashMap<PodKey, String> {
        let uid = |sender: &watch::Sender<Option<Arc<Pod>>>| sender.borrow().as_ref().map(|pod| pod.facts.uid.clone());
        self.lock().pods.iter().filter_map(|(key, sender)| Some((key.clone(), uid(sender)?))).collect()
    }

    fn lock(&self) -> MutexGuard<'_, Content> {
        self.content.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Content {
    fn forget_if_unused(&mut self, key: &PodKey) {
        if self.pods.get(key).is_some_and(|sender| sender.receiver_count() == 0 && sender.borrow().is_none()) {
            self.pods.remove(key);
        }
    }
}

impl PodWatch {
    /// The pod as it is now; none as long as it is not known.
    pub fn now(&mut self) -> Option<Arc<Pod>> {
        self.receiver.borrow_and_update().clone()
    }

    /// Waits until something is different from what [`PodWatch::now`] returned last.
    pub async fn changed(&mut self) {
        if self.receiver.changed().await.is_err() {
            // The channel of a watched pod is never removed.
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
