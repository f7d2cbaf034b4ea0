//! A whole Kubernetes on the nodes of a lab: real API server, scheduler, controllers, kubelets and
//! containerd. Its network is under test: the control plane, the server on each node and the
//! plugin.
//!
//! | file | what it is |
//! |---|---|
//! | [`programs`] | where the programs and images are |
//! | [`credentials`] | certificates, tokens, kubectl's configurations |
//! | [`access`] | what the programs under test may do |
//! | [`control_plane`] | etcd, API server, controller manager, scheduler |
//! | [`master`] | the project's own control plane |
//! | [`worker`] | containerd, kubelet and the project's server of a node |
//! | [`zone`] | control plane and server of a node with databases of its own, of this project or of upstream |
//! | [`dns`] | CoreDNS and its Service, where a test asks for it |
//! | [`name_server`] | the world's name server, for names outside of the cluster |
//! | [`ovnkube`] | the command and its image, as an administrator has them |
//! | [`cluster_policies`] | kinds of policies of the whole cluster, where a test asks for them |
//! | [`load_balancers`] | addresses for Services of type `LoadBalancer`, as a cloud assigns them |
//! | `routes` | routes from the API server to pods |
//! | [`fresh`] | nodes on which nothing of the network was ever installed |
//! | [`gateway`] | how packets leave and enter the cluster |
//! | [`containerd`] | which version of containerd the nodes have |
//! | [`bare`] | nodes without kubelets: their objects by hand, and the plugins called as a runtime calls them |
//! | [`api`] | the API server, for tests |
//! | [`pods`] | all pods, from a watch |
//! | [`manifest`] | manifests of test pods |
//! | [`attached`] | a running pod as a pod of the lab: packets can be sent from it |
//! | [`in_service`] | nodes and endpoints that must not leave service |
//! | [`northbound`] | what the northbound database should hold for the current nodes and pods |
//! | [`mod@reference`] | nodes with the plugin `bridge` and kube-proxy, to compare with |
//! | [`leftovers`] | what is on the nodes and in OVN before and after pods |

use std::{path::PathBuf, process::Command, thread, time::Duration};

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;

use crate::{Daemon, Families, Lab, Node, command, eventually, fabric, inside, lab, threads};

pub mod access;
pub mod api;
pub mod attached;
pub mod bare;
pub mod cluster_policies;
pub mod containerd;
pub mod control_plane;
pub mod credentials;
pub mod dns;
pub mod fresh;
pub mod gateway;
pub mod in_service;
pub mod leftovers;
pub mod load_balancers;
pub mod manifest;
pub mod master;
pub mod name_server;
pub mod northbound;
pub mod ovnkube;
pub mod pods;
pub mod programs;
pub mod reference;
mod routes;
pub mod worker;
pub mod zone;

pub use api::Api;
pub use containerd::Containerd;
pub use control_plane::ControlPlane;
pub use credentials::Credentials;
pub use gateway::GatewayMode;
pub use in_service::InService;
pub use leftovers::Leftovers;
pub use name_server::Name;
pub use pods::Pods;
pub use worker::{Identity, Worker};
pub use zone::Zone;

use master::Network;

/// How long the nodes may take to be ready. An idle machine needs some seconds; the rest is for a
/// busy one.
const PATIENCE: Duration = Duration::from_secs(90);
/// Addresses of pods, and the prefix length of the part that each node gets: `--cluster-subnets`.
pub const CLUSTER_SUBNETS: &str = "10.244.0.0/16/24";
/// The same in IPv6.
const CLUSTER_SUBNETS_V6: &str = "fd00:10:244::/48/64";
/// Port on which `master-1` serves `/readyz` and `/metrics`; `master-N` has the port `N - 1` above.
const MASTER_PORT: u16 = 9410;

