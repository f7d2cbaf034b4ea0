//! A failed request to the API server in an administrator's words: who said what, and which file to look at.

use std::{error::Error, io, time::Duration};

use controller::api_server::{Kind, Trouble, wait};
use http_body_util::{BodyExt, Limited};
use hyper::{Response, StatusCode, body::Incoming, header::RETRY_AFTER};
use kube::core::Status;
use tower::BoxError;

use super::material::{MaterialError, Origin};
use crate::chain;

/// The most that is read of an answer that only says that there is none.
const LONGEST_EXCUSE: usize = 4096;

/// An answer that asks to come again later.
#[derive(Debug, thiserror::Error)]
#[error("{words} ({status})")]
struct Overloaded {
    status: StatusCode,
    words: String,
    retry_after: Duration,
}

/// An answer with Retry-After is an error that says how long; kube would not.
pub(super) async fn overloaded(response: Response<Incoming>) -> Result<Response<Incoming>, BoxError> {
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
pub(super) fn of(error: &kube::Error, origin: &Origin) -> Trouble {
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
pub(super) fn of_status(status: &Status, Origin { url, credential, .. }: &Origin) -> Trouble {
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
pub(super) fn innermost(error: &dyn Error) -> String {
    std::iter::successors(error.source(), |cause| (*cause).source()).last().map_or_else(|| error.to_string(), ToString::to_string)
}
