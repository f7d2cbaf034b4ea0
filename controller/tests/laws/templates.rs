//! Node ports with variables for the addresses of nodes: what OVN makes of them, and which
//! databases keep a load balancer for each node.

use controller::{
    config::{ClusterConfig, Templates},
    problem::Family,
    rows::load_balancer::Protocol,
    watch_event::{Seen, WatchEvent},
};
use kubeapi::services::{Condition, Endpoint, Service, ServicePort, Slice, SlicePort};
use ovsdb::{Connection, Transaction, Where};

use crate::{
    cluster::{all_nodes, all_pods, config, node, node_name},
    database::Northbound,
    logical::Logical,
    policies::objects::no_policies,
    running::Running,
    services::{service_key, slice_key},
};

const NODES: u32 = 20;
const SERVICES: u32 = 50;

fn with(templates: Templates) -> ClusterConfig {
    ClusterConfig { templates, ..config() }
}

/// A cluster in which each Service has a pod and a node port.
async fn cluster(northbound: &Northbound, templates: Templates) -> Running {
    cluster_of(northbound, templates, Some(30_000), [NODES, SERVICES]).await
}

/// A cluster in which each Service has a pod. `first`: the first Service's node port, if they have
/// any.
async fn cluster_of(
    northbound: &Northbound,
    templates: Templates,
    first: Option<u16>,
    [nodes, services]: [u32; 2],
) -> Running {
    let mut controller = Running::start(northbound.endpoint(), with(templates));
    controller.observe(all_nodes((1..=nodes).map(node)));
    controller.observe(all_pods([]));
    let all = (0..services).map(|number| {
        let [_, _, high, low] = number.to_be_bytes();
        let service = Service {
            uid: format!("u{number}").into(),
            cluster_ips: [[172, 16, high, low].into()].into(),
            ports: [ServicePort {
                name: None,
                protocol: Protocol::Tcp,
                port: 80,
                target: None,
                node_port: first.map(|first| first + u16::try_from(number).unwrap()),
            }]
            .into(),
            ..Service::default()
        };
        (service_key(number), service)
    });
    controller.observe(WatchEvent::Services(Seen::All(all.collect())));
    let slices = (0..services).map(|number| {
        let slice = Slice {
            service: Some(service_key(number)),
            family: Some(Family::V4),
            endpoints_count: 1,
            ports: [SlicePort { name: None, protocol: Protocol::Tcp, port: Some(8080) }].into(),
            endpoints: [Endpoint {
                address: format!("10.0.1.{}", 10 + number % 200).parse().unwrap(),
                condition: Condition::Ready,
                node: Some(node_name(1)),
                hints: None,
            }]
            .into(),
            triggered: None,
            unusable: None,
        };
        (slice_key(number), slice)
    });
    controller.observe(WatchEvent::Slices(Seen::All(slices.collect())));
    no_policies().into_iter().for_each(|list| controller.observe(list));
    controller.converged().await;
    controller
}

/// The values of a column of texts.
async fn texts(connection: &Connection, table: &str, column: &str) -> Vec<String> {
    let mut query = Transaction::new();
    let rows = query.select(table, Where::all(), &[column]);
    let outcome = connection.transact(query).await.unwrap();
    outcome.rows(rows).iter().filter_map(|row| row.string(column)).map(str::to_owned).collect()
}

/// How many load balancers node ports have with variables, and how many without; how many chassis
/// have variables.
async fn found(connection: &Connection) -> [usize; 3] {
    let names = texts(connection, "Load_Balancer", "name").await;
    let count = |part: &str| names.iter().filter(|name| name.contains(part)).count();
    let templates = count("_template_IPv4");
    let chassis = texts(connection, "Chassis_Template_Var", "chassis").await.len();
    [templates, count("_node_") - templates, chassis]
}

const WITH: [usize; 3] = [2 * SERVICES as usize, 0, NODES as usize];
const WITHOUT: [usize; 3] = [0, (SERVICES * NODES) as usize, 0];

