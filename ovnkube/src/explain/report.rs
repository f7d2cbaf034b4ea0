//! What is said about one connection, for programs: the verdict, each end, and the database. The
//! same as the text.

use acl::Carried;
use serde_json::{Value, json};
use verdict::{
    Direction,
    egress_firewall::FirewallFit,
    side::{self, By, Fit, Selecting},
};

use super::{
    Page,
    database::{Acl, Does},
    ends::Party,
    page::{End, Leaving, action, firewall_action, firewall_reason, reason, without_port},
};
use crate::findings::{Finding, State};

const VERDICT: &str = "verdict";
const DATABASE: &str = "northbound database";

impl Page<'_> {
    /// The verdict first.
    pub(super) fn findings(&self) -> Vec<Finding> {
        let [from, to] = self.addresses;
        let name = format!("{from} to {to}");
        let client = &self.objects.client;
        let server = &self.target.party;
        let verdict = Finding::new(VERDICT, &name, state(self.allows()), &self.title())
            .with("allowed", self.allows())
            .with("client", client.to_string())
            .with("server", server.to_string())
            .with("protocol", self.question.protocol.name())
            .with("port", self.target.port);
        let mut findings = vec![verdict];
        findings.extend(self.of_end(Direction::Egress, client, self.egress.as_ref()));
        if let Some(leaving) = &self.leaving {
            findings.push(leaving.finding(self));
            let place = format!("the way of {name} out of the cluster");
            let allows = leaving.answer.allows;
            findings.push(of_database(&place, &leaving.does, allows));
        }
        findings.extend(self.of_end(Direction::Ingress, server, self.ingress.as_ref()));
        findings
    }

    /// What policies say of an end, and what the database does there.
    fn of_end(&self, direction: Direction, party: &Party, end: Option<&End<'_>>) -> Vec<Finding> {
        let (direction, party_name) = (direction.name(), party.to_string());
        let Some(end) = end else {
            return vec![Finding::new(direction, &party_name, State::Ok, self.unasked(party))];
        };
        let policies = end.side.selecting.iter().enumerate();
        let policies = policies.map(|(number, it)| self.of_policy(number, it, end.side.by));
        let dry_runs = self.dry_runs(&end.with_dry_runs).map(|(policy, rules)| {
            let (namespace, name) = (policy.namespace, &policy.name);
            json!({"namespace": namespace, "name": name, "rules": of_rules(rules, |_| false)})
        });
        let mut policies_say =
            Finding::new(direction, &party_name, state(end.side.allows), reason(&end.side))
                .with("allowed", end.side.allows)
                .with("policies", policies.collect::<Vec<_>>());
        let dry_runs: Vec<Value> = dry_runs.collect();
        if !dry_runs.is_empty() {
            policies_say = policies_say
                .with("dryRuns", dry_runs)
                .with("allowedWithDryRuns", end.with_dry_runs.allows);
        }
        let place = format!("{direction} of {party_name}");
        let does = of_database(&place, &end.does, end.side.allows);
        [policies_say, does].into()
    }

    fn of_policy(&self, number: usize, selecting: &Selecting<'_>, by: By) -> Value {
        let Selecting { policy, rules } = selecting;
        let (kind, namespace, name) = match policy {
            side::Policy::Network(policy) => {
                ("NetworkPolicy", Some(policy.namespace), &policy.name)
            }
            side::Policy::Cluster(policy) => (policy.kind.name(), None, &policy.name),
        };
        json!({
            "kind": kind,
            "namespace": namespace,
            "name": name,
            "unusable": self.unusable(policy),
            "rules": of_rules(rules, |rule| by == By::Rule { policy: number, rule }),
        })
    }
}

impl Leaving<'_> {
    fn finding(&self, page: &Page<'_>) -> Finding {
        let rules = self.answer.rules.iter().enumerate().map(|(number, fit)| {
            let FirewallFit { index, action, destination, port } = *fit;
            let decides = self.answer.by == Some(number);
            json!({"index": index, "action": firewall_action(action), "destination": destination,
                   "port": port, "decides": decides})
        });
        let allows = self.answer.allows;
        let why = firewall_reason(self.answer.by, page.objects.firewall.is_some());
        Finding::new("EgressFirewall", self.namespace, state(allows), why)
            .with("allowed", allows)
            .with("rules", rules.collect::<Vec<_>>())
    }
}

fn state(allows: bool) -> State {
    if allows { State::Ok } else { State::Failed }
}

/// `peer`, `port`: whether the rule is about them.
fn of_rules(rules: &[Fit], decides: impl Fn(usize) -> bool) -> Vec<Value> {
    let of_rule = |(index, fit): (usize, &Fit)| {
        json!({"index": index, "action": action(*fit), "peer": fit.peer, "port": fit.port,
               "decides": decides(index)})
    };
    rules.iter().enumerate().map(of_rule).collect()
}

/// Whether the database does there what the policies say, and by which ACLs.
fn of_database(place: &str, does: &Does, allowed: bool) -> Finding {
    let found = |state, said: &str| Finding::new(DATABASE, place, state, said);
    let Does::Carries(Carried { allows, by, unknown }) = does else {
        let state = if does.is(allowed) { State::Skipped } else { State::Failed };
        return found(state, &without_port(does));
    };
    let finding = match allows {
        Some(allows) if *allows == allowed => found(State::Ok, "it does the same"),
        Some(_) => found(State::Failed, "it does something else than the policies say"),
        None => found(State::Unknown, "an ACL cannot be evaluated"),
    };
    let acls = by.iter().chain(unknown).map(|row| {
        let Acl { uuid, id, acl, matching } = row;
        let acl::Acl { direction, tier, priority, action, .. } = acl;
        json!({"uuid": uuid.to_string(), "id": id, "action": action.to_string(),
               "direction": direction, "tier": tier, "priority": priority, "match": matching})
    });
    let finding = finding.with("acls", acls.collect::<Vec<_>>());
    match allows {
        Some(allows) => finding.with("allowed", *allows),
        None => finding,
    }
}
