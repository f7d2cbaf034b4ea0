//! `ovnkube policy explain` with a real northbound database that the control plane has written, and
//! an API server that the test plays. What it says is compared with the model in random worlds, and
//! what the database does with both.

#![expect(clippy::unwrap_used, reason = "the shared parts of tests fail by panicking")]

#[path = "explain/cluster.rs"]
mod cluster;

use std::process::Output;

use contract::ovn::{CLUSTER_PORT_GROUP, ObjectId};
use oracle::{
    egress_firewall::{self, EgressFirewall, To},
    policies::{
        Cidr, ContainerPort, Direction, End, Namespace, NetworkPolicy, Number, Peer, Pod, Port,
        Rule, Selector, World,
        cluster::{Action, ClusterPeer, ClusterPolicy, ClusterRule, Kind, Tier},
        outside,
        random::{Passes, tiered_world},
        verdict::Place,
    },
    world::Protocol,
};
use ovsdb::{Condition, Connection, Mutation, Row, Transaction, Where};
use proptest::{
    strategy::{Strategy, ValueTree},
    test_runner::TestRunner,
};
use serde_json::{Value, json};

use cluster::{Cluster, SCHEMA, objects};

/// Random worlds, and questions to each of them.
const WORLDS: usize = 4;
const QUESTIONS: usize = 24;

fn selector(labels: &[(&'static str, &'static str)]) -> Selector {
    Selector { match_labels: labels.to_vec(), match_expressions: Vec::new() }
}

fn pod(name: &str, host: u8, app: &'static str) -> Pod {
    let ports = vec![ContainerPort { name: "db", protocol: Protocol::Tcp, number: 5432 }];
    Pod {
        namespace: "shop",
        name: name.to_owned(),
        node: 1,
        host,
        labels: vec![("app", app)],
        ports,
    }
}

/// Of the pods of the shop, only the web servers may connect to the database, and one web server
/// may not.
fn shop() -> World {
    let from_web = Rule {
        peers: vec![Peer::Selectors { namespaces: None, pods: Some(selector(&[("app", "web")])) }],
        ports: vec![Port { protocol: None, number: Some(Number::Named("db")) }],
    };
    let deny = ClusterRule {
        action: Action::Deny,
        peers: vec![ClusterPeer::Pods(selector(&[]), selector(&[("app", "old")]))],
        ports: Vec::new(),
    };
    World {
        namespaces: vec![Namespace { name: "shop", labels: Vec::new() }],
        pods: vec![pod("web", 3, "web"), pod("old", 4, "old"), pod("db", 5, "db")],
        policies: vec![NetworkPolicy {
            namespace: "shop",
            name: "db".to_owned(),
            pod_selector: selector(&[("app", "db")]),
            policy_types: vec![Direction::Ingress],
            ingress: vec![from_web],
            egress: Vec::new(),
        }],
        cluster_policies: vec![ClusterPolicy {
            kind: Kind::ClusterNetworkPolicy(Tier::Admin, 5),
            name: "old".to_owned(),
            subject: (selector(&[]), None),
            ingress: vec![deny],
            egress: Vec::new(),
        }],
    }
}

/// The first page, of IPv4, without UUIDs. Tiers are those of a database that has none.
fn first_page(output: &Output) -> String {
    let text = String::from_utf8(output.stdout.clone()).unwrap();
    let page: Vec<&str> = text.split("\nshop/").next().unwrap().lines().collect();
    let without_uuid = page.into_iter().map(|line| match line.trim_start().strip_prefix("ACL ") {
        Some(rest) => format!("    ACL UUID{}", &rest[36..]),
        None => line.to_owned(),
    });
    let page = without_uuid.collect::<Vec<_>>().join("\n");
    page.replace("tier 1", "tier 0").replace("tier 2", "tier 0").trim_end().to_owned()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_explanation_names_policies_rules_and_acls() {
    let cluster = Cluster::start(&shop(), &shop()).await;
    let output = cluster.explain(&["shop/web", "shop/db", "5432"]).await;
    assert!(output.status.success(), "{output:?}");
    let page = first_page(&output);
    let expected = include_str!("explain/allowed.txt").trim_end();
    assert_eq!(page, expected, "\n{page}");
    let output = cluster.explain(&["shop/old", "shop/db", "5432/tcp"]).await;
    assert!(output.status.success(), "{output:?}");
    let page = first_page(&output);
    let expected = include_str!("explain/denied.txt").trim_end();
    assert_eq!(page, expected, "\n{page}");
}

/// What policies cannot forbid: it stays inside of the pod.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pod_always_reaches_itself() {
    let cluster = Cluster::start(&shop(), &shop()).await;
    let output = cluster.explain(&["shop/db", "shop/db", "5432"]).await;
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{output:?}");
    let why = "Ingress of shop/db: allowed\n  a pod always reaches itself\n";
    assert!(text.contains(why) && !text.contains("denied"), "{text}");
}

