//! Why a request to the API server failed, in an administrator's words: which server said what, and which
//! file to look at.

use std::{error::Error, fmt, io, time::Duration};

use contract::error::chain;
use http_body_util::{BodyExt, Limited};
use hyper::{Response, StatusCode, body::Incoming, header::RETRY_AFTER};
use kube::core::Status;
use tower::BoxError;

use crate::connection::config::{ConnectionConfigError, Provenance};

/// The longest pause that an answer (`Retry-After`) can ask for. An overloaded API server asks for seconds; a
/// wrong value of a proxy must not keep this program away for hours. A tenth of this would ignore what an
/// overloaded API server asks for.
const LONGEST_WAIT: Duration = Duration::from_secs(60);
/// The most that is read of the body of such an answer, in bytes. A `Status` of the API server is some
/// hundred bytes long; a proxy's page may be anything.
const LONGEST_EXCUSE: usize = 4096;

/// The reason why a request failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Trouble {
    pub kind: Kind,
    /// The HTTP status code; `None` without an answer.
    pub code: Option<u16>,
    /// One sentence with everything that is known.
    pub text: String,
    /// How long the API server asks to wait before the next request.
    pub retry_after: Option<Duration>,
}

/// What the caller can do about a failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// The version that a watch was to start from is not known any more, or not yet.
    Gone,
    /// The answer could not be read.
    Malformed,
    /// The request was refused (4xx), and will be until the request or the API server's configuration
    /// changes.
    Refused,
    /// Any failure that may pass by itself.
    Unavailable,
}

/// An answer that asks to try again later.
#[derive(Debug, thiserror::Error)]
#[error("{words} ({status})")]
struct Overloaded {
    status: StatusCode,
    words: String,
    retry_after: Duration,
}

/// Makes an answer with `Retry-After` an error that says for how long. kube drops that header.
pub(crate) async fn overloaded(response: Response<Incoming>) -> Result<Response<Incoming>, BoxError> {
    let status = response.status();
    let seconds = response
        .headers()
        .get(RETRY_AFTER)
        .and_then(|value| value.to_str().ok())
        .and_then(|value| value.trim().parse().ok());
    let Some(seconds) =
        seconds.filter(|_| status == StatusCode::TOO_MANY_REQUESTS || status.is_server_error())
    else {
        return Ok(response);
    };
    let body = Limited::new(response.into_body(), LONGEST_EXCUSE)
        .collect()
        .await
        .map(|body| body.to_bytes())
        .unwrap_or_default();
    let words = serde_json::from_slice::<Status>(&body)
        .map(|status| status.message)
        .unwrap_or_else(|_| String::from_utf8_lossy(&body).trim().to_owned());
    Err(Overloaded { status, words, retry_after: wait(seconds) }.into())
}

/// What `error` means for a connection made from `origin`.
pub(crate) fn of(error: &kube::Error, origin: &Provenance) -> Trouble {
    let Provenance { url, authority, credential, is_unverified: _ } = origin;
    let trouble = Trouble::without_answer;
    match error {
        kube::Error::Api(status) => of_status(status, origin),
        kube::Error::SerdeError(_)
        | kube::Error::FromUtf8(_)
        | kube::Error::LinesCodecMaxLineLengthExceeded => trouble(
            Kind::Malformed,
            format!("the API server {url} sent what cannot be read: {}", innermost(error)),
        ),
        kube::Error::Service(cause) => {
            // kube passes the errors of its transport through: those of the gateway, of `overloaded` above,
            // and of TLS and TCP.
            if let Some(error) = cause.downcast_ref::<ConnectionConfigError>() {
                return trouble(
                    Kind::Unavailable,
                    format!("no connection to the API server: {}", chain(error)),
                );
            }
            if let Some(overloaded) = cause.downcast_ref::<Overloaded>() {
                return Trouble {
                    code: Some(overloaded.status.as_u16()),
                    retry_after: Some(overloaded.retry_after),
                    ..trouble(Kind::Unavailable, format!("the API server {url}: {overloaded}"))
                };
            }
            match tls(cause.as_ref()) {
                Some(rustls::Error::InvalidCertificate(problem)) => trouble(
                    Kind::Unavailable,
                    format!(
                        "the API server {url} shows a certificate that is not trusted ({problem:?}); \
                         trusted are {authority}"
                    ),
                ),
                Some(error) => trouble(
                    Kind::Unavailable,
                    format!("the API server {url}: TLS: {error}; with {credential}"),
                ),
                None => {
                    trouble(Kind::Unavailable, format!("the API server {url}: {}", chain(cause.as_ref())))
                }
            }
        }
        other => trouble(Kind::Unavailable, format!("the API server {url}: {}", chain(other))),
    }
}

