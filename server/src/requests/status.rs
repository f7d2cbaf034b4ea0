//! STATUS: whether this server could answer an ADD now. What else an ADD needs, the plugin asks itself; the server tells it who of them
//! answers at all.

use super::{Desk, Phase, Reply};
use crate::{pods::Readiness, refusal::Refusal};

impl Desk {
    pub(super) fn status(&self) -> Result<Reply, Refusal> {
        match (self.phase(), self.source.readiness()) {
            (Phase::Draining | Phase::Stopping, _) => Err(Refusal::NotAvailable("the server is shutting down".to_owned())),
            (Phase::Running, Readiness::NotSynced(why)) => Err(Refusal::NotAvailable(why)),
            // A pause: what is missed now is made up for.
            (Phase::Running, Readiness::Synced | Readiness::Behind(_)) => Reply::json(&self.partners.seen()),
        }
    }
}
