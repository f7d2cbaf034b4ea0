//! Policies and namespaces that no sensible program writes: what of them cannot be used is told
//! once, the rest of them counts, and so do all others.

use contract::names::PodKey;
use controller::{
    config::ClusterConfig,
    engine::reconcile::Report,
    kinds::{
        namespace::wire::NamespaceObject, network_policy::wire::PolicyObject, pod::object::Pod,
    },
    problem::Problem,
    watch_event::{Seen, WatchEvent},
};
use kubeapi::{object::Object, watch::Watched};
use ovsdb::Connection;
use serde_json::{Value, json};

use crate::{
    cluster::{all_nodes, all_pods, config, node, pod},
    database::{Northbound, Row, contents},
    running::Running,
};

/// A controller with a node and a pod.
struct Scene {
    controller: Running,
    connection: Connection,
    _northbound: Northbound,
}

impl Scene {
    async fn begin(config: ClusterConfig) -> Self {
        let northbound = Northbound::start();
        let connection = northbound.open().await;
        let mut controller = Running::without_services(northbound.endpoint(), config);
        controller.observe(all_nodes([node(1)]));
        controller.observe(all_pods([pod(0, 1, 0)]));
        controller.converged().await;
        Self { controller, connection, _northbound: northbound }
    }

    /// Observes the objects, and waits for the rows. Returns what was told, by object, reason and
    /// text.
    async fn after(&mut self, objects: impl IntoIterator<Item = WatchEvent>) -> Vec<String> {
        let text = |report| match report {
            Report::Problem(Problem {
                object: Object::NetworkPolicy(key), reason, note, ..
            }) => {
                format!("{key} {reason}: {note}")
            }
            Report::Problem(Problem { object: Object::Namespace(name), note, .. }) => {
                format!("{name}: {note}")
            }
            other => format!("{other:?}"),
        };
        self.controller.told_after(objects).await.into_iter().map(text).collect()
    }

    /// Name, action, and severity of each ACL that has a name and does not merely let ARP pass.
    async fn acls(&self) -> Vec<String> {
        let all = contents(&self.connection).await;
        let acls = all.0.into_iter().filter(|((table, ..), _)| table == "ACL").map(|(_, row)| row);
        let acls = acls.filter(|row| row.contains_key("name") && !row["match"].contains("arp"));
        let text = |row: Row| {
            let severity = row.get("severity").map_or("unlogged", String::as_str);
            assert_eq!(row["log"], format!("Boolean({})", row.contains_key("severity")), "{row:?}");
            [&row["name"], &row["action"], severity].join(" ")
        };
        acls.map(text).collect()
    }
}

fn one_pod(pod: (PodKey, Pod)) -> WatchEvent {
    WatchEvent::Pods(Seen::Applied(pod))
}

fn namespace(annotations: &Value) -> WatchEvent {
    let object = json!({"metadata": {"name": "ns0", "uid": "1", "annotations": annotations}});
    let object: NamespaceObject = serde_json::from_value(object).unwrap();
    WatchEvent::Namespaces(Seen::Applied(object.value().unwrap()))
}

fn policy(annotations: &Value, spec: &Value) -> WatchEvent {
    let object = json!({
        "metadata": {"namespace": "ns0", "name": "web", "uid": "2", "annotations": annotations}, "spec": spec
    });
    let object: PolicyObject = serde_json::from_value(object).unwrap();
    WatchEvent::Policies(Seen::Applied(object.value().unwrap()))
}

