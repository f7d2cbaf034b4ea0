//! What the northbound database should hold for the current nodes and pods, derived here from the
//! API server's objects, and what it does hold.
//!
//! Must not know how the control plane decides. Names and columns are those of upstream's
//! databases.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use anyhow::{Context as _, Result, bail, ensure};
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt as _;
use ovsdb::{Connection, Monitor, Monitored, Options, Uuid, Where};
use serde_json::Value;

use super::{Cluster, GatewayMode};
use crate::{central::NORTHBOUND, eventually};

/// Annotation of a node: its subnets, a part of the cluster's.
const SUBNETS: &str = "k8s.ovn.org/node-subnets";
/// Annotation of a pod: its network.
const NETWORK: &str = "k8s.ovn.org/pod-networks";
const ROUTER: &str = "ovn_cluster_router";
/// The port group of the nodes' management ports.
const ALL_NODES: &str = "clusterPortGroup";

ovsdb::table! {
    struct LogicalSwitch in "Logical_Switch" {
        name: String,
        ports: Vec<Uuid>,
        acls: Vec<Uuid>,
    }

    struct LogicalSwitchPort in "Logical_Switch_Port" {
        name: String,
        addresses: Vec<String>,
        port_security: Vec<String>,
        options: BTreeMap<String, String>,
    }

    struct LogicalRouter in "Logical_Router" {
        name: String,
        ports: Vec<Uuid>,
    }

    struct LogicalRouterPort in "Logical_Router_Port" {
        name: String,
    }

    struct PortGroup in "Port_Group" {
        acls: Vec<Uuid>,
        external_ids: BTreeMap<String, String>,
    }

    struct Acl in "ACL" {
        priority: i64,
        direction: String,
    }
}

impl Cluster {
    /// Waits until the northbound database has exactly the switches, routers, ports and ACLs that
    /// the current nodes and pods should have.
    pub fn northbound_must_match(&self) -> Result<()> {
        self.northbound_must_match_within(Duration::from_secs(20))
    }

    /// The same with another time limit, for many nodes and pods.
    pub fn northbound_must_match_within(&self, patience: Duration) -> Result<()> {
        eventually(
            "the northbound database has what nodes and pods need, and no more",
            patience,
            || {
                let (wanted, found) = (self.wanted_rows()?, self.northbound_rows()?);
                let missing: Vec<&String> = wanted.difference(&found).collect();
                let more: Vec<&String> = found.difference(&wanted).collect();
                ensure!(
                    missing.is_empty() && more.is_empty(),
                    "missing: {missing:#?}\nnot wanted: {more:#?}"
                );
                Ok(())
            },
        )
    }

    /// The subnet that a node's annotation gives it.
    pub fn subnet_of(&self, node: &str) -> Result<String> {
        let node = self.api.read(&format!("/api/v1/nodes/{node}"))?;
        subnet(&node)
    }

    fn wanted_rows(&self) -> Result<BTreeSet<String>> {
        let mut rows = BTreeSet::from([
            "switch join".to_owned(),
            format!("router {ROUTER}"),
            format!("port of join: jtor-{ROUTER}"),
            format!("router port of {ROUTER}: rtoj-{ROUTER}"),
            // A pod reaches itself through a Service, whatever policies say.
            format!("ACL of {ALL_NODES}: to-lport, priority 1001"),
            format!("ACL of {ALL_NODES}: from-lport, priority 1001"),
        ]);
        for node in
            self.api.read("/api/v1/nodes")?["items"].as_array().context("a list of nodes")?
        {
            let name = node["metadata"]["name"].as_str().context("a node's name")?;
            // A node without a subnet has no rows: name it, instead of the rows that are missing.
            subnet(node)?;
            rows.extend([
                format!("switch {name}"),
                format!("ACL of {name}: to-lport, priority 1001"),
                format!("port of {name}: stor-{name}"),
                format!("port of {name}: k8s-{name}"),
                format!("router port of {ROUTER}: rtos-{name}"),
            ]);
            if self.gateway.is_some_and(GatewayMode::has_router) {
                rows.extend(of_gateway(name));
            }
        }
        let mut addresses = BTreeMap::new();
        for (key, pod) in self.pods.now() {
            let Some(port) = port(&pod).with_context(|| key.clone())? else { continue };
            // Two pods with one address would still match row by row, so look here.
            if let Some(other) = addresses.insert(port.addresses.clone(), key.clone()) {
                bail!("{other} and {key} have the same address: {}", port.addresses);
            }
            rows.insert(port.line());
        }
        Ok(rows)
    }

