//! A cluster, a database, a controller between them, and all that can happen to each.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use contract::{
    annotation::{POD_NETWORKS, PodNetwork},
    names::{Network, PodKey, PolicyKey, ServiceKey, SliceKey},
    namespace_annotation::Multicast,
    node_annotation::{CHASSIS_ID, NODE_SUBNETS, ZONE},
};
use controller::{
    config::ClusterConfig,
    engine::reconcile::Stopped,
    kinds::{
        egress_firewall::object::EgressFirewall,
        egress_qos::object::EgressQos,
        namespace::object::Namespace,
        network_policy::object::Policy,
        node::object::{Node, Unreadable},
        pod::{
            annotation::PodAnnotation,
            object::{Annotated, Phase, Pod, Spelled},
        },
    },
    watch_event::{Seen, WatchEvent},
    world::Store,
};
use kubeapi::services::{Service, Slice};
use ovsdb::{Connection, Row, Uuid};
use tokio::time::Instant;

use crate::{
    cluster::{all_nodes, all_pods, config, node_name, pod, pod_key},
    database::{Contents, Northbound, contents},
    expected::wrong,
    guards::{Guard, Watcher},
    history::{Drift, Foreign, Step},
    policies::objects::{NAME, firewall, labelled, namespace, policy, policy_key, qos},
    running::{Running, at_once, deadline},
    second_writer::SecondWriter,
    services::{service, service_key, slice, slice_key},
    zones::node,
};

pub(crate) struct World {
    config: ClusterConfig,
    pub(crate) northbound: Northbound,
    connection: Connection,
    pub(crate) controller: Running,
    pub(crate) second: SecondWriter,
    nodes: BTreeMap<u32, Node>,
    /// The nodes whose annotations at the API server are missing or cannot be parsed at present.
    garbled: BTreeMap<u32, Node>,
    pods: BTreeMap<u32, (PodKey, Pod)>,
    services: BTreeMap<u32, (ServiceKey, Service)>,
    slices: BTreeMap<u32, (SliceKey, Slice)>,
    policies: BTreeMap<u32, (PolicyKey, Policy)>,
    /// By namespace.
    firewalls: BTreeMap<u32, (Arc<str>, EgressFirewall)>,
    qoses: BTreeMap<u32, (Arc<str>, EgressQos)>,
    /// The last number of the address that the name in rules has.
    host: u8,
    /// The label of each namespace, and whether it has multicast; none without the namespace.
    namespaces: [Option<(u32, Multicast)>; 3],
    generation: u32,
}

impl World {
    pub(crate) async fn new() -> Self {
        Self::with(config()).await
    }

    pub(crate) async fn with(config: ClusterConfig) -> Self {
        let northbound = Northbound::start();
        let connection = northbound.open().await;
        let controller = Running::start(northbound.endpoint(), config.clone());
        let world = Self {
            config,
            northbound,
            connection,
            controller,
            second: SecondWriter::default(),
            nodes: BTreeMap::new(),
            garbled: BTreeMap::new(),
            pods: BTreeMap::new(),
            services: BTreeMap::new(),
            slices: BTreeMap::new(),
            policies: BTreeMap::new(),
            firewalls: BTreeMap::new(),
            qoses: BTreeMap::new(),
            host: 0,
            namespaces: [Some((0, Multicast::Off)); 3],
            generation: 0,
        };
        world.relist(true);
        world
    }

    /// The world after this history, with the controller at rest.
    pub(crate) async fn after(history: impl IntoIterator<Item = Step>) -> Self {
        let mut world = Self::new().await;
        for step in history {
            world.happen(step).await;
        }
        world.rest().await;
        world
    }

    /// Writes the annotations that the controller has decided on, and lets it observe them.
    fn annotate(&mut self) {
        while let Ok(annotation) = self.controller.annotations.try_recv() {
            let (annotations, PodAnnotation { pod: key, uid, .. }) =
                (annotation.annotations(), annotation);
            let network =
                PodNetwork::parse(&annotations[POD_NETWORKS], &Network::Default).unwrap().unwrap();
            let Some((_, pod)) =
                self.pods.values_mut().find(|(other, pod)| *other == key && pod.uid == uid)
            else {
                continue;
            };
            pod.annotated =
                Annotated::Network { network: Arc::new(network.into()), spelled: Spelled::Current };
            let seen = (key, pod.clone());
            self.controller.observe(WatchEvent::Pods(Seen::Applied(seen)));
        }
    }

