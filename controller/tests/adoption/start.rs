//! Our controller, started on a database that upstream wrote.

use std::collections::BTreeSet;

use contract::{
    annotation::PodNetwork,
    names::{Network, PodKey},
    namespace_annotation::Multicast,
    node_annotation::GATEWAY_CONFIG,
    ovn::ObjectId,
};
use controller::{
    engine::reconcile::Report,
    kinds::{
        namespace::object::Namespace,
        node::wire::NodeObject,
        pod::object::{Phase, Pod},
    },
    watch_event::{Seen, WatchEvent},
};
use testkit::eventually;

use crate::{
    database::{Changes, Content, Database},
    fixture::Fixture,
    running::{Running, deadline},
};

/// A cluster that upstream has set up, with our control plane.
struct Adopted {
    database: Database,
    before: Content,
    written: u64,
    controller: Running,
}

impl Adopted {
    /// Starts the controller and waits for convergence. `gone`: the pods that were deleted while no
    /// controller ran.
    async fn cluster(fixture: &Fixture, gone: impl Fn(&PodKey) -> bool) -> Self {
        let database = Database::holding(fixture);
        let (before, written) = (database.content(), database.written());
        let mut controller =
            Running::start(database.endpoint().parse().unwrap(), fixture.config.clone());
        for observation in fixture.observations() {
            controller.observe(match observation {
                WatchEvent::Pods(Seen::All(pods)) => WatchEvent::Pods(Seen::All(
                    pods.into_iter().filter(|(key, _)| !gone(key)).collect(),
                )),
                other => other,
            });
        }
        controller.converged().await;
        Self { database, before, written, controller }
    }

    fn changes(&self) -> Changes {
        self.before.changes(&self.database.content())
    }

    /// The rows of node `n2`, of its gateway, and of its pods, in words.
    fn of_node_2(&self) -> BTreeSet<String> {
        let named = [
            "ACL default-network-controller:NetpolNode:n2:10.244.1.2",
            "Gateway_Chassis rtos-n2-7c0c5b52-5a8e-47a6-8f43-b1f1f4f1a902",
            "Load_Balancer Service_default/web_TCP_node_router+switch_n2",
            "Logical_Router GR_n2",
            "Logical_Router_Port rtoe-GR_n2",
            "Logical_Router_Port rtoj-GR_n2",
            "Logical_Router_Port rtos-n2",
            "Logical_Switch ext_n2",
            "Logical_Switch n2",
            "Logical_Switch_Port bank_ledger.v2",
            "Logical_Switch_Port br-ex_n2",
            "Logical_Switch_Port default_web-1",
            "Logical_Switch_Port etor-GR_n2",
            "Logical_Switch_Port jtor-GR_n2",
            "Logical_Switch_Port k8s-n2",
            "Logical_Switch_Port stor-n2",
        ];
        // Rows without names are spelled with all their columns. Equal rows of several nodes are
        // one line: the routes to the cluster's router.
        let nameless = [
            "Logical_Router_Policy ",
            "NAT ",
            "Static_MAC_Binding ",
            "Logical_Router_Static_Route ",
        ];
        let of_node = ["rtos-n2", "172.30.0.12", "GR_n2", "100.64.0.4", "100.64.0.1\""];
        let rows = self
            .before
            .rows()
            .filter(|row| nameless.iter().any(|beginning| row.starts_with(beginning)));
        let rows = rows.filter(|row| of_node.iter().any(|part| row.contains(part)));
        named.map(str::to_owned).into_iter().chain(rows).collect()
    }

    fn become_different(&self, expected: &Changes) {
        eventually("the database is as expected", deadline(), || {
            let changes = self.changes();
            if changes == *expected { Ok(()) } else { Err(format!("{changes:#?}")) }
        });
    }
}

fn set<const N: usize>(lines: [&str; N]) -> BTreeSet<String> {
    lines.map(str::to_owned).into()
}

