//! What is said about one connection, as text: what the policies say, what the database does, and whether
//! both are the same.

use std::fmt::Write as _;

use acl::Carried;
use contract::names::{ClusterPolicyKey, PolicyKey};
use verdict::{
    Direction,
    cluster_policy::{Action, Kind, Tier},
    side::{self, By, Fit, Selecting, Side},
};

use super::{Question, database::Acl, objects::Objects};

/// One end of the connection: what its policies say, and what the ACLs of its port do. None: the database has
/// no such port.
#[derive(Debug)]
pub(super) struct End<'a> {
    pub(super) side: Side<'a>,
    /// What they would say if dry runs were enforced.
    pub(super) with_dry_runs: Side<'a>,
    pub(super) carried: Option<Carried<Acl>>,
}

/// One connection.
#[derive(Debug)]
pub(super) struct Page<'a> {
    pub(super) question: &'a Question,
    pub(super) objects: &'a Objects,
    /// Addresses of client and server.
    pub(super) addresses: [std::net::IpAddr; 2],
    /// Egress of the client, ingress of the server.
    pub(super) ends: [End<'a>; 2],
}

impl Page<'_> {
    pub(super) fn allows(&self) -> bool {
        self.ends.iter().all(|end| end.side.allows)
    }

    /// Whether the database does on both sides what the policies say.
    pub(super) fn is_carried(&self) -> bool {
        self.ends.iter().all(End::is_carried)
    }

    pub(super) fn text(&self) -> String {
        let Question { client, server, port, protocol } = self.question;
        let [from, to] = self.addresses;
        let verdict = word(self.allows());
        let name = protocol.name();
        let mut page = format!("{client} ({from}) to {server} ({to}), {name} port {port}: {verdict}\n");
        for (end, pod) in self.ends.iter().zip([client, server]) {
            let direction = end.side.direction.name();
            let _ = writeln!(page, "\n{direction} of {pod}: {}", word(end.side.allows));
            for (number, selecting) in end.side.selecting.iter().enumerate() {
                self.policy(&mut page, number, selecting, end.side.by);
            }
            let _ = writeln!(page, "  {}", reason(&end.side));
            self.dry_runs(&mut page, &end.with_dry_runs);
            end.database(&mut page);
        }
        page
    }

    fn policy(&self, page: &mut String, number: usize, selecting: &Selecting<'_>, by: By) {
        let Selecting { policy, rules } = selecting;
        let _ = match policy {
            side::Policy::Network(policy) => {
                writeln!(page, "  NetworkPolicy {}/{}", policy.namespace, policy.name)
            }
            side::Policy::Cluster(policy) => {
                writeln!(page, "  {} {}, {}", policy.kind.name(), policy.name, order(policy.kind))
            }
        };
        if let Some(unusable) = self.unusable(policy) {
            let _ = writeln!(page, "    {unusable}");
        }
        if rules.is_empty() {
            let _ = writeln!(page, "    no rules in this direction");
        }
        for (index, fit) in rules.iter().enumerate() {
            let decides = by == By::Rule { policy: number, rule: index };
            let _ = writeln!(page, "    rule {index} ({}): {}{}", action(*fit), fits(*fit), mark(decides));
        }
    }

    /// The dry runs that select the end, and what would be if they were enforced.
    fn dry_runs(&self, page: &mut String, side: &Side<'_>) {
        let dry_runs = side.selecting.iter().filter_map(|of| match of.policy {
            side::Policy::Network(policy) => self.objects.is_dry_run(policy).then_some((policy, &of.rules)),
            side::Policy::Cluster(_) => None,
        });
        let mut is_any = false;
        for (policy, rules) in dry_runs {
            is_any = true;
            let _ = writeln!(
                page,
                "  dry run, without effect: NetworkPolicy {}/{}",
                policy.namespace, policy.name
            );
            for (index, fit) in rules.iter().enumerate() {
                let _ = writeln!(page, "    rule {index} ({}): {}", action(*fit), fits(*fit));
            }
        }
        if is_any {
            let _ = writeln!(page, "  with all dry runs enforced: {}", word(side.allows));
        }
    }

    /// What of the policy cannot be used.
    fn unusable(&self, policy: &side::Policy<'_>) -> Option<String> {
        match policy {
            side::Policy::Network(policy) => {
                let is_it = |key: &PolicyKey| {
                    (key.namespace(), key.name()) == (policy.namespace, policy.name.as_str())
                };
                let (_, known) = self.objects.policies.iter().find(|(key, _)| is_it(key))?;
                known.unusable.as_ref().map(ToString::to_string)
            }
            side::Policy::Cluster(policy) => {
                let is_it = |key: &ClusterPolicyKey| {
                    (key.kind.as_str(), key.name()) == (policy.kind.name(), policy.name.as_str())
                };
                let (_, known) = self.objects.cluster_policies.iter().find(|(key, _)| is_it(key))?;
                known.unusable.as_ref().map(ToString::to_string)
            }
        }
    }
}

