//! The answer to each path. Knows nothing of connections.

use std::{fmt::Write, sync::Arc};

use http_body_util::Full;
use hyper::{
    Method, Response, StatusCode,
    body::Bytes,
    header::{ALLOW, CACHE_CONTROL, CONTENT_TYPE, HeaderValue, X_CONTENT_TYPE_OPTIONS},
};
use k8s_openapi::jiff::Timestamp;
use server::conditions::Conditions;
use tokio::task::spawn_blocking;

use crate::{
    exporter::Exporter,
    metrics::{CONTENT_TYPE as METRICS_TYPE, Page},
};

const TEXT: &str = "text/plain; charset=utf-8";

/// The pages of one address.
#[derive(Debug)]
pub(super) struct Pages {
    pub(super) conditions: Conditions,
    pub(super) metrics: Measurements,
}

/// What `/metrics` is at an address.
#[derive(Debug)]
pub(super) enum Measurements {
    /// It is not served.
    None,
    OfProcess(Arc<Page>),
    OfDaemons(Exporter),
}

impl Pages {
    pub(super) async fn page(
        &self,
        method: &Method,
        path: &str,
        query: Option<&str>,
    ) -> Response<Full<Bytes>> {
        match (path, &self.metrics) {
            ("/healthz" | "/livez" | "/readyz", _)
            | ("/metrics", Measurements::OfProcess(_) | Measurements::OfDaemons(_))
                if !matches!(*method, Method::GET | Method::HEAD) =>
            {
                let mut refused =
                    text(StatusCode::METHOD_NOT_ALLOWED, "only GET and HEAD\n".to_owned());
                refused.headers_mut().insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
                refused
            }
            // The runtime that serves this also serves the plugin: an answer shows that it is not
            // stuck.
            ("/healthz", Measurements::None) => self.node_health(),
            ("/livez" | "/healthz", _) => text(StatusCode::OK, "ok\n".to_owned()),
            ("/readyz", _) => self.readyz(query.is_some_and(asks_for_everything)),
            ("/metrics", Measurements::OfProcess(page)) => self.metrics(Arc::clone(page)).await,
            ("/metrics", Measurements::OfDaemons(exporter)) => {
                answer(StatusCode::OK, METRICS_TYPE, exporter.text().await.to_string())
            }
            (_, Measurements::None) => text(
                StatusCode::NOT_FOUND,
                "no such path; there are /healthz, /livez and /readyz\n".to_owned(),
            ),
            (_, Measurements::OfProcess(_) | Measurements::OfDaemons(_)) => text(
                StatusCode::NOT_FOUND,
                "no such path; there are /metrics, /healthz, /livez and /readyz\n".to_owned(),
            ),
        }
    }

    /// As kube-proxy's: load balancers outside of the cluster ask it whether a node takes new
    /// connections.
    fn node_health(&self) -> Response<Full<Bytes>> {
        let is_eligible = !self.conditions.is_leaving();
        let now = Timestamp::now().to_string();
        let body = format!(
            r#"{{"lastUpdated":"{now}","currentTime":"{now}","nodeEligible":{is_eligible}}}"#
        ) + "\n";
        let status = if is_eligible { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
        let mut response = answer(status, "application/json", body);
        response.headers_mut().insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
        response
    }

    /// In the format of Kubernetes' own components. Lists every check if one is missing, or on
    /// request.
    fn readyz(&self, everything: bool) -> Response<Full<Bytes>> {
        let missing = self.conditions.all_missing();
        if missing.is_empty() && !everything {
            return text(StatusCode::OK, "ok\n".to_owned());
        }
        let remarks = self.conditions.all_remarks();
        let mut list = String::new();
        for part in self.conditions.parts() {
            // Writing to a string does not fail. Reasons have texts of other programs: no control
            // characters in a terminal.
            let _ = match (missing.get(part), remarks.get(part)) {
                (None, None) => writeln!(list, "[+]{part} ok"),
                (None, Some(remark)) => {
                    writeln!(list, "[+]{part} ok: {}", remark.replace(char::is_control, " "))
                }
                (Some(why), _) => {
                    writeln!(list, "[-]{part} not ready: {}", why.replace(char::is_control, " "))
                }
            };
        }
        if missing.is_empty() {
            text(StatusCode::OK, list + "readyz check passed\n")
        } else {
            text(StatusCode::SERVICE_UNAVAILABLE, list + "readyz check failed\n")
        }
    }

    /// On a thread that may block: some metrics are read from files.
    async fn metrics(&self, metrics: Arc<Page>) -> Response<Full<Bytes>> {
        let conditions = self.conditions.clone();
        match spawn_blocking(move || metrics.text(&conditions)).await {
            Ok(Ok(page)) => answer(StatusCode::OK, METRICS_TYPE, page),
            Ok(Err(error)) => {
                tracing::error!(%error, "the measurements cannot be written");
                text(
                    StatusCode::INTERNAL_SERVER_ERROR,
                    "the measurements cannot be written; see the server's log\n".to_owned(),
                )
            }
            Err(error) => {
                tracing::error!(%error, "the measurements were not collected");
                text(
                    StatusCode::INTERNAL_SERVER_ERROR,
                    "the measurements were not collected; see the server's log\n".to_owned(),
                )
            }
        }
    }
}

/// `?verbose` or `?verbose=1`; other parameters are ignored.
fn asks_for_everything(query: &str) -> bool {
    query.split('&').any(|parameter| parameter == "verbose" || parameter.starts_with("verbose="))
}

fn text(status: StatusCode, body: String) -> Response<Full<Bytes>> {
    answer(status, TEXT, body)
}

fn answer(status: StatusCode, content_type: &'static str, body: String) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(Bytes::from(body)));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    // A proxy must not answer a probe or a scrape from its cache.
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}
