//! `--remove-node` on real databases: one node's rows are removed, and no others.
#![expect(clippy::unwrap_used, reason = "what fails here fails the test")]

#[path = "support/server.rs"]
mod server;

use controller::{
    config::{ClusterConfig, ClusterSubnet, Zone},
    engine::northbound,
    remove_node::{
        ChassisOf, RemoveNodeError, Removed, SOUTHBOUND, from_northbound, from_southbound,
    },
};
use ovsdb::{Client, Datum, Monitor, NamedUuid, Options, Row, Transaction, Where};
use server::Server;

fn config() -> ClusterConfig {
    ClusterConfig {
        cluster_subnets: vec![ClusterSubnet {
            cidr: "10.0.0.0/8".parse().unwrap(),
            host_length: 24,
        }],
        service_cidrs: vec!["172.16.0.0/16".parse().unwrap()],
        hairpin_addresses: Vec::new(),
        ..ClusterConfig::default()
    }
}

impl Server {
    async fn names(&self, table: &str) -> Vec<String> {
        let mut query = Transaction::new();
        let rows = query.select(table, Where::all(), &["name"]);
        let outcome = self.connection.transact(query).await.unwrap();
        let mut names: Vec<String> =
            outcome.rows(rows).iter().map(|row| row.string("name").unwrap().to_owned()).collect();
        names.sort();
        names
    }

    async fn remove(&self, node: &str) -> Removed {
        let (_client, updates) = northbound::connect(self.endpoints(), Options::default());
        from_northbound(updates, &config(), &None, node).await.unwrap()
    }
}

