//! Gateways: whatever a node's gateway was before, the database shows what it is now; and rows of
//! other programs beside them stay.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
    sync::Arc,
};

use contract::{
    annotation::{PodNetwork, Role},
    names::PodKey,
    node_annotation::{Gateway, GatewayMode},
};
use controller::{
    config::{ClusterConfig, ClusterSubnet},
    kinds::{
        node::object::Node,
        pod::object::{Annotated, Pod, Spelled},
    },
    watch_event::{Seen, WatchEvent},
};
use ovsdb::Connection;
use proptest::{prelude::*, sample::select, strategy::ValueTree as _, test_runner::TestRunner};
use testkit::program;
use tokio::time::Instant;

use crate::{
    cluster::{all_nodes, all_pods, node, pod},
    database::{Northbound, Row, contents},
    logical::{Logical, delivered},
    policies::objects::no_policies,
    running::{Running, deadline},
    services::{service, slice},
};

const NODES: u32 = 3;
const STEPS: usize = 24;

fn dual() -> ClusterConfig {
    let net = |text: &str| text.parse().unwrap();
    ClusterConfig {
        cluster_subnets: vec![
            ClusterSubnet { cidr: net("10.0.0.0/8"), host_length: 24 },
            ClusterSubnet { cidr: net("fd00:10::/48"), host_length: 64 },
        ],
        service_cidrs: vec![net("172.16.0.0/16"), net("fd00:96::/112")],
        join_subnets: vec![net("100.64.0.0/16"), net("fd98::/64")],
        ..ClusterConfig::default()
    }
}

/// A node without a gateway, with addresses of both families.
fn plain(number: u32) -> Node {
    let mut node = node(number);
    node.subnets.push(format!("fd00:10:0:{number}::/64").parse().unwrap());
    node.host_addresses.push(format!("fd00:aa::{number}").parse().unwrap());
    Node { id: Some(u16::try_from(number).unwrap() + 1), ..node }
}

/// The node with this gateway.
pub(crate) fn with_gateway(mut node: Node, mode: GatewayMode, external: Gateway) -> Node {
    node.gateway = Some(mode);
    node.external = (mode != GatewayMode::Disabled).then(|| Box::new(external));
    node
}

fn shared(number: u32) -> Node {
    let external = Gateway {
        interface: format!("br-ex_n{number}"),
        mac: format!("52:54:00:00:00:{number:02x}").parse().unwrap(),
        addresses: vec![
            format!("172.30.0.{number}/24").parse().unwrap(),
            format!("fd00:30::{number}/64").parse().unwrap(),
        ],
        next_hops: vec!["172.30.0.254".parse().unwrap(), "fd00:30::ffff".parse().unwrap()],
        vlan: None,
    };
    with_gateway(plain(number), GatewayMode::Shared, external)
}

/// A node as it may be at some moment, with a gateway or without one.
fn any_node() -> impl Strategy<Value = Node> {
    let mode = select(vec![GatewayMode::Shared, GatewayMode::Local, GatewayMode::Disabled]);
    let choices = (any::<[bool; 8]>(), select(vec![None, Some(7_u16), Some(4094)]));
    (1..=NODES, mode, choices).prop_map(|(number, mode, (choices, vlan))| {
        let [
            another_mac,
            another_address,
            one_family,
            no_way_out,
            no_ports,
            small,
            moved,
            another_host,
        ] = choices;
        let Node { external, .. } = shared(number);
        let mut external = Gateway { vlan, ..*external.unwrap() };
        if another_mac {
            external.mac = format!("52:54:00:00:01:{number:02x}").parse().unwrap();
        }
        if another_address {
            external.addresses[0] = format!("172.30.1.{number}/16").parse().unwrap();
        }
        if one_family {
            external.addresses.pop();
        }
        if no_way_out {
            external.next_hops.clear();
        }
        let mut node = with_gateway(plain(number), mode, external);
        (node.node_ports, node.answers_large_packets) = (!no_ports, !small);
        if moved {
            node.chassis = Some(format!("another-{number}"));
        }
        if another_host {
            node.host_addresses.push(IpAddr::from([192, 168, 99, u8::try_from(number).unwrap()]));
        }
        node
    })
}

