//! What is asked, and who answers it: one module a verb. Knows nothing of connections.

use std::{sync::Arc, time::Duration};

use contract::{
    cni_args::PodArgs,
    error::CniError,
    external_ids::{IFACE_ID, SANDBOX},
    names::PodKey,
    wire::{METRICS_PATH, Metrics, PORT_PATH, PortNews, PortRequest, REQUEST_PATH, Request, WATCH_PATH, WatchRequest},
};
use hyper::{Method, StatusCode};
use serde::{Serialize, de::DeserializeOwned};
use tokio::{
    sync::{mpsc, watch},
    time::Instant,
};
use tracing::{Span, info_span};

use crate::{
    events::Events,
    metrics::Metrics as Measurements,
    partners::Partners,
    pods::{PodSource, Whereabouts},
    ports::Ports,
    refusal::{Refusal, Severity},
};

mod add;
mod check;
mod del;
mod in_flight;
mod metrics;
mod pod_wait;
mod status;
mod watched;

pub use add::AddDefaults;
pub use in_flight::InFlight;

/// What every request is answered with.
#[derive(Debug)]
pub struct Desk {
    pub source: Arc<dyn PodSource>,
    pub add: AddDefaults,
    pub phase: watch::Receiver<Phase>,
    /// The ADDs that are being answered.
    pub adds: InFlight,
    pub metrics: Arc<Measurements>,
    pub events: Events,
    pub partners: Partners,
    /// When a server on this socket was last able to answer ADDs before this one started.
    pub predecessor: Option<Instant>,
    pub ports: Ports,
}

/// Where the server is in its life.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Phase {
    Running,
    /// No new ADD; those in flight are finished.
    Draining,
    /// What is still in flight is told to try again.
    Stopping,
}

/// The paths that are answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Route {
    Cni,
    Watch,
    Port,
    Metrics,
}

/// A request that was understood as far as its shape goes.
#[derive(Debug)]
pub enum Asked {
    Cni(Request),
    Watch(WatchRequest),
    Port(PortRequest),
    Metrics(Metrics),
}

/// What goes back.
#[derive(Debug)]
pub struct Reply {
    pub status: StatusCode,
    pub body: Body,
}

/// What an answer consists of.
#[derive(Debug)]
pub enum Body {
    /// JSON, or nothing at all.
    Whole(Vec<u8>),
    /// A line of JSON for each, as it comes.
    News(mpsc::UnboundedReceiver<PortNews>),
}

impl Route {
    /// Where a request goes.
    pub fn of(method: &Method, path: &str) -> Result<Self, Refusal> {
        let route = match path {
            REQUEST_PATH => Self::Cni,
            WATCH_PATH => Self::Watch,
            PORT_PATH => Self::Port,
            METRICS_PATH => Self::Metrics,
            other => return Err(Refusal::NoSuchPath(other.chars().take(64).collect())),
        };
        if method == Method::POST { Ok(route) } else { Err(Refusal::Method(method.to_string())) }
    }

    /// What is asked there with this body.
    pub fn read(self, body: &[u8]) -> Result<Asked, Refusal> {
        fn json<T: DeserializeOwned>(body: &[u8]) -> Result<T, Refusal> {
            serde_json::from_slice(body).map_err(Refusal::Json)
        }
        Ok(match self {
            Self::Cni => Asked::Cni(json(body)?),
            Self::Watch => Asked::Watch(json(body)?),
            Self::Port => Asked::Port(json(body)?),
            Self::Metrics => Asked::Metrics(json(body)?),
        })
    }
}

impl Asked {
    /// The span of everything that is logged of this request. Its values are as they were sent, good or bad.
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
            Self::Watch(WatchRequest { namespace, name, .. }) => request_span(Some("watch"), Some(namespace), Some(name), None, None),
            Self::Port(PortRequest { name, external_ids, .. }) => {
                let id = |key| external_ids.get(key).map(String::as_str);
                request_span(Some("port"), None, id(IFACE_ID), id(SANDBOX), Some(name))
            }
            Self::Metrics(Metrics { command, pod, sandbox, .. }) => {
                let pod = pod.as_deref().and_then(|pod| pod.split_once('/'));
                request_span(Some(command), pod.map(|pod| pod.0), pod.map(|pod| pod.1), sandbox.as_deref(), None)
            }
        }
    }
}

fn request_span(command: Option<&str>, namespace: Option<&str>, name: Option<&str>, sandbox: Option<&str>, ifname: Option<&str>) -> Span {
    info_span!("request", cni.command = command, pod.namespace = namespace, pod.name = name, sandbox, ifname)
}

