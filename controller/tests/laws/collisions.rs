//! Objects whose rows would have the same name. OVN's names of port groups and address sets are
//! hashes of 64 bits, and whoever may choose 168 characters finds two ids with the same hash within
//! seconds. The one that may not have the row is refused alone and told whose it is; the row, and
//! what is in it, stays the other's.

use contract::{
    definition::CustomKind,
    names::{ClusterPolicyKind, PolicyKey},
    namespace_annotation::{AclLogging, Severity},
    node_annotation::{Gateway, GatewayMode},
    ovn::ObjectId,
};
use controller::{
    engine::reconcile::Report,
    key::{Key, SetId},
    kinds::{
        cluster_policy::wire::{ClusterPolicyObject, OfCluster},
        egress_firewall::object::EgressFirewallObject,
        namespace::object::Namespace,
        network_policy::wire::PolicyObject,
        node::object::Node,
    },
    watch_event::{Seen, WatchEvent},
};
use kubeapi::watch::Watched;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio::time::timeout;

use crate::{
    cluster::{all_nodes, all_pods, config, node, pod},
    database::{Contents, Northbound, contents},
    dry_runs::Schema,
    gateways::with_gateway,
    policies::objects::{labelled, namespace},
    running::{Running, deadline},
};

/// A name with which a policy in the namespace `evil` has the group of `shop/db`.
const LIKE_SHOP_DB: &str = "h7e8tz2mm0z2o51eyoy3ujo8324wrukik56p9x6x39ocegdas2ejqqstp1mw89f2tpu3en33j9r2btjr670f\
    uevozqosgegwl1d0tt9xf03szfwwi6okilizqce3mg54zpqcviw1x73vu4tv10kpfxcgh4z232a9355sow9fnq041nxnvbm2";
/// A name with which a policy in the namespace `ns1` has the group that isolates incoming
/// connections of `ns0`.
const LIKE_ISOLATION: &str = "94wrvt7ibww0prpgf5s4b0xarvh0u5ct83qewulide7wq73mcwcy6wm636b4.vo93mc1wl08e64r6s88wfe\
    kt8wcd4dhtiw9g38x1s4jhjw2o8yy8n12tr105.nhuuefv1ggd6cuiqlzc3n9z5viw1x7a7udb30bcchrky";
/// A name with which a policy in the namespace `ns1` has the group of the ClusterNetworkPolicy
/// `all`.
const LIKE_CLUSTER_POLICY: &str = "p1zrgva2ukcti8s8uwuq4pikrvh0u5ct83qe8q3f02audxucwh5fv5m636b4.0ebfx81wl08evkdma\
    x8wfektgee4kdhtiw9gsovjat7dr1yohg4dwsi4dc9k.nhuuefv1ggd6cuiqlzc3n9z5viw1x73vu4tv2dj17g56";
/// A name of the DNS whose set has the name of that of the namespace `ns2`.
const LIKE_NAMESPACE_SET: &str = "1pck2lp1nh0x4yt8x1x7914el1n9yorg2eb1dh9p0rwuku44ujd6ar28inw8.wa3pg481khgjotxzea\
    0zsikavy5p1oqpq2ojf62w7f1lx6i46v9l4vab823q.7p1bu44w6tuul7q2agr7a4zvh1vquz9pa2az1t3p0atz";

struct Scene {
    controller: Running,
    northbound: Northbound,
}

impl Scene {
    /// A node, and the pods 0 to 2, each in a namespace of its own.
    async fn begin() -> Self {
        let northbound = Northbound::start();
        let mut controller = Running::without_services(northbound.endpoint(), config());
        Self::tell(&controller);
        controller.converged().await;
        Self { controller, northbound }
    }

    fn tell(controller: &Running) {
        controller.observe(all_nodes([node(1)]));
        controller.observe(all_pods((0..3).map(|number| pod(number, 1, 0))));
        let namespaces = (0..3).map(|number| (namespace(number), labelled(number))).collect();
        controller.observe(WatchEvent::Namespaces(Seen::All(namespaces)));
    }

