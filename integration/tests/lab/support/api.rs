//! A Kubernetes API server for the control plane and the nodes of a lab: it lists and watches the
//! objects that a test puts into it, keeps what is patched of nodes, and accepts whatever else is
//! written without keeping it. A pod brings its namespace with it, if the test has not put that
//! one: there are no pods without one.

use std::{
    collections::BTreeMap,
    path::Path,
    process::Command,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use anyhow::{Context as _, Result};
use integration::{Daemon, central, executable, fabric, mounts};
use serde_json::{Value, json};
use testkit::{ScriptedApi, scripted_api::Asked};
use tokio::{
    io::AsyncWriteExt as _,
    runtime::{Builder, Runtime},
    sync::mpsc::{UnboundedSender, unbounded_channel},
};
use tokio_rustls::rustls::{
    ServerConfig,
    crypto::ring,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject as _},
};

/// The server, which ends with its test.
pub(crate) struct Api {
    state: Arc<Mutex<State>>,
    url: String,
    _runtime: Runtime,
}

#[derive(Default)]
struct State {
    version: u64,
    /// By collection, namespace and name.
    objects: BTreeMap<(&'static str, String), Value>,
    /// Of events the reason, the object's kind, and the note.
    events: Vec<[String; 3]>,
    /// The watches of each collection. Those that have ended are still among them.
    watches: Vec<(&'static str, Selector, UnboundedSender<String>)>,
}

/// The field selector of a list or watch, of one field, `metadata.name=node1`, or the label
/// selector, of one label.
#[derive(Default)]
struct Selector(Option<(String, String)>);

impl Selector {
    fn of(path: &str) -> Self {
        let of = |name: &str| {
            let part = path.split(['?', '&']).find_map(|part| part.strip_prefix(name))?;
            let text = part.replace("%3D", "=").replace("%3d", "=").replace("%2F", "/");
            text.split_once('=').map(|(key, value)| (key.to_owned(), value.to_owned()))
        };
        let field = of("fieldSelector=");
        let field = field.map(|(field, value)| (format!("/{}", field.replace('.', "/")), value));
        let label = of("labelSelector=").map(|(label, value)| {
            (format!("/metadata/labels/{}", label.replace('/', "~1")), value)
        });
        Self(field.or(label))
    }

    fn takes(&self, object: &Value) -> bool {
        self.0.as_ref().is_none_or(|(field, value)| {
            object.pointer(field).is_some_and(|is| is == value.as_str())
        })
    }
}

impl Api {
    pub(crate) fn start() -> Result<Self> {
        let runtime = runtime()?;
        let server = runtime.block_on(ScriptedApi::start_on(fabric::LAB_ADDRESS.parse()?));
        Ok(Self::serve(runtime, server, None))
    }

    /// The same over TLS, with these files (PEM), for clients with this token.
    pub(crate) fn start_tls(certificate: &str, key: &str, token: &str) -> Result<Self> {
        let runtime = runtime()?;
        let chain = CertificateDer::pem_file_iter(certificate).and_then(Iterator::collect)?;
        let settings = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()?
            .with_no_client_auth()
            .with_single_cert(chain, PrivateKeyDer::from_pem_file(key)?)?;
        let address = fabric::LAB_ADDRESS.parse()?;
        let server = runtime.block_on(ScriptedApi::start_tls_on(address, Arc::new(settings)));
        Ok(Self::serve(runtime, server, Some(format!("Bearer {token}"))))
    }

    fn serve(runtime: Runtime, mut server: ScriptedApi, authorization: Option<String>) -> Self {
        let (state, url) = (Arc::<Mutex<State>>::default(), server.url.clone());
        let shared = Arc::clone(&state);
        runtime.spawn(async move {
            loop {
                let asked = server.asked().await;
                let given = asked.header("authorization");
                if authorization.as_deref().is_some_and(|needed| given != Some(needed)) {
                    tokio::spawn(asked.status(401, "Unauthorized"));
                } else {
                    tokio::spawn(answer(asked, Arc::clone(&shared)));
                }
            }
        });
        Self { state, url, _runtime: runtime }
    }

    /// The control plane, not running yet. It writes the whole northbound database of the lab.
    pub(crate) fn control_plane(&self) -> Daemon {
        self.control_plane_with([])
    }

    /// The same with these options besides.
    pub(crate) fn control_plane_with<const N: usize>(&self, options: [String; N]) -> Daemon {
        self.in_role("--init-ovnkube-controller=lab", options)
    }

    /// The same, which also numbers the nodes and assigns them their subnets.
    pub(crate) fn master_with(&self, options: impl IntoIterator<Item = String>) -> Daemon {
        self.in_role("--init-master=lab", options)
    }

    fn in_role(&self, role: &str, options: impl IntoIterator<Item = String>) -> Daemon {
        let arguments = [
            role.to_owned(),
            format!("--k8s-apiserver={}", self.url),
            format!("--nb-address={}", central::NORTHBOUND),
            "--cluster-subnets=10.244.0.0/16/24,fd00:10:244::/48".to_owned(),
            "--k8s-service-cidrs=10.96.0.0/16,fd00:10:96::/112".to_owned(),
        ];
        let arguments: Vec<String> = arguments.into_iter().chain(options).collect();
        let log = Path::new(mounts::LOGS).join("central/ovnkube.out");
        let program = || Ok(Command::new(executable::under_test(executable::SERVER)?));
        Daemon::new("the control plane", log, program, arguments)
    }

    /// Its URL, on the wire between the nodes.
    pub(crate) fn url(&self) -> &str {
        &self.url
    }

    /// An annotation of a node.
    pub(crate) fn annotation(&self, node: &str, key: &str) -> Option<String> {
        let state = lock(&self.state);
        let object = state.objects.get(&(collection("Node"), format!("null/\"{node}\"")))?;
        object["metadata"]["annotations"][key].as_str().map(str::to_owned)
    }

    /// The status of an object.
    pub(crate) fn status(&self, kind: &str, namespace: &str, name: &str) -> Option<Value> {
        let key = (collection(kind), format!("\"{namespace}\"/\"{name}\""));
        lock(&self.state).objects.get(&key)?.get("status").cloned()
    }

    /// The reasons of the events so far.
    pub(crate) fn events(&self) -> Vec<String> {
        lock(&self.state).events.iter().map(|[reason, ..]| reason.clone()).collect()
    }

    /// The notes of the events of this reason on objects of this kind so far.
    pub(crate) fn notes(&self, of: &str, on: &str) -> Vec<String> {
        let state = lock(&self.state);
        let notes = state.events.iter().filter(|[reason, kind, _]| reason == of && kind == on);
        notes.map(|[.., note]| note.clone()).collect()
    }

    /// Replaces nodes, pods, Services and their endpoints by those of the world.
    pub(crate) fn tell(&self, world: &oracle::World) {
        let oracle::manifest::Manifests { nodes, pods, services, slices } = world.manifests();
        for (kind, objects) in
            [("Node", nodes), ("Pod", pods), ("Service", services), ("EndpointSlice", slices)]
        {
            self.replace(kind, objects);
        }
    }

    /// Creates or changes an object.
    pub(crate) fn put(&self, object: Value) {
        lock(&self.state).put(object);
    }

    /// The object of this kind, namespace and name as it is now.
    pub(crate) fn read(&self, object: &Value) -> Option<Value> {
        let kind = object["kind"].as_str().expect("an object has a kind");
        lock(&self.state).objects.get(&(collection(kind), key(object))).cloned()
    }

    /// Deletes the object of this kind, namespace and name.
    pub(crate) fn remove(&self, object: &Value) {
        let kind = object["kind"].as_str().expect("an object has a kind");
        lock(&self.state).delete(collection(kind), key(object));
    }

    /// Changes what a merge patch names of an object that is there; returns it.
    pub(crate) fn patch(&self, object: &Value, patch: &Value) -> Option<Value> {
        let kind = object["kind"].as_str().expect("an object has a kind");
        lock(&self.state).patch(&(collection(kind), key(object)), patch)
    }

    /// Changes an object that is there.
    pub(crate) fn edit(&self, kind: &str, name: &str, edit: impl FnOnce(&mut Value)) -> Result<()> {
        let mut state = lock(&self.state);
        let found =
            state.all(collection(kind)).find(|object| object["metadata"]["name"] == name).cloned();
        let mut object = found.with_context(|| format!("there is no {kind} {name}"))?;
        edit(&mut object);
        state.put(object);
        Ok(())
    }

    /// Makes these all objects of their kind.
    pub(crate) fn replace(&self, kind: &str, objects: Vec<Value>) {
        let mut state = lock(&self.state);
        let collection = collection(kind);
        let there: Vec<String> = objects.iter().map(key).collect();
        let gone: Vec<String> =
            state.all(collection).map(key).filter(|key| !there.contains(key)).collect();
        gone.into_iter().for_each(|key| state.delete(collection, key));
        objects.into_iter().for_each(|object| state.put(object));
    }
}

impl State {
    fn all(&self, of: &'static str) -> impl Iterator<Item = &Value> {
        self.objects
            .iter()
            .filter(move |((collection, _), _)| *collection == of)
            .map(|(_, object)| object)
    }

    fn has(&self, key: &(&'static str, String)) -> bool {
        self.objects.contains_key(key)
    }

    fn put(&mut self, mut object: Value) {
        if object["kind"] == "Pod" {
            self.begin_namespace_of(&object);
        }
        self.version += 1;
        object["metadata"]["resourceVersion"] = json!(self.version.to_string());
        let collection = collection(object["kind"].as_str().expect("an object has a kind"));
        self.tell(collection, "MODIFIED", &object);
        self.objects.insert((collection, key(&object)), object);
    }

    /// Creates the namespace of a pod, if it is not there.
    fn begin_namespace_of(&mut self, pod: &Value) {
        let name = &pod["metadata"]["namespace"];
        let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "uid": name}});
        if !self.has(&(collection("Namespace"), key(&namespace))) {
            self.put(namespace);
        }
    }

