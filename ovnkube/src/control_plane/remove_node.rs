//! `ovnkube --remove-node X`: removes a node's rows from both databases and prints them, line by
//! line. How the rows are found is in the package `controller`.

use std::{
    collections::BTreeSet,
    io::{self, Write, stdout},
    time::Duration,
};

use controller::{
    cluster_id::{self, ClusterId},
    engine::northbound,
    remove_node::{
        ChassisOf, RemoveNodeError, Removed, SOUTHBOUND, from_northbound, from_southbound,
    },
};
use k8s_openapi::api::core::v1::Node;
use kube::Api;
use kubeapi::Connection;
use ovsdb::{Client, Monitor, State};
use tokio::time::timeout;

use super::{ControlPlaneError, RemoveNodeConfig};
use crate::chain;

/// Limit for the question to the API server whether the node still exists. Its answer is only a
/// warning: a slow API server gets a few seconds, one that is down does not hold up the command for
/// long.
const QUESTION: Duration = Duration::from_secs(10);

/// Why the rows are not removed from a database.
#[derive(Debug, thiserror::Error)]
enum Failure {
    #[error(transparent)]
    Refused(RemoveNodeError),
    #[error("{0}")]
    NoAnswer(String),
}

/// Removes the node's rows from both databases. Prints what was removed to standard output, and
/// errors to standard error. A second run finds nothing to remove, and succeeds. Returns whether
/// everything is gone.
pub fn remove_node(config: &RemoveNodeConfig) -> bool {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(ControlPlaneError::Runtime);
    match runtime {
        Ok(runtime) => runtime.block_on(remove(config)),
        Err(error) => {
            eprintln!("ovnkube: {}", chain(&error));
            false
        }
    }
}

async fn remove(config: &RemoveNodeConfig) -> bool {
    let node = &config.node;
    let api = config.api_server.clone().map(Connection::open);
    // Only a warning: the command also works without an API server.
    if let Some(warning) = still_there(api.as_ref(), node).await {
        eprintln!("ovnkube: warning: {warning}");
    }
    let cluster = cluster(api.as_ref()).await;
    // Both databases, unless they are others than those that were meant: another error of one must
    // not leave rows in the other.
    let northbound = {
        let (client, updates) =
            northbound::connect(config.northbound.endpoints.clone(), config.northbound.options());
        let removal = from_northbound(updates, &config.cluster, &cluster, node);
        within(config.patience, &client, removal).await
    };
    if let Err(Failure::Refused(why)) = &northbound
        && why.is_of_another()
    {
        eprintln!(
            "ovnkube: node {node} is removed from neither database: the northbound database {}: {}",
            config.northbound.endpoints,
            chain(why)
        );
        return false;
    }
    let southbound = {
        // Without a copy: the rows of one node are few, and the southbound database may be large.
        let (client, _updates) = Client::start(
            config.southbound.endpoints.clone(),
            SOUTHBOUND,
            Monitor::new(),
            config.southbound.options(),
        );
        let names = northbound.as_ref().map(|removed| removed.chassis.clone()).unwrap_or_default();
        let of = ChassisOf { node: node.as_str().into(), names, others: BTreeSet::new() };
        let removal = async { from_southbound(&client, &of).await.map_err(RemoveNodeError::from) };
        within(config.patience, &client, removal).await
    };
    let northbound = tell("northbound", &config.northbound.endpoints, node, northbound);
    let southbound = tell("southbound", &config.southbound.endpoints, node, southbound);
    northbound && southbound
}

/// The answer, or the reason why there is none.
async fn within(
    patience: Duration,
    client: &Client,
    answer: impl Future<Output = Result<Removed, RemoveNodeError>>,
) -> Result<Removed, Failure> {
    match timeout(patience, answer).await {
        Ok(answer) => answer.map_err(Failure::Refused),
        Err(_) => Err(Failure::NoAnswer(match &*client.state().borrow() {
            State::Connected(_) => format!("no answer within {patience:?} (--db-txn-timeout)"),
            State::Disconnected(why) => {
                format!("no connection within {patience:?} (--db-txn-timeout): {}", chain(why))
            }
        })),
    }
}

/// Prints the outcome of one database. Returns whether everything is gone.
fn tell(
    side: &str,
    endpoints: &ovsdb::Endpoints,
    node: &str,
    outcome: Result<Removed, Failure>,
) -> bool {
    match outcome {
        Err(error) => {
            let why = chain(&error);
            eprintln!(
                "ovnkube: node {node} is not removed from the {side} database {endpoints}: {why}"
            );
            false
        }
        Ok(removed) => said(side, node, &removed).is_ok() && removed.kept.is_empty(),
    }
}

fn said(side: &str, node: &str, Removed { removed, kept, chassis: _ }: &Removed) -> io::Result<()> {
    let mut out = stdout().lock();
    for row in removed {
        writeln!(out, "{side} database: removed {row}")?;
    }
    for row in kept {
        eprintln!(
            "ovnkube: {side} database: kept {row}, which holds rows that are not ours; \
             look at them, and remove it by hand"
        );
    }
    if removed.is_empty() && kept.is_empty() {
        writeln!(out, "{side} database: there is nothing of node {node}")?;
    }
    Ok(())
}

/// A warning if the node's object still exists, or if that is not known.
async fn still_there(api: Option<&Connection>, node: &str) -> Option<String> {
    let connection = api?;
    match timeout(QUESTION, Api::<Node>::all(connection.client().clone()).get_metadata_opt(node))
        .await
    {
        Ok(Ok(None)) => None,
        Ok(Ok(Some(_))) => Some(format!(
            "node {node} is still in Kubernetes: a control plane that runs writes its rows again, \
             and so does its ovn-controller; delete the node first (kubectl delete node {node})"
        )),
        Ok(Err(error)) => Some(format!(
            "whether node {node} is still in Kubernetes is not known: {}",
            connection.trouble(&error).text
        )),
        Err(_) => Some(format!(
            "whether node {node} is still in Kubernetes is not known: no answer within {QUESTION:?}"
        )),
    }
}

/// The identity of the API server's cluster, with which that of the database is compared; none if
/// it is not known.
async fn cluster(api: Option<&Connection>) -> ClusterId {
    timeout(QUESTION, cluster_id::ask(api?)).await.ok()?.ok()?
}