    async fn contents(&self) -> Contents {
        contents(&self.northbound.open().await).await
    }

    /// The next report about a row that another object has.
    async fn taken(&mut self) -> (Key, String, String) {
        loop {
            let report = timeout(deadline(), self.controller.reports.recv()).await;
            match report.expect("told of the row of another").expect("the controller runs") {
                Report::Taken { key, row, by, .. } => return (key, row, by),
                Report::Names(_) => {}
                other => panic!("{other:?}"),
            }
        }
    }

    /// Everything is written but what one object cannot have.
    async fn refuses_one(&mut self) {
        self.controller.reaches("one is refused", |now| now.converged && now.failing == 1).await;
    }

    async fn end(self) {
        self.controller.stop().await;
    }
}

fn read<T: Watched + DeserializeOwned>(object: &Value) -> T::Value {
    serde_json::from_str::<T>(&object.to_string()).unwrap().value().unwrap()
}

fn key(namespace: &str, name: &str) -> PolicyKey {
    PolicyKey::new(namespace, name).unwrap()
}

fn policy(namespace: &str, name: &str, spec: Value) -> WatchEvent {
    let object =
        json!({"metadata": {"namespace": namespace, "name": name, "uid": name}, "spec": spec});
    WatchEvent::Policies(Seen::Applied(read::<PolicyObject>(&object)))
}

fn gone(namespace: &str, name: &str) -> WatchEvent {
    WatchEvent::Policies(Seen::Deleted(key(namespace, name)))
}

/// Allows everything, to no pod.
fn opening() -> Value {
    json!({"podSelector": {"matchLabels": {"none": "none"}}, "ingress": [{}]})
}

/// Allows nothing to any pod of its namespace.
fn closing() -> Value {
    json!({"podSelector": {}, "policyTypes": ["Ingress"]})
}

fn column<'a>(contents: &'a Contents, table: &str, id: &ObjectId, column: &str) -> &'a str {
    contents.row(table, &id.hashed()).and_then(|row| row.get(column)).map_or("", String::as_str)
}

/// The ids of the ACLs of the port group.
fn rules(contents: &Contents, id: &ObjectId) -> String {
    column(contents, "Port_Group", id, "acls").to_owned()
}

#[test]
fn the_names_collide() {
    let group = |namespace, name| ObjectId::policy(&key(namespace, name)).hashed();
    assert_eq!(group("evil", LIKE_SHOP_DB), group("shop", "db"));
    assert_eq!(group("ns1", LIKE_ISOLATION), ObjectId::isolated("ns0", "Ingress").hashed());
    let all =
        contract::names::ClusterPolicyKey::new(ClusterPolicyKind::ClusterNetworkPolicy, "all")
            .unwrap();
    assert_eq!(group("ns1", LIKE_CLUSTER_POLICY), ObjectId::cluster_policy(&all).hashed());
    let set = |kind, name| ObjectId::address_set(kind, name, "v4").hashed();
    let (of_name, of_namespace) = (contract::ovn::NAME_SET, contract::ovn::NAMESPACE_SET);
    assert_eq!(set(of_name, LIKE_NAMESPACE_SET), set(of_namespace, "ns2"));
}