    fn delete(&mut self, collection: &'static str, key: String) {
        self.version += 1;
        if let Some(mut object) = self.objects.remove(&(collection, key)) {
            object["metadata"]["resourceVersion"] = json!(self.version.to_string());
            self.tell(collection, "DELETED", &object);
        }
    }

    fn tell(&self, of: &str, kind: &str, object: &Value) {
        let watches = self
            .watches
            .iter()
            .filter(|(collection, selector, _)| *collection == of && selector.takes(object));
        for (_, _, watch) in watches {
            // Its client is gone.
            let _ = watch.send(event(kind, object));
        }
    }

    /// Changes an object as a patch says, of either kind; `None` if there is no such object, or a
    /// test of the patch fails.
    fn patch(&mut self, key: &(&'static str, String), patch: &Value) -> Option<Value> {
        let mut object = self.objects.get(key)?.clone();
        match patch {
            Value::Array(operations) => {
                for operation in operations {
                    let (path, value) = (operation["path"].as_str()?, &operation["value"]);
                    match operation["op"].as_str()? {
                        // A test for null succeeds where there is nothing, as in the real one.
                        "test" if object.pointer(path).unwrap_or(&Value::Null) == value => {}
                        "add" | "replace" => *place(&mut object, path)? = value.clone(),
                        _ => return None,
                    }
                }
            }
            merged => merge(&mut object, merged),
        }
        self.put(object.clone());
        Some(object)
    }
}

/// Where a JSON pointer leads, whose last step need not be there.
fn place<'v>(object: &'v mut Value, path: &str) -> Option<&'v mut Value> {
    let (parent, last) = path.rsplit_once('/')?;
    let last = last.replace("~1", "/").replace("~0", "~");
    Some(object.pointer_mut(parent)?.as_object_mut()?.entry(last).or_insert(Value::Null))
}

