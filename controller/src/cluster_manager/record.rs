//! The record of nodes that are gone, for the next leader: an annotation of a Lease of its own,
//! which this program may write wherever it may stand for an election. Knows nothing of subnets.

use std::{collections::BTreeMap, time::Duration};

use contract::backoff::Backoff;
use k8s_openapi::{api::coordination::v1::Lease, apimachinery::pkg::apis::meta::v1::ObjectMeta};
use kube::{Api, api::PostParams};
use kubeapi::{Connection, Trouble, election::Leadership};
use tokio::{
    sync::watch,
    time::{Instant, sleep},
};

use crate::node_assignments::FormerNodes;

/// Name of the Lease.
const LEASE: &str = "ovn-kubernetes-former-nodes";
const ANNOTATION: &str = "k8s.ovn.org/former-node-subnets";
/// Deadline of one request.
const PATIENCE: Duration = Duration::from_secs(10);
/// How long the record is asked for at a start. All nodes wait for the answer.
const ALL: Duration = Duration::from_secs(30);

/// The record that the last leader left; empty if there is none, or if it cannot be read.
pub(super) async fn read(api: &Connection, namespace: &str) -> FormerNodes {
    let (begun, mut backoff) = (Instant::now(), Backoff::default());
    loop {
        match get(api, namespace).await {
            Ok(lease) => {
                return lease.as_ref().and_then(text).map(|text| parse(text)).unwrap_or_default();
            }
            Err(trouble) if trouble.code == Some(403) || begun.elapsed() > ALL => {
                tracing::warn!(problem = %trouble, "cannot read which nodes have gone before");
                return FormerNodes::new();
            }
            Err(_) => sleep(backoff.next(None)).await,
        }
    }
}

/// Writes the newest record while this process leads.
pub(super) async fn write(
    api: Connection,
    namespace: String,
    leadership: Leadership,
    mut records: watch::Receiver<FormerNodes>,
) {
    let mut backoff = Backoff::default();
    while records.changed().await.is_ok() {
        let mut is_told = false;
        while leadership.is_leader() {
            let record = records.borrow_and_update().clone();
            match put(&api, &namespace, &record).await {
                Ok(()) => {
                    backoff.reset();
                    break;
                }
                Err(trouble) => {
                    if !std::mem::replace(&mut is_told, true) {
                        tracing::warn!(
                            problem = %trouble,
                            "cannot write which nodes have gone; a restart would not know them"
                        );
                    }
                    sleep(backoff.next(None)).await;
                }
            }
        }
    }
}

async fn put(api: &Connection, namespace: &str, record: &FormerNodes) -> Result<(), Trouble> {
    let leases = Api::<Lease>::namespaced(api.client().clone(), namespace);
    let found = get(api, namespace).await?;
    let wanted = serde_json::to_string(record).unwrap_or_default();
    if found.as_ref().and_then(text).is_some_and(|text| *text == wanted) {
        return Ok(());
    }
    let post = PostParams::default();
    match found {
        // With its `resourceVersion`: another leader's record is not overwritten.
        Some(mut lease) => {
            lease
                .metadata
                .annotations
                .get_or_insert_default()
                .insert(ANNOTATION.to_owned(), wanted);
            api.ask(PATIENCE, leases.replace(LEASE, &post, &lease)).await.map(drop)
        }
        None => {
            let metadata = ObjectMeta {
                name: Some(LEASE.to_owned()),
                annotations: Some(BTreeMap::from([(ANNOTATION.to_owned(), wanted)])),
                ..ObjectMeta::default()
            };
            let lease = Lease { metadata, ..Lease::default() };
            api.ask(PATIENCE, leases.create(&post, &lease)).await.map(drop)
        }
    }
}

async fn get(api: &Connection, namespace: &str) -> Result<Option<Lease>, Trouble> {
    let leases = Api::<Lease>::namespaced(api.client().clone(), namespace);
    match api.ask(PATIENCE, leases.get(LEASE)).await {
        Ok(lease) => Ok(Some(lease)),
        Err(Trouble { code: Some(404), .. }) => Ok(None),
        Err(trouble) => Err(trouble),
    }
}

fn text(lease: &Lease) -> Option<&String> {
    lease.metadata.annotations.as_ref()?.get(ANNOTATION)
}

fn parse(text: &str) -> FormerNodes {
    serde_json::from_str(text).unwrap_or_else(|error| {
        tracing::warn!(%error, lease = LEASE, "the record of nodes that have gone cannot be read");
        FormerNodes::new()
    })
}
