//! The handlers of requests, one module for each verb. Knows nothing of connections.

use std::{sync::Arc, time::Duration};

use contract::{
    cni_args::PodArgs,
    error::CniError,
    names::PodKey,
    wire::{
        METRICS_PATH, Metrics, NODE_PATH, PORT_PATH, PortRequest, PortStatus, REQUEST_PATH,
        Request, TRACE_PATH, TraceRequest, WATCH_PATH, WatchRequest,
    },
};
use hyper::{Method, StatusCode};
use podnet::pod_look::wire::{INSIDE_PATH, InsideRequest};
use serde::{Serialize, de::DeserializeOwned};
use tokio::{
    sync::{mpsc, watch},
    time::Instant,
};
use tracing::{Span, info_span};

use crate::{
    api_error::{ApiError, Severity},
    conditions::Conditions,
    daemons::Daemons,
    events::Events,
    metrics::Metrics as Measurements,
    pods::{PodSource, Readiness, SourceDescription},
    ports::Ports,
};

mod add;
mod arrival;
mod check;
mod del;
mod in_flight;
mod inside;
mod metrics;
mod node;
mod pod_wait;
mod port;
mod status;
#[cfg(test)]
mod test_state;
mod trace;
mod watched;

pub use add::AddDefaults;
pub use in_flight::InFlight;
pub use trace::SwitchPlaces;

/// The state that all handlers share.
#[derive(Debug)]
pub struct HandlerState {
    pub source: Arc<dyn PodSource>,
    pub add: AddDefaults,
    pub phase: watch::Receiver<Phase>,
    /// The ADDs in flight.
    pub adds: InFlight,
    /// The calls of plugins under way: each has a connection until it ends.
    pub calls: InFlight,
    pub metrics: Arc<Measurements>,
    pub events: Events,
    pub daemons: Daemons,
    /// When an earlier server on this socket could last answer ADDs; `None` if no stamp says so.
    pub predecessor: Option<Instant>,
    pub ports: Ports,
    /// The node's name.
    pub node: String,
    pub conditions: Conditions,
    /// Where `/trace` asks.
    pub switch: SwitchPlaces,
}

/// The phase of the server's life.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Phase {
    Running,
    /// No new ADD is accepted; those in flight are finished.
    Draining,
    /// The ADDs still in flight are told to try again.
    Stopping,
}

/// The paths that are served.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ApiPath {
    Cni,
    Watch,
    Port,
    Metrics,
    Node,
    Trace,
    Inside,
}

/// A request whose shape is valid.
#[derive(Debug)]
pub enum ApiRequest {
    Cni(Request),
    Watch(WatchRequest),
    Port(PortRequest),
    Metrics(Metrics),
    Node,
    Trace(TraceRequest),
    Inside(InsideRequest),
}

/// An answer.
#[derive(Debug)]
pub struct ApiResponse {
    pub status: StatusCode,
    pub body: Body,
}

/// The body of an answer.
#[derive(Debug)]
pub enum Body {
    /// JSON, or nothing.
    Whole(Vec<u8>),
    /// A line of JSON for each status update, as it comes.
    News(mpsc::UnboundedReceiver<PortStatus>),
}

impl ApiPath {
    /// The route of a request.
    ///
    /// # Errors
    ///
    /// [`ApiError::NoSuchPath`] for an unknown path, [`ApiError::Method`] for another method than
    /// POST.
    pub fn of(method: &Method, path: &str) -> Result<Self, ApiError> {
        let route = match path {
            REQUEST_PATH => Self::Cni,
            WATCH_PATH => Self::Watch,
            PORT_PATH => Self::Port,
            METRICS_PATH => Self::Metrics,
            NODE_PATH => Self::Node,
            TRACE_PATH => Self::Trace,
            INSIDE_PATH => Self::Inside,
            other => return Err(ApiError::NoSuchPath(other.chars().take(64).collect())),
        };
        if method == Method::POST { Ok(route) } else { Err(ApiError::Method(method.to_string())) }
    }