/// The one policy of the lab's namespace, and the namespace.
pub(crate) fn policy(api: &Api, spec: Value) {
    api.put(
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "lab", "uid": "lab"}}),
    );
    let metadata = json!({"namespace": "lab", "name": "policy", "uid": "policy"});
    let kind = "NetworkPolicy";
    api.put(json!({"apiVersion": "networking.k8s.io/v1", "kind": kind, "metadata": metadata, "spec": spec}));
}

/// RFC 7396.
fn merge(object: &mut Value, patch: &Value) {
    let Value::Object(fields) = patch else {
        *object = patch.clone();
        return;
    };
    if !object.is_object() {
        *object = json!({});
    }
    for (name, value) in fields {
        match value {
            Value::Null => drop(object.as_object_mut().and_then(|fields| fields.remove(name))),
            value => merge(&mut object[name], value),
        }
    }
}

fn runtime() -> Result<Runtime> {
    Ok(Builder::new_multi_thread().worker_threads(1).enable_all().build()?)
}

async fn answer(asked: Asked, state: Arc<Mutex<State>>) {
    let path = asked.path.split('?').next().unwrap_or_default().to_owned();
    let collection_of_nodes = collection("Node");
    let of_kind = [
        "Node",
        "Namespace",
        "Pod",
        "NetworkPolicy",
        "ClusterNetworkPolicy",
        "EgressFirewall",
        "EgressQoS",
        "Service",
        "EndpointSlice",
    ]
    .map(collection);
    let (whole, namespace) = whole_collection(&path);
    match of_kind.into_iter().find(|collection| *collection == whole) {
        Some(collection) if asked.is_watch() => watch(asked, collection, &state).await,
        Some(collection) => {
            let list = {
                let state = lock(&state);
                let selector = Selector::of(&asked.path);
                let is_in = |object: &&Value| {
                    namespace.as_ref().is_none_or(|it| object["metadata"]["namespace"] == **it)
                };
                let items = state.all(collection).filter(is_in);
                let items: Vec<&Value> = items.filter(|object| selector.takes(object)).collect();
                json!({"metadata": {"resourceVersion": state.version.to_string()}, "items": items})
            };
            asked.json(&list).await;
        }
        None if asked.is_watch() => asked.status(403, "may not watch").await,
        // Each process finds that no other one leads.
        None if asked.method == "GET" && path.contains("/leases/") => {
            asked.status(404, "not found").await
        }
        None if asked.method == "GET"
            && path.starts_with("/apis/")
            && path.split('/').count() < 5 =>
        {
            match discovered(&of_kind, &path) {
                Some(page) => asked.json(&page).await,
                None => asked.status(404, "page not found").await,
            }
        }
        // One object, as commands ask for it.
        None if asked.method == "GET" && object_of(&path).is_some() => {
            let found = object_of(&path).and_then(|key| lock(&state).objects.get(&key).cloned());
            match found {
                Some(object) => asked.json(&object).await,
                None => asked.status(404, "not found").await,
            }
        }
        None if path == "/api/v1/namespaces/kube-system" => {
            let metadata = json!({"name": "kube-system", "uid": "lab", "resourceVersion": "1"});
            let kind = json!({"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": metadata});
            asked.json(&kind).await;
        }
        None if asked.method == "PATCH" && path.starts_with(collection_of_nodes) => {
            let name = path[collection_of_nodes.len()..].split('/').nth(1).unwrap_or_default();
            let key = (collection_of_nodes, format!("null/\"{name}\""));
            let patch = serde_json::from_slice(&asked.body).unwrap_or_default();
            let patched = lock(&state).patch(&key, &patch);
            match patched {
                Some(object) => asked.json(&object).await,
                None => {
                    asked
                        .status(
                            422,
                            "the server rejected our request due to an error in our request",
                        )
                        .await
                }
            }
        }
        // A patch of an object that the test does not have is accepted, as what follows.
        None if asked.method == "PATCH"
            && place_of(&path).is_some_and(|key| lock(&state).has(&key)) =>
        {
            let patch = serde_json::from_slice(&asked.body).unwrap_or_default();
            let patched = place_of(&path).and_then(|key| lock(&state).patch(&key, &patch));
            match patched {
                Some(object) => asked.json(&object).await,
                None => {
                    asked
                        .status(
                            422,
                            "the server rejected our request due to an error in our request",
                        )
                        .await
                }
            }
        }
        None if path == "/version" => asked.json(&json!({"gitVersion": "v1.33.0"})).await,
        None if asked.method == "GET" => asked.status(404, "not found").await,
        None => {
            let mut sent: Value = serde_json::from_slice(&asked.body).unwrap_or_else(|_| json!({}));
            if let Some(reason) = sent["reason"].as_str() {
                let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
                let (kind, note) = (text(&sent["regarding"]["kind"]), text(&sent["note"]));
                lock(&state).events.push([reason.to_owned(), kind, note]);
            }
            sent["metadata"]["resourceVersion"] = json!("1");
            asked.json(&sent).await;
        }
    }
}

