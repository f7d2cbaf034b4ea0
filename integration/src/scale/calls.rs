//! Calls to the API server, many at once. Answers are reduced to metadata, so that reading them
//! costs little.

use std::{
    future::Future,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result};
use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use http::{Method, Request};
use kube::Client;
use serde::de::IgnoredAny;
use serde_json::{Value, json};

use super::objects::Name;

/// Calls in flight. On two processors the API server answers some 1,500 a second; more calls in
/// flight do not make it faster.
const IN_FLIGHT: usize = 64;
/// Asks for names, labels and annotations instead of the whole object.
const METADATA_ONLY: &str = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1";
/// Key of an annotation with the length of the one that pods get.
const FLOOR: &str = "scale.example/floor";

/// Runs `act` on every item, many at once. Returns the wall time.
pub(crate) async fn all<T, F>(
    items: impl IntoIterator<Item = T>,
    act: impl Fn(T) -> F,
) -> Result<Duration>
where
    F: Future<Output = Result<()>>,
{
    let began = Instant::now();
    stream::iter(items).map(act).buffer_unordered(IN_FLIGHT).try_collect::<()>().await?;
    Ok(began.elapsed())
}

/// Creates an object.
pub(crate) async fn create(client: &Client, collection: &str, object: &Value) -> Result<()> {
    call(client, Method::POST, collection, "application/json", serde_json::to_vec(object)?).await
}

/// Deletes a pod without a grace period: there is no kubelet to confirm the end of its containers.
pub(crate) async fn delete(client: &Client, pod: &Name) -> Result<()> {
    call(
        client,
        Method::DELETE,
        &pod.path(),
        "application/json",
        json!({"gracePeriodSeconds": 0}).to_string().into_bytes(),
    )
    .await
}

/// Deletes any other object.
pub(crate) async fn remove(client: &Client, path: &str) -> Result<()> {
    call(client, Method::DELETE, path, "application/json", b"{}".to_vec()).await
}

/// Writes an annotation of the usual length to a pod, by the usual kind of patch: the floor of any
/// annotating client.
pub(crate) async fn annotate(client: &Client, pod: &Name) -> Result<()> {
    let network = json!({"default": {
        "ip_addresses": ["10.128.200.201/24"], "mac_address": "0a:58:0a:80:c8:c9", "gateway_ips": ["10.128.200.1"],
        "routes": [
            {"dest": "10.128.0.0/9", "nextHop": "10.128.200.1"}, {"dest": "10.96.0.0/16", "nextHop": "10.128.200.1"},
            {"dest": "169.254.169.5/32", "nextHop": "10.128.200.1"}, {"dest": "100.64.0.0/16", "nextHop": "10.128.200.1"},
        ],
        "ip_address": "10.128.200.201/24", "gateway_ip": "10.128.200.1", "role": "primary",
    }});
    let patch = json!({"metadata": {"annotations": {FLOOR: network.to_string()}}});
    let path = format!("{}/status", pod.path());
    call(
        client,
        Method::PATCH,
        &path,
        "application/merge-patch+json",
        patch.to_string().into_bytes(),
    )
    .await
}

/// Changes what `patch` (a merge patch, RFC 7396) names.
pub(crate) async fn patch(client: &Client, path: &str, patch: &Value) -> Result<()> {
    call(client, Method::PATCH, path, "application/merge-patch+json", serde_json::to_vec(patch)?)
        .await
}

async fn call(
    client: &Client,
    method: Method,
    path: &str,
    kind: &str,
    body: Vec<u8>,
) -> Result<()> {
    let what = format!("{method} {path}");
    let request = Request::builder()
        .method(method)
        .uri(path)
        .header("content-type", kind)
        .header("accept", METADATA_ONLY)
        .body(body)?;
    client.request::<IgnoredAny>(request).await.map(drop).context(what)
}
