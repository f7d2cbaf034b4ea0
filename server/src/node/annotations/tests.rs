use std::{process::Command, sync::Arc};

use serde_json::Value;

use super::*;
use crate::{
    node::management_port,
    scripted::{self, Scripted},
};

#[test]
fn only_what_differs_is_written_and_what_is_unknown_is_left_out() {
    let hosts = [HostAddress { link: 2, address: "172.18.0.3/16".parse().unwrap() }];
    let mut seen =
        NodeFacts { addresses: vec!["172.18.0.3".parse().unwrap()], ..NodeFacts::default() };
    let identity = Identity {
        system_id: Some("c1".to_owned()),
        encap_ip: None,
        encap_ips: ["172.19.0.3", "172.18.0.3"].map(|ip| ip.parse().unwrap()).into(),
        remote: None,
    };
    let stays = ZoneNames { name: "global".to_owned(), next: None, choices: None };
    let zone = Some(&stays);
    let all = wanted(&seen, &hosts, &hosts.clone().map(|host| host.address), &identity, zone);
    assert_eq!(all[CHASSIS_ID], "c1");
    assert_eq!(all[HOST_CIDRS], r#"["172.18.0.3/16"]"#);
    assert_eq!(all[PRIMARY_ADDRESSES], r#"{"ipv4":"172.18.0.3/16"}"#);
    assert_eq!(all[ZONE], "global");
    assert_eq!(all[ENCAP_IPS], r#"["172.18.0.3","172.19.0.3"]"#);

    seen.annotations = all.iter().map(|(key, value)| ((*key).to_owned(), value.clone())).collect();
    seen.annotations.insert("somebody/else".to_owned(), "x".to_owned());
    assert!(differing(&all, &seen).is_empty());
    seen.annotations.insert(ZONE.to_owned(), "z".to_owned());
    assert_eq!(differing(&all, &seen).into_keys().collect::<Vec<_>>(), [ZONE]);

    let zones = [("global", ""), ("n1", "chassis n2")];
    let choices = zones.map(|(zone, lacks)| (zone.to_owned(), lacks.to_owned())).into();
    let chooses = ZoneNames { choices: Some(choices), ..stays.clone() };
    let written = wanted(&seen, &hosts, &[], &identity, Some(&chooses));
    assert_eq!(written[ZONE_CHOICES], r#"{"global":"","n1":"chassis n2"}"#);
    assert!(!all.contains_key(ZONE_CHOICES));

    let little = wanted(&seen, &[], &[], &Identity::default(), None);
    let unknown = [CHASSIS_ID, PRIMARY_ADDRESSES, ENCAP_IPS, ZONE];
    assert!(!unknown.into_iter().any(|key| little.contains_key(key)));
}

/// A second change within a minute was written when the minute was over, and a change back not at
/// all.
#[tokio::test(start_paused = true)]
async fn the_first_changes_of_addresses_are_written_at_once_and_an_hour_of_them_once_a_minute() {
    let (sender, mut changes) = watch::channel(0);
    let host = tokio::spawn(async move {
        for _ in 0..3600 {
            sleep(Duration::from_secs(1)).await;
            sender.send_modify(|count| *count += 1);
        }
        sender
    });
    let began = Instant::now();
    let (mut written, mut next_look, mut allowance) = (0, began, allowance());
    while began.elapsed() < Duration::from_secs(3600) {
        later_change(&mut changes, next_look.max(allowance.next(Instant::now()))).await;
        next_look = Instant::now() + SETTLE;
        allowance.spend(Instant::now());
        written += 1;
        let late = 2 * SETTLE * FIRST_CHANGES;
        assert!(
            written > FIRST_CHANGES || began.elapsed() <= late,
            "{written} after {:?}",
            began.elapsed()
        );
    }
    assert!((58..=60 + FIRST_CHANGES).contains(&written), "{written}");
    drop(host.await);
}

/// kube-proxy in IPVS mode gives every node an address for each Service: each one was published,
/// and was a patch of every node's object.
#[test]
fn an_address_for_each_service_was_a_patch_for_each_service() {
    let output = Command::new("unshare")
        .args(["--user", "--map-root-user", "--net"])
        .arg(std::env::current_exe().unwrap())
        .args([
            "--ignored",
            "--exact",
            "node::annotations::tests::two_hundred_services_come",
            "--nocapture",
        ])
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned()
        + &String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && text.contains("1 passed"), "{text}");
}

fn ip(arguments: &str) {
    let status = Command::new("ip").args(arguments.split(' ')).status().expect("ip can be started");
    assert!(status.success(), "ip {arguments}");
}

/// The node's object with these annotations.
fn object(annotations: BTreeMap<String, String>) -> NodeView {
    let addresses = vec!["192.0.2.7".parse().unwrap()];
    NodeView::There(Arc::new(NodeFacts { addresses, annotations, ..NodeFacts::default() }))
}

/// Answers patches as the API server does, by the changed object, and publishes all of them.
async fn serve(
    mut api: Scripted,
    view: watch::Sender<NodeView>,
    patches: watch::Sender<Vec<Value>>,
) {
    let mut annotations = BTreeMap::new();
    loop {
        let asked = api.asked().await;
        assert_eq!(
            (&*asked.method, asked.path.split('?').next()),
            ("PATCH", Some("/api/v1/nodes/n1/status"))
        );
        let patch: Value = serde_json::from_slice(&asked.body).unwrap();
        for (key, value) in patch["metadata"]["annotations"].as_object().unwrap() {
            annotations.insert(key.clone(), value.as_str().unwrap().to_owned());
        }
        asked.json(&json!({"kind": "PartialObjectMetadata"})).await;
        patches.send_modify(|patches| patches.push(patch));
        view.send_replace(object(annotations.clone()));
    }
}

#[test]
#[ignore = "the test above runs it, in a network namespace of its own"]
fn two_hundred_services_come() {
    ip("link set lo up");
    // A bridge without a port leads to no other machine either. Not every kernel has dummies.
    ip("link add kube-ipvs0 type bridge");
    ip("link add eth0 type veth peer name peer");
    ip("addr add 192.0.2.7/24 dev eth0");
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(async {
        let happened = management_port::listen().unwrap();
        let api = Scripted::start().await;
        let connection = scripted::connection(&api);
        let (object, view) = watch::channel(object(BTreeMap::new()));
        let chassis = |id: &str| Identity { system_id: Some(id.to_owned()), ..Identity::default() };
        let (identities, identity) = watch::channel(chassis("c1"));
        let (_services, services) = watch::channel(Facts::of_options(&[]));
        let (_gateway, gateway) = watch::channel(Published::default());
        let (sender, mut patches) = watch::channel(Vec::new());
        tokio::spawn(serve(api, object, sender));
        let (node, addresses_changed) = ("n1".to_owned(), happened.to_addresses);
        let (_zone, zone) = watch::channel(Some(ZoneNames {
            name: "global".to_owned(),
            next: None,
            choices: None,
        }));
        let annotator = Annotator {
            connection,
            node,
            zone,
            view,
            identity,
            addresses_changed,
            masquerade: ["169.254.169.0/29", "fd69::/125"].map(|net| net.parse().unwrap()),
            wish: Wish::Routes,
            services,
            gateway,
            host: None,
        };
        tokio::spawn(annotator.run());
        patches.wait_for(|patches| patches.len() == 1).await.unwrap();

        let come = || {
            for number in 20..220 {
                ip(&format!("addr add 192.0.2.{number}/24 dev eth0"));
                ip(&format!("addr add 10.96.0.{number}/32 dev kube-ipvs0"));
            }
        };
        tokio::task::spawn_blocking(come).await.unwrap();
        // Another annotation is written after whatever these addresses have caused.
        identities.send_replace(chassis("c2"));
        let is_last = |patch: &Value| patch["metadata"]["annotations"][CHASSIS_ID] == "c2";
        let patches =
            patches.wait_for(|patches| patches.last().is_some_and(is_last)).await.unwrap().clone();
        let text = format!("{patches:#?}");
        assert!(text.contains("192.0.2.20/24"), "the first change is written at once: {text}");
        assert!(!text.contains("10.96.0."), "{text}");
        let most = 1 + FIRST_CHANGES as usize + 1;
        assert!(patches.len() <= most, "{} patches: {text}", patches.len());
    });
}
