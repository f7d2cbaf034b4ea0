//! The API server as an administrator uses it. Objects are JSON, and calls block until the answer
//! comes.

use std::{fmt, path::Path, sync::Arc, time::Duration};

use anyhow::{Context as _, Result};
use http::{Method, Request};
use kube::{
    Client, Config,
    config::{KubeConfigOptions, Kubeconfig},
};
use serde_json::Value;
use tokio::runtime::Runtime;

use super::credentials::{ADMIN, Credentials};
use crate::threads;

/// A client of the API server, which need not run yet.
#[derive(Clone)]
pub struct Api {
    /// For other calls, or many at once.
    pub client: Client,
    /// The runtime on which `client` works.
    pub runtime: Arc<Runtime>,
}

impl fmt::Debug for Api {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Api").finish_non_exhaustive()
    }
}

impl Api {
    /// A client of the administrator, with two threads of its own.
    pub fn new(credentials: &Credentials) -> Result<Self> {
        Self::at(credentials, super::control_plane::URL)
    }

    /// The same for the API server at `url`.
    pub fn at(credentials: &Credentials, url: &str) -> Result<Self> {
        Self::with(&credentials.kubeconfig(ADMIN), url)
    }

    /// A client with the credential in this kubeconfig.
    pub fn with(file: &Path, url: &str) -> Result<Self> {
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
        let client = runtime.block_on(async {
            let kubeconfig =
                Kubeconfig::read_from(file).with_context(|| format!("read {}", file.display()))?;
            let mut config =
                Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?;
            config.cluster_url = url.parse()?;
            // Short: an API server that does not answer must not use up the time of the caller,
            // which tries again.
            config.connect_timeout = Some(Duration::from_secs(2));
            anyhow::Ok(Client::try_from(config)?)
        })?;
        Ok(Self { client, runtime: Arc::new(runtime) })
    }

    /// Creates `object` in the collection `path`, such as `/api/v1/namespaces/default/pods`.
    pub fn create(&self, path: &str, object: &Value) -> Result<Value> {
        self.call(Method::POST, path, Some(("application/json", object)))
    }

    /// The object or list at `path`.
    pub fn read(&self, path: &str) -> Result<Value> {
        self.call(Method::GET, path, None)
    }

    /// Changes what `patch` (a merge patch, RFC 7396) names.
    pub fn patch(&self, path: &str, patch: &Value) -> Result<Value> {
        self.call(Method::PATCH, path, Some(("application/merge-patch+json", patch)))
    }

    /// Deletes an object or a collection.
    pub fn delete(&self, path: &str) -> Result<Value> {
        self.call(Method::DELETE, path, None)
    }

    /// Calls [`Api::create`] for many objects, up to eight at once.
    pub fn create_all(&self, path: &str, objects: &[Value]) -> Result<()> {
        threads::on_threads(8, objects, |object| self.create(path, object)).map(drop)
    }

    /// The answer to GET of `path`, as text.
    pub fn text(&self, path: &str) -> Result<String> {
        let request = Request::get(path).body(Vec::new())?;
        self.runtime
            .block_on(self.client.request_text(request))
            .with_context(|| format!("GET {path}"))
    }

    fn call(&self, method: Method, path: &str, body: Option<(&str, &Value)>) -> Result<Value> {
        let what = format!("{method} {path}");
        let request = Request::builder().method(method).uri(path);
        let request = match body {
            Some((kind, value)) => {
                request.header("content-type", kind).body(serde_json::to_vec(value)?)?
            }
            None => request.body(Vec::new())?,
        };
        self.runtime.block_on(self.client.request(request)).context(what)
    }
}