#[tokio::test]
async fn a_policy_whose_group_would_have_the_name_of_anothers_opens_nothing_and_says_whose_it_is() {
    let mut scene = Scene::begin().await;
    let victim = ObjectId::policy(&key("shop", "db"));
    let allowed = json!({"podSelector": {}, "ingress": [{"ports": [{"port": 5432}]}]});
    scene.controller.told_after([policy("shop", "db", allowed)]).await;
    let before = scene.contents().await;

    scene.controller.observe(policy("evil", LIKE_SHOP_DB, opening()));
    let (refused, row, by) = scene.taken().await;
    assert_eq!(refused, Key::Policy(key("evil", LIKE_SHOP_DB)));
    assert!(row.contains(&victim.hashed()), "{row}");
    assert!(by.contains("network policy shop/db"), "{by}");
    scene.refuses_one().await;
    let now = scene.contents().await;
    assert_eq!(now.row("Port_Group", &victim.hashed()), before.row("Port_Group", &victim.hashed()));
    assert!(!rules(&now, &victim).contains("evil"), "{}", rules(&now, &victim));
    let of_evil = now.0.keys().filter(|(table, id, _)| table == "ACL" && id.contains(":evil:"));
    assert_eq!(
        of_evil.filter(|(_, id, _)| id.contains(LIKE_SHOP_DB)).count(),
        0,
        "no rule without a group"
    );

    // Whoever was first has the name, after a restart too.
    scene.controller.kill().await;
    scene.controller = Running::start(scene.northbound.endpoint(), config());
    Scene::tell(&scene.controller);
    let both = [policy("evil", LIKE_SHOP_DB, opening()), policy("shop", "db", closing())];
    both.into_iter().for_each(|policy| scene.controller.observe(policy));
    for list in WatchEvent::no_optional_kinds() {
        scene.controller.observe(list);
    }
    let policies = [("evil", LIKE_SHOP_DB, opening()), ("shop", "db", closing())];
    let policies = policies.map(|(namespace, name, spec)| {
        let object =
            json!({"metadata": {"namespace": namespace, "name": name, "uid": name}, "spec": spec});
        read::<PolicyObject>(&object)
    });
    scene.controller.observe(WatchEvent::Policies(Seen::All(policies.into())));
    scene.controller.observe(WatchEvent::Services(Seen::All(Vec::new())));
    scene.controller.observe(WatchEvent::Slices(Seen::All(Vec::new())));
    scene.refuses_one().await;
    assert_eq!(
        rules(&scene.contents().await, &victim),
        "",
        "the one rule of before is gone, no other came"
    );

    // Once the name is free, the other one has it at once.
    scene.controller.observe(gone("shop", "db"));
    scene.controller.reaches("none is refused", |now| now.converged && now.failing == 0).await;
    assert!(rules(&scene.contents().await, &victim).contains(":evil:"));
    scene.end().await;
}

#[tokio::test]
async fn what_isolates_a_namespace_takes_the_name_of_its_group_from_a_policy() {
    let mut scene = Scene::begin().await;
    let group = ObjectId::isolated("ns0", "Ingress");
    scene.controller.told_after([policy("ns1", LIKE_ISOLATION, opening())]).await;
    assert!(
        rules(&scene.contents().await, &group).contains(":NetworkPolicy:ns1:"),
        "it is there first"
    );

    scene.controller.observe(policy("ns0", "closed", closing()));
    let (refused, _, by) = scene.taken().await;
    assert_eq!(refused, Key::Policy(key("ns1", LIKE_ISOLATION)));
    assert!(by.contains("isolation of namespace ns0"), "{by}");
    scene.refuses_one().await;
    let now = scene.contents().await;
    assert!(rules(&now, &group).contains(":NetpolNamespace:ns0:Ingress:defaultDeny"));
    assert!(!rules(&now, &group).contains(":NetworkPolicy:"));
    assert_eq!(column(&now, "Port_Group", &group, "ports"), "<ns0_p0>");

    scene.controller.observe(gone("ns0", "closed"));
    scene.controller.reaches("none is refused", |now| now.converged && now.failing == 0).await;
    assert!(rules(&scene.contents().await, &group).contains(":NetworkPolicy:ns1:"));
    scene.end().await;
}

