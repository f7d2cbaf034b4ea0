//! The cluster of a run: one node, a client and three servers in pods, other Services.

use std::{
    collections::BTreeMap,
    net::{IpAddr, Ipv4Addr, SocketAddr},
    time::Duration,
};

use anyhow::{Context as _, Result, ensure};
use integration::{
    Cluster, Pod,
    central::NORTHBOUND,
    cluster::{attached::is_ready, manifest::idle_pod},
    connections::{Connections, Server},
    eventually,
    peer::Pace,
};
use ovsdb::{Condition, Connection, Datum, Mutation, Options, Row, Transaction};
use serde_json::{Value, json};

use super::{
    change::{Backends, Round, Service, measure},
    report::Rates,
};

const PODS: &str = "/api/v1/namespaces/default/pods";
const SERVICES: &str = "/api/v1/namespaces/default/services";
const SLICES: &str = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices";
/// The port of the Services, and that of the servers.
const PORT: u16 = 80;
const SERVER_PORT: u16 = 8080;
/// The group of load balancers that all switches have, under upstream's name.
const GROUP: &str = "clusterLBGroup";
const TABLE: &str = "Load_Balancer";
/// For pods to become ready and for thousands of rows to be written, on a busy machine.
pub(super) const PATIENCE: Duration = Duration::from_secs(180);

/// How long and how often the rate of connections is measured: some thousand connections each time.
const TURN: Duration = Duration::from_secs(2);
const TURNS: usize = 3;

/// The running cluster.
pub(crate) struct Site {
    pub(super) cluster: Cluster,
    client: Pod,
    servers: [Pod; 2],
    /// The server that policies are about.
    guarded: Pod,
    /// They run as long as the site.
    _answering: [Server; 3],
    runtime: tokio::runtime::Runtime,
    northbound: Connection,
}

impl Site {
    pub(crate) fn start(say: &(dyn Fn(&str) + Sync)) -> Result<Self> {
        let cluster = Cluster::of_nodes(1).build(say)?;
        say("starting a client and three servers");
        let names = ["client", "first", "second", "guarded"];
        cluster.api.create_all(PODS, &names.map(idle_pod))?;
        let keys = names.map(|name| format!("default/{name}"));
        cluster.pods.wait("the pods are ready", PATIENCE, |known| {
            let ready = |key: &&String| known.get(*key).is_some_and(is_ready);
            ensure!(keys.iter().all(|key| ready(&key)), "they are not");
            Ok(())
        })?;
        let attached = |key: &String| cluster.attached(key);
        let (client, servers) = (attached(&keys[0])?, [attached(&keys[1])?, attached(&keys[2])?]);
        let answer =
            |pod: &Pod| cluster.lab.answering(pod, &[SocketAddr::new(pod.address(), SERVER_PORT)]);
        let guarded = attached(&keys[3])?;
        let answering = [answer(&servers[0])?, answer(&servers[1])?, answer(&guarded)?];
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
        let options = Options { probe_interval: None, ..Options::default() };
        let endpoint = NORTHBOUND.parse()?;
        let northbound =
            runtime.block_on(Connection::open(&endpoint, "OVN_Northbound", options))?;
        Ok(Self { cluster, client, servers, guarded, _answering: answering, runtime, northbound })
    }

    /// An address that no other round has. They are in the part of the range that the API server
    /// assigns last.
    pub(crate) fn address(&self, with_others: bool, round: u8, way: u8) -> IpAddr {
        Ipv4Addr::new(10, 96, 0, 20 + 100 * u8::from(with_others) + 2 * round + way).into()
    }

    /// Creates other Services, each with two endpoints that do not exist, and waits until every
    /// node has their flows.
    pub(crate) fn add_others(&self, count: usize) -> Result<()> {
        let before = self.services()?;
        let names = (0..count).map(|number| format!("other-{number}"));
        let (slices, services): (Vec<Value>, Vec<Value>) = names
            .enumerate()
            .map(|(number, name)| {
                let host = u8::try_from(2 + number % 200).unwrap_or(2);
                let endpoints =
                    [Ipv4Addr::new(10, 244, 200, host), Ipv4Addr::new(10, 244, 201, host)];
                let endpoints =
                    endpoints.map(|address| SocketAddr::new(address.into(), SERVER_PORT));
                (slice(&name, &endpoints), service(&name, None))
            })
            .unzip();
        self.cluster.api.create_all(SLICES, &slices)?;
        self.cluster.api.create_all(SERVICES, &services)?;
        eventually("every other Service has its rows", PATIENCE, || {
            let now = self.services()?;
            ensure!(now >= before + count, "{now} of {}", before + count);
            Ok(())
        })?;
        self.cluster.lab.central.sync()
    }

