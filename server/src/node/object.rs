//! Follows this node's own object in the API server, and reads the node's subnets from it.

use std::{collections::BTreeMap, net::IpAddr, sync::Arc, time::Duration};

use contract::node_annotation::{NODE_SUBNETS, NodeAnnotations};
use kube::api::ObjectMeta;
use kubeapi::{
    Connection,
    watch::{self as objects, Observer, Prompt, Selection, Watched, WrongVersion},
};
use serde::Deserialize;
use tokio::{sync::watch, time::timeout};

use super::management_port::{AssignedSubnets, AssignedSubnetsOf};
use crate::{chain, conditions::Conditions, events::Events};

/// The timeout of one answer to a list. An API server that has just started fills its caches before
/// it answers, and a list that is given up earlier starts from the beginning.
const FIRST: Duration = Duration::from_secs(60);
/// A node without a subnet for this long gets an event, and another one each time that this passes
/// again. A cluster manager that works assigns a subnet within seconds, and events are aggregated,
/// so more of them would add nothing.
const LATE: Duration = Duration::from_secs(30);

/// The object as far as it is known.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum NodeView {
    /// Not known yet, with the reason.
    Unknown(String),
    /// The API server has no such object.
    Absent,
    There(Arc<NodeFacts>),
}

/// The fields of the object that are used.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct NodeFacts {
    pub(super) uid: String,
    pub(super) annotations: BTreeMap<String, String>,
    /// The node's zone of the data centre.
    pub(super) zone: Option<Arc<str>>,
    /// The node's addresses of type `InternalIP`, which the kubelet writes, in its order.
    pub(super) addresses: Vec<IpAddr>,
    /// Whether the node is about to go, so that new connections should not be sent to it.
    pub(super) is_leaving: bool,
}

/// The taint with which the cluster autoscaler marks a node that it removes. Kube-proxy goes by it,
/// too.
const TO_BE_DELETED: &str = "ToBeDeletedByClusterAutoscaler";

/// The label with the zone of the data centre.
const TOPOLOGY_ZONE: &str = "topology.kubernetes.io/zone";

/// Follows the object of node `name` for as long as the runtime lives.
pub(super) fn follow(connection: &Connection, name: &str) -> watch::Receiver<NodeView> {
    let waiting = format!("the API server {} has not reported node {name} yet", connection.url());
    let (view, views) = watch::channel(NodeView::Unknown(waiting));
    let selection = Selection { patience: FIRST, ..Selection::named(name) };
    let follower = NodeObserver { name: name.to_owned(), view };
    tokio::spawn(objects::follow::<OwnNodeObject, _>(
        connection.clone(),
        selection,
        Prompt::default(),
        follower,
    ));
    views
}

/// The node's zone as of the object, for as long as the object is followed. What is not known has
/// none.
pub(super) fn zone(mut views: watch::Receiver<NodeView>) -> watch::Receiver<Option<Arc<str>>> {
    let of = |view: &NodeView| match view {
        NodeView::There(facts) => facts.zone.clone(),
        NodeView::Unknown(_) | NodeView::Absent => None,
    };
    let (sender, zone) = watch::channel(of(&views.borrow_and_update()));
    tokio::spawn(async move {
        while views.changed().await.is_ok() {
            let now = of(&views.borrow_and_update());
            sender.send_if_modified(|before| std::mem::replace(before, now.clone()) != now);
        }
    });
    zone
}

/// The node's subnets as of the object, for as long as the object is followed.
pub(super) fn assigned(
    name: &str,
    mut views: watch::Receiver<NodeView>,
) -> watch::Receiver<AssignedSubnetsOf> {
    let name = name.to_owned();
    let (sender, assigned) = watch::channel(assigned_to(&name, &views.borrow_and_update()));
    tokio::spawn(async move {
        while views.changed().await.is_ok() {
            let now = assigned_to(&name, &views.borrow_and_update());
            // The object changes with each status update of the kubelet: only other subnets wake
            // the receivers.
            sender.send_if_modified(|before| std::mem::replace(before, now.clone()) != now);
        }
    });
    assigned
}

/// Posts an event on the node while it has no subnet for long. Returns once it has one.
pub(super) async fn tell_of_waiting(
    name: String,
    views: watch::Receiver<NodeView>,
    mut assigned: watch::Receiver<AssignedSubnetsOf>,
    events: Events,
) {
    loop {
        if timeout(LATE, assigned.wait_for(Result::is_ok)).await.is_ok_and(|found| found.is_ok()) {
            return;
        }
        let why = assigned.borrow().as_ref().err().cloned();
        // Without the object there is no node to post the event on.
        if let (NodeView::There(seen), Some(why)) = (&*views.borrow(), why) {
            events.no_subnet(&name, &seen.uid, &why);
        }
    }
}

/// Keeps in `conditions` whether the node is about to go.
pub(super) async fn tell_of_leaving(mut views: watch::Receiver<NodeView>, conditions: Conditions) {
    loop {
        let is_leaving = match &*views.borrow_and_update() {
            NodeView::There(seen) => seen.is_leaving,
            NodeView::Unknown(_) | NodeView::Absent => false,
        };
        conditions.leave(is_leaving);
        if views.changed().await.is_err() {
            return;
        }
    }
}