/// A controller, its database, and the nodes that it has observed.
struct Site {
    northbound: Northbound,
    connection: Connection,
    controller: Running,
}

impl Site {
    async fn of(nodes: impl IntoIterator<Item = Node>) -> Self {
        Self::with(dual(), nodes, []).await
    }

    async fn with(
        config: ClusterConfig,
        nodes: impl IntoIterator<Item = Node>,
        pods: impl IntoIterator<Item = (PodKey, Pod)>,
    ) -> Self {
        let northbound = Northbound::start();
        let connection = northbound.open().await;
        let mut controller = Running::without_services(northbound.endpoint(), config);
        controller.observe(all_nodes(nodes));
        controller.observe(all_pods(pods));
        controller.converged().await;
        Self { northbound, connection, controller }
    }

    fn observe(&self, seen: Seen<Arc<str>, Node>) {
        self.controller.observe(WatchEvent::Nodes(seen));
    }

    /// All rows, without their UUIDs.
    async fn rows(&self) -> BTreeSet<(String, String, Row)> {
        contents(&self.connection)
            .await
            .0
            .into_iter()
            .map(|((table, name, _), row)| (table, name, row))
            .collect()
    }

    /// Waits until the database has exactly these rows.
    async fn has(&self, expected: &BTreeSet<(String, String, Row)>) {
        let begun = Instant::now();
        loop {
            let now = self.rows().await;
            if now == *expected {
                return;
            }
            let (more, less) = (now.difference(expected), expected.difference(&now));
            assert!(
                begun.elapsed() < deadline(),
                "not wanted: {:#?}, missing: {:#?}",
                more.collect::<Vec<_>>(),
                less.collect::<Vec<_>>()
            );
            tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        }
    }

    fn nbctl(&self, arguments: &[&str]) -> String {
        let database = format!("--db={}", self.northbound.endpoint());
        program::output(program::command("ovn-nbctl").arg(database).args(arguments))
    }
}