/// 2,000 node ports of 120 nodes were 720,000 logical flows.
#[tokio::test]
async fn logical_flows_of_node_ports_do_not_grow_with_the_nodes() {
    let mut flows = Vec::new();
    for (templates, first) in [
        (Templates::Never, None),
        (Templates::Never, Some(30_000)),
        (Templates::Always, Some(30_000)),
    ] {
        let logical = Logical::start();
        let controller = cluster_of(&logical.northbound, templates, first, [NODES, SERVICES]).await;
        let found = found(&logical.northbound.open().await).await;
        flows.push(logical.flows());
        eprintln!("{templates:?}, {first:?}: {found:?}, {flows:?} logical flows");
        controller.kill().await;
    }
    let [none, by_node, templates] = flows[..] else { unreachable!("three clusters") };
    assert!((templates - none) * 10 < by_node - none, "{flows:?}");
}

#[tokio::test]
#[ignore = "a measurement, of a minute: logical flows of 2,000 node ports and 120 nodes"]
async fn many() {
    for first in [None, Some(30_000)] {
        let logical = Logical::start();
        let begun = std::time::Instant::now();
        let controller =
            cluster_of(&logical.northbound, Templates::AsFound, first, [120, 2_000]).await;
        let converged = begun.elapsed();
        let flows = logical.flows();
        eprintln!(
            "{first:?}: {flows} logical flows; rows after {converged:.1?}, flows after {:.1?}",
            begun.elapsed()
        );
        controller.kill().await;
    }
}

#[tokio::test]
async fn a_database_keeps_the_node_ports_that_it_has_unless_an_option_says_otherwise() {
    for (first, kind) in
        [(Templates::Never, WITHOUT), (Templates::Always, WITH), (Templates::AsFound, WITH)]
    {
        let northbound = Northbound::start();
        let connection = northbound.open().await;
        cluster(&northbound, first).await.kill().await;
        assert_eq!(found(&connection).await, kind, "{first:?}");
        let again = cluster(&northbound, Templates::AsFound).await;
        assert_eq!(again.counted("ovnkube_controller_nb_rows_written_total"), 0.0, "{first:?}");
        again.kill().await;
        for (second, kind) in [(Templates::Always, WITH), (Templates::Never, WITHOUT)] {
            cluster(&northbound, second).await.kill().await;
            assert_eq!(found(&connection).await, kind, "{first:?}, then {second:?}");
        }
    }
}

#[tokio::test]
async fn variables_go_with_their_node_and_follow_its_addresses() {
    let northbound = Northbound::start();
    let connection = northbound.open().await;
    let mut controller = cluster(&northbound, Templates::Always).await;
    let mut seen = async |event| {
        controller.observe(WatchEvent::Nodes(event));
        controller.reaches("work", |progress| !progress.converged).await;
        controller.converged().await;
    };
    seen(Seen::Deleted(node_name(3))).await;
    let chassis = texts(&connection, "Chassis_Template_Var", "chassis").await;
    assert!(chassis.len() == 19 && !chassis.contains(&"chassis-3".to_owned()), "{chassis:?}");
    let mut moved = node(4);
    moved.host_addresses = vec!["192.168.9.9".parse().unwrap(), "192.168.9.8".parse().unwrap()];
    seen(Seen::Applied(moved)).await;
    let mut query = Transaction::new();
    let rows = query.select(
        "Chassis_Template_Var",
        ovsdb::Condition::equal("chassis", "chassis-4"),
        &["variables"],
    );
    let outcome = connection.transact(query).await.unwrap();
    let variables: Vec<(String, String)> =
        outcome.rows(rows)[0].map("variables").into_iter().collect();
    let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
    assert_eq!(
        variables,
        [pair("NODEIP_IPv4_0", "192.168.9.8"), pair("NODEIP_IPv4_1", "192.168.9.9")]
    );
    let mut query = Transaction::new();
    let name = "Service_ns0/s0_TCP_node_switch_template_IPv4";
    let rows =
        query.select("Load_Balancer", ovsdb::Condition::equal("name", name), &["vips", "options"]);
    let outcome = connection.transact(query).await.unwrap();
    let row = &outcome.rows(rows)[0];
    let vips: Vec<(String, String)> = row.map("vips").into_iter().collect();
    let backend = "10.0.1.10:8080";
    assert_eq!(
        vips,
        [pair("^NODEIP_IPv4_0:30000", backend), pair("^NODEIP_IPv4_1:30000", backend)]
    );
    let options = row.map("options");
    assert_eq!(options["template"], "true");
    assert_eq!(options["address-family"], "ipv4");
}