    /// Reads the body.
    ///
    /// # Errors
    ///
    /// [`ApiError::Json`] if the body is not the JSON that this route expects.
    pub fn read(self, body: &[u8]) -> Result<ApiRequest, ApiError> {
        fn json<T: DeserializeOwned>(body: &[u8]) -> Result<T, ApiError> {
            serde_json::from_slice(body).map_err(ApiError::Json)
        }
        Ok(match self {
            Self::Cni => ApiRequest::Cni(json(body)?),
            Self::Watch => ApiRequest::Watch(json(body)?),
            Self::Port => ApiRequest::Port(json(body)?),
            Self::Metrics => ApiRequest::Metrics(json(body)?),
            Self::Node => ApiRequest::Node,
            Self::Trace => ApiRequest::Trace(json(body)?),
            Self::Inside => ApiRequest::Inside(json(body)?),
        })
    }
}

impl ApiRequest {
    /// The span of all log lines about this request. Its fields have the values as they were sent,
    /// valid or not.
    pub fn span(&self) -> Span {
        match self {
            Self::Cni(Request { env, .. }) => {
                let variable = |name| env.get(name).map(String::as_str);
                let args = variable("CNI_ARGS").and_then(|text| PodArgs::parse(text).ok());
                request_span(
                    variable("CNI_COMMAND"),
                    args.as_ref().map(|args| args.pod.namespace()),
                    args.as_ref().map(|args| args.pod.name()),
                    variable("CNI_CONTAINERID"),
                    variable("CNI_IFNAME"),
                )
            }
            Self::Watch(WatchRequest { namespace, name, .. }) => {
                request_span(Some("watch"), Some(namespace), Some(name), None, None)
            }
            Self::Port(PortRequest { pod, sandbox, if_name, .. }) => request_span(
                Some("port"),
                Some(pod.namespace()),
                Some(pod.name()),
                Some(sandbox.as_str()),
                Some(if_name.as_str()),
            ),
            Self::Metrics(Metrics { command, pod, sandbox, .. }) => {
                let pod = pod.as_deref().and_then(|pod| pod.split_once('/'));
                request_span(
                    Some(command),
                    pod.map(|pod| pod.0),
                    pod.map(|pod| pod.1),
                    sandbox.as_deref(),
                    None,
                )
            }
            Self::Node => request_span(Some("node"), None, None, None, None),
            Self::Trace(_) => request_span(Some("trace"), None, None, None, None),
            Self::Inside(InsideRequest { namespace, name }) => {
                request_span(Some("inside"), Some(namespace), Some(name), None, None)
            }
        }
    }
}

fn request_span(
    command: Option<&str>,
    namespace: Option<&str>,
    name: Option<&str>,
    sandbox: Option<&str>,
    ifname: Option<&str>,
) -> Span {
    info_span!(
        "request",
        cni.command = command,
        pod.namespace = namespace,
        pod.name = name,
        sandbox,
        ifname
    )
}

impl HandlerState {
    /// Answers a request that arrived at `started`.
    ///
    /// # Errors
    ///
    /// The refusal to answer with: the request is invalid, its pod cannot be attached now, or the
    /// server is about to end.
    pub async fn answer(
        &self,
        asked: ApiRequest,
        started: Instant,
    ) -> Result<ApiResponse, ApiError> {
        match asked {
            ApiRequest::Cni(request) => {
                let _in_progress =
                    self.metrics.in_progress(request.env.get("CNI_COMMAND").map(String::as_str));
                self.answer_cni(request, started).await
            }
            ApiRequest::Watch(request) => {
                let _in_progress = self.metrics.in_progress(Some("watch"));
                self.watched(request).await
            }
            ApiRequest::Port(request) => self.port(request),
            ApiRequest::Metrics(report) => {
                self.metrics.reported(&report);
                self.tell_owner(&report);
                metrics::log(&report);
                Ok(ApiResponse::EMPTY)
            }
            ApiRequest::Node => self.node(),
            ApiRequest::Trace(request) => self.trace(&request).await,
            ApiRequest::Inside(request) => self.inside(&request).await,
        }
    }

