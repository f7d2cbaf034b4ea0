//! The API server: creates, reads and deletes objects.

use std::{
    sync::atomic::{AtomicBool, Ordering},
    time::Duration,
};

use contract::definition::Definition;
use kube::{
    api::{DeleteParams, PostParams},
    core::Request,
};
use kubeapi::{
    Connection, Trouble,
    discovery::{Served, served},
};
use serde_json::Value;
use tokio::time::{Instant, sleep, timeout};

use super::offered::{self, Offered};
use crate::{api_query as api, ovn_query::PATIENCE};

/// How long an object may be refused that will be taken soon: the account of a new namespace is on
/// its way.
const REFUSED: Duration = Duration::from_secs(20);
/// How long the end of a namespace may take.
const ENDED: Duration = Duration::from_secs(150);
pub(super) const PAUSE: Duration = Duration::from_secs(1);
/// Bytes of a log that are read.
const LOG: u64 = 1 << 20;

const NAMESPACES: &str = "/api/v1/namespaces";

#[derive(Debug)]
pub(super) struct Cluster {
    api: Connection,
    /// Something has been created, which is to be deleted.
    has_made: AtomicBool,
}

impl Cluster {
    pub(super) fn new(api: Connection) -> Self {
        Self { api, has_made: AtomicBool::new(false) }
    }

    pub(super) fn has_made(&self) -> bool {
        self.has_made.load(Ordering::Relaxed)
    }

    /// Creates an object, and returns it as the API server has completed it.
    pub(super) async fn create(&self, collection: &str, object: &Value) -> Result<Value, String> {
        let began = Instant::now();
        loop {
            let body = object.to_string().into_bytes();
            let request = Request::new(collection).create(&PostParams::default(), body);
            let why = match self.ask(request).await {
                Ok(object) => {
                    self.has_made.store(true, Ordering::Relaxed);
                    return Ok(object);
                }
                Err(trouble) => {
                    // Without an answer, it may be there.
                    self.has_made.fetch_or(trouble.code.is_none(), Ordering::Relaxed);
                    trouble
                }
            };
            let is_early = why.code == Some(403) && why.to_string().contains("service account");
            if !is_early || began.elapsed() > REFUSED {
                return Err(format!("create {}: {why}", api::name(object)));
            }
            sleep(PAUSE).await;
        }
    }

    /// Creates an object that the cluster need not take, and returns it; or the reason why the
    /// cluster refuses it.
    ///
    /// # Errors
    ///
    /// The API server does not answer, or for another reason than a rule of the cluster.
    pub(super) async fn offer(
        &self,
        collection: &str,
        object: &Value,
    ) -> Result<Offered<Value>, String> {
        let body = object.to_string().into_bytes();
        match self.ask(Request::new(collection).create(&PostParams::default(), body)).await {
            Ok(object) => Ok(Ok(object)),
            Err(trouble) => match offered::refusal(&trouble) {
                Some(why) => Ok(Err(why)),
                None => Err(format!("create {}: {trouble}", api::name(object))),
            },
        }
    }

    /// In which version the cluster has the kind.
    pub(super) async fn served(&self, definition: &Definition) -> Result<Served, Trouble> {
        served(&self.api, definition).await
    }

    /// Deletes the object of the whole cluster, in whatever version the cluster has its kind.
    ///
    /// # Errors
    ///
    /// It may be there still.
    pub(super) async fn delete_cluster_object(
        &self,
        definition: &Definition,
        name: &str,
    ) -> Result<(), String> {
        let failed = |trouble| format!("delete {} {name}: {trouble}", definition.plural);
        let Served::In(version) = self.served(definition).await.map_err(failed)? else {
            return Ok(());
        };
        let collection = definition.path(version);
        match self.ask(Request::new(collection).delete(name, &DeleteParams::default())).await {
            Ok(_) => Ok(()),
            Err(trouble) if trouble.code == Some(404) => Ok(()),
            // One that may not be deleted may not have been created.
            Err(trouble) if trouble.code == Some(403) => {
                match self.get(&definition.path(version), name).await {
                    Ok(None) => Ok(()),
                    _ => Err(failed(trouble)),
                }
            }
            Err(trouble) => Err(failed(trouble)),
        }
    }

    /// The object of the whole cluster, in whatever version the cluster has its kind.
    pub(super) async fn cluster_object(
        &self,
        definition: &Definition,
        name: &str,
    ) -> Result<Option<Value>, String> {
        match self.served(definition).await {
            Ok(Served::In(version)) => self.get(&definition.path(version), name).await,
            Ok(Served::Nowhere | Served::Otherwise(_)) => Ok(None),
            Err(trouble) => Err(format!("{}: {trouble}", definition.plural)),
        }
    }

    pub(super) async fn namespace(&self, namespace: &Value) -> Result<Value, String> {
        self.create(NAMESPACES, namespace).await
    }

    pub(super) async fn list(&self, collection: &str) -> Result<Vec<Value>, String> {
        let listed = api::list(&self.api, collection, "").await;
        listed.map(|listed| listed.items).map_err(|trouble| format!("list {collection}: {trouble}"))
    }

    pub(super) async fn get(&self, collection: &str, name: &str) -> Result<Option<Value>, String> {
        let got = api::get(&self.api, collection, name).await;
        got.map_err(|trouble| format!("get {collection}/{name}: {trouble}"))
    }

    /// The log of a pod's only container, as far as it has come.
    pub(super) async fn log(
        &self,
        namespace: &str,
        pod: &str,
        lines: Option<usize>,
    ) -> Result<String, String> {
        let tail = lines.map(|lines| format!("&tailLines={lines}")).unwrap_or_default();
        let path = format!("{NAMESPACES}/{namespace}/pods/{pod}/log?limitBytes={LOG}{tail}");
        let request =
            hyper::Request::get(path).body(Vec::new()).map_err(|error| error.to_string())?;
        let answer = self.api.ask(PATIENCE, self.api.client().request_text(request)).await;
        answer.map_err(|trouble| format!("the log of {namespace}/{pod}: {trouble}"))
    }

    /// Deletes namespaces, and waits until they are gone.
    pub(super) async fn delete_namespaces(&self, namespaces: &[&str]) -> Result<(), String> {
        let mut failures = Vec::new();
        for name in namespaces {
            let request = Request::new(NAMESPACES).delete(name, &DeleteParams::default());
            match self.ask(request).await {
                Ok(_) => {}
                Err(trouble) if trouble.code == Some(404) => {}
                Err(trouble) => failures.push(format!("delete namespace {name}: {trouble}")),
            }
        }
        let gone = async {
            for name in namespaces {
                while !matches!(self.get(NAMESPACES, name).await, Ok(None)) {
                    sleep(PAUSE).await;
                }
            }
        };
        if failures.is_empty() && timeout(ENDED, gone).await.is_err() {
            failures.push(format!(
                "namespaces are not gone after {} s: {}",
                ENDED.as_secs(),
                namespaces.join(", ")
            ));
        }
        if failures.is_empty() { Ok(()) } else { Err(failures.join("; ")) }
    }

    async fn ask(
        &self,
        request: Result<hyper::Request<Vec<u8>>, kube::core::request::Error>,
    ) -> Result<Value, Trouble> {
        match request {
            Ok(request) => {
                self.api.ask(PATIENCE, self.api.client().request::<Value>(request)).await
            }
            Err(error) => Err(self.api.trouble(&kube::Error::BuildRequest(error))),
        }
    }
}