/// Sends all objects, and changes of them until the client is gone.
async fn watch(asked: Asked, collection: &'static str, state: &Mutex<State>) {
    let selector = Selector::of(&asked.path);
    // A watch that goes on after a list hears of what is newer; another one of everything, and of
    // its end.
    let after = match asked.parameter("sendInitialEvents") {
        Some(_) => None,
        None => asked.parameter("resourceVersion").and_then(|version| version.parse::<u64>().ok()),
    };
    let mut stream = asked.into_stream();
    let (sender, mut events) = unbounded_channel();
    {
        let mut state = lock(state);
        let initial: Vec<String> = state
            .all(collection)
            .filter(|object| {
                selector.takes(object) && after.is_none_or(|after| version(object) > after)
            })
            .map(|object| event("ADDED", object))
            .collect();
        let metadata = json!({
            "resourceVersion": state.version.to_string(), "annotations": {"k8s.io/initial-events-end": "true"},
        });
        let end = json!({"kind": "Bookmark", "apiVersion": "v1", "metadata": metadata});
        let end = after.is_none().then(|| event("BOOKMARK", &end));
        for event in initial.into_iter().chain(end) {
            let _ = sender.send(event);
        }
        state.watches.push((collection, selector, sender));
    }
    let head =
        "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n";
    let mut sent = stream.write_all(head.as_bytes()).await;
    while sent.is_ok()
        && let Some(event) = events.recv().await
    {
        sent = stream.write_all(format!("{:x}\r\n{event}\r\n", event.len()).as_bytes()).await;
    }
}

