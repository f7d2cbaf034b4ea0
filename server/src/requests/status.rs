//! STATUS: whether this server can do its part of an ADD: not before it knows its pods, and from then on, whether the API server is there or not. What else an ADD needs, the plugin asks itself; the server tells it who of them
//! answers at all.

use podnet::stamp::FORGIVEN;

use super::{Desk, Phase, Reply};
use crate::{pods::Readiness, refusal::Refusal};

impl Desk {
    pub(super) fn status(&self) -> Result<Reply, Refusal> {
        match (self.phase(), self.source.readiness()) {
            // "Try again": the plugin forgives one that restarts.
            (Phase::Draining | Phase::Stopping, _) => Err(Refusal::ShuttingDown),
            // As is one that has just done so.
            (Phase::Running, Readiness::NotSynced(why)) if self.predecessor.is_none_or(|synced| synced.elapsed() >= FORGIVEN) => {
                Err(Refusal::NotAvailable(why))
            }
            (Phase::Running, Readiness::NotSynced(_)) => Reply::json(&self.partners.seen()),
            // What is missed now is made up for.
            (Phase::Running, Readiness::Synced | Readiness::Behind(_)) => Reply::json(&self.partners.seen()),
        }
    }
}
