//! The cluster that is explained: an API server with its objects, which the test plays, and the
//! database that the control plane has written of them.

use std::{
    collections::BTreeMap,
    process::{Command, Output},
    sync::{Arc, Mutex},
    time::Duration,
};

use contract::names::ClusterPolicyKind;
use controller::{
    Controller,
    config::{ClusterConfig, ClusterSubnet},
    engine::{northbound, reconcile::Progress},
    kinds::{
        cluster_policy::wire::{ClusterPolicyObject, OfAdmin, OfBaseline, OfCluster},
        egress_firewall::object::EgressFirewallObject,
        egress_qos::object::EgressQos,
        namespace::wire::NamespaceObject,
        network_policy::wire::PolicyObject,
        node::wire::NodeObject,
        pod::wire::PodObject,
    },
    metrics::Metrics,
    watch_event::{Seen, WatchEvent},
    world::Store,
};
use kubeapi::{election::Leadership, watch::Watched};
use oracle::{
    egress_firewall::EgressFirewall,
    policies::{World, manifest::Manifests, names},
};
use ovsdb::Endpoint;
use serde_json::{Value, json};
use testkit::{Database, Scratch, ScriptedApi};
use tokio::{
    sync::{mpsc, watch},
    time::timeout,
};

/// Longer than anything takes on a busy machine.
const SOON: Duration = Duration::from_secs(60);
pub(crate) const SCHEMA: &str = "/usr/share/ovn/ovn-nb.ovsschema";

/// A cluster: its objects, and the database that the control plane has written of them.
pub(crate) struct Cluster {
    url: String,
    scratch: Scratch,
    _database: Database,
    _objects: Arc<Mutex<BTreeMap<String, Value>>>,
}

impl Cluster {
    /// The database has the rows of `written`, and the API server has the objects of `world`.
    pub(crate) async fn start(world: &World, written: &World) -> Self {
        Self::of(objects(world, world.manifests()), written, written.manifests()).await
    }

    pub(crate) async fn of(
        objects: BTreeMap<String, Value>,
        written: &World,
        manifests: Manifests,
    ) -> Self {
        Self::with_firewalls(objects, written, manifests, &[]).await
    }

    pub(crate) async fn with_firewalls(
        objects: BTreeMap<String, Value>,
        written: &World,
        manifests: Manifests,
        firewalls: &[EgressFirewall],
    ) -> Self {
        let scratch = Scratch::new();
        let database = Database::of_schema(scratch.path(), "nb", SCHEMA);
        let firewalls: Vec<Value> = firewalls.iter().map(EgressFirewall::manifest).collect();
        let mut objects = objects;
        objects.extend(firewalls.iter().map(|object| (path_of_firewall(object), object.clone())));
        write(Endpoint::Unix(scratch.join("nb.sock")), written, manifests, &firewalls).await;
        let objects = Arc::new(Mutex::new(objects));
        let mut api = ScriptedApi::start().await;
        let (url, served) = (api.url.clone(), Arc::clone(&objects));
        tokio::spawn(async move {
            loop {
                let asked = api.asked().await;
                assert_eq!(asked.method, "GET", "it writes nothing");
                let path = asked.path.split('?').next().unwrap().to_owned();
                let found = served.lock().unwrap().get(&path).cloned();
                match found {
                    Some(object) => asked.json(&object).await,
                    None => asked.status(404, "not found").await,
                }
            }
        });
        Self { url, scratch, _database: database, _objects: objects }
    }

    pub(crate) fn endpoint(&self) -> Endpoint {
        Endpoint::Unix(self.scratch.join("nb.sock"))
    }

    pub(crate) async fn explain(&self, question: &[&str]) -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_ovnkube"));
        command
            .env_clear()
            .args(["policy", "explain"])
            .args(question)
            .arg(format!("--k8s-apiserver={}", self.url))
            .arg(format!("--nb-address={}", self.endpoint()))
            .arg("--ovsdb-endpoint=unix:/nowhere");
        let output = tokio::task::spawn_blocking(move || command.output().unwrap());
        timeout(SOON, output).await.expect("the command ends").unwrap()
    }
}

fn path_of_firewall(object: &Value) -> String {
    let namespace = object["metadata"]["namespace"].as_str().unwrap();
    format!("/apis/k8s.ovn.org/v1/namespaces/{namespace}/egressfirewalls/default")
}

fn nodes_of(world: &World) -> Vec<Value> {
    oracle::World { nodes: world.nodes(), ..oracle::World::default() }.manifests().nodes
}

