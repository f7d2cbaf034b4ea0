//! Where the tests run: the nodes, the servers with their addresses, the Services.

use std::{net::IpAddr, time::Duration};

use serde_json::Value;
use tokio::time::{Instant, sleep};

use super::{
    Names, Nodes, Question,
    cluster::{Cluster, PAUSE},
    manifests::{self, pods_of, policies_of, services_of},
    offered::{self, ClusterPolicy, Offered, OuterAddresses, OuterServices},
    progress,
};
use crate::findings::{Finding, State};

/// How long pods may take to run; an image may have to be pulled.
const RUNNING: Duration = Duration::from_secs(180);

/// The same without an image: a registry that is busy may refuse once.
const PULLED: Duration = Duration::from_secs(45);

/// The heading of tests of policies of the whole cluster.
pub(super) const CLUSTER_POLICIES: &str = "policies of the cluster";

/// A node, with the servers on it.
#[derive(Debug, Clone, Default)]
pub(super) struct Node {
    pub(super) name: String,
    pub(super) addresses: Vec<IpAddr>,
    /// Of the server that anybody may connect to, and of the one that policies guard.
    pub(super) server: Vec<IpAddr>,
    pub(super) guarded: Vec<IpAddr>,
    /// The Service whose only backend is the client itself.
    pub(super) hairpin: Vec<IpAddr>,
    /// Those that policies of the whole cluster guard.
    pub(super) ruled: Vec<(ClusterPolicy, Vec<IpAddr>)>,
}

/// A Service with its addresses.
#[derive(Debug, Clone, Default)]
pub(super) struct Service {
    pub(super) addresses: Vec<IpAddr>,
    /// Node ports for TCP and UDP.
    pub(super) node_ports: Option<[u16; 2]>,
}

#[derive(Debug, Clone)]
pub(super) struct Site {
    pub(super) names: Names,
    pub(super) nodes: Vec<Node>,
    pub(super) web: Service,
    pub(super) guarded: Service,
    pub(super) outer: OuterAddresses,
    /// The kinds of policies of the whole cluster, and why one is not tested.
    pub(super) cluster_policies: Vec<(ClusterPolicy, Offered<()>)>,
    /// Of the API server.
    pub(super) kubernetes: Vec<IpAddr>,
    pub(super) has_dns: bool,
    pub(super) has_world: bool,
}

impl Site {
    /// Makes namespaces, policies, Services and servers, and waits until the servers run.
    pub(super) async fn prepare(
        cluster: &Cluster,
        names: &Names,
        question: &Question,
    ) -> Result<Self, String> {
        let mut nodes = chosen(cluster.list("/api/v1/nodes").await?, &question.nodes)?;
        for namespace in [&names.namespace, &names.other] {
            cluster.namespace(&manifests::namespace(namespace)).await?;
        }
        // Before any pod: what a policy forbids is forbidden from the first packet on.
        for policy in manifests::policies(names) {
            cluster.create(&policies_of(&names.namespace), &policy).await?;
        }
        // Flows that are held need none of what a cluster may refuse.
        let is_offered = question.disruption.is_none();
        let mut cluster_policies = Vec::new();
        for kind in ClusterPolicy::ALL.into_iter().filter(|_| is_offered) {
            let made = offered::cluster_policy(cluster, names, kind).await?;
            if made.is_ok() {
                let open = manifests::open_policy(names, kind);
                cluster.create(&policies_of(&names.namespace), &open).await?;
            }
            cluster_policies.push((kind, made));
        }
        let is_made = |(_, made): &&(ClusterPolicy, Offered<()>)| made.is_ok();
        let kinds = || cluster_policies.iter().filter(is_made).map(|(kind, _)| *kind);
        let (pods, services) = (pods_of(&names.namespace), services_of(&names.namespace));
        let web = manifests::service(names, "web", "NodePort", ("app", "server"));
        let web = Service::of(&cluster.create(&services, &web).await?);
        let guarded = manifests::service(names, "guarded", "ClusterIP", ("app", "guarded"));
        let guarded = Service::of(&cluster.create(&services, &guarded).await?);
        let outer = match is_offered {
            true => Some(OuterServices::make(cluster, names, &web.addresses).await?),
            false => None,
        };
        let apps: Vec<&str> =
            ["server", "guarded"].into_iter().chain(kinds().map(ClusterPolicy::app)).collect();
        for (number, node) in nodes.iter_mut().enumerate() {
            let hairpin = manifests::service(
                names,
                &format!("hairpin-{number}"),
                "ClusterIP",
                ("pod", &format!("self-{number}")),
            );
            node.hairpin = Service::of(&cluster.create(&services, &hairpin).await?).addresses;
            for app in &apps {
                let server = manifests::server(
                    names,
                    &format!("{app}-{number}"),
                    app,
                    &node.name,
                    &question.image,
                );
                cluster.create(&pods, &server).await?;
            }
        }
        progress("waiting for the servers");
        let all = running(cluster, &pods, nodes.len() * apps.len()).await?;
        for (number, node) in nodes.iter_mut().enumerate() {
            node.server = addresses_of(&all, &format!("server-{number}"));
            node.guarded = addresses_of(&all, &format!("guarded-{number}"));
            let of_kind = |kind: ClusterPolicy| format!("{}-{number}", kind.app());
            node.ruled = kinds().map(|kind| (kind, addresses_of(&all, &of_kind(kind)))).collect();
        }
        let outer = match outer {
            Some(made) => made.addresses(cluster, names).await?,
            None => OuterAddresses::default(),
        };
        let kubernetes = cluster.get("/api/v1/namespaces/default/services", "kubernetes").await?;
        let dns = cluster.get("/api/v1/namespaces/kube-system/services", "kube-dns").await?;
        Ok(Self {
            names: names.clone(),
            nodes,
            web,
            guarded,
            outer,
            cluster_policies,
            kubernetes: kubernetes
                .map(|service| Service::of(&service).addresses)
                .unwrap_or_default(),
            has_dns: dns.is_some(),
            has_world: question.world.is_some(),
        })
    }