    pub(crate) async fn happen(&mut self, step: Step) {
        self.generation += 1;
        self.annotate();
        match step {
            Step::Node(number) => {
                self.garbled.remove(&number);
                let joins = node(number, &self.config);
                let node = self.nodes.entry(number).or_insert(joins).clone();
                self.controller.observe(WatchEvent::Nodes(Seen::Applied(node)));
            }
            Step::NodeReinstalled(number) => {
                let mut node = node(number, &self.config);
                node.chassis = Some(format!("chassis-{number}-{}", self.generation));
                self.garbled.remove(&number);
                self.nodes.insert(number, node.clone());
                self.controller.observe(WatchEvent::Nodes(Seen::Applied(node)));
            }
            Step::NodeGone(number) => {
                self.nodes.remove(&number);
                self.garbled.remove(&number);
                self.controller.observe(WatchEvent::Nodes(Seen::Deleted(node_name(number))));
            }
            Step::NodeAnnotationLost(number) => self.spoil(number, Vec::new()),
            Step::NodeAnnotationGarbled(number) => {
                let why = |annotation| Unreadable { annotation, why: "not JSON".to_owned() };
                self.spoil(number, [NODE_SUBNETS, CHASSIS_ID, ZONE].map(why).into());
            }
            Step::PodAnnotationLost(number) => self.annotated(number, Annotated::Nothing),
            Step::PodAnnotationGarbled(number) => {
                self.annotated(number, Annotated::Unusable("not JSON".to_owned()))
            }
            Step::Pod { pod: number, node } => {
                // A pod never moves: a pod of the same name on another node is another pod.
                if self.pods.remove(&number).is_some() {
                    self.controller.observe(WatchEvent::Pods(Seen::Deleted(pod_key(number))));
                }
                let mut pod = pod(number, node, self.generation);
                // Every second pod has no annotation yet.
                if number % 2 == 0 {
                    pod.1.annotated = Annotated::Nothing;
                }
                self.pods.insert(number, pod.clone());
                self.controller.observe(WatchEvent::Pods(Seen::Applied(pod)));
            }
            Step::PodEnded(number) => {
                if let Some((_, pod)) = self.pods.get_mut(&number) {
                    pod.phase = Phase::Ended;
                    self.controller
                        .observe(WatchEvent::Pods(Seen::Applied(self.pods[&number].clone())));
                }
            }
            Step::PodGone(number) => {
                self.pods.remove(&number);
                self.controller.observe(WatchEvent::Pods(Seen::Deleted(pod_key(number))));
            }
            Step::Service { service: number, kind } => {
                let service = service(number, kind, self.generation);
                self.services.insert(number, service.clone());
                self.controller.observe(WatchEvent::Services(Seen::Applied(service)));
            }
            Step::ServiceGone(number) => {
                self.services.remove(&number);
                self.controller.observe(WatchEvent::Services(Seen::Deleted(service_key(number))));
            }
            Step::Slice { slice: number, service, node } => {
                let slice = slice(number, service, node);
                self.slices.insert(number, slice.clone());
                self.controller.observe(WatchEvent::Slices(Seen::Applied(slice)));
            }
            Step::SliceGone(number) => {
                self.slices.remove(&number);
                self.controller.observe(WatchEvent::Slices(Seen::Deleted(slice_key(number))));
            }
            Step::Policy { policy: number, kind } => {
                let policy = policy(number, kind);
                self.policies.insert(number, policy.clone());
                self.controller.observe(WatchEvent::Policies(Seen::Applied(policy)));
            }
            Step::PolicyGone(number) => {
                self.policies.remove(&number);
                self.controller.observe(WatchEvent::Policies(Seen::Deleted(policy_key(number))));
            }
            Step::Firewall { namespace: number, kind } => {
                let firewall = firewall(number, kind);
                self.firewalls.insert(number, firewall.clone());
                self.controller.observe(WatchEvent::custom(Seen::Applied(firewall)));
                self.controller.observe(self.answer());
            }
            Step::Resolved(host) => {
                self.host = host;
                self.controller.observe(self.answer());
            }
            Step::FirewallGone(number) => {
                self.firewalls.remove(&number);
                self.controller.observe(WatchEvent::custom::<EgressFirewall>(Seen::Deleted(
                    namespace(number),
                )));
            }
            Step::Qos { namespace: number, kind } => {
                let qos = qos(number, kind);
                self.qoses.insert(number, qos.clone());
                self.controller.observe(WatchEvent::custom(Seen::Applied(qos)));
            }
            Step::QosGone(number) => {
                self.qoses.remove(&number);
                let gone = Seen::Deleted(namespace(number));
                self.controller.observe(WatchEvent::custom::<EgressQos>(gone));
            }
            Step::NamespaceLabelled { namespace: number, label } => {
                let place = &mut self.namespaces[number as usize];
                *place = Some((label, place.map_or(Multicast::Off, |(_, multicast)| multicast)));
                self.tell_namespace(number);
            }
            Step::Multicast { namespace: number, is_on } => {
                let place = &mut self.namespaces[number as usize];
                let multicast = if is_on { Multicast::On } else { Multicast::Off };
                *place = Some((place.map_or(0, |(label, _)| label), multicast));
                self.tell_namespace(number);
            }
            Step::NamespaceGone(number) => {
                self.namespaces[number as usize] = None;
                self.controller.observe(WatchEvent::Namespaces(Seen::Deleted(namespace(number))));
            }
            Step::PodLabelled { pod: number, label } => {
                if let Some((_, pod)) = self.pods.get_mut(&number) {
                    pod.labels = [("app".to_owned(), format!("a{label}"))].into_iter().collect();
                    self.controller
                        .observe(WatchEvent::Pods(Seen::Applied(self.pods[&number].clone())));
                }
            }
            Step::Relist => self.relist(true),
            Step::Restart { nodes_first } => self.restart(nodes_first).await,
            Step::Crash => {
                self.northbound.kill();
                self.northbound.restart();
                self.connection = self.northbound.open().await;
            }
            Step::Rest => self.rest().await,
            Step::Drift(drift) => self.drift(drift).await,
            Step::Foreign(foreign) => self.foreign(foreign).await,
        }
    }

