//! Node ports and external addresses of Services, by packets from everywhere: pods, hosts, and a
//! machine that is no node.

use std::{
    collections::BTreeSet,
    net::{IpAddr, SocketAddr},
    process::Command,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, ensure};
use integration::{Cluster, Families, Node, Pod, command, eventually, fabric, traffic::End};
use serde_json::{Value, json};

use crate::cluster::support::{PODS, SOON, attached, pod, wait_ready};

const SERVICES: &str = "/api/v1/namespaces/default/services";
/// Refusals are immediate; this is for a busy machine.
const AT_ONCE: Duration = Duration::from_secs(2);
/// Addresses that no machine has.
const EXTERNAL: [&str; 2] = ["198.51.100.77", "2001:db8:77::77"];

/// A pod behind Services that select `web`, whose name tells its node.
fn backend(name: &str, node: &str) -> Value {
    let mut pod = pod(name, node);
    pod["metadata"]["labels"] = json!({"app": "web"});
    pod["spec"]["containers"][0]["readinessProbe"] =
        json!({"tcpSocket": {"port": 8080}, "periodSeconds": 1});
    pod
}

/// Creates a Service with node ports and returns these: for TCP port 80 and UDP port 81.
fn service(cluster: &Cluster, name: &str, mut spec: Value) -> Result<[u16; 2]> {
    let defaults = json!({
        "type": "NodePort", "selector": {"app": "web"}, "ipFamilyPolicy": "PreferDualStack",
        "ports": [
            {"name": "http", "port": 80, "targetPort": 8080},
            {"name": "udp", "port": 81, "protocol": "UDP", "targetPort": 8081},
        ],
    });
    for (key, value) in defaults.as_object().context("an object")? {
        if spec.get(key).is_none() {
            spec[key] = value.clone();
        }
    }
    let object =
        json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": name}, "spec": spec});
    let created = cluster.api.create(SERVICES, &object)?;
    let port = |index: usize| {
        let port = created["spec"]["ports"][index]["nodePort"].as_u64().context("no node port")?;
        u16::try_from(port).context("a port")
    };
    Ok([port(0)?, port(1)?])
}

/// A place from which connections are made.
struct From<'a> {
    what: String,
    end: End<'a>,
    cluster: &'a Cluster,
}

impl From<'_> {
    fn run(&self, words: &[&str]) -> Result<String> {
        match &self.end {
            End::Pod(pod) => self.cluster.lab.node_of(pod).run_in_pod(pod, words),
            End::Node(node) => node.run(words),
            End::Lab => command::output(Command::new(words[0]).args(&words[1..])),
            End::World(machine) => command::output(
                self.cluster.lab.world().command(*machine, words[0]).args(&words[1..]),
            ),
        }
    }

    /// What `path` of an HTTP server says.
    fn get(&self, to: SocketAddr, path: &str) -> Result<String> {
        let url = format!("http://{to}/{path}");
        self.run(&["curl", "-sS", "-g", "--noproxy", "*", "--max-time", "3", &url])
            .with_context(|| format!("{} to {to}", self.what))
    }

    /// The names of the pods that answer some requests.
    fn answers(&self, to: SocketAddr) -> Result<BTreeSet<String>> {
        (0..12).map(|_| self.get(to, "hostname")).collect()
    }

    fn udp(&self, to: SocketAddr) -> Result<String> {
        let (address, port) = (to.ip(), to.port());
        let script = format!(
            "exec 3<>/dev/udp/{address}/{port}; echo hostname >&3; timeout 1 head -c 5 <&3"
        );
        self.run(&["bash", "-c", &script])
            .with_context(|| format!("{} to {to} over UDP", self.what))
    }

    /// Waits until exactly these pods answer.
    fn reaches(&self, to: SocketAddr, pods: &[&str]) -> Result<()> {
        let expected: BTreeSet<String> = pods.iter().map(|name| (*name).to_owned()).collect();
        eventually(&format!("{pods:?} answer {} at {to}", self.what), SOON, || {
            let found = self.answers(to)?;
            ensure!(found == expected, "{found:?} do");
            Ok(())
        })
    }

    /// Waits until connections are refused, and at once.
    fn is_refused(&self, to: SocketAddr) -> Result<()> {
        eventually(&format!("{to} refuses {}", self.what), SOON, || {
            let begun = Instant::now();
            let Err(error) = self.get(to, "hostname") else { anyhow::bail!("it answers") };
            let (error, took) = (format!("{error:#}"), begun.elapsed());
            ensure!(error.contains("refused") || error.contains("Couldn't connect"), "{error}");
            ensure!(took < AT_ONCE, "refused after {took:?}");
            Ok(())
        })
    }
}

