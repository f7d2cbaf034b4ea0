//! What we want, against what upstream wrote. No database.

use std::collections::BTreeSet;

use contract::annotation::POD_NETWORKS;
use controller::{
    observation::{Observation, Seen},
    store::{Annotated, Pod, Store},
};

use crate::{compare::Comparison, fixture::Fixture, others};

/// What our rows differ in on purpose: a fixture, what a difference says, and why. Of the present upstream's: nothing.
const DELIBERATE: [(&str, &str, &str); 2] = [
    (
        "central-2024",
        ": options: requested-chassis: ",
        "upstream writes the chassis's id since 2026-02; a node's name means the same chassis",
    ),
    (
        "central-2024",
        ": options: gateway_mtu: ",
        "upstream tells the router the MTU of a node's pods since then, so that it answers what is too large",
    ),
];

#[test]
fn our_rows_are_upstreams_rows() {
    let mut used = BTreeSet::new();
    for fixture in Fixture::all() {
        for difference in Comparison::of(&fixture, &fixture.store()).differences {
            let mut deliberate = DELIBERATE.iter().filter(|(of, says, _)| *of == fixture.name && difference.contains(says));
            used.insert(deliberate.next().unwrap_or_else(|| panic!("{}: {difference}", fixture.name)));
        }
    }
    assert_eq!(used, DELIBERATE.iter().collect(), "no longer different");
}

#[test]
fn what_we_leave_alone_is_known() {
    let mut used = BTreeSet::new();
    for fixture in Fixture::all() {
        for other in Comparison::of(&fixture, &fixture.store()).others {
            used.insert(others::known(&other).unwrap_or_else(|| panic!("{}: nothing is written about {other}", fixture.name)));
        }
    }
    assert_eq!(used, others::KNOWN.map(|(beginning, _)| beginning).into(), "what is known, and is in no fixture");
}

#[test]
fn pods_keep_the_addresses_that_upstream_gave_them() {
    for fixture in Fixture::all() {
        let mut store = fixture.store();
        assert_eq!(store.take_annotations(), [], "{}", fixture.name);
        assert_eq!(store.take_troubles(), [], "{}", fixture.name);
    }
}

#[test]
fn a_pod_would_have_got_from_us_what_upstream_gave_it() {
    for fixture in Fixture::all() {
        for node in &fixture.nodes {
            let of_node = |pod: &Pod| pod.needs_network() && pod.node.as_deref() == node.metadata.name.as_deref();
            let written = |name: &str| {
                let object = fixture.pods.iter().find(|pod| pod.metadata.name.as_deref() == Some(name)).unwrap();
                serde_json::from_str::<serde_json::Value>(&object.metadata.annotations.as_ref()?[POD_NETWORKS]).ok()
            };
            // The one with the highest address: the lowest that is free once it has none.
            let mut pods = fixture.all_pods();
            let last = pods.iter_mut().filter(|(_, pod)| of_node(pod)).max_by_key(|(_, pod)| match &pod.annotated {
                Annotated::Network { network, .. } => network.addresses.first().map(|address| address.addr()),
                Annotated::Nothing | Annotated::Unusable(_) => None,
            });
            let (key, pod) = last.unwrap();
            let Some(upstreams) = written(key.name()) else {
                assert_ne!(fixture.config.zone.0, "global", "upstream gave {key} nothing");
                continue;
            };
            let key = key.clone();
            pod.annotated = Annotated::Nothing;

            let [nodes, _] = fixture.observations();
            let mut store = Store::new(fixture.config.clone());
            store.observe(nodes);
            store.observe(Observation::Pods(Seen::All(pods)));
            let annotations = store.take_annotations();
            let given = annotations.iter().find(|annotation| annotation.pod == key).map(|annotation| &annotation.annotations[POD_NETWORKS]);
            let ours: serde_json::Value = serde_json::from_str(given.unwrap_or_else(|| panic!("{key} got nothing"))).unwrap();
            assert_eq!(ours, upstreams, "{}: {key}", fixture.name);
        }
    }
}
