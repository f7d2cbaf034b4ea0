//! Which specs run, and why others do not.

use std::{collections::BTreeSet, fmt};

use clap::ValueEnum;
use integration::Families;

use super::network_policy_api;

/// Address families of a cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum Lane {
    /// IPv4 alone.
    Ipv4,
    /// IPv6 alone.
    Ipv6,
    /// Both, IPv4 first.
    Dual,
}

impl Lane {
    pub(super) fn families(self) -> Families {
        match self {
            Self::Ipv4 => Families::V4,
            Self::Ipv6 => Families::V6,
            Self::Dual => Families::Dual,
        }
    }
}

impl fmt::Display for Lane {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Ipv4 => "ipv4",
            Self::Ipv6 => "ipv6",
            Self::Dual => "dual",
        })
    }
}

/// Whose suite runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum Project {
    /// Kubernetes' own: every spec of its networking group.
    Kubernetes,
    /// Of policies of the whole cluster.
    NetworkPolicyApi,
}

impl Project {
    const ALL: [Self; 2] = [Self::Kubernetes, Self::NetworkPolicyApi];

    /// What begins the name of each of its specs.
    fn group(self) -> &'static str {
        match self {
            Self::Kubernetes => GROUP,
            Self::NetworkPolicyApi => network_policy_api::GROUP,
        }
    }
}

/// Every spec of the networking group has this in its name.
const GROUP: &str = "[sig-network]";

/// Specs that are not run in any lane: a part of the name, and the reason.
const NOT_RUN: &[(&str, &str)] = &[
    ("[Provider:GCE]", "needs Google's cloud"),
    ("kube-proxy migration", "moves kube-proxy, which is not there"),
    ("restarting kube-proxy", "there is no kube-proxy"),
    ("kube-proxy urls", "asks kube-proxy for its mode"),
    ("KubeProxy should set TCP CLOSE_WAIT", "about a sysctl that kube-proxy sets"),
    ("KubeProxyNFAcct", "about counters of kube-proxy"),
    ("restarting apiserver", "the API server is no pod"),
    ("should recreate its iptables rules", "logs in to nodes by SSH"),
    ("[Feature:Networking-Performance]", "measures a network at full load"),
    ("[Feature:PerformanceDNS]", "measures DNS with ten thousand Services"),
    ("[Alpha]", "needs a feature gate that is off by default"),
];

/// Not run where the kernel has no SCTP, which their servers and clients need.
const SCTP: (&str, &str) = ("[Feature:SCTPConnectivity]", WITHOUT_SCTP);
pub(super) const WITHOUT_SCTP: &str = "the kernel has no SCTP";

/// Specs that are not run in lanes without both families, without IPv4, without IPv6.
const DUAL: (&str, &str) = ("[Feature:IPv6DualStack]", "needs two address families");
const V4: (&str, &str) = ("[Feature:Networking-IPv4]", "needs IPv4");
const V6: (&str, &str) = ("[Feature:Networking-IPv6]", "needs IPv6");

/// Ten specs, one or two of each kind, by their whole names.
pub(super) const QUICK: &[&str] = &[
    "[sig-network] DNS should provide DNS for the cluster [Conformance]",
    "[sig-network] DNS should provide DNS for services [Conformance]",
    "[sig-network] DNS should provide DNS for ExternalName services [Conformance]",
    "[sig-network] EndpointSlice should create Endpoints and EndpointSlices for Pods matching a Service [Conformance]",
    "[sig-network] Networking Granular Checks: Pods should function for intra-pod communication: http [NodeConformance] [Conformance]",
    "[sig-network] Networking Granular Checks: Pods should function for intra-pod communication: udp [NodeConformance] [Conformance]",
    "[sig-network] Services should serve a basic endpoint from pods [Conformance]",
    "[sig-network] Services should serve multiport endpoints from pods [Conformance]",
    "[sig-network] Services should be able to change the type from ExternalName to ClusterIP [Conformance]",
    "[sig-network] Services should find a service from listing all namespaces [Conformance]",
];

/// Whether the kernel has SCTP.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Sctp {
    Present,
    Absent,
}

/// The specs of one run.
#[derive(Debug)]
pub(super) struct Selection {
    lane: Lane,
    pub(super) sctp: Sctp,
    projects: Vec<Project>,
    /// Ginkgo's `--focus`.
    pub(super) focus: String,
    /// What names of the network-policy-api project have to match, if not all of them are wanted.
    pub(super) focus_of_policies: Option<String>,
    /// Whether a spec that does not match is no loss: somebody asked for some.
    pub(super) is_partial: bool,
}

