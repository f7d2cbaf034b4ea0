//! Requests to the API server, and why there is no answer. Reads only.

use std::{net::IpAddr, time::Duration};

use contract::{
    definition::Definition,
    names::{PodKey, ServiceKey},
};
use kube::{
    api::{GetParams, ListParams},
    core::request::Request,
};
use kubeapi::{
    Connection, Trouble,
    discovery::{self, Served},
};
use serde::{Deserialize, de::DeserializeOwned};

/// Limit for one request: an API server that is up answers within a few seconds, also when it is
/// busy.
const PATIENCE: Duration = Duration::from_secs(15);

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub(super) enum Unanswered {
    #[error("read {what}: {trouble}")]
    ApiServer { what: String, trouble: Trouble },
    #[error("pod {0} has ended, so that it has no address")]
    Ended(PodKey),
    #[error(
        "pod {0} has no address yet: its annotation k8s.ovn.org/pod-networks is not there, or unusable"
    )]
    NoAddress(PodKey),
    #[error("pod {0} is to be in its node's network, and is on no node yet")]
    Unscheduled(PodKey),
    #[error("there is no node {0:?}")]
    NoNode(String),
    #[error(
        "node {0} has no address yet: its annotation k8s.ovn.org/host-cidrs is not there, or unusable"
    )]
    NodeWithoutAddress(String),
    #[error("{address} is in the subnet of the pods of node {node}, and no pod has it")]
    NobodyAt { address: IpAddr, node: String },
    #[error("{0} is no address that another machine can connect to, or from")]
    NoEnd(IpAddr),
    #[error("Service {0} cannot be read: its name is none")]
    NoService(ServiceKey),
    #[error("Service {service} has no such port; it has {ports}")]
    NoPort { service: ServiceKey, ports: String },
    #[error("a client is a pod, a node or an address, and not a Service")]
    ServiceAsClient,
    #[error(
        "neither end is a pod in the cluster's network, and policies are about no other connections"
    )]
    NeitherIsPod,
    #[error(
        "read {what}: the API server has it in the version {versions}, which this program cannot read"
    )]
    UnknownVersion { what: String, versions: String },
    #[error("the two ends have no address of a family in common")]
    NoFamily,
}

impl Unanswered {
    /// Whether the API server has no such object, or no such kind of objects.
    pub(super) fn is_absent(&self) -> bool {
        matches!(self, Self::ApiServer { trouble, .. } if trouble.code == Some(404))
    }
}

/// A list of the API server.
#[derive(Deserialize)]
struct List<T> {
    items: Vec<T>,
}

pub(super) async fn get<T: DeserializeOwned>(
    api: &Connection,
    collection: &str,
    name: &str,
) -> Result<T, Unanswered> {
    let what = format!("{collection}/{name}");
    let request = Request::new(collection).get(name, &GetParams::default());
    ask(api, what, request).await
}

pub(super) async fn list<T: DeserializeOwned>(
    api: &Connection,
    collection: &str,
) -> Result<Vec<T>, Unanswered> {
    list_where(api, collection, ListParams::default()).await
}

/// The collection of a kind that an administrator defines; none without its definition.
pub(super) async fn collection(
    api: &Connection,
    definition: &Definition,
) -> Result<Option<String>, Unanswered> {
    match discovery::served(api, definition).await {
        Ok(Served::In(version)) => Ok(Some(definition.path(version))),
        Ok(Served::Nowhere) => Ok(None),
        Ok(Served::Otherwise(versions)) => Err(Unanswered::UnknownVersion {
            what: definition.resource(),
            versions: versions.join(", "),
        }),
        Err(trouble) => Err(Unanswered::ApiServer { what: definition.resource(), trouble }),
    }
}

/// The objects of the collection that the parameters select.
pub(super) async fn list_where<T: DeserializeOwned>(
    api: &Connection,
    collection: &str,
    which: ListParams,
) -> Result<Vec<T>, Unanswered> {
    let request = Request::new(collection).list(&which);
    ask::<List<T>>(api, collection.to_owned(), request).await.map(|list| list.items)
}

async fn ask<T: DeserializeOwned>(
    api: &Connection,
    what: String,
    request: Result<hyper::Request<Vec<u8>>, kube::core::request::Error>,
) -> Result<T, Unanswered> {
    let answer = match request {
        Ok(request) => api.ask(PATIENCE, api.client().request::<T>(request)).await,
        Err(error) => Err(api.trouble(&kube::Error::BuildRequest(error))),
    };
    answer.map_err(|trouble| Unanswered::ApiServer { what, trouble })
}
