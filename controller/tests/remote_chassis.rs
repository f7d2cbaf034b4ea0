//! Chassis of nodes of other zones, on a real southbound database: what the nodes' annotations say
//! is there, and nothing else is touched.
#![expect(clippy::unwrap_used, reason = "what fails here fails the test")]

#[path = "support/server.rs"]
#[allow(dead_code, reason = "a part of it is for the northbound database")]
mod server;

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use controller::{
    config::{ClusterConfig, Interconnect, Zone},
    engine::reconcile::Progress,
    kinds::node::{object::Node, remote_chassis::remote_chassis},
    remote_chassis::{RemoteChassisWriter, monitor},
    remove_node::SOUTHBOUND,
    tunnels::RemoteChassis,
    watch_event::{Seen, WatchEvent},
    world::Store,
};
use kubeapi::election::Leadership;
use ovsdb::{Client, Datum, Monitor, Options, Row, Transaction, Updates, Where};
use server::Server;
use tokio::{
    sync::watch,
    time::{Instant, sleep},
};

/// Far longer than a local database takes on a busy machine.
const PATIENCE: Duration = Duration::from_secs(30);

/// The writer of zone `a`, and its database.
struct World {
    southbound: Server,
    wanted: watch::Sender<Option<Arc<RemoteChassis>>>,
    progress: watch::Sender<Progress>,
    _connected: (Client, Updates),
}

fn progress(blocked: Option<&str>) -> Progress {
    Progress { own_cluster: true, blocked: blocked.map(Into::into), ..Progress::default() }
}

impl World {
    async fn start() -> Self {
        Self::on(Server::southbound().await)
    }

    /// The next writer, on the database of the last one.
    fn restarted(self) -> Self {
        Self::on(self.southbound)
    }

    fn on(southbound: Server) -> Self {
        let (client, updates) =
            Client::start(southbound.endpoints(), SOUTHBOUND, Monitor::new(), Options::default());
        let (wanted, told) = watch::channel(None);
        let (progress, progressed) = watch::channel(progress(None));
        let writer = RemoteChassisWriter {
            chassis: client.replicate(monitor()),
            zone: Zone("a".to_owned()),
            wanted: told,
            leadership: Leadership::always(),
            progress: progressed,
        };
        tokio::spawn(writer.run());
        Self { southbound, wanted, progress, _connected: (client, updates) }
    }

    fn tell(&self, nodes: &[Node]) {
        self.wanted.send_replace(Some(Arc::new(of(nodes))));
    }

    /// Chassis with their host, whether they are remote, and their tunnel addresses with options.
    async fn rows(&self) -> BTreeSet<String> {
        let mut query = Transaction::new();
        let columns = ["name", "hostname", "other_config", "encaps"];
        let chassis = query.select("Chassis", Where::all(), &columns);
        let encaps =
            query.select("Encap", Where::all(), &["ip", "type", "options", "chassis_name"]);
        let outcome = self.southbound.connection.transact(query).await.unwrap();
        let of_chassis = |row: &ovsdb::SelectedRow| {
            let own = row.uuids("encaps");
            let ends = outcome.rows(encaps).iter().filter(|encap| own.contains(&encap.uuid()));
            let ends: BTreeSet<String> = ends
                .map(|encap| {
                    let [ip, kind, of] =
                        ["ip", "type", "chassis_name"].map(|name| encap.string(name).unwrap());
                    let options = encap.map("options");
                    assert_eq!(of, row.string("name").unwrap());
                    format!("{kind}:{ip}{options:?}")
                })
                .collect();
            let [name, host] = ["name", "hostname"].map(|name| row.string(name).unwrap());
            let remote = row.map("other_config").get("is-remote").map(ToString::to_string);
            format!("{name} {host} {remote:?} {ends:?}")
        };
        outcome.rows(chassis).iter().map(of_chassis).collect()
    }

    async fn becomes(&self, expected: &[&str]) {
        let expected: BTreeSet<String> = expected.iter().map(|row| (*row).to_owned()).collect();
        let deadline = Instant::now() + PATIENCE;
        while self.rows().await != expected {
            assert!(Instant::now() < deadline, "{:#?}\nand not {expected:#?}", self.rows().await);
            sleep(Duration::from_millis(20)).await;
        }
    }
}

