//! What is said about one connection, as text: what the policies say, what the database does, and
//! whether both are the same.

use std::fmt::Write as _;

use acl::Carried;
use contract::names::{ClusterPolicyKey, PolicyKey};
use verdict::{
    Direction,
    cluster_policy::{Action, Kind, Tier},
    egress_firewall::{Answer, FirewallAction, FirewallFit},
    side::{self, By, Fit, Selecting, Side},
};

use super::{
    Question,
    database::{Acl, Does},
    ends::{Party, Who},
    objects::Objects,
    targets::Target,
};

/// One end of the connection: what its policies say, and what the ACLs of its port do.
#[derive(Debug)]
pub(super) struct End<'a> {
    pub(super) side: Side<'a>,
    /// What they would say if dry runs were enforced.
    pub(super) with_dry_runs: Side<'a>,
    pub(super) does: Does,
}

/// The way out of the cluster: what the EgressFirewall of the client's namespace says, and what the
/// ACLs on the way to the router do.
#[derive(Debug)]
pub(super) struct Leaving<'a> {
    pub(super) namespace: &'a str,
    pub(super) answer: Answer,
    pub(super) does: Does,
}

/// One connection.
#[derive(Debug)]
pub(super) struct Page<'a> {
    pub(super) question: &'a Question,
    pub(super) objects: &'a Objects,
    pub(super) target: &'a Target,
    /// Addresses of client and server.
    pub(super) addresses: [std::net::IpAddr; 2],
    /// A pod that connects to itself: inside of it, or through a Service; its switch sends such a
    /// packet back, past the ACLs of policies. No end is asked.
    pub(super) is_itself: bool,
    /// Of the client, if it is a pod.
    pub(super) egress: Option<End<'a>>,
    /// If it leads out of the cluster.
    pub(super) leaving: Option<Leaving<'a>>,
    /// Of the server, if it is a pod.
    pub(super) ingress: Option<End<'a>>,
}

impl Page<'_> {
    pub(super) fn allows(&self) -> bool {
        let leaves = self.leaving.as_ref().is_none_or(|leaving| leaving.answer.allows);
        leaves && self.ends().all(|end| end.side.allows)
    }

    /// Whether the database does everywhere what the policies say.
    pub(super) fn is_carried(&self) -> bool {
        let leaves = self.leaving.as_ref().is_none_or(Leaving::is_carried);
        leaves && self.ends().all(End::is_carried)
    }

    fn ends(&self) -> impl Iterator<Item = &End<'_>> {
        self.egress.iter().chain(&self.ingress)
    }

    pub(super) fn text(&self) -> String {
        let Objects { client, .. } = self.objects;
        let server = &self.target.party;
        let mut page = format!("{}\n", self.title());
        self.end(&mut page, Direction::Egress, client, self.egress.as_ref());
        if let Some(leaving) = &self.leaving {
            leaving.text(&mut page, self.objects);
        }
        self.end(&mut page, Direction::Ingress, server, self.ingress.as_ref());
        page
    }

    /// The connection and the verdict, in a line.
    pub(super) fn title(&self) -> String {
        let Objects { client, .. } = self.objects;
        let Target { party: server, port } = self.target;
        let [from, to] = self.addresses;
        let (name, verdict) = (self.question.protocol.name(), word(self.allows()));
        format!("{client} ({from}) to {server} ({to}), {name} port {port}: {verdict}")
    }

    fn end(&self, page: &mut String, direction: Direction, party: &Party, end: Option<&End<'_>>) {
        let direction = direction.name();
        let Some(end) = end else {
            let why = self.unasked(party);
            let _ = writeln!(page, "\n{direction} of {party}: allowed\n  {why}");
            return;
        };
        let _ = writeln!(page, "\n{direction} of {party}: {}", word(end.side.allows));
        for (number, selecting) in end.side.selecting.iter().enumerate() {
            self.policy(page, number, selecting, end.side.by);
        }
        let _ = writeln!(page, "  {}", reason(&end.side));
        self.of_dry_runs(page, &end.with_dry_runs);
        database(page, &end.does, end.side.allows);
    }

    /// Why no policy is asked at an end.
    pub(super) fn unasked(&self, party: &Party) -> &'static str {
        match party.who {
            _ if self.is_itself => "a pod always reaches itself",
            Who::Pod(_) => "no policy selects the pod",
            Who::Node { pod: None, .. } => "policies are about pods, and not about nodes",
            Who::Node { pod: Some(_), .. } => "no policy is about a pod in its node's network",
            Who::Outside => "policies are about pods, and not about what is outside of the cluster",
        }
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
            let _ = writeln!(
                page,
                "    rule {index} ({}): {}{}",
                action(*fit),
                of_fit(*fit),
                mark(decides)
            );
        }
    }

    /// The dry runs that select the end, with their rules.
    pub(super) fn dry_runs<'s>(
        &self,
        side: &'s Side<'_>,
    ) -> impl Iterator<Item = (&'s verdict::NetworkPolicy<'s>, &'s [Fit])> {
        side.selecting.iter().filter_map(|of| match of.policy {
            side::Policy::Network(policy) => {
                self.objects.is_dry_run(policy).then_some((policy, &*of.rules))
            }
            side::Policy::Cluster(_) => None,
        })
    }

    /// The dry runs that select the end, and what would be if they were enforced.
    fn of_dry_runs(&self, page: &mut String, side: &Side<'_>) {
        let mut is_any = false;
        for (policy, rules) in self.dry_runs(side) {
            is_any = true;
            let _ = writeln!(
                page,
                "  dry run, without effect: NetworkPolicy {}/{}",
                policy.namespace, policy.name
            );
            for (index, fit) in rules.iter().enumerate() {
                let _ = writeln!(page, "    rule {index} ({}): {}", action(*fit), of_fit(*fit));
            }
        }
        if is_any {
            let _ = writeln!(page, "  with all dry runs enforced: {}", word(side.allows));
        }
    }

    /// What of the policy cannot be used.
    pub(super) fn unusable(&self, policy: &side::Policy<'_>) -> Option<String> {
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
                let (_, known) =
                    self.objects.cluster_policies.iter().find(|(key, _)| is_it(key))?;
                known.unusable.as_ref().map(ToString::to_string)
            }
        }
    }
}

