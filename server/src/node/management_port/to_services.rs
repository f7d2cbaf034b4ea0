//! What this host needs to reach Services over the management port: routes to their ranges, and
//! rules that translate their addresses.

use std::{collections::BTreeSet, io, net::IpAddr};

use ipnet::IpNet;
use tokio::sync::watch;

use super::{
    Occasion, Outcome,
    events::Watched,
    kernel::Kernel,
    log,
    plan::{AssignedSubnets, Desired, ManagementPort, Route},
    port::Seen,
    service_ranges::{Decided, ServiceRanges},
    service_rules::{self, ServiceRules},
};
use crate::{
    conditions::{Conditions, Part},
    services::Destination,
};

pub(super) struct ToServices {
    pub(super) ranges: ServiceRanges,
    pub(super) rules: ServiceRules,
    /// What was decided last.
    decided: Option<(Decided, Option<Vec<Destination>>)>,
    /// Why the kernel does not translate addresses of Services.
    untranslated: Option<String>,
    /// Changes with each event of the table of nftables.
    table: watch::Receiver<u64>,
    /// What has events that matter.
    watched: watch::Sender<Watched>,
    conditions: Conditions,
}

impl ToServices {
    pub(super) fn new(
        (ranges, tunnel_ports): (ServiceRanges, BTreeSet<u16>),
        table: watch::Receiver<u64>,
        watched: watch::Sender<Watched>,
        conditions: Conditions,
    ) -> Self {
        let rules = ServiceRules::new(ranges.clients, tunnel_ports);
        Self { ranges, rules, decided: None, untranslated: None, table, watched, conditions }
    }

    /// Watches the links that packets take instead. Returns whether the decision may change without
    /// an event: a new link may have gone down before its events mattered.
    pub(super) fn watch_detours(&self) -> bool {
        let Some((decided, _)) = &self.decided else { return false };
        let is_new = self.watched.send_if_modified(|watched| {
            std::mem::replace(&mut watched.detours, decided.detours.clone()) != decided.detours
        });
        is_new || decided.may_change()
    }

    /// Adds to `desired` what this host needs to reach Services over the interface. Returns whether
    /// that is the same as before.
    pub(super) async fn decide(
        &mut self,
        kernel: &Kernel,
        (config, node): (&ManagementPort, &str),
        assigned: &AssignedSubnets,
        seen: &Seen,
        desired: &mut Desired,
    ) -> io::Result<bool> {
        let facts = self.ranges.facts.borrow_and_update().clone();
        let Some(link) = kernel.look()? else { return Ok(true) };
        // Without the flows of the interface there is no answer of OVN, whatever it serves.
        let is_installed = seen.is_installed(&desired.iface_id);
        // Before the routes are read: a change after that must be an event.
        let ranges = facts.ranges.keys().copied().collect();
        self.watched.send_modify(|watched| watched.ranges = ranges);
        let decided =
            self.ranges.decide(kernel, &link, desired, is_installed, config.to_gateway).await?;
        if let Ok(with_services) = config.desired(node, assigned, &decided.routed) {
            desired.routes = with_services.routes;
        }
        if !facts.are_all_ranges || facts.destinations.is_none() {
            // Before a restart these were routes to what is not known again yet.
            let kept = link.routes.iter().filter(|there| there.is_ours).map(|there| there.route);
            let kept: Vec<Route> = kept.filter(|route| !desired.routes.contains(route)).collect();
            desired.routes.extend(kept);
        }
        if let Some(all) = facts.destinations {
            desired.destinations = Some(routed(&all, &decided.reached()));
            desired.routes.extend(config.routes_to_local_traffic(desired));
        }
        Ok(self.tell(decided, desired))
    }

    /// Shows the ranges without a route in `/readyz?verbose`, and logs a change. Returns whether
    /// there is none.
    fn tell(&mut self, decided: Decided, desired: &Desired) -> bool {
        let now = (decided, desired.destinations.clone());
        if self.decided.as_ref() == Some(&now) {
            return true;
        }
        let before = self.decided.take().map(|(decided, _)| decided).unwrap_or_default();
        let (decided, _) = self.decided.insert(now);
        for (range, why) in
            decided.unrouted.iter().filter(|(range, why)| before.unrouted.get(range) != Some(*why))
        {
            tracing::info!(%range, %why, "no route to a range of Services over the management port");
        }
        self.remark();
        false
    }

    fn remark(&self) {
        let ranges = self.decided.iter().flat_map(|(decided, _)| &decided.unrouted);
        let unrouted = ranges.map(|(range, why)| format!("{range}: {why}"));
        let remarks: Vec<String> = unrouted.chain(self.untranslated.clone()).collect();
        if remarks.is_empty() {
            self.conditions.unremark(Part::SERVICES);
        } else {
            self.conditions.remark(Part::SERVICES, remarks.join("; "));
        }
    }

    /// Corrects the rules of nftables that translate addresses of Services.
    pub(super) async fn correct_rules(
        &mut self,
        desired: &Desired,
        occasion: Occasion,
        outcome: &mut Outcome,
    ) {
        let Some(destinations) = &desired.destinations else { return };
        // Seen before the kernel is read: a change after that must be an event. Without a sender
        // there are none.
        if self.table.has_changed().unwrap_or(true) {
            self.table.mark_unchanged();
            self.rules.doubt();
        }
        let failure = match self.rules.correct(destinations).await {
            Ok(true) => {
                log(&[service_rules::WHAT.to_owned()], occasion);
                None
            }
            Ok(false) => None,
            Err(error) => {
                let (what, without) = (service_rules::WHAT, service_rules::WITHOUT);
                Some(format!("nftables: {what}: {error}; without it, {without}"))
            }
        };
        outcome.failed |= failure.is_some();
        outcome.forbidden.extend(failure.clone());
        if std::mem::replace(&mut self.untranslated, failure.clone()) != failure {
            self.remark();
        }
    }
}

/// The destinations that this host reaches through OVN. What another program routes elsewhere is
/// that program's to translate.
fn routed(all: &[Destination], ranges: &[IpNet]) -> Vec<Destination> {
    let is_routed = |address: &IpAddr| ranges.iter().any(|range| range.contains(address));
    all.iter().filter(|destination| is_routed(&destination.cluster)).cloned().collect()
}
