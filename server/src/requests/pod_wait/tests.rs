use contract::annotation::{CONFIG_SOURCE, LEGACY};

use super::*;

const BLUE_MAC: &str = "0a:58:0a:f4:01:05";

fn args(uid: Option<&str>) -> PodArgs {
    PodArgs::parse(&format!(
        "K8S_POD_NAMESPACE=shop;K8S_POD_NAME=cart-0;K8S_POD_UID={}",
        uid.unwrap_or_default()
    ))
    .unwrap()
}

fn defaults() -> AddDefaults {
    AddDefaults { mtu: Mtu::DEFAULT, routable_mtu: Some(1300.try_into().unwrap()) }
}

fn wait_for(uid: Option<&str>) -> PodWait {
    PodWait::new(args(uid), Network::Default, None, defaults())
}

fn pod(uid: &str, incarnation: u64, annotations: &[(&str, &str)]) -> Pod {
    let annotations =
        annotations.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
    Pod::new(PodFacts { uid: uid.to_owned(), annotations }, incarnation)
}

fn annotated(uid: &str, incarnation: u64, more: &[(&str, &str)]) -> Pod {
    let network =
        format!(r#"{{"default":{{"mac_address":"{BLUE_MAC}","ip_addresses":["10.244.1.5/24"]}}}}"#);
    pod(uid, incarnation, &[&[(POD_NETWORKS, network.as_str())], more].concat())
}

fn answer(wait: &mut PodWait, pod: &Pod) -> PodInterface {
    match wait.look(Some(pod)) {
        Ok(WaitStep::Answer(answer)) => *answer,
        other => panic!("{other:?}"),
    }
}

#[test]
fn the_answer_holds_what_annotation_configuration_and_defaults_say() {
    let mut wait = wait_for(Some("u1"));
    let limited =
        annotated("u1", 1, &[("kubernetes.io/egress-bandwidth", "10M"), (MIGRATABLE, "")]);
    let answered = answer(&mut wait, &limited);
    assert_eq!(
        (answered.mtu, answered.routable_mtu, answered.skip_ip_config),
        (Mtu::DEFAULT, defaults().routable_mtu, true)
    );
    assert_eq!(answered.bandwidth, Bandwidth { ingress: None, egress: Some(10_000_000) });
    assert_eq!(
        (answered.pod_uid.as_str(), answered.addressing.mac.to_string().as_str()),
        ("u1", BLUE_MAC)
    );

    let mut wait =
        PodWait::new(args(None), Network::Default, Some(9000.try_into().unwrap()), defaults());
    assert_eq!(answer(&mut wait, &annotated("u1", 1, &[])).mtu.bytes(), 9000);
}

#[test]
fn it_waits_for_pod_and_uid_and_annotation_in_turn() {
    let mut wait = wait_for(Some("u2"));
    assert_eq!(wait.look(None).unwrap(), WaitStep::Wait(Missing::Pod));
    // A predecessor that the source has not seen leave yet. Its annotation must not be used.
    assert_eq!(
        wait.look(Some(&annotated("u1", 1, &[]))).unwrap(),
        WaitStep::Wait(Missing::Uid { there: "u1".to_owned() })
    );
    assert_eq!(wait.look(None).unwrap(), WaitStep::Wait(Missing::Pod));
    assert_eq!(wait.look(Some(&pod("u2", 2, &[]))).unwrap(), WaitStep::Wait(Missing::Annotation));
    assert_eq!(answer(&mut wait, &annotated("u2", 2, &[])).pod_uid, "u2");
}

#[test]
fn a_pod_that_goes_while_it_is_waited_for_ends_the_wait() {
    for (then, change) in
        [(None, PodChange::Deleted), (Some(annotated("u2", 2, &[])), PodChange::Replaced)]
    {
        let mut wait = wait_for(None);
        assert_eq!(
            wait.look(Some(&pod("u1", 1, &[]))).unwrap(),
            WaitStep::Wait(Missing::Annotation)
        );
        let refusal = wait.look(then.as_ref()).unwrap_err();
        assert_eq!(refusal.to_string(), format!("pod shop/cart-0: {change}"));
    }
}

#[test]
fn the_uid_is_the_sources_for_static_pods_and_for_runtimes_that_know_none() {
    for (asked, source, there, uid) in [
        (None, None, "u1", "u1"),
        (Some("hash"), Some("file"), "mirror", "mirror"),
        (Some("u1"), Some("api"), "u1", "u1"),
        (Some("u1"), None, "", "u1"),
        (None, None, "", ""),
    ] {
        let source: Vec<_> = source.map(|source| (CONFIG_SOURCE, source)).into_iter().collect();
        assert_eq!(
            answer(&mut wait_for(asked), &annotated(there, 1, &source)).pod_uid,
            uid,
            "{asked:?} {source:?}"
        );
    }
    let other = annotated("u2", 1, &[(CONFIG_SOURCE, "api")]);
    assert!(matches!(
        wait_for(Some("u1")).look(Some(&other)),
        Ok(WaitStep::Wait(Missing::Uid { .. }))
    ));
}

#[test]
fn what_cannot_be_used_is_refused_at_once() {
    let refusal = wait_for(None).look(Some(&pod("u1", 1, &[(POD_NETWORKS, "{")]))).unwrap_err();
    assert!(matches!(refusal, ApiError::BadAnnotation { .. }), "{refusal}");
    let refusal = wait_for(None)
        .look(Some(&annotated("u1", 1, &[("kubernetes.io/ingress-bandwidth", "fast")])))
        .unwrap_err();
    assert!(matches!(refusal, ApiError::BadBandwidth { .. }), "{refusal}");
}

#[test]
fn another_network_has_an_annotation_of_its_own_and_no_limits() {
    let blue = Network::Attachment { name: "blue".to_owned(), nad: "shop/blue".to_owned() };
    let mut wait = PodWait::new(args(None), blue, None, defaults());
    let limit = ("kubernetes.io/ingress-bandwidth", "1M");
    assert_eq!(
        wait.look(Some(&annotated("u1", 1, &[limit]))).unwrap(),
        WaitStep::Wait(Missing::Annotation)
    );
    let networks = format!(r#"{{"shop/blue":{{"mac_address":"{BLUE_MAC}"}}}}"#);
    assert_eq!(
        answer(&mut wait, &pod("u1", 1, &[(POD_NETWORKS, &networks), limit])).bandwidth,
        Bandwidth::default()
    );
}

#[test]
fn the_older_annotation_serves_as_well() {
    let legacy = r#"{"ip_address":"192.168.2.3/24","mac_address":"0a:00:00:00:00:01","gateway_ip":"192.168.2.1"}"#;
    assert_eq!(
        answer(&mut wait_for(None), &pod("", 1, &[(LEGACY, legacy)])).addressing.gateways.len(),
        1
    );
}

#[test]
fn a_pod_whose_primary_network_is_user_defined_is_refused_and_named() {
    let network = format!(
        r#"{{"default":{{"mac_address":"{BLUE_MAC}","ip_addresses":["10.244.1.5/24"],"role":"infrastructure-locked"}},
            "shop/blue":{{"mac_address":"{BLUE_MAC}","ip_addresses":["10.1.0.5/24"],"role":"primary"}}}}"#
    );
    let refusal =
        wait_for(Some("u1")).look(Some(&pod("u1", 1, &[(POD_NETWORKS, &network)]))).unwrap_err();
    assert_eq!(refusal.code().number(), 2);
    assert!(
        refusal.to_string().contains("shop/cart-0") && refusal.to_string().contains("user-defined"),
        "{refusal}"
    );
}