impl Selection {
    /// `project`: the only one; without it that of Kubernetes if there is a `focus`, and else all
    /// of them.
    pub(super) fn new(
        lane: Lane,
        sctp: Sctp,
        project: Option<Project>,
        focus: Option<&str>,
    ) -> Self {
        let focus_of_group = quoted(GROUP);
        let projects = match (project, focus) {
            (Some(project), _) => vec![project],
            (None, Some(_)) => vec![Project::Kubernetes],
            (None, None) => Project::ALL.to_vec(),
        };
        Self {
            lane,
            sctp,
            projects,
            // Go's regular expressions have no "and": the name of the group is at its beginning.
            focus: focus
                .map_or(focus_of_group.clone(), |focus| format!("{focus_of_group}.*({focus})")),
            focus_of_policies: focus.map(str::to_owned),
            is_partial: focus.is_some(),
        }
    }

    pub(super) fn quick(lane: Lane, sctp: Sctp) -> Self {
        let names: Vec<String> = QUICK.iter().map(|name| quoted(name)).collect();
        let projects = vec![Project::Kubernetes];
        Self {
            lane,
            sctp,
            projects,
            focus: names.join("|"),
            focus_of_policies: None,
            is_partial: true,
        }
    }

    /// Whether the suite of `project` runs.
    pub(super) fn has(&self, project: Project) -> bool {
        self.projects.contains(&project)
    }

    /// Of the specs that have to pass, those of the suites that run.
    pub(super) fn expected(&self, names: BTreeSet<String>) -> BTreeSet<String> {
        let runs =
            |name: &String| self.projects.iter().any(|project| name.starts_with(project.group()));
        names.into_iter().filter(runs).collect()
    }

    /// Whether the suite that has the spec `name` reports it even if it was not selected.
    pub(super) fn reports_unselected(&self, name: &str) -> bool {
        !(self.is_partial && name.starts_with(network_policy_api::GROUP))
    }

    /// Why a spec of that name is not run; `None` if it is.
    pub(super) fn reason_against(&self, name: &str) -> Option<&'static str> {
        self.not_run().find(|(part, _)| name.contains(part)).map(|(_, reason)| reason)
    }

    /// Ginkgo's `--skip`.
    pub(super) fn skip(&self) -> String {
        self.not_run().map(|(part, _)| quoted(part)).collect::<Vec<_>>().join("|")
    }

    fn not_run(&self) -> impl Iterator<Item = (&'static str, &'static str)> + use<> {
        let of_lane: &[(&str, &str)] = match self.lane {
            Lane::Ipv4 => &[DUAL, V6],
            Lane::Ipv6 => &[DUAL, V4],
            Lane::Dual => &[],
        };
        let of_kernel: &[(&str, &str)] = match self.sctp {
            Sctp::Present => &[],
            Sctp::Absent => &[SCTP],
        };
        NOT_RUN.iter().chain(of_lane).chain(of_kernel).copied()
    }
}

/// `text` as a regular expression of Go that matches it and nothing else.
fn quoted(text: &str) -> String {
    text.chars()
        .flat_map(|letter| {
            let escape = (r"\.+*?()|[]{}^$".contains(letter)).then_some('\\');
            escape.into_iter().chain([letter])
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_quoted_for_go() {
        assert_eq!(quoted("[sig-network] a (b.c)"), r"\[sig-network\] a \(b\.c\)");
    }

    #[test]
    fn a_lane_of_one_family_leaves_out_what_needs_two() {
        let name = "[sig-network] [Feature:IPv6DualStack] should create pod";
        let reason = |lane| Selection::new(lane, Sctp::Present, None, None).reason_against(name);
        assert_eq!(reason(Lane::Ipv4), Some("needs two address families"));
        assert_eq!(reason(Lane::Dual), None);
    }

    #[test]
    fn a_focus_is_of_kubernetes_unless_another_project_is_named() {
        let has = |project, focus| {
            let selection = Selection::new(Lane::Ipv4, Sctp::Present, project, focus);
            Project::ALL.map(|project| selection.has(project))
        };
        assert_eq!(has(None, None), [true, true]);
        assert_eq!(has(None, Some("Services should")), [true, false]);
        assert_eq!(has(Some(Project::NetworkPolicyApi), None), [false, true]);
        assert_eq!(has(Some(Project::NetworkPolicyApi), Some("Gress")), [false, true]);
    }

    #[test]
    fn only_specs_of_the_suites_that_run_are_expected() {
        let names = ["[sig-network] a", "[network-policy-api] b"].map(str::to_owned);
        let expected = |project| {
            Selection::new(Lane::Ipv4, Sctp::Present, project, None)
                .expected(BTreeSet::from(names.clone()))
        };
        assert_eq!(expected(None).len(), 2);
        assert_eq!(expected(Some(Project::NetworkPolicyApi)), BTreeSet::from([names[1].clone()]));
    }
}
