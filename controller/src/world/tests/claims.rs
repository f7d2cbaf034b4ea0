//! What the annotations of pods claim, and what of it counts: a user may write them.

use std::net::IpAddr;

use super::*;

fn hosts(addresses: &[&str]) -> Vec<IpAddr> {
    addresses.iter().map(|text| text.parse().unwrap()).collect()
}

fn with_mac(uid: &str, address: &str, mac: &str) -> Pod {
    annotated(
        pod(uid),
        &format!(r#"{{"default":{{"mac_address":"{mac}","ip_addresses":["{address}"]}}}}"#),
    )
}

fn unusable(uid: &str) -> Pod {
    Pod { annotated: Annotated::Unusable("no JSON".to_owned()), ..pod(uid) }
}

fn running(pod: Pod) -> Pod {
    Pod { reported: Reported::AsAnnotated, ..pod }
}

fn port(uid: &str, address: &str) -> FoundPort {
    let address: IpAddr = address.parse().unwrap();
    FoundPort {
        uid: Some(uid.into()),
        mac: Some(contract::mac::Mac::from_ip(address)),
        addresses: vec![address],
    }
}

/// A controller starts with these ports in the database, and node `n1`.
fn start(ports: &[(&str, FoundPort)], pods: Vec<(PodKey, Pod)>) -> Store {
    let mut store = Store::new(config());
    without_services(&mut store);
    ports.iter().for_each(|(name, port)| store.found_port(&key(name), port.clone()));
    observe(&mut store, WatchEvent::Nodes(Seen::All(vec![node("n1", "10.244.1.0/24")])));
    observe(&mut store, WatchEvent::Pods(Seen::All(pods)));
    store
}

fn told(store: &mut Store) -> Vec<String> {
    store.take_problems().into_iter().map(|trouble| trouble.reason.to_owned()).collect()
}

/// A pod that was restored from another cluster's backup was given the address of that cluster,
/// became Ready, and reached nobody.
#[test]
fn a_claim_outside_of_the_nodes_subnets_does_not_count_and_the_pod_gets_a_new_address() {
    let mut store = complete(vec![node("n1", "10.244.1.0/24")], vec![]);
    for claimed in ["10.244.77.9/24", "192.168.7.7/24", "8.8.8.8/32"] {
        apply(&mut store, "a", claiming(claimed, claimed));
        let got = address(&store, "a").unwrap();
        assert!(got.starts_with("10.244.1."), "{claimed} {got}");
        assert_eq!(told(&mut store), ["AddressOutsideOfSubnet"]);
        assert_eq!(store.take_annotations().len(), 1, "the pod's annotation says what it has");
    }
    apply(&mut store, "b", claiming("u2", "10.244.1.99/24"));
    assert_eq!(
        (address(&store, "b").unwrap(), told(&mut store)),
        ("10.244.1.99/24".to_owned(), vec![])
    );
}

#[test]
fn a_claim_that_another_pod_has_is_said_and_the_pod_gets_a_new_address() {
    let older = Pod { created: 1, ..claiming("u1", "10.244.1.9/24") };
    let younger = Pod { created: 2, ..claiming("u2", "10.244.1.9/24") };
    // The order of creation counts, not the order of the list or of the names.
    let mut store =
        complete(vec![node("n1", "10.244.1.0/24")], vec![(key("a"), younger), (key("b"), older)]);
    assert_eq!(
        (address(&store, "a").unwrap(), address(&store, "b").unwrap()),
        ("10.244.1.10/24".to_owned(), "10.244.1.9/24".to_owned())
    );
    assert_eq!(
        store.take_problems()[0].note,
        "its annotation claims 10.244.1.9, which pod shop/b has; the annotation does not count, and the pod gets \
         a new address"
    );
}

/// Such a pod waited until somebody edited it.
#[test]
fn a_pod_that_never_had_a_port_starts_whatever_its_annotation_says() {
    let mut store = complete(vec![node("n1", "10.244.1.0/24")], vec![]);
    for (uid, text) in ["{not json", "", r#"{"default":{}}"#, r#"{"default":{"mac_address":"x"}}"#]
        .into_iter()
        .enumerate()
    {
        let object = serde_json::json!({
            "metadata": {"namespace": "shop", "name": "a", "uid": uid.to_string(),
                "annotations": {POD_NETWORKS: text}},
            "spec": {"nodeName": "n1"},
        });
        let (key, pod) = serde_json::from_value::<crate::kinds::pod::wire::PodObject>(object)
            .unwrap()
            .into_pod()
            .unwrap();
        assert!(matches!(pod.annotated, Annotated::Unusable(_)), "{text}");
        observe(&mut store, WatchEvent::Pods(Seen::Applied((key, pod))));
        assert!(address(&store, "a").is_some(), "{text}");
        assert_eq!(told(&mut store), ["UnusableAnnotation"], "{text}");
    }
}

/// `ovn` is a short key, and other programs have one, too.
#[test]
fn the_legacy_annotation_counts_only_if_it_can_be_read() {
    let object = |text: &str| {
        serde_json::json!({
            "metadata": {"namespace": "shop", "name": "a", "annotations": {"ovn": text}},
            "spec": {"nodeName": "n1"},
        })
    };
    let read = |text| {
        serde_json::from_value::<crate::kinds::pod::wire::PodObject>(object(text))
            .unwrap()
            .into_pod()
            .unwrap()
            .1
    };
    assert_eq!(read("{").annotated, Annotated::Nothing);
    let good = r#"{"ip_address":"10.244.1.9/24","mac_address":"0a:58:0a:f4:01:09"}"#;
    assert!(matches!(read(good).annotated, Annotated::Network { spelled: Spelled::Legacy, .. }));
}

#[test]
fn what_the_node_reports_is_read_beside_the_annotation() {
    let read = |ips: serde_json::Value| {
        let object = serde_json::json!({
            "metadata": {"namespace": "shop", "name": "a", "annotations": {
                POD_NETWORKS: r#"{"default":{"mac_address":"0a:58:0a:f4:01:09","ip_addresses":["10.244.1.9/24","fd00::9/64"]}}"#,
            }},
            "status": {"phase": "Running", "podIPs": ips},
        });
        serde_json::from_value::<crate::kinds::pod::wire::PodObject>(object)
            .unwrap()
            .into_pod()
            .unwrap()
            .1
            .reported
    };
    assert_eq!(read(serde_json::json!(null)), Reported::Nothing);
    assert_eq!(
        read(serde_json::json!([{"ip": "fd00::9"}, {"ip": "10.244.1.9"}])),
        Reported::AsAnnotated
    );
    assert_eq!(
        read(serde_json::json!([{"ip": "10.244.1.9"}])),
        Reported::Others(hosts(&["10.244.1.9"]).into())
    );
}

/// By an annotation, the creator of a pod could get the traffic of a node, or the join and service
/// addresses; and could keep addresses from others with pods that are never scheduled.
#[test]
fn a_preset_annotation_claims_nothing_of_others() {
    let mut store = complete(
        vec![node("n1", "10.244.1.0/24")],
        vec![(key("other"), claiming("o", "10.244.1.9/24"))],
    );
    // The address of a host, whether it has a subnet or not, and one in the subnet of another node:
    // the port would answer for the host on its node, or take the address that the other node gives
    // to its next pod.
    let n2 = Node { host_addresses: hosts(&["192.0.2.2"]), ..Node::named("n2") };
    let n3 = Node { host_addresses: hosts(&["fd00::3"]), ..node("n3", "10.244.3.0/24") };
    observe(&mut store, WatchEvent::Nodes(Seen::Applied(n2)));
    observe(&mut store, WatchEvent::Nodes(Seen::Applied(n3)));
    let own = "10.244.1.50/24";
    for (pod, reason) in [
        (claiming("u1", "100.64.0.1/16"), "AddressNotForPods"),
        (claiming("u2", "100.88.0.9/16"), "AddressNotForPods"),
        (claiming("u3", "10.96.0.1/16"), "AddressNotForPods"),
        (claiming("u4", "169.254.169.4/29"), "AddressNotForPods"),
        (claiming("u5", "169.254.1.1/32"), "AddressNotForPods"),
        (claiming("u6", "192.0.2.2/24"), "AddressOfHost"),
        (claiming("u7", "fd00::3/64"), "AddressOfHost"),
        (claiming("u8", "10.244.3.77/24"), "AddressElsewhere"),
        (claiming("u9", "10.244.1.9/24"), "AddressTaken"),
        // The network, the router, the management port and the broadcast address.
        (claiming("v0", "10.244.1.0/24"), "AddressReserved"),
        (claiming("v1", "10.244.1.1/24"), "AddressReserved"),
        (claiming("v2", "10.244.1.2/24"), "AddressReserved"),
        (claiming("v3", "10.244.1.255/24"), "AddressReserved"),
        (claiming("v4", "10.244.3.1/24"), "AddressReserved"),
        // The MAC of the router, of the management port, of a pod, and of the next pod to be
        // created.
        (with_mac("m1", own, "0a:58:0a:f4:01:01"), "MacTaken"),
        (with_mac("m2", own, "0a:58:0a:f4:01:02"), "MacTaken"),
        (with_mac("m3", own, "0a:58:0a:f4:01:09"), "MacTaken"),
        (with_mac("m4", own, "0a:58:0a:f4:01:03"), "MacTaken"),
    ] {
        let Annotated::Network { network, .. } = pod.annotated.clone() else { panic!("a claim") };
        apply(&mut store, "a", pod);
        assert_eq!(told(&mut store), [reason], "{network:?}");
        let given = store.assigned(&key("a")).unwrap();
        assert!(net("10.244.1.0/24").contains(&given.addresses[0]), "{network:?} {given:?}");
        assert_ne!((&given.addresses, given.mac), (&network.addresses, network.mac), "{network:?}");
        delete(&mut store, "a");
        settle(&mut store, "a");
    }
    apply(&mut store, "a", with_mac("own", own, "02:00:00:00:00:01"));
    assert_eq!((address(&store, "a").unwrap().as_str(), told(&mut store)), (own, vec![]));
    apply(&mut store, "b", with_mac("same", "10.244.1.51/24", "02:00:00:00:00:01"));
    assert_eq!(told(&mut store), ["MacTaken"]);

    apply(&mut store, "c", Pod { node: None, ..claiming("u", "10.244.1.60/24") });
    assert_eq!(address(&store, "c"), None);
    apply(&mut store, "d", claiming("v", "10.244.1.60/24"));
    assert_eq!(
        address(&store, "d").unwrap(),
        "10.244.1.60/24",
        "the pod that is scheduled first has it"
    );
}

/// A leader that starts must not give other addresses to pods that run.
#[test]
fn a_pod_that_runs_keeps_its_addresses_wherever_they_are() {
    for claimed in ["100.64.0.9", "192.168.7.7", "10.244.1.77"] {
        let claim = format!("{claimed}/16");
        let store = start(&[("r", port("r", claimed))], vec![(key("r"), claiming("r", &claim))]);
        assert_eq!(address(&store, "r").unwrap(), claim, "its port has it");
    }
    // The database was lost: the report of its node remains.
    for claimed in ["192.168.7.7/16", "10.244.1.77/24"] {
        let store = start(&[], vec![(key("r"), running(claiming("r", claimed)))]);
        assert_eq!(address(&store, "r").unwrap(), claimed);
    }
    let reported = Reported::Others(hosts(&["10.244.1.77"]).into());
    for lost in
        [pod("r"), unusable("r"), claiming("r", "10.244.1.5/24"), claiming("r", "10.244.9.5/24")]
    {
        let pod = Pod { reported: reported.clone(), ..lost };
        let store = start(&[], vec![(key("r"), pod.clone())]);
        assert_eq!(address(&store, "r").unwrap(), "10.244.1.77/24", "{:?}", pod.annotated);
    }
}

/// Who patched the annotation of a running pod while no controller led got another address, and the
/// pod was cut off; the owner of a pod could so choose its address again.
#[test]
fn an_annotation_that_was_patched_while_no_controller_led_moves_no_pod_that_runs() {
    let reported = Reported::Others(hosts(&["10.244.1.77"]).into());
    let patched = Pod { reported, ..claiming("r", "10.244.1.5/24") };
    let mut store = start(&[("r", port("r", "10.244.1.77"))], vec![(key("r"), patched)]);
    assert_eq!(address(&store, "r").unwrap(), "10.244.1.77/24");
    let written = &store.take_annotations()[0].annotations()[POD_NETWORKS];
    assert!(written.contains("10.244.1.77/24"), "{written}");
    // The pod has a port, and nothing is known of its interface.
    let mut store =
        start(&[("r", port("r", "10.244.1.77"))], vec![(key("r"), claiming("r", "10.244.9.5/24"))]);
    assert_eq!(address(&store, "r").unwrap(), "10.244.1.77/24");
    assert_eq!(told(&mut store), [] as [&str; 0]);
}

#[test]
fn a_pod_that_runs_with_anothers_address_is_refused_until_that_pod_is_gone() {
    let first = Pod { created: 1, ..claiming("u1", "10.244.1.9/24") };
    let second = Pod { created: 2, ..running(claiming("u2", "10.244.1.9/24")) };
    let mut store = start(
        &[("a", port("u1", "10.244.1.9"))],
        vec![(key("a"), first), (key("b"), second.clone())],
    );
    assert_eq!((address(&store, "b"), told(&mut store)), (None, vec!["AddressTaken".to_owned()]));
    let (_, trouble) = store.troubles().next().unwrap();
    assert!(matches!(trouble, PodProblem::Claim(_)), "{trouble:?}");
    apply(&mut store, "b", Pod { created: 3, ..second });
    assert_eq!(store.take_problems(), [], "it is told once");
    delete(&mut store, "a");
    assert_eq!(settle(&mut store, "a"), changed("b"));
    assert_eq!(address(&store, "b").unwrap(), "10.244.1.9/24");
}

/// A preset annotation must not win against a pod that runs, though the claimant is older.
#[test]
fn all_records_are_read_before_a_new_address_is_given() {
    let thief = Pod { created: 1, ..claiming("t", "10.244.1.9/24") };
    let runs = Pod { created: 2, ..running(claiming("r", "10.244.1.9/24")) };
    let refused = Pod { created: 3, ..claiming("o", "10.244.7.7/24") };
    let claims_next = Pod { created: 4, ..claiming("n", "10.244.1.10/24") };
    let pods = vec![
        (key("refused"), refused),
        (key("thief"), thief),
        (key("runs"), runs),
        (key("next"), claims_next),
        (key("new"), Pod { created: 0, ..pod("w") }),
    ];
    let store = start(&[], pods);
    let has = |name| address(&store, name).unwrap();
    assert_eq!(
        (has("runs"), has("next")),
        ("10.244.1.9/24".to_owned(), "10.244.1.10/24".to_owned())
    );
    for name in ["refused", "thief", "new"] {
        assert!(net(&has(name)).addr() > net("10.244.1.10/24").addr(), "{name} {}", has(name));
    }
}

/// A node that came back gave the addresses of its running pods to new ones.
#[test]
fn the_pods_of_a_node_that_comes_back_keep_their_addresses_before_new_ones_get_any() {
    let mut store = complete(vec![], vec![]);
    apply(&mut store, "a-new", Pod { created: 1, ..pod("w") });
    apply(&mut store, "runs", Pod { created: 2, ..claiming("r", "10.244.1.3/24") });
    // An address of the cluster's subnets: its node may be one that comes back.
    assert_eq!(
        (address(&store, "a-new"), address(&store, "runs")),
        (None, Some("10.244.1.3/24".to_owned()))
    );
    observe(&mut store, WatchEvent::Nodes(Seen::Applied(node("n1", "10.244.1.0/24"))));
    assert_eq!(
        (address(&store, "runs").unwrap(), address(&store, "a-new").unwrap()),
        ("10.244.1.3/24".to_owned(), "10.244.1.4/24".to_owned())
    );
}
