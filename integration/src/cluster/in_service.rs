//! Nodes and a Service's endpoints that must stay in service. Checks every state that the API
//! server reports of them, not only the first and the last.

use std::{
    fmt,
    sync::{Arc, Mutex, PoisonError},
};

use anyhow::{Result, ensure};
use futures_util::{StreamExt as _, pin_mut};
use k8s_openapi::api::{core::v1::Node, discovery::v1::EndpointSlice};
use kube::{
    Api, Resource, ResourceExt as _,
    runtime::{
        WatchStreamExt as _,
        watcher::{self, Event},
    },
};
use serde::de::DeserializeOwned;
use tokio::task::JoinHandle;

use super::{Cluster, pods::Soon};

/// What was seen since [`Cluster::keep_in_service`].
#[derive(Debug)]
pub struct InService {
    nodes: Watch,
    endpoints: Watch,
}

impl Cluster {
    /// Watches all nodes, and the endpoints of the Service `default/SERVICE`: `endpoints` of them
    /// are ready now and have to stay so.
    pub fn keep_in_service(&self, service: &str, endpoints: usize) -> InService {
        let of_service =
            watcher::Config::default().labels(&format!("kubernetes.io/service-name={service}"));
        let slices = Api::<EndpointSlice>::namespaced(self.api.client.clone(), "default");
        let too_few = move |slice: &EndpointSlice| {
            let ready = ready_endpoints(slice);
            (ready != endpoints)
                .then(|| format!("{} has {ready} of {endpoints} endpoints", slice.name_any()))
        };
        InService {
            nodes: Watch::begin(
                self,
                Api::<Node>::all(self.api.client.clone()),
                watcher::Config::default(),
                not_ready,
            ),
            endpoints: Watch::begin(self, slices, of_service, too_few),
        }
    }
}

impl InService {
    /// Checks everything that was seen.
    ///
    /// # Errors
    /// If a node or an endpoint was not ready at any time, or nothing was seen.
    pub fn verdict(&self) -> Result<()> {
        self.nodes.verdict()?;
        self.endpoints.verdict()
    }
}

/// A watch on the objects of one kind, and every fault that it saw in one of them.
#[derive(Debug)]
struct Watch {
    seen: Arc<Mutex<Seen>>,
    task: JoinHandle<()>,
}

#[derive(Debug, Default)]
struct Seen {
    states: usize,
    wrong: Vec<String>,
}

impl Watch {
    fn begin<K>(
        cluster: &Cluster,
        objects: Api<K>,
        which: watcher::Config,
        judge: impl Fn(&K) -> Option<String> + Send + 'static,
    ) -> Self
    where
        K: Resource<DynamicType = ()> + Clone + fmt::Debug + DeserializeOwned + Send + 'static,
    {
        let seen = Arc::new(Mutex::new(Seen::default()));
        let shared = Arc::clone(&seen);
        let task = cluster.api.runtime.spawn(async move {
            // After a failure the watch resumes where it stopped, so that no state is missed.
            let events = watcher::watcher(objects, which).backoff(Soon);
            pin_mut!(events);
            while let Some(event) = events.next().await {
                let (states, wrong) = match event {
                    Ok(Event::InitApply(object) | Event::Apply(object)) => (1, judge(&object)),
                    Ok(Event::Delete(object)) => {
                        (1, Some(format!("{} was deleted", object.name_any())))
                    }
                    Ok(Event::Init | Event::InitDone) | Err(_) => (0, None),
                };
                let mut seen = shared.lock().unwrap_or_else(PoisonError::into_inner);
                seen.states += states;
                seen.wrong.extend(wrong);
            }
        });
        Self { seen, task }
    }

    fn verdict(&self) -> Result<()> {
        let seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        ensure!(seen.states > 0, "nothing was seen");
        ensure!(seen.wrong.is_empty(), "out of service: {:#?}", seen.wrong);
        Ok(())
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Why the node is out of service: it gets no new pods, and its pods leave their Services. None for
/// a node that is ready.
fn not_ready(node: &Node) -> Option<String> {
    let conditions =
        node.status.as_ref().and_then(|status| status.conditions.as_deref()).unwrap_or_default();
    match conditions.iter().find(|condition| condition.type_ == "Ready") {
        Some(ready) if ready.status == "True" => None,
        Some(ready) => Some(format!(
            "{}: Ready is {}, {:?}: {:?}",
            node.name_any(),
            ready.status,
            ready.reason,
            ready.message
        )),
        None => Some(format!("{} says nothing of Ready", node.name_any())),
    }
}

fn ready_endpoints(slice: &EndpointSlice) -> usize {
    let is_ready = |endpoint: &&k8s_openapi::api::discovery::v1::Endpoint| {
        endpoint.conditions.as_ref().is_some_and(|conditions| conditions.ready == Some(true))
    };
    slice.endpoints.iter().filter(is_ready).count()
}
