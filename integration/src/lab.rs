//! The lab as a whole: its configuration, and what is built from it.

use std::{
    slice,
    sync::atomic::{AtomicU32, Ordering},
    thread,
};

use anyhow::{Context as _, Result};

use crate::{
    Families, Node, Pod, World,
    central::{self, Central},
    fabric, inside, subnet, threads,
};

/// Configuration of a lab. [`Lab::of_nodes`] begins one.
#[derive(Debug, Clone)]
pub struct Blueprint {
    nodes: u32,
    families: Families,
    mtu: u32,
    v4_len: u8,
    topology: Topology,
    wire_mtu: u32,
    surroundings: Surroundings,
}

/// What is beside the nodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Surroundings {
    /// The wire, and the lab's own address on it.
    Wire,
    /// A router, too, and machines behind it.
    World,
}

/// What writes the logical network of the nodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Topology {
    /// The lab, once.
    Lab,
    /// A control plane: the northbound database begins empty.
    ControlPlane,
}

impl Blueprint {
    /// Address families of the pods; IPv4 unless said otherwise.
    #[must_use]
    pub fn families(mut self, families: Families) -> Self {
        self.families = families;
        self
    }

    /// MTU of the pods that the lab attaches by hand, in bytes; 1400 unless said otherwise.
    #[must_use]
    pub fn mtu(mut self, mtu: u32) -> Self {
        self.mtu = mtu;
        self
    }

    /// Prefix length of a node's IPv4 subnet, 24 unless said otherwise; 20 makes room for 4,000
    /// pods.
    #[must_use]
    pub fn v4_prefix_len(mut self, length: u8) -> Self {
        self.v4_len = length;
        self
    }

    /// MTU of the wire between the nodes and of everything beyond, in bytes; 1500 unless said
    /// otherwise.
    #[must_use]
    pub fn wire_mtu(mut self, mtu: u32) -> Self {
        self.wire_mtu = mtu;
        self
    }

    /// Adds the world outside of the cluster: [`Lab::world`].
    #[must_use]
    pub fn world(mut self) -> Self {
        self.surroundings = Surroundings::World;
        self
    }

    /// Leaves the northbound database empty, for a control plane that writes everything.
    #[must_use]
    pub fn empty(mut self) -> Self {
        self.topology = Topology::ControlPlane;
        self
    }

    /// Runs a test in such a lab, in namespaces of its own; see [`inside::inside`] for how it finds
    /// the test.
    ///
    /// # Panics
    /// If the lab cannot be built or `body` fails.
    #[track_caller]
    pub fn test<F: FnOnce(&Lab) -> Result<()>>(self, body: F) {
        inside::in_namespaces(inside::test_path::<F>(), || body(&self.build()?));
    }

    /// Builds the lab here; the process must be in the namespaces already.
    pub fn build(self) -> Result<Lab> {
        let Self { nodes, families, mtu, v4_len, topology, wire_mtu, surroundings } = self;
        thread::scope(|scope| {
            let central = scope.spawn(Central::start);
            let holders: Vec<_> = (1..=nodes)
                .map(|index| {
                    scope.spawn(move || {
                        Node::create(index, subnet::of_node(index, families, v4_len), mtu)
                    })
                })
                .collect();
            let nodes = holders.into_iter().map(threads::join).collect::<Result<Vec<Node>>>()?;
            // The wire needs the namespaces of all nodes.
            let holders: Vec<_> = nodes.iter().map(|node| (node.index, node.pid())).collect();
            fabric::create(&holders, wire_mtu)?;
            // The nodes need the southbound database: ovn-controller connects to it.
            let central = threads::join(central).context("start the central part")?;
            thread::scope(|scope| {
                let started: Vec<_> = nodes
                    .iter()
                    .map(|node| {
                        scope.spawn(|| node.start().with_context(|| format!("start {}", node.name)))
                    })
                    .collect();
                if topology == Topology::Lab {
                    central.create_topology(
                        nodes.iter().map(|node| (node.name.as_str(), &node.subnets[..])),
                    )?;
                }
                started.into_iter().try_for_each(threads::join)
            })?;
            if wire_mtu != fabric::MTU {
                // Open vSwitch gives an internal port the least MTU of its bridge's ports when they
                // change only.
                let request = format!("mtu_request={wire_mtu}");
                nodes.iter().try_for_each(|node| {
                    node.vsctl(["set", "Interface", "breth0", &request]).map(drop)
                })?;
            }
            let hosts = nodes.iter().map(|_| AtomicU32::new(subnet::FIRST_POD)).collect();
            let world = match surroundings {
                Surroundings::Wire => None,
                Surroundings::World => {
                    Some(World::start(&nodes, families, wire_mtu).context("make the world")?)
                }
            };
            let lab = Lab { central, nodes, families, hosts, world };
            lab.wait_for_nodes()?;
            Ok(lab)
        })
    }
}

/// A running lab. Everything in it ends with the namespaces.
#[derive(Debug)]
pub struct Lab {
    /// OVN's databases and ovn-northd.
    pub central: Central,
    /// The nodes, `node1` first.
    pub nodes: Vec<Node>,
    families: Families,
    /// The next host number on each node.
    hosts: Vec<AtomicU32>,
    world: Option<World>,
}

