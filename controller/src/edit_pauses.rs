//! Pauses between edits for the sake of one thing that another program, or a node, may change as
//! often as it likes: a chassis of another zone, the zone that a node says it is in.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use contract::backoff;
use tokio::time::Instant;

/// Between the edits of one thing, doubled each time.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(60);
/// What was right for so long begins with the first pause again.
const CALM: Duration = Duration::from_secs(60);

/// The pauses of chassis or nodes, by name.
#[derive(Debug, Default)]
pub(crate) struct EditPauses {
    /// After so many edits of one thing there is no pause.
    free: u32,
    of: BTreeMap<Arc<str>, EditPause>,
}

#[derive(Debug)]
struct EditPause {
    edits: u32,
    until: Instant,
    is_told: bool,
}

impl EditPauses {
    pub(crate) fn after(free: u32) -> Self {
        Self { free, of: BTreeMap::new() }
    }

    /// Until when it is left alone; none if it is not.
    pub(crate) fn until(&self, name: &str, now: Instant) -> Option<Instant> {
        self.of.get(name).map(|pause| pause.until).filter(|until| *until > now)
    }

    pub(crate) fn edited(&mut self, name: &Arc<str>, now: Instant) {
        let first = EditPause { edits: 0, until: now, is_told: false };
        let pause = self.of.entry(Arc::clone(name)).or_insert(first);
        let beyond = pause.edits.checked_sub(self.free);
        let wait = beyond.map(|times| backoff::pause(FIRST_PAUSE, LONGEST_PAUSE, times));
        pause.until = now + wait.unwrap_or_default();
        pause.edits = pause.edits.saturating_add(1);
        pause.is_told = false;
    }

    /// Whether nobody has been told of the pause yet.
    pub(crate) fn is_to_be_told(&mut self, name: &str) -> bool {
        self.of.get_mut(name).is_some_and(|pause| !std::mem::replace(&mut pause.is_told, true))
    }

    pub(crate) fn forget(&mut self, now: Instant) {
        self.of.retain(|_, pause| now < pause.until + CALM);
    }
}
