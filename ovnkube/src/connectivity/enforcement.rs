//! Whether the network carries out a kind of policies of the whole cluster. The API server has a
//! kind as soon as it has its definition, and takes its objects; a network may know one kind and
//! not another.

use serde_json::Value;

use super::{
    cluster::Cluster,
    offered::ClusterPolicy,
    results::Tested,
    site::{CLUSTER_POLICIES, Site},
};
use crate::findings::{Finding, State};

/// Both are needed: a network need not write a status, and one that does may forbid nothing by
/// mistake.
const NOT_CARRIED_OUT: &str = "this cluster has the kind, and its network does not carry it out: \
                               the policy's status has no condition, and all is open that it \
                               forbids";

/// The findings of all tests. Those of a kind that the network does not carry out are one, which is
/// skipped.
pub(super) async fn findings(
    cluster: &Cluster,
    site: &Site,
    mut results: Vec<Tested<'_>>,
) -> Vec<Finding> {
    let mut findings = Vec::new();
    for kind in ClusterPolicy::ALL {
        let (of_kind, others): (Vec<_>, Vec<_>) =
            results.into_iter().partition(|tested| site.guards(kind, &tested.test.probe.to));
        results = others;
        if forbids_nothing(&of_kind) && is_unseen(cluster, site, kind).await {
            let name = kind.name();
            findings.push(Finding::new(CLUSTER_POLICIES, name, State::Skipped, NOT_CARRIED_OUT));
        } else {
            findings.extend(of_kind.into_iter().map(|tested| tested.finding));
        }
    }
    findings.extend(results.into_iter().map(|tested| tested.finding));
    findings
}

/// Whether every connection was made that the policy forbids.
fn forbids_nothing(results: &[Tested<'_>]) -> bool {
    let mut forbidden = results.iter().filter(|tested| tested.is_forbidden()).peekable();
    forbidden.peek().is_some() && forbidden.all(Tested::is_let_through)
}

/// Whether no program has written a condition into the policy's status. An API server that does not
/// answer says nothing of it.
async fn is_unseen(cluster: &Cluster, site: &Site, kind: ClusterPolicy) -> bool {
    let policy = cluster.cluster_object(kind.definition(), &site.names.namespace).await;
    matches!(policy, Ok(Some(policy)) if !has_condition(&policy))
}

fn has_condition(policy: &Value) -> bool {
    policy["status"]["conditions"].as_array().is_some_and(|conditions| !conditions.is_empty())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::{
        connectivity::plan::Test,
        probe::{Expect, Kind, Outcome, Probe},
    };

    fn test(expect: Expect) -> Test {
        let (name, to) = ("a".to_owned(), "10.0.0.1".to_owned());
        let probe = Probe { name, kind: Kind::Tcp, to, port: 80, expect };
        Test { subject: CLUSTER_POLICIES, probe, next: String::new() }
    }

    #[test]
    fn a_kind_is_not_carried_out_if_all_is_open_that_it_forbids() {
        let (open, closed) = (test(Expect::Open), test(Expect::Closed));
        let outcome =
            |passed| Some(Outcome { name: "a".to_owned(), passed, ms: 20_000, why: String::new() });
        let results = |of_closed: &[Option<Outcome>]| {
            let mut results = vec![Tested::new(&open, outcome(true), "")];
            results.extend(of_closed.iter().map(|one| Tested::new(&closed, one.clone(), "")));
            results
        };
        assert!(forbids_nothing(&results(&[outcome(false), outcome(false)])));
        assert!(!forbids_nothing(&results(&[outcome(false), outcome(true)])));
        assert!(!forbids_nothing(&results(&[outcome(false), None])), "one client is silent");
        assert!(!forbids_nothing(&results(&[])), "nothing is forbidden");
    }

    #[test]
    fn a_policy_is_seen_once_its_status_has_a_condition() {
        assert!(has_condition(&json!({"status": {"conditions": [{"type": "Ready"}]}})));
        for unseen in [json!({}), json!({"status": {}}), json!({"status": {"conditions": []}})] {
            assert!(!has_condition(&unseen), "{unseen}");
        }
    }
}
