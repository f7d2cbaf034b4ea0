//! This node's own object in the API server: what it says of the node's network, as soon as it says it.

use std::{collections::BTreeMap, net::IpAddr, sync::Arc, time::Duration};

use contract::node_annotation::{NODE_SUBNETS, NodeAnnotations};
use k8s_openapi::api::core::v1::Node;
use kubeapi::{
    Connection,
    watch::{self as objects, Extent, First, Observer, Prompt, Selection, Watched, WrongVersion},
};
use serde::Deserialize;
use tokio::{sync::watch, time::timeout};

use super::management_port::{Lease, LeaseOf};
use crate::{chain, events::Events};

/// How long the answer to a list may take: an API server that has just started fills its caches first.
const FIRST: Duration = Duration::from_secs(60);
/// The owner of the node is told after this long without a subnet, and again after the same time.
const LATE: Duration = Duration::from_secs(30);

/// What is known of the object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum View {
    /// Nothing, and why.
    Unknown(String),
    Absent,
    There(Arc<Seen>),
}

/// What the object says.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Seen {
    pub(super) uid: String,
    pub(super) annotations: BTreeMap<String, String>,
    /// Addresses that the kubelet gave to the node (`InternalIP`).
    pub(super) addresses: Vec<IpAddr>,
}

/// Follows the object of node `name`, for ever.
pub(super) fn follow(connection: &Connection, name: &str) -> watch::Receiver<View> {
    let waiting = format!("the API server {} has not told of node {name} yet", connection.url());
    let (view, views) = watch::channel(View::Unknown(waiting));
    let selection =
        Selection { fields: Some(format!("metadata.name={name}")), extent: Extent::Whole, first: First::Pages, patience: FIRST };
    let follower = Follower { name: name.to_owned(), view };
    tokio::spawn(objects::follow::<OwnNode, _>(connection.clone(), selection, Prompt::default(), follower));
    views
}

/// What the node has, as the object says it, for as long as the object is followed.
pub(super) fn lease(name: &str, mut views: watch::Receiver<View>) -> watch::Receiver<LeaseOf> {
    let name = name.to_owned();
    let (sender, lease) = watch::channel(lease_of(&name, &views.borrow_and_update()));
    tokio::spawn(async move {
        while views.changed().await.is_ok() {
            let now = lease_of(&name, &views.borrow_and_update());
            sender.send_if_modified(|before| std::mem::replace(before, now.clone()) != now);
        }
    });
    lease
}

/// Tells the owner of the node when it waits for long.
pub(super) async fn tell_of_waiting(name: String, views: watch::Receiver<View>, mut lease: watch::Receiver<LeaseOf>, events: Events) {
    loop {
        if timeout(LATE, lease.wait_for(Result::is_ok)).await.is_ok_and(|found| found.is_ok()) {
            return;
        }
        let why = lease.borrow().as_ref().err().cloned();
        if let (View::There(seen), Some(why)) = (&*views.borrow(), why) {
            events.no_subnet(&name, &seen.uid, &why);
        }
    }
}

fn lease_of(name: &str, view: &View) -> LeaseOf {
    let seen = match view {
        View::Unknown(why) => return Err(why.clone()),
        View::Absent => return Err(format!("the API server knows no node {name}: has its kubelet registered it, under this name?")),
        View::There(seen) => seen,
    };
    let annotations = NodeAnnotations(&seen.annotations);
    let unusable = |error| format!("node {name}: annotation {}", chain(&error));
    let subnets = annotations.subnets().map_err(unusable)?;
    if subnets.is_empty() {
        return Err(format!("node {name} has no subnet yet: the cluster manager writes it (annotation {NODE_SUBNETS})"));
    }
    Ok(Lease { subnets, mac: annotations.management_mac().map_err(unusable)? })
}

/// The object as the API spells it.
#[derive(Debug, Clone, Deserialize)]
#[serde(transparent)]
struct OwnNode(Node);

impl Watched for OwnNode {
    type Key = ();
    type Value = Seen;
    const PATH: &'static str = "/api/v1/nodes";
    const KIND: &'static str = "nodes";

    fn version(&self) -> &str {
        self.0.metadata.resource_version.as_deref().unwrap_or_default()
    }

    /// It is the only one.
    fn key(&self) -> Result<(), String> {
        Ok(())
    }

    fn value(self) -> Result<Seen, String> {
        Ok(Seen::from(self.0))
    }
}

struct Follower {
    name: String,
    view: watch::Sender<View>,
}

impl Follower {
    fn see(&self, now: View) {
        self.view.send_if_modified(|view| {
            let is_new = *view != now;
            *view = now;
            is_new
        });
    }
}

impl Observer<OwnNode> for Follower {
    fn all(&mut self, mut objects: Vec<Seen>, _version: String) {
        self.see(objects.pop().map_or(View::Absent, |seen| View::There(Arc::new(seen))));
    }

    fn applied(&mut self, seen: Seen, _version: &str) -> Result<(), WrongVersion> {
        self.see(View::There(Arc::new(seen)));
        Ok(())
    }

    fn deleted(&mut self, (): (), _version: &str) -> Result<(), WrongVersion> {
        self.see(View::Absent);
        Ok(())
    }

    fn left_out(&mut self, _reason: &str) {}

    fn heard(&mut self) {}

    fn lost(&mut self, why: &str) {
        self.view.send_if_modified(|view| match view {
            // What was known stays: the API server being away changes no subnet.
            View::There(_) => false,
            View::Unknown(before) if *before == why => false,
            _ => {
                tracing::warn!(problem = why, node = self.name, "the node's own object is not heard of");
                *view = View::Unknown(why.to_owned());
                true
            }
        });
    }

    fn begins_anew(&mut self, why: &str) {
        tracing::debug!(reason = why, node = self.name, "the watch of the node's own object begins anew");
    }
}

impl From<Node> for Seen {
    fn from(node: Node) -> Self {
        let addresses = node.status.and_then(|status| status.addresses).unwrap_or_default();
        let internal = addresses.into_iter().filter(|address| address.type_ == "InternalIP");
        Self {
            uid: node.metadata.uid.unwrap_or_default(),
            annotations: node.metadata.annotations.unwrap_or_default(),
            addresses: internal.filter_map(|address| address.address.parse().ok()).collect(),
        }
    }
}

#[cfg(test)]
mod tests;