impl End<'_> {
    fn is_carried(&self) -> bool {
        self.carried.as_ref().and_then(|carried| carried.allows) == Some(self.side.allows)
    }

    fn database(&self, page: &mut String) {
        let Some(Carried { allows, by, unknown }) = &self.carried else {
            let _ = writeln!(page, "  database: it has no port of this pod");
            return;
        };
        let _ = match allows {
            Some(allows) if *allows == self.side.allows => writeln!(page, "  database: the same"),
            Some(allows) => writeln!(page, "  database: DIFFERENT, it is {} there", word(*allows)),
            None => writeln!(page, "  database: not known, for an ACL cannot be evaluated"),
        };
        if by.is_empty() && unknown.is_empty() {
            let _ = writeln!(page, "    no ACL is about it");
        }
        by.iter().chain(unknown).for_each(|acl| row(page, acl));
    }
}

/// Where the policy stands among others.
fn order(kind: Kind) -> String {
    let tier = match kind.tier() {
        Tier::Admin => "before NetworkPolicies",
        Tier::Baseline => "behind NetworkPolicies",
    };
    match kind {
        Kind::ClusterNetworkPolicy(_, priority) | Kind::AdminNetworkPolicy(priority) => {
            format!("{tier}, priority {priority}")
        }
        Kind::BaselineAdminNetworkPolicy => tier.to_owned(),
    }
}

fn row(page: &mut String, acl: &Acl) {
    let Acl { uuid, id, acl, matching } = acl;
    let acl::Acl { direction, tier, priority, action, .. } = acl;
    let _ = writeln!(page, "    ACL {uuid}: {action}, {direction}, tier {tier}, priority {priority}");
    let _ = writeln!(page, "      id    {}", id.as_deref().unwrap_or("none: it is not this program's"));
    let _ = writeln!(page, "      match {matching}");
}

fn word(allows: bool) -> &'static str {
    if allows { "allowed" } else { "denied" }
}

fn mark(decides: bool) -> &'static str {
    if decides { "  <- decides" } else { "" }
}

fn action(fit: Fit) -> &'static str {
    match fit.action {
        Action::Accept => "accept",
        Action::Deny => "deny",
        Action::Pass => "pass",
    }
}

fn fits(fit: Fit) -> &'static str {
    match (fit.peer, fit.port) {
        (true, true) => "it is about this connection",
        (true, false) => "another port or protocol",
        (false, true) => "another peer",
        (false, false) => "another peer, and another port or protocol",
    }
}

/// Why the side is as it is.
fn reason(side: &Side<'_>) -> &'static str {
    match (side.by, side.selecting.is_empty(), side.direction) {
        (By::Rule { .. }, _, _) => "the marked rule decides",
        (By::Isolation, _, _) => {
            "denied: NetworkPolicies select the pod, and no rule of theirs is about this connection"
        }
        (By::Nothing, true, Direction::Egress) => "no policy selects the pod for egress",
        (By::Nothing, true, Direction::Ingress) => "no policy selects the pod for ingress",
        (By::Nothing, false, _) => "no rule decides, and no NetworkPolicy selects the pod",
    }
}
