//! STATUS: whether this server can do its part of an ADD. It cannot before it knows its pods; from
//! then on it can, with or without the API server. The plugin checks the other daemons itself; the
//! answer tells it which of them the server gets answers from.

use podnet::stamp::FORGIVEN;

use super::{ApiResponse, HandlerState, Phase};
use crate::{api_error::ApiError, pods::Readiness};

impl HandlerState {
    pub(super) fn status(&self) -> Result<ApiResponse, ApiError> {
        match (self.phase(), self.source.readiness()) {
            // Code 11 ("try again later"): the plugin forgives a server that restarts.
            (Phase::Draining | Phase::Stopping, _) => Err(ApiError::ShuttingDown),
            // A server that has just restarted is forgiven as well, while the stamp of the one
            // before is fresh.
            (Phase::Running, Readiness::NotSynced(why))
                if self.predecessor.is_none_or(|synced| synced.elapsed() >= FORGIVEN) =>
            {
                Err(ApiError::NotAvailable(why))
            }
            (Phase::Running, Readiness::NotSynced(_)) => ApiResponse::json(&self.daemons.seen()),
            // Changes that are missed now are made up for later.
            (Phase::Running, Readiness::Synced | Readiness::Behind(_)) => {
                ApiResponse::json(&self.daemons.seen())
            }
        }
    }
}