/// For programs it is a report, with the rule that decides and the ACLs that carry it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_explanation_has_a_form_for_programs() {
    let cluster = Cluster::start(&shop(), &shop()).await;
    let output = cluster.explain(&["shop/old", "shop/db", "5432", "-o", "json"]).await;
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(report["kind"], "Explanation", "{report:#}");
    let findings = report["findings"].as_array().unwrap();
    let of = |subject: &str| findings.iter().find(|it| it["subject"] == subject).unwrap();
    let verdict = of("verdict");
    assert_eq!(
        (&verdict["state"], &verdict["details"]["allowed"]),
        (&json!("failed"), &json!(false))
    );
    assert_eq!(verdict["details"]["port"], 5432);
    let policies = &of("Ingress")["details"]["policies"];
    let deciding: Vec<&Value> = policies
        .as_array()
        .unwrap()
        .iter()
        .filter(|policy| policy["rules"].as_array().unwrap().iter().any(|it| it["decides"] == true))
        .collect();
    let [decides] = deciding[..] else { panic!("{policies:#}") };
    assert_eq!(
        (&decides["kind"], &decides["name"]),
        (&json!("ClusterNetworkPolicy"), &json!("old"))
    );
    let acls =
        findings.iter().flat_map(|it| it["details"]["acls"].as_array().into_iter().flatten());
    assert!(acls.clone().any(|acl| acl["action"] == "drop"), "{report:#}");
    let yaml = cluster.explain(&["shop/old", "shop/db", "5432", "-o", "yaml"]).await;
    assert!(String::from_utf8_lossy(&yaml.stdout).contains("kind: Explanation\n"), "{yaml:?}");
}

/// A dry run does not count, and is said to have no effect, and what it would do.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dry_run_is_named_with_what_it_would_do_and_changes_no_verdict() {
    let mut world = shop();
    world.cluster_policies.clear();
    let mut manifests = world.manifests();
    manifests.policies[0]["metadata"]["annotations"] =
        json!({"k8s.ovn.org/policy-dry-run": "true"});
    let cluster = Cluster::of(objects(&world, manifests.clone()), &world, manifests).await;
    for (client, then) in [("shop/web", "allowed"), ("shop/old", "denied")] {
        let output = cluster.explain(&[client, "shop/db", "5432"]).await;
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success(), "{output:?}");
        for part in [
            "TCP port 5432: allowed\n".to_owned(),
            "dry run, without effect: NetworkPolicy shop/db\n".to_owned(),
            format!("with all dry runs enforced: {then}\n"),
        ] {
            assert!(text.contains(&part), "{part}{text}");
        }
    }
}