    /// Number of load balancers in the northbound database.
    pub(crate) fn services(&self) -> Result<usize> {
        self.rows(TABLE)
    }

    /// Number of rows of a table of the northbound database.
    pub(super) fn rows(&self, table: &str) -> Result<usize> {
        let mut transaction = Transaction::new();
        let all = transaction.select(table, ovsdb::Where::all(), &[]);
        Ok(self.transact(transaction)?.rows(all).len())
    }

    /// The rows of a Service, written by bare transactions.
    pub(crate) fn bare_round(&self, address: &IpAddr) -> Result<Round> {
        let row = BareRow { site: self, address: *address };
        measure(&row, &self.connections(*address)?, self.server_addresses())
    }

    /// A Service of the API server.
    pub(crate) fn kubernetes_round(&self, address: &IpAddr) -> Result<Round> {
        let name = format!("service-{}", address.to_string().replace('.', "-"));
        let service = Object { site: self, name, address: *address };
        self.cluster.api.create(SLICES, &slice(&service.name, &self.backends(Backends::First)))?;
        let round = measure(&service, &self.connections(*address)?, self.server_addresses())?;
        self.cluster.api.delete(&format!("{SLICES}/{}", service.name))?;
        Ok(round)
    }

    /// Connections one after the other, in turn straight to the first server and through a
    /// Service's address.
    pub(crate) fn rates(&self, address: &IpAddr) -> Result<Rates> {
        let service = Object { site: self, name: "rate".to_owned(), address: *address };
        self.cluster.api.create(SLICES, &slice(&service.name, &self.backends(Backends::First)))?;
        let before = self.services()?;
        service.create()?;
        // Not by connecting in vain: what was tracked without the Service is not sent to its server
        // later, from the same port of the client.
        eventually("the Service has its row", PATIENCE, || {
            ensure!(self.services()? > before, "it has not");
            Ok(())
        })?;
        self.cluster.lab.central.sync()?;
        let [straight, _] = self.server_addresses();
        let through = SocketAddr::new(*address, PORT);
        let mut rates = Rates::default();
        for _ in 0..TURNS {
            for (to, taken) in [(straight, &mut rates.straight), (through, &mut rates.through)] {
                // What is tracked of earlier connections between the same two ports keeps Open
                // vSwitch's userspace conntrack from translating one: "Unable to NAT due to tuple
                // space exhaustion".
                self.cluster.lab.nodes[0].run(["ovs-appctl", "dpctl/flush-conntrack"])?;
                taken.push(self.cluster.lab.repeated(&self.client, to, TURN)?);
            }
        }
        service.delete()?;
        self.cluster.api.delete(&format!("{SLICES}/{}", service.name))?;
        Ok(rates)
    }

    fn connections(&self, address: IpAddr) -> Result<Connections> {
        self.connections_to(SocketAddr::new(address, PORT))
    }

    pub(super) fn connections_to(&self, to: SocketAddr) -> Result<Connections> {
        self.cluster.lab.connections(&self.client, to, Pace::FAST)
    }

    pub(super) fn client_address(&self) -> IpAddr {
        self.client.address()
    }

    /// Of the server that policies are about.
    pub(super) fn guarded_address(&self) -> SocketAddr {
        SocketAddr::new(self.guarded.address(), SERVER_PORT)
    }

    fn server_addresses(&self) -> [SocketAddr; 2] {
        [0, 1].map(|index: usize| SocketAddr::new(self.servers[index].address(), SERVER_PORT))
    }

    fn backends(&self, backends: Backends) -> Vec<SocketAddr> {
        let [first, second] = self.server_addresses();
        match backends {
            Backends::First => vec![first],
            Backends::Both => vec![first, second],
            Backends::Second => vec![second],
        }
    }