#[tokio::test]
async fn verdicts_are_logged_as_the_namespace_says_and_nonsense_there_is_told_once() {
    let mut scene = Scene::begin(config()).await;
    let logging = |value: &str| namespace(&json!({"k8s.ovn.org/acl-logging": value}));
    let told = scene.after([logging(""), policy(&json!({}), &json!({"ingress": [{}]}))]).await;
    assert_eq!(told, [""; 0]);
    for (value, allow, deny) in [
        (r#"{"allow":"info","deny":"alert"}"#, "info", "alert"),
        (r#"{"deny":"warning"}"#, "unlogged", "warning"),
        ("{}", "unlogged", "unlogged"),
    ] {
        assert_eq!(scene.after([logging(value)]).await, [""; 0]);
        let expected = [
            format!("NP:ns0:Egress drop {deny}"),
            format!("NP:ns0:Ingress drop {deny}"),
            format!("NP:ns0:web:Ingress:0 allow-related {allow}"),
        ];
        let mut acls = scene.acls().await;
        acls.sort();
        assert_eq!(acls, expected, "{value}");
    }
    let nonsense = r#"{"allow":"debug","deny":"loud"}"#;
    let told = scene.after([logging(nonsense), logging(nonsense)]).await;
    assert!(told.len() == 1 && told[0].contains("\"loud\" of deny"), "{told:?}");
    assert!(scene.acls().await.contains(&"NP:ns0:web:Ingress:0 allow-related debug".to_owned()));
    let long = format!("{{\"allow\": \"{}", "\u{1b}".repeat(200_000));
    let told = scene.after([logging(&long)]).await;
    assert!(told.len() == 1 && told[0].len() < 500, "{told:?}");
    assert!(scene.acls().await.iter().all(|acl| acl.ends_with("unlogged")));
}

#[tokio::test]
async fn a_policy_is_stateless_only_with_the_option_and_says_so_without_it() {
    let open = json!({"ingress": [{}]});
    let stateless = |value: &str| policy(&json!({"k8s.ovn.org/acl-stateless": value}), &open);
    // With one more rule, so that something is written.
    let more = json!({"ingress": [{}, {"ports": [{"port": 1}]}]});
    let nonsense = policy(&json!({"k8s.ovn.org/acl-stateless": "yes"}), &more);
    for (stateless_policies, action) in [(true, "allow-stateless"), (false, "allow-related")] {
        let mut scene = Scene::begin(ClusterConfig { stateless_policies, ..config() }).await;
        let told = scene.after([stateless("true"), stateless("true")]).await;
        assert_eq!(told.len(), usize::from(!stateless_policies), "{told:?}");
        assert!(told.iter().all(|told| told.contains("--enable-stateless-netpol")), "{told:?}");
        let rule = |action: &str| format!("NP:ns0:web:Ingress:0 {action} unlogged");
        assert!(scene.acls().await.contains(&rule(action)));
        let told = scene.after([nonsense.clone()]).await;
        assert!(told.len() == 1 && told[0].contains("UnusableAnnotation"), "{told:?}");
        assert!(scene.acls().await.contains(&rule("allow-related")));
    }
}

/// A policy for all pods of the namespace of pod 0, which gives the name `web` to a port.
fn to_port(name: &str) -> WatchEvent {
    policy(&json!({}), &json!({"ingress": [{"ports": [{"port": name}]}]}))
}

#[tokio::test]
async fn a_name_of_a_port_that_no_selected_pod_has_is_told_once_and_again_only_after_it_was_there()
{
    let mut scene = Scene::begin(config()).await;
    assert_eq!(scene.after([to_port("web")]).await, [""; 0]);
    let told = scene.after([to_port("wbe")]).await;
    assert!(
        told.len() == 1
            && told[0].contains("ns0/web NoSuchPort")
            && told[0].contains("\"wbe\" (TCP)"),
        "{told:?}"
    );
    // Pods without the name come and go: nothing.
    for number in [3, 6, 9] {
        assert_eq!(scene.after([one_pod(pod(number, 1, 0))]).await, [""; 0]);
    }
    // One that has it, and then none again.
    let (key, mut named) = pod(12, 1, 0);
    named.ports[0].name = "wbe".into();
    assert_eq!(scene.after([one_pod((key.clone(), named))]).await, [""; 0]);
    let told = scene.after([WatchEvent::Pods(Seen::Deleted(key))]).await;
    assert!(told.len() == 1 && told[0].contains("NoSuchPort"), "{told:?}");
}

#[tokio::test]
async fn a_misspelled_port_is_told_when_the_pods_come_after_the_policy_and_not_for_each_of_them() {
    let mut scene = Scene::begin(config()).await;
    assert_eq!(scene.after([WatchEvent::Pods(Seen::Deleted(pod(0, 1, 0).0))]).await, [""; 0]);
    assert_eq!(scene.after([to_port("wbe")]).await, [""; 0]);
    let told = scene.after((0..30).step_by(3).map(|number| one_pod(pod(number, 1, 0)))).await;
    assert!(told.len() == 1 && told[0].contains("NoSuchPort"), "{told:?}");
    // With one more rule, so that something is written.
    let spec = json!({"ingress": [{"ports": [{"port": "x".repeat(10_000)}]}, {}]});
    let told = scene.after([policy(&json!({}), &spec)]).await;
    assert!(told.len() == 1 && told[0].len() < 300, "{told:?}");
}

#[tokio::test]
async fn a_block_that_covers_nothing_is_told() {
    let mut scene = Scene::begin(config()).await;
    let block = |cidr: &str, except: &[&str]| {
        let from = json!([{"ipBlock": {"cidr": cidr, "except": except}}]);
        policy(&json!({}), &json!({"ingress": [{"from": from}]}))
    };
    assert_eq!(scene.after([block("10.0.0.0/8", &["10.0.0.0/9"])]).await, [""; 0]);
    for (cidr, except) in [
        ("10.0.0.0/8", vec!["10.0.0.0/9", "10.128.0.0/9"]),
        ("10.4.0.0/16", vec!["10.0.0.0/8"]),
        ("fd00::/8", vec![]),
    ] {
        let told = scene.after([block(cidr, &except)]).await;
        let is_told = told.len() == 1 && told[0].contains("EmptyBlock") && told[0].contains(cidr);
        assert!(is_told, "{cidr}: {told:?}");
    }
}