    async fn answer_cni(
        &self,
        request: Request,
        started: Instant,
    ) -> Result<ApiResponse, ApiError> {
        match request.env.get("CNI_COMMAND").map(String::as_str) {
            Some("ADD") => self.add(request, started).await,
            Some("DEL") => {
                // This project's plugin sends no DEL, and holds the per-interface lock while it
                // works. Upstream's holds no lock, and its DEL takes seconds.
                if let Some(sandbox) = request.env.get("CNI_CONTAINERID") {
                    self.ports.note_detach(sandbox);
                }
                Ok(del::carried_out_by_the_plugin())
            }
            Some("STATUS") => self.status(),
            Some("CHECK") => self.check(&request),
            // The plugin carries these out alone. Upstream's server answers them with success and
            // no body.
            Some("UPDATE" | "GC") => Ok(ApiResponse::EMPTY),
            Some(other) => Err(ApiError::Command(other.chars().take(64).collect())),
            None => Err(ApiError::Missing("CNI_COMMAND")),
        }
    }

    /// Answers with a refusal, which is logged and counted.
    pub fn refuse(&self, refusal: &ApiError, elapsed: Duration) -> ApiResponse {
        self.metrics.refused(refusal.code());
        ApiResponse::refuse(refusal, elapsed, &self.source.source_description())
    }

    /// The pod's UID as the API server has it, if known.
    fn uid(&self, pod: &PodKey) -> Option<String> {
        self.source.watch(pod).now().map(|pod| pod.facts.uid.clone())
    }

    /// Why a pod that is not known may exist nevertheless.
    fn not_synced(&self) -> Option<String> {
        match self.source.readiness() {
            Readiness::Synced => None,
            Readiness::Behind(why) | Readiness::NotSynced(why) => Some(why),
        }
    }

    /// A failure of the plugin becomes an event on its pod.
    fn tell_owner(&self, report: &Metrics) {
        let pod = report.pod.as_deref().and_then(|pod| pod.split_once('/'));
        if let Some(pod) = pod.and_then(|(namespace, name)| PodKey::new(namespace, name).ok()) {
            self.events.reported(&pod, &self.uid(&pod).unwrap_or_default(), report);
        }
    }

    fn phase(&self) -> Phase {
        *self.phase.borrow()
    }

    /// Waits until the server has reached `phase` or a later one.
    async fn reached(&self, phase: Phase) {
        if self.phase.clone().wait_for(|now| *now >= phase).await.is_err() {
            // The server has ended without reaching the phase: this request ends with its
            // connection.
            std::future::pending().await
        }
    }
}

impl ApiResponse {
    pub(crate) const EMPTY: Self = Self { status: StatusCode::OK, body: Body::Whole(Vec::new()) };

    fn json(value: &impl Serialize) -> Result<Self, ApiError> {
        Ok(Self {
            status: StatusCode::OK,
            body: Body::Whole(serde_json::to_vec(value).map_err(ApiError::Answer)?),
        })
    }

    /// Answers with a refusal and logs it: the only place that does.
    fn refuse(
        refusal: &ApiError,
        elapsed: Duration,
        source_description: &SourceDescription,
    ) -> Self {
        let refused = refusal.to_plugin(elapsed, source_description);
        let CniError { code, msg, details, .. } = &refused.error;
        let status = refusal.status();
        match refusal.severity() {
            Severity::Expected => {
                tracing::info!(code, status = status.as_u16(), ms = millis(elapsed), msg, "refused")
            }
            Severity::Wrong => tracing::warn!(
                code,
                status = status.as_u16(),
                ms = millis(elapsed),
                msg,
                hint = details,
                "refused"
            ),
        }
        let body = serde_json::to_vec(&refused).unwrap_or_default();
        Self { status, body: Body::Whole(body) }
    }
}

/// Milliseconds, as log lines show them.
pub(crate) fn millis(elapsed: Duration) -> String {
    format!("{:.1}", elapsed.as_secs_f64() * 1000.0)
}
