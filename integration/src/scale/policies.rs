//! The policies of a run, and the phases with them: a namespace gets another label, and a policy
//! comes that isolates a thousand pods.
//!
//! The world is that of kube-burner's workload `network-policy`: twenty policies in each namespace;
//! each selects its own share of the namespace's pods, and has one rule for each direction: some
//! pods of five other namespaces and five blocks, at five ports and five ranges.
//!
//! Beyond twenty, policies of a namespace select no pod of the run, and their peers are those of
//! the first twenty: a pod is selected by as many policies and is in as many sets as without them,
//! in a cluster with more policies.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Instant,
};

use anyhow::{Context as _, Result};
use integration::central::Central;
use serde_json::{Value, json};

use super::{
    calls,
    figures::Policies,
    objects::{self, Name, PLACE},
    process::Usage,
    run::{Blocks, Plan, Run},
};

/// Policies in each namespace, unless a run has more. More have the peers of these.
pub(crate) const TOGETHER: usize = 20;
/// Namespaces of a ring: the peers of a rule are pods of one ring.
const RING: usize = 5;
/// Places of pods that a rule allows, blocks, ports and ranges of ports: so many of each.
const FIVE: usize = 5;
/// Label of a namespace: its ring.
const LABEL: &str = "ring";
/// Pods that one policy isolates.
const CROWD: usize = 1_000;
/// Their namespace.
const CROWDED: &str = "crowd";

/// The peers of a rule: pods at some places in the namespaces of a ring. Equal ones are one set of
/// addresses.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Peers {
    ring: usize,
    places: BTreeSet<usize>,
}

impl Peers {
    /// The peers of policy `number` of a namespace, in a direction.
    fn of(plan: &Plan, namespace: usize, number: usize, direction: usize) -> Self {
        let (places, number) = (plan.places(), number % TOGETHER);
        let (first, step) = (namespace + 2 * number + direction, 1 + (namespace + number) % 8);
        Self {
            ring: (7 * namespace + 3 * number + 11 * direction) % plan.namespaces().div_ceil(RING),
            places: (0..FIVE).map(|index| (first + step * index) % places).collect(),
        }
    }
}

/// The labels of a namespace.
pub(crate) fn labels(namespace: usize) -> BTreeMap<&'static str, String> {
    BTreeMap::from([(LABEL, ring(namespace / RING))])
}

fn ring(number: usize) -> String {
    format!("r{number}")
}

/// All peers of all policies, each once.
fn peers(plan: &Plan) -> BTreeSet<Peers> {
    let all = (0..plan.policies).flat_map(|policy| {
        (0..2).map(move |direction| {
            Peers::of(plan, policy / plan.together, policy % plan.together, direction)
        })
    });
    all.collect()
}

/// The addresses of a namespace's pods in all sets together.
fn addresses_of(plan: &Plan, peers: &BTreeSet<Peers>, namespace: usize) -> usize {
    let pods = plan.pods_in(namespace);
    let selecting = peers.iter().filter(|peers| peers.ring == namespace / RING);
    selecting.map(|peers| peers.places.iter().filter(|place| **place < pods).count()).sum()
}

/// The addresses in all sets together, before pods come that are not the plan's.
pub(crate) fn addresses(plan: &Plan) -> usize {
    let peers = peers(plan);
    (0..plan.namespaces()).map(|namespace| addresses_of(plan, &peers, namespace)).sum()
}

