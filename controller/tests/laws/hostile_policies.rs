//! Policies and EgressFirewalls that break their schema, or are of a size that no person writes:
//! what cannot be used is an event with a reason, it opens nothing, and others are written beside
//! it at the usual cost.

use std::{collections::BTreeSet, time::Duration};

use contract::{
    names::{ClusterPolicyKind, PolicyKey},
    ovn::ObjectId,
};
use controller::{
    engine::reconcile::Report,
    kinds::{
        cluster_policy::wire::{ClusterPolicyObject, OfCluster},
        egress_firewall::object::EgressFirewallObject,
        network_policy::wire::PolicyObject,
    },
    watch_event::{Seen, WatchEvent},
};
use kubeapi::watch::Watched;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::{
    cluster::{all_nodes, all_pods, config, node, pod},
    cost::computed,
    database::{Contents, Northbound, contents},
    policies::objects::{labelled, namespace},
    running::Running,
};

/// IP blocks, values and labels of one policy.
const MANY: usize = 10_000;
const VALUES: usize = 1000;

/// A controller with a node and the pods 0 to 2, each in a namespace of its own.
struct Scene {
    controller: Running,
    neighbours: u16,
    northbound: Northbound,
}

impl Scene {
    async fn begin() -> Self {
        let northbound = Northbound::start();
        let mut controller = Running::without_services(northbound.endpoint(), config());
        controller.observe(all_nodes([node(1)]));
        controller.observe(all_pods((0..3).map(|number| pod(number, 1, 0))));
        let namespaces = (0..3).map(|number| (namespace(number), labelled(0))).collect();
        controller.observe(WatchEvent::Namespaces(Seen::All(namespaces)));
        controller.converged().await;
        Self { controller, neighbours: 0, northbound }
    }

    /// Observes the object and a policy of another namespace, and waits for the rows of both.
    /// Returns the reasons of what was told of the object.
    async fn beside(&mut self, object: WatchEvent) -> Vec<&'static str> {
        self.neighbours += 1;
        let name = format!("good{}", self.neighbours);
        let port = 1000 + self.neighbours;
        let neighbour = policy(
            "ns1",
            &name,
            json!({
                // No pod's: the cost of a pod stays the same.
                "podSelector": {"matchLabels": {"app": "none"}}, "ingress": [{"ports": [{"port": port}]}],
            }),
        );
        let told = self.controller.told_after([object, neighbour]).await;
        let rows = self.contents().await;
        let id = format!("default-network-controller:NetworkPolicy:ns1:{name}:Ingress:0:tcp:-1");
        let row = rows.row("ACL", &id).expect("the neighbour's rule is written");
        assert!(row["match"].contains(&format!("tcp.dst=={port}")), "{row:?}");
        told.into_iter().filter_map(reason).collect()
    }

    /// Over a connection of its own: while thousands of rows are compared, nothing answers the
    /// server's probes.
    async fn contents(&self) -> Contents {
        contents(&self.northbound.open().await).await
    }

    /// Rows that are written when a pod of the namespace `ns1` comes.
    async fn cost_of_a_neighbours_pod(&mut self, number: u32) -> f64 {
        let rows =
            |controller: &Running| controller.counted("ovnkube_controller_nb_rows_written_total");
        let before = rows(&self.controller);
        self.controller.told_after([WatchEvent::Pods(Seen::Applied(pod(number, 1, 0)))]).await;
        rows(&self.controller) - before
    }
}

fn reason(report: Report) -> Option<&'static str> {
    match report {
        Report::Problem(of) => Some(of.reason),
        Report::Names(_) | Report::Reread(_) => None,
        other => panic!("{other:?}"),
    }
}

fn read<T: Watched + DeserializeOwned>(object: &Value) -> T::Value {
    serde_json::from_str::<T>(&object.to_string()).unwrap().value().unwrap()
}