/// Rows that were lost, and policies that the control plane has not read, are what the command is
/// for.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_database_that_does_not_do_what_policies_say_is_told() {
    let cluster = Cluster::start(&shop(), &shop()).await;
    let connection =
        Connection::open(&cluster.endpoint(), "OVN_Northbound", ovsdb::Options::default())
            .await
            .unwrap();
    let mut drift = Transaction::new();
    drift.update("ACL", Condition::equal("action", "drop"), Row::new().with("action", "allow"));
    connection.transact(drift).await.unwrap();
    let output = cluster.explain(&["shop/old", "shop/db", "5432"]).await;
    let text = String::from_utf8_lossy(&output.stdout);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert!(text.contains("database: DIFFERENT, it is allowed there"), "{text}");

    // An ACL of somebody else, about something that is not known of the connection.
    let mut foreign = Transaction::new();
    foreign.update("ACL", Where::all(), Row::new().with("match", "ct.est && ip4"));
    connection.transact(foreign).await.unwrap();
    let output = cluster.explain(&["shop/old", "shop/db", "5432"]).await;
    let text = String::from_utf8_lossy(&output.stdout);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert!(text.contains("database: not known, for an ACL cannot be evaluated"), "{text}");

    let empty = Cluster::start(&shop(), &World::default()).await;
    let output = empty.explain(&["shop/web", "shop/db", "5432"]).await;
    let text = String::from_utf8_lossy(&output.stdout);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert!(text.contains("database: it has no port of this pod"), "{text}");
}

/// One that names no group in its match counts on every switch.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_acl_of_the_group_with_a_port_on_every_switch_is_asked() {
    let cluster = Cluster::start(&shop(), &shop()).await;
    let connection =
        Connection::open(&cluster.endpoint(), "OVN_Northbound", ovsdb::Options::default())
            .await
            .unwrap();
    let mut everywhere = Transaction::new();
    let drop =
        Row::new().with("action", "drop").with("direction", "to-lport").with("priority", 32_000);
    let acl = everywhere.insert("ACL", drop.with("match", "tcp.dst == 5432"));
    let group = ObjectId::cluster_port_group(CLUSTER_PORT_GROUP).hashed();
    everywhere.mutate(
        "Port_Group",
        Condition::equal("name", group),
        vec![Mutation::insert("acls", &acl)],
    );
    connection.transact(everywhere).await.unwrap();
    let output = cluster.explain(&["shop/web", "shop/db", "5432"]).await;
    let text = String::from_utf8_lossy(&output.stdout);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert!(text.contains("database: DIFFERENT, it is denied there"), "{text}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_cannot_be_answered_is_said_and_is_no_verdict() {
    let world = shop();
    let mut found = objects(&world, world.manifests());
    let mut like_web = |name: &str, change: &dyn Fn(&mut Value)| {
        let mut pod = found["/api/v1/namespaces/shop/pods/web"].clone();
        change(&mut pod);
        found.insert(format!("/api/v1/namespaces/shop/pods/{name}"), pod);
    };
    like_web("ended", &|pod| {
        pod["metadata"]["name"] = json!("ended");
        pod["status"]["phase"] = json!("Succeeded");
    });
    like_web("v4", &|pod| {
        pod["metadata"]["name"] = json!("v4");
        let network = json!({"default": {
            "ip_addresses": ["10.244.1.9/24"], "mac_address": "0a:58:0a:f4:01:09", "gateway_ips": ["10.244.1.1"],
        }});
        pod["metadata"]["annotations"] = json!({"k8s.ovn.org/pod-networks": network.to_string()});
    });
    let cluster = Cluster::of(found, &world, world.manifests()).await;
    for (question, code, why) in [
        (vec!["shop/web", "shop/nobody", "80"], 1, "read /api/v1/namespaces/shop/pods/nobody"),
        (vec!["shop/web", "elsewhere/db", "80"], 1, "read /api/v1/namespaces/elsewhere"),
        (vec!["shop/web", "node/node9", "80"], 1, "there is no node \"node9\""),
        (vec!["shop/web", "10.244.1.77", "80"], 1, "the pods of node node1, and no pod has it"),
        (
            vec!["shop/web", "127.0.0.1", "80"],
            1,
            "127.0.0.1 is no address that another machine can",
        ),
        (vec!["192.0.2.7", "node/node1", "80"], 1, "neither end is a pod in the cluster's network"),
        (vec!["shop/ended", "shop/db", "80"], 1, "pod shop/ended has ended"),
        (vec!["shop/v4", "2001:db8::7", "80"], 1, "no address of a family in common"),
        (vec!["shop/web", "shop/db"], 2, "<PORT[/PROTOCOL]>"),
        (vec!["shop/web", "shop/db", "80", "--nonsense"], 2, "'--nonsense'"),
        (vec!["shop/web", "shop/db", "80", "--db-txn-timeout=nonsense"], 2, "--db-txn-timeout"),
    ] {
        let output = cluster.explain(&question).await;
        let text = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{question:?}: {output:?}");
        assert!(text.contains(why) && output.stdout.is_empty(), "{question:?}: {text}");
    }
}

