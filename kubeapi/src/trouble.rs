//! Why a request to the API server failed, in an administrator's words, and what its caller can do
//! about it. Knows neither connections nor credentials; `connection/failure.rs` makes most of
//! these.

use std::{fmt, time::Duration};

use kube::core::Status;

/// The longest pause that an answer (`Retry-After`) can ask for. An overloaded API server asks for
/// seconds; a wrong value of a proxy must not keep this program away for hours. A tenth of this
/// would ignore what an overloaded API server asks for.
const LONGEST_WAIT: Duration = Duration::from_secs(60);
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
    /// The request was refused (4xx), and will be until the request or the API server's
    /// configuration changes.
    Refused,
    /// Any failure that may pass by itself.
    Unavailable,
}

impl Trouble {
    /// A failure without an answer of the API server.
    pub fn without_answer(kind: Kind, text: String) -> Self {
        Self { kind, code: None, text, retry_after: None }
    }

    /// An answer with `Retry-After` and the status `code`.
    pub(crate) fn overloaded(code: u16, seconds: u64, text: String) -> Self {
        Self { kind: Kind::Unavailable, code: Some(code), text, retry_after: Some(wait(seconds)) }
    }

    /// A failure that the API server answered with `status`. Its wish to be left alone for a while
    /// is in the `details`.
    pub fn answered(status: &Status, text: String) -> Self {
        let retry_after = status
            .details
            .as_ref()
            .map(|details| details.retry_after_seconds)
            .filter(|seconds| *seconds > 0);
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

/// The API server does not have the requested version yet; after a restore from a backup it never
/// will.
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