fn policy(namespace: &str, name: &str, spec: Value) -> WatchEvent {
    let object =
        json!({"metadata": {"namespace": namespace, "name": name, "uid": name}, "spec": spec});
    WatchEvent::Policies(Seen::Applied(read::<PolicyObject>(&object)))
}

fn of_cluster(spec: Value) -> WatchEvent {
    let object =
        json!({"metadata": {"name": "hostile", "uid": "1", "generation": 1}, "spec": spec});
    let policy = read::<ClusterPolicyObject<OfCluster>>(&object);
    WatchEvent::ClusterPolicies(ClusterPolicyKind::ClusterNetworkPolicy, Seen::Applied(policy))
}

fn firewall(spec: Value) -> WatchEvent {
    let object = json!({"metadata": {"namespace": "ns0", "name": "default", "uid": "1"}, "spec": spec, "status": 7});
    WatchEvent::custom(Seen::Applied(read::<EgressFirewallObject>(&object)))
}

fn is_isolated(rows: &Contents, direction: &str, port: &str) -> bool {
    let group = rows.row("Port_Group", &ObjectId::isolated("ns0", direction).hashed());
    group.and_then(|row| row.get("ports")).is_some_and(|ports| ports.contains(port))
}

#[tokio::test]
async fn a_network_policy_that_breaks_its_schema_is_told_and_isolates_and_its_neighbours_are_written()
 {
    let mut scene = Scene::begin().await;
    let rule = |peer: Value, port: Value| json!({"podSelector": {}, "ingress": [{"from": [peer], "ports": [port]}]});
    let all = || json!({"podSelector": {}});
    for (spec, expected) in [
        (json!("nonsense"), "UnreadableSpec"),
        (json!([1, 2]), "UnreadableSpec"),
        (json!({"podSelector": 5}), "UnreadableSpec"),
        (json!({"ingress": "all"}), "UnreadableSpec"),
        (json!({"ingress": [{"ports": [{"port": {"number": 80}}]}]}), "UnreadableSpec"),
        (json!({"podSelector": {"matchLabels": ["app"]}}), "UnreadableSpec"),
        (
            json!({"podSelector": {"matchExpressions": [{"key": "app", "operator": "Gt", "values": ["1"]}]}}),
            "UnusableSelector",
        ),
        (json!({"podSelector": {}, "policyTypes": ["Sideways"]}), "UnknownPolicyType"),
        (rule(json!({}), json!({})), "UnusablePeer"),
        (rule(json!({"ipBlock": {"cidr": ""}}), json!({})), "NoNetwork"),
        (
            rule(json!({"ipBlock": {"cidr": "10.0.0.0/8", "except": ["fd00::/8"]}}), json!({})),
            "NoNetwork",
        ),
        (rule(all(), json!({"port": 0})), "NoPort"),
        (rule(all(), json!({"port": 70000})), "NoPort"),
        (rule(all(), json!({"port": 90, "endPort": 80})), "NoPort"),
        (rule(all(), json!({"endPort": 80})), "NoPort"),
        (rule(all(), json!({"port": "web", "endPort": 80})), "NoPort"),
        (rule(all(), json!({"protocol": "ICMP", "port": 80})), "UnknownProtocol"),
    ] {
        // Another object each time: what was told of one is not told again.
        let name = format!("hostile{}", scene.neighbours);
        let told = scene.beside(policy("ns0", &name, spec.clone())).await;
        assert_eq!(told, [expected], "{spec}");
        let rows = scene.contents().await;
        assert!(is_isolated(&rows, "Ingress", "ns0_p0"), "{spec}");
        let opens = rows.0.iter().filter(|((table, id, _), row)| {
            table == "ACL"
                && id.contains(&format!(":ns0:{name}:"))
                && row["action"].starts_with("allow")
        });
        assert_eq!(opens.count(), 0, "{spec}");
        let gone = PolicyKey::new("ns0", &name).unwrap();
        scene.controller.told_after([WatchEvent::Policies(Seen::Deleted(gone))]).await;
    }
}