impl End<'_> {
    fn is_carried(&self) -> bool {
        self.does.is(self.side.allows)
    }
}

impl Leaving<'_> {
    fn is_carried(&self) -> bool {
        self.does.is(self.answer.allows)
    }

    fn text(&self, page: &mut String, objects: &Objects) {
        let Answer { rules, by, allows } = &self.answer;
        let _ =
            writeln!(page, "\nEgressFirewall of namespace {}: {}", self.namespace, word(*allows));
        if let Some(unusable) =
            objects.firewall.as_ref().and_then(|firewall| firewall.unusable.as_ref())
        {
            let _ = writeln!(page, "    {unusable}");
        }
        for (number, fit) in rules.iter().enumerate() {
            let FirewallFit { index, action, destination, port } = *fit;
            let action = firewall_action(action);
            let fits = fits(destination, port, "destination");
            let _ =
                writeln!(page, "    rule {index} ({action}): {fits}{}", mark(*by == Some(number)));
        }
        let _ = writeln!(page, "  {}", firewall_reason(*by, objects.firewall.is_some()));
        database(page, &self.does, *allows);
    }
}

/// Whether the database does the same, and by which ACLs.
fn database(page: &mut String, does: &Does, allowed: bool) {
    let Does::Carries(Carried { allows, by, unknown }) = does else {
        let _ = writeln!(page, "  database: {}", without_port(does));
        return;
    };
    let _ = match allows {
        Some(allows) if *allows == allowed => writeln!(page, "  database: the same"),
        Some(allows) => writeln!(page, "  database: DIFFERENT, it is {} there", word(*allows)),
        None => writeln!(page, "  database: not known, for an ACL cannot be evaluated"),
    };
    if by.is_empty() && unknown.is_empty() {
        let _ = writeln!(page, "    no ACL is about it");
    }
    by.iter().chain(unknown).for_each(|acl| row(page, acl));
}

/// Why the database has no ACLs of a pod.
pub(super) fn without_port(does: &Does) -> String {
    match does {
        Does::OtherZone(node) => {
            format!("the pod is in the zone of node {node}, whose database has its ACLs: ask there")
        }
        Does::NoPort | Does::Carries(_) => "it has no port of this pod".to_owned(),
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
    let _ =
        writeln!(page, "    ACL {uuid}: {action}, {direction}, tier {tier}, priority {priority}");
    let _ =
        writeln!(page, "      id    {}", id.as_deref().unwrap_or("none: it is not this program's"));
    let _ = writeln!(page, "      match {matching}");
}

fn word(allows: bool) -> &'static str {
    if allows { "allowed" } else { "denied" }
}

fn mark(decides: bool) -> &'static str {
    if decides { "  <- decides" } else { "" }
}

pub(super) fn firewall_action(action: FirewallAction) -> &'static str {
    match action {
        FirewallAction::Allow => "allow",
        FirewallAction::Deny => "deny",
    }
}

/// Why the EgressFirewall allows or denies. `by`: the rule that decides.
pub(super) fn firewall_reason(by: Option<usize>, has_one: bool) -> &'static str {
    match (by, has_one) {
        (Some(_), _) => "the marked rule decides",
        (None, true) => "no rule is about this connection",
        (None, false) => "the namespace has none",
    }
}

pub(super) fn action(fit: Fit) -> &'static str {
    match fit.action {
        Action::Accept => "accept",
        Action::Deny => "deny",
        Action::Pass => "pass",
    }
}

fn of_fit(fit: Fit) -> String {
    fits(fit.peer, fit.port, "peer")
}

/// `peer`: what the other end is called.
fn fits(is_peer: bool, is_port: bool, peer: &str) -> String {
    match (is_peer, is_port) {
        (true, true) => "it is about this connection".to_owned(),
        (true, false) => "another port or protocol".to_owned(),
        (false, true) => format!("another {peer}"),
        (false, false) => format!("another {peer}, and another port or protocol"),
    }
}

/// Why the side is as it is.
pub(super) fn reason(side: &Side<'_>) -> &'static str {
    match (side.by, side.selecting.is_empty(), side.direction) {
        (By::Rule { .. }, _, _) => "the marked rule decides",
        (By::Isolation, _, _) => {
            "denied: NetworkPolicies select the pod, and no rule of theirs is about this connection"
        }
        (By::OwnNode, _, _) => "a node always reaches its own pods",
        (By::Nothing, true, Direction::Egress) => "no policy selects the pod for egress",
        (By::Nothing, true, Direction::Ingress) => "no policy selects the pod for ingress",
        (By::Nothing, false, _) => "no rule decides, and no NetworkPolicy selects the pod",
    }
}
