//! The cluster: one node of upstream's with a gateway, pods, many Services, and a world.

use std::{
    net::{IpAddr, SocketAddr},
    path::Path,
    time::Duration,
};

use anyhow::{Context as _, Result, ensure};
use integration::{
    Cluster, Node, Pod,
    cluster::{
        GatewayMode, Zone,
        manifest::{idle_pod, on_node},
    },
    eventually,
    traffic::End,
    world::Machine,
};
use serde_json::{Value, json};

use super::{programs, settle, snapshot::Snapshot};

const PODS: &str = "/api/v1/namespaces/default/pods";
const SERVICES: &str = "/api/v1/namespaces/default/services";
const SLICES: &str = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices";
const PATIENCE: Duration = Duration::from_secs(120);
/// Port of servers that send back what they get, and of those that answer once.
pub(super) const ECHO: u16 = 7000;
pub(super) const ANSWER: u16 = 8080;
/// The same of servers on the node itself.
pub(super) const HOST_ECHO: u16 = 7100;
pub(super) const HOST_ANSWER: u16 = 8180;

pub(super) struct Site {
    pub(super) cluster: Cluster,
    pub(super) upstream: Zone,
    pub(super) client: Pod,
    pub(super) server: Pod,
}

impl Site {
    pub(super) fn start(
        upstream: &Path,
        gateway: GatewayMode,
        services: u16,
        say: &(dyn Fn(&str) + Sync),
    ) -> Result<Self> {
        let cluster = programs::bare_node(gateway, say)?;
        let node = &cluster.lab.nodes[0];
        say("starting upstream's programs");
        let zone = programs::upstream(&cluster, upstream, &[])?;
        zone.start()?;
        cluster.wait_until_ready()?;
        say(&format!("creating pods and {services} Services"));
        let names = ["client", "server"];
        let pods = names.map(|name| on_node(idle_pod(name), &node.name));
        cluster.api.create_all(PODS, &pods)?;
        let objects: Vec<Value> = (0..services).map(service).collect();
        cluster.api.create_all(SERVICES, &objects)?;
        let slices = objects.iter().filter(|object| object["spec"]["selector"].is_null());
        let slices: Vec<Value> =
            slices.map(|object| host_slice(object, cluster.lab.world().of_node(node)[0])).collect();
        cluster.api.create_all(SLICES, &slices)?;
        let [client, server] = names.map(|name| wait_for(&cluster, name));
        let (client, server) = (client?, server?);
        programs::send_checksums(node)?;
        settle()?;
        Ok(Self { cluster, upstream: zone, client, server })
    }

    pub(super) fn node(&self) -> &Node {
        &self.cluster.lab.nodes[0]
    }

    pub(super) fn snapshot(&self) -> Result<Snapshot> {
        Snapshot::take(&self.cluster)
    }

    /// Pods and Services come, change and go as before: the node and the world reach a new Service,
    /// a new pod gets ready, and a Service that was there is found at another port, and at its own
    /// again.
    pub(super) fn goes_on(&self) -> Result<()> {
        let (node, api) = (self.node(), &self.cluster.api);
        let pod = "later";
        api.create(PODS, &on_node(idle_pod(pod), &node.name))?;
        api.create(SERVICES, &service(LATER))?;
        wait_for(&self.cluster, pod)?;
        let [[_, own], [_, port]] = self.addresses(LATER)?;
        for (end, to) in
            [(End::Node(node), own), (End::Node(node), port), (End::World(Machine::Client), port)]
        {
            self.reaches(&end, to)?;
        }
        let before = self.addresses(MOVED)?[1][1].port();
        self.move_from(before, STATIC)?;
        self.move_from(STATIC, before)?;
        api.delete(&format!("{SERVICES}/{}", name(LATER)))?;
        api.delete(&format!("{PODS}/{pod}"))?;
        self.cluster.pods.wait("the pod is gone", PATIENCE, |known| {
            ensure!(!known.contains_key(&format!("default/{pod}")), "it is there");
            Ok(())
        })?;
        settle()
    }

    /// The server answers there.
    fn reaches(&self, from: &End<'_>, to: SocketAddr) -> Result<()> {
        eventually(&format!("{to} is reached"), PATIENCE, || {
            let replies = self.cluster.lab.ask(from, &[to], &[])?.concat();
            let server = Some(self.server.address());
            ensure!(replies.iter().all(|reply| reply.address() == server), "{replies:?}");
            Ok(())
        })
    }

