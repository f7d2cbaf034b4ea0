//! Where rows are tried: a cluster of two nodes in a world, with the control plane and a server on
//! each node, a bystander, and what a row leaves, which is removed after it.

use std::{
    any::Any,
    net::{IpAddr, SocketAddr},
    sync::{Mutex, MutexGuard, OnceLock, PoisonError, atomic::AtomicU64},
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, ensure};
use integration::{
    Cluster, Daemon, Families, Lab, Node, Pod,
    cluster::{GatewayMode, bare},
    connections::Server,
    eventually,
    matrix::Findings,
    peer::Reply,
    tenants::{self, matrix, outcome::Outcome},
    traffic::End,
};
use oracle::world as model;
use serde_json::{Value, json};

use crate::support::{api::Api, managed};
use crate::tenants::{
    bystander::Bystander,
    objects::{Objects, Played, Real},
};

/// The tenant who tries rows.
pub(crate) const EVIL: &str = "evil";
/// Port of a node's metrics, on all its addresses as the manifest has it.
pub(crate) const METRICS: u16 = 9410;
/// The same of the control plane.
pub(crate) const METRICS_OF_CONTROL_PLANE: u16 = 9409;
/// Limit for rows, flows and rules to follow, on a busy machine.
pub(crate) const SOON: Duration = Duration::from_secs(30);

/// The same for a policy, which is in force before a new pod is.
const FOLLOWS: Duration = Duration::from_secs(10);

/// A row's body: it tries, checks what is the row's own, and returns the figure that it has seen.
pub(crate) type Body = fn(&Site<'_>) -> Result<String>;

/// The cluster.
pub(crate) struct Site<'l> {
    pub(crate) lab: &'l Lab,
    pub(crate) objects: Box<dyn Objects + 'l>,
    control_plane: &'l Daemon,
    bystander: OnceLock<Bystander>,
    left: Mutex<Left>,
}

/// What the bystander's connections may suffer.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum Traffic {
    /// Nothing.
    #[default]
    GoesOn,
    /// What nobody here can prevent.
    MayStop,
}

/// What a row leaves.
#[derive(Default)]
struct Left {
    objects: Vec<Value>,
    pods: Vec<Pod>,
    /// Events from before it.
    events: Vec<String>,
    traffic: Traffic,
    /// Processes and the like, which end when they are dropped.
    held: Vec<Box<dyn Any>>,
}

/// Tries the rows that are selected, in a cluster of their own: with a real API server in the long
/// form. Not the first row that fails ends it: all of them are told.
pub(crate) fn try_rows(rows: &[(u8, Body)], gateway: GatewayMode) -> Result<()> {
    let mut selected: Vec<(u8, Body)> =
        rows.iter().copied().filter(|(number, _)| tenants::is_to_run(*number)).collect();
    // Last, because what one of them breaks may stay broken.
    selected
        .sort_by_key(|(number, _)| matrix::find(*number).is_some_and(|row| row.fails.is_some()));
    if selected.is_empty() {
        return Ok(());
    }
    if tenants::long_forms() {
        let cluster = cluster(gateway)?;
        let objects = Box::new(Real { api: &cluster.api });
        return Site::new(&cluster.lab, objects, &cluster.master).try_all(&selected);
    }
    let lab = Lab::of_nodes(2).families(Families::Dual).empty().world().build()?;
    let api = Api::start()?;
    let world = model::World {
        nodes: [1, 2].map(|number| model::Node { number, zone: None }).into(),
        ..model::World::default()
    };
    world.manifests().nodes.into_iter().for_each(|node| api.put(node));
    own_service(api.url())?.into_iter().for_each(|object| api.put(object));
    let options =
        [format!("--mtu={}", lab.nodes[0].mtu), metrics_of_control_plane(), MULTICAST.to_owned()];
    let control_plane = api.master_with(options);
    control_plane.spawn()?;
    for node in &lab.nodes {
        let options = [
            format!("--init-node={}", node.name),
            format!("--k8s-apiserver={}", api.url()),
            format!("--mtu={}", node.mtu),
            "--cluster-subnets=10.244.0.0/16/24,fd00:10:244::/48".to_owned(),
            "--k8s-service-cidrs=10.96.0.0/16,fd00:10:96::/112".to_owned(),
            format!("--gateway-mode={gateway}"),
            format!("--metrics-bind-address=:{METRICS}"),
        ];
        node.server.set_arguments(options);
        node.start_server()?;
    }
    lab.nodes.iter().try_for_each(managed::ready)?;
    let objects = Box::new(Played { api: &api, uids: AtomicU64::new(1) });
    Site::new(&lab, objects, &control_plane).try_all(&selected)
}

