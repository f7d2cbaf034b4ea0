//! The world of one node whose gateway router serves node ports: the flows of the bridge of its
//! NIC, how soon all of them are there, and what one more costs.
//!
//! Open vSwitch, the API server, the node's server and the control plane are real. Flows are
//! observed by `ovs-ofctl monitor`, apart from the sizes of messages, which only their sender
//! knows: those are from the server's log.

use std::{collections::BTreeSet, os::unix::net::UnixStream, thread, time::Instant};

use anyhow::{Context as _, Result, ensure};
use integration::{Cluster, Families, Node, cluster::GatewayMode, eventually, threads};
use serde_json::{Value, json};

use self::{
    figures::{NodePorts, Round, Sent},
    monitor::{Monitor, PATIENCE, flow_of_port},
};
use super::process::Usage;

pub(crate) mod figures;
mod monitor;

/// The bridge of the node's NIC.
const BRIDGE: &str = "breth0";
/// The cookie of the server's flows.
const COOKIE: &str = "cookie=0xdeff105";
/// The first node port; Kubernetes' range ends at 32767.
const FIRST: u16 = 30_000;
/// Node ports that come and go, one after the other, beside all others.
const ROUNDS: u16 = 20;
/// The most that leave room for those.
pub(crate) const MOST: u16 = 2_700;
const SERVICES: &str = "/api/v1/namespaces/default/services";
const SLICES: &str = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices";
const OPTIONS: [&str; 2] = ["--nodeport", "--loglevel=dbg"];

/// Measures everything, and reports progress to `say`.
pub(crate) fn run(count: u16, say: &(dyn Fn(&str) + Sync)) -> Result<NodePorts> {
    let cluster = Cluster::of_nodes(1)
        .families(Families::V4)
        .gateway(GatewayMode::Shared)
        .without_kubelets()
        .server_options(&OPTIONS)
        .build(say)?;
    let world = World { cluster: &cluster, node: &cluster.lab.nodes[0] };
    let without = world.flows()?;
    say(&format!("{} flows without node ports; one comes and goes {ROUNDS} times", without.ours));
    let alone = world.rounds(count)?;
    say(&format!("creating {count} node ports"));
    let created = world.create(count)?;
    let with = world.flows()?;
    say(&format!(
        "{} flows after {created:.2} s; one more comes and goes {ROUNDS} times",
        with.ours
    ));
    cluster.lab.central.sync()?;
    let beside = world.rounds(count)?;
    say("starting ovs-vswitchd again");
    let switch_restarted = world.restart_switch(count)?;
    say(&format!(
        "the flows were back after {:.0} ms; starting the server again",
        switch_restarted * 1e3
    ));
    let (server_restarted, sent) = world.restart_server(count)?;
    Ok(NodePorts {
        count,
        flows_without: without.ours,
        flows: with.ours,
        created,
        alone,
        beside,
        switch_restarted,
        server_restarted,
        sent,
        server: Usage::of(&world.node.server)?,
    })
}

struct World<'a> {
    cluster: &'a Cluster,
    node: &'a Node,
}

/// The flows of the bridge.
struct Flows {
    /// Number of the server's.
    ours: usize,
    /// The node ports that they lead to the gateway router.
    ports: BTreeSet<u16>,
}