fn everywhere<'a>(cluster: &'a Cluster, pods: &'a [Pod]) -> Vec<From<'a>> {
    let of_pods = pods.iter().map(|pod| (format!("pod {}", pod.name), End::Pod(pod)));
    let of_nodes =
        cluster.lab.nodes.iter().map(|node| (format!("host {}", node.name), End::Node(node)));
    let lab = ("a machine that is no node".to_owned(), End::Lab);
    of_pods.chain(of_nodes).chain([lab]).map(|(what, end)| From { what, end, cluster }).collect()
}

/// The addresses of a node that the API server knows.
fn addresses(cluster: &Cluster, node: &Node) -> Result<Vec<IpAddr>> {
    let node = cluster.api.read(&format!("/api/v1/nodes/{}", node.name))?;
    let all = node["status"]["addresses"].as_array().context("no addresses")?;
    let internal = all.iter().filter(|address| address["type"] == "InternalIP");
    let mut found: Vec<IpAddr> = internal
        .map(|address| Ok(address["address"].as_str().context("no text")?.parse()?))
        .collect::<Result<_>>()?;
    // IPv4 first.
    found.sort_unstable();
    Ok(found)
}

#[test]
fn node_ports_and_external_addresses_lead_to_pods_from_everywhere_in_both_families() {
    Cluster::of_nodes(2).families(Families::Dual).test(|cluster| {
        let names = ["web-1", "web-2", "client-1", "client-2"];
        let pods = [
            backend("web-1", "node1"),
            backend("web-2", "node2"),
            pod("client-1", "node1"),
            pod("client-2", "node2"),
        ];
        cluster.api.create_all(PODS, &pods)?;
        wait_ready(cluster, &names)?;
        let clients = [attached(cluster, "client-1")?, attached(cluster, "client-2")?];
        let from = everywhere(cluster, &clients);
        let [tcp, udp] = service(cluster, "web", json!({"externalIPs": EXTERNAL}))?;
        let nodes: Vec<Vec<IpAddr>> =
            cluster.lab.nodes.iter().map(|node| addresses(cluster, node)).collect::<Result<_>>()?;
        ensure!(nodes.iter().all(|addresses| addresses.len() == 2), "{nodes:?}");
        for client in &from {
            for address in nodes.iter().flatten() {
                client.reaches(SocketAddr::new(*address, tcp), &["web-1", "web-2"])?;
                eventually("UDP is answered", SOON, || {
                    let answer = client.udp(SocketAddr::new(*address, udp))?;
                    ensure!(answer.starts_with("web-"), "{answer}");
                    Ok(())
                })?;
            }
        }
        // Machines send what is for the Services to a node; hosts with a default route and pods
        // reach them by themselves.
        for node in &cluster.lab.nodes {
            let (v4, v6) = (fabric::LAB_ADDRESS, fabric::LAB_ADDRESS_V6);
            node.shell(&format!(
                "ip -4 route add default via {v4}; ip -6 route add default via {v6}"
            ))?;
        }
        for (external, via) in EXTERNAL.iter().zip(&nodes[0]) {
            let family = if via.is_ipv4() { "-4" } else { "-6" };
            command::output(Command::new("ip").args([
                family,
                "route",
                "add",
                external,
                "via",
                &via.to_string(),
            ]))?;
            let external: IpAddr = external.parse()?;
            for client in &from {
                client.reaches(SocketAddr::new(external, 80), &["web-1", "web-2"])?;
            }
        }

        // A client stays with its backend.
        let [sticky, _] = service(cluster, "sticky", json!({"sessionAffinity": "ClientIP"}))?;
        for client in &from {
            let to = SocketAddr::new(nodes[1][0], sticky);
            eventually(&format!("{} keeps its backend", client.what), SOON, || {
                let found = client.answers(to)?;
                ensure!(found.len() == 1, "{found:?} answer");
                Ok(())
            })?;
        }

        // Nothing behind it.
        let [empty, _] = service(cluster, "empty", json!({"selector": {"app": "nothing"}}))?;
        for client in &from {
            for address in nodes.iter().flatten() {
                client.is_refused(SocketAddr::new(*address, empty))?;
            }
        }

        // A restart changes nothing, and what is deleted is refused.
        let node = &cluster.lab.nodes[0];
        let said = node.server_log()?.len();
        node.server.stop()?;
        node.start_server()?;
        eventually("the server is ready again", SOON, || {
            ensure!(node.server_log()?[said..].contains("|ready "), "{}", node.server_log()?);
            Ok(())
        })?;
        from[0].reaches(SocketAddr::new(nodes[0][0], tcp), &["web-1", "web-2"])?;
        ensure!(
            !node.server_log()?[said..].contains("addresses of Services"),
            "{}",
            &node.server_log()?[said..]
        );
        cluster.api.delete(&format!("{SERVICES}/web"))?;
        for client in &from {
            client.is_refused(SocketAddr::new(nodes[0][0], tcp))?;
        }
        Ok(())
    });
}