fn node(name: &str, zone: &str, chassis: &str, encaps: &[&str]) -> Node {
    Node {
        uid: name.into(),
        zone: Some(Zone(zone.to_owned())),
        chassis: (!chassis.is_empty()).then(|| chassis.to_owned()),
        encap_ips: encaps.iter().map(|ip| ip.parse().unwrap()).collect(),
        ..Node::named(name)
    }
}

/// What zone `a` should have of these nodes.
fn of(nodes: &[Node]) -> RemoteChassis {
    let config = ClusterConfig {
        zone: Zone("a".to_owned()),
        interconnect: Interconnect::On,
        ..ClusterConfig::default()
    };
    let mut store = Store::new(config);
    store.observe(WatchEvent::Nodes(Seen::All(nodes.to_vec())), &mut |_, _| ());
    remote_chassis(&store)
}

const CSUM: &str = r#"{"csum": "true"}"#;

fn remote(name: &str, host: &str, ips: &[&str]) -> String {
    let ends: BTreeSet<String> = ips.iter().map(|ip| format!("geneve:{ip}{CSUM}")).collect();
    format!("{name} {host} Some(\"true\") {ends:?}")
}

/// What a node's own ovn-controller writes.
async fn registers(world: &World, name: &str, host: &str, ip: &str, remote: Option<&str>) {
    let mut transaction = Transaction::new();
    let columns = Row::new().with("type", "geneve").with("ip", ip).with("chassis_name", name);
    let encap =
        transaction.insert("Encap", columns.with("options", Datum::map([("csum", "true")])));
    let config =
        remote.map(|value| ("is-remote", value)).into_iter().chain([("datapath-type", "")]);
    let row = Row::new().with("name", name).with("hostname", host);
    let row = row.with("encaps", Datum::set([encap])).with("other_config", Datum::map(config));
    transaction.insert("Chassis", row);
    world.southbound.connection.transact(transaction).await.unwrap();
}

#[tokio::test]
async fn a_chassis_of_another_zone_is_there_as_long_as_its_node_and_local_ones_stay() {
    let world = World::start().await;
    registers(&world, "c1", "n1", "192.0.2.1", None).await;
    let own = format!("c1 n1 None {:?}", BTreeSet::from([format!("geneve:192.0.2.1{CSUM}")]));
    let n1 = node("n1", "a", "c1", &["192.0.2.1"]);
    let n2 = node("n2", "b", "c2", &["192.0.2.2", "192.0.2.22"]);
    let n3 = node("n3", "b", "c3", &["192.0.2.3"]);
    world.tell(&[n1.clone(), n2.clone(), n3.clone()]);
    let (two, three) =
        (remote("c2", "n2", &["192.0.2.2", "192.0.2.22"]), remote("c3", "n3", &["192.0.2.3"]));
    world.becomes(&[&own, &two, &three]).await;

    // An address goes, and another chassis gets it in the same moment.
    let n2 = Node { encap_ips: vec!["192.0.2.22".parse().unwrap()], ..n2 };
    let n3 = Node { encap_ips: vec!["192.0.2.2".parse().unwrap()], ..n3 };
    world.tell(&[n1.clone(), n2.clone(), n3.clone()]);
    let (two, three) = (remote("c2", "n2", &["192.0.2.22"]), remote("c3", "n3", &["192.0.2.2"]));
    world.becomes(&[&own, &two, &three]).await;

    // Another machine of the same name and address.
    let n2 = Node { chassis: Some("c22".to_owned()), ..n2 };
    world.tell(&[n1.clone(), n2.clone(), n3.clone()]);
    let two = remote("c22", "n2", &["192.0.2.22"]);
    world.becomes(&[&own, &two, &three]).await;

    // Whatever is not known of a node changes nothing of it; a node that is gone has no rows.
    world.tell(&[n1.clone(), node("n2", "b", "", &[]), node("n4", "b", "c4", &["192.0.2.4"])]);
    let four = remote("c4", "n4", &["192.0.2.4"]);
    world.becomes(&[&own, &two, &four]).await;

    // All rows are lost, and somebody changes one.
    let mut lost = Transaction::new();
    lost.delete("Chassis", Where::all());
    world.southbound.connection.transact(lost).await.unwrap();
    world.becomes(&[&four]).await;
    let mut changed = Transaction::new();
    changed.update("Encap", Where::all(), Row::new().with("options", Datum::map([("csum", "x")])));
    world.southbound.connection.transact(changed).await.unwrap();
    world.becomes(&[&four]).await;

    // The node comes into this zone: its own ovn-controller has the row from now on.
    world.tell(&[n1, node("n4", "a", "c4", &["192.0.2.4"])]);
    world.becomes(&[&four.replace("true\")", "false\")")]).await;
}

