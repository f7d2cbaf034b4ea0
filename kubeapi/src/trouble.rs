//! A failed request to the API server in an administrator's words: who said what, and which file to look at.

use std::{error::Error, fmt, io, time::Duration};

use contract::error::chain;
use http_body_util::{BodyExt, Limited};
use hyper::{Response, StatusCode, body::Incoming, header::RETRY_AFTER};
use kube::core::Status;
use tower::BoxError;

use crate::connection::material::{MaterialError, Origin};

/// Nobody is waited for longer because of what an answer asks for.
const LONGEST_WAIT: Duration = Duration::from_secs(60);
/// The most that is read of an answer that only says that there is none.
const LONGEST_EXCUSE: usize = 4096;

/// What went wrong.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Trouble {
    pub kind: Kind,
    /// The status code of HTTP; none where there was no answer.
    pub code: Option<u16>,
    /// A sentence with everything that is known.
    pub text: String,
    /// How long the API server wants to be left alone.
    pub retry_after: Option<Duration>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// The version that a watch was to start from is no longer (or not yet) known.
    Gone,
    /// The answer could not be read.
    Malformed,
    /// The request was refused and will be until somebody changes something: 4xx.
    Refused,
    /// Anything that passes.
    Unavailable,
}

/// An answer that asks to come again later.
#[derive(Debug, thiserror::Error)]
#[error("{words} ({status})")]
struct Overloaded {
    status: StatusCode,
    words: String,
    retry_after: Duration,
}

/// An answer with Retry-After is an error that says how long; kube would not.
pub(crate) async fn overloaded(response: Response<Incoming>) -> Result<Response<Incoming>, BoxError> {
    let status = response.status();
    let seconds = response.headers().get(RETRY_AFTER).and_then(|value| value.to_str().ok()).and_then(|value| value.trim().parse().ok());
    let Some(seconds) = seconds.filter(|_| status == StatusCode::TOO_MANY_REQUESTS || status.is_server_error()) else {
        return Ok(response);
    };
    let body = Limited::new(response.into_body(), LONGEST_EXCUSE).collect().await.map(|body| body.to_bytes()).unwrap_or_default();
    let words = serde_json::from_slice::<Status>(&body)
        .map(|status| status.message)
        .unwrap_or_else(|_| String::from_utf8_lossy(&body).trim().to_owned());
    Err(Overloaded { status, words, retry_after: wait(seconds) }.into())
}

/// What `error` means on a connection made of `origin`.
pub(crate) fn of(error: &kube::Error, origin: &Origin) -> Trouble {
    let Origin { url, authority, credential, is_unverified: _ } = origin;
    let trouble = Trouble::without_answer;
    match error {
        kube::Error::Api(status) => of_status(status, origin),
        kube::Error::SerdeError(_) | kube::Error::FromUtf8(_) | kube::Error::LinesCodecMaxLineLengthExceeded => {
            trouble(Kind::Malformed, format!("the API server {url} sent what cannot be read: {}", innermost(error)))
        }
        kube::Error::Service(cause) => {
            if let Some(error) = cause.downcast_ref::<MaterialError>() {
                return trouble(Kind::Unavailable, format!("no way to the API server: {}", chain(error)));
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
                    format!("the API server {url} shows a certificate that is not trusted ({problem:?}); trusted are {authority}"),
                ),
                Some(error) => trouble(Kind::Unavailable, format!("the API server {url}: TLS: {error}; with {credential}")),
                None => trouble(Kind::Unavailable, format!("the API server {url}: {}", chain(cause.as_ref()))),
            }
        }
        other => trouble(Kind::Unavailable, format!("the API server {url}: {}", chain(other))),
    }
}

/// A refusal in the API server's own words.
pub(crate) fn of_status(status: &Status, Origin { url, credential, .. }: &Origin) -> Trouble {
    let Status { code, message, reason, .. } = status;
    let message: String = message.chars().take(1024).collect();
    let said = if message.is_empty() { reason } else { &message };
    let text = match code {
        0 => format!("the API server {url} sent an event that cannot be read"),
        401 => format!("the API server {url} does not accept {credential}: {said} (401)"),
        // The API server's own rule says which user may not do what; everything else is an admission plugin's or a webhook's.
        403 if said.contains("cannot") && said.contains("User") => {
            format!("the API server {url}: {said} (403): see the roles bound to this user")
        }
        403 => format!("the API server {url}: {said} (403)"),
        _ => format!("the API server {url}: {said} ({code})"),
    };
    Trouble::answered(status, text)
}

/// The TLS error in a chain of causes. An `io::Error` hides what it holds.
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

/// The last cause, where those before only repeat it.
pub(crate) fn innermost(error: &dyn Error) -> String {
    std::iter::successors(error.source(), |cause| (*cause).source()).last().map_or_else(|| error.to_string(), ToString::to_string)
}

impl Trouble {
    pub fn without_answer(kind: Kind, text: String) -> Self {
        Self { kind, code: None, text, retry_after: None }
    }

    /// A refusal, with the API server's own wish for patience.
    pub fn answered(status: &Status, text: String) -> Self {
        let retry_after = status.details.as_ref().map(|details| details.retry_after_seconds).filter(|seconds| *seconds > 0);
        Self { kind: Kind::of(status), code: Some(status.code), text, retry_after: retry_after.map(|seconds| wait(seconds.into())) }
    }
}

/// As long as an answer asks for, within reason.
fn wait(seconds: u64) -> Duration {
    Duration::from_secs(seconds).min(LONGEST_WAIT)
}

impl Kind {
    pub fn of(status: &Status) -> Self {
        match status.code {
            // kube takes any object that it cannot read for a Status without a code.
            0 => Self::Malformed,
            410 => Self::Gone,
            _ if is_from_the_future(status) => Self::Gone,
            429 => Self::Unavailable,
            400..500 => Self::Refused,
            _ => Self::Unavailable,
        }
    }
}

/// The version asked for is one that the API server does not have yet; after a restore, never.
fn is_from_the_future(status: &Status) -> bool {
    status.details.iter().flat_map(|details| &details.causes).any(|cause| cause.reason == "ResourceVersionTooLarge")
}

impl fmt::Display for Trouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}