/// Configuration of a cluster. [`Cluster::of_nodes`] begins one.
#[derive(Debug, Clone)]
pub struct Blueprint {
    nodes: u32,
    reference_nodes: u32,
    kubelets: bool,
    master_options: Vec<String>,
    server_options: Vec<String>,
    cluster_subnets: String,
    containerd: Option<Containerd>,
    families: Families,
    dns: bool,
    names_outside: Vec<Name>,
    host_ports: bool,
    gateway: Option<GatewayMode>,
    definitions: Vec<PathBuf>,
    without_network: bool,
    identity: Identity,
}

impl Blueprint {
    /// Leaves the kubelets and the programs of the network to the caller: neither the control plane
    /// nor the servers of the nodes are started.
    #[must_use]
    pub fn without_network(mut self) -> Self {
        self.without_network = true;
        self
    }

    /// Other addresses of pods than the default, with the prefix length of a node's part of them.
    #[must_use]
    pub fn cluster_subnets(mut self, subnets: &str) -> Self {
        subnets.clone_into(&mut self.cluster_subnets);
        self
    }

    /// The container runtime of the nodes.
    #[must_use]
    pub fn containerd(mut self, containerd: Containerd) -> Self {
        self.containerd = Some(containerd);
        self
    }

    /// Address families of pods, Services and nodes; IPv4 unless said otherwise. Replaces the
    /// addresses of pods.
    #[must_use]
    pub fn families(mut self, families: Families) -> Self {
        self.families = families;
        let subnets = match families {
            Families::V4 => CLUSTER_SUBNETS.to_owned(),
            Families::V6 => CLUSTER_SUBNETS_V6.to_owned(),
            Families::Dual => format!("{CLUSTER_SUBNETS},{CLUSTER_SUBNETS_V6}"),
        };
        self.cluster_subnets(&subnets)
    }

    /// Starts CoreDNS, too, so that names of Services resolve in pods, and those of the world, if
    /// there is one. Most tests have no use for it.
    #[must_use]
    pub fn dns(mut self) -> Self {
        self.dns = true;
        self
    }

    /// Further names of the world, besides its machines'.
    #[must_use]
    pub fn names_outside(mut self, names: impl IntoIterator<Item = Name>) -> Self {
        self.names_outside.extend(names);
        self
    }

    /// Chains the reference plugin `portmap`, so that pods get the ports of the node that they ask
    /// for.
    #[must_use]
    pub fn host_ports(mut self) -> Self {
        self.host_ports = true;
        self
    }

    /// Adds the world outside of the cluster, `cluster.lab.world()`, to which nodes lead packets in
    /// this way.
    #[must_use]
    pub fn gateway(mut self, gateway: GatewayMode) -> Self {
        self.gateway = Some(gateway);
        self
    }

    /// The last so many nodes have the reference network, `bridge` and kube-proxy, and neither Open
    /// vSwitch nor the project's programs.
    #[must_use]
    pub fn reference_nodes(mut self, nodes: u32) -> Self {
        self.reference_nodes = nodes;
        self
    }

    /// Nodes are objects that are written by hand, without kubelets and containerd, and no
    /// controllers of Kubernetes run: [`Cluster::run`] starts pods. For machines on which all that
    /// takes too long.
    #[must_use]
    pub fn without_kubelets(mut self) -> Self {
        self.kubelets = false;
        self
    }

    /// Files with definitions of custom resources, which exist before the project's control plane
    /// starts.
    #[must_use]
    pub fn definitions(mut self, files: impl IntoIterator<Item = PathBuf>) -> Self {
        self.definitions.extend(files);
        self
    }

    /// The server of each node has a certificate of its own instead of the token of an account. The
    /// control plane approves it.
    #[must_use]
    pub fn node_certificates(mut self) -> Self {
        self.identity = Identity::Certificate;
        let servers = format!("--node-bootstrap-users={}", access::user(access::NODE));
        self.master_options(&["--approve-node-certificates", &servers])
    }

    /// Further options of the project's control plane.
    #[must_use]
    pub fn master_options(mut self, options: &[&str]) -> Self {
        self.master_options.extend(options.iter().map(|option| (*option).to_owned()));
        self
    }

