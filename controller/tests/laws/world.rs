//! A cluster, a database, a controller between them, and whatever happens to each.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use contract::{
    annotation::{POD_NETWORKS, PodNetwork},
    names::{Network, PodKey},
};
use controller::{
    observation::{Observation, Seen},
    reconcile::Stopped,
    store::{Annotated, Phase, Pod, PodAnnotation, Spelled, Store},
};
use ovsdb::{Connection, Uuid};
use tokio::time::Instant;

use crate::{
    cluster::{all_nodes, all_pods, config, node, node_name, pod, pod_key},
    database::{Contents, Northbound, contents},
    expected::wrong,
    history::{Drift, Foreign, Step},
    running::{Running, deadline},
    second_writer::SecondWriter,
};

pub(crate) struct World {
    pub(crate) northbound: Northbound,
    connection: Connection,
    pub(crate) controller: Running,
    pub(crate) second: SecondWriter,
    nodes: BTreeMap<u32, controller::store::Node>,
    pods: BTreeMap<u32, (PodKey, Pod)>,
    generation: u32,
}

impl World {
    pub(crate) async fn new() -> Self {
        let northbound = Northbound::start();
        let connection = northbound.open().await;
        let controller = Running::start(northbound.endpoint(), config());
        let world = Self {
            northbound,
            connection,
            controller,
            second: SecondWriter::default(),
            nodes: BTreeMap::new(),
            pods: BTreeMap::new(),
            generation: 0,
        };
        world.relist(true);
        world
    }

    /// What the controller wants to be written on pods is written, and seen.
    fn annotate(&mut self) {
        while let Ok(PodAnnotation { pod: key, uid, annotations }) = self.controller.annotations.try_recv() {
            let network = PodNetwork::parse(&annotations[POD_NETWORKS], &Network::Default).unwrap().unwrap();
            let Some((_, pod)) = self.pods.values_mut().find(|(other, pod)| *other == key && pod.uid == uid) else { continue };
            pod.annotated = Annotated::Network { network: Arc::new(network), spelled: Spelled::Current };
            let seen = (key, pod.clone());
            self.controller.observe(Observation::Pods(Seen::Applied(seen)));
        }
    }

    pub(crate) async fn happen(&mut self, step: Step) {
        self.generation += 1;
        self.annotate();
        match step {
            Step::Node(number) => {
                let node = self.nodes.entry(number).or_insert_with(|| node(number)).clone();
                self.controller.observe(Observation::Nodes(Seen::Applied(node)));
            }
            Step::NodeReinstalled(number) => {
                let mut node = node(number);
                node.chassis = Some(format!("chassis-{number}-{}", self.generation));
                self.nodes.insert(number, node.clone());
                self.controller.observe(Observation::Nodes(Seen::Applied(node)));
            }
            Step::NodeGone(number) => {
                self.nodes.remove(&number);
                self.controller.observe(Observation::Nodes(Seen::Deleted(node_name(number))));
            }
            Step::Pod { pod: number, node } => {
                // A pod never moves: one of the same name that has another node is another pod.
                if self.pods.remove(&number).is_some() {
                    self.controller.observe(Observation::Pods(Seen::Deleted(pod_key(number))));
                }
                let mut pod = pod(number, node, self.generation);
                // The annotation of every second one is still to be decided.
                if number % 2 == 0 {
                    pod.1.annotated = Annotated::Nothing;
                }
                self.pods.insert(number, pod.clone());
                self.controller.observe(Observation::Pods(Seen::Applied(pod)));
            }
            Step::PodEnded(number) => {
                if let Some((_, pod)) = self.pods.get_mut(&number) {
                    pod.phase = Phase::Ended;
                    self.controller.observe(Observation::Pods(Seen::Applied(self.pods[&number].clone())));
                }
            }
            Step::PodGone(number) => {
                self.pods.remove(&number);
                self.controller.observe(Observation::Pods(Seen::Deleted(pod_key(number))));
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

    pub(crate) async fn drift(&mut self, drift: Drift) {
        self.second.drift(&self.connection, drift).await;
    }

    pub(crate) async fn foreign(&mut self, foreign: Foreign) {
        self.second.foreign(&self.connection, foreign).await;
    }

    fn relist(&self, nodes_first: bool) {
        let (nodes, pods) = (all_nodes(self.nodes.values().cloned()), all_pods(self.pods.values().cloned()));
        let lists = if nodes_first { [nodes, pods] } else { [pods, nodes] };
        lists.into_iter().for_each(|list| self.controller.observe(list));
    }

    /// Starts a controller that is told nothing.
    pub(crate) async fn replace(&mut self) {
        let another = Running::start(self.northbound.endpoint(), config());
        std::mem::replace(&mut self.controller, another).kill().await;
    }

    /// The new controller reads the database before it is told anything, and one kind of object long before the other.
    pub(crate) async fn restart(&mut self, nodes_first: bool) {
        self.replace().await;
        self.controller.reaches("the database is read", |progress| progress.loaded).await;
        let (nodes, pods) = (all_nodes(self.nodes.values().cloned()), all_pods(self.pods.values().cloned()));
        let (first, second) = if nodes_first { (nodes, pods) } else { (pods, nodes) };
        self.controller.observe(first);
        // What is written now arrives before this is answered, or soon after.
        contents(&self.connection).await;
        self.controller.observe(second);
    }

    /// Until the database shows what it should, and nothing is left to do. Rows whose names are taken cannot be there.
    pub(crate) async fn rest(&mut self) {
        self.second.release(&self.connection).await;
        let begun = Instant::now();
        loop {
            self.annotate();
            let store = self.store();
            let now = contents(&self.connection).await;
            let wrong = wrong(&store, &now);
            if wrong.is_empty() {
                break;
            }
            let progress = *self.controller.progress.borrow();
            assert!(begun.elapsed() < deadline(), "not within {:?}: convergence; {progress:?}; wrong: {wrong:#?}", deadline());
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        self.controller.reaches("rest", |progress| progress.converged && progress.failing == 0 && progress.waiting == 0).await;
    }

    /// A store that was told the cluster as it is.
    fn store(&self) -> Store {
        let mut store = Store::new(config());
        store.observe(all_nodes(self.nodes.values().cloned()));
        store.observe(all_pods(self.pods.values().cloned()));
        store
    }

    pub(crate) async fn contents(&self) -> Contents {
        contents(&self.connection).await
    }

    /// The ports of pods that have to be there, by name.
    pub(crate) fn ports_of_pods(&self, contents: &Contents) -> BTreeMap<String, Uuid> {
        let ports = contents.0.keys().filter(|(table, name, _)| table == "Logical_Switch_Port" && name.starts_with("ns"));
        ports.map(|(_, name, uuid)| (name.clone(), *uuid)).collect()
    }

    pub(crate) async fn end(self) {
        assert_eq!(self.controller.stop().await, Stopped::ObservationsEnded);
    }
}
