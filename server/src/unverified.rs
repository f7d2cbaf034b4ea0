//! The warning that a kubeconfig disables verification of the API server's certificate. Knows
//! nothing of how that is detected.

use kubeapi::Connection;

use crate::conditions::{Conditions, Part};

/// Warns, in the log and as a remark on `part` in `/readyz?verbose`, if the kubeconfig disables
/// verification of the API server's certificate. Checks again after each reload, for as long as the
/// process lives.
pub async fn warn_of_skipped_verification(
    connection: Connection,
    conditions: Conditions,
    part: Part,
) {
    let mut renewals = connection.renewals();
    let mut is_remarked = false;
    loop {
        // Before the check, so that no reload in between is missed.
        renewals.borrow_and_update();
        let is_unverified = connection.is_unverified();
        if is_unverified {
            let remark = "the kubeconfig has insecure-skip-tls-verify: the API server's certificate is not verified";
            tracing::warn!(api_server = connection.url(), "{remark}");
            conditions.remark(part, remark);
        } else if is_remarked {
            conditions.unremark(part);
        }
        is_remarked = is_unverified;
        if renewals.changed().await.is_err() {
            return;
        }
    }
}

#[cfg(test)]
mod tests;
