//! Firewalls of other programs that may drop what passes the management port. Only told, never
//! changed.

use podnet::nftables::closed::{At, Closed, closed_to};
use tokio::time::Instant;

use super::{RESYNC, plan::INTERFACE};

/// What was found last.
#[derive(Debug, Default)]
pub(super) struct Firewalls {
    looked: Option<Instant>,
    remarks: Vec<String>,
}

impl Firewalls {
    /// A remark for each chain that drops what it does not know, and does not know the port.
    /// Another firewall may have thousands of rules, so it is not read at each event.
    pub(super) async fn look(&mut self) -> &[String] {
        if self.looked.is_none_or(|looked| looked.elapsed() >= RESYNC) {
            self.looked = Some(Instant::now());
            // A kernel without nftables has no such chains; rules in words that are not known say
            // nothing.
            let found = closed_to(INTERFACE).await.unwrap_or_default();
            let remarks: Vec<String> = found.iter().map(remark).collect();
            for remark in remarks.iter().filter(|remark| !self.remarks.contains(remark)) {
                tracing::warn!(remark, "another firewall may drop packets of pods");
            }
            self.remarks = remarks;
        }
        &self.remarks
    }
}

fn remark(Closed { table, chain, at }: &Closed) -> String {
    let lost = match at {
        At::Input => "what pods send to this host, such as the API server on it",
        At::Forward => "what pods send to other hosts, and what other machines send to node ports",
    };
    format!(
        "nftables: chain {chain} of table {table} drops what it does not know, {INTERFACE} included: {lost}"
    )
}