/// The Service with which an API server tells its own address, and the slice of it.
fn own_service(url: &str) -> Result<[Value; 2]> {
    let address: SocketAddr = url.trim_start_matches("http://").trim_end_matches('/').parse()?;
    let port = |number: u16| json!({"name": "https", "protocol": "TCP", "port": number});
    let metadata = json!({"namespace": "default", "name": "kubernetes", "uid": "kubernetes"});
    let mut of_slice = metadata.clone();
    of_slice["labels"] = json!({"kubernetes.io/service-name": "kubernetes"});
    Ok([
        json!({
            "apiVersion": "v1", "kind": "Service", "metadata": metadata,
            "spec": {"clusterIP": "10.96.0.1", "clusterIPs": ["10.96.0.1"], "ports": [port(443)]},
        }),
        json!({
            "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "metadata": of_slice, "addressType": "IPv4",
            "ports": [port(address.port())],
            "endpoints": [{"addresses": [address.ip()], "conditions": {"ready": true}}],
        }),
    ])
}

/// Without it, multicast is nobody's.
const MULTICAST: &str = "--enable-multicast";

fn metrics_of_control_plane() -> String {
    format!("--metrics-bind-address=:{METRICS_OF_CONTROL_PLANE}")
}

/// With a real API server, and nodes without kubelets.
pub(crate) fn cluster(gateway: GatewayMode) -> Result<Cluster> {
    Cluster::of_nodes(2)
        .families(Families::Dual)
        .without_kubelets()
        .server_options(&[&format!("--metrics-bind-address=:{METRICS}")])
        .master_options(&[&metrics_of_control_plane(), MULTICAST])
        .gateway(gateway)
        .definitions(
            ["conf/kubernetes/egressfirewalls.yaml"]
                .map(|file| integration::executable::workspace().join(file)),
        )
        .build(&|_| ())
}

impl<'l> Site<'l> {
    pub(crate) fn new(
        lab: &'l Lab,
        objects: Box<dyn Objects + 'l>,
        control_plane: &'l Daemon,
    ) -> Self {
        Self { lab, objects, control_plane, bystander: OnceLock::new(), left: Mutex::default() }
    }

    pub(crate) fn try_all(&self, rows: &[(u8, Body)]) -> Result<()> {
        for namespace in [crate::tenants::bystander::NAMESPACE, EVIL] {
            self.objects.put(&namespace_object(namespace))?;
        }
        let bystander = Bystander::start(self).context("the bystander alone")?;
        ensure!(self.bystander.set(bystander).is_ok(), "there is one bystander");
        // What it needs stays.
        let _kept = std::mem::take(&mut *self.left());
        let mut failed = Vec::new();
        for (number, body) in rows {
            let row = matrix::find(*number).with_context(|| format!("there is no row {number}"))?;
            let outcome = self.try_row(*number, *body)?;
            outcome.keep()?;
            let Outcome { seconds, figure, bystander, failure, .. } = &outcome;
            eprintln!("row {number} ({}): {figure}; {bystander}; {seconds:.1} s", row.attack);
            if let Some(failure) = failure {
                let known =
                    row.fails.map(|reason| format!(" (known: {reason})")).unwrap_or_default();
                eprintln!("row {number} does not hold{known}: {failure}");
                if row.fails.is_none() {
                    failed.push(format!("row {number} ({}): {failure}", row.attack));
                }
            }
        }
        ensure!(failed.is_empty(), "{}", failed.join("\n"));
        Ok(())
    }