    fn northbound_rows(&self) -> Result<BTreeSet<String>> {
        let rows = self.api.runtime.block_on(read())?;
        let mut lines = BTreeSet::new();
        let (mut switch_of, mut router_of, mut acl_of) =
            (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
        for (_, switch) in rows.rows::<LogicalSwitch>() {
            lines.insert(format!("switch {}", switch.name));
            switch_of.extend(switch.ports.iter().map(|port| (*port, switch.name.clone())));
            acl_of.extend(switch.acls.iter().map(|acl| (*acl, switch.name.clone())));
        }
        for (_, router) in rows.rows::<LogicalRouter>() {
            lines.insert(format!("router {}", router.name));
            router_of.extend(router.ports.iter().map(|port| (*port, router.name.clone())));
        }
        for (_, group) in rows.rows::<PortGroup>() {
            let name = group.external_ids.get("k8s.ovn.org/name").context("a port group's name")?;
            acl_of.extend(group.acls.iter().map(|acl| (*acl, name.clone())));
        }
        let owner = |owners: &BTreeMap<Uuid, String>, uuid: Uuid| {
            owners.get(&uuid).cloned().unwrap_or_else(|| "nothing".to_owned())
        };
        for (uuid, acl) in rows.rows::<Acl>() {
            let Acl { priority, direction } = acl;
            lines.insert(format!(
                "ACL of {}: {direction}, priority {priority}",
                owner(&acl_of, uuid)
            ));
        }
        for (uuid, port) in rows.rows::<LogicalRouterPort>() {
            lines.insert(format!("router port of {}: {}", owner(&router_of, uuid), port.name));
        }
        for (uuid, port) in rows.rows::<LogicalSwitchPort>() {
            let switch = owner(&switch_of, uuid);
            // Only the port of a pod has `iface-id-ver`, the UID of the pod.
            lines.insert(match port.options.get("iface-id-ver") {
                None => format!("port of {switch}: {}", port.name),
                Some(uid) => {
                    ensure!(
                        port.addresses == port.port_security,
                        "{}: {:?}, but {:?}",
                        port.name,
                        port.addresses,
                        port.port_security
                    );
                    PodPort {
                        switch,
                        name: port.name.clone(),
                        addresses: port.addresses.join(", "),
                        uid: uid.clone(),
                    }
                    .line()
                }
            });
        }
        Ok(lines)
    }
}

/// The rows of a node's gateway, whose bridge is `breth0`.
fn of_gateway(node: &str) -> [String; 7] {
    let router = format!("GR_{node}");
    [
        format!("router {router}"),
        format!("router port of {router}: rtoj-{router}"),
        format!("router port of {router}: rtoe-{router}"),
        format!("port of join: jtor-{router}"),
        format!("switch ext_{node}"),
        format!("port of ext_{node}: etor-{router}"),
        format!("port of ext_{node}: breth0_{node}"),
    ]
}

async fn read() -> Result<Monitored> {
    let connection =
        Connection::open(&NORTHBOUND.parse()?, "OVN_Northbound", Options::default()).await?;
    let monitor = Monitor::new()
        .table::<LogicalSwitch>(Where::all())
        .table::<LogicalSwitchPort>(Where::all())
        .table::<LogicalRouter>(Where::all())
        .table::<LogicalRouterPort>(Where::all())
        .table::<PortGroup>(Where::all())
        .table::<Acl>(Where::all());
    Ok(connection.monitor(monitor).await?)
}

/// A pod's logical switch port.
struct PodPort {
    switch: String,
    name: String,
    addresses: String,
    uid: String,
}

impl PodPort {
    fn line(&self) -> String {
        let Self { switch, name, addresses, uid } = self;
        format!("port of {switch}: {name} with {addresses} for {uid}")
    }
}

/// The port that a pod should have, by its annotation. None for pods without a node, pods on the
/// host's network, and pods that have ended: these need no port.
fn port(pod: &Pod) -> Result<Option<PodPort>> {
    let (Some(spec), Some(status)) = (&pod.spec, &pod.status) else { return Ok(None) };
    let Some(node) = &spec.node_name else { return Ok(None) };
    if spec.host_network == Some(true)
        || matches!(status.phase.as_deref(), Some("Succeeded" | "Failed"))
    {
        return Ok(None);
    }
    let network = pod.annotations().get(NETWORK).context("the pod has no annotation")?;
    let network: Value = serde_json::from_str(network)?;
    let network = &network["default"];
    let addresses =
        network["ip_addresses"].as_array().context("addresses")?.iter().filter_map(Value::as_str);
    let addresses: Vec<&str> = addresses.filter_map(|address| address.split('/').next()).collect();
    let mac = network["mac_address"].as_str().context("a MAC")?;
    Ok(Some(PodPort {
        switch: node.clone(),
        name: format!("{}_{}", pod.namespace().unwrap_or_default(), pod.name_any()),
        addresses: format!("{mac} {}", addresses.join(" ")),
        uid: pod.uid().unwrap_or_default(),
    }))
}

fn subnet(node: &Value) -> Result<String> {
    let text = node["metadata"]["annotations"][SUBNETS]
        .as_str()
        .with_context(|| format!("{} has no subnet", node["metadata"]["name"]))?;
    let subnets: Value = serde_json::from_str(text)?;
    subnets["default"][0]
        .as_str()
        .map(str::to_owned)
        .with_context(|| format!("{text} has no subnet"))
}