/// The policy with this number.
fn policy(plan: &Plan, policy: usize) -> Value {
    let (namespace, number) = (policy / plan.together, policy % plan.together);
    // At least one place, which may be one that no pod has.
    let own = (number..plan.places().max(number + 1)).step_by(plan.together);
    let own: Vec<String> = own.map(|place| place.to_string()).collect();
    let rule = |direction: usize, side: &str| {
        let Peers { ring: of, places } = Peers::of(plan, namespace, number, direction);
        let places: Vec<String> = places.iter().map(usize::to_string).collect();
        let pods = json!({
            "namespaceSelector": {"matchLabels": {LABEL: ring(of)}},
            "podSelector": {"matchExpressions": [{"key": PLACE, "operator": "In", "values": places}]},
        });
        let block = |index: usize| {
            let net = format!("198.{}.{}", 18 + direction, (FIVE * number + index) % 250);
            let cidr = format!("{net}.0/24");
            match plan.blocks {
                Blocks::Whole => json!({"ipBlock": {"cidr": cidr}}),
                Blocks::Except => {
                    json!({"ipBlock": {"cidr": cidr, "except": [format!("{net}.64/28")]}})
                }
            }
        };
        let port = |index: usize| json!({"protocol": "TCP", "port": 8_000 + 10 * number + index});
        let range = |index: usize| {
            let first = 10_000 + 100 * number + 20 * index;
            json!({"protocol": "TCP", "port": first, "endPort": first + 9})
        };
        let peers: Vec<Value> = [pods].into_iter().chain((0..FIVE).map(block)).collect();
        let ports: Vec<Value> = (0..FIVE).map(port).chain((0..FIVE).map(range)).collect();
        json!([{side: peers, "ports": ports}])
    };
    json!({
        "apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy",
        "metadata": {"name": format!("policy-{number:02}"), "namespace": objects::namespace_name(namespace)},
        "spec": {
            "podSelector": {"matchExpressions": [{"key": PLACE, "operator": "In", "values": own}]},
            "policyTypes": ["Ingress", "Egress"],
            "ingress": rule(0, "from"), "egress": rule(1, "to"),
        },
    })
}

fn collection(namespace: &str) -> String {
    format!("/apis/networking.k8s.io/v1/namespaces/{namespace}/networkpolicies")
}

/// Creates the policies of the plan.
pub(crate) async fn create(run: &Run<'_>) -> Result<()> {
    let create = async |number: usize| {
        let object = policy(run.plan, number);
        let of = collection(&objects::namespace_name(number / run.plan.together));
        calls::create(run.client(), &of, &object).await
    };
    calls::all(0..run.plan.policies, create).await.map(drop)
}

/// Measures the phases.
pub(crate) async fn measure(run: &Run<'_>, say: &(dyn Fn(&str) + Sync)) -> Result<Policies> {
    let plan = run.plan;
    let all = peers(plan);
    let total = addresses(plan);
    let moved = addresses_of(plan, &all, 0);
    say(&format!("a namespace gets another label, and {moved} addresses leave their sets"));
    let before = (Usage::of(&run.site.controller)?.cpu, Central::northbound_transactions()?);
    let left = relabel(run, "none", total - moved).await?;
    let came = relabel(run, &ring(0), total).await?;
    let after = (Usage::of(&run.site.controller)?.cpu, Central::northbound_transactions()?);
    say(&format!("one policy for {CROWD} pods"));
    let (isolated, opened, crowd_cpu) = crowd(run).await?;
    Ok(Policies {
        policies: plan.policies,
        addresses_moved: moved,
        left,
        came,
        relabel_cpu: after.0 - before.0,
        relabel_transactions: after.1 - before.1,
        crowd: CROWD,
        isolated,
        opened,
        crowd_cpu,
        rows: run.northbound.now().policies,
    })
}

/// Gives the first namespace another ring, and waits until the sets have `expected` addresses.
/// Returns the milliseconds from the API server's answer to the last change.
async fn relabel(run: &Run<'_>, ring: &str, expected: usize) -> Result<f64> {
    let path = format!("/api/v1/namespaces/{}", objects::namespace_name(0));
    calls::patch(run.client(), &path, &json!({"metadata": {"labels": {LABEL: ring}}})).await?;
    let answered = Instant::now();
    let sets = run.northbound.wait("the sets follow the label", run.patience, |northbound| {
        northbound.all_addresses(expected)
    });
    Ok(milliseconds(answered, run.site.while_running(sets).await?))
}