#[tokio::test]
async fn a_policy_with_every_field_empty_is_what_its_definition_says() {
    let mut scene = Scene::begin().await;
    let empty = json!({"podSelector": {}, "policyTypes": [], "ingress": [], "egress": []});
    assert_eq!(scene.beside(policy("ns0", "empty", empty)).await, [""; 0]);
    let rows = scene.contents().await;
    // Without types and rules, ingress alone is isolated.
    assert!(is_isolated(&rows, "Ingress", "ns0_p0") && !is_isolated(&rows, "Egress", "ns0_p0"));
    let null = json!({"podSelector": null, "policyTypes": null, "ingress": null, "egress": null});
    assert_eq!(scene.beside(policy("ns0", "null", null)).await, [""; 0]);
    let empty = json!({"tier": "", "priority": null, "subject": {}, "ingress": [], "egress": []});
    assert_eq!(scene.beside(of_cluster(empty)).await, ["UnknownTier"]);
    assert_eq!(scene.beside(firewall(json!({"egress": []}))).await, [""; 0]);
    assert_eq!(
        scene.beside(firewall(json!({"egress": [{"type": "", "to": {}, "ports": []}]}))).await,
        ["UnknownType"]
    );
}

/// The specification of a policy of the cluster about all pods.
fn spec(tier: Value, priority: Value, egress: Value) -> Value {
    json!({"tier": tier, "priority": priority, "subject": {"namespaces": {}}, "egress": egress})
}

#[tokio::test]
async fn a_policy_of_the_cluster_that_breaks_its_schema_is_told_and_its_neighbours_are_written() {
    let mut scene = Scene::begin().await;
    let rule = |rule: Value| spec(json!("Admin"), json!(5), json!([rule]));
    let to = |peer: Value| rule(json!({"action": "Accept", "to": [peer]}));
    let port = |port: Value| {
        rule(json!({"action": "Accept", "to": [{"namespaces": {}}], "protocols": [port]}))
    };
    for (broken, expected) in [
        (json!(5), "UnreadableSpec"),
        (json!({"tier": {"name": "Admin"}}), "UnreadableSpec"),
        (spec(json!("Admin"), json!("first"), json!([])), "UnreadableSpec"),
        (spec(json!("Admin"), json!(5), json!({"to": "all"})), "UnreadableSpec"),
        (spec(json!("Top"), json!(5), json!([])), "UnknownTier"),
        (spec(json!("Admin"), json!(1001), json!([])), "UnusablePriority"),
        (spec(json!("Admin"), json!(-1), json!([])), "UnusablePriority"),
        (spec(json!("Baseline"), json!(i64::MAX), json!([])), "UnusablePriority"),
        (
            json!({"tier": "Admin", "priority": 5, "subject": {"pods": {}, "namespaces": {}}}),
            "NoSubject",
        ),
        (rule(json!({"action": "Permit", "to": [{"namespaces": {}}]})), "UnknownAction"),
        (rule(json!({"action": "Accept"})), "UnusablePeer"),
        (to(json!({"networks": [5]})), "UnusablePeer"),
        (to(json!({"networks": ["10.0.0.0/33"]})), "NoNetwork"),
        (to(json!({"nodes": []})), "UnusablePeer"),
        (to(json!({"domainNames": ["*.example.org"]})), "Wildcard"),
        (to(json!({"domainNames": ["x".repeat(10_000)]})), "NoName"),
        (port(json!({"tcp": {"destinationPort": {}}})), "NoPort"),
        (port(json!({"tcp": {"destinationPort": {"range": {"start": 9, "end": 8}}}})), "NoPort"),
        (port(json!({"tcp": {"destinationPort": {"number": "80"}}})), "NoPort"),
        (port(json!({"destinationNamedPort": ""})), "NoPort"),
        (port(json!({"icmp": {}})), "NoPort"),
    ] {
        assert_eq!(scene.beside(of_cluster(broken.clone())).await, [expected], "{broken}");
        assert_eq!(
            scene.beside(of_cluster(spec(json!("Admin"), json!(5), json!([])))).await,
            [""; 0]
        );
    }
}

