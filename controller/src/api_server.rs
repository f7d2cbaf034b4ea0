//! The API server, over a connection that somebody else keeps, and what failed there in an administrator's words. Knows nothing of files,
//! credentials and TLS.

use std::{error::Error, fmt, sync::Arc, time::Duration};

use kube::{Client, core::Status};
use tokio::{sync::watch, time::timeout};

pub mod metrics;
#[cfg(test)]
pub(crate) mod scripted;

/// Nobody is waited for longer because of what an answer asks for.
const LONGEST_WAIT: Duration = Duration::from_secs(60);

/// A way to the API server. Clones are the same way.
#[derive(Clone)]
pub struct ApiServer {
    client: Client,
    renewals: watch::Receiver<u64>,
    explain: Arc<dyn Fn(&kube::Error) -> Trouble + Send + Sync>,
}

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

impl ApiServer {
    /// `renewals` changes when what was begun before should move over to other credentials; `explain` puts a failure into words.
    pub fn new(client: Client, renewals: watch::Receiver<u64>, explain: impl Fn(&kube::Error) -> Trouble + Send + Sync + 'static) -> Self {
        Self { client, renewals, explain: Arc::new(explain) }
    }

    /// Over a client whose way stays as it is.
    pub fn plain(client: Client) -> Self {
        Self::new(client, watch::channel(0).1, |error| match error {
            kube::Error::Api(status) => Trouble::answered(status, format!("the API server: {} ({})", status.message, status.code)),
            kube::Error::SerdeError(_) => Trouble::without_answer(Kind::Malformed, format!("the API server: {}", chain(error))),
            error => Trouble::without_answer(Kind::Unavailable, format!("the API server: {}", chain(error))),
        })
    }

    pub fn client(&self) -> &Client {
        &self.client
    }

    /// Changes whenever credentials do: what was begun before should be begun anew.
    pub(crate) fn renewals(&self) -> watch::Receiver<u64> {
        self.renewals.clone()
    }

    /// A request, and how long it may take.
    pub(crate) async fn ask<T>(&self, patience: Duration, request: impl Future<Output = Result<T, kube::Error>>) -> Result<T, Trouble> {
        match timeout(patience, request).await {
            Ok(answer) => answer.map_err(|error| self.trouble(&error)),
            Err(_) => Err(Trouble::without_answer(Kind::Unavailable, format!("the API server did not answer within {patience:?}"))),
        }
    }

    pub(crate) fn trouble(&self, error: &kube::Error) -> Trouble {
        (self.explain)(error)
    }
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
pub fn wait(seconds: u64) -> Duration {
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

/// An error and its causes, as far as they say more.
fn chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    for cause in std::iter::successors(error.source(), |cause| (*cause).source()) {
        let cause = cause.to_string();
        if !text.contains(&cause) {
            text = format!("{text}: {cause}");
        }
    }
    text
}

impl fmt::Debug for ApiServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ApiServer")
    }
}

impl fmt::Display for Trouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}