    /// Whether policies of this kind guard the server with this address.
    pub(super) fn guards(&self, kind: ClusterPolicy, address: &str) -> bool {
        let guarded = self.nodes.iter().flat_map(|node| &node.ruled);
        let mut of_kind = guarded.filter(|(of, _)| *of == kind).flat_map(|(_, servers)| servers);
        of_kind.any(|server| server.to_string() == address)
    }

    /// What this cluster has no place for.
    pub(super) fn skipped(&self) -> Vec<Finding> {
        let named =
            |subject, name: &str, why: &str| Finding::new(subject, name, State::Skipped, why);
        let skipped = |subject, why: &str| named(subject, "not tested", why);
        let mut findings = Vec::new();
        if self.nodes.len() < 2 {
            findings.push(skipped("pods on two nodes", "there is one node that is ready"));
        }
        if !self.has_dns {
            findings.push(skipped("DNS", "there is no Service kube-system/kube-dns"));
        }
        if !self.has_world {
            findings.push(skipped(
                "world",
                "no place outside of the cluster is given (--world HOST:PORT)",
            ));
        }
        let OuterAddresses { external, balanced } = &self.outer;
        for (name, outcome) in [("externalIPs", external), ("load balancer", balanced)] {
            if let Err(why) = outcome {
                findings.push(named("outer addresses", name, why));
            }
        }
        for (kind, made) in &self.cluster_policies {
            if let Err(why) = made {
                findings.push(named(CLUSTER_POLICIES, kind.name(), why));
            }
        }
        findings
    }
}

impl Service {
    /// The addresses that its load balancer has.
    pub(super) fn ingress(object: &Value) -> Vec<IpAddr> {
        addresses(&object["status"]["loadBalancer"]["ingress"], |ingress| &ingress["ip"])
    }

    fn of(object: &Value) -> Self {
        let spec = &object["spec"];
        let ports = spec["ports"].as_array().map(Vec::as_slice).unwrap_or_default();
        let of = |protocol: &str| {
            let port = ports.iter().find(|port| port["protocol"] == protocol)?;
            u16::try_from(port["nodePort"].as_u64()?).ok()
        };
        let node_ports = of("TCP").zip(of("UDP")).map(|(tcp, udp)| [tcp, udp]);
        Self { addresses: addresses(&spec["clusterIPs"], |address| address), node_ports }
    }
}

fn addresses<'a>(list: &'a Value, address: impl Fn(&'a Value) -> &'a Value) -> Vec<IpAddr> {
    let list = list.as_array().map(Vec::as_slice).unwrap_or_default();
    list.iter().filter_map(|item| address(item).as_str()?.parse().ok()).collect()
}

