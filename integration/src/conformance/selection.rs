//! Which specs run, and why others do not.

use std::fmt;

use clap::ValueEnum;
use integration::Families;

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
const SCTP: (&str, &str) = ("[Feature:SCTPConnectivity]", "the kernel has no SCTP");

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
    sctp: Sctp,
    /// Ginkgo's `--focus`.
    pub(super) focus: String,
    /// Whether a spec that does not match is no loss: somebody asked for some.
    pub(super) is_partial: bool,
}

impl Selection {
    pub(super) fn new(lane: Lane, sctp: Sctp, focus: Option<&str>) -> Self {
        let focus_of_group = quoted(GROUP);
        match focus {
            // Go's regular expressions have no "and": the name of the group is at its beginning.
            Some(focus) => {
                Self { lane, sctp, focus: format!("{focus_of_group}.*({focus})"), is_partial: true }
            }
            None => Self { lane, sctp, focus: focus_of_group, is_partial: false },
        }
    }

    pub(super) fn quick(lane: Lane, sctp: Sctp) -> Self {
        let names: Vec<String> = QUICK.iter().map(|name| quoted(name)).collect();
        Self { lane, sctp, focus: names.join("|"), is_partial: true }
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
        let reason = |lane| Selection::new(lane, Sctp::Present, None).reason_against(name);
        assert_eq!(reason(Lane::Ipv4), Some("needs two address families"));
        assert_eq!(reason(Lane::Dual), None);
    }
}