    fn try_row(&self, number: u8, body: Body) -> Result<Outcome> {
        let began = Instant::now();
        self.left().events = self.objects.events()?;
        let observed =
            self.bystander().observe(self).with_context(|| format!("before row {number}"))?;
        let mut findings = Findings::default();
        let tried = body(self);
        let figure = tried.as_ref().map_or_else(|_| "see below".to_owned(), String::clone);
        findings.note("the row itself", tried.map(drop));
        let seen = self.bystander().judge(self, observed, &mut findings).unwrap_or_else(|error| {
            findings.note("the bystander", Err(error));
            "not seen to the end".to_owned()
        });
        self.clean_up().with_context(|| format!("after row {number}"))?;
        let failure = findings.verdict().err().map(|error| format!("{error:#}"));
        Ok(Outcome {
            number,
            seconds: began.elapsed().as_secs_f64(),
            figure,
            bystander: seen,
            failure,
        })
    }

    pub(crate) fn control_plane(&self) -> &Daemon {
        self.control_plane
    }

    /// The tenant who must not notice.
    pub(crate) fn bystander(&self) -> &Bystander {
        self.bystander.get().expect("rows are tried beside a bystander")
    }

    pub(crate) fn first(&self) -> &'l Node {
        &self.lab.nodes[0]
    }

    pub(crate) fn second(&self) -> &'l Node {
        &self.lab.nodes[1]
    }

    fn left(&self) -> MutexGuard<'_, Left> {
        self.left.lock().unwrap_or_else(PoisonError::into_inner)
    }

    // --- Objects ---

    /// Creates or changes an object, which is removed after the row.
    pub(crate) fn put(&self, object: &Value) -> Result<Value> {
        let created = self.objects.put(object)?;
        self.left().objects.push(object.clone());
        Ok(created)
    }

    /// Creates a namespace for the row.
    pub(crate) fn namespace(&self, name: &str) -> Result<()> {
        self.put(&namespace_object(name)).map(drop)
    }

    /// The object of a pod with the label `name`, on a node by its position.
    pub(crate) fn pod_object(&self, namespace: &str, name: &str, node: usize) -> Value {
        json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {"namespace": namespace, "name": name, "labels": {"name": name}},
            "spec": {"nodeName": self.lab.nodes[node].name, "containers": [{"name": "main", "image": "none"}]},
        })
    }

    /// A pod with its network.
    pub(crate) fn attached(&self, namespace: &str, name: &str, node: usize) -> Result<Pod> {
        self.attached_as(&self.pod_object(namespace, name, node))
    }

    /// The same of any object.
    pub(crate) fn attached_as(&self, object: &Value) -> Result<Pod> {
        let created = self.put(object)?;
        let pod = self.attach(&created)?;
        self.left().pods.push(pod.clone());
        Ok(pod)
    }

    /// Calls the plugin for a pod that the API server has.
    pub(crate) fn attach(&self, created: &Value) -> Result<Pod> {
        let pod = bare::attach(self.lab, created)?;
        self.objects.patch(created, &bare::running(&pod))?;
        Ok(pod)
    }

    /// Takes its network and its namespace away.
    pub(crate) fn detach(&self, pod: &Pod) -> Result<()> {
        let node = self.lab.node_of(pod);
        node.runtime().del(pod)?.success()?;
        node.remove_namespaces(std::slice::from_ref(pod))
    }

    /// Keeps something until the row has been judged: a process, a connection.
    pub(crate) fn hold(&self, thing: impl Any) {
        self.left().held.push(Box::new(thing));
    }

    /// The row does what nobody here can prevent to the bystander's connections.
    pub(crate) fn suffers(&self) {
        self.left().traffic = Traffic::MayStop;
    }

    pub(crate) fn traffic(&self) -> Traffic {
        self.left().traffic
    }

    /// Keeps so many connections from there while the row goes on, each of which says this and then
    /// hardly anything.
    pub(crate) fn keeps(
        &self,
        from: &End<'_>,
        to: SocketAddr,
        count: usize,
        says: &str,
    ) -> Result<()> {
        self.hold(self.lab.keeping(from, to, count, says)?);
        Ok(())
    }

    fn clean_up(&self) -> Result<()> {
        let Left { objects, pods, held, .. } = std::mem::take(&mut *self.left());
        drop(held);
        pods.iter().try_for_each(|pod| self.detach(pod))?;
        objects.iter().rev().try_for_each(|object| self.objects.remove(object))
    }

    /// Waits until all that was written before is in force: the control plane has a later object's
    /// rows, and every node their flows.
    pub(crate) fn settled(&self) -> Result<()> {
        let name = format!("later-{}", self.left().pods.len());
        let pod = self.attached(EVIL, &name, 0).context("a pod after all that")?;
        self.lab.central.sync()?;
        self.lab.ping(&pod, self.bystander().here.address())
    }

    /// The reasons of the events since the row has begun.
    pub(crate) fn news(&self) -> Result<String> {
        let mut events = self.objects.events()?;
        for event in &self.left().events {
            if let Some(at) = events.iter().position(|known| known == event) {
                events.swap_remove(at);
            }
        }
        events.sort_unstable();
        events.dedup();
        Ok(if events.is_empty() { "none".to_owned() } else { events.join(", ") })
    }

    /// Waits for one.
    pub(crate) fn told(&self) -> Result<String> {
        eventually("an event tells of it", SOON, || {
            let news = self.news()?;
            ensure!(news != "none", "there is none");
            Ok(news)
        })
    }

    // --- Packets ---

    /// A server in the pod that answers over TCP and UDP with its address, at all addresses of the
    /// pod.
    pub(crate) fn answering(&self, pod: &Pod, port: u16) -> Result<Server> {
        self.lab.answering(pod, &at(pod, port))
    }

    /// How many of these questions are answered, over TCP and UDP.
    pub(crate) fn answered(&self, from: &End<'_>, to: &[SocketAddr]) -> Result<usize> {
        let replies = self.lab.ask(from, to, to)?.concat();
        Ok(replies.iter().filter(|reply| matches!(reply, Reply::By(_))).count())
    }

    /// Waits until no question is answered, and asks once more.
    pub(crate) fn is_closed(&self, from: &End<'_>, to: &[SocketAddr]) -> Result<()> {
        let closed = || {
            let answered = self.answered(from, to)?;
            ensure!(
                answered == 0,
                "{answered} of {} questions from {from} are answered",
                2 * to.len()
            );
            Ok(())
        };
        eventually(&format!("nothing of {to:?} answers {from}"), FOLLOWS, closed)?;
        closed()
    }

    /// Waits until this address answers with that one, and asks `times` more: each answer has to be
    /// the same.
    pub(crate) fn answers_as(
        &self,
        from: &End<'_>,
        to: SocketAddr,
        by: IpAddr,
        times: usize,
    ) -> Result<String> {
        self.lab.answers(&format!("{to} answers {from}"), from, &[(to, by)], SOON)?;
        let asked = vec![to; times];
        let [replies, _] = self.lab.ask(from, &asked, &[])?;
        let wrong: Vec<&Reply> =
            replies.iter().filter(|reply| reply.address() != Some(by)).collect();
        ensure!(wrong.is_empty(), "{} of {times} from {from} to {to}: {wrong:?}", wrong.len());
        Ok(format!("{times} of {times} answered by {by}"))
    }
}

/// The same port of all addresses of a pod.
pub(crate) fn at(pod: &Pod, port: u16) -> Vec<SocketAddr> {
    pod.addresses.iter().map(|net| SocketAddr::new(net.addr(), port)).collect()
}

fn namespace_object(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": {"kubernetes.io/metadata.name": name}}})
}
