//! What a failed request means: which server said what, and which file to look at.

use std::{error::Error, io};

use contract::error::chain;
use http_body_util::{BodyExt, Limited};
use hyper::{Response, StatusCode, body::Incoming, header::RETRY_AFTER};
use kube::core::Status;
use tower::BoxError;

use super::config::{ConnectionConfigError, Provenance};
use crate::trouble::{Kind, Trouble};

/// The most that is read of the body of an answer with `Retry-After`, in bytes. A `Status` of the
/// API server is some hundred bytes long; a proxy's page may be anything.
const LONGEST_EXCUSE: usize = 4096;

/// An answer that asks to try again later.
#[derive(Debug, thiserror::Error)]
#[error("{words} ({status})")]
struct Overloaded {
    status: StatusCode,
    words: String,
    /// The pause that it asks for, in seconds.
    seconds: u64,
}

/// Makes an answer with `Retry-After` an error that says for how long. kube drops that header.
pub(super) async fn overloaded(
    response: Response<Incoming>,
) -> Result<Response<Incoming>, BoxError> {
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
    Err(Overloaded { status, words, seconds }.into())
}

/// What `error` means for a connection made from `origin`.
pub(super) fn trouble(error: &kube::Error, origin: &Provenance) -> Trouble {
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
            // kube passes the errors of its transport through: those of the reloading client, of
            // `overloaded` above, and of TLS and TCP.
            if let Some(error) = cause.downcast_ref::<ConnectionConfigError>() {
                return trouble(
                    Kind::Unavailable,
                    format!("no connection to the API server: {}", chain(error)),
                );
            }
            if let Some(overloaded) = cause.downcast_ref::<Overloaded>() {
                let (code, text) =
                    (overloaded.status.as_u16(), format!("the API server {url}: {overloaded}"));
                return Trouble::overloaded(code, overloaded.seconds, text);
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
                None => trouble(
                    Kind::Unavailable,
                    format!("the API server {url}: {}", chain(cause.as_ref())),
                ),
            }
        }
        other => trouble(Kind::Unavailable, format!("the API server {url}: {}", chain(other))),
    }
}

/// A refusal in the API server's own words.
fn of_status(status: &Status, Provenance { url, credential, .. }: &Provenance) -> Trouble {
    let Status { code, message, reason, .. } = status;
    let message: String = message.chars().take(1024).collect();
    let said = if message.is_empty() { reason } else { &message };
    let text = match code {
        0 => format!("the API server {url} sent an event that cannot be read"),
        401 => format!("the API server {url} does not accept {credential}: {said} (401)"),
        // RBAC's message says which user may not do what. Any other refusal comes from an admission
        // plugin or a webhook.
        403 if said.contains("cannot") && said.contains("User") => {
            format!("the API server {url}: {said} (403): see the roles bound to this user")
        }
        403 => format!("the API server {url}: {said} (403)"),
        _ => format!("the API server {url}: {said} ({code})"),
    };
    Trouble::answered(status, text)
}

/// The TLS error in a chain of causes. `io::Error::source` skips the error that it wraps, so
/// `get_ref` is asked first.
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
pub(super) fn innermost(error: &dyn Error) -> String {
    std::iter::successors(error.source(), |cause| (*cause).source())
        .last()
        .map_or_else(|| error.to_string(), ToString::to_string)
}
