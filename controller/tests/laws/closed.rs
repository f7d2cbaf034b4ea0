//! Law 7 between two worlds: at no commit while a change is written does a pod connect to another
//! that it could connect to neither before nor after the change. Random worlds have policies of
//! every kind and dry runs, and one object changes at a time. At rest, what is open is exactly what
//! the model says.
//!
//! The database has tiers of ACLs, whatever OVN this machine has: the package `acl` works out what
//! the ACLs do.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    sync::{Arc, Mutex, PoisonError},
};

use acl::{Carried, End, Packet, Sets};
use contract::{
    names::{ClusterPolicyKey, ClusterPolicyKind, PodKey, PolicyKey},
    policy_annotation::DRY_RUN,
};
use controller::{
    kinds::{
        cluster_policy::wire::{ClusterPolicyObject, OfAdmin, OfBaseline, OfCluster},
        namespace::wire::NamespaceObject,
        network_policy::wire::PolicyObject,
        pod::wire::PodObject,
    },
    watch_event::{Seen, WatchEvent},
};
use kubeapi::watch::Watched;
use oracle::policies::{
    Direction, Labels, Namespace, NetworkPolicy, Pod, Selector, World,
    cluster::{ClusterPolicy, Kind},
    random::{Passes, cluster_policy, labels, policy, tiered_world},
    verdict::Place,
};
use oracle::world::Protocol;
use ovsdb::{Condition, Connection, Row, Transaction};
use proptest::{collection::vec, option, prelude::*};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::{
    database::Northbound,
    dry_runs::Schema,
    guards::{Commit, Guard, Watcher},
    policies::observe,
    reference::{config, nothing_differs},
    running::{Running, at_once},
    second_writer::SecondWriter,
};

/// Where connections lead.
const PLACES: [Place; 4] = [
    Place { is_ipv6: false, protocol: Protocol::Tcp, port: 80 },
    Place { is_ipv6: false, protocol: Protocol::Tcp, port: 8080 },
    Place { is_ipv6: false, protocol: Protocol::Udp, port: 80 },
    Place { is_ipv6: true, protocol: Protocol::Tcp, port: 80 },
];
/// The numbers of policies that histories change.
const POLICIES: usize = 4;
/// Changes of a history.
const LONGEST: usize = 12;

/// A world in which some policies are dry runs.
#[derive(Debug, Clone)]
struct Staged {
    world: World,
    dry_runs: BTreeSet<String>,
    /// Pods that there are not at present, by their place in the world.
    gone: BTreeSet<usize>,
}

#[derive(Debug, Clone)]
enum Change {
    PodLabelled(usize, Labels),
    /// The pod goes, or comes again.
    Pod(usize),
    NamespaceLabelled(usize, Labels),
    Policy(usize, Option<NetworkPolicy>),
    /// It becomes a dry run, or one no longer.
    DryRun(usize),
    /// A policy of the cluster with the priority of this number.
    ClusterPolicy(usize, Option<ClusterPolicy>),
}

#[derive(Debug, Clone)]
struct History {
    begin: World,
    changes: Vec<Change>,
}

impl fmt::Display for History {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.begin)?;
        self.changes.iter().try_for_each(|change| writeln!(f, "{change:?}"))
    }
}

fn history() -> impl Strategy<Value = History> {
    let change = prop_oneof![
        3 => (0_usize..9, labels()).prop_map(|(pod, labels)| Change::PodLabelled(pod, labels)),
        2 => (0_usize..9).prop_map(Change::Pod),
        2 => (0_usize..3, labels()).prop_map(|(of, labels)| Change::NamespaceLabelled(of, labels)),
        4 => (0..POLICIES, option::weighted(0.8, policy())).prop_map(|(n, policy)| Change::Policy(n, policy)),
        2 => (0..POLICIES).prop_map(Change::DryRun),
        4 => (0_usize..3, option::weighted(0.8, cluster_policy(Passes::Yes)))
            .prop_map(|(number, policy)| Change::ClusterPolicy(number, policy)),
    ];
    (tiered_world(Passes::Yes), vec(change, 1..=LONGEST))
        .prop_map(|(begin, changes)| History { begin, changes })
}