fn pod(namespace: &str, name: &str) -> PodKey {
    PodKey::new(namespace, name).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_written_for_what_is_the_same() {
    for fixture in Fixture::all() {
        let mut adopted = Adopted::cluster(&fixture, |_| false).await;
        assert_eq!(adopted.changes(), Changes::default(), "{}", fixture.name);
        assert_eq!(
            adopted.database.written(),
            adopted.written,
            "{}: written, and taken back",
            fixture.name
        );
        assert_eq!(adopted.controller.annotations.try_recv().ok(), None, "{}", fixture.name);
        let told = std::iter::from_fn(|| adopted.controller.reports.try_recv().ok());
        // Names are asked for in any case, and so are chassis of other zones.
        let is_question =
            |report: &Report| matches!(report, Report::Names(_) | Report::RemoteChassis(_));
        let told: Vec<Report> = told.filter(|report| !is_question(report)).collect();
        assert_eq!(told, [], "{}", fixture.name);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_that_went_while_nobody_looked_loses_its_port() {
    let gone = pod("shop", "db-0");
    let adopted = Adopted::cluster(&Fixture::shared_v4(), |key| *key == gone).await;
    let Changes { added, changed, removed } = adopted.changes();
    assert_eq!((added, removed), (set([]), set(["Logical_Switch_Port shop_db-0"])));
    // The groups are those of the namespace's policies. Their references to ports are weak:
    // ovsdb-server removes that of a deleted port itself.
    let groups = changed
        .iter()
        .filter(|change| change.starts_with("Port_Group ") && change.ends_with(" ports"))
        .count();
    assert!(
        changed.contains("Logical_Switch n1 ports") && changed.len() == groups + 1,
        "{changed:?}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_that_ends_loses_its_port_and_nothing_else_happens() {
    let fixture = Fixture::central_dual();
    let adopted = Adopted::cluster(&fixture, |_| false).await;
    let (key, mut ended) = fixture.pod("shop", "cart-5f6d8c7b9-x2x4z");
    ended.phase = Phase::Ended;
    adopted.controller.observe(WatchEvent::Pods(Seen::Applied((key, ended))));
    let expected = Changes {
        added: set([]),
        changed: set(["Logical_Switch n3.example.org ports"]),
        removed: set(["Logical_Switch_Port shop_cart-5f6d8c7b9-x2x4z"]),
    };
    adopted.become_different(&expected);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_new_pod_is_one_more_port() {
    let fixture = Fixture::shared_v4();
    let mut adopted = Adopted::cluster(&fixture, |_| false).await;
    let fresh = Pod { node: Some("n1".into()), ..Pod::with_uid("4b5f1c2e") };
    adopted.controller.observe(WatchEvent::Pods(Seen::Applied((pod("shop", "fresh"), fresh))));
    let expected = Changes {
        added: set(["Logical_Switch_Port shop_fresh"]),
        changed: set(["Logical_Switch n1 ports"]),
        removed: set([]),
    };
    adopted.become_different(&expected);

    let annotation = adopted.controller.annotations.recv().await.unwrap();
    assert_eq!(annotation.pod, pod("shop", "fresh"));
    let given =
        PodNetwork::parse(&annotation.annotations()["k8s.ovn.org/pod-networks"], &Network::Default)
            .unwrap()
            .unwrap();
    let used = fixture.addresses();
    assert!(
        given.addresses.iter().all(|address| !used.contains(&address.addr())),
        "{:?} of {used:?}",
        given.addresses
    );
    assert_eq!(adopted.controller.annotations.try_recv().ok(), None);
}

/// Rows of upstream's multicast, without the option.
#[tokio::test(flavor = "multi_thread")]
async fn without_the_option_upstreams_multicast_goes_and_nothing_else() {
    let mut fixture = Fixture::multicast_v4();
    fixture.config.multicast = Multicast::Off;
    let mut adopted = Adopted::cluster(&fixture, |_| false).await;
    let group = |namespace: &str| ObjectId::namespace_group(namespace).hashed();
    let rules =
        ["MulticastCluster:AllowInterNode", "MulticastCluster:DefaultDeny", "MulticastNS:shop"];
    let rules = rules.into_iter().flat_map(|rule| {
        ["Egress", "Ingress"]
            .map(|direction| format!("ACL default-network-controller:{rule}:{direction}"))
    });
    let expected = Changes {
        added: set([]),
        changed: set([
            "Logical_Router ovn_cluster_router options",
            "Logical_Switch n1 other_config",
            "Logical_Switch n2 other_config",
            "Logical_Switch n3.example.org other_config",
            "Port_Group a13298398610555951118 acls",
            "Port_Group a4743249366342378346 acls",
            "Port_Group a4743249366342378346 ports",
        ]),
        removed: rules.chain([format!("Port_Group {}", group("shop"))]).collect(),
    };
    adopted.become_different(&expected);
    let told = std::iter::from_fn(|| adopted.controller.reports.try_recv().ok());
    let told: Vec<String> = told
        .filter_map(|report| match report {
            Report::Problem(problem) => Some(problem.note),
            _ => None,
        })
        .collect();
    assert!(
        told.len() == 1 && told[0].contains("without the option --enable-multicast"),
        "{told:?}"
    );
}

/// Upstream has a group for each namespace.
#[tokio::test(flavor = "multi_thread")]
async fn another_namespace_with_multicast_gets_its_rules_in_the_group_that_upstream_has_made() {
    let adopted = Adopted::cluster(&Fixture::multicast_v4(), |_| false).await;
    let namespace = Namespace { multicast: Multicast::On, ..Namespace::default() };
    adopted.controller.observe(WatchEvent::Namespaces(Seen::Applied(("bank".into(), namespace))));
    let changed = format!("Port_Group {} acls", ObjectId::namespace_group("bank").hashed());
    let expected = Changes {
        added: set([
            "ACL default-network-controller:MulticastNS:bank:Egress",
            "ACL default-network-controller:MulticastNS:bank:Ingress",
        ]),
        changed: [changed].into(),
        removed: set([]),
    };
    adopted.become_different(&expected);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_goes_takes_its_rows_and_no_others() {
    let fixture = Fixture::shared_v4();
    let adopted = Adopted::cluster(&fixture, |_| false).await;
    for (key, pod) in fixture.all_pods() {
        if pod.node.as_deref() == Some("n2") {
            adopted.controller.observe(WatchEvent::Pods(Seen::Deleted(key)));
        }
    }
    adopted.controller.observe(WatchEvent::Nodes(Seen::Deleted("n2".into())));
    let expected = Changes {
        added: set([]),
        changed: set([
            "Logical_Router ovn_cluster_router policies",
            "Logical_Router ovn_cluster_router ports",
            "Logical_Router ovn_cluster_router static_routes",
            "Logical_Switch join ports",
            "Port_Group a13298398610555951118 ports",
        ]),
        removed: adopted.of_node_2(),
    };
    adopted.become_different(&expected);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_gateway_that_is_disabled_goes_and_the_rest_of_its_node_stays() {
    let fixture = Fixture::shared_v4();
    let adopted = Adopted::cluster(&fixture, |_| false).await;
    let disabled = with_gateway(&fixture, "n2", Some(r#"{"default":{"mode":""}}"#)).into_node();
    adopted.controller.observe(WatchEvent::Nodes(Seen::Applied(disabled)));
    eventually("the gateway is gone", deadline(), || {
        let Changes { added, removed, .. } = adopted.changes();
        let gateway: BTreeSet<String> =
            adopted.of_node_2().into_iter().filter(|row| is_of_gateway(row)).collect();
        if removed == gateway && added.is_empty() {
            Ok(())
        } else {
            Err(format!("{added:?} {removed:#?}"))
        }
    });
}

/// An annotation that is missing, or that is no annotation, is no order to remove a gateway.
#[tokio::test(flavor = "multi_thread")]
async fn a_gateway_stays_while_its_nodes_annotation_is_missing_or_cannot_be_read() {
    let mut fixture = Fixture::shared_v4();
    fixture.nodes = vec![
        with_gateway(&fixture, "n1", None),
        with_gateway(
            &fixture,
            "n2",
            Some(r#"{"default":{"mode":"shared","interface-id":"br-ex_n2"}}"#),
        ),
        with_gateway(&fixture, "n3.example.org", Some(r#"{"default":7}"#)),
    ];
    let adopted = Adopted::cluster(&fixture, |_| false).await;
    assert_eq!(adopted.changes(), Changes::default());
}

/// It lost its load balancers until it had its annotations again.
#[tokio::test(flavor = "multi_thread")]
async fn a_node_whose_annotations_are_missing_at_the_start_keeps_its_rows() {
    let mut fixture = Fixture::shared_v4();
    let object = fixture.nodes.iter_mut().find(|node| node.metadata.name.as_deref() == Some("n2"));
    let annotations = object.unwrap().metadata.annotations.take();
    assert!(annotations.is_some_and(|annotations| annotations.len() > 3));
    let adopted = Adopted::cluster(&fixture, |_| false).await;
    assert_eq!(adopted.changes(), Changes::default());
}

/// The node with another annotation of its gateway.
fn with_gateway(fixture: &Fixture, name: &str, gateway: Option<&str>) -> NodeObject {
    let object = fixture.nodes.iter().find(|node| node.metadata.name.as_deref() == Some(name));
    let mut object = object.unwrap().clone();
    let annotations = object.metadata.annotations.as_mut().unwrap();
    assert!(annotations.remove(GATEWAY_CONFIG).is_some());
    annotations.extend(gateway.map(|text| (GATEWAY_CONFIG.to_owned(), text.to_owned())));
    object
}

/// Whether the row, in words, is one of a gateway.
fn is_of_gateway(row: &str) -> bool {
    [
        "Logical_Router GR_",
        "Logical_Router_Policy ",
        "Logical_Router_Static_Route ",
        "NAT ",
        "Static_MAC_Binding ",
    ]
    .iter()
    .any(|beginning| row.starts_with(beginning))
        || ["rtoj-GR_", "rtoe-GR_", "jtor-GR_", "etor-GR_", " ext_", " br-ex_"]
            .iter()
            .any(|part| row.contains(part))
}

/// Routes have neither names nor ids.
#[tokio::test(flavor = "multi_thread")]
async fn a_node_of_a_local_gateway_takes_its_route_with_it_and_no_other_route() {
    let fixture = Fixture::local_v4();
    let adopted = Adopted::cluster(&fixture, |_| false).await;
    adopted.controller.observe(WatchEvent::Nodes(Seen::Deleted("n2".into())));
    eventually("the route is gone", deadline(), || {
        let Changes { removed, .. } = adopted.changes();
        let routes: Vec<&String> = removed
            .iter()
            .filter(|row| row.starts_with("Logical_Router_Static_Route") && row.contains("src-ip"))
            .collect();
        if matches!(&routes[..], [one] if one.contains("10.244.1.2")) {
            Ok(())
        } else {
            Err(format!("{routes:?}"))
        }
    });
}

/// Upstream writes the rule of every namespace again when a node joins.
#[tokio::test(flavor = "multi_thread")]
async fn a_rule_that_lists_nodes_names_their_set_once_a_node_leaves_and_no_other_rule_changes() {
    let fixture = Fixture::firewall_v4();
    let adopted = Adopted::cluster(&fixture, |_| false).await;
    assert_eq!(adopted.changes(), Changes::default());
    adopted.controller.observe(WatchEvent::Nodes(Seen::Deleted("n2".into())));
    let rule = "ACL EF:shop:2 match";
    eventually("the rule names a set", deadline(), || {
        let Changes { added, changed, .. } = adopted.changes();
        let sets = added.iter().filter(|row| row.starts_with("Address_Set ")).count();
        let rules: Vec<_> = changed.iter().filter(|change| change.starts_with("ACL EF:")).collect();
        if sets == 1 && rules == [rule] { Ok(()) } else { Err(format!("{sets} sets, {rules:?}")) }
    });
}