impl World<'_> {
    fn flows(&self) -> Result<Flows> {
        let text =
            self.node.run(["ovs-ofctl", "-O", "OpenFlow14", "--no-stats", "dump-flows", BRIDGE])?;
        let ours = || text.lines().filter(|line| line.trim_start().starts_with(COOKIE));
        Ok(Flows { ours: ours().count(), ports: ours().filter_map(flow_of_port).collect() })
    }

    fn all_there(&self, count: u16) -> Result<()> {
        let there = self.flows()?.ports.len();
        ensure!(there == usize::from(count), "{there} of {count} node ports have their flow");
        Ok(())
    }

    /// Creates the Services. Returns the seconds from the API server's last answer until the last
    /// flow.
    fn create(&self, count: u16) -> Result<f64> {
        let (slices, services): (Vec<Value>, Vec<Value>) =
            (FIRST..FIRST + count).map(|port| (slice(port), service(port))).unzip();
        self.cluster.api.create_all(SLICES, &slices)?;
        let mut monitor = Monitor::start(self.node, BRIDGE)?;
        self.cluster.api.create_all(SERVICES, &services)?;
        let answered = Instant::now();
        let last = monitor.until_added((FIRST..FIRST + count).collect())?;
        self.all_there(count)?;
        Ok(last.saturating_duration_since(answered).as_secs_f64())
    }

    /// One node port beyond the others comes and goes, again and again.
    fn rounds(&self, count: u16) -> Result<Vec<Round>> {
        let sent_before = self.sent()?.len();
        let mut rounds = Vec::new();
        for port in (FIRST + count..).take(ROUNDS.into()) {
            let mut monitor = Monitor::start(self.node, BRIDGE)?;
            self.cluster.api.create(SLICES, &slice(port))?;
            let began = Instant::now();
            self.cluster.api.create(SERVICES, &service(port))?;
            let answered = began.elapsed();
            let added = monitor.until_added([port].into())?;
            let deleting = Instant::now();
            self.cluster.api.delete(&format!("{SERVICES}/{}", name(port)))?;
            let removed = monitor.until_deleted(port)?;
            self.cluster.api.delete(&format!("{SLICES}/{}", name(port)))?;
            rounds.push(Round {
                answered: answered.as_secs_f64() * 1e3,
                added: (added - began).as_secs_f64() * 1e3,
                removed: (removed - deleting).as_secs_f64() * 1e3,
                events: monitor.events(),
                bytes: 0,
            });
        }
        // Each round is two messages to the bridge: the flows come, and go.
        let expected = sent_before + 2 * rounds.len();
        let sent = eventually("the log has the sizes", PATIENCE, || {
            let sent = self.sent()?;
            ensure!(sent.len() >= expected, "{} of {expected} lines are there", sent.len());
            Ok(sent)
        })?;
        let additions = sent[sent_before..].iter().filter(|sent| sent.added > 0);
        for (round, sent) in rounds.iter_mut().zip(additions) {
            round.bytes = sent.bytes;
        }
        Ok(rounds)
    }

    /// Seconds from the first connection that the bridge of a new ovs-vswitchd accepts until all
    /// flows are there.
    fn restart_switch(&self, count: u16) -> Result<f64> {
        self.node.vswitchd.kill()?;
        let socket = self.node.path(format!("/run/openvswitch/{BRIDGE}.mgmt"));
        thread::scope(|scope| {
            let start = scope.spawn(|| self.node.start_vswitchd());
            let began = eventually("the bridge accepts connections", PATIENCE, || {
                UnixStream::connect(&socket)
                    .with_context(|| format!("connect to {}", socket.display()))?;
                Ok(Instant::now())
            })?;
            // Those that are there before the monitor count as seen when it begins: an upper limit.
            let mut monitor = Monitor::start(self.node, BRIDGE)?;
            let last = monitor.until_added((FIRST..FIRST + count).collect())?;
            threads::join(start)?;
            self.all_there(count)?;
            Ok((last - began).as_secs_f64())
        })
    }

    /// Empties the bridge while no server runs. Returns the seconds from the start of a new one
    /// until all flows are there, and what it sent.
    fn restart_server(&self, count: u16) -> Result<(f64, Sent)> {
        self.node.server.stop()?;
        let cookie = format!("{COOKIE}/-1");
        self.node.run(["ovs-ofctl", "-O", "OpenFlow14", "del-flows", BRIDGE, &cookie])?;
        let mut monitor = Monitor::start(self.node, BRIDGE)?;
        let sent_before = self.sent()?.len();
        let began = Instant::now();
        self.node.start_server()?;
        let last = monitor.until_added((FIRST..FIRST + count).collect())?;
        self.all_there(count)?;
        let sent = eventually("the log has the size of the largest message", PATIENCE, || {
            let sent = self.sent()?;
            let largest = sent[sent_before..]
                .iter()
                .max_by_key(|sent| sent.added)
                .context("nothing was sent")?;
            ensure!(largest.added > 0, "nothing was added");
            Ok(*largest)
        })?;
        Ok(((last - began).as_secs_f64(), sent))
    }

    /// What the server has sent to the bridge so far, without what changed nothing.
    fn sent(&self) -> Result<Vec<Sent>> {
        // Sizes are in its lines for debugging.
        Ok(self.node.server_log()?.lines().filter_map(Sent::read).collect())
    }
}

fn name(port: u16) -> String {
    format!("web-{port}")
}

/// A Service with a node port, without a selector: its slice is written by hand.
fn service(port: u16) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Service", "metadata": {"name": name(port)},
        "spec": {"type": "NodePort", "ports": [{"port": 80, "targetPort": 8080, "nodePort": port}]},
    })
}

/// Two endpoints on other nodes, which do not exist.
fn slice(port: u16) -> Value {
    let endpoint = |subnet: u8| {
        let address = format!("10.244.{subnet}.{}", 3 + port % 250);
        json!({"addresses": [address], "nodeName": format!("other{subnet}"), "conditions": {"ready": true}})
    };
    json!({
        "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice",
        "metadata": {"name": name(port), "labels": {"kubernetes.io/service-name": name(port)}},
        "addressType": "IPv4",
        "ports": [{"port": 8080, "protocol": "TCP"}],
        "endpoints": [endpoint(200), endpoint(201)],
    })
}