/// One refused row held up all others.
#[tokio::test]
async fn a_chassis_that_the_database_refuses_holds_up_no_other_one() {
    let world = World::start().await;
    // An address of a chassis of this zone, which another zone's node names, too.
    registers(&world, "c1", "n1", "192.0.2.1", None).await;
    let own = format!("c1 n1 None {:?}", BTreeSet::from([format!("geneve:192.0.2.1{CSUM}")]));
    let nodes = [
        node("n1", "a", "c1", &["192.0.2.1"]),
        node("n2", "b", "c2", &["192.0.2.1"]),
        node("n3", "b", "c3", &["192.0.2.3"]),
    ];
    world.tell(&nodes);
    world.becomes(&[&own, &remote("c3", "n3", &["192.0.2.3"])]).await;
}

/// With its address, another zone's node took the node out of its own zone while its chassis was
/// away; with its chassis, its tunnels.
#[tokio::test]
async fn no_node_of_another_zone_has_an_address_or_the_chassis_of_one_of_this_zone() {
    let world = World::start().await;
    let n1 = node("n1", "a", "c1", &["192.0.2.1"]);
    let older = Node { created: -1, ..node("n2", "b", "c2", &["192.0.2.1", "192.0.2.2"]) };
    world.tell(&[n1.clone(), older.clone()]);
    let two = remote("c2", "n2", &["192.0.2.2"]);
    world.becomes(&[&two]).await;
    registers(&world, "c1", "n1", "192.0.2.1", None).await;
    let own = format!("c1 n1 None {:?}", BTreeSet::from([format!("geneve:192.0.2.1{CSUM}")]));
    // Its annotation is lost for a moment, and a node of another zone says that it is its chassis.
    let thief = node("n3", "b", "c1", &["192.0.2.3"]);
    world.tell(&[
        Node { chassis: None, ..n1 },
        older,
        thief,
        node("n4", "b", "c4", &["192.0.2.4"]),
    ]);
    world.becomes(&[&own, &two, &remote("c4", "n4", &["192.0.2.4"])]).await;
    sleep(Duration::from_millis(300)).await;
    world.becomes(&[&own, &two, &remote("c4", "n4", &["192.0.2.4"])]).await;
}

/// The older node had it: the tunnels of the other one went, and its packets to the older.
#[tokio::test]
async fn of_two_nodes_of_other_zones_with_one_address_the_one_that_had_it_keeps_it() {
    let world = World::start().await;
    let victim = node("n2", "b", "c2", &["192.0.2.2"]);
    let thief = |encaps| Node { created: -1, ..node("n3", "c", "c3", encaps) };
    world.tell(&[victim.clone(), thief(&["192.0.2.3"])]);
    let two = remote("c2", "n2", &["192.0.2.2"]);
    world.becomes(&[&two, &remote("c3", "n3", &["192.0.2.3"])]).await;
    let both = [victim.clone(), thief(&["192.0.2.2", "192.0.2.4"])];
    world.tell(&both);
    let three = remote("c3", "n3", &["192.0.2.4"]);
    world.becomes(&[&two, &three]).await;

    // Nothing but the database knows it, and then nothing but the process.
    let world = world.restarted();
    world.tell(&both);
    let four = node("n4", "b", "c4", &["192.0.2.5"]);
    world.tell(&[&both[..], std::slice::from_ref(&four)].concat());
    let four = remote("c4", "n4", &["192.0.2.5"]);
    world.becomes(&[&two, &three, &four]).await;
    let mut lost = Transaction::new();
    lost.delete("Chassis", Where::all());
    world.southbound.connection.transact(lost).await.unwrap();
    world.becomes(&[&two, &three, &four]).await;

    // Another machine has it: Kubernetes hears nothing of the former one.
    let silent = Node { is_unreachable: true, ..victim };
    world.tell(&[silent, thief(&["192.0.2.2", "192.0.2.4"])]);
    world.becomes(&[&remote("c3", "n3", &["192.0.2.2", "192.0.2.4"])]).await;
}