#[tokio::test]
async fn an_egress_firewall_that_breaks_its_schema_is_told_and_its_neighbours_are_written() {
    let mut scene = Scene::begin().await;
    let rule = |rule: Value| json!({"egress": [rule]});
    let to = |to: Value| rule(json!({"type": "Allow", "to": to}));
    for (broken, expected) in [
        (json!(5), "UnreadableSpec"),
        (json!({"egress": "all"}), "UnreadableSpec"),
        (rule(json!(7)), "UnreadableRule"),
        (rule(json!({"type": 1, "to": {}})), "UnreadableRule"),
        (rule(json!({"type": "Permit", "to": {"cidrSelector": "192.0.2.0/24"}})), "UnknownType"),
        (to(json!({"cidrSelector": "192.0.2.0/24", "dnsName": "a.example"})), "NoDestination"),
        (to(json!({"cidrSelector": {"net": "192.0.2.0/24"}})), "NoDestination"),
        (to(json!({"cidrSelector": "192.0.2.0"})), "NoNetwork"),
        (to(json!({"dnsName": "*.example.org"})), "Wildcard"),
        (
            rule(json!({
                "type": "Deny", "to": {"cidrSelector": "192.0.2.0/24"},
                "ports": [{"protocol": "TCP", "port": -1}],
            })),
            "NoPort",
        ),
    ] {
        assert_eq!(scene.beside(firewall(broken.clone())).await, [expected], "{broken}");
        let good = json!({"egress": [{"type": "Deny", "to": {"cidrSelector": "198.51.100.0/24"}}]});
        assert_eq!(scene.beside(firewall(good)).await, [""; 0]);
    }
}

#[tokio::test]
async fn ten_thousand_ip_blocks_cost_their_own_policy_alone() {
    let mut scene = Scene::begin().await;
    let usual = scene.cost_of_a_neighbours_pod(4).await;
    let net = |number: usize| format!("172.{}.{}.0/24", 16 + number / 256, number % 256);
    let plain: Vec<Value> =
        (0..MANY).map(|number| json!({"ipBlock": {"cidr": net(number)}})).collect();
    let spec = json!({"podSelector": {}, "ingress": [{"from": plain}]});
    assert_eq!(scene.beside(policy("ns0", "blocks", spec)).await, [""; 0]);
    let of_policy = |rows: &Contents| -> Vec<String> {
        let acls = rows
            .0
            .iter()
            .filter(|((table, id, _), _)| table == "ACL" && id.contains(":ns0:blocks:"));
        acls.map(|(_, row)| row["match"].clone()).collect()
    };
    let acls = of_policy(&scene.contents().await);
    assert_eq!(acls.len(), 1, "blocks without exceptions are one match");
    let last = net(MANY - 1);
    assert!(acls[0].contains(&net(0)) && acls[0].contains(&last), "all of them are in it");
    assert_eq!(scene.cost_of_a_neighbours_pod(7).await, usual);

    let except = |number: usize| net(number).replace(".0/24", ".128/25");
    let blocks = |from: std::ops::Range<usize>| -> Vec<Value> {
        from.map(|number| json!({"ipBlock": {"cidr": net(number), "except": [except(number)]}}))
            .collect()
    };
    let spec = json!({"podSelector": {}, "ingress": [{"from": blocks(0..MANY)}]});
    assert_eq!(scene.beside(policy("ns0", "blocks", spec)).await, [""; 0]);
    let acls = of_policy(&scene.contents().await);
    assert_eq!(acls.len(), 1, "nor do exceptions make another one");
    for number in [0, MANY - 1] {
        let left = format!("ip4.src == {}", net(number).replace(".0/24", ".0/25"));
        assert!(acls[0].contains(&left), "{left}");
    }
    assert_eq!(scene.cost_of_a_neighbours_pod(10).await, usual);
    let spec = json!({"podSelector": {}, "ingress": [{"from": blocks(0..2)}]});
    assert_eq!(scene.beside(policy("ns0", "blocks", spec)).await, [""; 0]);
    assert_eq!(of_policy(&scene.contents().await).len(), 1);
}

