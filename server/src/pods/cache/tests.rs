use contract::annotation::POD_NETWORKS;
use futures_util::FutureExt;

use super::*;

fn cart() -> PodKey {
    PodKey::new("shop", "cart-0").unwrap()
}

fn facts(uid: &str, annotation: &str) -> PodFacts {
    PodFacts {
        uid: uid.to_owned(),
        annotations: BTreeMap::from([("a".to_owned(), annotation.to_owned())]),
    }
}

fn entries(pods: &Pods) -> usize {
    pods.lock().pods.len()
}

#[test]
fn a_watch_is_woken_by_a_change_and_only_by_a_change() {
    let pods = Pods::default();
    let mut watch = pods.watch(&cart());
    assert_eq!(watch.now(), None);
    assert!(watch.changed().now_or_never().is_none());

    pods.put(&cart(), facts("u1", "x"));
    assert!(watch.changed().now_or_never().is_some());
    assert_eq!(watch.now().unwrap().facts, facts("u1", "x"));

    pods.put(&cart(), facts("u1", "x"));
    pods.put(&PodKey::new("shop", "cart-1").unwrap(), facts("u2", "y"));
    assert!(watch.changed().now_or_never().is_none());

    pods.remove(&cart());
    assert!(watch.changed().now_or_never().is_some());
    assert_eq!(watch.now(), None);
}

#[test]
fn a_successor_is_told_from_its_predecessor_even_without_uids() {
    let pods = Pods::default();
    let mut watch = pods.watch(&cart());
    let mut incarnation_after = |change: &dyn Fn()| {
        change();
        watch.now().unwrap().incarnation
    };
    let first = incarnation_after(&|| pods.put(&cart(), facts("", "x")));
    let changed = incarnation_after(&|| pods.put(&cart(), facts("", "y")));
    let recreated = incarnation_after(&|| {
        pods.remove(&cart());
        pods.put(&cart(), facts("", "y"));
    });
    let replaced = incarnation_after(&|| pods.put(&cart(), facts("u2", "y")));
    assert_eq!(first, changed);
    assert!(first < recreated && recreated < replaced, "{first} {recreated} {replaced}");
}

#[test]
fn nothing_is_kept_of_a_pod_that_nobody_knows_or_watches() {
    let pods = Pods::default();
    let (one, two) = (pods.watch(&cart()), pods.watch(&cart()));
    drop(one);
    assert_eq!(entries(&pods), 1);
    drop(two);
    assert_eq!(entries(&pods), 0);

    pods.put(&cart(), facts("u1", "x"));
    drop(pods.watch(&cart()));
    assert_eq!(pods.known(), [cart()]);
    pods.remove(&cart());
    pods.remove(&cart());
    assert_eq!(entries(&pods), 0);
}

/// The network of a running static pod was removed 30 s after its mirror had been deleted.
#[tokio::test(start_paused = true)]
async fn a_static_pod_awaits_its_mirror_for_longer_than_a_kubelet_does_not_look_at_it() {
    let mirror = |uid: &str| PodFacts {
        annotations: BTreeMap::from([(CONFIG_SOURCE.to_owned(), "file".to_owned())]),
        ..facts(uid, "x")
    };
    let pods = Pods::default();
    for uid in ["mirror-1", "mirror-2"] {
        pods.put(&cart(), mirror(uid));
        assert!(!pods.awaits_mirror(&cart()), "it is there");
        pods.remove(&cart());
        tokio::time::advance(Duration::from_secs(100)).await;
        assert!(pods.awaits_mirror(&cart()));
    }
    tokio::time::advance(Duration::from_secs(20)).await;
    assert!(!pods.awaits_mirror(&cart()));

    pods.put(&cart(), facts("u1", "x"));
    pods.remove(&cart());
    assert!(!pods.awaits_mirror(&cart()), "an ordinary pod has no mirror");
}

#[test]
fn an_annotation_is_parsed_once_for_each_network_and_again_when_it_changes() {
    let annotation = |mac: &str| {
        let text =
            format!(r#"{{"default":{{"mac_address":{mac:?},"ip_addresses":["10.244.1.5/24"]}}}}"#);
        PodFacts {
            uid: String::new(),
            annotations: BTreeMap::from([(POD_NETWORKS.to_owned(), text)]),
        }
    };
    let pods = Pods::default();
    let mut watch = pods.watch(&cart());
    pods.put(&cart(), annotation("0a:58:0a:f4:01:05"));
    let pod = watch.now().unwrap();
    let parsed = pod.network(&Network::Default).unwrap().unwrap();
    assert!(Arc::ptr_eq(&parsed, &pod.network(&Network::Default).unwrap().unwrap()));
    let blue = Network::Attachment { name: "blue".to_owned(), nad: "shop/blue".to_owned() };
    assert_eq!(pod.network(&blue).unwrap(), None);
    pods.put(&cart(), annotation("0a:58:0a:f4:01:06"));
    let changed = watch.now().unwrap().network(&Network::Default).unwrap().unwrap();
    assert_ne!(changed.mac, parsed.mac);
}