/// The first fill was one transaction, however many nodes there were.
#[tokio::test]
async fn chassis_of_many_nodes_are_written_in_transactions_of_bounded_size() {
    let world = World::start().await;
    let nodes: Vec<Node> = (0..1200_u32)
        .map(|number| {
            let ip = std::net::Ipv4Addr::from(0xc612_0000 + number).to_string();
            node(&format!("n{number}"), "b", &format!("c{number}"), &[&ip])
        })
        .collect();
    world.tell(&nodes);
    let deadline = Instant::now() + PATIENCE;
    while world.rows().await.len() < nodes.len() {
        assert!(Instant::now() < deadline, "{} rows", world.rows().await.len());
        sleep(Duration::from_millis(20)).await;
    }
    let records = world.southbound.records();
    let hosts = |record: &String| record.matches("\"hostname\"").count();
    let largest = records.iter().map(hosts).max().unwrap();
    assert!(largest <= 250, "{largest} of {} chassis in one transaction", nodes.len());
    // No more than it takes, and each of them once.
    assert_eq!(records.iter().map(hosts).sum::<usize>(), nodes.len());
    assert!(records.len() <= 6, "{} transactions", records.len());
}

/// Both wrote at full speed.
#[tokio::test]
async fn a_chassis_that_another_program_writes_again_and_again_is_mended_more_and_more_slowly() {
    let world = World::start().await;
    world.tell(&[node("n2", "b", "c2", &["192.0.2.2"])]);
    let right = remote("c2", "n2", &["192.0.2.2"]);
    world.becomes(&[&right]).await;
    let began = Instant::now();
    let mut mended = 0;
    while began.elapsed() < Duration::from_secs(2) {
        if world.rows().await.contains(&right) {
            mended += 1;
            let mut other = Transaction::new();
            other.update("Chassis", Where::all(), Row::new().with("hostname", "other"));
            world.southbound.connection.transact(other).await.unwrap();
        }
        sleep(Duration::from_millis(2)).await;
    }
    assert!((2..=8).contains(&mended), "{mended} times in 2 s");
}

#[tokio::test]
async fn nothing_is_written_into_the_database_of_another_zone() {
    let world = World::start().await;
    world.progress.send_replace(progress(Some("the database is of zone-7")));
    world.tell(&[node("n2", "b", "c2", &["192.0.2.2"])]);
    sleep(Duration::from_millis(300)).await;
    assert!(world.rows().await.is_empty());
    world.progress.send_replace(progress(None));
    world.becomes(&[&remote("c2", "n2", &["192.0.2.2"])]).await;
}

/// Only the northbound database was asked whose it is.
#[tokio::test]
async fn nothing_is_written_into_the_southbound_database_of_another_zone() {
    let world = World::start().await;
    let name = |name: &str| Row::new().with("options", Datum::map([("name", name)]));
    let mut of_another = Transaction::new();
    of_another.insert("SB_Global", name("b"));
    world.southbound.connection.transact(of_another).await.unwrap();
    world.tell(&[node("n2", "b", "c2", &["192.0.2.2"])]);
    sleep(Duration::from_millis(300)).await;
    assert!(world.rows().await.is_empty());
    let mut own = Transaction::new();
    own.update("SB_Global", Where::all(), name("a"));
    world.southbound.connection.transact(own).await.unwrap();
    world.becomes(&[&remote("c2", "n2", &["192.0.2.2"])]).await;
}