    fn spoil(&mut self, number: u32, unreadable: Vec<Unreadable>) {
        let Some(Node { name, uid, .. }) = self.nodes.get(&number) else { return };
        let spoiled = Node { uid: Arc::clone(uid), unreadable, ..Node::named(name) };
        self.garbled.insert(number, spoiled.clone());
        self.controller.observe(WatchEvent::Nodes(Seen::Applied(spoiled)));
    }

    /// Restores annotations of nodes, as the cluster manager and the nodes do, and namespaces with
    /// pods.
    fn repair(&mut self) {
        for number in std::mem::take(&mut self.garbled).into_keys() {
            self.controller.observe(WatchEvent::Nodes(Seen::Applied(self.nodes[&number].clone())));
        }
        // A namespace goes after its pods.
        for number in 0..3 {
            let has_pods =
                self.pods.values().any(|(pod, _)| pod.namespace() == &*namespace(number));
            let place = &mut self.namespaces[number as usize];
            if has_pods && place.is_none() {
                *place = Some((0, Multicast::Off));
                self.tell_namespace(number);
            }
        }
    }

    fn annotated(&mut self, number: u32, annotated: Annotated) {
        if let Some((_, pod)) = self.pods.get_mut(&number) {
            pod.annotated = annotated;
            self.controller.observe(WatchEvent::Pods(Seen::Applied(self.pods[&number].clone())));
        }
    }

    pub(crate) async fn drift(&mut self, drift: Drift) {
        self.second.drift(&self.connection, drift).await;
    }

    pub(crate) async fn foreign(&mut self, foreign: Foreign) {
        self.second.foreign(&self.connection, foreign).await;
    }

    /// Adds a foreign port with these columns to the node's switch, and waits until the controller
    /// has seen it.
    pub(crate) async fn foreign_port(&mut self, node: u32, name: &str, columns: Row) {
        self.foreign_port_on(&node_name(node), name, columns).await;
    }

    pub(crate) async fn foreign_port_on(&mut self, switch: &str, name: &str, columns: Row) {
        self.second.port(&self.connection, switch, name, columns).await;
        self.rest().await;
    }

    /// Removes the foreign ports, and waits until the controller has seen it.
    pub(crate) async fn no_foreign_ports(&mut self) {
        self.second.no_ports(&self.connection).await;
        self.rest().await;
    }

    /// Judges all commits from now on.
    pub(crate) fn watched_by(&self, guards: Vec<Box<dyn Guard>>) -> Watcher {
        Watcher::start(self.northbound.endpoint(), at_once(), guards)
    }

    pub(crate) async fn foreign_switch(&mut self, name: &str) {
        self.second.switch(&self.connection, name).await;
    }

    /// Adds a foreign router with one port, and waits until the controller has seen it.
    pub(crate) async fn foreign_router(&mut self, port: &str, mac: &str, network: &str) {
        self.second.router(&self.connection, port, mac, network).await;
        self.rest().await;
    }

    /// Lists everything again, as a second look does.
    fn look_again(&self) {
        self.controller.observe(WatchEvent::Cluster(None));
        self.relist(true);
    }