#[test]
fn under_a_local_policy_a_node_serves_from_its_own_pods_and_pods_see_the_client() {
    Cluster::of_nodes(2).families(Families::Dual).test(|cluster| {
        cluster.api.create_all(PODS, &[backend("web-1", "node1"), pod("client-2", "node2")])?;
        wait_ready(cluster, &["web-1", "client-2"])?;
        let clients = [attached(cluster, "client-2")?];
        let from = everywhere(cluster, &clients);
        let local =
            json!({"type": "LoadBalancer", "externalTrafficPolicy": "Local", "externalIPs": EXTERNAL});
        let [tcp, _] = service(cluster, "local", local)?;
        // Without node ports OVN has no address for it.
        let object = json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "bare"}, "spec": {
            "selector": {"app": "web"}, "ipFamilyPolicy": "PreferDualStack", "type": "LoadBalancer",
            "externalTrafficPolicy": "Local", "externalIPs": EXTERNAL,
            "ports": [{"port": 82, "targetPort": 8080}], "allocateLoadBalancerNodePorts": false}});
        cluster.api.create(SERVICES, &object)?;

        let [here, there] = [0, 1].map(|index| addresses(cluster, &cluster.lab.nodes[index]));
        let [here, there] = [here?, there?];
        let outside = From { what: "a machine that is no node".to_owned(), end: End::Lab, cluster };
        let machine = [fabric::LAB_ADDRESS.parse()?, fabric::LAB_ADDRESS_V6.parse()?];
        for ((own, other), (external, machine)) in here.iter().zip(&there).zip(EXTERNAL.iter().zip(machine)) {
            let machine: IpAddr = machine;
            for client in &from {
                client.reaches(SocketAddr::new(*own, tcp), &["web-1"])?;
            }
            // The pod sees the machine.
            let seen = |to: SocketAddr| {
                eventually(&format!("the pod sees the client of {to}"), SOON, || {
                    let seen = outside.get(to, "clientip")?;
                    let seen: SocketAddr = seen.trim().parse().with_context(|| seen.clone())?;
                    ensure!(seen.ip() == machine, "{seen}");
                    Ok(())
                })
            };
            seen(SocketAddr::new(*own, tcp))?;
            // A node without a pod refuses, except itself and its own pods.
            for client in &from {
                let to = SocketAddr::new(*other, tcp);
                match &client.end {
                    End::Lab | End::World(_) => client.is_refused(to)?,
                    End::Node(node) if node.name == "node1" => client.is_refused(to)?,
                    End::Node(_) | End::Pod(_) => client.reaches(to, &["web-1"])?,
                }
            }
            let family = if own.is_ipv4() { "-4" } else { "-6" };
            let route = |verb: &str, via: &IpAddr| {
                let words = [family, "route", verb, external, "via", &via.to_string()];
                command::output(Command::new("ip").args(words)).map(drop)
            };
            let external: IpAddr = external.parse()?;
            route("add", own)?;
            seen(SocketAddr::new(external, 80))?;
            seen(SocketAddr::new(external, 82))?;
            route("replace", other)?;
            outside.is_refused(SocketAddr::new(external, 80))?;
            outside.is_refused(SocketAddr::new(external, 82))?;
        }
        Ok(())
    });
}