fn addresses_of(pods: &[Value], name: &str) -> Vec<IpAddr> {
    let pod = pods.iter().find(|pod| pod["metadata"]["name"] == name);
    pod.map(|pod| addresses(&pod["status"]["podIPs"], |item| &item["ip"])).unwrap_or_default()
}

/// The nodes that are asked for, or else the first ones that are ready and take pods.
fn chosen(all: Vec<Value>, wanted: &Nodes) -> Result<Vec<Node>, String> {
    let mut ready: Vec<Node> = all.iter().filter(|node| is_ready(node)).map(of_node).collect();
    ready.sort_by(|a, b| a.name.cmp(&b.name));
    let nodes = match wanted {
        Nodes::All => ready,
        Nodes::Pair => {
            ready.truncate(2);
            ready
        }
        Nodes::Named(names) => {
            let missing = names.iter().find(|name| !ready.iter().any(|node| node.name == **name));
            if let Some(missing) = missing {
                return Err(format!("node {missing} is not there, or not ready"));
            }
            ready.retain(|node| names.contains(&node.name));
            ready
        }
    };
    if nodes.is_empty() { Err("no node is ready".to_owned()) } else { Ok(nodes) }
}

fn is_ready(node: &Value) -> bool {
    let conditions = node["status"]["conditions"].as_array().map(Vec::as_slice).unwrap_or_default();
    let ready = conditions
        .iter()
        .any(|condition| condition["type"] == "Ready" && condition["status"] == "True");
    ready && node["spec"]["unschedulable"] != true
}

fn of_node(node: &Value) -> Node {
    let all = node["status"]["addresses"].as_array().map(Vec::as_slice).unwrap_or_default();
    let internal = all.iter().filter(|address| address["type"] == "InternalIP");
    let addresses =
        internal.filter_map(|address| address["address"].as_str()?.parse().ok()).collect();
    Node {
        name: node["metadata"]["name"].as_str().unwrap_or_default().to_owned(),
        addresses,
        ..Node::default()
    }
}

/// The pods of the collection, once so many run and have addresses.
pub(super) async fn running(
    cluster: &Cluster,
    collection: &str,
    wanted: usize,
) -> Result<Vec<Value>, String> {
    let began = Instant::now();
    loop {
        let all = cluster.list(collection).await?;
        let (running, waiting): (Vec<&Value>, Vec<&Value>) =
            all.iter().partition(|pod| is_running(pod));
        if running.len() >= wanted {
            return Ok(all);
        }
        let (count, passed) = (running.len(), began.elapsed());
        let no_image = waiting.iter().find(|pod| passed > PULLED && lacks_image(pod));
        if passed > RUNNING || no_image.is_some() {
            let why = no_image.or(waiting.first());
            let why = why.map_or_else(|| "a pod is missing".to_owned(), |pod| self::why(pod));
            let seconds = passed.as_secs();
            return Err(format!("{count} of {wanted} pods run after {seconds} s: {why}"));
        }
        sleep(PAUSE).await;
    }
}

fn is_running(pod: &Value) -> bool {
    let statuses =
        pod["status"]["containerStatuses"].as_array().map(Vec::as_slice).unwrap_or_default();
    let has_started = statuses.iter().any(|status| status["state"]["running"].is_object());
    has_started && pod["status"]["podIPs"].as_array().is_some_and(|all| !all.is_empty())
}

fn lacks_image(pod: &Value) -> bool {
    let reason = pod["status"]["containerStatuses"][0]["state"]["waiting"]["reason"].as_str();
    reason.is_some_and(|reason| reason.contains("Image"))
}

/// Why a pod does not run.
pub(super) fn why(pod: &Value) -> String {
    let name = pod["metadata"]["name"].as_str().unwrap_or_default();
    let status = &pod["status"]["containerStatuses"][0]["state"];
    let state =
        [&status["waiting"], &status["terminated"]].into_iter().find(|state| state.is_object());
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    match state {
        Some(state) => {
            format!("{name} is not running: {} {}", text(&state["reason"]), text(&state["message"]))
        }
        None => {
            format!("{name} is {}; kubectl describe pod says more", text(&pod["status"]["phase"]))
        }
    }
}
