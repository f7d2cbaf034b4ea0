//! What is said of an object in its status: whether its rows are in the database, and what was handed out to
//! be written there. Knows neither objects nor requests.

use super::conditions::Standing;

/// What is known about the rows of an object, and what was said of it, each time as a `T`.
#[derive(Debug)]
pub(super) struct Said<T> {
    /// None: the rows have not been compared yet.
    pub(super) standing: Option<Standing>,
    /// What was handed out to be written, and has not been observed since.
    sent: Option<T>,
}

impl<T> Default for Said<T> {
    fn default() -> Self {
        Self { standing: None, sent: None }
    }
}

impl<T: PartialEq> Said<T> {
    /// What is on its way.
    pub(super) fn sent(&self) -> Option<&T> {
        self.sent.as_ref()
    }

    /// The object has what it should have.
    pub(super) fn arrived(&mut self) {
        self.sent = None;
    }

    /// Another list was read. What was sent and has not arrived may be lost: another API server does not know
    /// it.
    pub(super) fn listed(&mut self) {
        self.sent = None;
    }

    /// Whether this has to be handed out. Otherwise it is on its way, and the event shows the object as it
    /// was before.
    pub(super) fn hand_out(&mut self, wanted: T) -> bool {
        let is_new = self.sent.as_ref() != Some(&wanted);
        self.sent = Some(wanted);
        is_new
    }
}
