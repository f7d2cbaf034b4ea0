//! A stand-in for the project's control plane: gives each pod an address, its logical port and its annotation.
//!
//! One process, its memory in itself, one address family: enough for a cluster that begins and ends with it.

use std::{
    collections::{BTreeMap, HashMap},
    fs::File,
    io::Write as _,
    path::Path,
    sync::Arc,
    time::Duration,
};

use anyhow::{Context as _, Result};
use futures_util::{StreamExt as _, stream};
use k8s_openapi::api::core::v1::Pod;
use kube::{
    ResourceExt as _,
    api::{Patch, PatchParams},
};
use serde_json::json;
use tokio::sync::mpsc::UnboundedReceiver;

use super::{api::Api, pods::Change};
use crate::{Lab, Pod as LabPod, mounts, subnet};

/// A pod with this annotation gets nothing.
pub const IGNORE: &str = "stand-in/ignore";

/// How many annotations are written at once.
const WRITERS: usize = 16;
/// How often and how soon an annotation is tried again: for a minute.
const TRIES: u32 = 300;
const PAUSE: Duration = Duration::from_millis(200);

/// The stand-in.
pub(crate) struct StandIn {
    lab: Arc<Lab>,
    client: kube::Client,
    /// By UID of the pod.
    given: HashMap<String, LabPod>,
    /// The last host number given on each node, and who has which.
    hosts: HashMap<String, Hosts>,
}

#[derive(Debug, Default)]
struct Hosts {
    last: u32,
    /// UIDs.
    taken: BTreeMap<u32, String>,
}

impl StandIn {
    /// Acts on `changes` until nobody sends any more; what it could not do is in its log, `stand-in.log`.
    pub(crate) fn start(lab: Arc<Lab>, api: &Api, mut changes: UnboundedReceiver<Change>) -> Result<()> {
        let mut log = File::create(Path::new(mounts::LOGS).join("kubernetes").join("stand-in.log"))?;
        let mut stand_in = Self { lab, client: api.client.clone(), given: HashMap::new(), hosts: HashMap::new() };
        api.runtime.spawn(async move {
            let mut batch = Vec::new();
            while changes.recv_many(&mut batch, 500).await > 0 {
                if let Err(error) = stand_in.act(std::mem::take(&mut batch)).await {
                    // Nobody else could be told; who finds the log empty looks at the file system.
                    let _ = writeln!(log, "{error:#}");
                }
            }
        });
        Ok(())
    }

    async fn act(&mut self, batch: Vec<Change>) -> Result<()> {
        // A deleted pod's port comes off before the port of its successor, which has the same name, is made.
        let mut new = Vec::new();
        for change in batch {
            match change {
                Change::Applied(pod) if is_over(&pod) => self.take_back(&pod.uid().unwrap_or_default())?,
                Change::Applied(pod) => new.extend(self.give(&pod)?),
                Change::Deleted(pod) => {
                    self.make_ports(&new)?;
                    self.annotate(std::mem::take(&mut new)).await?;
                    let uid = pod.uid().unwrap_or_default();
                    self.take_back(&uid)?;
                    self.given.remove(&uid);
                }
            }
        }
        self.make_ports(&new)?;
        self.annotate(new).await
    }

    /// What a pod gets that has nothing yet.
    fn give(&mut self, pod: &Pod) -> Result<Option<LabPod>> {
        let (uid, spec) = (pod.uid().unwrap_or_default(), pod.spec.as_ref());
        let node = spec.and_then(|spec| spec.node_name.clone());
        let host_network = spec.and_then(|spec| spec.host_network).unwrap_or(false);
        let (Some(node), false) = (node, host_network || self.given.contains_key(&uid) || pod.annotations().contains_key(IGNORE)) else {
            return Ok(None);
        };
        let node =
            self.lab.nodes.iter().find(|known| known.name == node).with_context(|| format!("a pod is on {node}, which is no node"))?;
        let host = self.hosts.entry(node.name.clone()).or_default().take(&uid).with_context(|| format!("{} is full", node.name))?;
        let mut given = self.lab.pod_at(node, host);
        given.namespace = pod.namespace().unwrap_or_default();
        given.name = pod.name_any();
        given.uid.clone_from(&uid);
        self.given.insert(uid, given.clone());
        Ok(Some(given))
    }

    /// Port and address; a pod that is over stays known, so that it does not get others.
    fn take_back(&mut self, uid: &str) -> Result<()> {
        if let Some(given) = self.given.get(uid)
            && let Some(hosts) = self.hosts.get_mut(&given.node)
            && hosts.give_back(uid)
        {
            tokio::task::block_in_place(|| self.lab.remove_ports(std::slice::from_ref(given)))?;
        }
        Ok(())
    }

    fn make_ports(&self, pods: &[LabPod]) -> Result<()> {
        if pods.is_empty() {
            return Ok(());
        }
        tokio::task::block_in_place(|| self.lab.add_ports(pods))
    }

    async fn annotate(&self, pods: Vec<LabPod>) -> Result<()> {
        let outcomes: Vec<Result<()>> = stream::iter(pods).map(|pod| self.annotate_one(pod)).buffer_unordered(WRITERS).collect().await;
        outcomes.into_iter().collect()
    }

    /// Tries for as long as the API server is away.
    async fn annotate_one(&self, pod: LabPod) -> Result<()> {
        let annotation = pod.annotation().to_string();
        // The UID makes a patch for a pod that is gone fail instead of reaching its successor.
        let patch = Patch::Merge(json!({"metadata": {"uid": pod.uid, "annotations": {"k8s.ovn.org/pod-networks": annotation}}}));
        let api = kube::Api::<Pod>::namespaced(self.client.clone(), &pod.namespace);
        let mut tries = 0;
        loop {
            match api.patch_metadata(&pod.name, &PatchParams::default(), &patch).await {
                Err(kube::Error::Api(status)) if status.is_not_found() || status.is_conflict() => return Ok(()),
                Err(error) if tries == TRIES => return Err(error).with_context(|| format!("annotate {}/{}", pod.namespace, pod.name)),
                Err(_) => tokio::time::sleep(PAUSE).await,
                Ok(_) => return Ok(()),
            }
            tries += 1;
        }
    }
}

impl Hosts {
    /// The next free one; those that were given back come last.
    fn take(&mut self, uid: &str) -> Option<u32> {
        let all = subnet::FIRST_POD..255;
        let next = self.last + 1;
        let host = all.clone().filter(|host| *host >= next).chain(all).find(|host| !self.taken.contains_key(host))?;
        self.last = host;
        self.taken.insert(host, uid.to_owned());
        Some(host)
    }

    /// Whether it had one.
    fn give_back(&mut self, uid: &str) -> bool {
        let before = self.taken.len();
        self.taken.retain(|_, owner| owner != uid);
        self.taken.len() < before
    }
}

/// Succeeded or failed: it will never run again, and its address is free.
fn is_over(pod: &Pod) -> bool {
    let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
    matches!(phase, Some("Succeeded" | "Failed"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_that_was_given_back_is_given_again_after_all_others() {
        let mut hosts = Hosts::default();
        assert_eq!(hosts.take("a"), Some(subnet::FIRST_POD));
        assert!(hosts.give_back("a"));
        assert!(!hosts.give_back("a"));
        let others: Vec<u32> = std::iter::from_fn(|| hosts.take("b")).collect();
        assert_eq!(others.len(), 252);
        assert_eq!(others.last(), Some(&subnet::FIRST_POD));
    }
}
