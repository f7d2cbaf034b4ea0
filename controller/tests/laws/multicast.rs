//! Multicast of namespaces as it comes and goes: with the annotation, the namespace, and the
//! option.

use controller::{
    config::{ClusterConfig, Multicast},
    engine::reconcile::Report,
    kinds::{egress_firewall::object::EgressFirewall, namespace::wire::NamespaceObject},
    watch_event::{Seen, WatchEvent},
};
use kubeapi::watch::Watched;
use ovsdb::Connection;
use serde_json::json;

use crate::{
    cluster::{all_nodes, all_pods, config, node, pod},
    database::{Contents, Northbound, contents},
    policies::objects::firewall,
    running::Running,
};

/// A controller with two nodes and three pods, the first and the last of which are of one
/// namespace.
struct Scene {
    controller: Running,
    connection: Connection,
    northbound: Northbound,
}

/// The group of the first namespace's pods: its ACLs, and its ports.
#[derive(Debug, PartialEq, Eq)]
struct Group {
    acls: Vec<String>,
    ports: Vec<String>,
}

fn with(multicast: Multicast) -> ClusterConfig {
    ClusterConfig { multicast, ..config() }
}

impl Scene {
    async fn begin(multicast: Multicast) -> Self {
        let northbound = Northbound::start();
        let connection = northbound.open().await;
        let mut controller = Running::without_services(northbound.endpoint(), with(multicast));
        begin(&mut controller).await;
        Self { controller, connection, northbound }
    }

    /// Another process with this option and this annotation. Returns how much it has written, and
    /// what it has told.
    async fn restart(&mut self, multicast: Multicast, annotation: &str) -> (u64, Vec<String>) {
        let another = Running::without_services(self.northbound.endpoint(), with(multicast));
        std::mem::replace(&mut self.controller, another).kill().await;
        self.controller.observe(namespace(annotation));
        begin(&mut self.controller).await;
        let told = std::iter::from_fn(|| self.controller.reports.try_recv().ok());
        let told = texts(told);
        (self.controller.transactions().get(), told)
    }

    /// Observes what changes rows. Returns what was told.
    async fn observe(&mut self, observations: impl IntoIterator<Item = WatchEvent>) -> Vec<String> {
        texts(self.controller.told_after(observations).await)
    }

    async fn contents(&self) -> Contents {
        contents(&self.connection).await
    }

    async fn group(&self) -> Option<Group> {
        let all = self.contents().await;
        let id = contract::ovn::ObjectId::namespace_group("ns0");
        let row = all.row("Port_Group", &id.hashed())?;
        let elements = |column: &str| {
            let text = row.get(column).map_or("", String::as_str);
            let names = text.split(", ").filter(|name| !name.is_empty());
            let short = |name: &str| {
                name.trim_matches(['<', '>']).replace("default-network-controller:", "")
            };
            let mut names: Vec<String> = names.map(short).collect();
            names.sort();
            names
        };
        Some(Group { acls: elements("acls"), ports: elements("ports") })
    }
}

async fn begin(controller: &mut Running) {
    controller.observe(all_nodes([node(1), node(2)]));
    controller.observe(all_pods([pod(0, 1, 0), pod(1, 1, 0), pod(3, 2, 0)]));
    controller.converged().await;
}

fn texts(told: impl IntoIterator<Item = Report>) -> Vec<String> {
    let text = |report| match report {
        Report::Problem(of) => Some(format!("{}: {}", of.object.name(), of.note)),
        _ => None,
    };
    told.into_iter().filter_map(text).collect()
}

fn namespace(multicast: &str) -> WatchEvent {
    let annotations = json!({"k8s.ovn.org/multicast-enabled": multicast});
    let object = json!({"metadata": {"name": "ns0", "uid": "1", "annotations": annotations}});
    let object: NamespaceObject = serde_json::from_value(object).unwrap();
    WatchEvent::Namespaces(Seen::Applied(object.value().unwrap()))
}

fn group(acls: &[&str]) -> Option<Group> {
    let texts = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect();
    Some(Group { acls: texts(acls), ports: texts(&["ns0_p0", "ns0_p3"]) })
}

const RULES: [&str; 2] = ["MulticastNS:ns0:Egress", "MulticastNS:ns0:Ingress"];

/// The addresses of the namespace's set; none without it.
fn set(all: &Contents) -> Option<String> {
    let id = contract::ovn::ObjectId::address_set(contract::ovn::NAMESPACE_SET, "ns0", "v4");
    all.row("Address_Set", &id.hashed()).map(|row| row["addresses"].clone())
}

