//! Every failure of a request: the one place that chooses its code, its HTTP status, its text and
//! its hint.

use std::time::Duration;

use contract::{
    annotation::{AnnotationError, POD_NETWORKS},
    bandwidth::BadBandwidth,
    cni_args::PodArgsError,
    error::{CniError, Code},
    names::{BadName, Network, PodKey},
    net_conf::NetConfError,
    wire::{MAX_BODY, PodChange, Refused, Retry},
};
use hyper::StatusCode;

use crate::{chain, pods::SourceDescription};

/// Why a request is refused.
#[derive(Debug, thiserror::Error)]
pub enum ApiError {
    #[error("no path {0:?}")]
    NoSuchPath(String),
    #[error("method {0} where POST is expected")]
    Method(String),
    #[error("a body of more than {MAX_BODY} bytes")]
    TooLong,
    #[error("the body did not arrive within {0:?}")]
    TooSlow(Duration),
    #[error("the body broke off")]
    BrokenBody(#[source] Box<dyn std::error::Error + Send + Sync>),
    #[error("the body is not the JSON that is expected here")]
    Json(#[source] serde_json::Error),
    #[error("too many requests at once")]
    Busy,
    #[error("CNI_COMMAND {0:?} is unknown")]
    Command(String),
    #[error("{0} is missing")]
    Missing(&'static str),
    #[error(transparent)]
    Name(#[from] BadName),
    #[error(transparent)]
    Args(#[from] PodArgsError),
    #[error("the CNI configuration")]
    Config(#[from] NetConfError),
    #[error("pod {pod} is not known on this node{}", not_synced(.why))]
    NoSuchPod {
        pod: PodKey,
        /// Why the pod may exist nevertheless.
        why: Option<String>,
    },
    #[error("pod {pod} has UID {there:?}, not {asked:?}: the pod that is meant no longer exists")]
    OtherUid { pod: PodKey, asked: String, there: String },
    #[error("pod {pod}: {change}")]
    PodChanged { pod: PodKey, change: PodChange },
    /// The annotation was changed between the answer to an ADD and the request for its port.
    #[error(
        "pod {pod}: the annotation {POD_NETWORKS} has {there} for network {nad:?}, \
         and the port is for {asked}"
    )]
    OtherAddresses { pod: PodKey, nad: String, asked: String, there: String },
    #[error("pod {pod}: its network annotation")]
    BadAnnotation { pod: PodKey, source: AnnotationError },
    #[error("pod {pod}")]
    BadBandwidth { pod: PodKey, source: BadBandwidth },
    #[error("pod {pod} has no network {:?} in annotation {POD_NETWORKS}", .network.annotation_key())]
    NoAnnotation { pod: PodKey, network: Network },
    #[error(
        "pod {pod}: its primary network is a user-defined one (role infrastructure-locked), \
         which is not supported"
    )]
    PrimaryNetwork { pod: PodKey },
    #[error("the server is shutting down")]
    ShuttingDown,
    /// The same, to an ADD that the server has not begun.
    #[error("the server is shutting down and accepts no new ADD")]
    Draining,
    #[error("an ADD could not succeed now: {0}")]
    NotAvailable(String),
    #[error("the answer cannot be written as JSON")]
    Answer(#[source] serde_json::Error),
}

/// How bad a refusal is for the reader of the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Severity {
    /// Happens in a healthy cluster.
    Expected,
    /// Needs an action.
    Wrong,
}

impl ApiError {
    /// The body of the answer to a request after `elapsed`.
    ///
    /// `source_description` of pods are for the hint.
    pub(crate) fn to_plugin(
        &self,
        elapsed: Duration,
        source_description: &SourceDescription,
    ) -> Refused {
        Refused { error: self.to_cni(elapsed, source_description), retry: self.retry() }
    }

    fn to_cni(&self, elapsed: Duration, source_description: &SourceDescription) -> CniError {
        let mut text = chain(self);
        if self.is_about_a_pod() {
            text.push_str(&format!(" (after {:.1} s)", elapsed.as_secs_f64()));
        }
        CniError::new(self.code(), text, self.hint(source_description))
    }

    /// The code of the CNI error.
    pub(crate) fn code(&self) -> Code {
        match self {
            Self::NoSuchPath(_)
            | Self::Method(_)
            | Self::TooLong
            | Self::TooSlow(_)
            | Self::BrokenBody(_) => Code::Io,
            Self::Json(_) => Code::Decode,
            Self::Command(_) | Self::Missing(_) | Self::Name(_) | Self::Args(_) => {
                Code::InvalidEnvironment
            }
            Self::Config(error) => error.code(),
            Self::PrimaryNetwork { .. } => Code::UnsupportedField,
            // Code 11: the runtime tries the same call again.
            Self::Busy
            | Self::NoSuchPod { .. }
            | Self::OtherAddresses { .. }
            | Self::NoAnnotation { .. }
            | Self::ShuttingDown
            | Self::Draining => Code::TryAgain,
            // Code 3 tells the runtime that there is nothing to clean up (SPEC.md, "Error").
            Self::OtherUid { .. } | Self::PodChanged { .. } => Code::UnknownContainer,
            Self::BadAnnotation { .. } | Self::BadBandwidth { .. } => Code::BadAnnotation,
            Self::NotAvailable(_) => Code::NotAvailable,
            Self::Answer(_) => Code::Internal,
        }
    }

    /// The HTTP status of the answer.
    pub(crate) fn status(&self) -> StatusCode {
        match self {
            Self::NoSuchPath(_) => StatusCode::NOT_FOUND,
            Self::Method(_) => StatusCode::METHOD_NOT_ALLOWED,
            Self::TooLong => StatusCode::PAYLOAD_TOO_LARGE,
            Self::TooSlow(_) => StatusCode::REQUEST_TIMEOUT,
            Self::BrokenBody(_)
            | Self::Json(_)
            | Self::Command(_)
            | Self::Missing(_)
            | Self::Name(_)
            | Self::Args(_)
            | Self::Config(_) => StatusCode::BAD_REQUEST,
            Self::OtherUid { .. } | Self::PodChanged { .. } | Self::OtherAddresses { .. } => {
                StatusCode::CONFLICT
            }
            Self::BadAnnotation { .. }
            | Self::BadBandwidth { .. }
            | Self::PrimaryNetwork { .. } => StatusCode::UNPROCESSABLE_ENTITY,
            // Not 404 for an unknown pod: that is how a server answers that lacks the path.
            Self::Busy
            | Self::NoSuchPod { .. }
            | Self::NoAnnotation { .. }
            | Self::ShuttingDown
            | Self::Draining
            | Self::NotAvailable(_) => StatusCode::SERVICE_UNAVAILABLE,
            Self::Answer(_) => StatusCode::INTERNAL_SERVER_ERROR,
        }
    }

    /// What an administrator looks at next.
    pub(crate) fn hint(&self, source_description: &SourceDescription) -> String {
        match self {
            Self::NoSuchPath(_)
            | Self::Method(_)
            | Self::Json(_)
            | Self::BrokenBody(_)
            | Self::TooSlow(_)
            | Self::TooLong => "is the caller the CNI plugin of this version?".to_owned(),
            Self::Busy => {
                "the runtime tries again; see the server's log for what the others wait for".to_owned()
            }
            Self::Command(_) | Self::Missing(_) | Self::Name(_) | Self::Args(_) => {
                "see the CNI_* variables that the runtime sets for the plugin".to_owned()
            }
            Self::Config(_) => {
                "see the CNI configuration in the runtime's directory, usually /etc/cni/net.d".to_owned()
            }
            Self::NoSuchPod { pod, .. } => match source_description {
                SourceDescription::Manifests(directory) => {
                    let (name, namespace) = (pod.name(), pod.namespace());
                    format!(
                        "is there a manifest of pod {name} in namespace {namespace} in {}?",
                        directory.display()
                    )
                }
                SourceDescription::ApiServer { node } => {
                    let (name, namespace) = (pod.name(), pod.namespace());
                    format!("does it exist, on node {node}? kubectl -n {namespace} get pod {name} -o wide")
                }
            },
            Self::OtherUid { .. } | Self::PodChanged { .. } => {
                "nothing to do: the runtime is asked again for the pod that exists now, if there is one"
                    .to_owned()
            }
            Self::OtherAddresses { pod, .. } => format!(
                "the annotation changed during the ADD: the runtime tries again with the new one; if that \
                 fails as well, look for the program that keeps changing it: {}",
                show(pod, source_description)
            ),
            Self::BadAnnotation { pod, .. } | Self::BadBandwidth { pod, .. } => {
                format!(
                    "see the annotations of pod {pod}; their author has to correct them: {}",
                    show(pod, source_description)
                )
            }
            Self::NoAnnotation { pod, .. } => format!(
                "is the control plane running? It writes the annotation; see its log for this pod, \
                 and whether the node has a subnet: {}",
                show(pod, source_description)
            ),
            Self::PrimaryNetwork { pod } => format!(
                "this version attaches pods to user-defined networks as secondary ones only; \
                 see the UserDefinedNetworks of namespace {}",
                pod.namespace()
            ),
            Self::ShuttingDown | Self::Draining => {
                "the runtime tries again once the server runs again".to_owned()
            }
            Self::NotAvailable(_) => "see the server's log".to_owned(),
            Self::Answer(_) => "please report this".to_owned(),
        }
    }

    pub(crate) fn severity(&self) -> Severity {
        match self {
            Self::OtherUid { .. }
            | Self::PodChanged { .. }
            | Self::ShuttingDown
            | Self::Draining
            | Self::NotAvailable(_) => Severity::Expected,
            Self::NoSuchPath(_)
            | Self::Method(_)
            | Self::TooLong
            | Self::TooSlow(_)
            | Self::BrokenBody(_)
            | Self::Json(_)
            | Self::Busy
            | Self::Command(_)
            | Self::Missing(_)
            | Self::Name(_)
            | Self::Args(_)
            | Self::Config(_)
            | Self::NoSuchPod { .. }
            | Self::OtherAddresses { .. }
            | Self::BadAnnotation { .. }
            | Self::BadBandwidth { .. }
            | Self::NoAnnotation { .. }
            | Self::PrimaryNetwork { .. }
            | Self::Answer(_) => Severity::Wrong,
        }
    }

    /// Whether the failure becomes an event on the pod, because its owner may have to act.
    pub(crate) fn is_for_the_owner(&self) -> bool {
        matches!(
            self,
            Self::Config(_)
                | Self::NoSuchPod { .. }
                | Self::BadAnnotation { .. }
                | Self::BadBandwidth { .. }
                | Self::NoAnnotation { .. }
                | Self::PrimaryNetwork { .. }
        )
    }

    /// Which server answers the same request instead, if any. An ADD that has waited here until the
    /// server stops is for the runtime to repeat.
    pub(crate) fn retry(&self) -> Option<Retry> {
        match self {
            // Nothing was begun, so the next server can answer the whole request.
            Self::Draining => Some(Retry::NextServer),
            Self::NoSuchPath(_)
            | Self::Method(_)
            | Self::TooLong
            | Self::TooSlow(_)
            | Self::BrokenBody(_)
            | Self::Json(_)
            | Self::Busy
            | Self::Command(_)
            | Self::Missing(_)
            | Self::Name(_)
            | Self::Args(_)
            | Self::Config(_)
            | Self::NoSuchPod { .. }
            | Self::OtherUid { .. }
            | Self::PodChanged { .. }
            | Self::OtherAddresses { .. }
            | Self::BadAnnotation { .. }
            | Self::BadBandwidth { .. }
            | Self::NoAnnotation { .. }
            | Self::PrimaryNetwork { .. }
            | Self::ShuttingDown
            | Self::NotAvailable(_)
            | Self::Answer(_) => None,
        }
    }

    /// Whether it ended a wait for a pod: the text then says how long that took.
    fn is_about_a_pod(&self) -> bool {
        match self {
            Self::NoSuchPod { .. }
            | Self::OtherUid { .. }
            | Self::PodChanged { .. }
            | Self::BadAnnotation { .. }
            | Self::BadBandwidth { .. }
            | Self::NoAnnotation { .. }
            | Self::PrimaryNetwork { .. }
            | Self::ShuttingDown
            | Self::Draining => true,
            Self::NoSuchPath(_)
            | Self::Method(_)
            | Self::TooLong
            | Self::TooSlow(_)
            | Self::BrokenBody(_)
            | Self::Json(_)
            | Self::Busy
            | Self::Command(_)
            | Self::Missing(_)
            | Self::Name(_)
            | Self::Args(_)
            | Self::Config(_)
            | Self::OtherAddresses { .. }
            | Self::NotAvailable(_)
            | Self::Answer(_) => false,
        }
    }
}

/// Where an administrator sees the pod.
fn show(pod: &PodKey, source_description: &SourceDescription) -> String {
    match source_description {
        SourceDescription::Manifests(directory) => {
            format!("its manifest is in {}", directory.display())
        }
        SourceDescription::ApiServer { node: _ } => {
            format!("kubectl -n {} get pod {} -o yaml", pod.namespace(), pod.name())
        }
    }
}

fn not_synced(why: &Option<String>) -> String {
    why.as_ref().map(|why| format!(" ({why})")).unwrap_or_default()
}