/// The subnets as of `view`, or why they are not known.
fn assigned_to(name: &str, view: &NodeView) -> AssignedSubnetsOf {
    let seen = match view {
        NodeView::Unknown(why) => return Err(why.clone()),
        NodeView::Absent => {
            return Err(format!(
                "the API server knows no node {name}: has its kubelet registered it, under this name?"
            ));
        }
        NodeView::There(seen) => seen,
    };
    let annotations = NodeAnnotations(&seen.annotations);
    let unusable = |error| format!("node {name}: annotation {}", chain(&error));
    let subnets = annotations.subnets().map_err(unusable)?;
    if subnets.is_empty() {
        return Err(format!(
            "node {name} has no subnet yet: the cluster manager writes it (annotation {NODE_SUBNETS})"
        ));
    }
    let mac = annotations.management_mac().map_err(unusable)?;
    // The cluster manager reports what cannot be read.
    let join = annotations.join_addresses().unwrap_or_default();
    let router_mac = annotations.router_mac().map_err(unusable)?;
    Ok(AssignedSubnets { subnets, mac, router_mac, join })
}

/// The object, reduced to the fields in use while it is parsed.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(super) struct OwnNodeObject {
    metadata: ObjectMeta,
    spec: OwnNodeSpec,
    status: OwnNodeStatus,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
struct OwnNodeSpec {
    taints: Option<Vec<NodeTaint>>,
}

#[derive(Debug, Clone, Deserialize)]
struct NodeTaint {
    key: String,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
struct OwnNodeStatus {
    addresses: Option<Vec<NodeAddress>>,
}

#[derive(Debug, Clone, Deserialize)]
struct NodeAddress {
    #[serde(rename = "type")]
    kind: String,
    address: String,
}

impl Watched for OwnNodeObject {
    type Key = ();
    type Value = NodeFacts;
    const PATH: &'static str = "/api/v1/nodes";
    const KIND: &'static str = "nodes";

    fn version(&self) -> &str {
        self.metadata.resource_version.as_deref().unwrap_or_default()
    }

    /// The selection has one object at most, so it needs no key.
    fn key(&self) -> Result<(), String> {
        Ok(())
    }

    fn value(self) -> Result<NodeFacts, String> {
        Ok(NodeFacts::from(self))
    }
}

struct NodeObserver {
    name: String,
    view: watch::Sender<NodeView>,
}

impl NodeObserver {
    /// Publishes `now` if it differs.
    fn see(&self, now: NodeView) {
        self.view.send_if_modified(|view| {
            let is_new = *view != now;
            *view = now;
            is_new
        });
    }
}

impl Observer<OwnNodeObject> for NodeObserver {
    fn all(&mut self, mut objects: Vec<NodeFacts>, _version: String) {
        // Selected by name: the list has one object, or none.
        self.see(objects.pop().map_or(NodeView::Absent, |seen| NodeView::There(Arc::new(seen))));
    }

    fn applied(&mut self, seen: NodeFacts, _version: &str) -> Result<(), WrongVersion> {
        self.see(NodeView::There(Arc::new(seen)));
        Ok(())
    }

    fn deleted(&mut self, (): (), _version: &str) -> Result<(), WrongVersion> {
        self.see(NodeView::Absent);
        Ok(())
    }

    fn left_out(&mut self, _reason: &str) {}

    fn heard(&mut self) {}

    fn lost(&mut self, why: &str) {
        self.view.send_if_modified(|view| match view {
            // The last view stays: an API server that is away changes no subnet.
            NodeView::There(_) => false,
            NodeView::Unknown(before) if *before == why => false,
            _ => {
                tracing::warn!(
                    problem = why,
                    node = self.name,
                    "the watch on the node's own object is disconnected"
                );
                *view = NodeView::Unknown(why.to_owned());
                true
            }
        });
    }

    fn begins_anew(&mut self, why: &str) {
        tracing::debug!(
            reason = why,
            node = self.name,
            "the watch on the node's own object starts over, with a list"
        );
    }
}

impl From<OwnNodeObject> for NodeFacts {
    fn from(node: OwnNodeObject) -> Self {
        let addresses = node.status.addresses.unwrap_or_default();
        let internal = addresses.into_iter().filter(|address| address.kind == "InternalIP");
        let taints = node.spec.taints.unwrap_or_default();
        let is_leaving = node.metadata.deletion_timestamp.is_some()
            || taints.iter().any(|taint| taint.key == TO_BE_DELETED);
        Self {
            is_leaving,
            uid: node.metadata.uid.unwrap_or_default(),
            zone: node
                .metadata
                .labels
                .and_then(|labels| labels.get(TOPOLOGY_ZONE).map(|zone| (**zone).into())),
            annotations: node.metadata.annotations.unwrap_or_default(),
            addresses: internal.filter_map(|address| address.address.parse().ok()).collect(),
        }
    }
}

#[cfg(test)]
mod tests;