impl Staged {
    fn begin(world: World) -> Self {
        Self { world, dry_runs: BTreeSet::new(), gone: BTreeSet::new() }
    }

    /// What is open. Policies that are dry runs do not count.
    fn open(&self) -> BTreeSet<Question> {
        let mut counted = self.world.clone();
        counted.policies.retain(|policy| !self.dry_runs.contains(&policy.name));
        let pods =
            self.world.pods.iter().enumerate().filter(|(place, _)| !self.gone.contains(place));
        let pods: Vec<&Pod> = pods.map(|(_, pod)| pod).collect();
        let questions = questions(&pods);
        let open = questions.filter(|(client, server, place)| {
            counted.allows(oracle::policies::End::Pod(client), server, PLACES[*place])
        });
        open.map(|(client, server, place)| Question {
            client: port(client),
            server: port(server),
            place,
        })
        .collect()
    }

    /// Makes the change. Returns how the watch delivers it; nothing if it changes no object.
    fn change(&mut self, change: Change) -> Vec<WatchEvent> {
        match change {
            Change::PodLabelled(number, labels) => {
                self.world.pods[number].labels = labels;
                if self.gone.contains(&number) { Vec::new() } else { vec![self.pod(number)] }
            }
            Change::Pod(number) => {
                if self.gone.remove(&number) {
                    return vec![self.pod(number)];
                }
                self.gone.insert(number);
                let Pod { namespace, name, .. } = &self.world.pods[number];
                vec![WatchEvent::Pods(Seen::Deleted(PodKey::new(namespace, name).unwrap()))]
            }
            Change::NamespaceLabelled(number, labels) => {
                self.world.namespaces[number].labels = labels;
                let object = self.world.manifests().namespaces.swap_remove(number);
                vec![WatchEvent::Namespaces(Seen::Applied(read::<NamespaceObject>(object)))]
            }
            Change::Policy(number, policy) => {
                let name = format!("policy{number}");
                let before = self.world.policies.iter().position(|policy| policy.name == name);
                let before = before.map(|place| self.world.policies.remove(place));
                let Some(policy) = policy else {
                    let gone =
                        before.map(|policy| PolicyKey::new(policy.namespace, &name).unwrap());
                    return gone
                        .map(|key| WatchEvent::Policies(Seen::Deleted(key)))
                        .into_iter()
                        .collect();
                };
                // A policy does not move to another namespace.
                let namespace = before.map_or(policy.namespace, |before| before.namespace);
                self.world.policies.push(NetworkPolicy { name: name.clone(), namespace, ..policy });
                self.policy(&name).into_iter().collect()
            }
            Change::DryRun(number) => {
                let name = format!("policy{number}");
                if !self.dry_runs.remove(&name) {
                    self.dry_runs.insert(name.clone());
                }
                self.policy(&name).into_iter().collect()
            }
            Change::ClusterPolicy(number, policy) => self.change_cluster_policy(number, policy),
        }
    }