impl Lab {
    /// Begins a lab with that many nodes.
    pub fn of_nodes(nodes: u32) -> Blueprint {
        Blueprint {
            nodes,
            families: Families::V4,
            mtu: 1400,
            v4_len: 24,
            topology: Topology::Lab,
            wire_mtu: fabric::MTU,
            surroundings: Surroundings::Wire,
        }
    }

    /// Whether there is a world outside of the cluster.
    pub fn has_world(&self) -> bool {
        self.world.is_some()
    }

    /// The world outside of the cluster.
    ///
    /// # Panics
    /// If the blueprint has none.
    pub fn world(&self) -> &World {
        self.world.as_ref().expect("the lab was built with a world")
    }

    /// The node on which `pod` is.
    ///
    /// # Panics
    /// If the pod is not of this lab.
    pub fn node_of(&self, pod: &Pod) -> &Node {
        self.nodes.iter().find(|node| node.name == pod.node).expect("pods name a node of their lab")
    }

    /// The first node, with its server running.
    pub fn node_with_server(&self) -> Result<&Node> {
        let node = self.nodes.first().context("a lab has a node")?;
        if !node.server.is_running() {
            node.start_server()?;
        }
        Ok(node)
    }

    /// The next pod of `node`. Nothing is created.
    pub fn plan_pod(&self, node: &Node) -> Pod {
        let position = self
            .nodes
            .iter()
            .position(|other| other.index == node.index)
            .expect("the node is of this lab");
        let host = self.hosts[position].fetch_add(1, Ordering::Relaxed);
        self.pod_at(node, host)
    }

    /// The pod with host number `host` on `node`. Nothing is created.
    pub(crate) fn pod_at(&self, node: &Node, host: u32) -> Pod {
        Pod::plan(node.index, &node.subnets, self.families, host)
    }

    /// Creates what a pod has before the runtime calls the plugin: logical port, network namespace
    /// and annotated manifest.
    pub fn new_pod(&self, node: &Node) -> Result<Pod> {
        self.new_pods(node, 1)?.pop().context("one pod was made")
    }

    /// Many pods at once: a few programs are started, however many pods there are.
    pub fn new_pods(&self, node: &Node, count: usize) -> Result<Vec<Pod>> {
        let pods: Vec<Pod> = (0..count).map(|_| self.plan_pod(node)).collect();
        self.add_ports(&pods)?;
        node.add_namespaces(&pods)?;
        pods.iter().try_for_each(|pod| node.write_manifest(pod))?;
        Ok(pods)
    }

    /// A new pod of `node`, to which the plugin gave its network.
    pub fn attached_pod(&self, node: &Node) -> Result<Pod> {
        let pod = self.new_pod(node)?;
        node.runtime().add(&pod)?.success()?;
        Ok(pod)
    }

    /// Removes everything that [`Lab::new_pods`] has created.
    pub fn remove_pods(&self, pods: &[Pod]) -> Result<()> {
        for pod in pods {
            self.node_of(pod).remove_namespaces(slice::from_ref(pod))?;
            self.node_of(pod).remove_manifest(pod)?;
        }
        // In parts, as above.
        pods.chunks(500).try_for_each(|pods| self.remove_ports(pods))
    }

    /// Creates the logical switch ports of `pods`, as the control plane does.
    pub fn add_ports(&self, pods: &[Pod]) -> Result<()> {
        // In parts: a command line has room for some thousands of words.
        pods.chunks(500)
            .try_for_each(|pods| self.central.nbctl(pods.iter().flat_map(add_port)).map(drop))
    }

    /// Deletes the logical switch ports of `pods`.
    pub fn remove_ports(&self, pods: &[Pod]) -> Result<()> {
        let words = pods.iter().flat_map(|pod| {
            ["--".to_owned(), "--if-exists".to_owned(), "lsp-del".to_owned(), pod.port()]
        });
        self.central.nbctl(words).map(drop)
    }

    /// Writes the routes of a control plane that lead what pods send out of the cluster to the
    /// management port of their node.
    pub fn route_to_hosts(&self) -> Result<()> {
        for subnet in self.nodes.iter().flat_map(|node| &node.subnets) {
            let (from, via) =
                (subnet.trunc().to_string(), subnet::host(subnet, 2).addr().to_string());
            self.central.nbctl([
                "--policy=src-ip",
                "lr-route-add",
                central::ROUTER,
                &from,
                &via,
            ])?;
        }
        Ok(())
    }

    fn wait_for_nodes(&self) -> Result<()> {
        // `sync` waits for the registered chassis only, so each has to be registered first.
        let words = self.nodes.iter().flat_map(|node| ["--", "wait-until", "Chassis", &node.name]);
        self.central.sbctl(words).context("wait until every ovn-controller is registered")?;
        self.central.sync().context("wait until every ovn-controller has caught up")
    }
}

fn add_port(pod: &Pod) -> Vec<String> {
    let port = pod.port();
    let addresses = pod
        .addresses
        .iter()
        .fold(pod.mac.clone(), |text, address| format!("{text} {}", address.addr()));
    let words = format!(
        "-- lsp-add {} {port} -- set Logical_Switch_Port {port} options:requested-chassis={} \
         options:iface-id-ver={} external_ids:namespace={} external_ids:pod=true",
        pod.node, pod.node, pod.uid, pod.namespace
    );
    let mut words: Vec<String> = words.split_whitespace().map(str::to_owned).collect();
    for command in ["lsp-set-addresses", "lsp-set-port-security"] {
        words.extend(["--", command, &port, &addresses].map(str::to_owned));
    }
    words
}