fn to_outside(rules: Vec<egress_firewall::Rule>) -> EgressFirewall {
    EgressFirewall { namespace: "shop", rules }
}

fn firewall_rule(action: egress_firewall::Action, to: &str, length: u8) -> egress_firewall::Rule {
    let to = To::Cidr(Cidr(to.parse().unwrap(), length));
    egress_firewall::Rule { action, to, ports: Vec::new() }
}

/// Of a connection that leaves the cluster, the EgressFirewall is asked as well.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_connection_out_of_the_cluster_needs_the_consent_of_the_egress_firewall() {
    let world = shop();
    let firewall = to_outside(vec![
        firewall_rule(egress_firewall::Action::Allow, "192.0.2.0", 28),
        firewall_rule(egress_firewall::Action::Deny, "0.0.0.0", 0),
    ]);
    let manifests = world.manifests();
    let found = objects(&world, manifests.clone());
    let cluster = Cluster::with_firewalls(found, &world, manifests, &[firewall]).await;
    for (server, verdict, decides) in [
        ("192.0.2.7", "allowed", "rule 0 (allow): it is about this connection  <- decides"),
        ("203.0.113.7", "denied", "rule 1 (deny): it is about this connection  <- decides"),
        // A node is outside of the pods' networks, too.
        ("node/node1", "denied", "rule 1 (deny): it is about this connection  <- decides"),
        ("2001:db8::7", "allowed", "no rule is about this connection"),
    ] {
        let output = cluster.explain(&["shop/web", server, "443"]).await;
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success(), "{output:?}");
        assert!(text.contains(&format!("EgressFirewall of namespace shop: {verdict}\n")), "{text}");
        assert!(text.contains(&format!(", TCP port 443: {verdict}\n")), "{text}");
        assert!(text.contains(decides) && text.contains("database: the same"), "{text}");
    }
    let output = cluster.explain(&["shop/web", "shop/db", "5432"]).await;
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && !text.contains("EgressFirewall"), "{text}");

    let connection =
        Connection::open(&cluster.endpoint(), "OVN_Northbound", ovsdb::Options::default())
            .await
            .unwrap();
    let mut drift = Transaction::new();
    drift.update("ACL", Condition::equal("priority", 9_999), Row::new().with("action", "allow"));
    connection.transact(drift).await.unwrap();
    let output = cluster.explain(&["shop/web", "203.0.113.7", "443"]).await;
    let text = String::from_utf8_lossy(&output.stdout);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert!(text.contains("database: DIFFERENT, it is allowed there"), "{text}");
}

/// The policy of the shop closes its database to all but web servers.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_reaches_its_own_pods_whatever_policies_say_and_no_other_machine_does() {
    let mut world = shop();
    world.pods.push(Pod { node: 2, ..pod("far", 3, "far") });
    let mut found = objects(&world, world.manifests());
    let mut host = found["/api/v1/namespaces/shop/pods/web"].clone();
    host["metadata"] =
        json!({"namespace": "shop", "name": "agent", "uid": "agent", "labels": {"app": "web"}});
    host["spec"]["hostNetwork"] = json!(true);
    found.insert("/api/v1/namespaces/shop/pods/agent".to_owned(), host);
    let cluster = Cluster::of(found, &world, world.manifests()).await;
    let own = "a node always reaches its own pods";
    let isolated =
        "denied: NetworkPolicies select the pod, and no rule of theirs is about this connection";
    for (client, title, verdict, why) in [
        ("node/node1", "node node1 (10.244.1.2)", "allowed", own),
        ("10.244.1.2", "node node1 (10.244.1.2)", "allowed", own),
        // Its label is that of web servers, which does not count: a pod in its node's network is
        // the node.
        ("shop/agent", "shop/agent in the network of node node1 (10.244.1.2)", "allowed", own),
        ("node/node2", "node node2 (10.244.2.2)", "denied", isolated),
        ("172.30.0.11", "node node1 (172.30.0.11)", "denied", isolated),
        ("203.0.113.7", "a machine outside of the cluster (203.0.113.7)", "denied", isolated),
        ("10.244.1.3", "shop/web (10.244.1.3)", "allowed", "the marked rule decides"),
        ("fd00:10:244:1::4", "shop/old (fd00:10:244:1::4)", "denied", "the marked rule decides"),
    ] {
        let output = cluster.explain(&[client, "shop/db", "5432"]).await;
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success(), "{client}: {output:?}");
        assert!(text.starts_with(&format!("{title} to shop/db (")), "{client}: {text}");
        assert!(
            text.lines().next().unwrap().ends_with(&format!(": {verdict}")),
            "{client}: {text}"
        );
        assert!(text.contains(&format!("Ingress of shop/db: {verdict}\n")), "{client}: {text}");
        assert!(text.contains(why) && text.contains("database: the same"), "{client}: {text}");
    }
}

