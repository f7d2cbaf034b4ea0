//! A node's annotations: each parsed value can be written and read again; subnets have room for a
//! router, a node and a pod.

use std::collections::BTreeMap;

use crate::LONGEST_ERROR;
use contract::{
    node_annotation::{
        self, ALL, DEFAULT_NETWORK, HOST_CIDRS, JOIN_ADDRESSES, LEGACY_SUBNET, MANAGEMENT_MACS,
        NODE_SUBNETS, NodeAnnotations, PerNetwork, TRANSIT_ADDRESSES,
    },
    ovn as addresses,
};

/// `data` is the text of an annotation; it is tried as each of them.
pub fn check(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    for key in ALL {
        let annotations = BTreeMap::from([(key.to_owned(), text.to_owned())]);
        let node = NodeAnnotations(&annotations);
        let refusals = [
            node.subnets().err(),
            node.id().err(),
            node.join_addresses().err(),
            node.transit_addresses().err(),
            node.chassis_id().err(),
            node.encap_ips().err(),
            node.host_cidrs().err(),
            node.management_mac().err(),
            node.gateway().unreadable,
            node.zone().err(),
        ];
        for error in refusals.into_iter().flatten() {
            assert_eq!(error.annotation, key, "the error names another annotation");
            assert!(
                error.source.to_string().len() <= LONGEST_ERROR,
                "an error of {} bytes",
                error.source.to_string().len()
            );
        }
    }
    check_subnets(text);
    check_addresses(text);
    check_mac(text);
}

fn check_subnets(text: &str) {
    for key in [NODE_SUBNETS, LEGACY_SUBNET] {
        let Ok(subnets) = with(key, text, |node| node.subnets()) else { continue };
        for subnet in &subnets {
            let [router, node] = [addresses::gateway(subnet), addresses::management(subnet)]
                .map(|address| address.expect("there is room").addr());
            assert!(
                subnet.contains(&router) && subnet.contains(&node) && router != node,
                "{subnet}: {router}, {node}"
            );
            assert!(
                subnet.hosts().any(|host| !addresses::reserved(subnet, host)),
                "no room for a pod in {subnet}"
            );
        }
        let mut written = PerNetwork::default();
        written.set_subnets(DEFAULT_NETWORK, &subnets);
        assert_eq!(
            with(NODE_SUBNETS, &written.to_string(), |node| node.subnets())
                .expect("it was just written"),
            subnets
        );
    }
}

fn check_addresses(text: &str) {
    if let Ok(found) = with(TRANSIT_ADDRESSES, text, |node| node.transit_addresses()) {
        let written = node_annotation::interface_addresses_text(&found);
        let again = with(TRANSIT_ADDRESSES, &written, |node| node.transit_addresses());
        assert_eq!(again.expect("it was just written"), found);
    }
    if let Ok(found) = with(JOIN_ADDRESSES, text, |node| node.join_addresses()) {
        let mut written = PerNetwork::default();
        written.set_interface_addresses(DEFAULT_NETWORK, &found);
        assert_eq!(
            with(JOIN_ADDRESSES, &written.to_string(), |node| node.join_addresses())
                .expect("it was just written"),
            found
        );
    }
    if let Ok(found) = with(HOST_CIDRS, text, |node| node.host_cidrs()) {
        let written = node_annotation::host_cidrs_text(&found);
        let again =
            with(HOST_CIDRS, &written, |node| node.host_cidrs()).expect("it was just written");
        assert!(
            again.iter().all(|cidr| found.contains(cidr))
                && found.iter().all(|cidr| again.contains(cidr))
        );
        assert_eq!(node_annotation::host_cidrs_text(&again), written, "a second writing differs");
    }
}

fn check_mac(text: &str) {
    if let Ok(Some(mac)) = with(MANAGEMENT_MACS, text, |node| node.management_mac()) {
        let written = format!(r#"{{"{DEFAULT_NETWORK}":"{mac}"}}"#);
        let again = with(MANAGEMENT_MACS, &written, |node| node.management_mac());
        assert_eq!(again.expect("it was just written"), Some(mac));
    }
}

fn with<T>(key: &str, text: &str, read: impl FnOnce(NodeAnnotations<'_>) -> T) -> T {
    read(NodeAnnotations(&BTreeMap::from([(key.to_owned(), text.to_owned())])))
}