    fn change_cluster_policy(
        &mut self,
        number: usize,
        policy: Option<ClusterPolicy>,
    ) -> Vec<WatchEvent> {
        let name = format!("changing{number}");
        let of_name = |policy: &ClusterPolicy| policy.name == name;
        let before = self.world.cluster_policies.iter().position(of_name);
        let before = before.map(|place| self.world.cluster_policies.remove(place));
        let gone = |before: &ClusterPolicy| {
            let kind = kind(before.kind);
            let key = ClusterPolicyKey::new(kind, &name).unwrap();
            WatchEvent::ClusterPolicies(kind, Seen::Deleted(key))
        };
        let Some(policy) = policy else { return before.iter().map(gone).collect() };
        // Priorities that no other policy of the world has.
        let priority = 700 + u16::try_from(number).unwrap();
        let kind_of_policy = match (policy.kind, &before) {
            // An object keeps its kind, and there is one of the last.
            (_, Some(ClusterPolicy { kind: Kind::AdminNetworkPolicy(_), .. })) => {
                Kind::AdminNetworkPolicy(priority)
            }
            (Kind::AdminNetworkPolicy(_), None) => Kind::AdminNetworkPolicy(priority),
            (kind, _) => Kind::ClusterNetworkPolicy(kind.tier(), priority),
        };
        self.world.cluster_policies.push(ClusterPolicy { kind: kind_of_policy, name, ..policy });
        let object = self.world.manifests().cluster_policies.pop().unwrap();
        vec![of_cluster(kind(kind_of_policy), object)]
    }

    fn pod(&self, number: usize) -> WatchEvent {
        let object = self.world.manifests().pods.swap_remove(number);
        WatchEvent::Pods(Seen::Applied(read::<PodObject>(object)))
    }

    fn policy(&self, name: &str) -> Option<WatchEvent> {
        let place = self.world.policies.iter().position(|policy| policy.name == name)?;
        let mut object = self.world.manifests().policies.swap_remove(place);
        if self.dry_runs.contains(name) {
            object["metadata"]["annotations"] = json!({DRY_RUN: "true"});
        }
        Some(WatchEvent::Policies(Seen::Applied(read::<PolicyObject>(object))))
    }
}

fn kind(kind: Kind) -> ClusterPolicyKind {
    match kind {
        Kind::ClusterNetworkPolicy(..) => ClusterPolicyKind::ClusterNetworkPolicy,
        Kind::AdminNetworkPolicy(_) => ClusterPolicyKind::AdminNetworkPolicy,
        Kind::BaselineAdminNetworkPolicy => ClusterPolicyKind::BaselineAdminNetworkPolicy,
    }
}

fn of_cluster(kind: ClusterPolicyKind, object: Value) -> WatchEvent {
    let policy = match kind {
        ClusterPolicyKind::ClusterNetworkPolicy => read::<ClusterPolicyObject<OfCluster>>(object),
        ClusterPolicyKind::AdminNetworkPolicy => read::<ClusterPolicyObject<OfAdmin>>(object),
        ClusterPolicyKind::BaselineAdminNetworkPolicy => {
            read::<ClusterPolicyObject<OfBaseline>>(object)
        }
    };
    WatchEvent::ClusterPolicies(kind, Seen::Applied(policy))
}

fn read<T: Watched + DeserializeOwned>(object: Value) -> T::Value {
    serde_json::from_value::<T>(object).unwrap().value().unwrap()
}

/// Whether the one pod may connect to the other, by the names of their ports.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Question {
    client: String,
    server: String,
    /// Of [`PLACES`].
    place: usize,
}

fn questions<'a>(pods: &[&'a Pod]) -> impl Iterator<Item = (&'a Pod, &'a Pod, usize)> {
    let pairs = pods.iter().flat_map(|client| pods.iter().map(|server| (*client, *server)));
    let pairs: Vec<(&Pod, &Pod)> = pairs.filter(|(client, server)| client != server).collect();
    pairs
        .into_iter()
        .flat_map(|(client, server)| (0..PLACES.len()).map(move |place| (client, server, place)))
}

fn port(Pod { namespace, name, .. }: &Pod) -> String {
    format!("{namespace}_{name}")
}

/// What may be open at present, and what the last commit has opened.
#[derive(Debug, Default)]
struct Limits {
    allowed: BTreeSet<Question>,
    open: BTreeSet<Question>,
}

/// The guard, with all pods that histories have.
struct Between {
    limits: Arc<Mutex<Limits>>,
    pods: Vec<Pod>,
}