impl Desk {
    /// The answer to a request that arrived at `started`.
    pub async fn answer(&self, asked: Asked, started: Instant) -> Result<Reply, Refusal> {
        match asked {
            Asked::Cni(request) => {
                let _in_progress = self.metrics.in_progress(request.env.get("CNI_COMMAND").map(String::as_str));
                self.answer_cni(request, started).await
            }
            Asked::Watch(request) => {
                let _in_progress = self.metrics.in_progress(Some("watch"));
                self.watched(request).await
            }
            Asked::Port(request) => {
                if self.phase() >= Phase::Stopping {
                    return Err(Refusal::ShuttingDown);
                }
                Ok(Reply { status: StatusCode::OK, body: Body::News(self.ports.write(request)) })
            }
            Asked::Metrics(report) => {
                self.metrics.reported(&report);
                self.tell_owner(&report);
                metrics::log(&report);
                Ok(Reply::EMPTY)
            }
        }
    }

    async fn answer_cni(&self, request: Request, started: Instant) -> Result<Reply, Refusal> {
        match request.env.get("CNI_COMMAND").map(String::as_str) {
            Some("ADD") => self.add(request, started).await,
            Some("DEL") => {
                // This project's plugin does not ask, and has a fence around what it does; upstream's takes seconds.
                if let Some(sandbox) = request.env.get("CNI_CONTAINERID") {
                    self.ports.leaves(sandbox);
                }
                Ok(del::carried_out_by_the_plugin())
            }
            Some("STATUS") => self.status(),
            Some("CHECK") => self.check(&request),
            // The plugin does these alone; success with no body is what upstream's server says to them.
            Some("UPDATE" | "GC") => Ok(Reply::EMPTY),
            Some(other) => Err(Refusal::Command(other.chars().take(64).collect())),
            None => Err(Refusal::Missing("CNI_COMMAND")),
        }
    }

    /// Answers with a refusal and counts it.
    pub fn refuse(&self, refusal: &Refusal, elapsed: Duration) -> Reply {
        self.metrics.refused(refusal.code());
        Reply::refuse(refusal, elapsed, &self.source.whereabouts())
    }

    /// UID of a pod as the API server has it, if that is known.
    fn uid(&self, pod: &PodKey) -> Option<String> {
        self.source.watch(pod).now().map(|pod| pod.facts.uid.clone())
    }

    /// A failure of the plugin is the pod's owner's business, too.
    fn tell_owner(&self, report: &Metrics) {
        let pod = report.pod.as_deref().and_then(|pod| pod.split_once('/'));
        if let Some(pod) = pod.and_then(|(namespace, name)| PodKey::new(namespace, name).ok()) {
            self.events.reported(&pod, &self.uid(&pod).unwrap_or_default(), report);
        }
    }

    fn phase(&self) -> Phase {
        *self.phase.borrow()
    }

    /// Waits until the server is in `phase` or beyond.
    async fn reached(&self, phase: Phase) {
        if self.phase.clone().wait_for(|now| *now >= phase).await.is_err() {
            // The server's life ended without one of its phases: so does this request, with its connection.
            std::future::pending().await
        }
    }
}

impl Reply {
    pub(crate) const EMPTY: Self = Self { status: StatusCode::OK, body: Body::Whole(Vec::new()) };

    fn json(value: &impl Serialize) -> Result<Self, Refusal> {
        Ok(Self { status: StatusCode::OK, body: Body::Whole(serde_json::to_vec(value).map_err(Refusal::Answer)?) })
    }

    /// Answers with a refusal and logs it: the only place that does.
    fn refuse(refusal: &Refusal, elapsed: Duration, whereabouts: &Whereabouts) -> Self {
        let refused = refusal.to_plugin(elapsed, whereabouts);
        let CniError { code, msg, details, .. } = &refused.error;
        let status = refusal.status();
        match refusal.severity() {
            Severity::Expected => tracing::info!(code, status = status.as_u16(), ms = millis(elapsed), msg, "refused"),
            Severity::Wrong => tracing::warn!(code, status = status.as_u16(), ms = millis(elapsed), msg, hint = details, "refused"),
        }
        let body = serde_json::to_vec(&refused).unwrap_or_default();
        Self { status, body: Body::Whole(body) }
    }
}

/// Milliseconds as log lines show them.
pub(crate) fn millis(elapsed: Duration) -> String {
    format!("{:.1}", elapsed.as_secs_f64() * 1000.0)
}
