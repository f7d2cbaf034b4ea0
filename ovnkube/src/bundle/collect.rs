//! What an archive has: all that `status`, `diagnose`, `trace` and `policy explain` read, and the
//! ends of logs. A source that does not answer is a finding.

use std::{collections::BTreeSet, io, path::Path};

use contract::{
    definition::{
        ADMIN_NETWORK_POLICY, BASELINE_ADMIN_NETWORK_POLICY, CLUSTER_NETWORK_POLICY, CustomKind,
    },
    external_ids::IFACE_ID,
    paths::{PLUGIN_LOG, SERVER_LOG},
    wire::{NODE_PATH, NodeAnswer},
};
use k8s_openapi::jiff::Timestamp;
use kubeapi::Connection as Api;
use ovsdb::{Connection, SelectedRow, Where};
use podnet::{
    control_socket::{ControlSocket, VSWITCHD},
    pod_look::wire::{INSIDE_PATH, InsideAnswer, InsideRequest},
};
use serde_json::Value;

use super::{API, DATABASES, DESCRIPTION, Description, INSIDE, MACHINE, VERSION, archive::Archive};
use crate::{
    api_query::{list, page},
    file_end,
    findings::{Finding, State},
    node_server,
    status::{
        PATIENCE, Reach, StatusConfig, answer,
        databases::{NORTHBOUND, SOUTHBOUND, connect, rows},
        node,
    },
};

/// Bytes of a log that are read, from its end: some ten thousand lines.
const TAIL: u64 = 1 << 20;
/// Pods of this node whose namespaces are looked into: more than a kubelet has.
const MOST_PODS: usize = 300;
/// Logs of pods that are asked for.
const MOST_LOGS: usize = 100;
/// Lists of the API server. Those of kinds that it does not have are empty.
const LISTS: [&str; 11] = [
    "/api/v1/nodes",
    "/api/v1/namespaces",
    "/api/v1/pods",
    "/api/v1/services",
    "/api/v1/events",
    "/apis/discovery.k8s.io/v1/endpointslices",
    "/apis/networking.k8s.io/v1/networkpolicies",
    "/apis/networking.k8s.io/v1/servicecidrs",
    "/apis/coordination.k8s.io/v1/leases",
    "/apis/apps/v1/deployments",
    "/apis/apps/v1/daemonsets",
];
/// Namespaces of lists that are not read of the whole cluster.
const OWN: [&str; 3] = ["leases", "deployments", "daemonsets"];
/// Tables that may be large, and are of use to `trace` alone: last, while there is room.
const LARGE: [&str; 3] = ["Logical_Flow", "Logical_DP_Group", "Multicast_Group"];
/// Questions to daemons: what they say of themselves.
const QUESTIONS: [(&str, &str); 12] = [
    (VSWITCHD, "version"),
    (VSWITCHD, "coverage/show"),
    (VSWITCHD, "memory/show"),
    (VSWITCHD, "dpctl/show"),
    (VSWITCHD, "upcall/show"),
    ("ovn-controller", "version"),
    ("ovn-controller", "connection-status"),
    ("ovn-controller", "coverage/show"),
    ("ovn-controller", "inc-engine/show-stats"),
    ("ovn-northd", "status"),
    ("ovn-northd", "inc-engine/show-stats"),
    ("ovn-northd", "stopwatch/show"),
];
const LOGS: [&str; 8] = [
    SERVER_LOG,
    PLUGIN_LOG,
    "/var/log/openvswitch/ovs-vswitchd.log",
    "/var/log/openvswitch/ovsdb-server.log",
    "/var/log/ovn/ovn-controller.log",
    "/var/log/ovn/ovn-northd.log",
    "/var/log/ovn/ovsdb-server-nb.log",
    "/var/log/ovn/ovsdb-server-sb.log",
];

/// An archive that is being made.
struct Collector<'a> {
    config: &'a StatusConfig,
    archive: Archive,
    findings: Vec<Finding>,
}

/// Writes an archive of `most` bytes at most.
///
/// # Errors
///
/// The file cannot be written.
pub(super) async fn to_file(
    config: &StatusConfig,
    path: &Path,
    most: u64,
) -> io::Result<Vec<Finding>> {
    let created = Timestamp::now();
    let time = u64::try_from(created.as_second()).unwrap_or_default();
    let archive = Archive::create(path, most, time)?;
    let mut collector = Collector { config, archive, findings: Vec::new() };
    collector.machine(created).await?;
    collector.api().await?;
    let large = collector.databases().await?;
    collector.logs()?;
    for (database, connection, table) in &large {
        collector.table(database, connection, table).await?;
    }
    let Collector { archive, mut findings, .. } = collector;
    let omitted = archive.finish()?;
    if !omitted.is_empty() {
        let first: Vec<&str> = omitted.iter().map(String::as_str).take(5).collect();
        let why = format!(
            "{} parts are left out, for which there is no room: {}",
            omitted.len(),
            first.join(", ")
        );
        findings.push(Finding::new("archive", "size", State::Warning, &why).next("--max-size"));
    }
    Ok(findings)
}

