//! Which annotations of pods are written, and when.

use std::sync::Arc;

use contract::names::PodKey;
use kubeapi::object::Object;

use crate::{
    kinds::pod::{annotation::PodAnnotation, object::Texts, problem::PodProblem, state::Announced},
    problem::Problem,
    world::Store,
};

impl Store {
    /// Queues an event that says why the pod waits.
    pub(crate) fn tell_trouble(&mut self, key: &PodKey) {
        match (self.pods.get(key), self.trouble(key)) {
            // Without a subnet the node has the problem: no event on each of its pods.
            (_, Some(PodProblem::NodeWithoutSubnet(_)) | None) | (None, _) => {}
            (Some(known), Some(why)) => {
                let problem = Problem::new(Object::Pod(key.clone()), &known.pod.uid, why);
                self.outbox.problems.push(problem);
            }
        }
    }

    /// Queues the pod's annotations, unless they already match its network.
    pub(crate) fn announce(&mut self, key: &PodKey) {
        let config = Arc::clone(&self.config);
        let node = self.pods.get(key).and_then(|known| known.pod.node.clone());
        // The controller of another zone writes the annotations of its own pods.
        let is_local =
            node.and_then(|node| self.node(&node)).is_some_and(|node| self.assigns(node));
        let Some(known) = self.pods.get_mut(key) else { return };
        match (known.is_annotated(&config), known.announced) {
            (true, _) => {
                known.announced = Announced::Seen;
                // Only a patch needs the texts, and none is needed now.
                known.pod.texts = Texts::Right;
                self.outbox.forget(key);
            }
            // The annotation is on its way; this event shows the pod as it was before.
            (false, Announced::Sent) => {}
            (false, Announced::No | Announced::Seen) if is_local => {
                known.announced = Announced::Sent;
                self.outbox.annotations.insert(key.clone());
            }
            (false, Announced::No | Announced::Seen) => {}
        }
    }

    fn annotation(&self, pod: PodKey) -> Option<PodAnnotation> {
        let known = self.pods.get(&pod)?;
        Some(PodAnnotation {
            uid: Arc::clone(&known.pod.uid),
            pod,
            over: known.pod.spelled_texts(&self.config),
            network: Arc::clone(known.network.as_ref()?),
            other_networks: known.pod.other_networks.clone(),
            config: Arc::clone(&self.config),
        })
    }

    /// Annotations to write, each returned once. The writer retries until the pod is gone, has
    /// another UID, or has other annotations than the decision was based on. The store returns an
    /// annotation again if it disappears from the pod or changes.
    pub fn take_annotations(&mut self) -> Vec<PodAnnotation> {
        let keys = std::mem::take(&mut self.outbox.annotations);
        keys.into_iter().filter_map(|pod| self.annotation(pod)).collect()
    }
}