/// Each of them was searched for in all that follows it, and among all before it: seconds in which
/// nothing else is done, at each comparison.
#[tokio::test]
async fn blocks_with_exceptions_of_both_families_are_compared_in_the_time_of_their_number() {
    let mut scene = Scene::begin().await;
    let block = |number: usize| {
        let (high, low) = (number / 256, number % 256);
        let v4 = json!({"ipBlock": {"cidr": format!("10.{high}.{low}.0/24"), "except": [format!("10.{high}.{low}.0/25")]}});
        let v6 = json!({"ipBlock": {"cidr": format!("fd{high:02x}:{low:x}::/32"), "except": [format!("fd{high:02x}:{low:x}::/33")]}});
        [v4, v6]
    };
    let blocks: Vec<Value> = (0..7_000).flat_map(block).collect();
    let spec = json!({"podSelector": {}, "ingress": [{"from": blocks}]});
    let before = computed();
    // The cluster has IPv4 alone.
    assert_eq!(scene.beside(policy("ns0", "blocks", spec)).await, ["EmptyBlock"]);
    let took = computed() - before;
    assert!(took < Duration::from_secs(30), "{took:.1?} of computing");
    let rows = scene.contents().await;
    let acl =
        rows.0.iter().find(|((table, id, _), _)| table == "ACL" && id.contains(":ns0:blocks:"));
    let matching = &acl.expect("its rule").1["match"];
    assert!(
        matching.contains("10.0.0.128/25") && matching.contains("fd1b:57:8000::/33"),
        "{} bytes",
        matching.len()
    );
}

/// The API server takes 1.5 MB: 400,000 rules of three bytes.
#[tokio::test]
async fn a_policy_beyond_a_limit_isolates_and_allows_nothing_and_the_event_names_limit_and_value() {
    let mut scene = Scene::begin().await;
    let usual = scene.cost_of_a_neighbours_pod(4).await;
    let port = |number: usize| json!({"ports": [{"port": number}]});
    let peer = |number: usize| json!({"namespaceSelector": {}, "podSelector": {"matchLabels": {"app": format!("a{number}")}}});
    let block = |number: usize| json!({"ipBlock": {"cidr": format!("10.{}.{}.0/24", number / 256, number % 256)}});
    let blocks: Vec<Value> = (0..20_000).map(block).collect();
    for (name, ingress, expected) in [
        (
            "bytes",
            json!(vec![json!({}); 400_000]),
            "it has 1200031 bytes of specification, and 1048576 can be used",
        ),
        ("acls", (1..=5000).map(port).collect(), "it has 5000 ACLs, and 4096 can be used"),
        (
            "elements",
            json!([{"from": blocks, "ports": [{"port": 1}, {"port": 1, "protocol": "UDP"}]}]),
            "it has 40002 networks, address sets and ports in matches, and 32768 can be used",
        ),
        (
            "sets",
            json!([{"from": (0..300).map(peer).collect::<Vec<_>>()}]),
            "it has 300 different selectors of peers and names of ports, and 256 can be used",
        ),
    ] {
        let spec = json!({"podSelector": {}, "ingress": ingress});
        let told = scene.controller.told_after([policy("ns0", name, spec)]).await;
        let told: Vec<(String, &str)> = told
            .iter()
            .filter_map(|report| match report {
                Report::Problem(of) => Some((of.note.clone(), of.reason)),
                _ => None,
            })
            .collect();
        let wanted = format!("{expected}; it isolates its pods and allows nothing");
        assert_eq!(told, [(wanted, "TooLarge")], "{name}");
        let rows = scene.contents().await;
        assert!(is_isolated(&rows, "Ingress", "ns0_p0"), "{name}");
        let acls = rows
            .0
            .keys()
            .filter(|(table, id, _)| table == "ACL" && id.contains(&format!(":ns0:{name}:")));
        assert_eq!(acls.count(), 0, "{name}");
    }
    assert_eq!(scene.cost_of_a_neighbours_pod(7).await, usual);
}