    /// Further options of the server on each node.
    #[must_use]
    pub fn server_options(mut self, options: &[&str]) -> Self {
        self.server_options.extend(options.iter().map(|option| (*option).to_owned()));
        self
    }

    /// Nodes that forward to pods what the machines in front of them route, so that
    /// [`Cluster::route_to_pods`] has an effect.
    #[must_use]
    pub fn forwarding(self) -> Self {
        self.server_options(&["--disable-forwarding=false"])
    }

    /// Runs a test in such a cluster, in namespaces of its own; see [`inside::inside`] for how it
    /// finds the test.
    ///
    /// # Panics
    /// If the cluster cannot be built or `body` fails.
    #[track_caller]
    pub fn test<F: FnOnce(&Cluster) -> Result<()>>(self, body: F) {
        inside::in_namespaces(inside::test_path::<F>(), || body(&self.build(&|_| ())?));
    }

    /// Builds the cluster here and reports its steps to `progress`. The process must be in the
    /// namespaces already.
    pub fn build(self, progress: &(dyn Fn(&str) + Sync)) -> Result<Cluster> {
        programs::verify()?;
        let names: Vec<String> = (1..=self.nodes).map(|index| format!("node{index}")).collect();
        let credentials = Credentials::create(&names)?;
        let api = Api::new(&credentials)?;
        progress("starting etcd, the API server and the nodes");
        let (control_plane, nodes) = thread::scope(|scope| {
            let nodes = scope.spawn(|| self.start_nodes(&credentials));
            let control_plane = if self.kubelets {
                ControlPlane::start(&credentials, &api, self.families)
            } else {
                ControlPlane::without_service_accounts(&credentials, &api, self.families)
            };
            Ok::<_, anyhow::Error>((
                control_plane.context("start Kubernetes")?,
                threads::join(nodes)?,
            ))
        })?;
        let (lab, workers) = nodes;
        progress("starting ovnkube, and the controllers and kubelets if there are any");
        if self.kubelets {
            control_plane.start_controllers()?;
        }
        // Before the programs under test start: this writes the tokens that they read.
        access::grant(&api, &credentials)?;
        let pods = Pods::watch(&api);
        let network = Network {
            cluster_subnets: self.cluster_subnets,
            service_cidrs: control_plane::services(self.families),
            options: self.master_options,
        };
        let master =
            master::instance(master::BOTH, "master-1", MASTER_PORT, &credentials, &network);
        let first_reference_node = 1 + self.nodes - self.reference_nodes;
        let Self { kubelets, families, host_ports, gateway, dns, names_outside, .. } = self;
        let name_server =
            (dns && gateway.is_some()).then(|| name_server::start(lab.world(), &names_outside));
        let cluster = Cluster {
            lab,
            name_server: name_server.transpose()?,
            workers,
            control_plane,
            credentials,
            api,
            pods,
            master,
            network,
            server_options: self.server_options,
            kubelets,
            families,
            host_ports,
            gateway,
            first_reference_node,
            identity: self.identity,
        };
        cluster.define(&self.definitions)?;
        if self.without_network {
            return Ok(cluster);
        }
        // In any order: each program waits for what it needs of the others.
        cluster.master.spawn()?;
        cluster.each_node(|node, worker| cluster.start_node(node, worker))?;
        progress("waiting until the nodes are ready for pods");
        cluster.wait_until_ready()?;
        if dns {
            progress("starting CoreDNS");
            cluster.start_dns()?;
        }
        Ok(cluster)
    }

    /// The lab of the nodes.
    fn lab(&self) -> lab::Blueprint {
        let lab = Lab::of_nodes(self.nodes).empty();
        match self.gateway {
            Some(_) => lab.families(self.families).world(),
            None => lab,
        }
    }

