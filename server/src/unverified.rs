//! The warning that a kubeconfig switches the verification of the API server off. Knows nothing of how that is found out.

use kubeapi::Connection;

use crate::conditions::{Conditions, Part};

/// Says, in the log and in `/readyz?verbose` beside `part`, that a kubeconfig switches the verification of the API server off; for as long as
/// the process lives.
pub(crate) async fn warn_of_skipped_verification(connection: Connection, conditions: Conditions, part: Part) {
    let mut renewals = connection.renewals();
    loop {
        renewals.borrow_and_update();
        if connection.is_unverified() {
            let remark = "the kubeconfig has insecure-skip-tls-verify: whoever answers for the API server is believed";
            tracing::warn!(api_server = connection.url(), "{remark}");
            conditions.remark(part, remark);
        }
        if renewals.changed().await.is_err() {
            return;
        }
    }
}

#[cfg(test)]
mod tests;
