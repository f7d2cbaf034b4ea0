//! Another world: how soon a pod that starts may use the network with and without policies, and
//! kube-burner's workload of network policies at the size of one node.
//!
//! The API server, the control plane, OVN and the node's server are real. The node has no kubelet:
//! pods are objects, and this program calls the plugin for them as a container runtime does, so
//! that it knows when.
//!
//! | file | what it is |
//! |---|---|
//! | [`objects`] | pods, and policies in kube-burner's shape |
//! | [`starts`] | a pod's ADD and its first packet |
//! | [`workload`] | policies that come while connections wait for them |
//! | [`report`] | figures and goals |

use std::{
    net::SocketAddr,
    slice,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use anyhow::{Context as _, Result, ensure};
use integration::{
    Cluster, Node, Pod,
    connections::{Reaching, Server},
    eventually,
    peer::{Pace, Reply},
    traffic::End,
};
use serde::Serialize;
use serde_json::{Value, json};

use self::{
    objects::Name,
    starts::Starts,
    workload::{Arrival, Workload},
};
use super::site::PATIENCE;

pub(super) mod objects;
pub(super) mod report;
pub(super) mod starts;
pub(super) mod workload;

/// Room on the node for all pods of the workload, and for those that start beside them: an address
/// that was in use is not assigned again at once.
const CLUSTER_SUBNETS: &str = "10.244.0.0/16/22";

/// Everything that is measured.
#[derive(Debug, Serialize)]
pub(crate) struct Measured {
    pub(crate) starts: Starts,
    pub(crate) workload: Vec<workload::Measured>,
}

/// The cluster.
pub(crate) struct World {
    cluster: Cluster,
    /// Pods that were removed. The lab has names for the sandboxes of 252 pods of a node, and of
    /// any number that come after one of these.
    gone: Mutex<Vec<Pod>>,
}

impl World {
    pub(crate) fn start(say: &(dyn Fn(&str) + Sync)) -> Result<Self> {
        let cluster = Cluster::of_nodes(1).cluster_subnets(CLUSTER_SUBNETS).build(say)?;
        // It has registered the node, and would start these pods.
        cluster.workers[0].kubelet.stop()?;
        Ok(Self { cluster, gone: Mutex::default() })
    }

    /// Measures so many starts of pods of each kind, and the workload.
    pub(crate) fn measure(&self, starts: u16, say: &dyn Fn(&str)) -> Result<Measured> {
        let starts = starts::measure(self, starts, say)?;
        let workload = Workload::prepare(self, say)?;
        let workload = Arrival::ALL.map(|arrival| workload.measure(arrival, say));
        Ok(Measured { starts, workload: workload.into_iter().collect::<Result<_>>()? })
    }

    fn node(&self) -> &Node {
        &self.cluster.lab.nodes[0]
    }

    fn create_namespaces(&self, names: &[String]) -> Result<()> {
        let objects: Vec<Value> =
            names.iter().map(|name| json!({"metadata": {"name": name}})).collect();
        self.cluster.api.create_all("/api/v1/namespaces", &objects)?;
        // No pod is admitted before.
        names.iter().try_for_each(|name| {
            let path = format!("/api/v1/namespaces/{name}/serviceaccounts/default");
            eventually("the namespace has its service account", PATIENCE, || {
                self.cluster.api.read(&path).map(drop)
            })
        })
    }

    /// The pod before it has a network: its network namespace is there.
    fn sandbox(&self, name: &Name) -> Result<Pod> {
        let former = self.gone.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let plan = || self.cluster.lab.plan_pod(self.node());
        let mut pod = former.map_or_else(plan, |former| former.recreated());
        pod.namespace.clone_from(&name.namespace);
        pod.name.clone_from(&name.name);
        // The control plane decides.
        pod.addresses.clear();
        self.node().add_namespaces(slice::from_ref(&pod))?;
        Ok(pod)
    }

    /// Creates the pod's object.
    fn create(&self, pod: &mut Pod, labels: &Value) -> Result<()> {
        let object = objects::pod(&pod.name, &self.node().name, labels);
        let created = self.cluster.api.create(&objects::pods(&pod.namespace), &object)?;
        created["metadata"]["uid"].as_str().context("a pod has a UID")?.clone_into(&mut pod.uid);
        Ok(())
    }

    /// Calls ADD for it.
    fn add(&self, pod: &mut Pod) -> Result<()> {
        let result = self.node().runtime().add(pod)?.success()?;
        let address = result["ips"][0]["address"].as_str().context("ADD returns an address")?;
        pod.addresses = vec![address.parse()?];
        Ok(())
    }

    /// Detaches the pod, and deletes it.
    fn remove(&self, pod: &Pod) -> Result<()> {
        self.node().runtime().del(pod)?.success()?;
        self.node().remove_namespaces(slice::from_ref(pod))?;
        // At once: nobody else would say that its containers have ended.
        let path = format!("{}/{}?gracePeriodSeconds=0", objects::pods(&pod.namespace), pod.name);
        self.cluster.api.delete(&path)?;
        self.gone.lock().unwrap_or_else(PoisonError::into_inner).push(pod.clone());
        Ok(())
    }

    fn create_policy(&self, namespace: &str, policy: &Value) -> Result<()> {
        self.cluster.api.create(&objects::policies(namespace), policy).map(drop)
    }

    fn delete_policy(&self, namespace: &str, number: u8) -> Result<()> {
        let path = format!("{}/{}", objects::policies(namespace), objects::policy_name(number));
        self.cluster.api.delete(&path).map(drop)
    }

    /// Waits until the node has the flows of `acls` rows of policies.
    fn until_acls(&self, acls: usize) -> Result<()> {
        let condition = "external_ids:\"k8s.ovn.org/owner-type\"=NetworkPolicy";
        eventually("the policies have their rows", PATIENCE, || {
            let found = self.cluster.lab.central.nbctl([
                "--bare",
                "--columns=_uuid",
                "find",
                "ACL",
                condition,
            ])?;
            let found = found.split_whitespace().count();
            ensure!(found == acls, "{found} ACLs of {acls}");
            Ok(())
        })?;
        self.cluster.lab.central.sync()
    }

    fn reaching(&self, pod: &Pod, every: Duration) -> Result<Reaching> {
        self.cluster.lab.reaching(pod, Pace { every, ..Pace::FAST })
    }

    /// Starts a server in the pod at these ports.
    fn answering(&self, pod: &Pod, ports: impl IntoIterator<Item = u16>) -> Result<Server> {
        let address = pod.address();
        let places: Vec<SocketAddr> =
            ports.into_iter().map(|port| SocketAddr::new(address, port)).collect();
        self.cluster.lab.answering(pod, &places)
    }

    /// Fails if the pod gets an answer from any of these places.
    fn must_not_reach(&self, pod: &Pod, places: &[SocketAddr]) -> Result<()> {
        let [replies, _] = self.cluster.lab.ask(&End::Pod(pod), places, &[])?;
        let answered = places.iter().zip(&replies).find(|(_, reply)| **reply != Reply::Nothing);
        ensure!(answered.is_none(), "{} must not reach {answered:?}", pod.name);
        Ok(())
    }
}
