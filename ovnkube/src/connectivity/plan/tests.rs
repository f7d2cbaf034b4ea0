//! The tests of clusters with and without what not every cluster has.

use std::collections::BTreeSet;

use super::*;
use crate::connectivity::{Names, offered::ClusterPolicy, site::Service};

fn site(nodes: usize, dual: bool) -> Site {
    let both = |host: u8| {
        let all: [IpAddr; 2] = [[10, 0, 0, host].into(), format!("fd00::{host}").parse().unwrap()];
        all[..if dual { 2 } else { 1 }].to_vec()
    };
    let node = |number: usize| {
        let host = u8::try_from(number).unwrap() * 10;
        Node {
            name: format!("n{number}"),
            addresses: both(host + 1),
            server: both(host + 2),
            guarded: both(host + 3),
            hairpin: both(host + 4),
            ruled: ClusterPolicy::ALL.map(|kind| (kind, both(host + 5))).into(),
        }
    };
    Site {
        names: Names { namespace: "test".to_owned(), other: "test-other".to_owned() },
        nodes: (1..=nodes).map(node).collect(),
        web: Service { addresses: both(200), node_ports: Some([30_000, 30_001]) },
        guarded: Service { addresses: both(201), node_ports: None },
        outer: OuterAddresses { external: Ok(both(203)), balanced: Ok(both(204)) },
        cluster_policies: ClusterPolicy::ALL.map(|kind| (kind, Ok(()))).into(),
        kubernetes: both(202),
        has_dns: true,
        has_world: false,
    }
}

#[test]
fn two_nodes_have_more_than_forty_tests_each_with_a_name_of_its_own() {
    for (nodes, dual, least) in [(1, false, 25), (2, false, 60), (2, true, 110), (3, true, 170)] {
        let clients = clients(&site(nodes, dual), None);
        let tests = || clients.iter().flat_map(|client| &client.tests);
        assert!(tests().count() >= least, "{nodes} {dual}: {}", tests().count());
        // By its pod: outcomes are found in a pod's log by their names.
        for client in &clients {
            let names: BTreeSet<&str> =
                client.tests.iter().map(|test| test.probe.name.as_str()).collect();
            assert_eq!(names.len(), client.tests.len(), "{}", client.name);
        }
        assert!(tests().all(|test| SUBJECTS.contains(&test.subject)));
        let pods: BTreeSet<(&str, &str)> = clients
            .iter()
            .map(|client| (client.namespace.as_str(), client.name.as_str()))
            .collect();
        assert_eq!(pods.len(), clients.len());
    }
}

#[test]
fn a_cluster_of_one_node_has_no_test_of_two_and_a_world_is_tried_if_it_is_given() {
    let world = ("203.0.113.1".to_owned(), 443);
    let clients = clients(&site(1, false), Some(&world));
    let tests = || clients.iter().flat_map(|client| &client.tests);
    assert!(tests().all(|test| test.subject != "pods on two nodes"));
    assert!(tests().any(|test| test.subject == "world"));
}

#[test]
fn what_a_cluster_does_not_take_has_no_test_and_a_finding_with_the_reason() {
    let mut site = site(2, false);
    let all = |site: &Site, subject: &str| {
        let clients = clients(site, None);
        let tests = clients.iter().flat_map(|client| &client.tests);
        tests.filter(|test| test.subject == subject).count()
    };
    // From the pod of each node: TCP and UDP, and TCP.
    assert_eq!(all(&site, "outer addresses"), 6);
    // Of each node and kind: three of the friend, one of the stranger, one of the other namespace.
    assert_eq!(all(&site, "policies of the cluster"), 20);
    let refused = || "denied by the admission plugin".to_owned();
    site.outer = OuterAddresses { external: Err(refused()), balanced: Err(refused()) };
    site.cluster_policies = ClusterPolicy::ALL.map(|kind| (kind, Err(refused()))).into();
    site.nodes.iter_mut().for_each(|node| node.ruled.clear());
    assert_eq!((all(&site, "outer addresses"), all(&site, "policies of the cluster")), (0, 0));
    let skipped = site.skipped();
    for name in ["externalIPs", "load balancer", "ClusterNetworkPolicy", "AdminNetworkPolicy"] {
        let found = skipped.iter().find(|finding| finding.name == name).expect(name);
        assert!(found.summary.contains("admission"), "{found:?}");
    }
}