/// Each rule named the set of each namespace, and each new namespace changed every rule.
#[tokio::test]
async fn a_new_namespace_among_many_changes_no_rule_that_selects_namespaces() {
    let mut scene = Scene::begin().await;
    let spec = json!({"podSelector": {}, "ingress": [{"from": [{"namespaceSelector": {}}]}]});
    assert_eq!(scene.beside(policy("ns0", "all", spec)).await, [""; 0]);
    let matching = |rows: &Contents| {
        let acl =
            rows.0.iter().find(|((table, id, _), _)| table == "ACL" && id.contains(":ns0:all:"));
        acl.map(|(_, row)| row["match"].clone()).expect("its rule")
    };
    let few = matching(&scene.contents().await);
    assert_eq!(few.matches('$').count() % 3, 0, "{few}");
    let new = |number| WatchEvent::Namespaces(Seen::Applied((namespace(number), labelled(0))));
    for number in 3..9 {
        scene.beside(new(number)).await;
    }
    let many = matching(&scene.contents().await);
    assert!(many.matches('$').count() < few.matches('$').count(), "{many}");
    scene.beside(new(9)).await;
    let rows = scene.contents().await;
    assert_eq!(matching(&rows), many);
    let set = rows.0.iter().find(|((table, ..), row)| {
        table == "Address_Set" && row["external_ids"].contains("LS{}_LS{}")
    });
    let addresses = &set.expect("the set of the selector").1["addresses"];
    for address in ["10.0.1.3", "10.0.1.44", "10.0.1.85"] {
        assert!(addresses.contains(address), "{addresses}");
    }
}

/// A policy of a namespace, created in this second.
fn aged(name: &str, created: u32, ports: std::ops::Range<u32>) -> WatchEvent {
    let ports: Vec<Value> = ports.map(|port| json!({"ports": [{"port": port}]})).collect();
    let created = format!("2024-01-01T00:00:{created:02}Z");
    let object = json!({
        "metadata": {"namespace": "ns0", "name": name, "uid": name, "resourceVersion": "7", "creationTimestamp": created},
        "spec": {"podSelector": {}, "ingress": ports},
    });
    WatchEvent::Policies(Seen::Applied(read::<PolicyObject>(&object)))
}

/// As the watches do: the policies that are to be read again.
fn rereads(reports: &[Report]) -> Vec<String> {
    let wanted = reports.iter().filter_map(|report| match report {
        Report::Reread(key) => Some(key.name().to_owned()),
        _ => None,
    });
    wanted.collect()
}