impl Between {
    fn open(&self, commit: &Commit) -> BTreeSet<Question> {
        let sets: Sets = commit
            .sets
            .iter()
            .map(|(name, set)| (name.clone(), set.addresses.iter().cloned().collect()))
            .collect();
        let ends = |pod: &Pod| {
            let name = port(pod);
            let port = commit.ports.get(&name).filter(|port| !port.addresses.is_empty())?;
            let acls =
                port.groups.iter().filter_map(|group| commit.acls.get(group)).flatten().collect();
            Some((name.clone(), (acl::Port { name, groups: port.groups.clone() }, acls)))
        };
        let ends: BTreeMap<String, (acl::Port, Vec<&acl::Acl>)> =
            self.pods.iter().filter_map(ends).collect();
        let pods: Vec<&Pod> = self.pods.iter().collect();
        let open = questions(&pods).filter_map(|(client, server, number)| {
            let place = PLACES[number];
            let name = place.protocol.name().to_lowercase();
            let packet = Packet {
                source: client.address(place.is_ipv6),
                destination: server.address(place.is_ipv6),
                protocol: &name,
                port: place.port,
                inport: None,
                outport: None,
            };
            let (from, its) = ends.get(&port(client))?;
            let (to, others) = ends.get(&port(server))?;
            // What cannot be evaluated counts as open.
            let allows = |acls: &[&acl::Acl], end| {
                Carried::of(acls.iter().copied(), end, &packet, &sets).allows != Some(false)
            };
            let is_open = allows(its, End::Client(from)) && allows(others, End::Server(to));
            is_open.then(|| Question { client: port(client), server: port(server), place: number })
        });
        open.collect()
    }
}

impl Guard for Between {
    fn broken(&self, commit: &Commit) -> Vec<String> {
        let open = self.open(commit);
        let mut limits = self.limits.lock().unwrap_or_else(PoisonError::into_inner);
        let broken = open.difference(&limits.allowed).map(|question| {
            format!("{question:?} is open, and is it neither before nor after the change")
        });
        let broken = broken.collect();
        limits.open = open;
        broken
    }
}

/// A controller, a database with tiers, and a guard.
struct Scene {
    staged: Staged,
    controller: Running,
    connection: Connection,
    writer: SecondWriter,
    watcher: Watcher,
    limits: Arc<Mutex<Limits>>,
    changes: usize,
    _northbound: Northbound,
}

impl Scene {
    async fn begin(schema: &Schema, begin: World) -> Self {
        let northbound = Northbound::with_schema(schema.path());
        let connection = northbound.open().await;
        let staged = Staged::begin(begin);
        let limits = Arc::new(Mutex::new(Limits { allowed: staged.open(), ..Limits::default() }));
        let guard = Between { limits: Arc::clone(&limits), pods: staged.world.pods.clone() };
        let watcher = Watcher::start(northbound.endpoint(), at_once(), vec![Box::new(guard)]);
        let mut controller = Running::start(northbound.endpoint(), config());
        observe(&controller, &staged.world, staged.world.manifests());
        controller.converged().await;
        let mut scene = Self {
            staged,
            controller,
            connection,
            writer: SecondWriter::default(),
            watcher,
            limits,
            changes: 0,
            _northbound: northbound,
        };
        scene.rest().await;
        scene
    }

    async fn change(&mut self, change: Change) {
        let before = self.staged.open();
        let seen = self.staged.change(change);
        let allowed = before.union(&self.staged.open()).cloned().collect();
        self.limits.lock().unwrap_or_else(PoisonError::into_inner).allowed = allowed;
        self.changes += 1;
        // What follows from the change may be nothing. A pod beside it is written in any case.
        let host = 100 + self.changes;
        let network = json!({"default": {
            "mac_address": format!("0a:58:0a:f4:01:{host:02x}"),
            "ip_addresses": [format!("10.244.1.{host}/24")],
        }});
        let beside = json!({
            "metadata": {
                "namespace": "beside",
                "name": format!("p{host}"),
                "uid": "beside",
                "annotations": {"k8s.ovn.org/pod-networks": network.to_string()},
            },
            "spec": {"nodeName": "node1"},
        });
        let beside = WatchEvent::Pods(Seen::Applied(read::<PodObject>(beside)));
        // A pod gets a port once its namespace is known.
        let namespace = json!({"metadata": {"name": "beside", "uid": "beside"}});
        let namespace = WatchEvent::Namespaces(Seen::Applied(read::<NamespaceObject>(namespace)));
        self.controller.told_after(seen.into_iter().chain([namespace, beside])).await;
        self.rest().await;
    }