/// The API server's answers, by path. It does not select pods by their node.
pub(crate) fn objects(world: &World, manifests: Manifests) -> BTreeMap<String, Value> {
    let Manifests { namespaces, pods, policies, cluster_policies } = manifests;
    let text = |object: &Value, field: &str| object["metadata"][field].as_str().unwrap().to_owned();
    let mut found = BTreeMap::from([
        ("/api/v1/nodes".to_owned(), json!({"items": nodes_of(world)})),
        ("/api/v1/pods".to_owned(), json!({"items": pods})),
        ("/api/v1/services".to_owned(), json!({"items": []})),
    ]);
    for pod in pods {
        let path =
            format!("/api/v1/namespaces/{}/pods/{}", text(&pod, "namespace"), text(&pod, "name"));
        found.insert(path, pod);
    }
    for namespace in namespaces {
        let name = text(&namespace, "name");
        let own = policies.iter().filter(|policy| text(policy, "namespace") == name);
        let path = format!("/apis/networking.k8s.io/v1/namespaces/{name}/networkpolicies");
        found.insert(path, json!({"items": own.collect::<Vec<_>>()}));
        found.insert(format!("/api/v1/namespaces/{name}"), namespace);
    }
    for kind in ClusterPolicyKind::ALL {
        let own: Vec<&Value> =
            cluster_policies.iter().filter(|object| object["kind"] == kind.as_str()).collect();
        // A kind without objects is not defined in this cluster.
        if !own.is_empty() {
            let of = kind.definition();
            let version = of.versions.last().unwrap();
            found.insert(of.path(version), json!({"items": own}));
            let page = found
                .entry(format!("/apis/{}/{version}", of.group))
                .or_insert(json!({"resources": []}));
            page["resources"].as_array_mut().unwrap().push(json!({"name": of.plural}));
            let versions = ["v1alpha1", "v1alpha2"].map(|version| json!({"version": version}));
            found.insert(format!("/apis/{}", of.group), json!({"versions": versions}));
        }
    }
    found
}

fn values<O: Watched>(objects: &[Value]) -> Vec<O::Value> {
    let read = |object: &Value| serde_json::from_value::<O>(object.clone()).unwrap();
    objects.iter().map(|object| read(object).value().unwrap()).collect()
}

/// Lets the control plane write the database, and ends it.
async fn write(endpoint: Endpoint, world: &World, manifests: Manifests, firewalls: &[Value]) {
    let subnet =
        |cidr: &str, host_length| ClusterSubnet { cidr: cidr.parse().unwrap(), host_length };
    let config = ClusterConfig {
        cluster_subnets: vec![subnet("10.244.0.0/16", 24), subnet("fd00:10:244::/48", 64)],
        ..ClusterConfig::default()
    };
    let (_client, rows) = northbound::connect(endpoint.into(), ovsdb::Options::default());
    let (observe, observations) = mpsc::unbounded_channel();
    let (progress, mut progressed) = watch::channel(Progress::default());
    let controller = Controller {
        store: Store::new(config),
        observations,
        annotations: mpsc::unbounded_channel().0,
        conditions: mpsc::unbounded_channel().0,
        statuses: mpsc::unbounded_channel().0,
        northbound: rows,
        leadership: Leadership::always(),
        reports: mpsc::unbounded_channel().0,
        progress,
        metrics: Metrics::register(&prometheus::Registry::new()).unwrap(),
        hold: Duration::ZERO,
        patience: SOON,
    };
    let running = tokio::spawn(controller.run());
    let Manifests { namespaces, pods, policies, cluster_policies } = manifests;
    let mut seen = vec![
        WatchEvent::Nodes(Seen::All(values::<NodeObject>(&nodes_of(world)))),
        WatchEvent::Namespaces(Seen::All(values::<NamespaceObject>(&namespaces))),
        WatchEvent::Pods(Seen::All(values::<PodObject>(&pods))),
        WatchEvent::Policies(Seen::All(values::<PolicyObject>(&policies))),
        WatchEvent::Services(Seen::All(Vec::new())),
        WatchEvent::Slices(Seen::All(Vec::new())),
        WatchEvent::custom(Seen::All(values::<EgressFirewallObject>(firewalls))),
        WatchEvent::custom::<EgressQos>(Seen::All(Vec::new())),
    ];
    for kind in ClusterPolicyKind::ALL {
        let own: Vec<Value> = cluster_policies
            .iter()
            .filter(|object| object["kind"] == kind.as_str())
            .cloned()
            .collect();
        let read = match kind {
            ClusterPolicyKind::ClusterNetworkPolicy => {
                values::<ClusterPolicyObject<OfCluster>>(&own)
            }
            ClusterPolicyKind::AdminNetworkPolicy => values::<ClusterPolicyObject<OfAdmin>>(&own),
            ClusterPolicyKind::BaselineAdminNetworkPolicy => {
                values::<ClusterPolicyObject<OfBaseline>>(&own)
            }
        };
        seen.push(WatchEvent::ClusterPolicies(kind, Seen::All(read)));
    }
    for (name, addresses) in names() {
        seen.push(WatchEvent::Name(name.into(), Ok(addresses.into_iter().collect())));
    }
    seen.into_iter().for_each(|observation| observe.send(observation).unwrap());
    timeout(SOON, progressed.wait_for(|progress| progress.converged))
        .await
        .expect("it converges")
        .unwrap();
    drop(observe);
    timeout(SOON, running).await.unwrap().unwrap();
}