    fn listed_nodes(&self) -> impl Iterator<Item = Node> + '_ {
        self.nodes.iter().map(|(number, node)| self.garbled.get(number).unwrap_or(node).clone())
    }

    fn relist(&self, nodes_first: bool) {
        let (nodes, pods) = (all_nodes(self.listed_nodes()), all_pods(self.pods.values().cloned()));
        let lists = if nodes_first { [nodes, pods] } else { [pods, nodes] };
        lists
            .into_iter()
            .chain(self.lists_of_services())
            .for_each(|list| self.controller.observe(list));
    }

    fn lists_of_services(&self) -> Vec<WatchEvent> {
        let namespaces = (0..3).filter_map(|number| self.namespace(number));
        let lists = [
            WatchEvent::Slices(Seen::All(self.slices.values().cloned().collect())),
            WatchEvent::Services(Seen::All(self.services.values().cloned().collect())),
            WatchEvent::Namespaces(Seen::All(namespaces.collect())),
            WatchEvent::Policies(Seen::All(self.policies.values().cloned().collect())),
            WatchEvent::custom(Seen::All(self.firewalls.values().cloned().collect())),
            WatchEvent::custom(Seen::All(self.qoses.values().cloned().collect())),
        ];
        let others = WatchEvent::no_optional_kinds().into_iter();
        let others = others.filter(|list| !matches!(list, WatchEvent::Custom(_)));
        lists.into_iter().chain(others).chain([self.answer()]).collect()
    }

    fn namespace(&self, number: u32) -> Option<(Arc<str>, Namespace)> {
        let (label, multicast) = self.namespaces[number as usize]?;
        Some((namespace(number), Namespace { multicast, ..labelled(label) }))
    }

    fn tell_namespace(&self, number: u32) {
        let seen = self.namespace(number).map(Seen::Applied);
        seen.into_iter().for_each(|seen| self.controller.observe(WatchEvent::Namespaces(seen)));
    }

    /// What the DNS says.
    fn answer(&self) -> WatchEvent {
        WatchEvent::Name(NAME.into(), Ok([[192, 0, 2, self.host].into()].into()))
    }

    /// Replaces the controller by a new one, which observes nothing yet.
    pub(crate) async fn replace(&mut self) {
        let another = Running::start(self.northbound.endpoint(), self.config.clone());
        std::mem::replace(&mut self.controller, another).kill().await;
    }

    /// Replaces the controller. The new one reads the database before it observes anything, and
    /// observes one kind of object long before the other.
    pub(crate) async fn restart(&mut self, nodes_first: bool) {
        self.replace().await;
        self.controller.reaches("the database is read", |progress| progress.loaded).await;
        let (nodes, pods) = (all_nodes(self.listed_nodes()), all_pods(self.pods.values().cloned()));
        let (first, second) = if nodes_first { (nodes, pods) } else { (pods, nodes) };
        self.controller.observe(first);
        self.lists_of_services().into_iter().for_each(|list| self.controller.observe(list));
        // Gives the controller time to write, if it wrongly does: its transaction is done before
        // this one or soon after.
        contents(&self.connection).await;
        self.controller.observe(second);
    }

    /// Waits until the database shows what it should and nothing is left to do. Taken names are
    /// released first, because rows with these names cannot exist.
    pub(crate) async fn rest(&mut self) {
        self.second.release(&self.connection).await;
        self.repair();
        let begun = Instant::now();
        loop {
            self.annotate();
            if self.controller.doubts.borrow().is_some() {
                self.look_again();
            }
            let store = self.store();
            let now = contents(&self.connection).await;
            let wrong = wrong(&store, &now);
            if wrong.is_empty() {
                break;
            }
            let progress = self.controller.progress.borrow().clone();
            assert!(
                begun.elapsed() < deadline(),
                "not within {:?}: convergence; {progress:?}; wrong: {wrong:#?}",
                deadline()
            );
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        self.controller
            .reaches("rest", |progress| {
                progress.converged && progress.failing == 0 && progress.waiting == 0
            })
            .await;
    }

    /// A new store that observes the cluster as it is.
    fn store(&self) -> Store {
        let mut store = Store::new(self.config.clone());
        store.observe(all_nodes(self.nodes.values().cloned()), &mut |_, _| ());
        store.observe(all_pods(self.pods.values().cloned()), &mut |_, _| ());
        self.lists_of_services().into_iter().for_each(|list| store.observe(list, &mut |_, _| ()));
        store
    }

    pub(crate) async fn contents(&self) -> Contents {
        contents(&self.connection).await
    }

    /// The ports of pods, by name.
    pub(crate) fn ports_of_pods(&self, contents: &Contents) -> BTreeMap<String, Uuid> {
        let ports = contents
            .0
            .keys()
            .filter(|(table, name, _)| table == "Logical_Switch_Port" && name.starts_with("ns"));
        ports.map(|(_, name, uuid)| (name.clone(), *uuid)).collect()
    }

    pub(crate) async fn end(self) {
        assert_eq!(self.controller.stop().await, Stopped::ObservationsEnded);
    }
}
