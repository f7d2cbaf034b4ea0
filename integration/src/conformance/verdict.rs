//! What a run of the suite amounts to.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
};

use super::{
    runner::{Outcome, Spec},
    selection::Selection,
};

/// Parts of names of the specs that upstream's continuous integration skips, or that skip
/// themselves there.
const SKIPPED_UPSTREAM: &[&str] = &[
    "LoadBalancers ",
    "on one named port",
    "Service CIDRs",
    "ServiceCIDR and IPAddress API",
    "service.kubernetes.io/headless",
    "HostPort validates",
    "DNS configMap nameserver",
    "should set default value on new IngressClass",
    "named targetPorts that resolve to different ports",
    "NodePort and HealthCheckNodePort correctly when",
    "should have ipv4 and ipv6 internal node ip",
    "[Feature:Networking-IPv6]",
    "Traffic Distribution",
    "Topology Hints",
];

/// The specs that ran, and those that should have.
#[derive(Debug)]
pub(super) struct Verdict {
    specs: Vec<Spec>,
    expected: BTreeSet<String>,
    /// Expected ones that did not pass, and why.
    missed: Vec<(String, String)>,
    /// Names and reasons of specs that the selection leaves out.
    left_out: Vec<(String, &'static str)>,
}

impl Verdict {
    pub(super) fn new(
        specs: Vec<Spec>,
        selection: &Selection,
        expected: &BTreeSet<String>,
    ) -> Self {
        let by_name: BTreeMap<&str, &Outcome> =
            specs.iter().map(|spec| (spec.name.as_str(), &spec.outcome)).collect();
        let missed = expected
            .iter()
            .filter_map(|name| {
                let why = match by_name.get(name.as_str()) {
                    Some(Outcome::Passed) => return None,
                    Some(Outcome::NotRun) if selection.is_partial => return None,
                    Some(Outcome::NotRun) => "it did not run".to_owned(),
                    Some(Outcome::Skipped(why)) => format!("it skipped itself: {why}"),
                    Some(Outcome::Failed(why)) => why.clone(),
                    None if !selection.reports_unselected(name) => return None,
                    None => "the suite has no such spec".to_owned(),
                };
                Some((name.clone(), why))
            })
            .collect();
        let left_out = specs
            .iter()
            .filter(|spec| spec.outcome == Outcome::NotRun && !selection.is_partial)
            .filter(|spec| spec.name.starts_with("[sig-network]"))
            .filter_map(|spec| Some((spec.name.clone(), selection.reason_against(&spec.name)?)))
            .collect();
        let mut specs = specs;
        specs.retain(|spec| spec.outcome != Outcome::NotRun);
        specs.sort_by(|one, other| one.name.cmp(&other.name));
        Self { specs, expected: expected.clone(), missed, left_out }
    }

    /// Whether something ran, nothing failed, and everything that was expected passed.
    pub(super) fn passed(&self) -> bool {
        let failed = self.specs.iter().any(|spec| matches!(spec.outcome, Outcome::Failed(_)));
        self.count(|outcome| *outcome == Outcome::Passed) > 0 && !failed && self.missed.is_empty()
    }

    /// Specs that passed and are not expected to yet.
    pub(super) fn newly_passed(&self) -> Vec<String> {
        let passed = self.specs.iter().filter(|spec| spec.outcome == Outcome::Passed);
        passed
            .filter(|spec| !self.expected.contains(&spec.name))
            .map(|spec| spec.name.clone())
            .collect()
    }

    fn count(&self, which: impl Fn(&Outcome) -> bool) -> usize {
        self.specs.iter().filter(|spec| which(&spec.outcome)).count()
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        for spec in &self.specs {
            let seconds = spec.time.as_secs_f64();
            let (result, why) = match &spec.outcome {
                Outcome::Passed => ("passed", None),
                Outcome::Failed(why) => ("FAILED", Some(why)),
                Outcome::Skipped(why) => ("skipped", Some(why)),
                // Not kept.
                Outcome::NotRun => continue,
            };
            writeln!(formatter, "{result:<8}{seconds:7.1} s  {}", spec.name)?;
            if let Some(why) = why {
                writeln!(formatter, "{:19}{why}", "")?;
            }
        }
        for (name, reason) in &self.left_out {
            writeln!(formatter, "{:<8}{:9}  {name}\n{:19}{reason}", "not run", "", "")?;
        }
        for (name, why) in &self.missed {
            writeln!(formatter, "EXPECTED, but did not pass: {name}\n{:19}{why}", "")?;
        }
        let newly = self.newly_passed().len();
        if newly > 0 {
            writeln!(
                formatter,
                "{newly} specs passed that are not in the list of the expected yet (RECORD=1 adds them)"
            )?;
        }
        let is = |wanted: &Outcome| matches!(wanted, Outcome::Failed(_));
        let skipped =
            self.count(|outcome| matches!(outcome, Outcome::Skipped(_))) + self.left_out.len();
        let ahead = self
            .specs
            .iter()
            .filter(|spec| spec.outcome == Outcome::Passed)
            .filter(|spec| SKIPPED_UPSTREAM.iter().any(|part| spec.name.contains(part)))
            .count();
        let passed = self.count(|outcome| *outcome == Outcome::Passed);
        write!(
            formatter,
            "{passed} passed, {} failed, {skipped} skipped; {ahead} of those passed are skipped by upstream's continuous integration",
            self.count(is)
        )
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{
        super::selection::{Lane, Sctp},
        *,
    };

    fn spec(name: &str, outcome: Outcome) -> Spec {
        Spec { name: format!("[sig-network] {name}"), outcome, time: Duration::ZERO }
    }

    fn verdict(specs: Vec<Spec>, focus: Option<&str>, expected: &[&str]) -> Verdict {
        let expected = expected.iter().map(|name| format!("[sig-network] {name}")).collect();
        Verdict::new(specs, &Selection::new(Lane::Ipv4, Sctp::Present, None, focus), &expected)
    }

    #[test]
    fn a_run_passes_when_every_spec_that_ran_and_every_expected_one_passed() {
        assert!(verdict(vec![spec("a", Outcome::Passed)], None, &["a"]).passed());
        assert!(!verdict(vec![], None, &[]).passed(), "nothing ran");
        let failed = spec("b", Outcome::Failed("why".to_owned()));
        assert!(!verdict(vec![spec("a", Outcome::Passed), failed], None, &[]).passed());
    }

    #[test]
    fn an_expected_spec_that_skips_itself_or_does_not_run_is_a_failure() {
        let skipped = spec("b", Outcome::Skipped("no zones".to_owned()));
        assert!(!verdict(vec![spec("a", Outcome::Passed), skipped], None, &["b"]).passed());
        let specs = || vec![spec("a", Outcome::Passed), spec("b", Outcome::NotRun)];
        assert!(!verdict(specs(), None, &["b"]).passed());
        // Unless only some were asked for.
        assert!(verdict(specs(), Some("a"), &["b"]).passed());
        // Which must not hide a name that no spec has.
        assert!(!verdict(specs(), Some("a"), &["misspelled"]).passed());
    }
}