/// Two backends: the database, which only web servers may reach, and a web server, which all may.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_service_is_explained_for_each_backend_by_its_name_and_by_its_address() {
    let mut world = shop();
    world.cluster_policies.clear();
    world.pods.push(pod("third", 6, "third"));
    let mut found = objects(&world, world.manifests());
    let service = json!({
        "metadata": {"namespace": "shop", "name": "db", "uid": "db"},
        "spec": {
            "clusterIP": "10.96.0.7", "clusterIPs": ["10.96.0.7"], "ipFamilies": ["IPv4"],
            "ports": [{"name": "db", "protocol": "TCP", "port": 15432, "targetPort": "db"}],
        },
    });
    let endpoint = |address: &str, ready: bool| json!({"addresses": [address], "conditions": {"ready": ready}, "nodeName": "node1"});
    let slice = json!({
        "metadata": {"namespace": "shop", "name": "db-1", "uid": "db-1",
            "labels": {"kubernetes.io/service-name": "db"}},
        "addressType": "IPv4",
        "ports": [{"name": "db", "protocol": "TCP", "port": 5432}],
        "endpoints": [
            endpoint("10.244.1.5", true), endpoint("10.244.1.3", true), endpoint("10.244.1.4", false),
        ],
    });
    let mut idle = service.clone();
    idle["metadata"]["name"] = json!("idle");
    idle["spec"]["clusterIP"] = json!("10.96.0.8");
    idle["spec"]["clusterIPs"] = json!(["10.96.0.8"]);
    found.insert("/api/v1/namespaces/shop/services/db".to_owned(), service.clone());
    found.insert("/api/v1/namespaces/shop/services/idle".to_owned(), idle.clone());
    found.insert("/api/v1/services".to_owned(), json!({"items": [service, idle]}));
    let slices = "/apis/discovery.k8s.io/v1/namespaces/shop/endpointslices".to_owned();
    found.insert(slices, json!({"items": [slice]}));
    let cluster = Cluster::of(found, &world, world.manifests()).await;
    for server in ["svc/shop/db", "10.96.0.7"] {
        let output = cluster.explain(&["shop/third", server, "15432"]).await;
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success(), "{server}: {output:?}");
        for part in [
            "Service shop/db (10.96.0.7), TCP port 15432: allowed to 1 of 2 backends\n",
            "\n  shop/third (10.244.1.6) to shop/db (10.244.1.5), TCP port 5432: denied\n",
            "\n  shop/third (10.244.1.6) to shop/web (10.244.1.3), TCP port 5432: allowed\n",
            "\nIngress of shop/db: denied\n",
        ] {
            assert!(text.contains(part), "{server}: {part}{text}");
        }
    }
    let output = cluster.explain(&["shop/third", "svc/shop/idle", "15432"]).await;
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && text.contains("no backend takes connections"), "{output:?}");
    for (question, why) in [
        (["shop/third", "svc/shop/db", "80"], "Service shop/db has no such port; it has 15432/TCP"),
        (["shop/third", "svc/shop/nothing", "80"], "read /api/v1/namespaces/shop/services/nothing"),
        (
            ["svc/shop/db", "shop/third", "80"],
            "a client is a pod, a node or an address, and not a Service",
        ),
    ] {
        let output = cluster.explain(&question).await;
        let text = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{question:?}: {output:?}");
        assert!(text.contains(why) && output.stdout.is_empty(), "{question:?}: {text}");
    }
}