/// Creates pods in a namespace of their own, and a policy that isolates them all; removes both.
/// Returns the milliseconds until all are isolated, and until none is, and the processor time of
/// both in seconds.
async fn crowd(run: &Run<'_>) -> Result<(f64, f64, f64)> {
    let (client, plan) = (run.client(), run.plan);
    calls::create(client, "/api/v1/namespaces", &objects::namespace(CROWDED, &BTreeMap::new()))
        .await?;
    let names: Vec<Name> =
        (0..CROWD).map(|number| Name::of_probe(CROWDED.to_owned(), "crowd", number)).collect();
    let create = async |number: usize| {
        let pod = objects::pod(&names[number], &objects::node_name(number % plan.nodes), number);
        calls::create(client, &names[number].collection(), &pod).await
    };
    calls::all(0..CROWD, create).await?;
    let isolated = async |count: usize| {
        let wait = run
            .northbound
            .wait("pods are isolated", run.patience, |northbound| northbound.all_isolated(count));
        run.site.while_running(wait).await
    };
    run.until_annotated_with_ports(plan.pods + CROWD).await?;
    let before = Usage::of(&run.site.controller)?.cpu;
    let policy = json!({
        "apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy",
        "metadata": {"name": "all", "namespace": CROWDED},
        "spec": {"podSelector": {}, "policyTypes": ["Ingress", "Egress"]},
    });
    calls::create(client, &collection(CROWDED), &policy).await?;
    let answered = Instant::now();
    let closed = milliseconds(answered, isolated(plan.pods + CROWD).await?);
    calls::remove(client, &format!("{}/all", collection(CROWDED))).await?;
    let answered = Instant::now();
    let opened = milliseconds(answered, isolated(plan.pods).await?);
    let cpu = Usage::of(&run.site.controller)?.cpu - before;
    calls::all(&names, |name| calls::delete(client, name)).await?;
    run.until_annotated_with_ports(plan.pods).await.context("the crowd goes")?;
    Ok((closed, opened, cpu))
}

/// Zero if it happened before the answer was read.
fn milliseconds(since: Instant, until: Option<Instant>) -> f64 {
    until.map_or(0.0, |until| until.saturating_duration_since(since).as_secs_f64() * 1e3)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn own_places(plan: &Plan, number: usize) -> Vec<usize> {
        let values = &policy(plan, number)["spec"]["podSelector"]["matchExpressions"][0]["values"];
        values
            .as_array()
            .unwrap()
            .iter()
            .map(|place| place.as_str().unwrap().parse().unwrap())
            .collect()
    }

    #[test]
    fn every_pod_is_selected_by_exactly_one_policy_of_its_namespace() {
        let plan = Plan::of_pods(10_000, 4_800);
        assert_eq!((plan.namespaces(), plan.places()), (240, 42));
        let mut places = Vec::new();
        for number in 0..TOGETHER {
            places.extend(own_places(&plan, 20 + number));
        }
        places.sort_unstable();
        assert_eq!(places, (0..42).collect::<Vec<_>>());
    }

    /// Otherwise a pod would cost more because it has more rows, and not because there are more
    /// policies.
    #[test]
    fn ten_times_the_policies_select_each_pod_once_and_have_the_same_sets() {
        let plan = Plan::of_pods(10_000, 4_800);
        let more = Plan { policies: 48_000, together: 10 * TOGETHER, ..plan.clone() };
        assert_eq!((more.namespaces(), more.places()), (240, 42));
        let own: Vec<Vec<usize>> = (0..200).map(|number| own_places(&more, 200 + number)).collect();
        for place in 0..42 {
            assert_eq!(own.iter().filter(|own| own.contains(&place)).count(), 1, "{place}");
        }
        assert!(own.iter().all(|own| !own.is_empty()), "{own:?}");
        assert_eq!((peers(&more), addresses(&more)), (peers(&plan), addresses(&plan)));
        let names: BTreeSet<String> =
            (0..200).map(|number| policy(&more, number)["metadata"]["name"].to_string()).collect();
        assert_eq!(names.len(), 200);
    }

    #[test]
    fn an_exception_is_in_its_block() {
        let plan = Plan { blocks: Blocks::Except, ..Plan::of_pods(100, 40) };
        let from = &policy(&plan, 21)["spec"]["ingress"][0]["from"];
        assert_eq!(
            from[1]["ipBlock"],
            json!({"cidr": "198.18.5.0/24", "except": ["198.18.5.64/28"]})
        );
        assert_eq!(from.as_array().unwrap().len(), 1 + FIVE);
    }

    #[test]
    fn each_rule_allows_five_pods_of_five_namespaces() {
        let plan = Plan::of_pods(10_000, 4_800);
        let peers = peers(&plan);
        assert!(
            peers.iter().all(|peers| peers.places.len() == FIVE && peers.ring < 48),
            "{peers:?}"
        );
        assert!(peers.len() > 4_000, "{} sets", peers.len());
        // The last namespaces have fewer pods, and so fewer of them are in sets.
        let all = addresses(&plan);
        assert!(all <= 25 * peers.len() && all > 23 * peers.len(), "{all} in {} sets", peers.len());
    }
}