#[tokio::test]
async fn the_newest_policies_of_a_namespace_beyond_its_limits_are_closed_until_there_is_room() {
    let mut scene = Scene::begin().await;
    let acls = |rows: &Contents, name: &str| {
        let id = format!(":ns0:{name}:");
        rows.0.keys().filter(|(table, of, _)| table == "ACL" && of.contains(&id)).count()
    };
    // 4,000 each, of 8,192.
    let told = scene.controller.told_after([aged("c", 3, 1..4001), aged("b", 2, 1..4001)]).await;
    assert!(told.is_empty(), "{told:?}");
    let told = scene.controller.told_after([aged("a", 4, 1..4001)]).await;
    let [Report::Problem(of)] = &told[..] else { panic!("{told:?}") };
    assert_eq!(
        (of.object.name(), of.reason, &*of.note),
        (
            "a",
            "TooLarge",
            "with it and its elders the objects of kind NetworkPolicy in the namespace have 12000 ACLs, and 8192 \
             can be used; it isolates its pods and allows nothing"
        )
    );
    let rows = scene.contents().await;
    assert_eq!(["a", "b", "c"].map(|name| acls(&rows, name)), [0, 4000, 4000]);
    assert!(is_isolated(&rows, "Ingress", "ns0_p0"));
    // An older one takes the room of the newest.
    let told = scene.controller.told_after([aged("older", 1, 1..501)]).await;
    let [Report::Problem(of)] = &told[..] else { panic!("{told:?}") };
    assert_eq!((of.object.name(), of.reason), ("c", "TooLarge"));
    let rows = scene.contents().await;
    assert_eq!(["a", "b", "c", "older"].map(|name| acls(&rows, name)), [0, 4000, 0, 500]);
    let gone = PolicyKey::new("ns0", "older").unwrap();
    let told = scene.controller.told_after([WatchEvent::Policies(Seen::Deleted(gone))]).await;
    assert_eq!(rereads(&told), ["c"], "the elder of both");
    let WatchEvent::Policies(Seen::Applied((key, policy))) = aged("c", 3, 1..4001) else {
        panic!("a policy")
    };
    let told = scene.controller.told_after([WatchEvent::Reread(key, Box::new(policy))]).await;
    assert!(told.is_empty(), "{told:?}");
    let rows = scene.contents().await;
    assert_eq!(["a", "b", "c", "older"].map(|name| acls(&rows, name)), [0, 4000, 4000, 0]);
}

#[tokio::test]
async fn equal_rules_are_written_once() {
    let mut scene = Scene::begin().await;
    let rules =
        [vec![json!({}); 10_000], vec![json!({"ports": [{"port": 1}]}), json!({})]].concat();
    let spec = json!({"podSelector": {}, "ingress": rules});
    assert_eq!(scene.beside(policy("ns0", "equal", spec)).await, [""; 0]);
    let rows = scene.contents().await;
    let ids = rows.0.keys().filter(|(table, id, _)| table == "ACL" && id.contains(":ns0:equal:"));
    let ids: Vec<&str> = ids.map(|(_, id, _)| id.rsplit("equal:").next().unwrap()).collect();
    assert_eq!(ids, ["Ingress:0:None:-1", "Ingress:10000:tcp:-1"]);
}

#[tokio::test]
async fn a_firewall_or_a_policy_of_the_cluster_beyond_a_limit_denies_everything() {
    let mut scene = Scene::begin().await;
    let ports: Vec<Value> =
        (1..=40_000).map(|port| json!({"protocol": "TCP", "port": port})).collect();
    let rule = json!({"type": "Allow", "to": {"cidrSelector": "192.0.2.0/24"}, "ports": ports});
    let told = scene.beside(firewall(json!({"egress": [rule]}))).await;
    assert_eq!(told, ["TooLarge"]);
    let told = scene.beside(firewall(json!({"egress": vec![json!({}); 400_000]}))).await;
    assert_eq!(told, ["TooLarge"]);
    let nets: Vec<String> =
        (0..40_000).map(|number| format!("10.{}.{}.0/24", number / 256, number % 256)).collect();
    let rule = json!({"action": "Accept", "to": [{"networks": nets}]});
    assert_eq!(
        scene.beside(of_cluster(spec(json!("Admin"), json!(5), json!([rule])))).await,
        ["TooLarge"]
    );
    let rows = scene.contents().await;
    for owner in ["EgressFirewall:ns0:", "ClusterNetworkPolicy:hostile:"] {
        let acls: Vec<_> = rows
            .0
            .iter()
            .filter(|((table, id, _), _)| table == "ACL" && id.contains(owner))
            .collect();
        let [(_, acl)] = &acls[..] else { panic!("{owner}: {acls:?}") };
        assert_eq!(acl["action"], "drop", "{owner}");
    }
}