/// The command's reading of objects, the model and the rows agree.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_said_is_what_the_model_says_and_the_database_does_in_random_worlds() {
    let schema: Value = serde_json::from_str(&std::fs::read_to_string(SCHEMA).unwrap()).unwrap();
    let has_tiers = schema["tables"]["ACL"]["columns"]["tier"].is_object();
    let worlds = tiered_world(if has_tiers { Passes::Yes } else { Passes::No });
    let mut runner = TestRunner::deterministic();
    for _ in 0..WORLDS {
        let world = worlds.new_tree(&mut runner).unwrap().current();
        let cluster = Cluster::start(&world, &world).await;
        let (mut asked, mut allowed) = (0, 0);
        let places = [
            ("80/tcp", Protocol::Tcp, 80),
            ("8080/udp", Protocol::Udp, 8080),
            ("81/TCP", Protocol::Tcp, 81),
        ];
        let pairs = world
            .pods
            .iter()
            .flat_map(|client| world.pods.iter().map(move |server| (client, server)));
        let pairs = pairs.filter(|(client, server)| client.name != server.name);
        let questions = pairs.enumerate().step_by(72 / QUESTIONS);
        for (number, (client, server)) in questions {
            let (text, protocol, port) = places[number / 3 % places.len()];
            let names = [client, server].map(|pod| format!("{}/{}", pod.namespace, pod.name));
            let output = cluster.explain(&[&names[0], &names[1], text]).await;
            let page = String::from_utf8_lossy(&output.stdout);
            assert!(output.status.success(), "{world}\n{page}\n{output:?}");
            for is_ipv6 in [false, true] {
                let allows =
                    world.allows(End::Pod(client), server, Place { is_ipv6, protocol, port });
                let verdict = if allows { "allowed" } else { "denied" };
                let addresses = [client, server].map(|pod| pod.address(is_ipv6));
                let title = format!(
                    "{} ({}) to {} ({}), {} port {port}: {verdict}",
                    names[0],
                    addresses[0],
                    names[1],
                    addresses[1],
                    protocol.name()
                );
                assert!(page.contains(&title), "{title}\n{page}\n{world}");
                asked += 1;
                allowed += usize::from(allows);
            }
        }
        assert!(asked == 2 * QUESTIONS && allowed > 0, "{allowed} of {asked}");
        other_ends_are_explained_as_the_model_says(&world, &cluster).await;
    }
}

/// Addresses outside of the cluster as servers, and nodes as clients, of a few pods.
async fn other_ends_are_explained_as_the_model_says(world: &World, cluster: &Cluster) {
    let place = |is_ipv6| Place { is_ipv6, protocol: Protocol::Tcp, port: 80 };
    let mut questions = Vec::new();
    for (number, address) in outside(world).into_iter().enumerate() {
        let pod = &world.pods[number % world.pods.len()];
        let allows = world.lets_out(pod, address, place(address.is_ipv6()));
        let name = format!("{}/{}", pod.namespace, pod.name);
        questions.push((name, address.to_string(), address, allows));
    }
    for (number, pod) in world.pods.iter().enumerate().step_by(2) {
        let node = 1 + u8::try_from(number / 2 % 2).unwrap();
        let end = End::Node(node);
        let server = format!("{}/{}", pod.namespace, pod.name);
        let allows = world.allows(end, pod, place(false));
        questions.push((end.address(false).to_string(), server, pod.address(false), allows));
    }
    for (client, server, to, allows) in questions {
        let output = cluster.explain(&[&client, &server, "80"]).await;
        let page = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success(), "{client} {server}\n{page}\n{output:?}\n{world}");
        let verdict = if allows { "allowed" } else { "denied" };
        let title = page.lines().find(|line| line.contains(&format!("({to}), TCP port 80:")));
        assert!(
            title.is_some_and(|title| title.ends_with(verdict)),
            "{client} {server} {verdict}\n{page}\n{world}"
        );
    }
}
