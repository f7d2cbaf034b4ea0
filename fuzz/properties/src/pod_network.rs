//! A pod's annotations: an accepted annotation can be written and read again, passes the wire
//! unchanged, and becomes a plan and a result of every version. Entries of other networks are
//! preserved.

use std::collections::{BTreeMap, BTreeSet};

use cni::result::{CniResult, PrevResult};
use contract::{
    annotation::{LEGACY, POD_NETWORKS, PodNetwork},
    bandwidth::{Bandwidth, INGRESS_ANNOTATION},
    external_ids,
    mtu::Mtu,
    names::{Network, PodKey},
    spec_version::SpecVersion,
    wire::PodInterface,
};
use podnet::{
    link::HostEnd,
    plan::{Attachment, Identity},
};

use crate::{LONGEST_ERROR, wire};

/// `data` is the text of an annotation.
pub fn check(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let blue = Network::Attachment { name: "blue".to_owned(), nad: "ns/blue".to_owned() };
    for network in [Network::Default, blue] {
        match PodNetwork::parse(text, &network) {
            Err(error) => assert!(
                error.to_string().len() <= LONGEST_ERROR,
                "an error of {} bytes",
                error.to_string().len()
            ),
            Ok(None) => {}
            Ok(Some(found)) => {
                check_accepted(&found, &network);
                check_others(text, &found, &network);
            }
        }
    }
    if let Ok(Some(found)) =
        PodNetwork::from_annotations(&annotation(LEGACY, text), &Network::Default)
    {
        check_accepted(&found, &Network::Default);
    }
    check_bandwidth(text);
}

fn annotation(key: &str, text: &str) -> BTreeMap<String, String> {
    BTreeMap::from([(key.to_owned(), text.to_owned())])
}

fn check_accepted(found: &PodNetwork, network: &Network) {
    let written = found
        .write(network, None)
        .unwrap_or_else(|error| panic!("{found:?} cannot be written: {error}"));
    let again = PodNetwork::from_annotations(&annotation(POD_NETWORKS, &written), network);
    assert_eq!(
        again.unwrap_or_else(|error| panic!("{written} is refused: {error}")).as_ref(),
        Some(found),
        "{written}"
    );

    if let Some(legacy) = found.write_legacy() {
        let again = PodNetwork::from_annotations(&annotation(LEGACY, &legacy), &Network::Default);
        let again = again
            .unwrap_or_else(|error| panic!("{legacy} is refused: {error}"))
            .expect("the annotation is there");
        assert_eq!(again.mac, found.mac);
        assert!(
            again.addresses.iter().all(|address| found.addresses.contains(address))
                && !again.addresses.is_empty()
        );
    }
    check_plan(found, network);
}

/// The control plane adds its entry to an annotation that already has others.
fn check_others(text: &str, found: &PodNetwork, network: &Network) {
    let keys = |text: &str| -> BTreeSet<String> {
        let entries: BTreeMap<String, serde_json::Value> =
            serde_json::from_str(text).expect("it was read before");
        entries.into_keys().collect()
    };
    let together = found
        .write(network, Some(text))
        .unwrap_or_else(|error| panic!("{text} was read, and is refused now: {error}"));
    assert_eq!(keys(&together), keys(text));
    assert_eq!(
        PodNetwork::parse(&together, network).expect("it was just written").as_ref(),
        Some(found)
    );
}

fn check_plan(found: &PodNetwork, network: &Network) {
    let pod = PodInterface {
        network: network.clone(),
        addressing: found.clone(),
        mtu: Mtu::DEFAULT,
        routable_mtu: None,
        bandwidth: Bandwidth::default(),
        pod_uid: String::new(),
        skip_ip_config: false,
    };
    wire::check_interface(pod.clone());
    let identity = Identity {
        sandbox: "c0ffee".parse().expect("hexadecimal digits are an id"),
        if_name: "eth0".parse().expect("it is everywhere"),
        network: network.clone(),
    };
    let key = PodKey::new("shop", "cart-0").expect("plain names");
    let attachment = Attachment::plan(identity, &key, Some("4-2"), pod);
    let ids = attachment.external_ids();
    assert_eq!(ids.get(external_ids::ATTACHED_MAC), Some(&found.mac.to_string()));
    assert_eq!(
        ids.get(external_ids::IP_ADDRESSES).map_or(0, |list| list.split(',').count()),
        found.addresses.len()
    );

    let host = HostEnd {
        name: attachment.identity.sandbox.host_if_name(),
        mac: found.mac,
        index: 2,
        pod_index: 3,
    };
    let result = CniResult::of(&attachment, &host, "/run/netns/x");
    for version in SpecVersion::ALL {
        let rendered = result.render(version);
        assert_eq!(rendered["cniVersion"], version.as_str());
        serde_json::from_value::<PrevResult>(rendered).expect("what is printed can be handed back");
    }
}

fn check_bandwidth(text: &str) {
    match Bandwidth::from_annotations(&annotation(INGRESS_ANNOTATION, text)) {
        Err(error) => assert!(error.to_string().len() <= LONGEST_ERROR),
        Ok(found) => {
            let rate = found.ingress.expect("the annotation is there");
            assert!((1_000..=1_000_000_000_000_000).contains(&rate), "{rate}");
            let plain =
                Bandwidth::from_annotations(&annotation(INGRESS_ANNOTATION, &rate.to_string()));
            assert_eq!(plain, Ok(found), "{text} and its number in digits");
        }
    }
}
