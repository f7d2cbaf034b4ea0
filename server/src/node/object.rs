//! This node's own object in the API server: what it says of the node's network, as soon as it says it.

use std::{collections::BTreeMap, net::IpAddr, pin::pin, sync::Arc, time::Duration};

use contract::backoff::Backoff;
use contract::node_annotation::{NODE_SUBNETS, NodeAnnotations};
use futures_util::TryStreamExt;
use k8s_openapi::api::core::v1::Node;
use kube::{
    Api,
    runtime::watcher::{self, watcher},
};
use kubeapi::Connection;
use tokio::{
    sync::watch,
    time::{sleep, timeout},
};

use super::management_port::{Lease, LeaseOf};
use crate::{chain, events::Events};

/// How long the first answer may take.
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
    tokio::spawn(Follower { connection: connection.clone(), name: name.to_owned(), view, backoff: Backoff::default() }.follow());
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

struct Follower {
    connection: Connection,
    name: String,
    view: watch::Sender<View>,
    backoff: Backoff,
}

impl Follower {
    async fn follow(mut self) {
        loop {
            let problem = self.watch().await;
            self.view.send_if_modified(|view| match view {
                // What was known stays: the API server being away changes no subnet.
                View::There(_) => false,
                View::Unknown(before) if *before == problem => false,
                _ => {
                    tracing::warn!(problem, node = self.name, "the node's own object is not heard of");
                    *view = View::Unknown(problem);
                    true
                }
            });
            let mut renewals = self.connection.renewals();
            tokio::select! {
                () = sleep(self.backoff.next(None)) => {}
                _ = renewals.changed() => {}
            }
        }
    }

    /// Watches until something is wrong, and says what.
    async fn watch(&mut self) -> String {
        let api: Api<Node> = Api::all(self.connection.client().clone());
        let selected = watcher::Config::default().fields(&format!("metadata.name={}", self.name));
        let mut events = pin!(watcher(api, selected));
        let mut is_complete = false;
        let mut found = None;
        loop {
            let event = if is_complete { Ok(events.try_next().await) } else { timeout(FIRST, events.try_next()).await };
            let event = match event {
                Ok(Ok(Some(event))) => event,
                Ok(Ok(None)) => return "the watch ended".to_owned(),
                Ok(Err(error)) => return self.problem(error),
                Err(_) => return format!("the API server {} did not answer within {FIRST:?}", self.connection.url()),
            };
            match event {
                watcher::Event::Init => found = None,
                watcher::Event::InitApply(node) => found = Some(node),
                watcher::Event::InitDone => {
                    is_complete = true;
                    self.backoff.reset();
                    self.see(found.take().map_or(View::Absent, |node| View::There(Arc::new(Seen::from(node)))));
                }
                watcher::Event::Apply(node) => self.see(View::There(Arc::new(Seen::from(node)))),
                watcher::Event::Delete(_) => self.see(View::Absent),
            }
        }
    }

    fn see(&self, now: View) {
        self.view.send_if_modified(|view| {
            let is_new = *view != now;
            *view = now;
            is_new
        });
    }

    fn problem(&self, error: watcher::Error) -> String {
        match error {
            watcher::Error::InitialListFailed(error) | watcher::Error::WatchStartFailed(error) | watcher::Error::WatchFailed(error) => {
                self.connection.trouble(&error).text
            }
            watcher::Error::WatchError(status) => self.connection.trouble(&kube::Error::Api(status)).text,
            error @ watcher::Error::NoResourceVersion => chain(&error),
        }
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