    pub(super) fn transact(&self, transaction: Transaction) -> Result<ovsdb::Outcome> {
        Ok(self.runtime.block_on(self.northbound.transact(transaction))?)
    }
}

/// A Service as an object of the API server.
struct Object<'a> {
    site: &'a Site,
    name: String,
    address: IpAddr,
}

impl Service for Object<'_> {
    fn create(&self) -> Result<()> {
        self.site.cluster.api.create(SERVICES, &service(&self.name, Some(self.address))).map(drop)
    }

    fn change(&self, backends: Backends) -> Result<()> {
        let endpoints = &slice(&self.name, &self.site.backends(backends))["endpoints"];
        let path = format!("{SLICES}/{}", self.name);
        self.site.cluster.api.patch(&path, &json!({ "endpoints": endpoints })).map(drop)
    }

    fn delete(&self) -> Result<()> {
        self.site.cluster.api.delete(&format!("{SERVICES}/{}", self.name)).map(drop)
    }
}

/// The row of a Service, without a Service.
struct BareRow<'a> {
    site: &'a Site,
    address: IpAddr,
}

impl BareRow<'_> {
    /// Neither a Service's name nor its ids, so that the control plane leaves it alone.
    fn name(&self) -> String {
        format!("bare-{}", self.address)
    }

    fn vips(&self, backends: Backends) -> Datum {
        let backends = self.site.backends(backends);
        let list: Vec<String> = backends.iter().map(ToString::to_string).collect();
        Datum::map([(SocketAddr::new(self.address, PORT).to_string(), list.join(","))])
    }
}

impl Service for BareRow<'_> {
    fn create(&self) -> Result<()> {
        let mut transaction = Transaction::new();
        let options = BTreeMap::from([("reject", "true"), ("neighbor_responder", "none")]);
        let row = Row::new()
            .with("name", self.name())
            .with("protocol", "tcp")
            .with("vips", self.vips(Backends::First))
            .with("options", Datum::map(options));
        let row = transaction.insert(TABLE, row);
        transaction.mutate(
            "Load_Balancer_Group",
            Condition::equal("name", GROUP),
            vec![Mutation::insert("load_balancer", row)],
        );
        self.site.transact(transaction).map(drop)
    }

    fn change(&self, backends: Backends) -> Result<()> {
        let mut transaction = Transaction::new();
        let vips = Row::new().with("vips", self.vips(backends));
        transaction.update(TABLE, Condition::equal("name", self.name()), vips);
        self.site.transact(transaction).map(drop)
    }

    fn delete(&self) -> Result<()> {
        let mut transaction = Transaction::new();
        let rows = transaction.select(TABLE, Condition::equal("name", self.name()), &[]);
        let outcome = self.site.transact(transaction)?;
        let row = outcome.rows(rows).first().context("the row is gone")?.uuid();
        let mut transaction = Transaction::new();
        transaction.mutate(
            "Load_Balancer_Group",
            Condition::equal("name", GROUP),
            vec![Mutation::delete("load_balancer", row)],
        );
        transaction.delete(TABLE, row);
        self.site.transact(transaction).map(drop)
    }
}

/// A Service without a selector: its slice is written by hand. Without an address the API server
/// gives it one.
fn service(name: &str, address: Option<IpAddr>) -> Value {
    let mut service = json!({
        "apiVersion": "v1", "kind": "Service", "metadata": { "name": name },
        "spec": { "ports": [{ "port": PORT, "targetPort": SERVER_PORT }] },
    });
    if let Some(address) = address {
        service["spec"]["clusterIP"] = json!(address);
    }
    service
}

fn slice(service: &str, endpoints: &[SocketAddr]) -> Value {
    let endpoints: Vec<Value> = endpoints
        .iter()
        .map(|endpoint| json!({ "addresses": [endpoint.ip()], "conditions": { "ready": true } }))
        .collect();
    json!({
        "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice",
        "metadata": { "name": service, "labels": { "kubernetes.io/service-name": service } },
        "addressType": "IPv4",
        "ports": [{ "port": SERVER_PORT, "protocol": "TCP" }],
        "endpoints": endpoints,
    })
}