    /// Builds the lab, and starts containerd with the images on each of its nodes, unless they have
    /// no kubelets.
    fn start_nodes(&self, credentials: &Credentials) -> Result<(Lab, Vec<Worker>)> {
        let containerd = self.containerd.map_or_else(Containerd::usual, Ok)?;
        let lab = self.lab().build()?;
        // A world has its families already.
        if self.families != Families::V4 && !lab.has_world() {
            fabric::add_v6()?;
            lab.nodes.iter().try_for_each(Node::add_v6)?;
        }
        let images = programs::images()?;
        let start = |node: &Node| {
            let worker = Worker::prepare(node, containerd, self.families, credentials)?;
            if self.kubelets {
                worker.start_containerd(node)?;
                images.iter().try_for_each(|image| worker.import_image(node, image))?;
            }
            anyhow::Ok(worker)
        };
        let start = |node: &Node| start(node).with_context(|| format!("start {}", node.name));
        let workers = threads::at_once(&lab.nodes, start)?;
        Ok((lab, workers))
    }
}

/// A running cluster. Everything in it ends with the namespaces.
#[derive(Debug)]
pub struct Cluster {
    /// Open vSwitch and OVN, and the nodes.
    pub lab: Lab,
    /// The Kubernetes daemons of each node, in the order of `lab.nodes`.
    pub workers: Vec<Worker>,
    /// The central programs of Kubernetes.
    pub control_plane: ControlPlane,
    /// Certificates and tokens.
    pub credentials: Credentials,
    /// The API server, as its administrator.
    pub api: Api,
    /// The current pods.
    pub pods: Pods,
    /// `ovnkube --init-master`, under the name `master-1`.
    pub master: Daemon,
    network: Network,
    /// Answers while the cluster runs.
    name_server: Option<Daemon>,
    server_options: Vec<String>,
    kubelets: bool,
    families: Families,
    host_ports: bool,
    gateway: Option<GatewayMode>,
    /// Index of the first node with the reference network.
    first_reference_node: u32,
    identity: Identity,
}

impl Cluster {
    /// Begins a cluster with that many nodes.
    pub fn of_nodes(nodes: u32) -> Blueprint {
        Blueprint {
            nodes,
            reference_nodes: 0,
            kubelets: true,
            master_options: Vec::new(),
            server_options: Vec::new(),
            cluster_subnets: CLUSTER_SUBNETS.to_owned(),
            containerd: None,
            families: Families::V4,
            dns: false,
            names_outside: Vec::new(),
            host_ports: false,
            gateway: None,
            definitions: Vec::new(),
            without_network: false,
            identity: Identity::Token,
        }
    }

    /// The nodes, each with its Kubernetes daemons.
    pub fn nodes(&self) -> impl Iterator<Item = (&Node, &Worker)> {
        self.lab.nodes.iter().zip(&self.workers)
    }

    /// Starts the API server (again) and waits until it is ready.
    pub fn start_api_server(&self) -> Result<()> {
        self.control_plane.start_api_server(&self.api)
    }

    /// Another instance of the project's control plane, `master-2` and so on, not running yet.
    pub fn another_master(&self, number: u16) -> Daemon {
        self.instance(master::BOTH, number)
    }

    /// The same, which reaches the API server at `url`.
    pub fn another_master_over(&self, number: u16, url: &str) -> Daemon {
        let mut network = self.network.clone();
        network.options.push(format!("--k8s-apiserver={url}"));
        master::instance(
            master::BOTH,
            &format!("master-{number}"),
            MASTER_PORT + number - 1,
            &self.credentials,
            &network,
        )
    }

    /// The same with the controller alone, without a cluster manager.
    pub fn controller_alone(&self, number: u16) -> Daemon {
        self.instance(master::CONTROLLER, number)
    }

    fn instance(&self, roles: &str, number: u16) -> Daemon {
        master::instance(
            roles,
            &format!("master-{number}"),
            MASTER_PORT + number - 1,
            &self.credentials,
            &self.network,
        )
    }

    /// Whether the instance `master-NUMBER` is the leader, by its own metric.
    pub fn master_leads(&self, number: u16) -> Result<bool> {
        master::leads(MASTER_PORT + number - 1)
    }

