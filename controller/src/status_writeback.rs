//! What is said of an object in its status: whether its rows are in the database, and what was
//! handed out to be written there. Knows neither objects nor requests.

use std::sync::Arc;

/// Whether the database has the rows of a policy, all of them and as they should be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RowsState {
    Ready,
    /// It has not, for this reason.
    Failed(Arc<str>),
}

impl RowsState {
    pub(crate) fn status(&self) -> &'static str {
        match self {
            Self::Ready => "True",
            Self::Failed(_) => "False",
        }
    }

    pub(crate) fn reason(&self) -> &'static str {
        match self {
            Self::Ready => "SetupSucceeded",
            Self::Failed(_) => "SetupFailed",
        }
    }

    pub(crate) fn message(&self) -> &str {
        match self {
            Self::Ready => "its rows are in OVN's northbound database",
            Self::Failed(why) => why,
        }
    }
}

/// What is known about the rows of an object, and what was said of it, each time as a `T`.
#[derive(Debug)]
pub(crate) struct StatusWriteback<T> {
    /// None: the rows have not been compared yet.
    pub(crate) standing: Option<RowsState>,
    /// What was handed out to be written, and has not been observed since.
    sent: Option<T>,
}

impl<T> Default for StatusWriteback<T> {
    fn default() -> Self {
        Self { standing: None, sent: None }
    }
}

impl<T: PartialEq> StatusWriteback<T> {
    /// What is on its way.
    pub(crate) fn sent(&self) -> Option<&T> {
        self.sent.as_ref()
    }

    /// The object has what it should have.
    pub(crate) fn arrived(&mut self) {
        self.sent = None;
    }

    /// Another list was read. What was sent and has not arrived may be lost: another API server
    /// does not know it.
    pub(crate) fn listed(&mut self) {
        self.sent = None;
    }

    /// Whether this has to be handed out. Otherwise it is on its way, and the event shows the
    /// object as it was before.
    pub(crate) fn hand_out(&mut self, wanted: T) -> bool {
        let is_new = self.sent.as_ref() != Some(&wanted);
        self.sent = Some(wanted);
        is_new
    }
}
