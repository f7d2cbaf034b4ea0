//! What the policies of one end say of a connection: those that select it, what each rule says, and
//! which one decides.

use crate::{
    Name, Namespace, Node,
    cluster_policy::{Action, ClusterPolicy, Tier},
    connection::{Direction, End, Place, Pod},
    network_policy::NetworkPolicy,
};

/// Everything that decides, beside the two ends.
#[derive(Debug, Clone, Copy)]
pub struct Policies<'a> {
    pub namespaces: &'a [Namespace<'a>],
    pub nodes: &'a [Node<'a>],
    pub names: &'a [Name<'a>],
    pub policies: &'a [NetworkPolicy<'a>],
    pub cluster_policies: &'a [ClusterPolicy<'a>],
}

/// A connection.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Connection<'a> {
    pub client: End<'a>,
    pub server: End<'a>,
    pub place: Place,
    pub origin: Origin,
}

/// Where a connection begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Origin {
    /// At the node of the server's pod: a kubelet that probes it, or another process there.
    OwnNode,
    Elsewhere,
}

/// One end's policies, in the order in which they are asked, and their verdict.
#[derive(Debug, Clone, PartialEq)]
pub struct Side<'a> {
    pub direction: Direction,
    pub selecting: Vec<Selecting<'a>>,
    pub allows: bool,
    pub by: By,
}

/// A policy that selects the end, and what its rules say.
#[derive(Debug, Clone, PartialEq)]
pub struct Selecting<'a> {
    pub policy: Policy<'a>,
    pub rules: Vec<Fit>,
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Policy<'a> {
    Network(&'a NetworkPolicy<'a>),
    Cluster(&'a ClusterPolicy<'a>),
}

/// What a rule says of the connection. It is about the connection if both fit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fit {
    pub action: Action,
    pub peer: bool,
    pub port: bool,
}

/// What decides.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum By {
    /// A rule: the index of the policy in [`Side::selecting`], and that of the rule in it.
    Rule { policy: usize, rule: usize },
    /// NetworkPolicies select the pod, and none of their rules allows the connection.
    Isolation,
    /// It comes from the node of the pod.
    OwnNode,
    /// No policy says anything.
    Nothing,
}

impl Fit {
    pub fn is_about_it(self) -> bool {
        self.peer && self.port
    }
}

impl Policy<'_> {
    fn tier(&self) -> Option<Tier> {
        match self {
            Self::Network(_) => None,
            Self::Cluster(policy) => Some(policy.kind.tier()),
        }
    }
}

impl<'a> Policies<'a> {
    /// What the policies of the connection's client (egress) or server (ingress) say. An end that
    /// is no pod has none, and everything is allowed.
    ///
    /// The tiers in their order: "If Admin tier has made a final decision (Accept or Deny) on a
    /// connection, then no further evaluation is done." "v1.NetworkPolicy always makes a final
    /// decision for selected pods." "If a given connection wasn't allowed or denied by any of the
    /// tiers", all pods can communicate.
    pub fn side(&self, direction: Direction, connection: Connection<'_>) -> Side<'a> {
        let own = match direction {
            Direction::Ingress => connection.server,
            Direction::Egress => connection.client,
        };
        let selecting =
            own.pod.map_or_else(Vec::new, |pod| self.selecting(direction, pod, connection));
        // "Traffic is allowed […] if the traffic source is the pod's local node."
        let (allows, by) = match (direction, connection.origin) {
            (Direction::Ingress, Origin::OwnNode) => (true, By::OwnNode),
            (Direction::Ingress | Direction::Egress, _) => decision(&selecting),
        };
        Side { direction, selecting, allows, by }
    }

    /// The policies that select the pod, in the order in which they are asked.
    fn selecting(
        &self,
        direction: Direction,
        pod: Pod<'_>,
        connection: Connection<'_>,
    ) -> Vec<Selecting<'a>> {
        let of_tier = |tier| {
            let mut policies: Vec<&'a ClusterPolicy<'a>> = self.cluster_policies.iter().collect();
            policies.retain(|policy| {
                policy.kind.tier() == tier && policy.is_about(pod, self.namespaces)
            });
            policies.sort_by_key(|policy| policy.kind.place());
            policies.into_iter().map(Policy::Cluster)
        };
        let of_namespace = self.policies.iter().filter(|policy| policy.selects(pod, direction));
        let in_order = of_tier(Tier::Admin)
            .chain(of_namespace.map(Policy::Network))
            .chain(of_tier(Tier::Baseline));
        let fits = |policy| Selecting { policy, rules: self.fits(policy, direction, connection) };
        in_order.map(fits).collect()
    }

    fn fits(
        &self,
        policy: Policy<'_>,
        direction: Direction,
        connection: Connection<'_>,
    ) -> Vec<Fit> {
        let Connection { client, server, place, origin: _ } = connection;
        let peer = match direction {
            Direction::Ingress => client,
            Direction::Egress => server,
        };
        match policy {
            Policy::Network(policy) => {
                let rules = policy.rules(direction).iter();
                let fit = rules.map(|rule| Fit {
                    action: Action::Accept,
                    peer: rule.has_peer(policy.namespace, peer, self.namespaces),
                    port: rule.has_port(server, place),
                });
                fit.collect()
            }
            Policy::Cluster(policy) => {
                let rules = policy.rules(direction).iter();
                let fit = rules.map(|rule| Fit {
                    action: rule.action,
                    peer: rule.has_peer(peer, self.namespaces, self.nodes, self.names),
                    port: rule.has_port(server, place),
                });
                fit.collect()
            }
        }
    }
}

fn decision(selecting: &[Selecting<'_>]) -> (bool, By) {
    if let Some((action, by)) = first(selecting, Some(Tier::Admin))
        && action != Action::Pass
    {
        return (action == Action::Accept, by);
    }
    // "Traffic is allowed if there are no NetworkPolicies selecting the pod, or if the traffic
    // matches at least one rule across all of the NetworkPolicy objects whose podSelector matches
    // the pod."
    if selecting.iter().any(|of| of.policy.tier().is_none()) {
        return first(selecting, None).map_or((false, By::Isolation), |(_, by)| (true, by));
    }
    match first(selecting, Some(Tier::Baseline)) {
        Some((Action::Deny, by)) => (false, by),
        Some((Action::Accept, by)) => (true, by),
        // "Pass: skips all further rules in the current tier, and passes evaluation to the next
        // tier."
        Some((Action::Pass, _)) | None => (true, By::Nothing),
    }
}

/// The first rule of a tier that is about the connection; without a tier, of NetworkPolicies. "A
/// rule that appears at the top would take the highest precedence."
fn first(selecting: &[Selecting<'_>], tier: Option<Tier>) -> Option<(Action, By)> {
    let of_tier = selecting.iter().enumerate().filter(|(_, of)| of.policy.tier() == tier);
    let mut rules = of_tier.flat_map(|(policy, of)| {
        let rules = of.rules.iter().enumerate();
        rules.map(move |(rule, fit)| (fit, By::Rule { policy, rule }))
    });
    rules.find(|(fit, _)| fit.is_about_it()).map(|(fit, by)| (fit.action, by))
}

#[cfg(test)]
mod tests;