/// The rows in which a text is.
fn rows_with(all: &Contents, text: &str) -> Vec<String> {
    let has = |row: &crate::database::Row| row.values().any(|value| value.contains(text));
    let rows = all.0.iter().filter(|(_, row)| has(row));
    rows.map(|((table, name, _), _)| format!("{table} {name}")).collect()
}

#[tokio::test]
async fn a_namespace_has_multicast_as_long_as_its_annotation_says_true_and_nonsense_is_told_once() {
    let mut scene = Scene::begin(Multicast::On).await;
    assert_eq!(scene.group().await, None);
    for (value, expected) in
        [("true", group(&RULES)), ("false", None), ("true", group(&RULES)), ("", None)]
    {
        assert_eq!(scene.observe([namespace(value)]).await, [""; 0], "{value:?}");
        assert_eq!(scene.group().await, expected, "{value:?}");
        let set = set(&scene.contents().await);
        assert_eq!(set.is_some(), expected.is_some(), "{value:?}: {set:?}");
    }
    scene.observe([namespace("true")]).await;
    let told = scene.observe([namespace("yes"), namespace("yes")]).await;
    assert!(
        told.len() == 1 && told[0].contains("\"yes\", which is neither true nor false"),
        "{told:?}"
    );
    assert_eq!(scene.group().await, None, "what is no switch opens nothing");
    scene.observe([namespace("true")]).await;
    let gone = WatchEvent::Namespaces(Seen::Deleted("ns0".into()));
    scene.observe([gone]).await;
    assert_eq!((scene.group().await, set(&scene.contents().await)), (None, None));
}

/// The group is the EgressFirewall's, too: each takes its own rules away, and the last one the
/// group.
#[tokio::test]
async fn an_egress_firewall_and_multicast_share_the_group_and_leave_each_others_rules() {
    let rule = "EgressFirewall:ns0:0";
    let both = group(&[&[rule][..], &RULES].concat());
    let put = || WatchEvent::custom(Seen::Applied(firewall(0, 0)));
    let gone = || WatchEvent::custom::<EgressFirewall>(Seen::Deleted("ns0".into()));
    let mut scene = Scene::begin(Multicast::On).await;
    for (observation, expected) in [
        (put(), group(&[rule])),
        (namespace("true"), both),
        (gone(), group(&RULES)),
        (put(), group(&[&[rule][..], &RULES].concat())),
        (namespace("false"), group(&[rule])),
        (gone(), None),
    ] {
        let what = format!("{observation:?}");
        scene.observe([observation]).await;
        assert_eq!(scene.group().await, expected, "{what}");
    }
}

/// Law 2, and what upstream does at a start without the option.
#[tokio::test]
async fn without_the_option_nothing_of_multicast_is_left_and_with_it_a_restart_writes_nothing() {
    let mut scene = Scene::begin(Multicast::On).await;
    scene.observe([namespace("true")]).await;
    let before = scene.contents().await;
    assert_eq!(
        scene.restart(Multicast::On, "true").await,
        (0, vec![]),
        "law 2: a restart is quiet"
    );

    let (_, told) = scene.restart(Multicast::Off, "true").await;
    assert!(
        told.len() == 1 && told[0].contains("without the option --enable-multicast"),
        "{told:?}"
    );
    let off = scene.contents().await;
    assert_eq!((rows_with(&off, "mcast"), rows_with(&off, "Multicast")), (vec![], vec![]));
    // The set stays: of namespaces with a set at the start, upstream may have one for each.
    assert_eq!(scene.group().await, None);
    let routers =
        contract::ovn::ObjectId::cluster_port_group(contract::ovn::ROUTER_PORT_GROUP).hashed();
    assert_eq!(
        off.row("Port_Group", &routers).unwrap().get("ports").map_or("", String::as_str),
        ""
    );

    scene.restart(Multicast::On, "true").await;
    let texts = |all: &Contents| {
        let rows = all.0.iter().map(|((table, name, _), row)| format!("{table} {name} {row:?}"));
        rows.collect::<std::collections::BTreeSet<_>>()
    };
    assert_eq!(texts(&scene.contents().await), texts(&before), "with the option all is as before");
}

#[tokio::test]
async fn an_annotation_without_the_option_is_told_and_opens_nothing() {
    let mut scene = Scene::begin(Multicast::Off).await;
    // The pods of another namespace change rows.
    let other = |number| WatchEvent::Pods(Seen::Applied(pod(number, 1, 0)));
    let told = scene.observe([namespace("true"), namespace("true"), other(4)]).await;
    assert!(
        told.len() == 1 && told[0].contains("without the option --enable-multicast"),
        "{told:?}"
    );
    assert_eq!((scene.group().await, set(&scene.contents().await)), (None, None));
    assert_eq!(scene.observe([namespace("false"), other(7)]).await, [""; 0]);
}