fn event(kind: &str, object: &Value) -> String {
    format!("{}\n", json!({"type": kind, "object": object}))
}

fn version(object: &Value) -> u64 {
    let text = object["metadata"]["resourceVersion"].as_str();
    text.and_then(|text| text.parse().ok()).expect("each object has been given one")
}

fn collection(kind: &str) -> &'static str {
    match kind {
        "Node" => "/api/v1/nodes",
        "Namespace" => "/api/v1/namespaces",
        "Pod" => "/api/v1/pods",
        "NetworkPolicy" => "/apis/networking.k8s.io/v1/networkpolicies",
        "ClusterNetworkPolicy" => "/apis/policy.networking.k8s.io/v1alpha2/clusternetworkpolicies",
        "EgressFirewall" => "/apis/k8s.ovn.org/v1/egressfirewalls",
        "EgressQoS" => "/apis/k8s.ovn.org/v1/egressqoses",
        "Service" => "/api/v1/services",
        "EndpointSlice" => "/apis/discovery.k8s.io/v1/endpointslices",
        other => panic!("the control plane watches no {other}"),
    }
}

/// What the API server says of a group, its versions, or of a version, its kinds.
fn discovered(collections: &[&str], path: &str) -> Option<Value> {
    let below =
        |collection: &&str| collection.strip_prefix(path)?.strip_prefix('/').map(str::to_owned);
    let below: Vec<String> = collections.iter().filter_map(below).collect();
    if below.is_empty() {
        return None;
    }
    let versions =
        below.iter().filter_map(|rest| Some(json!({"version": rest.split_once('/')?.0})));
    let kinds =
        below.iter().filter(|rest| !rest.contains('/')).map(|plural| json!({"name": plural}));
    Some(json!({"versions": versions.collect::<Vec<_>>(), "resources": kinds.collect::<Vec<_>>()}))
}

/// Where an object is that a process writes to: of the kinds whose patches are kept, besides nodes.
fn place_of(path: &str) -> Option<(&'static str, String)> {
    namespaced(path, &["Pod", "EgressFirewall", "EgressQoS"])
}

/// Where an object is that a command asks for.
fn object_of(path: &str) -> Option<(&'static str, String)> {
    let namespaces = collection("Namespace");
    let name = path.strip_prefix(namespaces).and_then(|rest| rest.strip_prefix('/'));
    match name.filter(|name| !name.contains('/') && *name != "kube-system") {
        Some(name) => Some((namespaces, format!("null/\"{name}\""))),
        None => namespaced(path, &["Pod", "Service"]),
    }
}

/// The collection of all namespaces, and the namespace of a path that is of one.
fn whole_collection(path: &str) -> (String, Option<String>) {
    let of_namespace = || {
        let (group, rest) = path.split_once("/namespaces/")?;
        let (namespace, plural) = rest.split_once('/').filter(|(_, it)| !it.contains('/'))?;
        Some((format!("{group}/{plural}"), Some(namespace.to_owned())))
    };
    of_namespace().unwrap_or_else(|| (path.to_owned(), None))
}

fn namespaced(path: &str, kinds: &[&str]) -> Option<(&'static str, String)> {
    kinds.iter().copied().map(collection).find_map(|collection| {
        let (group, plural) = collection.rsplit_once('/')?;
        let mut steps = path.strip_prefix(group)?.strip_prefix("/namespaces/")?.split('/');
        let (namespace, kind, name) = (steps.next()?, steps.next()?, steps.next()?);
        (kind == plural).then(|| (collection, format!("\"{namespace}\"/\"{name}\"")))
    })
}

fn key(object: &Value) -> String {
    format!("{}/{}", object["metadata"]["namespace"], object["metadata"]["name"])
}

fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}