fn long(last: &str) -> String {
    format!("{}{last}", "a.".repeat(126))
}

/// OVN names port groups by a hash, and ACLs by 63 characters at most.
#[tokio::test]
async fn names_of_253_characters_with_dots_are_different_policies() {
    let mut scene = Scene::begin().await;
    let mut groups = BTreeSet::new();
    for last in ["a", "b"] {
        let name = long(last);
        assert_eq!(name.len(), 253);
        let spec = json!({"podSelector": {}, "egress": [{"ports": [{"port": 80}]}], "policyTypes": ["Egress"]});
        assert_eq!(scene.beside(policy("ns0", &name, spec)).await, [""; 0]);
        groups.insert(ObjectId::policy(&PolicyKey::new("ns0", &name).unwrap()).hashed());
    }
    let rows = scene.contents().await;
    assert_eq!(groups.len(), 2);
    for group in groups {
        let row = rows.row("Port_Group", &group).expect("each has its group");
        assert!(row["ports"].contains("ns0_p0") && row["acls"].contains(":ns0:a."), "{row:?}");
    }
}

#[tokio::test]
async fn selectors_with_a_thousand_values_select_what_one_value_selects() {
    let mut scene = Scene::begin().await;
    let usual = scene.cost_of_a_neighbours_pod(4).await;
    let values = |own: &str| {
        (0..VALUES).map(|n| format!("v{n}")).chain([own.to_owned()]).collect::<Vec<_>>()
    };
    let one_of = |operator: &str, own: &str| {
        let expression = json!({"key": "app", "operator": operator, "values": values(own)});
        json!({ "matchExpressions": [expression] })
    };
    let labels: serde_json::Map<String, Value> =
        (0..VALUES).map(|n| (format!("k{n}"), json!("v"))).collect();
    // The label of pod 0 is `app: a0`, and of pod 1 `app: a1`.
    let peers = json!([
        {"namespaceSelector": {}, "podSelector": one_of("In", "a1")},
        {"namespaceSelector": {}, "podSelector": one_of("NotIn", "a1")},
        {"podSelector": {"matchLabels": labels}},
    ]);
    for (name, selected, is_selected) in [
        ("in", one_of("In", "a0"), true),
        ("not-in", one_of("NotIn", "other"), true),
        ("none", one_of("NotIn", "a0"), false),
    ] {
        let spec = json!({"podSelector": selected, "ingress": [{"from": peers}]});
        assert_eq!(scene.beside(policy("ns0", name, spec)).await, [""; 0]);
        let rows = scene.contents().await;
        let group = ObjectId::policy(&PolicyKey::new("ns0", name).unwrap()).hashed();
        let ports = rows.row("Port_Group", &group).expect("its group").get("ports");
        assert_eq!(ports.is_some_and(|ports| ports.contains("ns0_p0")), is_selected, "{name}");
    }
    let rows = scene.contents().await;
    let addresses = |operator: &str| -> Vec<&str> {
        let sets = rows.0.iter().filter(|((table, ..), row)| {
            table == "Address_Set" && row["external_ids"].contains(&format!("Operator:{operator},"))
        });
        sets.filter_map(|(_, row)| row.get("addresses")).map(String::as_str).collect()
    };
    let address = |number: u32| format!("10.0.1.{}", 3 + 41 * number);
    let (within, without) = (addresses("In"), addresses("NotIn"));
    assert!(
        within.len() == 1 && within[0].contains(&address(1)) && !within[0].contains(&address(0)),
        "{within:?}"
    );
    assert!(
        without.len() == 1 && without[0].contains(&address(0)) && !without[0].contains(&address(1)),
        "{without:?}"
    );
    assert_eq!(
        scene.cost_of_a_neighbours_pod(10).await,
        usual + 1.0,
        "the pod's address is in one more set"
    );
}