    /// Waits until the guard has seen all commits. At rest, what is open is what the model says.
    async fn rest(&mut self) {
        let marker = format!("foreign-{}", self.changes);
        self.writer.switch(&self.connection, &marker).await;
        self.watcher.kept_until(&marker).await;
        let limits = self.limits.lock().unwrap_or_else(PoisonError::into_inner);
        let expected = self.staged.open();
        let more: Vec<_> = limits.open.difference(&expected).collect();
        let less: Vec<_> = expected.difference(&limits.open).collect();
        assert!(
            more.is_empty() && less.is_empty(),
            "open at rest: {more:?}; closed at rest: {less:?}"
        );
    }
}

async fn kept(schema: &Schema, History { begin, changes }: History) {
    let mut scene = Scene::begin(schema, begin).await;
    for change in changes {
        scene.change(change).await;
    }
    scene.controller.stop().await;
}

#[test]
fn law_7_no_commit_opens_what_neither_the_world_before_a_change_nor_the_one_after_it_opens() {
    let schema = Schema::of_acls(true);
    nothing_differs(&history(), |history| {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let run = std::panic::AssertUnwindSafe(|| runtime.block_on(kept(&schema, history.clone())));
        let panic = std::panic::catch_unwind(run).err();
        let text = |panic: Box<dyn std::any::Any + Send>| match panic.downcast::<String>() {
            Ok(text) => *text,
            Err(_) => "the history panicked".to_owned(),
        };
        panic.map(text).into_iter().collect()
    });
}

/// One pod of two lets nobody in.
fn one_is_isolated() -> World {
    let pod = |name: &str, label, host| Pod {
        namespace: "x",
        name: name.to_owned(),
        node: 1,
        host,
        labels: vec![("app", label)],
        ports: Vec::new(),
    };
    World {
        namespaces: vec![Namespace { name: "x", labels: Labels::new() }],
        pods: vec![pod("client", "a", 3), pod("server", "b", 4)],
        policies: vec![NetworkPolicy {
            namespace: "x",
            name: "policy0".to_owned(),
            pod_selector: Selector {
                match_labels: vec![("app", "b")],
                match_expressions: Vec::new(),
            },
            policy_types: vec![Direction::Ingress],
            ingress: Vec::new(),
            egress: Vec::new(),
        }],
        cluster_policies: Vec::new(),
    }
}

/// An update by two commits, as upstream's controller makes it: the policy is gone in between.
#[tokio::test]
async fn a_policy_that_is_away_for_one_commit_is_found() {
    let schema = Schema::of_acls(true);
    let Scene { connection, mut writer, mut watcher, controller, _northbound, .. } =
        Scene::begin(&schema, one_is_isolated()).await;
    controller.stop().await;
    for (action, other) in [("drop", "allow"), ("allow", "drop")] {
        let mut update = Transaction::new();
        update.update("ACL", Condition::equal("action", action), Row::new().with("action", other));
        connection.transact(update).await.unwrap();
    }
    writer.switch(&connection, "foreign-last").await;
    let broken = watcher.broken_until("foreign-last").await;
    let tcp = "Question { client: \"x_client\", server: \"x_server\", place: 0 } is open";
    assert!(broken.iter().any(|why| why.contains(tcp)), "{broken:#?}");
}