impl Collector<'_> {
    fn note(&mut self, name: &str, state: State, said: &str) {
        self.findings.push(Finding::new("sources", name, state, said));
    }

    /// What the server of this machine and its daemons say; and the description of the archive.
    async fn machine(&mut self, created: Timestamp) -> io::Result<()> {
        let machine = &self.config.machine;
        let server = node_server::ask::<NodeAnswer>(&machine.socket, NODE_PATH, Vec::new()).await;
        let description = Description {
            api_version: VERSION.to_owned(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            created,
            namespace: self.config.namespace.clone(),
            node: server.as_ref().ok().map(|answer| answer.node.clone()),
        };
        self.archive.json(DESCRIPTION, &description)?;
        let found = node::findings(machine, None).await;
        self.archive.json(MACHINE, &found)?;
        match server {
            Ok(answer) => {
                self.archive.json("machine/node.json", &answer)?;
                self.note("server of this node", State::Ok, &answer.node);
            }
            Err(silence) => {
                self.note("server of this node", State::Skipped, &silence.why(&machine.socket));
            }
        }
        for (daemon, question) in QUESTIONS {
            let run_dir = match daemon {
                VSWITCHD => &machine.ovs_run_dir,
                _ => &machine.ovn_run_dir,
            };
            let socket = ControlSocket::of(run_dir, daemon);
            if let Ok(text) = socket.ask(question, &[], PATIENCE).await {
                let name = question.replace('/', "-");
                self.archive.text(&format!("machine/daemons/{daemon}/{name}.txt"), &text)?;
            }
        }
        self.open_vswitch().await
    }

    /// Open vSwitch's database, and the namespaces of the pods in it.
    async fn open_vswitch(&mut self) -> io::Result<()> {
        let machine = &self.config.machine;
        let options = ovsdb::Options { connect_timeout: PATIENCE, ..ovsdb::Options::small() };
        let database = answer(Connection::open(&machine.ovsdb, "Open_vSwitch", options)).await;
        let database = match database {
            Ok(database) => database,
            Err(why) => {
                self.note("Open vSwitch", State::Skipped, &why);
                return Ok(());
            }
        };
        self.schema_and_tables("Open_vSwitch", &database).await?;
        let found = rows(&database, "Interface", Where::all(), &["external_ids"]).await;
        let ports: BTreeSet<String> = found
            .unwrap_or_default()
            .iter()
            .filter_map(|row| row.map("external_ids").remove(IFACE_ID))
            .collect();
        for port in ports.iter().take(MOST_PODS) {
            // Names of Kubernetes have no `_`.
            let Some((namespace, name)) = port.split_once('_') else { continue };
            let request = InsideRequest { namespace: namespace.to_owned(), name: name.to_owned() };
            let body = serde_json::to_vec(&request).unwrap_or_default();
            let socket = &self.config.machine.socket;
            let answer = node_server::ask::<InsideAnswer>(socket, INSIDE_PATH, body).await;
            if let Ok(answer) = answer {
                self.archive.json(&format!("{INSIDE}/{port}.json"), &answer)?;
            }
        }
        Ok(())
    }

    async fn api(&mut self) -> io::Result<()> {
        let api = match &self.config.api_server {
            Reach::Known(api_server) => Api::open(api_server.clone()),
            Reach::NotGiven => {
                self.note("API server", State::Skipped, "no kubeconfig is given");
                return Ok(());
            }
            Reach::Unusable(why) => {
                self.note("API server", State::Unknown, why);
                return Ok(());
            }
        };
        let version = match page(&api, "/version").await {
            Ok(version) => version,
            // It answers, and may be asked for objects.
            Err(trouble) if trouble.code.is_some_and(|code| code < 500) => serde_json::json!({}),
            Err(trouble) => {
                self.note("API server", State::Unknown, &trouble.to_string());
                return Ok(());
            }
        };
        self.archive.json(&format!("{API}/version.json"), &version)?;
        self.note("API server", State::Ok, &api.url());
        let mut paths = Vec::new();
        for path in LISTS {
            match OWN.iter().find(|resource| path.ends_with(*resource)) {
                None => paths.push(path.to_owned()),
                Some(resource) => {
                    let group = path.trim_end_matches(resource);
                    let mut namespaces = vec![self.config.namespace.as_str()];
                    namespaces.extend((*resource == "leases").then_some("kube-node-lease"));
                    paths.extend(
                        namespaces
                            .iter()
                            .map(|namespace| format!("{group}namespaces/{namespace}/{resource}")),
                    );
                }
            }
        }
        paths.extend(CustomKind::ALL.map(|kind| kind.collection().to_owned()));
        for definition in
            [&CLUSTER_NETWORK_POLICY, &ADMIN_NETWORK_POLICY, &BASELINE_ADMIN_NETWORK_POLICY]
        {
            paths.extend(definition.versions.iter().map(|version| definition.path(version)));
            let group = format!("/apis/{}", definition.group);
            let versions = definition.versions.iter().map(|version| format!("{group}/{version}"));
            for path in versions.chain([group.clone()]) {
                if let Ok(found) = page(&api, &path).await {
                    self.archive.json(&format!("{API}{path}.page.json"), &found)?;
                }
            }
        }
        for path in paths {
            match list(&api, &path, "").await {
                Ok(listed) => {
                    let name = format!("{API}{path}.json");
                    self.archive.json(&name, &serde_json::json!({"items": listed.items}))?;
                    if path == "/api/v1/pods" {
                        self.logs_of_pods(&api, &listed.items).await?;
                    }
                }
                Err(trouble) => self.note(&path, State::Unknown, &trouble.to_string()),
            }
        }
        Ok(())
    }

    /// The ends of the logs of the control plane's pods.
    async fn logs_of_pods(&mut self, api: &Api, pods: &[Value]) -> io::Result<()> {
        let own = self.config.namespace.as_str();
        let is_own = |pod: &&Value| pod["metadata"]["namespace"] == own;
        for pod in pods.iter().filter(is_own).take(MOST_LOGS) {
            let name = pod["metadata"]["name"].as_str().unwrap_or_default();
            let containers = pod["spec"]["containers"].as_array().cloned().unwrap_or_default();
            for container in containers.iter().filter_map(|it| it["name"].as_str()) {
                let which = format!("container={container}&tailLines=5000&limitBytes={TAIL}");
                let path = format!("/api/v1/namespaces/{own}/pods/{name}/log?{which}");
                let Ok(request) = hyper::Request::get(&path).body(Vec::new()) else { continue };
                let text = api.ask(PATIENCE, api.client().request_text(request)).await;
                if let Ok(text) = text {
                    self.archive.text(&format!("logs/pods/{name}/{container}.log"), &text)?;
                }
            }
        }
        Ok(())
    }

    /// All tables but the large ones, which are returned.
    async fn databases(&mut self) -> io::Result<Vec<(&'static str, Connection, String)>> {
        let mut large = Vec::new();
        for (name, reach) in
            [(NORTHBOUND, &self.config.northbound), (SOUTHBOUND, &self.config.southbound)]
        {
            let connection = match connect(reach, name).await {
                Ok(connection) => connection,
                Err(why) => {
                    let is_given = !matches!(reach, Reach::NotGiven);
                    let state = if is_given { State::Unknown } else { State::Skipped };
                    self.note(name, state, &why);
                    continue;
                }
            };
            let left = self.schema_and_tables(name, &connection).await?;
            large.extend(left.into_iter().map(|table| (name, connection.clone(), table)));
        }
        Ok(large)
    }

    async fn schema_and_tables(
        &mut self,
        name: &'static str,
        connection: &Connection,
    ) -> io::Result<Vec<String>> {
        self.archive.json(&format!("{DATABASES}/{name}/schema.json"), &schema(connection))?;
        self.note(name, State::Ok, &connection.endpoint().to_string());
        let is_large = |table: &&String| LARGE.contains(&table.as_str());
        let (large, small): (Vec<&String>, Vec<&String>) =
            connection.schema().tables.keys().partition(is_large);
        for table in small {
            self.table(name, connection, table).await?;
        }
        Ok(large.into_iter().cloned().collect())
    }

    async fn table(
        &mut self,
        name: &'static str,
        connection: &Connection,
        table: &str,
    ) -> io::Result<()> {
        let Some(schema) = connection.schema().table(table) else { return Ok(()) };
        let columns: Vec<&str> = schema.columns.keys().map(String::as_str).collect();
        match rows(connection, table, Where::all(), &columns).await {
            Ok(rows) => {
                let rows: Vec<Value> = rows.iter().map(|row| as_json(row, &columns)).collect();
                self.archive.json(&format!("{DATABASES}/{name}/{table}.json"), &rows)
            }
            Err(why) => {
                self.note(name, State::Unknown, &why);
                Ok(())
            }
        }
    }

    fn logs(&mut self) -> io::Result<()> {
        for path in LOGS {
            if let Ok(text) = file_end::read(Path::new(path), TAIL) {
                self.archive.text(&format!("logs/{}", path.trim_start_matches('/')), &text)?;
            }
        }
        Ok(())
    }
}

/// Names of tables and columns. Types are left out, which nothing that reads an archive asks for.
fn schema(connection: &Connection) -> Value {
    let schema = connection.schema();
    let column = |column: &String| (column.clone(), serde_json::json!({"type": "string"}));
    let tables = schema.tables.iter().map(|(name, table)| {
        let columns: serde_json::Map<_, _> = table.columns.keys().map(column).collect();
        (name.clone(), serde_json::json!({ "columns": columns }))
    });
    let tables: serde_json::Map<_, _> = tables.collect();
    serde_json::json!({"name": schema.name, "version": schema.version, "tables": tables})
}

fn as_json(row: &SelectedRow, columns: &[&str]) -> Value {
    let own = columns.iter().chain(&["_uuid"]);
    let value = |column: &&str| {
        let datum = row.datum(column)?;
        Some(((*column).to_owned(), serde_json::to_value(datum).ok()?))
    };
    Value::Object(own.filter_map(value).collect())
}