    /// Gives a Service another node port; nothing of the one before stays on the bridge.
    fn move_from(&self, before: u16, port: u16) -> Result<()> {
        let path = format!("{SERVICES}/{}", name(MOVED));
        let mut ports = self.cluster.api.read(&path)?["spec"]["ports"].take();
        ports[1]["nodePort"] = json!(port);
        self.cluster.api.patch(&path, &json!({ "spec": { "ports": ports } }))?;
        let node = self.cluster.lab.world().of_node(self.node())[0];
        self.reaches(&End::World(Machine::Client), SocketAddr::new(node, port))?;
        eventually(&format!("port {before} is gone from the bridge"), PATIENCE, || {
            let flows = self.node().run(["ovs-ofctl", "dump-flows", "breth0"])?;
            ensure!(!flows.contains(&format!("tp_dst={before} ")), "{flows}");
            Ok(())
        })
    }

    /// The addresses at which a Service is reached: its own, and its node ports on the node; first
    /// of the connections that last, then of the others.
    pub(super) fn addresses(&self, number: u16) -> Result<[[SocketAddr; 2]; 2]> {
        let service = self.cluster.api.read(&format!("{SERVICES}/{}", name(number)))?;
        let own: IpAddr = service["spec"]["clusterIP"].as_str().context("an address")?.parse()?;
        let node = self.cluster.lab.world().of_node(self.node())[0];
        let port = |index: usize, field: &str| {
            let port = service["spec"]["ports"][index][field].as_u64().unwrap_or_default();
            u16::try_from(port).context("a port")
        };
        let at = |field, ip| {
            anyhow::Ok([SocketAddr::new(ip, port(0, field)?), SocketAddr::new(ip, port(1, field)?)])
        };
        Ok([at("port", own)?, at("nodePort", node)?])
    }
}

/// Waits until the pod is ready.
fn wait_for(cluster: &Cluster, name: &str) -> Result<Pod> {
    let key = format!("default/{name}");
    cluster.wait_for_pod(&key, PATIENCE)?;
    cluster.in_its_namespace(&key)
}

/// Which Service is of which kind; those from [`NODE_PORTS`] on have no node ports, up to
/// [`LATER`].
pub(super) const CLUSTER: u16 = 0;
pub(super) const LOCAL: u16 = 1;
pub(super) const HOST: u16 = 2;
pub(super) const HOST_LOCAL: u16 = 3;
pub(super) const INSIDE: u16 = 5;
const NODE_PORTS: u16 = 60;
const KINDS: u16 = 10;
/// A node port that the API server gives to no Service by itself.
const STATIC: u16 = 30_001;
/// Of the kind [`CLUSTER`]: one that changes, and one that comes and goes.
const MOVED: u16 = KINDS;
const LATER: u16 = 10_000;

fn name(number: u16) -> String {
    format!("s{number}")
}

fn service(number: u16) -> Value {
    let kind = number % KINDS;
    let is_outside = !(NODE_PORTS..LATER).contains(&number);
    let on_host = is_outside && [HOST, HOST_LOCAL].contains(&kind);
    let [echo, answer] = if on_host { [HOST_ECHO, HOST_ANSWER] } else { [ECHO, ANSWER] };
    let port = |name: &str, port: u16, target: u16| json!({"name": name, "port": port, "targetPort": target});
    let mut spec = json!({
        "type": if is_outside { "NodePort" } else { "ClusterIP" },
        "selector": { "name": if kind == 7 { "nothing" } else { "server" } },
        "ports": [port("echo", 80, echo), port("answer", 81, answer)],
    });
    if on_host {
        spec["selector"] = Value::Null;
    }
    if is_outside && [LOCAL, HOST_LOCAL].contains(&kind) {
        spec["externalTrafficPolicy"] = json!("Local");
    }
    match kind {
        4 => spec["sessionAffinity"] = json!("ClientIP"),
        INSIDE => spec["internalTrafficPolicy"] = json!("Local"),
        6 if is_outside => spec["externalIPs"] = json!([format!("198.51.100.{number}")]),
        8 => spec["ports"][1]["protocol"] = json!("UDP"),
        _ => {}
    }
    json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": name(number)}, "spec": spec})
}

/// The node itself as the endpoint of a Service without a selector.
fn host_slice(service: &Value, node: IpAddr) -> Value {
    let name = &service["metadata"]["name"];
    json!({
        "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4",
        "metadata": {"name": name, "labels": {"kubernetes.io/service-name": name}},
        "endpoints": [{"addresses": [node], "conditions": {"ready": true}, "nodeName": "node1"}],
        "ports": [{"name": "echo", "port": HOST_ECHO}, {"name": "answer", "port": HOST_ANSWER}],
    })
}