fn map<const N: usize>(pairs: [(&'static str, &str); N]) -> Datum {
    Datum::map(pairs)
}

fn port(transaction: &mut Transaction, name: &str, columns: Row) -> NamedUuid {
    transaction.insert("Logical_Switch_Port", columns.with("name", name))
}

/// A node's rows as the controller writes them: a switch, its ports, a pod's port, the router's
/// port.
fn node(transaction: &mut Transaction, node: &str, pod: &str, foreign: Option<&str>) -> NamedUuid {
    let rtos = format!("rtos-{node}");
    let ports = [
        port(
            transaction,
            &format!("stor-{node}"),
            Row::new().with("type", "router").with("options", map([("router-port", &rtos)])),
        ),
        port(transaction, &format!("k8s-{node}"), Row::new()),
        port(
            transaction,
            &format!("shop_{pod}"),
            Row::new().with("external_ids", map([("pod", "true"), ("namespace", "shop")])),
        ),
    ];
    let foreign = foreign.map(|name| port(transaction, name, Row::new()));
    let id = format!("default-network-controller:NetpolNode:{node}:10.0.0.2");
    let columns = Row::new()
        .with("action", "allow-related")
        .with("direction", "to-lport")
        .with("match", "1")
        .with("priority", 1001);
    let acl =
        transaction.insert("ACL", columns.with("external_ids", map([("k8s.ovn.org/id", &id)])));
    let switch =
        Row::new().with("name", node).with("ports", Datum::set(ports.into_iter().chain(foreign)));
    transaction.insert("Logical_Switch", switch.with("acls", Datum::set([acl])));
    transaction.insert(
        "Logical_Router_Port",
        Row::new().with("name", rtos).with("mac", "0a:58:0a:00:00:01"),
    )
}

#[tokio::test]
async fn rows_of_one_node_and_of_its_pods_go_and_others_stay() {
    let server = Server::northbound().await;
    let mut transaction = Transaction::new();
    let ports = [
        node(&mut transaction, "n1", "cart-0", None),
        node(&mut transaction, "n2", "cart-1", None),
    ];
    transaction.insert(
        "Logical_Router",
        Row::new().with("name", "ovn_cluster_router").with("ports", Datum::set(ports)),
    );
    server.connection.transact(transaction).await.unwrap();

    let removed = server.remove("n1").await;
    let expected = [
        "ACL default-network-controller:NetpolNode:n1:10.0.0.2",
        "Logical_Router_Port rtos-n1",
        "Logical_Switch n1",
        "Logical_Switch_Port k8s-n1",
        "Logical_Switch_Port shop_cart-0",
        "Logical_Switch_Port stor-n1",
    ];
    assert_eq!((&removed.removed[..], removed.kept.len()), (&expected.map(str::to_owned)[..], 0));
    assert_eq!(server.names("Logical_Switch").await, ["n2"]);
    assert_eq!(server.names("Logical_Switch_Port").await, ["k8s-n2", "shop_cart-1", "stor-n2"]);
    assert_eq!(server.names("Logical_Router_Port").await, ["rtos-n2"]);
    assert_eq!(server.remove("n1").await, Removed::default(), "once more");
}

#[tokio::test]
async fn a_switch_with_somebody_elses_port_stays_and_is_named() {
    let server = Server::northbound().await;
    let mut transaction = Transaction::new();
    let ports = [node(&mut transaction, "n1", "cart-0", Some("probe"))];
    transaction.insert(
        "Logical_Router",
        Row::new().with("name", "ovn_cluster_router").with("ports", Datum::set(ports)),
    );
    server.connection.transact(transaction).await.unwrap();

    let removed = server.remove("n1").await;
    assert_eq!(removed.kept, ["Logical_Switch n1"]);
    assert!(
        !removed.removed.iter().any(|row| row == "Logical_Switch n1" || row.contains("probe")),
        "{removed:?}"
    );
    assert_eq!(server.names("Logical_Switch_Port").await, ["probe"]);
}

#[tokio::test]
async fn chassis_are_found_by_their_host_and_by_their_name() {
    let server = Server::southbound().await;
    let mut transaction = Transaction::new();
    for (name, host) in [("c1", "n1"), ("c2", "n2"), ("c3", "n1.example.org")] {
        let encap = Row::new()
            .with("type", "geneve")
            .with("ip", format!("192.0.2.{}", &name[1..]))
            .with("chassis_name", name);
        let encap = transaction.insert("Encap", encap);
        let chassis = Row::new()
            .with("name", name)
            .with("hostname", host)
            .with("encaps", Datum::set([encap]));
        transaction.insert("Chassis", chassis);
        transaction.insert("Chassis_Private", Row::new().with("name", name));
    }
    server.connection.transact(transaction).await.unwrap();

    let (client, _updates) =
        Client::start(server.endpoints(), SOUTHBOUND, Monitor::new(), Options::default());
    // The host name of the second is another node's, whatever the annotation said.
    let names = ["c2", "c3"].map(str::to_owned).into();
    let of = ChassisOf { node: "n1".into(), names, others: ["n2".to_owned()].into() };
    assert_eq!(
        from_southbound(&client, &of).await.unwrap().removed,
        ["Chassis c1", "Chassis c3", "Chassis_Private c1", "Chassis_Private c3"]
    );
    assert_eq!(
        (server.names("Chassis").await, server.names("Chassis_Private").await),
        (vec!["c2".to_owned()], vec!["c2".to_owned()])
    );
    assert_eq!(from_southbound(&client, &of).await.unwrap(), Removed::default(), "once more");
}

/// The command looked at neither the zone nor the cluster of the database: with another socket, or
/// another kubeconfig, it removed the node of the same name from a network that it was not meant
/// for.
#[tokio::test]
async fn a_node_of_another_zone_or_of_another_cluster_stays() {
    let server = Server::northbound().await;
    let mut transaction = Transaction::new();
    let ports = [node(&mut transaction, "n1", "cart-0", None)];
    let router = Row::new().with("name", "ovn_cluster_router").with("ports", Datum::set(ports));
    let router = router
        .with("external_ids", map([("k8s-cluster-router", "yes"), ("k8s-cluster-uid", "theirs")]));
    transaction.insert("Logical_Router", router);
    transaction.insert("NB_Global", Row::new().with("name", "zone-7"));
    server.connection.transact(transaction).await.unwrap();

    let remove = async |zone: &str, cluster: Option<&str>| {
        let (_client, updates) = northbound::connect(server.endpoints(), Options::default());
        let config = ClusterConfig { zone: Zone(zone.to_owned()), ..config() };
        from_northbound(updates, &config, &cluster.map(Into::into), "n1").await
    };
    let of_zone = remove("global", Some("theirs")).await.unwrap_err();
    assert!(matches!(of_zone, RemoveNodeError::OtherZone { .. }), "{of_zone:?}");
    assert!(of_zone.to_string().contains("of zone zone-7 (NB_Global.name)"), "{of_zone}");
    let of_cluster = remove("zone-7", Some("ours")).await.unwrap_err();
    assert!(matches!(of_cluster, RemoveNodeError::OtherCluster { .. }), "{of_cluster:?}");
    assert!(of_cluster.to_string().contains("written for the cluster theirs"), "{of_cluster}");
    assert_eq!(server.names("Logical_Switch").await, ["n1"], "nothing is removed");
    // An API server that does not tell its identity leaves the zone to decide.
    assert!(!remove("zone-7", None).await.unwrap().removed.is_empty());
}

/// Without `--cluster-subnets` the gateway router stayed for a translation of the cluster's, and
/// the load balancers that served on the node alone stayed for ever where no controller ran.
#[tokio::test]
async fn a_gateway_goes_whatever_the_subnets_are_and_so_do_load_balancers_of_the_node_alone() {
    let server = Server::northbound().await;
    let mut transaction = Transaction::new();
    let ports = [
        node(&mut transaction, "n1", "cart-0", None),
        node(&mut transaction, "n2", "cart-1", None),
    ];
    let mut balancer = |name: &str, ids: &[(&'static str, &str)]| {
        let columns =
            Row::new().with("name", name).with("external_ids", Datum::map(ids.iter().copied()));
        transaction.insert("Load_Balancer", columns)
    };
    let service = [("k8s.ovn.org/kind", "Service"), ("k8s.ovn.org/owner", "shop/cart")];
    let own = balancer("Service_shop/cart_TCP_node_router_n1", &service);
    let both = balancer("Service_shop/cart_TCP_node_router_merged", &service);
    balancer("Service_shop/cart_TCP_node_router_n3", &service);
    let legacy = balancer("", &[("TCP_lb_gateway_router", "GR_n1")]);
    let others = balancer("mine", &[]);
    let nat = transaction.insert(
        "NAT",
        Row::new()
            .with("type", "snat")
            .with("external_ip", "192.0.2.7")
            .with("logical_ip", "10.128.0.0/14"),
    );
    let join = transaction.insert(
        "Logical_Router_Port",
        Row::new()
            .with("name", "rtoj-GR_n1")
            .with("mac", "0a:58:64:40:00:02")
            .with("networks", Datum::set(["100.64.0.2/16"])),
    );
    let gateway = Row::new()
        .with("name", "GR_n1")
        .with("ports", Datum::set([join]))
        .with("nat", Datum::set([nat]))
        .with("load_balancer", Datum::set([own, both.clone(), legacy, others]));
    transaction.insert("Logical_Router", gateway);
    transaction.insert(
        "Logical_Router",
        Row::new().with("name", "GR_n2").with("load_balancer", Datum::set([both])),
    );
    let router = Row::new().with("name", "ovn_cluster_router").with("ports", Datum::set(ports));
    transaction.insert("Logical_Router", router);
    server.connection.transact(transaction).await.unwrap();

    let removed = server.remove("n1").await;
    assert_eq!(removed.kept, [""; 0]);
    assert_eq!(server.names("Logical_Router").await, ["GR_n2", "ovn_cluster_router"]);
    let left = [
        "Service_shop/cart_TCP_node_router_merged",
        "Service_shop/cart_TCP_node_router_n3",
        "mine",
    ];
    assert_eq!(server.names("Load_Balancer").await, left);
    assert!(
        removed.removed.contains(&"Load_Balancer Service_shop/cart_TCP_node_router_n1".to_owned()),
        "{removed:?}"
    );
}