/// A refusal in the API server's own words.
pub(crate) fn of_status(status: &Status, Provenance { url, credential, .. }: &Provenance) -> Trouble {
    let Status { code, message, reason, .. } = status;
    let message: String = message.chars().take(1024).collect();
    let said = if message.is_empty() { reason } else { &message };
    let text = match code {
        0 => format!("the API server {url} sent an event that cannot be read"),
        401 => format!("the API server {url} does not accept {credential}: {said} (401)"),
        // RBAC's message says which user may not do what. Any other refusal comes from an admission plugin or
        // a webhook.
        403 if said.contains("cannot") && said.contains("User") => {
            format!("the API server {url}: {said} (403): see the roles bound to this user")
        }
        403 => format!("the API server {url}: {said} (403)"),
        _ => format!("the API server {url}: {said} ({code})"),
    };
    Trouble::answered(status, text)
}

/// The TLS error in a chain of causes. `io::Error::source` skips the error that it wraps, so `get_ref` is
/// asked first.
fn tls<'a>(error: &'a (dyn Error + 'static)) -> Option<&'a rustls::Error> {
    let mut next = Some(error);
    while let Some(error) = next {
        if let Some(error) = error.downcast_ref() {
            return Some(error);
        }
        let held = error.downcast_ref::<io::Error>().and_then(io::Error::get_ref);
        next = match held {
            Some(held) => Some(held),
            None => error.source(),
        };
    }
    None
}

/// The last cause. Those before it only repeat it.
pub(crate) fn innermost(error: &dyn Error) -> String {
    std::iter::successors(error.source(), |cause| (*cause).source())
        .last()
        .map_or_else(|| error.to_string(), ToString::to_string)
}

impl Trouble {
    /// A failure without an answer of the API server.
    pub fn without_answer(kind: Kind, text: String) -> Self {
        Self { kind, code: None, text, retry_after: None }
    }

    /// A failure that the API server answered with `status`. Its wish to be left alone for a while is in the
    /// `details`.
    pub fn answered(status: &Status, text: String) -> Self {
        let retry_after =
            status.details.as_ref().map(|details| details.retry_after_seconds).filter(|seconds| *seconds > 0);
        Self {
            kind: Kind::of(status),
            code: Some(status.code),
            text,
            retry_after: retry_after.map(|seconds| wait(seconds.into())),
        }
    }
}

/// The pause that an answer asks for, up to [`LONGEST_WAIT`].
fn wait(seconds: u64) -> Duration {
    Duration::from_secs(seconds).min(LONGEST_WAIT)
}

impl Kind {
    /// The kind of failure that a `Status` of the API server means.
    pub fn of(status: &Status) -> Self {
        match status.code {
            // kube reads an event that it cannot parse as a `Status` without a code.
            0 => Self::Malformed,
            410 => Self::Gone,
            _ if is_from_the_future(status) => Self::Gone,
            429 => Self::Unavailable,
            400..500 => Self::Refused,
            _ => Self::Unavailable,
        }
    }
}

/// The API server does not have the requested version yet; after a restore from a backup it never will.
fn is_from_the_future(status: &Status) -> bool {
    status
        .details
        .iter()
        .flat_map(|details| &details.causes)
        .any(|cause| cause.reason == "ResourceVersionTooLarge")
}

impl fmt::Display for Trouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}