#[tokio::test]
async fn a_policy_of_the_cluster_takes_the_name_of_its_group_from_a_policy_of_a_namespace() {
    let mut scene = Scene::begin().await;
    scene.controller.told_after([policy("ns1", LIKE_CLUSTER_POLICY, opening())]).await;
    let spec = json!({
        "tier": "Admin", "priority": 5, "subject": {"namespaces": {}},
        "ingress": [{"action": "Deny", "from": [{"namespaces": {}}]}],
    });
    let object = json!({"metadata": {"name": "all", "uid": "1", "generation": 1}, "spec": spec});
    let all = read::<ClusterPolicyObject<OfCluster>>(&object);
    let kind = ClusterPolicyKind::ClusterNetworkPolicy;
    scene.controller.observe(WatchEvent::ClusterPolicies(kind, Seen::Applied(all)));
    let (refused, _, by) = scene.taken().await;
    assert_eq!(refused, Key::Policy(key("ns1", LIKE_CLUSTER_POLICY)));
    assert!(by.contains("ClusterNetworkPolicy all"), "{by}");
    scene.refuses_one().await;
    let group =
        ObjectId::cluster_policy(&contract::names::ClusterPolicyKey::new(kind, "all").unwrap());
    let now = scene.contents().await;
    assert_eq!(column(&now, "Port_Group", &group, "ports"), "<ns0_p0>, <ns1_p1>, <ns2_p2>");
    assert!(rules(&now, &group).contains(":ClusterNetworkPolicy:all:"));
    assert!(!rules(&now, &group).contains(":NetworkPolicy:"));
    scene.end().await;
}

#[tokio::test]
async fn a_name_of_the_dns_whose_set_would_have_the_name_of_a_namespaces_gives_it_no_address() {
    let mut scene = Scene::begin().await;
    let firewall = json!({"egress": [{"type": "Allow", "to": {"dnsName": LIKE_NAMESPACE_SET}}]});
    let object =
        json!({"metadata": {"namespace": "ns1", "name": "default", "uid": "1"}, "spec": firewall});
    scene
        .controller
        .told_after([WatchEvent::custom(Seen::Applied(read::<EgressFirewallObject>(&object)))])
        .await;
    let answer = Ok([[192, 0, 2, 7].into()].into());
    scene.controller.told_after([WatchEvent::Name(LIKE_NAMESPACE_SET.into(), answer)]).await;
    let set = ObjectId::address_set(contract::ovn::NAMESPACE_SET, "ns2", "v4");
    assert_eq!(column(&scene.contents().await, "Address_Set", &set, "addresses"), "192.0.2.7");

    let from_ns2 = json!({"namespaceSelector": {"matchLabels": {"team": "t2"}}});
    let spec = json!({"podSelector": {}, "ingress": [{"from": [from_ns2]}]});
    scene.controller.observe(policy("ns0", "from-ns2", spec));
    let (refused, _, by) = scene.taken().await;
    assert_eq!(refused, Key::Set(SetId::Name(LIKE_NAMESPACE_SET.into())));
    assert!(by.contains("namespace ns2"), "{by}");
    // The one that names the set is told, too: nobody sees an event on a set.
    let (waits, row, by) = scene.taken().await;
    assert_eq!(waits, Key::custom(CustomKind::EgressFirewall, "ns1".into()), "{row} {by}");
    assert!(row.contains(&set.hashed()), "{row}");
    scene.controller.reaches("two are refused", |now| now.converged && now.failing == 2).await;
    let now = scene.contents().await;
    assert_eq!(column(&now, "Address_Set", &set, "addresses"), "10.0.1.85");
    assert!(column(&now, "Address_Set", &set, "external_ids").contains(":Namespace:ns2:v4"));
    scene.end().await;
}

/// A pod of a namespace that is called like a bridge took the place of the node's gateway, or could
/// keep the gateway from being made.
#[tokio::test]
async fn a_pod_whose_port_would_be_called_like_a_nodes_bridge_gives_way_to_the_gateway() {
    let mut scene = Scene::begin().await;
    let (_, other) = pod(4, 1, 0);
    let key = contract::names::PodKey::new("br-ex", "n1").unwrap();
    let namespace =
        WatchEvent::Namespaces(Seen::Applied((key.namespace().into(), Namespace::default())));
    let pod = WatchEvent::Pods(Seen::Applied((key.clone(), other)));
    scene.controller.told_after([namespace, pod]).await;
    let kind = |contents: &Contents| {
        let row = contents.row("Logical_Switch_Port", "br-ex_n1").cloned().unwrap_or_default();
        row.get("type").cloned().unwrap_or_default()
    };
    assert_eq!(kind(&scene.contents().await), "", "the pod is there first");

    let external = Gateway {
        interface: "br-ex_n1".to_owned(),
        mac: "52:54:00:00:00:01".parse().unwrap(),
        addresses: vec!["172.30.0.1/24".parse().unwrap()],
        next_hops: vec!["172.30.0.254".parse().unwrap()],
        vlan: None,
    };
    let node = with_gateway(Node { id: Some(2), ..node(1) }, GatewayMode::Shared, external);
    scene.controller.observe(WatchEvent::Nodes(Seen::Applied(node)));
    let (refused, row, by) = scene.taken().await;
    assert_eq!(refused, Key::Pod(key));
    assert!(row.contains("br-ex_n1") && by.contains("gateway of node n1"), "{row} {by}");
    scene.refuses_one().await;
    let now = scene.contents().await;
    assert_eq!(kind(&now), "localnet");
    assert!(now.row("Logical_Switch", "ext_n1").unwrap()["ports"].contains("<br-ex_n1>"));
    scene.end().await;
}