/// A packet of a connection, as it enters the network, and what becomes of it.
struct Way {
    what: &'static str,
    /// The switch, the port, and the MAC addresses there.
    from: [&'static str; 4],
    source: &'static str,
    destination: (&'static str, u16),
    /// The port where it leaves, and the source that it has there if that is another one.
    shared: (&'static str, Option<&'static str>),
    local: (&'static str, Option<&'static str>),
}

/// The number of the only node port.
const NODE_PORT: u16 = 30_002;
/// A pod of `n1`: 10.0.1.44 and fd00:10:0:1::44.
const POD: [&str; 4] = ["n1", "ns1_p1", "0a:58:0a:00:01:2c", "0a:58:0a:00:01:01"];
const WORLD: [&str; 4] = ["ext_n1", "br-ex_n1", "52:54:00:00:00:fe", "52:54:00:00:00:01"];
const OUT: (&str, Option<&str>) = ("br-ex_n1", Some("172.30.0.1"));
const TO_NODE: (&str, Option<&str>) = ("k8s-n1", None);

const WAYS: [Way; 8] = [
    Way {
        what: "a pod to the world",
        from: POD,
        source: "10.0.1.44",
        destination: ("1.1.1.1", 443),
        shared: OUT,
        local: TO_NODE,
    },
    Way {
        what: "a pod to the world, IPv6",
        from: POD,
        source: "fd00:10:0:1::44",
        destination: ("2606:4700::1111", 443),
        shared: ("br-ex_n1", Some("fd00:30::1")),
        local: TO_NODE,
    },
    Way {
        what: "a pod to its own node, at the address of the gateway router",
        from: POD,
        source: "10.0.1.44",
        destination: ("172.30.0.1", 443),
        shared: TO_NODE,
        local: TO_NODE,
    },
    Way {
        what: "a pod to its own node, at another address",
        from: POD,
        source: "10.0.1.44",
        destination: ("192.168.0.1", 443),
        shared: TO_NODE,
        local: TO_NODE,
    },
    Way {
        what: "a pod to its own node, IPv6",
        from: POD,
        source: "fd00:10:0:1::44",
        destination: ("fd00:aa::1", 443),
        shared: TO_NODE,
        local: TO_NODE,
    },
    Way {
        what: "a pod to another node",
        from: POD,
        source: "10.0.1.44",
        destination: ("172.30.0.2", 443),
        shared: OUT,
        local: TO_NODE,
    },
    Way {
        what: "a pod to a pod of another node",
        from: POD,
        source: "10.0.1.44",
        destination: ("10.0.2.85", 443),
        shared: ("ns2_p2", None),
        local: ("ns2_p2", None),
    },
    Way {
        what: "the world to a node port",
        from: WORLD,
        source: "9.9.9.9",
        destination: ("172.30.0.1", NODE_PORT),
        shared: ("ns2_p2", None),
        local: ("ns2_p2", None),
    },
];

/// What ovn-northd makes of the rows, one packet at a time.
#[test]
fn packets_take_the_way_of_the_mode() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let modes =
        [(GatewayMode::Shared, false), (GatewayMode::Shared, true), (GatewayMode::Local, false)];
    for (mode, snat_per_pod) in modes {
        let logical = Logical::start();
        runtime.block_on(async {
            let config = ClusterConfig { snat_per_pod, ..dual() };
            let mut controller = Running::start(logical.northbound.endpoint(), config);
            let nodes = (1..=2).map(|number| {
                let Node { external, .. } = shared(number);
                let mut node = plain(number);
                node.host_addresses.push(IpAddr::from([172, 30, 0, u8::try_from(number).unwrap()]));
                with_gateway(node, mode, *external.unwrap())
            });
            controller.observe(all_nodes(nodes));
            controller.observe(all_pods([both_families(1), both_families(2)]));
            let (slice_key, mut of_pod_2) = slice(2, 2, 2);
            of_pod_2.endpoints[0].address = IpAddr::from([10, 0, 2, 85]);
            controller.observe(WatchEvent::Services(Seen::All(vec![service(2, 3, 0)])));
            controller.observe(WatchEvent::Slices(Seen::All(vec![(slice_key, of_pod_2)])));
            no_policies().into_iter().for_each(|list| controller.observe(list));
            // Load balancers are put on gateway routers that exist.
            controller.reaches("rows", |progress| progress.converged).await;
            let connection = logical.northbound.open().await;
            let begun = Instant::now();
            loop {
                let now = contents(&connection).await;
                if now
                    .row("Logical_Router", "GR_n2")
                    .is_some_and(|router| router.contains_key("load_balancer"))
                {
                    break;
                }
                assert!(begun.elapsed() < deadline(), "{now:#?}");
                tokio::time::sleep(std::time::Duration::from_millis(5)).await;
            }
            controller.stop().await;
        });
        // Nothing answers ARP here: ovn-controller would have written what it has learned.
        let router = logical.sbctl(&[
            "--bare",
            "--columns=_uuid",
            "find",
            "Datapath_Binding",
            "external_ids:name=GR_n1",
        ]);
        let router = format!("datapath={}", router.trim());
        for (port, neighbour, mac) in [
            ("rtoe", "172.30.0.254", "52:54:00:00:00:fe"),
            ("rtoe", "172.30.0.2", "52:54:00:00:00:02"),
            ("rtoe", "\"fd00:30::ffff\"", "52:54:00:00:00:fe"),
            ("rtoj", "100.64.0.1", "0a:58:64:40:00:01"),
        ] {
            let port = format!("logical_port={port}-GR_n1");
            let (ip, mac) = (format!("ip={neighbour}"), format!("mac=\"{mac}\""));
            // Of the year 2100: ovn-northd removes what is old.
            let time = "timestamp=4102444800000";
            logical.sbctl(&["create", "MAC_Binding", &port, &router, &ip, &mac, time]);
        }
        let mut traces = logical.traces(WAYS.len());
        for way in &WAYS {
            let [datapath, port, own, next] = way.from;
            let family = if way.source.contains(':') { "ip6" } else { "ip4" };
            let packet = format!(
                "inport == \"{port}\" && eth.src == {own} && eth.dst == {next} && {family}.src == {} \
                 && {family}.dst == {} && ip.ttl == 64 && tcp && tcp.src == 40000 && tcp.dst == {}",
                way.source, way.destination.0, way.destination.1
            );
            let trace = traces.of_packet(datapath, &packet);
            let (out, source) = if mode == GatewayMode::Shared { way.shared } else { way.local };
            assert_eq!(delivered(&trace), Some(out), "{mode:?}: {}\n{trace}", way.what);
            // Answers of an endpoint have to come back through the same router. ovn-trace does not
            // follow that source.
            let balanced = way.destination.1 == NODE_PORT;
            assert_eq!(trace.contains("force_snat)"), balanced, "{mode:?}: {}\n{trace}", way.what);
            let changed: Vec<&str> =
                trace.lines().filter_map(|line| line.trim().strip_prefix("ct_snat(")).collect();
            let is_right = match source {
                Some(source) => changed.iter().any(|rest| rest.starts_with(source)),
                // A packet on its way to a load balancer passes such a stage without being changed.
                None => changed.iter().all(|rest| rest.starts_with(')')),
            };
            assert!(is_right, "{mode:?}: {}: {changed:?}\n{trace}", way.what);
        }
    }
}

/// The pod with this number, on the node with this number: 10.0.1.44 and fd00:10:0:1::44, or
/// 10.0.2.85 and fd00:10:0:2::85.
fn both_families(number: u32) -> (PodKey, Pod) {
    let host = 3 + 41 * number;
    let network = PodNetwork {
        mac: format!("0a:58:0a:00:{number:02x}:{host:02x}").parse().unwrap(),
        addresses: vec![
            format!("10.0.{number}.{host}/24").parse().unwrap(),
            format!("fd00:10:0:{number}::{host}/64").parse().unwrap(),
        ],
        gateways: vec![
            format!("10.0.{number}.1").parse().unwrap(),
            format!("fd00:10:0:{number}::1").parse().unwrap(),
        ],
        routes: Vec::new(),
        role: Role::Primary,
        tunnel_id: 0,
        ipv6_link_local_gateway: None,
    };
    let (key, pod) = pod(number, number, 0);
    let annotated =
        Annotated::Network { network: Arc::new(network.into()), spelled: Spelled::Current };
    (key, Pod { annotated, ..pod })
}

/// A pod of both families with another number, on this node.
fn another(number: u32, node: u32) -> (PodKey, Pod) {
    let (_, mut pod) = both_families(node);
    let Annotated::Network { network, .. } = &mut pod.annotated else { unreachable!("it has one") };
    let host = 100 + number;
    let of_pod = PodNetwork {
        mac: format!("0a:58:0a:00:{node:02x}:{host:02x}").parse().unwrap(),
        addresses: vec![
            format!("10.0.{node}.{host}/24").parse().unwrap(),
            format!("fd00:10:0:{node}::{host}/64").parse().unwrap(),
        ],
        gateways: vec![
            format!("10.0.{node}.1").parse().unwrap(),
            format!("fd00:10:0:{node}::1").parse().unwrap(),
        ],
        routes: Vec::new(),
        role: Role::Primary,
        tunnel_id: 0,
        ipv6_link_local_gateway: None,
    };
    *network = Arc::new(of_pod.into());
    let key = PodKey::new("ns0", &format!("another-{number}")).unwrap();
    (key, Pod { uid: format!("uid-{number}-{node}").into(), ..pod })
}

#[tokio::test]
async fn each_pod_has_its_translation_whatever_becomes_of_pods_and_gateways() {
    let config = || ClusterConfig { snat_per_pod: true, ..dual() };
    let mut runner = TestRunner::default();
    let mut nodes: Vec<Node> = (1..=NODES).map(shared).collect();
    let mut pods: BTreeMap<PodKey, Pod> =
        (1..=4).map(|number| another(number, 1 + number % NODES)).collect();
    let site = Site::with(config(), nodes.clone(), pods.clone()).await;
    let translations = |rows: &BTreeSet<(String, String, Row)>| {
        let of_pod = |row: &&(String, String, Row)| {
            row.0 == "NAT" && row.2["logical_ip"].starts_with("10.0.")
        };
        rows.iter().filter(of_pod).count()
    };
    assert_eq!(translations(&site.rows().await), 4);
    let change = (any_node(), 1..=6_u32, 1..=NODES, select(vec![0, 1, 2, 2, 2]));
    for _ in 0..STEPS {
        let (node, number, of, kind) = change.new_tree(&mut runner).unwrap().current();
        let (key, pod) = another(number, of);
        match kind {
            0 => {
                eprintln!("{} gets {:?} {:?}", node.name, node.gateway, node.external);
                let place = nodes.iter().position(|before| before.name == node.name).unwrap();
                nodes[place] = node.clone();
                site.observe(Seen::Applied(node));
            }
            1 => {
                eprintln!("{key} ends");
                pods.remove(&key);
                site.controller.observe(WatchEvent::Pods(Seen::Deleted(key)));
            }
            _ => {
                eprintln!("{key} on n{of}");
                pods.insert(key.clone(), pod.clone());
                site.controller.observe(WatchEvent::Pods(Seen::Applied((key, pod))));
            }
        }
        site.has(&Site::with(config(), nodes.clone(), pods.clone()).await.rows().await).await;
    }
}

#[tokio::test]
async fn a_start_with_another_kind_of_translation_has_none_of_the_kind_before() {
    let nodes = || (1..=NODES).map(shared);
    let pods = || (1..=4).map(|number| another(number, 1 + number % NODES));
    let of = |snat_per_pod| ClusterConfig { snat_per_pod, ..dual() };
    let mut site = Site::with(of(false), nodes(), pods()).await;
    for snat_per_pod in [true, false] {
        let next = Running::without_services(site.northbound.endpoint(), of(snat_per_pod));
        std::mem::replace(&mut site.controller, next).kill().await;
        site.controller.observe(all_nodes(nodes()));
        site.controller.observe(all_pods(pods()));
        site.controller.converged().await;
        site.has(&Site::with(of(snat_per_pod), nodes(), pods()).await.rows().await).await;
    }
}

/// The rows of these nodes in a database that had no others before.
async fn from_nothing(nodes: impl IntoIterator<Item = Node>) -> BTreeSet<(String, String, Row)> {
    Site::of(nodes).await.rows().await
}

#[tokio::test]
async fn whatever_a_gateway_was_before_its_rows_are_those_of_now() {
    let mut runner = TestRunner::default();
    let mut nodes: Vec<Node> = (1..=NODES).map(shared).collect();
    let site = Site::of(nodes.clone()).await;
    for _ in 0..STEPS {
        let next = any_node().new_tree(&mut runner).unwrap().current();
        let place = nodes.iter().position(|node| node.name == next.name).unwrap();
        eprintln!(
            "{} gets {:?} {:?} {:?}",
            next.name, next.gateway, next.external, next.host_addresses
        );
        nodes[place] = next.clone();
        site.observe(Seen::Applied(next));
        site.has(&from_nothing(nodes.clone()).await).await;
    }
    for node in nodes {
        site.observe(Seen::Deleted(node.name));
    }
    site.has(&from_nothing([]).await).await;
}

#[tokio::test]
async fn what_another_program_removes_of_a_gateway_comes_back() {
    let site = Site::of((1..=NODES).map(shared)).await;
    let before = site.rows().await;
    let neighbour = site.nbctl(&[
        "--bare",
        "--columns=_uuid",
        "find",
        "Static_MAC_Binding",
        "ip=169.254.169.4",
    ]);
    let neighbour = neighbour.lines().next().unwrap().to_owned();
    for arguments in [
        &["lr-del", "GR_n1"][..],
        &["lrp-del", "rtoj-GR_n2"],
        &["lrp-del", "rtoe-GR_n3"],
        &["ls-del", "ext_n2"],
        &["lsp-del", "br-ex_n3"],
        &["lsp-del", "etor-GR_n3"],
        &["lsp-del", "jtor-GR_n3"],
        &["lr-nat-del", "GR_n2"],
        &["lr-route-del", "GR_n2"],
        &["lr-route-del", "ovn_cluster_router"],
        &["lr-policy-del", "ovn_cluster_router"],
        &["destroy", "Static_MAC_Binding", &neighbour],
        &["clear", "Logical_Router", "GR_n3", "options"],
        &["set", "Logical_Router_Port", "rtoe-GR_n1", "networks=10.99.0.1/24"],
    ] {
        site.nbctl(arguments);
        eprintln!("{arguments:?}");
        site.has(&before).await;
    }
}

#[tokio::test]
async fn rows_of_other_programs_in_and_beside_a_gateway_stay() {
    let mut site = Site::of((1..=NODES).map(shared)).await;
    for arguments in [
        // Of a pod with an egress address of its own: an external id says whose it is.
        &["lr-nat-add", "GR_n1", "snat", "172.30.0.99", "10.0.1.77"][..],
        &["lr-nat-add", "GR_n1", "dnat_and_snat", "172.30.0.98", "10.0.1.78"],
        &["lr-route-add", "GR_n1", "10.99.0.0/16", "172.30.0.253", "rtoe-GR_n1"],
        &["--policy=src-ip", "lr-route-add", "GR_n1", "10.0.1.9/32", "172.30.0.252"],
        &["lr-route-add", "ovn_cluster_router", "10.98.0.0/16", "100.64.0.2"],
        &[
            "lr-policy-add",
            "ovn_cluster_router",
            "1004",
            "ip4.dst == 1.2.3.4",
            "reroute",
            "10.0.1.2",
        ],
        &["lr-policy-add", "ovn_cluster_router", "102", "ip4.src == 10.0.0.0/8", "allow"],
        &["lsp-add", "ext_n1", "a-port"],
        &["lr-add", "GR_blue_n1"],
        &["ls-add", "exgw-ext_n1"],
        &[
            "create",
            "Static_MAC_Binding",
            "logical_port=rtoe-GR_n1",
            "ip=172.30.0.254",
            "mac=\"52:54:00:00:00:fe\"",
        ],
    ] {
        site.nbctl(arguments);
    }
    let ours = from_nothing((1..=NODES).map(shared)).await;
    let names = |rows: &BTreeSet<(String, String, Row)>| -> BTreeSet<(String, String)> {
        rows.iter().map(|(table, name, _)| (table.clone(), name.clone())).collect()
    };
    let (all, ours) = (names(&site.rows().await), names(&ours));
    let foreign: BTreeSet<_> = all.difference(&ours).cloned().collect();
    assert_eq!(foreign.len(), 11, "{foreign:#?}");

    // A restart, another MAC address, and the end of the node: all of it is done beside them.
    let another = Running::without_services(site.northbound.endpoint(), dual());
    std::mem::replace(&mut site.controller, another).kill().await;
    let mut nodes: Vec<Node> = (1..=NODES).map(shared).collect();
    nodes[0].external.as_mut().unwrap().mac = "52:54:00:00:01:01".parse().unwrap();
    site.controller.observe(all_nodes(nodes.clone()));
    site.controller.observe(all_pods([]));
    site.controller.reaches("the new address", |progress| progress.converged).await;
    assert!(
        site.nbctl(&["get", "Logical_Router_Port", "rtoe-GR_n1", "mac"])
            .contains("52:54:00:00:01:01")
    );
    assert_eq!(names(&site.rows().await), all);

    site.observe(Seen::Deleted(nodes[0].name.clone()));
    // A router and a switch that hold rows of others stay with these.
    let mut left = names(&from_nothing(nodes[1..].to_vec()).await);
    left.extend(foreign);
    left.extend([
        ("Logical_Router".to_owned(), "GR_n1".to_owned()),
        ("Logical_Switch".to_owned(), "ext_n1".to_owned()),
    ]);
    let begun = Instant::now();
    while names(&site.rows().await) != left {
        let now = names(&site.rows().await);
        assert!(
            begun.elapsed() < deadline(),
            "not wanted: {:#?}, missing: {:#?}",
            now.difference(&left).collect::<Vec<_>>(),
            left.difference(&now).collect::<Vec<_>>()
        );
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
}