    /// Succeeds if the instance `master-NUMBER` is ready; the error says what it lacks.
    pub fn master_is_ready(&self, number: u16) -> Result<()> {
        master::ready(MASTER_PORT + number - 1)
    }

    /// Runs `kubectl` as the administrator; its standard output.
    pub fn kubectl(
        &self,
        arguments: impl IntoIterator<Item = impl AsRef<std::ffi::OsStr>>,
    ) -> Result<String> {
        let mut kubectl = Command::new(programs::kubernetes("kubectl")?);
        kubectl.arg("--kubeconfig").arg(self.kubeconfig());
        command::output(kubectl.args(arguments))
    }

    /// The file with which `kubectl` and others are the administrator.
    pub fn kubeconfig(&self) -> PathBuf {
        self.credentials.kubeconfig(credentials::ADMIN)
    }

    /// Creates definitions of custom resources, and waits until the API server has their objects.
    fn define(&self, files: &[PathBuf]) -> Result<()> {
        for file in files {
            let file = file.to_string_lossy();
            // A definition is longer than the annotation in which a client would keep what it has
            // applied.
            self.kubectl(["create", "--filename", &*file])?;
            // It fails at once while a definition has no conditions yet.
            eventually("the API server serves the kind", PATIENCE, || {
                self.kubectl([
                    "wait",
                    "--for=condition=Established",
                    "--timeout=60s",
                    "--filename",
                    &*file,
                ])
                .map(drop)
            })?;
        }
        Ok(())
    }

    fn start_node(&self, node: &Node, worker: &Worker) -> Result<()> {
        if node.index >= self.first_reference_node {
            return self.start_reference_node(node, worker);
        }
        let mut arguments =
            worker::server_arguments(&node.name, self.identity, &self.credentials, &self.network);
        if self.host_ports {
            arguments.push(worker::chain_portmap(node)?);
        }
        arguments.extend(self.gateway.and_then(GatewayMode::option).map(str::to_owned));
        arguments.extend_from_slice(&self.server_options);
        node.server.set_arguments(arguments);
        self.announce_node(node, worker)?;
        node.start_server()
    }

    /// Has the API server know the node: by its kubelet, or by hand.
    fn announce_node(&self, node: &Node, worker: &Worker) -> Result<()> {
        if self.kubelets { worker.kubelet.spawn() } else { self.write_node(node) }
    }

    /// Waits until every node takes pods, and until the service account exists that every pod
    /// needs.
    pub fn wait_until_ready(&self) -> Result<()> {
        if !self.kubelets {
            return self.wait_for_plugins();
        }
        eventually("every node is ready for pods", PATIENCE, || {
            let nodes = self.api.read("/api/v1/nodes")?;
            let nodes = nodes["items"].as_array().context("a list of nodes")?;
            ensure!(
                nodes.len() == self.workers.len(),
                "{} of {} nodes are known",
                nodes.len(),
                self.workers.len()
            );
            nodes.iter().try_for_each(node_is_ready)?;
            self.api.read("/api/v1/namespaces/default/serviceaccounts/default").map(drop)
        })
    }

    fn each_node(&self, act: impl Fn(&Node, &Worker) -> Result<()> + Sync) -> Result<()> {
        let act = |(node, worker): (&Node, &Worker)| {
            act(node, worker).with_context(|| format!("on {}", node.name))
        };
        threads::at_once(self.nodes(), act).map(drop)
    }
}

fn node_is_ready(node: &Value) -> Result<()> {
    let name = &node["metadata"]["name"];
    let conditions = node["status"]["conditions"].as_array();
    let ready = conditions.into_iter().flatten().find(|condition| condition["type"] == "Ready");
    ensure!(
        ready.is_some_and(|ready| ready["status"] == "True"),
        "{name} is not ready: {}",
        ready.map_or(&Value::Null, |ready| &ready["message"])
    );
    // The taint of a node that was not ready goes a moment after its condition.
    ensure!(node["spec"]["taints"].is_null(), "{name} takes no pods: {}", node["spec"]["taints"]);
    Ok(())
}
