use serde_json::{Value, json};

use super::*;
use crate::scripted::{Asked, Scripted, connection};

const SUBNET: (&str, &str) = (NODE_SUBNETS, r#"{"default":["10.244.1.0/24"]}"#);

fn node(version: &str, annotations: &[(&str, &str)]) -> Value {
    let annotations: BTreeMap<_, _> = annotations.iter().copied().collect();
    json!({
        "kind": "Node", "apiVersion": "v1",
        "metadata": {"name": "n1", "uid": "u1", "resourceVersion": version, "annotations": annotations},
        "status": {"addresses": [{"type": "Hostname", "address": "n1"}, {"type": "InternalIP", "address": "172.18.0.3"}]},
    })
}

/// Answers a list of this node.
async fn list(asked: Asked, nodes: &[Value]) {
    assert!(asked.path.starts_with("/api/v1/nodes?") && !asked.is_watch(), "{}", asked.path);
    assert_eq!(asked.parameter("fieldSelector"), Some("metadata.name%3Dn1"));
    asked.json(&json!({"kind": "NodeList", "apiVersion": "v1", "metadata": {"resourceVersion": "10"}, "items": nodes})).await;
}

async fn until(
    assigned: &mut watch::Receiver<AssignedSubnetsOf>,
    wanted: impl Fn(&AssignedSubnetsOf) -> bool,
) -> AssignedSubnetsOf {
    let last = assigned.clone();
    let found =
        timeout(Duration::from_secs(20), assigned.wait_for(|assigned| wanted(assigned))).await;
    found.unwrap_or_else(|_| panic!("{:?}", last.borrow())).unwrap().clone()
}

#[tokio::test(start_paused = true)]
async fn a_node_waits_for_its_subnet_and_says_for_what_and_from_whom() {
    let mut api = Scripted::start().await;
    let connection = connection(&api);
    let view = follow(&connection, "n1");
    let mut assigned = assigned("n1", view.clone());
    assert!(assigned.borrow().as_ref().unwrap_err().contains("has not reported node n1 yet"));

    list(api.asked().await, &[]).await;
    let absent = until(&mut assigned, |assigned| {
        assigned.as_ref().is_err_and(|why| why.contains("knows no node n1"))
    })
    .await;
    assert!(absent.unwrap_err().ends_with("has its kubelet registered it, under this name?"));
    let mut watch = api.asked().await.begin().await;
    watch.send("ADDED", &node("11", &[])).await;
    let why = until(&mut assigned, |assigned| {
        assigned.as_ref().is_err_and(|why| why.contains("no subnet"))
    })
    .await
    .unwrap_err();
    assert_eq!(
        why,
        "node n1 has no subnet yet: the cluster manager writes it (annotation k8s.ovn.org/node-subnets)"
    );
    watch.send("MODIFIED", &node("12", &[SUBNET])).await;
    let subnets = until(&mut assigned, Result::is_ok).await.unwrap().subnets;
    assert_eq!(subnets, ["10.244.1.0/24".parse().unwrap()]);
    let NodeView::There(seen) = view.borrow().clone() else { panic!("{view:?}") };
    assert_eq!(
        (seen.uid.as_str(), &seen.addresses[..]),
        ("u1", &["172.18.0.3".parse().unwrap()][..])
    );

    // Another subnet, then an annotation that is no JSON.
    watch.send("MODIFIED", &node("13", &[("ovn_host_subnet", "10.9.3.0/24")])).await;
    let other = ["10.9.3.0/24".parse().unwrap()];
    until(&mut assigned, |assigned| {
        assigned.as_ref().is_ok_and(|assigned| assigned.subnets == other)
    })
    .await
    .unwrap();
    watch.send("MODIFIED", &node("14", &[(NODE_SUBNETS, "{]")])).await;
    let why = until(&mut assigned, Result::is_err).await.unwrap_err();
    assert!(why.starts_with("node n1: annotation k8s.ovn.org/node-subnets: "), "{why}");
}

#[tokio::test(start_paused = true)]
async fn an_api_server_that_goes_away_takes_no_subnet_with_it_and_a_refusal_is_told_in_its_words() {
    let mut api = Scripted::start().await;
    let connection = connection(&api);
    let mut assigned = assigned("n1", follow(&connection, "n1"));
    api.asked()
        .await
        .status(403, "nodes is forbidden: User \"n1\" cannot list resource \"nodes\"")
        .await;
    let why = until(&mut assigned, |assigned| {
        assigned.as_ref().is_err_and(|why| why.contains("forbidden"))
    })
    .await
    .unwrap_err();
    assert!(why.contains("cannot list resource \"nodes\""), "{why}");
    list(api.asked().await, &[node("10", &[SUBNET])]).await;
    until(&mut assigned, Result::is_ok).await.unwrap();
    api.go_away().await;
    assert!(timeout(Duration::from_secs(300), assigned.wait_for(Result::is_err)).await.is_err());
}

#[tokio::test(start_paused = true)]
async fn the_owner_of_a_node_that_waits_for_long_is_told() {
    let mut api = Scripted::start().await;
    let connection = connection(&api);
    let (_view, views) = watch::channel(NodeView::There(Arc::new(NodeFacts {
        uid: "u1".to_owned(),
        ..NodeFacts::default()
    })));
    let (sender, assigned) =
        watch::channel::<AssignedSubnetsOf>(Err("node n1 has no subnet yet".to_owned()));
    let events = Events::start(&connection, "n1");
    let begun = tokio::time::Instant::now();
    let telling = tokio::spawn(tell_of_waiting("n1".to_owned(), views, assigned, events));
    let asked = api.asked().await;
    assert!(begun.elapsed() >= LATE);
    assert_eq!(
        (asked.method.as_str(), asked.path.as_str()),
        ("POST", "/apis/events.k8s.io/v1/namespaces/default/events?")
    );
    let event: Value = serde_json::from_slice(&asked.body).unwrap();
    assert_eq!(
        (event["reason"].as_str(), event["regarding"]["kind"].as_str()),
        (Some("NoSubnet"), Some("Node"))
    );
    assert_eq!(
        (event["regarding"]["uid"].as_str(), event["regarding"]["namespace"].as_str()),
        (Some("u1"), None)
    );
    assert!(event["note"].as_str().unwrap().starts_with("node n1 has no subnet yet; "), "{event}");
    asked.json(&event).await;
    sender.send(Ok(AssignedSubnets::default())).unwrap();
    telling.await.unwrap();
}
