//! Our desired rows against those that upstream wrote, without a database.

use std::collections::BTreeSet;

use contract::annotation::POD_NETWORKS;
use controller::{
    kinds::pod::object::{Annotated, Pod},
    watch_event::{Seen, WatchEvent},
    world::Store,
};

use crate::{compare::Comparison, fixture::Fixture, others};

#[test]
fn our_rows_are_upstreams_rows() {
    for fixture in Fixture::all() {
        let differences = Comparison::of(&fixture, &fixture.store()).differences;
        assert!(differences.is_empty(), "{}: {differences:#?}", fixture.name);
    }
}

#[test]
fn what_we_leave_alone_is_known() {
    let mut used = BTreeSet::new();
    for fixture in Fixture::all() {
        for other in Comparison::of(&fixture, &fixture.store()).others {
            used.insert(
                others::known(&other).unwrap_or_else(|| {
                    panic!("{}: nothing is written about {other}", fixture.name)
                }),
            );
        }
    }
    assert_eq!(
        used,
        others::KNOWN.map(|(beginning, _)| beginning).into(),
        "what is known, and is in no fixture"
    );
}

#[test]
fn pods_keep_the_addresses_that_upstream_gave_them() {
    for fixture in Fixture::all() {
        let mut store = fixture.store();
        assert_eq!(store.take_annotations(), [], "{}", fixture.name);
        assert_eq!(store.take_problems(), [], "{}", fixture.name);
    }
}

#[test]
fn a_pod_would_have_got_from_us_what_upstream_gave_it() {
    for fixture in Fixture::all() {
        for node in &fixture.nodes {
            let of_node = |pod: &Pod| {
                pod.needs_network() && pod.node.as_deref() == node.metadata.name.as_deref()
            };
            let written = |name: &str| {
                let object = fixture
                    .pods
                    .iter()
                    .find(|pod| pod.metadata.name.as_deref() == Some(name))
                    .unwrap();
                serde_json::from_str::<serde_json::Value>(
                    &object.metadata.annotations.as_ref()?[POD_NETWORKS],
                )
                .ok()
            };
            // The pod with the highest address. Without its annotation, that address is the lowest
            // free one.
            let mut pods = fixture.all_pods();
            let last = pods.iter_mut().filter(|(_, pod)| of_node(pod)).max_by_key(|(_, pod)| {
                match &pod.annotated {
                    Annotated::Network { network, .. } => {
                        network.addresses.first().map(|address| address.addr())
                    }
                    Annotated::Nothing | Annotated::Unusable(_) => None,
                }
            });
            let (key, pod) = last.unwrap();
            let Some(upstreams) = written(key.name()) else {
                assert_ne!(fixture.config.zone.0, "global", "upstream gave {key} nothing");
                continue;
            };
            let key = key.clone();
            pod.annotated = Annotated::Nothing;

            let mut store = Store::new(fixture.config.clone());
            let others = fixture.observations().into_iter();
            for observation in others.filter(|list| !matches!(list, WatchEvent::Pods(_))) {
                store.observe(observation, &mut |_, _| ());
            }
            store.observe(WatchEvent::Pods(Seen::All(pods)), &mut |_, _| ());
            let annotations = store.take_annotations();
            let given = annotations
                .iter()
                .find(|annotation| annotation.pod == key)
                .map(|annotation| annotation.annotations()[POD_NETWORKS].clone());
            let ours: serde_json::Value =
                serde_json::from_str(&given.unwrap_or_else(|| panic!("{key} got nothing")))
                    .unwrap();
            assert_eq!(ours, upstreams, "{}: {key}", fixture.name);
        }
    }
}