/// Its pods waited for its group: none of them started, and none was isolated by another policy.
#[tokio::test]
async fn the_pods_of_a_policy_that_the_database_refuses_start_and_are_isolated_by_others() {
    // Of a database whose schema is older than a severity, and has fewer priorities.
    let schema = Schema::with(|columns| {
        let severities =
            columns["severity"].pointer_mut("/type/key/enum/1").unwrap().as_array_mut().unwrap();
        severities.retain(|severity| severity != "debug");
        // It came with tiers.
        let actions =
            columns["action"].pointer_mut("/type/key/enum/1").unwrap().as_array_mut().unwrap();
        actions.retain(|action| action != "pass");
        actions.push(json!("pass"));
        columns.insert(
            "tier".to_owned(),
            json!({"type": {"key": {
                "type": "integer", "minInteger": 0, "maxInteger": 3,
            }}}),
        );
        *columns["priority"].pointer_mut("/type/key/maxInteger").unwrap() = json!(20_000);
    });
    let northbound = Northbound::with_schema(schema.path());
    let mut controller = Running::without_services(northbound.endpoint(), config());
    Scene::tell(&controller);
    controller.converged().await;
    let mut scene = Scene { controller, northbound };
    let logging = AclLogging { allow: Some(Severity::Debug), deny: None };
    let logged = (namespace(0), Namespace { logging, ..labelled(0) });
    scene.controller.observe(WatchEvent::Namespaces(Seen::Applied(logged)));
    let open = json!({"podSelector": {}, "policyTypes": ["Egress"], "egress": [{}]});
    scene.controller.observe(policy("ns0", "logged", open));
    let spec = json!({
        "tier": "Admin", "priority": 5, "subject": {"namespaces": {}},
        "ingress": [{"action": "Deny", "from": [{"namespaces": {"matchLabels": {"team": "none"}}}]}],
    });
    let object = json!({"metadata": {"name": "all", "uid": "1", "generation": 1}, "spec": spec});
    let all = read::<ClusterPolicyObject<OfCluster>>(&object);
    let kind = ClusterPolicyKind::ClusterNetworkPolicy;
    scene.controller.observe(WatchEvent::ClusterPolicies(kind, Seen::Applied(all)));
    scene.controller.reaches("two are refused", |now| now.failing == 2).await;

    scene.controller.observe(policy("ns0", "closed", closing()));
    scene.controller.observe(WatchEvent::Pods(Seen::Applied(pod(3, 1, 0))));
    let isolating = ObjectId::isolated("ns0", "Ingress");
    let begun = std::time::Instant::now();
    loop {
        let now = scene.contents().await;
        let ports = column(&now, "Port_Group", &isolating, "ports");
        if ports == "<ns0_p0>, <ns0_p3>" {
            break;
        }
        assert!(
            begun.elapsed() < deadline(),
            "isolated: {ports}; {:?}",
            scene.controller.progress.borrow()
        );
        tokio::task::yield_now().await;
    }
    assert_eq!(scene.controller.progress.borrow().failing, 2, "both are tried again");
    scene.end().await;
}
